"""Rows kept back: every one once, every class its share."""

import numpy as np
import pytest

from persfl import Devices
from persfl.errors import InputError
from persfl.evaluation.split import split
from persfl.sources import clustered_regression


@pytest.fixture
def devices():
    return clustered_regression(
        n=12, clusters=2, rows=10, features=4, noise=0.5, seed=0
    )


def test_splits_hold_back_every_row_once(devices):
    held = [split(devices, 0.2, seed=3, part=part)[1] for part in range(5)]
    assert all(part.counts.tolist() == [2] * 12 for part in held)
    everything = np.sort(np.concatenate([part.y for part in held]))
    np.testing.assert_array_equal(everything, np.sort(devices.y))
    train, test = split(devices, 0.2, seed=3)
    assert not set(train.y) & set(test.y)
    assert not np.array_equal(test.y, split(devices, 0.2, seed=4)[1].y)
    few = Devices.of(
        [(np.ones((3, 1)), np.ones(3)), (np.ones((4, 1)), np.ones(4))], quiet=True
    )
    assert split(few, 0.25, seed=0)[1].counts.tolist() == [0, 1]
    assert split(few, 0.0, seed=0)[1].counts.tolist() == [0, 0]
    with pytest.raises(InputError, match="holdout"):
        split(devices, 1.0, seed=0)


def test_every_part_holds_back_its_share_of_every_class():
    y = np.repeat([0.0, 1.0, 2.0], [90, 10, 1])
    devices = Devices.of([(np.zeros((101, 1)), y)], quiet=True)
    for part in range(3):
        train, test = split(devices, 0.25, seed=0, part=part, classes=3)
        assert 20 <= (test.y == 0).sum() <= 24
        assert 2 <= (test.y == 1).sum() <= 3
        assert (train.y == 2).sum() == 1
