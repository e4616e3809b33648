"""Methods of networks where somebody asked for them to be computed: the same models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn

from persfl import (
    ArrayFleet,
    Data,
    Devices,
    GradientStep,
    Linear,
    PersonalizedClassifier,
)
from persfl.errors import InputError, PersflWarning
from persfl.fitting.setup import FitSettings
from persfl.learners import MLP, Network, network_batches
from persfl.methods import METHODS, Blend, LocalTask, Paper
from persfl.methods.blend.adam import adam


def rows():
    rng = np.random.default_rng(0)
    made = []
    for i in range(6):
        X = rng.standard_normal((8, 3))
        made.append((X, ((X[:, 0] > 0) ^ (i % 2)) + 0.0))
    return Devices.of(made)


def network():
    return Network(lambda: nn.Linear(3, 2), epochs=5, dtype="float64")


@pytest.mark.parametrize("name", ["own", "pooled", "fine-tuned", "ditto", "blend"])
def test_models_do_not_depend_on_who_was_named_to_compute(name):
    found = []
    for compute in (None, "cpu"):
        learner = network() if compute is None else network().on(compute)
        task = LocalTask(rows(), learner, compute=compute, classes=2)
        method = METHODS[name]()
        few = {"rounds": 3, "budget": 1}
        known = method.get_params()
        method = method.set_params(**{k: few[k] for k in few if k in known})
        models = method.run(task).models
        if isinstance(models, list):
            models = [sum(share * part for share, part in mix) for mix in models]
        found.append(np.asarray(models))
    np.testing.assert_array_equal(*found)


def test_steps_of_adam_are_those_on_arrays():
    learner = network()
    data = rows().gather(np.arange(6))
    start = learner.init(data, None)
    marks = (0, 2, 5)
    found = learner.descended(start, data, marks, 0.01)
    expected = adam(lambda w: learner.grad(w, data), start, marks, 0.01)
    for mark in marks:
        np.testing.assert_allclose(found[mark], expected[mark], rtol=1e-12)
    one = Data(data.X[0], data.y[0], data.weight[0])
    alone = learner.descended(start[0], one, (5,), 0.01)[5]
    np.testing.assert_allclose(alone, found[5][0], rtol=1e-9)


def test_where_networks_are_computed_must_exist():
    with pytest.raises(InputError, match="compute='nowhere' cannot be used here"):
        network().on("nowhere")


def test_what_has_no_tensors_is_computed_here():
    settings = FitSettings(compute="cpu")
    settings.check(Blend(), network())
    with pytest.raises(InputError, match="blend of other models computes on this"):
        settings.check(Blend(), Linear())


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"precision": "bf16"}, "is for a GPU: compute='cuda'. Got compute=None"),
        ({"precision": "half"}, "precision must be one of"),
        ({"memory": 0}, "memory must be greater than 0"),
    ],
)
def test_precision_and_memory_of_a_fit_are_checked(settings, says):
    method = METHODS["paper"]()
    with pytest.raises(InputError, match=says):
        FitSettings(**settings).check(method, network())
    with pytest.raises(InputError, match="precision and memory are for networks"):
        FitSettings(memory=1.0).check(method, Linear())


def test_a_fleet_is_computed_as_its_network_says_unless_it_is_told():
    learner = network().on("cpu", memory=0.5)
    step = GradientStep(0.1)
    for told, expected in ({}, 0.5), ({"memory": 2.0}, 2.0):
        fleet = ArrayFleet(rows(), learner=learner, proposer=step, **told)
        assert fleet.engine.runtime.memory == expected


def test_memory_of_a_fit_changes_no_model():
    data = rows()
    found = []
    for memory in (None, 1e-6):
        model = PersonalizedClassifier(
            MLP(hidden=(4,)), method=Paper(rounds=3), memory=memory, holdout=0
        ).fit(data.X, data.y, devices=data.owner)
        found.append(np.asarray(model.models_))
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)
    every = data.gather(np.arange(6))
    little = network().on("cpu", memory=1e-9).fit(every, None)
    np.testing.assert_allclose(little, network().fit(every, None), rtol=1e-9)


def test_plain_steps_are_those_on_arrays():
    learner = network()
    data = rows().gather(np.arange(6))
    start = learner.init(data, None)
    expected = GradientStep(0.3, steps=4).answer(learner, start, data, None)
    np.testing.assert_array_equal(learner.stepped(start, data, 4, 0.3), expected)
    small = learner.on("cpu", memory=1e-7)  # a device at a time
    np.testing.assert_allclose(small.stepped(start, data, 4, 0.3), expected, rtol=1e-12)


def test_memory_of_convolutions_is_that_of_their_layers():
    """Not of as many channels as the last layer has outputs, in the size of the image."""
    filters = (nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    head = nn.Linear(72, 10)
    learner = Network(lambda: nn.Sequential(*filters, head), shape=(1, 8, 8))
    said, columns = 8 * 36 + 10, 9 * 36
    assert learner.width == 4 * said + columns
    assert Network(lambda: nn.Linear(3, 2)).width == 8
    batches = learner.on("cpu", memory=0.1)._batches
    chip = replace(batches, device=torch.device("meta"))
    models, images = torch.zeros(5000, learner.size()), torch.zeros(5000, 10, 64)
    each = 8 * (4 * learner.size() + 10 * (4 * 64 + learner.width))
    sizes = [len(part[0]) for part in chip._chunks([models, images])]
    assert sizes[0] == int(0.1 * 2**30 // each)
    assert sum(sizes) == 5000


def test_chunks_of_a_fit_are_halved_where_memory_runs_out(monkeypatch):
    learner = network()
    data = rows().gather(np.arange(6))
    start = learner.init(data, None)

    def found():
        return [
            learner.loss(start, data),
            learner.fit(data, None),
            learner.descended(start, data, (3,), 0.01)[3],
            learner.stepped(start, data, 3, 0.1),
        ]

    expected = found()
    true = network_batches._mapped

    def scarce(function, tensors):
        if len(tensors[0]) > 2:
            raise torch.cuda.OutOfMemoryError("no room")
        return true(function, tensors)

    monkeypatch.setattr(network_batches, "_mapped", scarce)
    with pytest.warns(PersflWarning, match="out of memory: going on with . model"):
        halved = found()
    for mine, theirs in zip(halved, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    monkeypatch.setattr(network_batches, "_mapped", _never)
    with pytest.warns(PersflWarning), pytest.raises(torch.cuda.OutOfMemoryError):
        learner.loss(start, data)


def _never(function, tensors):
    raise torch.cuda.OutOfMemoryError("no room")
