"""Modules as people write them: convolutions, norms, dropout, links around; taken as they are, or
refused in a sentence.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn

from persfl import (
    ArrayFleet,
    GradientStep,
    LoopFleet,
    PersflWarning,
    PersonalizedClassifier,
    TopK,
    Uniform,
    personalize,
)
from persfl.errors import InputError
from persfl.learners import Network
from persfl.methods import Paper


class Residual(nn.Module):
    """A block with a link around it, and a head."""

    def __init__(self, norm=nn.BatchNorm2d(3)):
        super().__init__()
        self.stem = nn.Conv2d(1, 3, 3, padding=1)
        self.norm = norm
        self.inner = nn.Conv2d(3, 3, 3, padding=1)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.dropout(self.inner(torch.relu(self.norm(x))))
        return self.head(x.mean((2, 3)))


def uneven():
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((many, 16)) for many in (5, 9, 3, 6)]
    return [(X, (X.std(axis=1) > 1) + 0.0) for X in rows]


def run(kind, make, **more):
    learner = Network(make, shape=(1, 4, 4), dtype="float64")
    step = GradientStep(0.1, steps=2)
    fleet = kind(uneven(), learner=learner, proposer=step, seed=0, **more)
    for _ in personalize(fleet, sampler=Uniform(2), adopter=TopK(2), rounds=2):
        pass
    return fleet


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm2d(3),
        nn.InstanceNorm2d(3),
    ],
)
def test_a_model_per_device_in_chunks_and_one_by_one(norm):
    alone = run(LoopFleet, lambda: Residual(norm))
    for more in ({}, {"memory": 1e-9}):
        fleet = run(ArrayFleet, lambda: Residual(norm), **more)
        np.testing.assert_allclose(fleet.models, alone.models, atol=1e-12)
    learner = fleet.learner
    for (X, _), model in zip(uneven(), fleet.models, strict=True):
        module = learner.module(model).eval()
        said = module(torch.tensor(X).reshape(-1, 1, 4, 4)).argmax(1)
        np.testing.assert_array_equal(learner.labels(model, X), said.numpy())
    assert len({model.tobytes() for model in fleet.models}) == 4


def test_the_front_door_takes_it_too():
    rows = uneven()
    X, y = (np.concatenate(part) for part in zip(*rows, strict=True))
    devices = np.repeat(np.arange(4), [len(rows[i][1]) for i in range(4)])
    module = nn.Sequential(nn.Unflatten(1, (1, 4, 4)), Residual())
    model = PersonalizedClassifier(module, method=Paper(rounds=2), holdout=0)
    model.fit(X, y, devices=devices)
    assert model.predict(X, devices=devices).shape == y.shape


class Drawing(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(nn.functional.dropout(x.flatten(1)))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (Drawing, "says something else of the same rows each time. Take nn.Dropout"),
        (
            lambda: Residual(nn.BatchNorm2d(3, track_running_stats=False)),
            "depends on the rows beside it. Take a norm that keeps running statistics",
        ),
        (lambda: Residual(nn.LazyBatchNorm2d()), "lazy parts"),
    ],
)
def test_a_module_that_is_no_function_of_a_row_is_refused(make, says):
    for kind in (ArrayFleet, LoopFleet):
        with pytest.raises(InputError, match=says):
            run(kind, make)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.states = nn.LSTM(4, 3, batch_first=True)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.states(x[:, 0])[0][:, -1])


def test_what_cannot_be_mapped_without_slopes_is_asked_one_by_one():
    with pytest.warns(PersflWarning, match="one by one"):
        fleet = run(ArrayFleet, Reader)
    expected = run(LoopFleet, Reader).models
    np.testing.assert_allclose(fleet.models, expected, atol=1e-12)
