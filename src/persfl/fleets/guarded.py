"""A guard against jumps around any fleet: an answer that would change a target's model absurdly is not used.

    usable if  loss <= own loss + (growth - 1) * |own loss|
    and        length <= reach * median length of the target's answers of this round

An answer to a refit is a complete model, not a step from the target's own, and a model that was fitted to the target's rows alone
may have a loss near 0 there. For these, `about="answers"` compares with the median of the round's answers where that is larger.

One honest helpful peer among those asked is enough for the loop, so refusing what looks absurd costs little; without it a few lying
peers can throw a model far away, because the best of bad answers is adopted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from persfl.checks import one_of, real
from persfl.types import Answers, Choice, Fleet, IntArray, Kept


class Jump(NamedTuple):
    """An answer that the guard put aside."""

    round: int
    target: int
    peer: int
    why: str  # "loss" or "length"


class Guarded:
    """The same fleet, with answers put aside that raise the own loss more than `growth` times or go `reach` times too far.

    Lengths are compared where at least three answers have one. `jumps` says when the guard acted.

    >>> from persfl import ArrayFleet, Best, Devices, GradientStep, Linear, Uniform, personalize
    >>> rows = {"ann": ([[1.0], [1.0]], [1.0, 1.1]), "bob": ([[1.0], [2.0]], [1.0, 2.0]), "eve": ([[1.0], [1.0]], [1e9, 1e9])}
    >>> devices = Devices.of(rows, quiet=True)
    >>> fleet = Guarded(ArrayFleet(devices, learner=Linear(), proposer=GradientStep(0.1), targets=["ann"]))
    >>> for round_ in personalize(fleet, sampler=Uniform(1), adopter=Best(), rounds=20): pass
    >>> float(round_.loss[0]) < 0.1, {jump.peer for jump in fleet.jumps}
    (True, {2})
    """

    def __init__(self, fleet: Fleet, *, growth: float = 2.0, reach: float = 10.0, about: str = "own") -> None:
        self.fleet, self.about = fleet, one_of("about", about, ("own", "answers"))
        self.growth, self.reach = real("growth", growth, least=1), real("reach", reach, above=0)
        self.jumps: list[Jump] = []
        self._far: Any = None

    n = property(lambda self: self.fleet.n)
    targets = property(lambda self: self.fleet.targets)
    models = property(lambda self: self.fleet.models)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fleet, name)

    def observe(self, r: int) -> None:
        self.fleet.observe(r)

    def probe(self, peers: IntArray, r: int) -> Answers:
        """The fleet's answers without the jumps."""
        losses, lengths = self.fleet.probe(peers, r)
        usable = np.isfinite(losses[:, 1:])
        old = losses[:, 0]
        if self.about == "answers":
            old = np.maximum(
                old, [np.median(row[which]) if which.any() else 0.0 for row, which in zip(losses[:, 1:], usable, strict=True)]
            )
        # A loss may be below 0 (poisson): there, too, it may rise by `growth - 1` times its size.
        most = np.where(old < 0, old + (self.growth - 1) * np.abs(old), self.growth * old)
        rose = usable & (losses[:, 1:] > most[:, None])
        known = np.isfinite(lengths) & usable
        few = known.sum(axis=1) < 3
        with np.errstate(invalid="ignore"):
            middle = np.array([np.median(row[which]) if which.any() else np.inf for row, which in zip(lengths, known, strict=True)])
            far = known & ~few[:, None] & (lengths > self.reach * middle[:, None])
        self._far = far
        for t, s in np.argwhere(rose | far).tolist():
            self.jumps.append(Jump(r, int(self.targets[t]), int(peers[t, s]), "loss" if rose[t, s] else "length"))
        if (rose | far).any():
            losses = losses.copy()
            losses[:, 1:][rose | far] = np.inf
        return Answers(losses, lengths)

    def keep(self, peers: IntArray, r: int) -> Kept:
        """Steps that go too far are not remembered. A loss says nothing here: a stranger's step is remembered, not adopted."""
        keeper: Any = self.fleet
        return keeper.keep(np.where(self._far, -1, peers), r)  # type: ignore[no-any-return]

    @property
    def kept(self) -> Any:
        """The kept steps of the fleet."""
        return getattr(self.fleet, "kept", None)

    @kept.setter
    def kept(self, arrays: Any) -> None:
        keeper: Any = self.fleet
        keeper.kept = arrays

    def adopt(self, choice: Choice) -> None:
        self.fleet.adopt(choice)
