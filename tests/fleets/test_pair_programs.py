"""What a GPU computes of small models in one piece: which models, and the same as of any."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from persfl import GradientStep, Linear
from persfl.learners import Network

torch = pytest.importorskip("torch")
from torch import nn

from persfl.fleets.pair_programs import linear_program, perceptron_program

STEP = GradientStep(0.1, steps=2)


def program(make, precision="float32", **more):
    return perceptron_program(Network(make, **more).tensors, 6, STEP, precision)


def two_layers(bend=nn.ReLU, hidden=20, outputs=3, **more):
    first = nn.Linear(6, hidden, **more)
    return nn.Sequential(first, bend(), nn.Linear(hidden, outputs))


def test_two_layers_have_a_program():
    found = program(lambda: two_layers(nn.Tanh, bias=False), l2=0.5)
    assert (found.features, found.hidden, found.outputs) == (6, 20, 3)
    assert found.biases == (False, True)
    assert found.tanh
    assert (found.l2, found.steps, found.rate) == (0.5, 2, 0.1)
    assert found.digits == "tf32x3"
    assert program(two_layers, "tf32").digits == "tf32"


def frozen():
    made = two_layers()
    made[0].requires_grad_(False)
    return made


def tied():
    made = two_layers(outputs=6, hidden=6)
    made[2].weight = made[0].weight
    return made


class Louder(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    "make",
    [
        lambda: two_layers(nn.GELU),
        lambda: two_layers(hidden=2000),
        lambda: nn.Sequential(nn.Linear(6, 3)),
        lambda: nn.Sequential(*two_layers(), nn.Tanh(), nn.Linear(3, 3)),
        lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU(), Louder(4, 3)),
        lambda: nn.Sequential(two_layers()),
        frozen,
        tied,
    ],
)
def test_other_modules_are_computed_as_any(make):
    assert program(make) is None


def test_own_losses_shapes_and_short_numbers_are_computed_as_any():
    assert program(two_layers, "bf16") is None
    assert program(two_layers, loss=lambda z, y: (z[:, 0] - y) ** 2) is None
    assert program(two_layers, shape=(6,)) is None
    hooked = two_layers()
    hooked[0].register_forward_hook(lambda *_: None)
    assert program(lambda: hooked) is None


def test_linear_models_of_one_output_have_a_program():
    assert linear_program(Linear("huber"), 5, STEP) is not None
    assert linear_program(Linear("multinomial", classes=3), 5, STEP) is None
    assert linear_program(Linear(), 5000, STEP) is None


KERNELS = """
import numpy as np
import torch
from torch import nn
from persfl import Devices, GradientStep, Linear
from persfl.fleets import pair_programs
from persfl.fleets.torch_pairs import TensorPairs
from persfl.fleets.torch_runtime import TensorRows
from persfl.learners import Network

pair_programs._ROWS = 32
rng = np.random.default_rng(0)


def close(learner, program, features, classes, step, counts):
    many = sum(counts)
    X = rng.standard_normal((many, features))
    y = rng.integers(0, classes, many) + 0.0 if classes else rng.standard_normal(many)
    start = np.concatenate([[0], np.cumsum(counts)])
    devices = Devices(X, y, rng.random(many) + 0.5, start, range(len(counts)))
    here = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    settings = dict(device=here, dtype="float32", compiled=False)
    pairs = TensorPairs(learner, step, features=features, **settings)
    rows = TensorRows(devices, here, torch.float32)
    w = 0.4 * torch.randn(3, learner.size(features)).to(here)
    mine = torch.arange(3).to(here)
    their = torch.tensor([[1, 2], [3, -1], [4, 0]]).to(here)
    shares = torch.tensor([[0.0, 1, 0], [0.5, 0.5, 0], [1, 0, 0]]).double().to(here)
    same = lambda a, b: torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    told = pairs.answers(w, mine, their, rows, rows, None)
    same(program.answers(w, mine, their, rows, rows), told)
    mixed = pairs.mixes(w, their, shares, rows, None)
    same(program.mixes(w, their, shares, rows), mixed)


even, odd = [4] * 5, [3, 37, 4, 19, 2]
for kind in ("squared", "absolute", "huber", "logistic", "poisson"):
    classes = 2 if kind in ("logistic", "poisson") else 0
    for more in (0, 1):
        learner = Linear(kind, intercept=bool(more), l2=0.01 * more, delta=0.5)
        step = GradientStep(0.1, steps=1 + more)
        program = pair_programs.linear_program(learner, 5, step)
        close(learner, program, 5, classes, step, odd if more else even)
for loss, bend, outputs, bias, steps in (
    ("cross_entropy", nn.ReLU, 3, True, 1),
    ("cross_entropy", nn.Tanh, 18, False, 2),
    ("squared", nn.ReLU, 1, True, 1),
    ("logistic", nn.Tanh, 1, True, 2),
    ("absolute", nn.ReLU, 1, True, 1),
):
    make = lambda: nn.Sequential(
        nn.Linear(6, 20, bias=bias), bend(), nn.Linear(20, outputs)
    )
    learner = Network(make, loss=loss, l2=0.01 * (steps - 1))
    step = GradientStep(0.1, steps=steps)
    math = learner.tensors
    program = pair_programs.perceptron_program(math, 6, step, "float32")
    classes = max(2, outputs)
    close(learner, program, 6, classes, step, odd if steps > 1 else even)
"""


@pytest.mark.slow  # half a minute in an interpreter, where there is no GPU
def test_programs_say_the_same_as_the_general_way():
    pytest.importorskip("triton")
    words = {**os.environ}
    if not torch.cuda.is_available():
        words["TRITON_INTERPRET"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", KERNELS], env=words, capture_output=True, text=True
    )
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("Triton's interpreter does not take this NumPy")
    assert done.returncode == 0, done.stderr
