"""Units: one scale for all devices, and back."""

import numpy as np

from persfl import Devices
from persfl.sources import clustered_regression
from persfl.units import Units


def test_units_reveal_totals_only_and_go_both_ways():
    devices = clustered_regression(
        n=12, clusters=2, rows=10, features=4, noise=0.5, seed=0
    )
    for kind in ("shared", "centred", "raw"):
        units = Units.of(devices, kind, labels=True)
        inside = units.inside(devices)
        owner = np.repeat(np.arange(12), 10)
        np.testing.assert_allclose(units.outside(inside.y, owner), devices.y)
        np.testing.assert_allclose(units.features(devices.X, owner), inside.X)
    shared = Units.of(devices, "shared", labels=True)
    np.testing.assert_allclose(shared.inside(devices).X.std(axis=0), 1.0)
    centred = Units.of(devices, "centred", labels=True).inside(devices)
    np.testing.assert_allclose(
        [centred[i].X.mean(axis=0) for i in range(12)], 0.0, atol=1e-12
    )
    steady = Devices.of([([[1e9, 1.0], [1e9, 2.0]], [0.0, 1.0])], quiet=True)
    assert Units.of(steady, "shared", labels=True).scale[0] == 1.0
