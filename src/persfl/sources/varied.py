"""Devices of a few kinds that also differ in level, in weights and in how their features hang
together.

    x = z A_i,  z ~ N(0, I),  A_i = I + spread * N / sqrt(features)
    y = x'(w_kind(i) + deviation * N) + level * N_i + noise * N,   w_kind ~ N(0, I)

Unlike `clustered_regression`, a step on one device's rows is no unbiased step for its kin, and no
two devices are quite alike.
"""

from __future__ import annotations

import numpy as np

from persfl.checks import real, whole
from persfl.devices import Devices, offsets
from persfl.seeds import stream


def varied_regression(
    n: int = 60,
    *,
    clusters: int = 4,
    rows: int = 120,
    features: int = 8,
    spread: float = 0.5,
    deviation: float = 0.15,
    level: float = 0.3,
    noise: float = 0.5,
    seed: int = 0,
) -> Devices:
    """`n` devices, of kinds 0, 1, ... in turn; the result knows `.clusters` and `.true_weights`.

    >>> devices = varied_regression(n=6, clusters=3, rows=50, features=2, seed=0)
    >>> devices, devices.clusters.tolist()
    (Devices(6 devices, 300 rows, 2 features), [0, 1, 2, 0, 1, 2])
    >>> left = devices.y - (devices.X * devices.true_weights[devices.owner]).sum(axis=1)
    >>> own = left.reshape(6, 50)
    >>> (
    ...     bool(0.3 < own.std(axis=1).mean() < 0.6),
    ...     bool(own.mean(axis=1).std() > 0.1),
    ... )  # noise, and levels of their own
    (True, True)
    """
    whole("n", n, least=1)
    whole("clusters", clusters, least=1, most=n, why=f"{n} devices")
    whole("rows", rows, least=1)
    whole("features", features, least=1)
    for name, value in {
        "spread": spread,
        "deviation": deviation,
        "level": level,
        "noise": noise,
    }.items():
        real(name, value, least=0)
    kinds = np.arange(n) % clusters
    rng = stream(seed, "varied").generator()
    weights = rng.standard_normal((clusters, features))[
        kinds
    ] + deviation * rng.standard_normal((n, features))
    turn = np.eye(features) + spread * rng.standard_normal(
        (n, features, features)
    ) / np.sqrt(features)
    X = np.matmul(rng.standard_normal((n, rows, features)), turn)
    y = (
        np.matmul(X, weights[:, :, None])[..., 0]
        + level * rng.standard_normal((n, 1))
        + noise * rng.standard_normal((n, rows))
    )
    start = offsets(np.full(n, rows))
    return Devices(
        X.reshape(n * rows, -1),
        y.ravel(),
        np.ones(n * rows),
        start,
        range(n),
        clusters=kinds,
        true_weights=weights,
    )
