"""A stream that is pushed: real data arrives when it likes."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from persfl.checks import percent, real, some, whole
from persfl.devices import Devices, position
from persfl.errors import InputError, NotReady
from persfl.types import Array, Data


class Inbox:
    """Keeps the last `window` rows of every device; a round starts when enough new rows are in.

    Enough: at least `need` new rows since the last round on at least a `share` of the devices. A
    round that is due earlier waits up to `wait` seconds for other threads to push, then raises
    NotReady; nothing is lost, and the run goes on with `first=` the same round. Rows count as used
    once the fleet has accepted the round. A device that has no rows yet gives no answers.

    >>> inbox = Inbox(["ann", "bob"], window=100, need=1)
    >>> inbox.push("ann", [[1.0]], [2.0])
    >>> inbox.ready(), inbox.missing()
    (False, ['bob'])
    >>> inbox.push("bob", [[3.0], [4.0]], [5.0, 6.0])
    >>> [data.y.tolist() for data in inbox(0)]
    [[2.0], [5.0, 6.0]]
    """

    def __init__(
        self,
        ids: Sequence[Hashable],
        *,
        window: int,
        need: int = 1,
        share: float = 1.0,
        wait: float = 0.0,
    ) -> None:
        self.ids = list(ids)
        if not all(isinstance(name, Hashable) for name in self.ids):
            raise InputError("ids must be plain values such as text or numbers.")
        if len(set(self.ids)) < len(self.ids) or not self.ids:
            raise InputError("ids must name at least one device, each once.")
        self.window = whole("window", window, least=1)
        self.need = whole("need", need, least=0)
        self.share = real("share", share, least=0, most=1)
        self.wait = real("wait", wait, least=0)
        self._rows: list[Data | None] = [None] * len(self.ids)
        self._new = np.zeros(len(self.ids), dtype=np.int64)
        self._arrived = threading.Condition()
        self._taken = np.zeros(len(self.ids), dtype=np.int64)
        self._place = {name: i for i, name in enumerate(self.ids)}

    def push(
        self,
        device: Hashable,
        X: ArrayLike,
        y: ArrayLike,
        weight: ArrayLike | None = None,
    ) -> None:
        """Hand in new rows of one device; safe from any thread."""
        i = (
            self._place[device]
            if isinstance(device, Hashable) and device in self._place
            else position(self.ids, device)
        )
        data = Devices.of([(X, y, weight)], ids=[device], quiet=True)[0]
        with self._arrived:
            old = self._rows[i]
            width = next(
                (rows.X.shape[1] for rows in self._rows if rows is not None),
                data.X.shape[1],
            )
            if data.X.shape[1] != width:
                raise InputError(
                    f"device {device!r} must send {width} features, as the others do. Got"
                    f" {data.X.shape[1]}."
                )
            if old is not None:
                data_rows = (
                    np.concatenate([a, b])[-self.window :]
                    for a, b in zip(_parts(old), _parts(data), strict=True)
                )
            else:
                data_rows = (part[-self.window :] for part in _parts(data))
            self._new[i] += len(data.y)
            self._rows[i] = Data(*data_rows)
            self._arrived.notify_all()

    def ready(self) -> bool:
        """Whether a round may start."""
        return bool((self._new >= self.need).mean() >= self.share) and any(
            rows is not None for rows in self._rows
        )

    def missing(self) -> list[Hashable]:
        """Devices that have not enough new rows."""
        return [
            name
            for name, new in zip(self.ids, self._new.tolist(), strict=True)
            if new < self.need
        ]

    def __call__(self, r: int) -> Sequence[Data]:
        with self._arrived:
            if not self._arrived.wait_for(self.ready, timeout=self.wait):
                raise NotReady(
                    f"round {r} needs {self.need} new rows on {percent(self.share)} of the devices;"
                    f" missing: {some(self.missing())}. Push more rows, then go on with first= this"
                    " round."
                )
            self._taken = self._new.copy()
            width = next(rows.X.shape[1] for rows in self._rows if rows is not None)
            none = Data(np.empty((0, width)), np.empty(0))
            return [none if rows is None else rows for rows in self._rows]

    def accepted(self, r: int) -> None:
        """The fleet has taken round `r`: its rows are no longer new."""
        with self._arrived:
            self._new -= self._taken
            self._taken[:] = 0


def _parts(data: Data) -> tuple[Array, Array, Array]:
    return data.X, data.y, data.weight
