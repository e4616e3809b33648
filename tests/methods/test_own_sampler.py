"""A sampler of the person's own, wherever an adopter of theirs can be given."""

import numpy as np
import pytest

from persfl import PersonalizedRegressor, Uniform
from persfl.errors import InputError
from persfl.methods import METHODS, Paper
from persfl.runs import load_model, save_model
from persfl.seeds import stream
from persfl.testing import check_sampler

WHO = np.repeat(["a", "b", "c", "d"], 6)
X = np.random.default_rng(0).normal(size=(24, 2))
Y = X @ [1.0, -1.0]


def next_one(trust, r, seed):
    """Everybody asks the device after it."""
    return ((trust.targets + 1) % trust.n)[:, None]


def one_at_random(trust, r, seed):
    """Drawn for each target by itself, so that others change nothing."""
    score = stream(seed, "one of mine", r).at(trust.targets).uniform(trust.n)
    score[np.arange(len(trust.targets)), trust.targets] = 2.0  # never itself
    return np.argsort(score, axis=1)[:, :1]


def fitted(method):
    model = PersonalizedRegressor(method=method, holdout=0)
    return model.fit(X, Y, devices=WHO)


def test_devices_ask_whom_the_sampler_names():
    found = fitted(Paper(sampler=next_one, rounds=5)).helpers_
    pairs = set(zip(found["device"], found["peer"], strict=True))
    assert pairs == {("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")}
    assert (found["asked"] == 5).all()


def test_a_sampler_that_seeds_per_target_keeps_the_contract():
    check_sampler(one_at_random)
    assert len(fitted(Paper(sampler=one_at_random, rounds=4)).models_) == 4


def test_persfls_own_are_the_same_by_either_name():
    own = fitted(Paper(sampler=Uniform(2), rounds=5))
    usual = fitted(Paper(peers=2, rounds=5))
    np.testing.assert_array_equal(own.models_, usual.models_)


def test_a_run_folder_keeps_those_of_persfl_and_forgets_others(tmp_path):
    for sampler, again in ((Uniform(2), Uniform(2)), (next_one, None)):
        place = tmp_path / type(sampler).__name__
        save_model(fitted(Paper(sampler=sampler, rounds=2)), place)
        assert load_model(place).method.sampler == again


@pytest.mark.parametrize(
    "method",
    [
        Paper(sampler=Uniform),
        Paper(sampler="uniform"),
        Paper(sampler=next_one, peers=2),
        METHODS["ucb"](sampler=next_one),
    ],
)
def test_what_is_no_sampler_or_one_too_many_is_said(method):
    with pytest.raises(InputError, match=r"part such as|Leave peers|chooses itself"):
        fitted(method)


def test_one_device_asks_nobody():
    model = PersonalizedRegressor(method=Paper(sampler=next_one), holdout=0)
    assert len(model.fit(X, Y, devices=["a"] * 24).models_) == 1
