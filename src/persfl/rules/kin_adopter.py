"""Kin: who answers from the same truth as I do, found by whose steps shrink as my model moves.

meet      ask everyone once from the start model; remember each step
alone     follow only the own step, asking nobody, until it has shrunk to a tenth (of its square)
search    follow, along with the own step, the last steps of the peers whose steps have shrunk at
least half as much, in logs,
          as those of the few best
right     the group's steps have shrunk to a tenth, and the own step at least half as much as
theirs, in logs wrong     not right within two cycles, or the own step has grown tenfold: the group
are strangers. Back to the start rest      a quarter of the group rests at a time. A peer is judged
only while it rests (or is not in the group): one whose steps
          are followed is fitted, and seems kin whoever it is
tested    once the group's steps begin to cancel, none counts as longer than the shortest quarter of
          them: so a minority cannot hold the model where it wants to. Whose step is then far longer
          than the median is not kin, nor who copies
done      the group has not changed for a cycle and its steps cancel, under test and then in full:
          ask nobody any more
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from persfl.rules.kin_notes import NEVER, KinNotes, Mask
from persfl.rules.peer_index import with_peers
from persfl.trust import Trust
from persfl.types import Array, Choice, IntArray, Kept

ROUNDING = 1e-6  # a level nearer to 0 than this is none


@dataclass(frozen=True)
class KinAdopter:
    """The adopter of `persfl.kin`: moves by the mean of the remembered steps of kin and the
    target's own.

    `peers` and `others` are how many peers the sampler asks each round, and how many of those are
    not kin; `among` how many devices a target gets to know. The rest is what benchmarks/kin.py
    --ablate varies, with the reasons in docs/kin.md.
    """

    peers: int = 20
    among: int = 200
    few: int = 4  # how many best peers set the level of a search
    share: float = 0.5  # how much of the level, in logs, makes a peer kin
    # how far steps must shrink to mean something: to a tenth (log of squares)
    clear: float = float(np.log(10.0))
    rest: int = 6  # rounds that a part of the group rests
    # the parts that rest in turn; one question in as many goes to others
    parts: int = 4
    patience: int = 2  # cycles (rest * parts rounds) that a search may take
    cancel: float = 0.01  # how nearly the steps must cancel
    # What follows keeps liars from pulling (benchmarks/liars.py). Lengths are logs of squares.
    # how much longer than the median a step of kin may be
    far: float = float(np.log(30.0))
    copy: float = float(np.log(1e3))  # how much shorter than the own step one may be
    # the share of steps that set what a step may count as under test
    short: float = 0.25
    # how many times the spread of lengths by chance a step may exceed the median
    chance: float = 3.0

    keeps: ClassVar[bool] = True

    @property
    def cycle(self) -> int:
        return self.rest * self.parts

    @property
    def others(self) -> int:
        """How many of the peers asked each round are not kin."""
        return max(1, self.peers // self.parts)

    def met(self, n: int) -> int:
        """How many devices a target gets to know."""
        return min(n - 1, max(self.among, self.peers))

    def finished(self, trust: Trust) -> bool:
        """Whether every target has settled, so that further rounds would change nothing."""
        return "mark" in trust.notes and not np.isnan(trust.notes["mark"]).any()

    def note(
        self, trust: Trust, r: int, peers: IntArray, losses: Array, kept: Kept
    ) -> dict[str, Any]:
        """What is known after these answers, and what follows from it."""
        memory = self._answered(KinNotes.of(trust.notes, len(peers)), r, peers, kept)
        meeting = (memory.panel >= 0).sum(axis=1) < self.met(trust.n)
        return self._decided(memory, r, kept, meeting).notes()

    def __call__(self, trust: Trust, peers: IntArray, losses: Array) -> Choice:
        T = len(peers)
        if not trust.notes:
            return Choice(np.full((T, 1), -1), np.zeros((T, 1)), np.ones(T))
        memory = KinNotes.of(trust.notes, T)
        known = (memory.panel >= 0).sum(axis=1)
        meeting = known < self.met(trust.n)
        acts = ~meeting & ~memory.done & ~memory.anew
        follows = (memory.taken > 0) & acts[:, None]
        many = follows.sum(axis=1)
        # A mean of many steps wobbles less than one and may be longer, unless the steps are old:
        # only so many are renewed a round.
        renewed = np.minimum(1.0, (self.peers - self.others) / np.maximum(many, 1))
        bold = np.sqrt(1.0 + many) * renewed
        stride = np.maximum(1.0, bold * 0.5**memory.careful)
        each = np.where(acts, stride / (1 + many), 0.0)
        others = np.where(follows, memory.panel, -1)
        who = np.concatenate([others, trust.targets[:, None]], axis=1)
        taken = np.where(follows, memory.taken, 0.0)
        weights = np.concatenate([taken, np.ones((T, 1))], axis=1) * each[:, None]
        return Choice(who, weights, 1.0 - weights.sum(axis=1), memory.anew)

    def _answered(
        self, memory: KinNotes, r: int, peers: IntArray, kept: Kept
    ) -> KinNotes:
        """Remember who was asked and what the answers of those who were not followed say."""
        panel, at, new = with_peers(memory.panel, peers)
        known = memory.wider(panel)
        t, s = np.nonzero(peers >= 0)
        slot = at[t, s]
        said = kept.shrink[t, s]
        useless = np.isnan(said)
        said = np.where(useless, 0.0, said)
        rested = r - known["used"][t, slot] >= self.rest // 2
        fair = rested & ~new[t, s]
        known["asked"][t, slot] = r
        length = kept.length[t, s]
        before = known["length"][t, slot]
        known["length"][t, slot] = np.where(np.isnan(length), before, length)
        before = known["shrink"][t, slot]
        known["shrink"][t, slot] = np.where(fair | useless, said, before)
        before = known["near"][t, slot]
        first = fair & np.isnan(before)
        known["near"][t, slot] = np.where(first, said, before)
        return replace(memory, panel=panel, **known)

    def _decided(self, m: KinNotes, r: int, kept: Kept, meeting: Mask) -> KinNotes:
        own = kept.own
        # rows that have changed reopen the question
        mark = np.where(np.abs(own - m.mark) < ROUNDING, m.mark, np.nan)
        done = ~np.isnan(mark)
        begun = np.where(meeting, r, m.begun)
        waiting = (own > -self.clear) & (r - begun < self.cycle)
        alone = m.alone & (meeting | waiting)
        begun = np.where(m.alone & ~alone, r, begun)

        usual = np.median(m.shrink, axis=1) if m.shrink.shape[1] else np.zeros(len(own))
        usual = np.where(usual > self.clear, usual, 0.0)
        odd = self._odd(m, kept)
        level, shrink = self._level(m, usual, own)
        member = (shrink < self.share * level[:, None]) & ~odd
        member &= (level < -ROUNDING)[:, None] & ~alone[:, None]
        member = np.where(done[:, None], m.member, member)
        near = own - usual < self.share * level
        right = (level < -self.clear) & near & ~alone
        begun = np.where(right, r, begun)
        steady = (member == m.member).all(axis=1)
        same = np.where(steady & right, m.same + 1, 0)
        stable = same >= self.cycle
        part = np.arange(m.panel.shape[1]) % self.parts
        turn = r // self.rest % self.parts
        resting = (part == turn) & ~stable[:, None]
        cancel = kept.moved < self.cancel
        sound = stable & (m.sound | cancel)
        ends = done | (m.sound & sound & cancel)
        mark = np.where(ends, np.where(done, mark, own), np.nan)

        lost = own > self.clear
        late = r - begun >= self.patience * self.cycle
        wrong = ~alone & ~done & (late | lost)
        mine = wrong[:, None]
        moving = member & ~resting & ~mine
        begins = right & (kept.moved < 1)
        tested = ~alone & ~wrong & (begins | np.isfinite(m.most))
        most = self._most(m, tested, sound, moving, kept)
        used = np.where(moving & ~done[:, None], r, m.used)
        shorter = np.minimum(0.0, most[:, None] - m.length)
        return replace(
            m,
            used=np.where(mine, NEVER, used),
            shrink=np.where(mine, np.nan_to_num(m.near), m.shrink),
            odd=odd & ~mine,
            stranger=m.stranger | (member & mine),
            member=member & ~mine,
            sound=sound & ~wrong,
            most=most,
            taken=np.where(moving, np.exp(shorter / 2), 0.0),
            level=level,
            alone=alone | wrong,
            right=right & ~wrong,
            begun=np.where(wrong, r, begun),
            same=np.where(wrong, 0, same),
            searches=m.searches + wrong,
            careful=m.careful + (wrong & (own > 0)),
            mark=mark,
            anew=wrong,
        )

    def _odd(self, m: KinNotes, kept: Kept) -> Mask:
        """(T, P) whose steps are next to nothing, or far longer than the group's.

        The latter only once the group's steps begin to cancel. Before that lengths say little: they
        shrink from round to round, and were measured in different ones.
        """
        own = kept.own_length
        copy = m.length < (own - self.copy)[:, None]
        usual = _length(m, m.member & ~copy, own, 0.5)
        far = m.length > (usual + self.far)[:, None]
        settled = m.right & (kept.moved < 1.0)
        return np.where(settled[:, None], far, m.odd) | copy

    def _most(
        self, m: KinNotes, tested: Mask, sound: Mask, moving: Mask, kept: Kept
    ) -> Array:
        """(T,) what a step may count as, at most.

        Under test it is so little that nearly all steps count the same: the model then comes to
        rest where directions cancel, and a minority cannot outweigh the rest by longer steps. In a
        sound group honest steps count in full: their lengths differ by chance, with a spread of
        sqrt(2 / size). That bar stays as it was when the group proved sound, or those who pull
        could raise it.
        """
        short = _length(m, moving, kept.own_length, self.short)
        full = _length(m, moving, kept.own_length, 0.5) + self.chance * np.sqrt(
            2.0 / kept.size
        )
        full = np.where(m.sound, m.most, full)
        return np.where(tested, np.where(sound, full, short), np.inf)

    def _level(self, m: KinNotes, usual: Array, own: Array) -> tuple[Array, Array]:
        """By how much kin's steps have shrunk, and everybody's; strangers count only once a group
        is found.

        So do steps that have shrunk far more than the own: nobody can know so early that it suits.

        Where a model bends (a network), everybody's steps grow as it learns, tenfold and more; then
        to grow less counts.
        """
        shrink = np.where(m.panel >= 0, m.shrink - usual[:, None], 0.0)
        early = shrink < (own - usual - self.clear)[:, None]
        shrink = np.where(~m.right[:, None] & (m.stranger | early), 0.0, shrink)
        level = self._best(shrink)
        many = m.member.sum(axis=1)
        if not many.any():
            return level, shrink
        ordered = np.sort(np.where(m.member, shrink, np.inf), axis=1)
        row = np.arange(len(many))
        count = np.maximum(many, 1)
        low = ordered[row, (count - 1) // 2]
        high = ordered[row, count // 2]
        with np.errstate(invalid="ignore"):
            middle = (low + high) / 2
        return np.where(m.right & (many >= self.few), middle, level), shrink

    def _best(self, shrink: Array) -> Array:
        if not shrink.shape[1]:
            return np.zeros(len(shrink))
        few = min(self.few, shrink.shape[1])
        ordered = np.partition(shrink, few - 1, axis=1)
        return np.asarray(ordered[:, :few].mean(axis=1))


def _length(memory: KinNotes, of: Mask, own: Array, share: float) -> Array:
    """(T,) the length that this share of the steps of these peers and the own one stay below."""
    theirs = np.where(of, memory.length, np.inf)
    lengths = np.concatenate([theirs, own[:, None]], axis=1)
    at = (share * of.sum(axis=1)).astype(np.int64)
    row = np.arange(len(of))
    return np.asarray(np.sort(lengths, axis=1)[row, at])
