"""A large fleet learns what it has in common from a panel, and loses next to nothing by it."""

from __future__ import annotations

import numpy as np
import pytest

from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.fleet_panel import panel_fit, panel_near, sums_of_devices
from persfl.methods.mixed.mixed_model import MixedModel
from persfl.methods.mixed.near_centres import near


@pytest.fixture(scope="module")
def fleet():
    """200 devices of two kinds, some of them loud: sums and true models."""
    luck = np.random.default_rng(3)
    n, rows, d = 200, 12, 4
    W = luck.normal(size=(2, d))[luck.integers(2, size=n)]
    W = W + 0.2 * luck.normal(size=(n, d))
    loud = np.exp(luck.normal(size=n))
    Z = luck.normal(size=(n, rows, d))
    y = np.einsum("nrd,nd->nr", Z, W) + loud[:, None] * luck.normal(size=(n, rows))
    start = rows * np.arange(n + 1)
    sums = DeviceSums.of(Z.reshape(-1, d), y.ravel(), np.ones(n * rows), start)
    return sums, W


KIND = MixedModel(np.arange(4), full=True, loud=True, level=False)


def test_a_panel_of_all_changes_nothing(fleet):
    sums, _ = fleet
    everybody = np.arange(200)
    models, var = panel_fit(KIND, sums, everybody, None, 10)
    expected, known = KIND.fit(sums, None, 10)
    np.testing.assert_array_equal(models, expected)
    np.testing.assert_array_equal(var.noise.each, known.noise.each)


def test_a_panel_of_some_is_nearly_as_good(fleet):
    sums, W = fleet
    panel = np.arange(0, 200, 2)
    expected, known = KIND.fit(sums, None, 40)
    models, var = panel_fit(KIND, sums, panel, None, 40)
    assert len(var.noise.each) == 200
    best = ((expected - W) ** 2).mean()
    assert ((models - W) ** 2).mean() < 1.05 * best
    # loud devices are known as such, also those outside the panel
    apart = np.corrcoef(np.log(var.noise.each), np.log(known.noise.each))[0, 1]
    assert apart > 0.98
    close = panel_near(sums, var.noise.each, models, var.Sigma / 2, panel, 10)
    whole = near(sums, known.noise.each, expected, known.Sigma / 2, panel, 10)
    assert close.posterior.shape == (200, 100)
    np.testing.assert_allclose(close.posterior.sum(axis=1), 1.0)
    assert ((close.models - W) ** 2).mean() < 1.05 * ((whole.models - W) ** 2).mean()


def test_who_is_outside_goes_by_own_sums_and_the_panel(fleet):
    """A device outside the panel has the same model whoever else is outside."""
    sums, _ = fleet
    panel = np.arange(50)
    models, _ = panel_fit(KIND, sums, panel, None, 10)
    fewer = sums_of_devices(sums, np.arange(120))
    again, _ = panel_fit(KIND, fewer, panel, None, 10)
    np.testing.assert_allclose(again, models[:120], atol=1e-12)
