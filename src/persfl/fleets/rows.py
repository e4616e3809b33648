"""What every in-process fleet has to keep: where the rows are now, who the targets are, and
which rows they score by.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence, Sized

import numpy as np

from persfl.checks import real, refuse_strangers
from persfl.devices import Devices, ReceiptTaker, ids_of, position
from persfl.errors import InputError, NotReady, PersflWarning
from persfl.fleets.engine import Slice
from persfl.fleets.refusals import check_labels, diverged
from persfl.seeds import stream
from persfl.types import Answers, Array, Data, IntArray, Learner


class FleetRows:
    """The rows of a fleet, static or arriving.

    `devices` is anything `Devices.of` takes, or a source: a function of the round to a sequence of
    Data, one per device.
    """

    def __init__(
        self,
        devices: object,
        *,
        targets: Sequence[Hashable] | None,
        holdout: float,
        seed: int,
    ) -> None:
        self.holdout = real("holdout", holdout, least=0.0)
        if self.holdout >= 1:
            raise InputError(
                "holdout must be a share below 1: the part of a target's rows it scores by. Got"
                f" {holdout}."
            )
        self.seed = seed
        self.source: Callable[[int], Sequence[Data]] | None = None
        if callable(devices) and not isinstance(devices, Sequence):
            self.source = devices
            self.ids: Sequence[Hashable] = ids_of(devices)
        else:
            self.static = Devices.of(devices)
            self.ids = self.static.ids
        self.n = len(self.ids)
        self.targets = self._positions(targets)
        self.features: int | None = None
        self.learners: Sequence[Learner] = ()
        self._bad: set[int] = set()
        self._quiet = 0
        if self.source is None:
            self._settle(Slice(self.static, self.targets))

    def serve(self, learners: Sequence[Learner]) -> None:
        """Say whose losses the labels must fit; rows that stay are checked now, others when
        they arrive.
        """
        self.learners = learners
        if self.source is None:
            check_labels(learners, self.static)

    def observe(self, r: int) -> None:
        """Let data arrive for round `r`."""
        if self.source is None:
            return
        self._now = self.source(r)
        listed = isinstance(self._now, Sized) and not isinstance(self._now, Mapping)
        if not listed or len(self._now) != self.n:
            raise InputError(
                f"the source must give a list of one Data for each of {self.n} devices. Round {r}"
                " gave something else."
            )
        # everybody's rows in one piece: right or wrong together
        if isinstance(self._now, Devices):
            if self.features is not None and self._now.features != self.features:
                raise InputError(
                    f"round {r}: device {self.ids[0]!r} and others have {self._now.features}"
                    f" features, where there were {self.features} before. Every device must keep"
                    " the same features."
                )
            check_labels(self.learners, self._now)
        own = self.peers(self.targets)
        empty = own.which < 0
        if empty.any():
            raise NotReady(
                f"target {self.ids[int(self.targets[empty][0])]!r} has no rows in round {r}. Go on"
                " once it has some."
            )
        self._settle(own)
        source: object = self.source
        if isinstance(source, ReceiptTaker):
            source.accepted(r)

    def peers(self, who: IntArray) -> Slice:
        """The rows of these devices now; only those named are touched."""
        if self.source is None:
            return Slice(self.static, who)
        refuse_strangers(who, self.n)
        if not (who >= 0).any():
            return Slice(self.training.rows, np.full(who.shape, -1))
        now = self._now
        rows, which = (now, who) if isinstance(now, Devices) else self._gathered(who)
        present = (which >= 0) & (rows.counts[which] > 0)
        return Slice(rows, np.where(present, which, -1))

    def _gathered(self, who: IntArray) -> tuple[Devices, IntArray]:
        """Put together the rows of those named. A target's must be right; a peer with bad rows
        is left out and named once.
        """
        named = np.unique(who[who >= 0])
        own = set(self.targets.tolist())
        good: list[tuple[int, Devices]] = []
        for i in named.tolist():
            try:
                device = Devices.of(
                    [self._now[i]], ids=[self.ids[i]], quiet=True, empty=True
                )
                if self.features is not None and device.features != self.features:
                    raise InputError(
                        f"device {self.ids[i]!r} has {device.features} features, where there were"
                        f" {self.features} before."
                    )
                check_labels(self.learners, device)
                good.append((i, device))
            except Exception as error:
                if i in own:
                    raise
                if i not in self._bad:
                    self._bad.add(i)
                    warnings.warn(
                        f"device {self.ids[i]!r} gave no usable rows: {error}",
                        PersflWarning,
                        stacklevel=2,
                    )
        if not good:
            return self.training.rows, np.full(who.shape, -1)
        ids = [self.ids[i] for i, _ in good]
        rows = Devices.joined([device for _, device in good], ids=ids)
        known = np.array([i for i, _ in good])
        place = np.minimum(np.searchsorted(known, who), len(known) - 1)
        return rows, np.where(known[place] == who, place, -1)

    def judge(
        self, answers: Answers, peers: IntArray, r: int, why: Callable[[], str]
    ) -> Answers:
        """Losses that are not numbers become inf; a run that cannot go on is stopped.

        A round without usable answers is no reason to stop: peers may be bad or empty, and the
        target stays. It is one where the own loss is not finite, where it is already astronomic and
        no step brings it back, or where for five rounds in a row nobody in the whole fleet got a
        usable answer.
        """
        losses = answers.losses
        if np.isfinite(losses).all():
            self._quiet = 0
            return answers
        losses = np.where(np.isfinite(losses), losses, np.inf)
        asked = (peers >= 0).any(axis=1)
        none = asked & ~np.isfinite(losses[:, 1:].min(axis=1, initial=np.inf))
        lost = ~np.isfinite(losses[:, 0]) | (none & (losses[:, 0] > 1e100))
        self._quiet = self._quiet + 1 if asked.any() and none[asked].all() else 0
        if lost.any() or self._quiet >= 5:
            device = self.ids[int(self.targets[np.argmax(lost | none)])]
            raise diverged(r, device, why())
        return Answers(losses, answers.lengths)

    def _positions(self, targets: Sequence[Hashable] | None) -> IntArray:
        if targets is None:
            return np.arange(self.n)
        listed = isinstance(targets, Sized) and not isinstance(targets, (str, bytes))
        if not listed or not len(targets):
            raise InputError(
                f"targets must be a list of at least one device id. Got {targets!r}."
            )
        if not all(isinstance(target, Hashable) for target in targets):
            raise InputError(f"targets must be device ids. Got {targets!r}.")
        known: dict[Hashable, int] = {}
        if not isinstance(self.ids, range):  # a range finds its numbers by itself
            known = {name: i for i, name in enumerate(self.ids)}
        places = [known[t] if t in known else position(self.ids, t) for t in targets]
        where = np.array(places, dtype=np.int64)
        if len(np.unique(where)) < len(where):
            raise InputError("targets must differ. Got a device twice.")
        return where

    def _settle(self, own: Slice) -> None:
        """Split the targets' rows into those they score by and those a local step may train on."""
        self.scoring = self.training = own
        self.features = own.rows.features
        if not self.holdout:
            return
        sides: tuple[list[Data], list[Data]] = ([], [])
        for t, target in enumerate(self.targets):
            data = own[t]
            data = data.take(np.flatnonzero(data.weight > 0))
            if data.rows < 2:
                raise InputError(
                    "holdout needs at least 2 rows of each target. Device"
                    f" {self.ids[int(target)]!r} has {data.rows}."
                )
            marks = _marks(data, self.seed)
            order = np.argsort(marks, kind="stable")
            # Rows that stay are cut at the exact share; rows that come and go by their own mark, so
            # that none changes sides.
            share = self.holdout * data.rows
            if self.source is not None:
                share = float((marks < self.holdout).sum())
            held = int(np.clip(round(share), 1, data.rows - 1))
            for side, rows in zip(sides, (order[:held], order[held:]), strict=True):
                side.append(data.take(np.sort(rows)))
        ids = [self.ids[int(t)] for t in self.targets]
        self.scoring, self.training = (
            Slice(Devices.of(side, ids=ids, quiet=True), np.arange(len(ids)))
            for side in sides
        )


def _marks(data: Data, seed: int) -> Array:
    """A random number per row that depends on the row itself, so that it stays on its side as a
    window moves over a stream.
    """
    numbers = np.column_stack([data.X, data.y]) + 0.0  # -0.0 is 0.0
    content = np.ascontiguousarray(numbers).view(np.uint64)
    place = stream(seed, "holdout").at(np.zeros(data.rows, dtype=np.uint64))
    for column in content.T:
        place = place.at(column)
    return place.uniform(1)[:, 0]
