"""What every in-process fleet has to keep: where the rows are now, who the targets are, and which rows they score by."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from persfl.checks import real
from persfl.devices import Devices, position, stranger
from persfl.errors import InputError
from persfl.seeds import stream
from persfl.types import Array, Data, IntArray


@dataclass(frozen=True)
class Slice:
    """Some devices' rows: `which[i]` is the position in `rows` of the i-th of them, -1 for nobody."""

    rows: Devices
    which: IntArray

    def __getitem__(self, i: Any) -> Data:
        return self.rows[int(self.which[i])]

    def batch(self, i: Any) -> Data:
        """Padded rows, leading axes as `which[i]`."""
        return self.rows.gather(self.which[i])


class Home:
    """The rows of a fleet, static or arriving.

    `devices` is anything `Devices.of` takes, or a source: a function of the round to a sequence of Data, one per device.
    """

    def __init__(self, devices: Any, *, targets: Sequence[Hashable] | None, holdout: float, seed: int) -> None:
        self.holdout = real("holdout", holdout, least=0.0)
        if self.holdout >= 1:
            raise InputError(f"holdout must be a share below 1: the part of a target's rows it scores by. Got {holdout}.")
        self.seed = seed
        self.source: Callable[[int], Sequence[Data]] | None = None
        if callable(devices) and not isinstance(devices, Sequence):
            self.source = devices
            now = devices(0) if not hasattr(devices, "ids") else None
            self.ids: Sequence[Hashable] = devices.ids if now is None else getattr(now, "ids", range(len(now)))
        else:
            self.static = Devices.of(devices)
            self.ids = self.static.ids
        self.n = len(self.ids)
        self.targets = self._positions(targets)
        self._observed: int | None = None
        if self.source is None:
            self._settle(Slice(self.static, self.targets))

    def observe(self, r: int) -> None:
        """Let data arrive for round `r`; observing the same round twice changes nothing."""
        if self.source is None or self._observed == r:
            return
        self._now = self.source(r)
        if len(self._now) != self.n:
            raise InputError(f"the source must give one Data for each of {self.n} devices. Got {len(self._now)} in round {r}.")
        own = self.peers(self.targets)
        empty = own.which < 0
        if empty.any():
            raise InputError(f"target {self.ids[int(self.targets[empty][0])]!r} has no rows in round {r}. Start once it has some.")
        self._settle(own)
        self._observed = r

    def peers(self, who: IntArray) -> Slice:
        """The rows of these devices now; only those named are touched."""
        if self.source is None:
            return Slice(self.static, who)
        if isinstance(self._now, Devices):
            rows, which = self._now, who
        else:
            if who.max(initial=-1) >= self.n:
                raise stranger(int(who.max()), self.n)
            named = np.unique(who[who >= 0])
            rows = Devices.of([self._now[int(i)] for i in named], ids=[self.ids[int(i)] for i in named], quiet=True, empty=True)
            which = np.where(who >= 0, np.searchsorted(named, who), -1)
        return Slice(rows, np.where((which >= 0) & (rows.counts[which] > 0), which, -1))

    def _positions(self, targets: Sequence[Hashable] | None) -> IntArray:
        if targets is None:
            return np.arange(self.n)
        if isinstance(targets, (str, bytes)) or not hasattr(targets, "__len__") or not len(targets):
            raise InputError(f"targets must be a list of at least one device id. Got {targets!r}.")
        where = np.array([position(self.ids, t) for t in targets], dtype=np.int64)
        if len(np.unique(where)) < len(where):
            raise InputError("targets must differ. Got a device twice.")
        return where

    def _settle(self, own: Slice) -> None:
        """Split the targets' rows into those they score by and those a local step may train on."""
        self.scoring = self.training = own
        if not self.holdout:
            return
        sides: tuple[list[Data], list[Data]] = ([], [])
        for t, target in enumerate(self.targets):
            data = own[t]
            if data.rows < 2:
                raise InputError(f"holdout needs at least 2 rows of each target. Device {self.ids[int(target)]!r} has {data.rows}.")
            held = int(np.clip(round(self.holdout * data.rows), 1, data.rows - 1))
            order = np.argsort(_marks(data, self.seed), kind="stable")
            for side, rows in zip(sides, (order[:held], order[held:]), strict=True):
                side.append(data.take(np.sort(rows)))
        ids = [self.ids[int(t)] for t in self.targets]
        self.scoring, self.training = (Slice(Devices.of(side, ids=ids, quiet=True), np.arange(len(ids))) for side in sides)


def _marks(data: Data, seed: int) -> Array:
    """A random number per row that depends on the row itself, so that it stays on its side as a window moves over a stream."""
    content = np.ascontiguousarray(np.column_stack([data.X, data.y]) + 0.0).view(np.uint64)
    place = stream(seed, "holdout").at(np.zeros(data.rows, dtype=np.uint64))
    for column in content.T:
        place = place.at(column)
    return place.uniform(1)[:, 0]


def no_models_yet() -> InputError:
    """A fleet on a stream was asked for models before any row arrived."""
    return InputError("a fleet on a stream has models once its first round has been observed. Run a round first.")


def no_usable(losses: Array, peers: IntArray) -> int | None:
    """The first target that asked somebody and got no usable answer, or whose own loss is not finite."""
    if np.isfinite(losses).all():
        return None
    lost = ~np.isfinite(losses[:, 0])
    if peers.shape[1]:
        lost |= ~np.isfinite(losses[:, 1:].min(axis=1)) & (peers >= 0).any(axis=1)
    return int(np.argmax(lost)) if lost.any() else None
