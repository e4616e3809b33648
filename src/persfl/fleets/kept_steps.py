"""Remembered steps: what every target keeps of its peers' answers, and how it measures them.

A target keeps two steps of each peer it has asked, the first and the last, and two of its own. It
tells people apart by how their steps change while its model moves away from where it started:

    shrink   log |last step|^2 - log |first step|^2

below 0, the model has come nearer to what suits that peer.

Lengths are those of `persfl.fleets.step_metric`, in the metric of all first steps.

A step that has turned *with* the model's move instead of against it comes from no loss that curves
upwards, a step with its sign flipped for one: its shrink is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from persfl.errors import InputError
from persfl.fleets.step_metric import LONGEST, NONE, StepMetric
from persfl.rules.peer_index import peer_places, with_peers
from persfl.types import AnyArray, Array, Choice, IntArray, Kept, Mask, Models

_ARRAYS = ("peers", "first", "last", "own", "start", "moved")


class Steps:
    """The kept steps of all targets: `peers` (T, P) in the order in which they first answered, -1
    for none; steps (T, P, size).

    >>> steps = Steps(targets=np.array([0]), start=np.zeros((1, 2)))
    >>> asked, answer = np.array([[3]]), np.array([[[0.0, 2.0]]])
    >>> steps.keep(
    ...     asked, np.zeros((1, 2)), answer, np.array([[0.0, 1.0]])
    ... ).shrink.tolist()
    [[0.0]]
    >>> now = np.array([[0.0, 1.0]])
    >>> steps.keep(
    ...     asked, now, np.array([[[0.0, 2.0]]]), np.array([[0.0, 1.0]])
    ... ).shrink.round(3).tolist()  # half as long
    [[-1.386]]
    >>> steps.moved_by(
    ...     now, Choice(np.array([[3, 0]]), np.array([[0.5, 0.5]]), np.zeros(1))
    ... ).tolist()  # own step: 0
    [[0.0, 1.5]]
    """

    def __init__(self, *, targets: IntArray, start: Array) -> None:
        T, size = start.shape
        self.targets, self.start = targets, np.array(start, dtype=np.float64)
        self.peers = np.full((T, 0), -1)
        self.first, self.last = np.zeros((T, 0, size)), np.zeros((T, 0, size))
        self.own = np.zeros((2, T, size))  # the first and the last
        self.moved = np.full(T, np.inf)
        self._metric = StepMetric(T, size)

    def keep(
        self, peers: IntArray, models: Array, proposals: Array, own: Array
    ) -> Kept:
        """Remember the answers (T, S, size) of `peers` to these models, and the targets' `own` (T,
        size); measure all of them.

        Answers that are not numbers are nobody's.
        """
        models = np.asarray(models, dtype=np.float64)
        with np.errstate(all="ignore"):
            steps = np.asarray(proposals, dtype=np.float64) - models[:, None]
            mine = np.asarray(own, dtype=np.float64) - models
            usable = (peers >= 0) & np.isfinite((steps**2).sum(axis=2))
        slots, new = self._slots(np.where(usable, peers, -1))
        # New arrays every time: those handed out by `to_arrays` are a checkpoint and must stay as
        # they were.
        self.last = _replaced(self.last, slots, steps, usable)
        if new.any():
            self.first = _replaced(self.first, slots, steps, new)
        self.own = np.stack([self.own[0] if self.own[0].any() else mine, mine])
        sound = np.where(usable[:, :, None], steps, 0.0)
        kept = Kept(
            shrink=np.where(new, 0.0, np.nan),
            length=np.where(usable, _log_square(sound), np.nan),
            own=np.zeros(len(peers)),
            own_length=_log_square(mine),
            moved=self.moved.copy(),
            size=mine.shape[1],
        )
        again = usable & ~new
        away = models - self.start
        if not (again.any() or away.any()):
            return kept
        return kept._replace(
            shrink=self._shrink(kept.shrink, slots, steps, again, away),
            own=self._own_shrink(),
        )

    def _shrink(
        self, unknown: Array, slots: IntArray, steps: Array, again: Mask, away: Array
    ) -> Array:
        """(T, S) how much shorter steps are than the first of the same peers; as `unknown` where
        there is none, or where a step has turned with the model's move.
        """
        self._metric.update(self.first, self.peers >= 0)
        if not again.any():
            return unknown
        before = self.first[np.arange(len(slots))[:, None], slots]
        longest = self._metric.longest[:, None]
        then = np.minimum(self._metric.log_length(before), longest)
        now = self._metric.log_length(np.where(again[:, :, None], steps, 0.0))
        turned = _turned(steps - before, away)
        return np.where(again & ~turned, now - then, unknown)

    def _own_shrink(self) -> Array:
        """(T,) the same of the targets' own steps.

        A target that starts at its own fit has no first step to speak of: it counts as at least
        half the median one.
        """
        first, last = self._metric.log_length(self.own.transpose(1, 0, 2)).T
        return np.asarray(last - np.maximum(first, self._metric.longest - 2 * LONGEST))

    def moved_by(self, models: Array, choice: Choice) -> Array:
        """(T, size) the models after moving by the kept steps a choice names; the target's own
        index is its own step.
        """
        models = np.asarray(models, dtype=np.float64)
        if choice.anew is not None:
            models = np.where(choice.anew[:, None], self.start, models)
        mine = choice.peers == self.targets[:, None]
        own = np.where(mine, choice.weights, 0.0).sum(axis=1)
        given = ~mine & (choice.weights > 0)
        at, known = self._known(np.where(given, choice.peers, -1))
        strange = np.argwhere(given & ~known)
        if len(strange):
            t, k = strange[0].tolist()
            raise InputError(
                f"target {t} cannot adopt from device {int(choice.peers[t, k])}: it never"
                " answered."
            )
        weights = np.zeros(self.peers.shape)
        row, column = np.nonzero(given)
        np.add.at(weights, (row, at[row, column]), choice.weights[row, column])
        mine_last = self.own[1]
        move = np.matmul(weights[:, None], self.last)[:, 0] + own[:, None] * mine_last
        # the squared length of as many steps that have nothing to do with each other
        alone = (weights**2 * (self.last**2).sum(axis=2)).sum(axis=1)
        alone = alone + own**2 * (mine_last**2).sum(axis=1)
        self.moved = np.sqrt((move**2).sum(axis=1) / np.maximum(alone, NONE))
        return np.asarray(models + move)

    def to_arrays(self) -> dict[str, AnyArray]:
        """Plain arrays, ready for `numpy.savez`."""
        return {name: vars(self)[name] for name in _ARRAYS}

    @staticmethod
    def from_arrays(
        arrays: Mapping[str, AnyArray], targets: IntArray, size: int
    ) -> Steps:
        """The inverse of `to_arrays`, for these targets and models of this size."""
        if set(arrays) != set(_ARRAYS):
            raise InputError(
                f"kept steps must hold the arrays {', '.join(_ARRAYS)}. Got"
                f" {', '.join(sorted(arrays))}."
            )
        T = len(targets)
        peers = np.asarray(arrays["peers"], dtype=np.int64)
        steps = (T, peers.shape[-1], size)
        shapes = {
            "first": steps,
            "last": steps,
            "own": (2, T, size),
            "start": (T, size),
        }
        given = {
            name: np.array(arrays[name], dtype=np.float64)
            for name in (*shapes, "moved")
        }
        fits = peers.ndim == 2 and len(peers) == T
        if not fits or any(given[k].shape != shape for k, shape in shapes.items()):
            raise InputError(
                f"kept steps must be of {T} targets and models of {size} numbers. Got those of"
                " another run."
            )
        finite = all(np.isfinite(given[name]).all() for name in shapes)
        if not finite or given["moved"].shape != (T,):
            raise InputError(
                "kept steps are damaged: they hold something other than numbers."
            )
        made = Steps(targets=targets, start=given["start"])
        vars(made).update(given, peers=peers)
        return made

    def _known(self, peers: IntArray) -> tuple[IntArray, Mask]:
        """Where these peers are kept, and whether they are; at once where they stand as they
        are kept.
        """
        P = self.peers.shape[1]
        if peers.shape[1] == P + 1 and (peers[:, P] < 0).all():
            met = peers[:, :P]
            if ((met == self.peers) | (met < 0)).all():
                at = np.minimum(np.arange(P + 1), max(P - 1, 0))
                return np.broadcast_to(at, peers.shape), peers >= 0
        return peer_places(self.peers, peers)

    def _slots(self, peers: IntArray) -> tuple[IntArray, Mask]:
        """Where these peers are kept, new ones behind those that were there, and which are new."""
        self.peers, at, new = with_peers(self.peers, peers)
        more = self.peers.shape[1] - self.first.shape[1]
        if more:
            self.first, self.last = (
                np.pad(kept, ((0, 0), (0, more), (0, 0)))
                for kept in (self.first, self.last)
            )
        return at, new


def _replaced(steps: Array, slots: IntArray, new: Array, which: Mask) -> Array:
    """A copy of kept steps (T, P, size) with some of (T, S, size) new ones in their slots."""
    made = steps.copy()
    t, s = np.nonzero(which)
    made[t, slots[t, s]] = new[t, s]
    return made


def _log_square(steps: Array) -> Array:
    """The log of squared lengths, in the units of the model."""
    return np.asarray(np.log(np.maximum((steps**2).sum(axis=-1), NONE)))


def vectors(models: Models) -> Array:
    """(T, size) models that are vectors, or an InputError that names what else there is."""
    if isinstance(models, np.ndarray) and models.ndim == 2:
        return models
    try:
        stacked = np.stack([model for model in models if isinstance(model, np.ndarray)])
    except ValueError:
        stacked = np.empty(0)
    if stacked.ndim != 2 or len(stacked) != len(models):
        raise InputError(
            "remembered steps need models that are vectors of one length, such as those of Linear"
            " or Network. For trees and others use persfl.kin(peers, steps=False)."
        )
    return stacked


def as_vector(answer: object, nothing: Array) -> AnyArray:
    """An answer if it is numbers as many as a model has, else nothing: a bad peer costs its own
    answer.
    """
    if not isinstance(answer, np.ndarray) or answer.shape != nothing.shape:
        return nothing
    return answer if answer.dtype.kind == "f" else nothing


def _turned(change: Array, away: Array) -> Mask:
    """(T, S) whose steps have grown in the direction in which the model has moved.

    Named, so that `benchmarks/kin.py --ablate` can take it away.
    """
    return np.asarray((change * away[:, None]).sum(axis=2) > 0)
