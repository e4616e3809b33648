"""Frozen parts: in nobody's vector, the same for all, and computed once a row where that is
exact.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn

from persfl import ArrayFleet, Best, Data, GradientStep, Uniform, personalize
from persfl.errors import InputError
from persfl.learners import Network
from persfl.learners.storage.network_files import network_from, network_words


class Backbone(nn.Module):
    """A frozen residual network, and a head on its features."""

    def __init__(self, frozen=True, odd=False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.deep = nn.Conv2d(4, 4, 3, padding=1)
        self.odd = odd
        for part in (self.stem, self.norm, self.deep):
            part.requires_grad_(not frozen)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        x = (x + self.deep(x)).mean((2, 3))
        if self.odd:  # rows that look at each other
            x = x - x.mean(0)
        return self.head(x)


class Adapted(nn.Module):
    """A frozen layer between, with a small one beside it that moves."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(36, 8).requires_grad_(False)
        self.middle = nn.Linear(8, 8).requires_grad_(False)
        self.down = nn.Linear(8, 2, bias=False)
        self.up = nn.Linear(2, 8, bias=False)
        self.last = nn.Linear(8, 3).requires_grad_(False)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        return self.last(torch.tanh(self.middle(x) + self.up(self.down(x))))


def devices():
    rng = np.random.default_rng(0)
    return [
        (rng.standard_normal((5, 36)), rng.integers(0, 3, 5) + 0.0) for _ in range(6)
    ]


def learner_of(make, **more):
    shape = None if make is Adapted else (1, 6, 6)
    return Network(make, shape=shape, dtype="float64", epochs=5, **more)


def whole(make, **more):
    """The same learner, which never computes features beforehand."""
    learner = learner_of(make, **more)
    learner._tensors.cuts[36] = None
    return learner


def ended(learner):
    fleet = ArrayFleet(devices(), learner=learner, proposer=GradientStep(0.5, steps=2))
    *_, last = personalize(fleet, sampler=Uniform(3), adopter=Best(), rounds=3)
    return fleet.models, last.losses


@pytest.mark.parametrize("make", [Backbone, Adapted])
def test_features_are_computed_once_and_change_nothing(make):
    learner = learner_of(make)
    assert learner.cut(36) is not None
    for mine, theirs in zip(ended(learner), ended(whole(make)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10)
    rows = devices()
    data = Data(np.stack([X for X, _ in rows]), np.stack([y for _, y in rows]))
    fits = learner.fit(data, None), whole(make).fit(data, None)
    np.testing.assert_allclose(*fits, rtol=1e-7)


def test_only_what_moves_is_in_a_model():
    assert set(learner_of(Backbone).shapes) == {"head.weight", "head.bias"}
    assert learner_of(Backbone).size() == 15
    assert set(learner_of(Adapted).shapes) == {"down.weight", "up.weight"}
    assert "norm.running_mean" in learner_of(lambda: Backbone(frozen=False)).shapes


def test_a_frozen_normalisation_keeps_its_statistics():
    learner = learner_of(Backbone)
    assert not learner.traits.renews
    model = learner.init(Data(*devices()[0]), None)
    module = learner.module(model)
    assert module.norm.running_mean.abs().max() == 0


def test_rows_that_look_at_each_other_are_computed_together():
    def make():
        return Backbone(odd=True)

    assert learner_of(make).cut(36) is None


def test_a_body_of_other_numbers_is_refused():
    words = network_words(learner_of(Backbone))
    network_from(words, learner_of(Backbone))
    with pytest.raises(InputError, match="frozen parts have other numbers"):
        network_from(words, learner_of(Backbone, seed=1))
