"""Devices that several tests of verdicts share."""

import pytest

from persfl.sources import clustered_regression


@pytest.fixture
def devices():
    return clustered_regression(
        n=12, clusters=2, rows=10, features=4, noise=0.5, seed=0
    )
