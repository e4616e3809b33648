"""Streams: what every device holds in round r, as a function of r."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import overload

from persfl.checks import whole
from persfl.devices import Devices, ids_of, plain_ids
from persfl.errors import InputError, NotReady
from persfl.seeds import Stream, stream
from persfl.types import Data, Source


class Lazy(Sequence[Data]):
    """A sequence whose entries are made when asked for: a round touches only the devices it
    needs.
    """

    def __init__(self, n: int, make: Callable[[int], Data]) -> None:
        self.n = n
        self.make = make

    def __len__(self) -> int:
        return self.n

    @overload
    def __getitem__(self, i: int) -> Data: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Data]: ...
    def __getitem__(self, i: int | slice) -> Data | Sequence[Data]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(self.n))]
        if not 0 <= i < self.n:
            raise IndexError(i)
        return self.make(i)


class Fresh:
    """New rows for everybody each round: `draw(device, stream)` makes them.

    >>> import numpy as np
    >>> source = Fresh(
    ...     3,
    ...     lambda device, place: Data(place.uniform(4, 1), np.full(4, float(device))),
    ... )
    >>> source(0)[2].y.tolist()
    [2.0, 2.0, 2.0, 2.0]
    """

    def __init__(
        self,
        n: int,
        draw: Callable[[int, Stream], Data],
        *,
        seed: int = 0,
        ids: Sequence[Hashable] | None = None,
    ) -> None:
        self.n = whole("n", n, least=1)
        self.draw = draw
        self.seed = seed
        self.ids = plain_ids(ids, n)

    def __call__(self, r: int) -> Sequence[Data]:
        return Lazy(
            self.n,
            lambda device: self.draw(device, stream(self.seed, "fresh", r, device)),
        )


class Replay:
    """A window over rows that arrive in order: `every` new rows per device start a round, the last
    `window` rows are kept.

    A device that has run out of rows keeps its last window; when nobody has new rows left, `rounds`
    have passed.

    >>> import numpy as np
    >>> devices = Devices.of(
    ...     [
    ...         (np.arange(6.0)[:, None], np.zeros(6)),
    ...         (np.arange(4.0)[:, None], np.zeros(4)),
    ...     ]
    ... )
    >>> source = Replay(devices, window=3, every=2)
    >>> source.rounds, source(1)[0].X.ravel().tolist(), source(2)[1].X.ravel().tolist()
    (3, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    """

    def __init__(self, devices: object, *, window: int, every: int = 1) -> None:
        self.devices = Devices.of(devices)
        self.every = whole("every", every, least=1)
        self.window = whole("window", window, least=1)
        self.ids = self.devices.ids
        self.rounds = int(self.devices.counts.max()) // self.every
        if not self.rounds:
            raise InputError(
                f"every must be at most {int(self.devices.counts.max())} (the most rows any device"
                f" has). Got {every}."
            )

    def __call__(self, r: int) -> Sequence[Data]:
        if r >= self.rounds:
            raise NotReady(
                f"round {r} needs {self.every} new rows, and no device has that many left after"
                f" {self.rounds} rounds."
            )

        def window(device: int) -> Data:
            data = self.devices[device]
            last = min(data.rows, (r + 1) * self.every)
            rows = slice(max(0, last - self.window), last)
            return Data(data.X[rows], data.y[rows], data.weight[rows])

        return Lazy(len(self.devices), window)


class Switch:
    """One source before round `at`, another from then on: a drift.

    >>> calm, storm = Devices.of([([[0.0]], [0.0])]), Devices.of([([[1.0]], [1.0])])
    >>> [Switch(calm, storm, at=5)(r)[0].y.tolist() for r in (4, 5)]
    [[0.0], [1.0]]
    """

    def __init__(
        self, before: Source | Devices, after: Source | Devices, *, at: int
    ) -> None:
        self.at = whole("at", at, least=0)
        self.before, self.after = (
            s if callable(s) else Devices.of(s) for s in (before, after)
        )
        self.ids = ids_of(self.before)
        if list(self.ids) != list(ids_of(self.after)):
            raise InputError(
                "before and after must be about the same devices. Their ids differ."
            )

    def __call__(self, r: int) -> Sequence[Data]:
        source = self.before if r < self.at else self.after
        return source(r) if callable(source) else source
