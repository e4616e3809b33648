"""What kin remembers, between rounds, as the notes of a Trust: plain arrays, so that a
checkpoint of trust is one of kin too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from persfl.errors import InputError
from persfl.types import Array, IntArray

NEVER = -(10**9)
Mask = NDArray[np.bool_]
# The arrays per pair, and what stands there before a peer has said anything.
_PER_PAIR = {
    "asked": NEVER,
    "used": NEVER,
    "shrink": 0.0,
    "near": np.nan,
    "length": 0.0,
    "odd": False,
    "stranger": False,
    "member": False,
    "taken": 0.0,
}


def own_notes(kind: type, notes: Mapping[str, Any], targets: int) -> dict[str, Any]:
    """Notes of a Trust, by the names of the fields of `kind`, if they are of that kind."""
    names = [field.name for field in fields(kind)]
    if set(notes) != set(names) or any(len(notes[name]) != targets for name in names):
        whose = f"kin goes on from notes of its own about {targets} targets"
        raise InputError(f"{whose}. Got notes of another rule or fleet.")
    return {name: notes[name] for name in names}


def refuse_other_kinds(notes: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """Stop where an array is of another kind or has other axes: somebody else may have written
    it.
    """
    for name, array in usual.items():
        told = notes[name]
        if told.dtype.kind != array.dtype.kind or told.ndim != array.ndim:
            raise InputError(f"what kin remembers as {name!r} is no such array.")


@dataclass(frozen=True, eq=False)
class KinNotes:
    """Per target and peer met (T, P), then per target (T,).

    >>> (
    ...     KinNotes.blank(2).asked.shape,
    ...     KinNotes.of(KinNotes.blank(2).notes(), 2).alone.tolist(),
    ... )
    ((2, 0), [True, True])
    """

    panel: IntArray  # who, in the order first asked
    asked: IntArray  # the round it was last asked in
    used: IntArray  # the round its step was last followed in
    # by how much its step has shrunk (log of squares), when it last answered unfollowed
    shrink: Array
    near: Array  # the same, when it first answered away from the start; NaN before
    length: Array  # how long its last step is (log of squares)
    odd: Mask  # its step is much longer than the group's usual one, or next to nothing
    stranger: Mask  # was in a group that proved wrong
    member: Mask  # is kin now
    # how much of its step is followed now: 0 for those who are not kin, or rest
    taken: Array

    # the group's steps have cancelled though none counted as longer than the usual one
    sound: Mask
    most: Array  # what a step may count as, at most (log of squares)
    level: Array  # by how much kin's steps have shrunk
    alone: Mask  # goes its own way, asking nobody
    right: Mask  # has a group, and is part of it
    begun: IntArray  # the round the present search began in
    same: IntArray  # rounds since the group last changed
    searches: IntArray  # that have failed
    careful: IntArray  # of those, the ones that led far away
    mark: Array  # the own shrink when it was done; NaN while it is not
    anew: Mask  # goes back to the start

    @property
    def done(self) -> Mask:
        return ~np.isnan(self.mark)

    def notes(self) -> dict[str, Any]:
        """Ready for `Trust.noted`."""
        return dict(vars(self))

    @staticmethod
    def blank(targets: int) -> KinNotes:
        """Nobody met."""
        nobody = np.empty((targets, 0), dtype=np.int64)
        nothing = np.empty((targets, 0))
        unsaid = nothing.astype(bool)
        no = np.zeros(targets, dtype=bool)
        zeros = np.zeros(targets, dtype=np.int64)
        return KinNotes(
            panel=nobody,
            asked=nobody,
            used=nobody,
            shrink=nothing,
            near=nothing,
            length=nothing,
            odd=unsaid,
            stranger=unsaid,
            member=unsaid,
            taken=nothing,
            sound=no,
            most=np.full(targets, np.inf),
            level=np.zeros(targets),
            alone=~no,
            right=no,
            begun=zeros,
            same=zeros,
            searches=zeros,
            careful=zeros,
            mark=np.full(targets, np.nan),
            anew=no,
        )

    @staticmethod
    def of(notes: Mapping[str, Any], targets: int) -> KinNotes:
        """From the notes of a Trust; blank where there are none."""
        if not notes:
            return KinNotes.blank(targets)
        found = own_notes(KinNotes, notes, targets)
        refuse_other_kinds(found, KinNotes.blank(targets).notes())
        return KinNotes(**found)

    def wider(self, panel: IntArray) -> dict[str, Any]:
        """The arrays per pair, with room for a longer panel."""
        more = ((0, 0), (0, panel.shape[1] - self.panel.shape[1]))
        known = self.notes()
        return {
            name: np.pad(known[name], more, constant_values=blank)
            for name, blank in _PER_PAIR.items()
        }
