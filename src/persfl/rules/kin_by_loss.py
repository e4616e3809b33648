"""Kin without steps: for models that cannot be averaged or subtracted, such as trees.

All there is to go by is the target's own loss for each answer. One round says little, so a running
mean is kept of each peer's log loss, relative to that of the peers asked in the same round because
they had not been asked for longest. Half of the questions go to those, half to the best remembered.
Of the answers of trusted peers the target adopts one in turn: always the best of them would be the
luckiest on the target's few rows, not the one that knows most. Whoever was good for long may answer
anything now, so an answer counts only while it is no worse than what half of all met said last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from persfl.checks import whole
from persfl.rules.kin_notes import NEVER, own_notes
from persfl.rules.kin_sampler import to_meet
from persfl.rules.peer_index import peer_places, with_peers
from persfl.trust import Trust
from persfl.types import Array, Choice, IntArray, Kept


@dataclass(frozen=True, eq=False)
class LossNotes:
    """What is remembered, per target and peer met (T, P)."""

    panel: IntArray  # who, in the order first asked
    asked: IntArray  # the round it was last asked in
    used: IntArray  # the round its answer was last adopted in
    score: Array  # running mean of relative log losses; NaN before any usable answer
    last: Array  # the log loss of its last usable answer; NaN before

    @staticmethod
    def of(notes: Mapping[str, Any], targets: int) -> LossNotes:
        """From the notes of a Trust; blank where there are none."""
        if not notes:
            who = np.empty((targets, 0), dtype=np.int64)
            none = np.empty((targets, 0))
            return LossNotes(who, who, who, none, none)
        if (
            "last" not in notes and "score" in notes
        ):  # of a run begun before it was noted
            notes = {**notes, "last": np.full(notes["score"].shape, np.nan)}
        return LossNotes(**own_notes(LossNotes, notes, targets))


@dataclass(frozen=True)
class Likely:
    """The adopter of `persfl.kin(steps=False)`."""

    peers: int = 20
    among: int = 200
    # how much of the running mean is kept when a peer answers again
    past: float = 0.9
    few: int = 3  # how many best peers set the level
    share: float = 0.75  # how much of the level, in logs, makes a peer trusted
    # the level below which there is somebody to trust
    clear: float = float(np.log(2.0))
    likely: int = 6  # how many best peers are followed before that

    def met(self, n: int) -> int:
        """How many devices a target gets to know."""
        return min(n - 1, max(self.among, self.peers))

    @property
    def others(self) -> int:
        """How many of the peers asked each round are those not asked for longest."""
        return max(1, self.peers // 2)

    def note(
        self, trust: Trust, r: int, peers: IntArray, losses: Array, kept: Kept | None
    ) -> dict[str, Any]:
        """What is known after these answers; and who will be adopted, so that turns are taken."""
        old = LossNotes.of(trust.notes, len(peers))
        panel, at, _ = with_peers(old.panel, peers)
        more = ((0, 0), (0, panel.shape[1] - old.panel.shape[1]))
        asked, used = (
            np.pad(part, more, constant_values=NEVER) for part in (old.asked, old.used)
        )
        score, last = (
            np.pad(part, more, constant_values=np.nan) for part in (old.score, old.last)
        )
        t, s = np.nonzero(peers >= 0)
        slot = at[t, s]
        asked[t, slot] = r
        with np.errstate(divide="ignore", invalid="ignore"):
            said = np.where(
                np.isfinite(losses[:, 1:]) & (peers >= 0),
                np.log(np.maximum(losses[:, 1:], 1e-300)),
                np.nan,
            )
        usual = _upper(
            np.where(
                np.arange(peers.shape[1]) >= peers.shape[1] - self.others, said, np.nan
            )
        )
        value = said[t, s] - usual[t]
        before = score[t, slot]
        blend = np.where(
            np.isnan(before), value, self.past * before + (1 - self.past) * value
        )
        score[t, slot] = np.where(np.isnan(value), before, blend)
        now = said[t, s]
        last[t, slot] = np.where(np.isnan(now), last[t, slot], now)
        told = LossNotes(panel, asked, used, score, last)
        taken = self._taken(trust.n, told, peers, losses)
        at, known = peer_places(panel, taken[:, None])
        used[known[:, 0], at[known[:, 0], 0]] = r
        return {field.name: getattr(told, field.name) for field in fields(told)}

    def __call__(self, trust: Trust, peers: IntArray, losses: Array) -> Choice:
        memory = LossNotes.of(trust.notes, len(peers))
        # The one whose turn it is was marked by `note` in this very round.
        now = memory.asked.max(axis=1, initial=NEVER)
        mine = (memory.used == now[:, None]) & (memory.used > NEVER)
        # at most one of them is marked, so its number is the largest
        peer = np.where(mine, memory.panel, -1).max(axis=1, initial=-1)
        peer = np.where((peers == peer[:, None]).any(axis=1), peer, -1)
        took = (peer >= 0).astype(np.float64)
        return Choice(peer[:, None], took[:, None], 1.0 - took)

    def _taken(
        self, n: int, memory: LossNotes, peers: IntArray, losses: Array
    ) -> IntArray:
        """(T,) whose answer to adopt, -1 for nobody."""
        score = np.where(np.isnan(memory.score), np.inf, memory.score)
        if not score.shape[1]:
            return np.full(len(peers), -1)
        ordered = np.sort(score, axis=1)
        with np.errstate(invalid="ignore"):
            level = ordered[:, : self.few].mean(axis=1)
        clear = level < -self.clear
        trusted = (score < self.share * level[:, None]) & clear[:, None]
        likely = score <= ordered[:, min(self.likely, score.shape[1]) - 1][:, None]
        at, _ = peer_places(memory.panel, peers)
        usable = np.isfinite(losses[:, 1:]) & (peers >= 0)
        row = np.arange(len(peers))[:, None]
        usable &= memory.last[row, at] <= _lower_half(memory.last)[:, None]
        good = trusted[row, at] & usable
        fair = likely[row, at] & usable
        some_good = good.any(axis=1, keepdims=True)
        some_fair = fair.any(axis=1, keepdims=True)
        pick = np.where(some_good, good, np.where(some_fair, fair, usable))
        # whose turn it is, or simply the best
        first = np.where(some_good | some_fair, memory.used[row, at], losses[:, 1:])
        column = np.where(pick, first, np.inf).argmin(axis=1)
        # first look at everybody from the same model; and one answer has none to compare it with
        meets = (memory.panel >= 0).sum(axis=1) < self.met(n)
        meets |= usable.sum(axis=1) < min(2, peers.shape[1])
        return np.where(
            pick.any(axis=1) & ~meets, peers[np.arange(len(peers)), column], -1
        )


@dataclass(frozen=True)
class AskLikely:
    """The sampler of `persfl.kin(steps=False)`: the best remembered first, then those asked longest
    ago.

    >>> AskLikely(Likely(peers=2))(Trust(4, np.array([0])), 0, 0).shape
    (1, 2)
    """

    rule: Likely

    def __call__(self, trust: Trust, r: int, seed: int) -> IntArray:
        S = whole(
            "peers",
            self.rule.peers,
            least=1,
            most=trust.n - 1,
            why=f"{trust.n} devices",
        )
        targets = trust.targets
        met = self.rule.met(trust.n)
        memory = LossNotes.of(trust.notes, len(targets))
        known = (memory.panel >= 0).sum(axis=1)
        if (known < met).any():  # everybody meets others at the same pace
            return to_meet(trust, met, known, S, seed)
        score = np.where(np.isnan(memory.score), np.inf, memory.score)
        best = np.argsort(score, axis=1, kind="stable")[:, : S - self.rule.others]
        age = memory.asked.astype(np.float64)
        np.put_along_axis(age, best, np.inf, axis=1)
        rest = np.argsort(age, axis=1, kind="stable")[:, : S - best.shape[1]]
        return np.take_along_axis(
            memory.panel, np.concatenate([best, rest], axis=1), axis=1
        )


def _lower_half(values: Array) -> Array:
    """(T,) the median of what is there, the smaller of two; NaN where there is nothing.

    Half of all must be wrong to raise it.
    """
    many = (~np.isnan(values)).sum(axis=1)
    at = np.maximum(many - 1, 0) // 2
    return np.asarray(np.sort(values, axis=1)[np.arange(len(values)), at])


def _upper(values: Array) -> Array:
    """(T,) the upper quartile of what is there; 0 where there is nothing."""
    there = ~np.isnan(values)
    out = np.zeros(len(values))
    for t in np.flatnonzero(there.any(axis=1)).tolist():
        out[t] = np.quantile(values[t][there[t]], 0.75)
    return out
