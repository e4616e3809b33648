"""Neighbours: peers whose answers have fitted the target's own rows, asked more often and counted
for more.

    excess_p = remembered mean of  gain * (own loss of p's answer - mean own loss of the answers of
    that round) asked:   the largest of  -excess_p + Gumbel noise;  a peer not met yet stands 1
    below the best known adopted: the mean of this round's answers with weights exp(-excess_p)

`gain` turns losses into evidence: half the number of rows over the noise for squared loss, a share
of the rows for log loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from persfl.rules.peer_index import with_peers
from persfl.samplers.nobody import Nobody
from persfl.seeds import distinct, stream
from persfl.trust import Trust
from persfl.types import Array, Choice, IntArray, Sampler

KEPT = 0.7  # of what was remembered of a peer, when it answers again


@dataclass(frozen=True, eq=False)
class Neighbours:
    """A sampler and an adopter that belong together; `known` peers are devices 0 to `known` - 1,
    the targets stand behind them.

    `rows` (T,) are the targets' rows, `noise` (T,) what squared losses are measured by, or None for
    log losses.

    >>> rule = Neighbours(
    ...     peers=2, known=3, rows=np.array([10.0]), noise=np.array([1.0])
    ... )
    >>> trust = Trust(4, np.array([3]))
    >>> peers = rule.sampler(trust, 0, 0)
    >>> trust = trust.noted(
    ...     rule.note(trust, 0, peers, np.array([[9.0, 1.0, 2.0, 3.0]]), None)
    ... )
    >>> rule(trust, peers, np.array([[9.0, 1.0, 2.0, 3.0]])).weights.round(3).tolist()
    [[0.993, 0.007, 0.0]]
    """

    peers: int
    known: int
    rows: Array
    noise: Array | None
    # of the rows that log losses count for: answers from few steps differ little
    share: float = 0.3
    # an answer that multiplies the own loss by more is nobody's: steps can run away
    worse: float | None = None
    # of all answers only that of the peer that has fitted best so far: trees have no mean
    single: bool = False

    @property
    def sampler(self) -> Sampler:
        return self._ask if self.peers else Nobody()

    def _calm(self, losses: Array) -> Array:
        if self.worse is None:
            return losses
        return np.where(losses <= self.worse * losses[:, :1], losses, np.inf)

    def _ask(self, trust: Trust, r: int, seed: int) -> IntArray:
        wide = min(self.known, 2 * self.peers)
        fresh = distinct(
            stream(seed, "neighbours", r), trust.targets, np.array([self.known]), wide
        )
        if r == 0 or not trust.notes:
            return fresh
        panel = trust.notes["panel"]
        excess = _mean(trust.notes)
        met = (fresh[:, :, None] == panel[:, None, :]).any(axis=2)
        best = np.where(panel >= 0, -excess, -np.inf).max(axis=1)
        level = np.concatenate(
            [
                np.where(panel >= 0, -excess, -np.inf),
                np.where(met, -np.inf, best[:, None] - 1.0),
            ],
            axis=1,
        )
        luck = stream(seed, "luck", r).at(trust.targets).uniform(level.shape[1])
        order = np.argsort(
            -(level - np.log(-np.log(np.clip(luck, 1e-300, 1 - 1e-16)))),
            axis=1,
            kind="stable",
        )
        order = order[:, : min(self.peers, self.known)]
        who = np.concatenate([panel, fresh], axis=1)
        sound = np.isfinite(np.take_along_axis(level, order, axis=1))
        return np.ascontiguousarray(
            np.where(sound, np.take_along_axis(who, order, axis=1), -1)
        )

    def note(
        self, trust: Trust, r: int, peers: IntArray, losses: Array, kept: Any
    ) -> dict[str, Any]:
        """What is remembered after these answers."""
        losses = self._calm(losses)
        T = len(peers)
        blank: dict[str, Any] = {
            "panel": np.empty((T, 0), dtype=np.int64),
            "excess": np.empty((T, 0)),
            "times": np.empty((T, 0)),
        }
        old = trust.notes or blank
        panel, at, _ = with_peers(old["panel"], peers)
        more = ((0, 0), (0, panel.shape[1] - old["panel"].shape[1]))
        excess = np.pad(old["excess"], more)
        times = np.pad(old["times"], more)
        usable = (peers >= 0) & np.isfinite(losses[:, 1:])
        said = np.where(usable, losses[:, 1:], np.nan)
        with np.errstate(invalid="ignore"):
            gain = self._gain(said)
            mean = np.nansum(said, axis=1) / np.maximum(usable.sum(axis=1), 1)
            new = gain[:, None] * (said - mean[:, None])
        t, s = np.nonzero(usable)
        slot = at[t, s]
        excess[t, slot] = KEPT * excess[t, slot] + new[t, s]
        times[t, slot] = KEPT * times[t, slot] + 1.0
        # no usable answer: not asked again soon
        t, s = np.nonzero((peers >= 0) & ~usable)
        excess[t, at[t, s]], times[t, at[t, s]] = 1e6, 1.0
        return {"panel": panel, "excess": excess, "times": times}

    def __call__(self, trust: Trust, peers: IntArray, losses: Array) -> Choice:
        losses = self._calm(losses)
        _, at, _ = with_peers(trust.notes["panel"], peers)
        excess = np.take_along_axis(_mean(trust.notes), at, axis=1)
        usable = (peers >= 0) & np.isfinite(losses[:, 1:])
        low = np.where(usable, excess, np.inf).min(
            axis=1, initial=np.inf, keepdims=True
        )
        with np.errstate(invalid="ignore", over="ignore"):
            weights = np.where(usable, np.exp(-(excess - low)), 0.0)
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total > 0, total, 1.0)
        none = total[:, 0] == 0
        choice = Choice(np.where(usable, peers, -1), weights, none + 0.0)
        return _best(choice) if self.single and peers.shape[1] else choice

    def _gain(self, said: Array) -> Array:
        """(T,) evidence per unit of mean loss."""
        if self.noise is None:
            return self.share * self.rows
        there = np.where(np.isnan(said), np.inf, said)
        few = (
            np.sort(there, axis=1)[:, max(0, said.shape[1] // 10 - 1)]
            if said.shape[1]
            else np.zeros(len(said))
        )
        return np.asarray(
            self.rows
            / (2.0 * np.maximum(self.noise, np.where(np.isfinite(few), few, 0.0)))
        )


def _best(choice: Choice) -> Choice:
    """Of what would be mixed, the one with the largest weight."""
    best = choice.weights.argmax(axis=1)[:, None]
    who = np.take_along_axis(choice.peers, best, axis=1)
    taken = (who >= 0).astype(np.float64)
    return Choice(who, taken, (who[:, 0] < 0).astype(np.float64))


def _mean(notes: Any) -> Array:
    return np.asarray(notes["excess"] / np.maximum(notes["times"], 1e-9))
