"""A guard against jumps around any fleet: an answer that would change a target's model absurdly is
not used.

    usable if  loss <= own loss + (growth - 1) * |own loss|
    and        length <= reach * the larger of the target's own step and the median of the round's
    answers

The own step is the one that the target's own rows would take it (`fleet.own_lengths`). Nobody else
controls it, so that a majority of answers that are short on purpose cannot make honest ones look
long. Where a fleet does not know it, the median decides alone. Copies of the question (shorter than
a thousandth of the longest answer, or of the own step) have no part in the median; `copies` counts
them.

An answer to a refit is a complete model, not a step from the target's own, and a model that was
fitted to the target's rows alone may have a loss near 0 there. For these, `about="answers"`
compares with the median of the round's answers where that is larger; of two with the smaller one,
and one alone with nothing but the own loss.

One honest helpful peer among those asked is enough for the loop, so refusing what looks absurd
costs little; without it a few lying peers can throw a model far away, because the best of bad
answers is adopted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from persfl.checks import one_of, real
from persfl.traits import can_keep
from persfl.types import Answers, AnyArray, Array, Choice, Fleet, IntArray, Kept, Mask

COPY = 1e-3  # of the longest answer, or of the own step: what is shorter says nothing
FEW = 3  # answers with a length below which they have no median worth the name


class Jump(NamedTuple):
    """An answer that the guard put aside."""

    round: int
    target: int
    peer: int
    why: str  # "loss" or "length"


@runtime_checkable
class OwnStepFleet(Protocol):
    """A fleet that knows how far the targets' own rows would take them."""

    def own_lengths(self, r: int) -> Array:
        """(T,) the lengths; NaN where they have no meaning."""


class Guarded:
    """The same fleet, with answers put aside that raise the own loss more than `growth` times or go
    `reach` times too far.

    Lengths are compared where at least three answers have one. `jumps` says when the guard acted,
    `copies` how often each peer's answer was the question itself.

    >>> from persfl import (
    ...     ArrayFleet,
    ...     Best,
    ...     Devices,
    ...     GradientStep,
    ...     Linear,
    ...     Uniform,
    ...     personalize,
    ... )
    >>> rows = {
    ...     "ann": ([[1.0], [1.0]], [1.0, 1.1]),
    ...     "bob": ([[1.0], [2.0]], [1.0, 2.0]),
    ...     "eve": ([[1.0], [1.0]], [1e9, 1e9]),
    ... }
    >>> devices = Devices.of(rows, quiet=True)
    >>> fleet = Guarded(
    ...     ArrayFleet(
    ...         devices, learner=Linear(), proposer=GradientStep(0.1), targets=["ann"]
    ...     )
    ... )
    >>> for round_ in personalize(fleet, sampler=Uniform(1), adopter=Best(), rounds=20):
    ...     pass
    >>> float(round_.loss[0]) < 0.1, {jump.peer for jump in fleet.jumps}
    (True, {2})
    """

    def __init__(
        self,
        fleet: Fleet,
        *,
        growth: float = 2.0,
        reach: float = 10.0,
        about: str = "own",
    ) -> None:
        self.fleet, self.about = fleet, one_of("about", about, ("own", "answers"))
        self.growth = real("growth", growth, least=1)
        self.reach = real("reach", reach, above=0)
        self.jumps: list[Jump] = []
        self.copies: Counter[int] = Counter()
        self._far: Mask | None = None

    n = property(lambda self: self.fleet.n)
    targets = property(lambda self: self.fleet.targets)
    models = property(lambda self: self.fleet.models)

    def __getattr__(self, name: str) -> Any:
        # not there yet, while a copy is being made
        if name == "fleet" or name.startswith("__"):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            )
        inside = getattr(self.fleet, name)
        # only a fleet that keeps steps has it
        return self._keep if name == "keep" else inside

    def observe(self, r: int) -> None:
        self.fleet.observe(r)

    def probe(self, peers: IntArray, r: int) -> Answers:
        """The fleet's answers without the jumps."""
        losses, lengths = self.fleet.probe(peers, r)
        usable = np.isfinite(losses[:, 1:])
        old = losses[:, 0].copy()
        if self.about == "answers":
            for t, which in enumerate(usable):
                said = losses[t, 1:][which]
                # one alone is not what is usual, nor halfway between two
                if len(said) > 1:
                    middle = np.median(said) if len(said) > 2 else said.min()
                    old[t] = max(old[t], float(middle))
        # A loss may be below 0 (poisson): there, too, it may rise by `growth - 1` times its size.
        below = old + (self.growth - 1) * np.abs(old)
        most = np.where(old < 0, below, self.growth * old)
        rose = usable & (losses[:, 1:] > most[:, None])
        known = np.isfinite(lengths) & usable
        usual, copies = self._usual(np.where(known, lengths, np.nan), r)
        far = known & (np.where(known, lengths, 0.0) > self.reach * usual[:, None])
        self.copies.update(peers[copies].tolist())
        self._far = far
        for t, s in np.argwhere(rose | far).tolist():
            why = "loss" if rose[t, s] else "length"
            self.jumps.append(Jump(r, int(self.targets[t]), int(peers[t, s]), why))
        if (rose | far).any():
            losses = losses.copy()
            losses[:, 1:][rose | far] = np.inf
        return Answers(losses, lengths)

    def _usual(self, lengths: Array, r: int) -> tuple[Array, Mask]:
        """(T,) the length that answers are compared with, inf where there is none; (T, S) which
        are copies.
        """
        own = np.full(len(lengths), np.nan)
        fleet: object = self.fleet
        if np.isfinite(lengths).any() and isinstance(fleet, OwnStepFleet):
            own = np.asarray(fleet.own_lengths(r))
        own = np.where(np.isfinite(own), own, 0.0)
        longest = np.fmax(np.fmax.reduce(lengths, axis=1, initial=0.0), own)
        copies = lengths < COPY * longest[:, None]
        usual = np.full(len(lengths), np.inf)
        for t, row in enumerate(np.where(copies, np.nan, lengths)):
            said = row[np.isfinite(row)]
            middle = float(np.median(said)) if len(said) >= FEW else 0.0
            if np.isfinite(lengths[t]).sum() >= FEW:
                usual[t] = max(middle, own[t]) or np.inf
        return usual, copies

    def _keep(self, peers: IntArray, r: int) -> Kept:
        """Steps that go too far are not remembered. A loss says nothing here: a stranger's step
        is remembered, not adopted.
        """
        assert can_keep(self.fleet)
        near = peers if self._far is None else np.where(self._far, -1, peers)
        return self.fleet.keep(near, r)

    @property
    def kept(self) -> Any:
        """The kept steps of the fleet."""
        return self.fleet.kept if can_keep(self.fleet) else None

    @kept.setter
    def kept(self, arrays: Mapping[str, AnyArray] | None) -> None:
        if can_keep(self.fleet):
            self.fleet.kept = arrays

    def adopt(self, choice: Choice) -> None:
        self.fleet.adopt(choice)
