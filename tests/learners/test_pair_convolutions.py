"""Convolutions of pairs as products: what plain torch says, however pairs are mapped."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from persfl import ArrayFleet, Best, GradientStep, TopK, Uniform, personalize
from persfl.errors import InputError
from persfl.learners import Network, pair_products
from persfl.learners.pair_convolutions import PairConv2d, in_pairs

WAYS = [
    {"kernel_size": 3},
    {"kernel_size": (3, 2), "stride": (1, 2), "padding": (1, 0)},
    {"kernel_size": 3, "stride": 2, "padding": 2, "dilation": (1, 2), "bias": False},
]


class Residual(nn.Module):
    """Normalisation, dropout, pooling and a link around two convolutions."""

    def __init__(self, norm: nn.Module | None = None, groups: int = 1) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = norm or nn.GroupNorm(2, 4)
        self.second = nn.Conv2d(4, 4, 3, padding="same", groups=groups)
        self.third = nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(6, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = x + F.avg_pool2d(self.second(x), 3, 1, 1)
        x = F.max_pool2d(torch.relu(self.third(x)), 2)
        return self.last(self.drop(x.mean((2, 3))))


def plain(learner: Network) -> Network:
    """The same learner, whose convolutions are torch's own."""
    for part in learner._tensors.module.modules():
        if type(part) is PairConv2d:
            part.__class__ = nn.Conv2d
    return learner


def images(n=6, rows=5, size=6, classes=3):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, rows, size * size))
    y = rng.integers(0, classes, (n, rows)) + 0.0
    return list(zip(X, y, strict=True))


def ended(learner, *, steps=2, adopter=None, **more):
    fleet = ArrayFleet(
        images(), learner=learner, proposer=GradientStep(0.3, steps=steps), **more
    )
    rule = adopter or TopK(2)
    *_, last = personalize(fleet, sampler=Uniform(3), adopter=rule, rounds=3)
    return fleet.models, last


@pytest.fixture(params=[0, 10**9], ids=["one by one", "columns"])
def route(request, monkeypatch):
    monkeypatch.setattr(pair_products, "_MANY", request.param)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("who", ["images", "weights", "both"])
def test_losses_and_slopes_are_those_of_torch(route, way, who):
    torch.manual_seed(0)
    made = nn.Conv2d(2, 3, **way).double()
    other = nn.Conv2d(2, 3, **way).double()
    in_pairs(other)
    assert type(other) is PairConv2d
    shapes = {name: part.shape for name, part in made.named_parameters()}
    lead = (4, 3) if who != "images" else (4,)
    parts = {k: torch.randn(*lead, *s, dtype=torch.float64) for k, s in shapes.items()}
    x = torch.randn(4, 3, 5, 2, 7, 6, dtype=torch.float64)
    x = x[:, 0] if who == "weights" else x
    inner = (None if who == "images" else 0, None if who == "weights" else 0)

    def found(module):
        def value(parts, x):
            return (functional_call(module, parts, (x,)) ** 3).sum()

        both = vmap(vmap(grad(value, argnums=(0, 1)), in_dims=inner))
        second = vmap(vmap(grad(lambda p, x: _size(grad(value)(p, x))), in_dims=inner))
        return both(parts, x), second(parts, x)

    for a, b in zip(*map(_leaves, (found(made), found(other))), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def _size(parts):
    return sum((part**2).sum() for part in parts.values())


def _leaves(tree):
    return torch.utils._pytree.tree_leaves(tree)


@pytest.mark.parametrize("norm", [None, nn.LayerNorm([4, 6, 6]), nn.BatchNorm2d(4)])
def test_a_module_of_the_users_own_is_computed_as_it_is(route, norm):
    def make():
        return Residual(norm, groups=2)

    shape = (1, 6, 6)
    mine, last = ended(Network(make, shape=shape, dtype="float64"))
    theirs, expected = ended(plain(Network(make, shape=shape, dtype="float64")))
    np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-11)
    assert last.choice.peers.tolist() == expected.choice.peers.tolist()


def test_results_do_not_depend_on_the_memory_they_may_take():
    learner = Network(Residual, shape=(1, 6, 6), dtype="float64")
    whole, _ = ended(learner, memory=1.0)
    parts, _ = ended(learner, memory=1e-9)
    np.testing.assert_allclose(whole, parts, rtol=1e-12)


def test_a_module_that_is_handed_out_is_an_ordinary_one():
    learner = Network(Residual, shape=(1, 6, 6))
    model = learner.init(_data(), None)
    module = learner.module(model)
    assert {type(part) for part in module.modules()} & {PairConv2d} == set()


def _data():
    from persfl import Data

    X, y = images()[0]
    return Data(X, y)


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ({"precision": "tf32"}, "is for a GPU: compute='cuda'"),
        ({"precision": "half", "compute": "cuda"}, "precision must be one of"),
        (
            {"precision": "bf16", "compute": "cuda", "dtype": "float64"},
            "rounds float32",
        ),
        ({"memory": 0}, "memory must be greater than 0"),
    ],
)
def test_digits_are_dropped_only_where_asked_for(wish, says):
    with pytest.raises(InputError, match=says):
        ended(Network(Residual, shape=(1, 6, 6)), adopter=Best(), **wish)


KERNELS = """
import torch
from torch.nn import functional as F
from persfl.learners import pair_kernels, pair_products
torch.manual_seed(0)
for Gx, Gw, way in ((2, 4, [1, 2, 1, 0, 1, 1]), (4, 2, [2, 1, 2, 1, 1, 2])):
    x, w = torch.randn(Gx, 3, 3, 9, 8), torch.randn(Gw, 17, 3, 3, 2)
    args = (way, "float32")
    y = pair_products.pair_convolution(x, w, *args)
    g = torch.randn_like(y)
    out = list(y.shape[3:])
    dw = pair_products.weight_slope(g, x, [3, 2], *args)
    dx = pair_products.image_slope(g, w, [9, 8], *args)
    close = lambda a, b: torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    close(pair_kernels.product(x, w, out, *args, back=False), y)
    close(pair_kernels.slope(g, x, [3, 2], *args), dw)
    close(pair_kernels.product(g, w, [9, 8], *args, back=True), dx)
"""


def test_the_kernels_of_a_gpu_say_the_same_in_their_interpreter():
    pytest.importorskip("triton")
    words = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", KERNELS], env=words, check=True)
