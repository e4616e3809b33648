"""The paper's toy data: linear regression in clusters.

x ~ N(0, I),  y = x'w_i + noise * N(0, 1),  w_i = w_cluster(i) + deviation * N(0, I),  w_cluster ~
U[-5, 5]^features
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from persfl.checks import real, whole
from persfl.devices import Devices, offsets
from persfl.errors import InputError
from persfl.seeds import stream
from persfl.types import Array, IntArray


def clustered_regression(
    n: int = 100,
    *,
    clusters: int = 2,
    rows: int | tuple[int, int] = 10,
    features: int = 20,
    noise: float = 0.0,
    deviation: float = 0.0,
    labels: Sequence[int] | IntArray | None = None,
    seed: int = 0,
) -> Devices:
    """`n` devices whose weights are shared inside a cluster, up to a `deviation` of each device.

    `rows` is a number, or `(least, most)` for unequal devices. `labels` says who is in which
    cluster (default: equal sizes, in order). The result also knows `.clusters` and `.true_weights`,
    one entry per device.

    >>> devices = clustered_regression(
    ...     n=4, clusters=2, rows=(3, 6), features=2, noise=0.1, seed=0
    ... )
    >>> devices.clusters.tolist(), devices.counts.tolist(), devices.true_weights.shape
    ([0, 0, 1, 1], [5, 4, 3, 5], (4, 2))
    """
    world = _World.of(n, clusters, features, noise, deviation, labels, seed)
    least, most = rows if isinstance(rows, tuple) else (rows, rows)
    whole("rows", least, least=1)
    whole("rows", most, least=least)
    rng = stream(seed, "rows").generator()
    return world.draw(rng.integers(least, most, size=n, endpoint=True), noise, rng)


class ClusteredStream:
    """A world of clusters in which every device has fresh rows each round (see
    `clustered_stream`).
    """

    def __init__(self, world: _World, rows: int, noise: float, seed: int) -> None:
        self.clusters = world.clusters
        self.true_weights = world.weights
        self.ids = range(len(world.clusters))
        self._draw: Callable[[int], Devices] = lambda r: world.draw(
            np.full(len(world.clusters), rows),
            noise,
            stream(seed, "fresh", r).generator(),
        )

    def __call__(self, r: int) -> Devices:
        return self._draw(r)


def clustered_stream(
    n: int = 100,
    *,
    clusters: int = 2,
    rows: int = 10,
    features: int = 20,
    noise: float = 0.0,
    deviation: float = 0.0,
    labels: Sequence[int] | IntArray | None = None,
    seed: int = 0,
) -> ClusteredStream:
    """The same world as a stream: every device has `rows` fresh rows each round.

    >>> source = clustered_stream(n=4, clusters=2, rows=3, features=2, seed=0)
    >>> source(0)[1].X.shape, bool((source(0)[1].X == source(1)[1].X).any())
    ((3, 2), False)
    """
    world = _World.of(n, clusters, features, noise, deviation, labels, seed)
    return ClusteredStream(world, whole("rows", rows, least=1), noise, seed)


@dataclass(frozen=True)
class _World:
    clusters: IntArray
    weights: Array

    @staticmethod
    def of(
        n: int,
        clusters: int,
        features: int,
        noise: float,
        deviation: float,
        labels: Sequence[int] | IntArray | None,
        seed: int,
    ) -> _World:
        whole("n", n, least=1)
        whole("clusters", clusters, least=1, most=n, why=f"{n} devices")
        whole("features", features, least=1)
        real("noise", noise, least=0)
        real("deviation", deviation, least=0)
        # The clusters' weights do not depend on who is in them: the same seed with other labels is
        # the same world after a drift.
        place = stream(seed, "centres").generator()
        centres = place.uniform(-5.0, 5.0, (clusters, features))
        who = np.arange(n) * clusters // n
        if labels is not None:
            who = np.asarray(labels, dtype=np.int64)
        if who.shape != (n,) or who.min() < 0 or who.max() >= clusters:
            raise InputError(
                f"labels must give each of {n} devices a cluster from 0 to {clusters - 1}. Got"
                f" {labels!r}."
            )
        own = stream(seed, "deviation").generator().standard_normal((n, features))
        return _World(who, centres[who] + deviation * own)

    def draw(self, counts: IntArray, noise: float, rng: np.random.Generator) -> Devices:
        """Rows for everybody."""
        start = offsets(counts)
        X = rng.standard_normal((int(start[-1]), self.weights.shape[1]))
        weights = np.repeat(self.weights, counts, axis=0)
        y = np.einsum("nd,nd->n", X, weights) + noise * rng.standard_normal(len(X))
        return Devices(
            X,
            y,
            np.ones(len(y)),
            start,
            range(len(counts)),
            clusters=self.clusters,
            true_weights=self.weights,
        )
