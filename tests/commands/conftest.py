"""A run that several tests only read."""

import pytest
from fitted_runs import fit, rows


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("front")
    assert fit(folder, rows()) == 0
    return folder / "run"
