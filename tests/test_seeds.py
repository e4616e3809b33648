import numpy as np
import pytest

from persfl.errors import InputError
from persfl.seeds import distinct, stream


def test_places_are_named_not_counted():
    assert stream(0, "a", 1, 2) == stream(0).at("a").at(1, 2)
    many = stream(0, "a").at(np.arange(3)[:, None], np.arange(4))
    assert many.keys.shape == (3, 4)
    assert int(many.keys[1, 2]) == stream(0, "a", 1, 2).key
    assert (many.uniform(5)[1, 2] == stream(0, "a", 1, 2).uniform(5)).all()


def test_different_paths_and_seeds_differ():
    keys = {
        stream(seed, *path).key
        for seed in range(20)
        for path in [("a",), ("b",), ("a", 0), ("a", 1), (0, "a"), (1, 0), (0, 1)]
    }
    assert len(keys) == 20 * 7


def test_numbers_are_uniform_and_uncorrelated():
    draws = stream(3, "check", np.arange(2000)).uniform(50)
    counts = np.histogram(draws, bins=64, range=(0, 1))[0]
    expected = draws.size / 64
    # chi-square with 63 degrees of freedom
    assert ((counts - expected) ** 2 / expected).sum() < 120
    assert np.abs(np.corrcoef(draws[:, :20].T) - np.eye(20)).max() < 0.12
    assert np.abs(np.corrcoef(draws[:20]) - np.eye(20)).max() < 0.65


@pytest.mark.parametrize("compiled", [True, False])
def test_drawing_without_repetition_is_fair(compiled, uncompiled):
    if not compiled:
        uncompiled()
    draws = distinct(stream(1, "fair"), np.arange(20_000), np.array([7]), 3)
    assert ((draws >= 0) & (draws < 7)).all()
    assert (np.sort(draws, axis=1)[:, 1:] > np.sort(draws, axis=1)[:, :-1]).all()
    sets, counts = np.unique(np.sort(draws, axis=1), axis=0, return_counts=True)
    assert len(sets) == 35
    # chi-square with 34 degrees of freedom
    assert ((counts - 20_000 / 35) ** 2 / (20_000 / 35)).sum() < 75


def test_compiled_and_plain_draws_are_equal(uncompiled):
    arguments = (
        stream(5, "x"),
        np.arange(500),
        np.random.default_rng(0).integers(20, 10**9, 500),
        15,
    )
    fast = distinct(*arguments)
    uncompiled()
    assert (fast == distinct(*arguments)).all()


def test_generators_start_at_one_place():
    assert stream(0, "g").generator().integers(10**9) == stream(
        0, "g"
    ).generator().integers(10**9)
    with pytest.raises(InputError, match="one place"):
        stream(0, np.arange(3)).generator()
    with pytest.raises(InputError, match="seed must be a whole number"):
        stream(0.5)
