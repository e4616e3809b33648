"""Trees of the fleet: compiled or not, they say the same; trees that lead nowhere are refused."""

from __future__ import annotations

import numpy as np
import pytest

from persfl.compiled import kernels
from persfl.learners import shared_trees
from persfl.learners.shared_trees import SharedTrees


def trees(**changed):
    """Two trees: one asks for the device, one for a column."""
    parts = {
        "base": 0.1,
        "place": np.array([0, 1, 40]),
        "root": np.array([0, 3]),
        "feature": np.array([0, -1, -1, 2, -1, -1]),
        "threshold": np.array([0.0, 0, 0, 0.5, 0, 0]),
        "left": np.array([1, -1, -1, 4, -1, -1]),
        "right": np.array([2, -1, -1, 5, -1, -1]),
        "missing_left": np.array([True, False, False, False, False, False]),
        "value": np.array([0.0, 1.0, 2.0, 0.0, 10.0, 20.0]),
        "sides": np.array([0, -1, -1, -1, -1, -1]),
        "goes_left": np.array([[1, 1 << 8, 0, 0, 0, 0, 0, 0]], dtype=np.uint32),
    }
    return SharedTrees(**(parts | changed))


X = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
OWNER = np.array([0, 1, 2, -1])  # the last was not there
SAID = [11.1, 22.1, 11.1, 21.1]


def test_compiled_or_not_they_say_the_same(monkeypatch):
    np.testing.assert_allclose(trees().predict(X, OWNER), SAID)
    monkeypatch.setattr(shared_trees, "kernels_for", lambda work: None)
    np.testing.assert_allclose(trees().predict(X, OWNER), SAID)


def test_to_the_last_bit(monkeypatch):
    luck = np.random.default_rng(0)
    made = trees(value=luck.normal(size=6), base=0.3)
    rows = luck.normal(size=(50, 2))
    owner = luck.integers(-1, 3, size=50)
    compiled = made.predict(rows, owner)
    monkeypatch.setattr(shared_trees, "kernels_for", lambda work: None)
    np.testing.assert_array_equal(made.predict(rows, owner), compiled)


@pytest.mark.skipif(kernels() is None, reason="numba is not there")
@pytest.mark.parametrize(
    "changed",
    [
        {"left": np.array([1, -1, -1, 99, -1, -1])},
        {"right": np.array([2, -1, -1, -7, -1, -1])},
        {"left": np.array([1, -1, -1, 3, -1, -1])},  # leads to itself
        {"feature": np.array([0, -1, -1, 9, -1, -1])},
        {"sides": np.array([5, -1, -1, -1, -1, -1])},
        {"root": np.array([0, 77])},
        {"place": np.array([0, 1, 4000])},
    ],
)
def test_no_step_of_compiled_code_leads_outside(changed):
    """Storage refuses such trees; compiled code must not trust that."""
    made = trees(**changed)
    out = np.empty(len(X))
    known = np.append(made.place, -1)[OWNER]
    assert not kernels().walk(X, known, *made._plain, out)
