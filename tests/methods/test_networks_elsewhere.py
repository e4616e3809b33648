"""Methods of networks where somebody asked for them to be computed: the same models."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
from torch import nn

from persfl import Data, Devices, Linear
from persfl.errors import InputError
from persfl.fitting.setup import FitSettings
from persfl.learners import Network
from persfl.methods import METHODS, Blend, LocalTask
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
