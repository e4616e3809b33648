"""Remembered steps: what every target keeps of its peers' answers, and how it measures them.

A target keeps two steps of each peer it has asked, the first and the last, and two of its own. It
tells people apart by how their steps change while its model moves away from where it started:

    shrink   log |last step|^2 - log |first step|^2        below 0: the model has come nearer to
    what suits that peer

Lengths are taken in the metric of all first steps, `|s|^2 = s' (F'F / P + ridge)^-1 s` with the P
first steps as rows of F: a direction in which everybody steps far (a feature on a large scale, or
one that many others follow) counts for less, so that it cannot drown the rest. A first step counts
as at most twice the median one, here and in F, so that nobody gains by a false start.

A step that has turned *with* the model's move instead of against it comes from no loss that curves
upwards, a step with its sign flipped for one: its shrink is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from persfl.errors import InputError
from persfl.rules.peer_index import joined, places
from persfl.types import Array, Choice, IntArray, Kept

# of the mean variance of first steps: what a direction that no first step took is worth
RIDGE = 0.1
# a first step counts as at most twice the median length, four times its square
LONGEST = np.log(4.0)
_NONE = np.finfo(np.float64).tiny
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
        # how many first steps a target's metric was made of
        self._counted = np.full(T, -1)
        self._metric: Any = None
        self._longest = np.zeros(T)  # what a first step may count as, at most

    def keep(
        self, peers: IntArray, models: Array, proposals: Array, own: Array
    ) -> Kept:
        """Remember the answers (T, S, size) of `peers` to these models, and the targets' `own` (T,
        size); measure all of them.

        Answers that are not numbers are nobody's.
        """
        models = np.asarray(models, dtype=np.float64)
        with np.errstate(all="ignore"):
            steps, mine = (
                np.asarray(proposals, dtype=np.float64) - models[:, None],
                np.asarray(own, dtype=np.float64) - models,
            )
            usable = (peers >= 0) & np.isfinite((steps**2).sum(axis=2))
        slots, new = self._slots(np.where(usable, peers, -1))
        row = np.arange(len(peers))[:, None]
        # New arrays every time: those handed out by `to_arrays` are a checkpoint and must stay as
        # they were.
        self.last = self.last.copy()
        t, s = np.nonzero(usable)
        self.last[t, slots[t, s]] = steps[t, s]
        if new.any():
            self.first = self.first.copy()
            t, s = np.nonzero(new)
            self.first[t, slots[t, s]] = steps[t, s]
        self.own = np.stack([self.own[0] if self.own[0].any() else mine, mine])
        shrink = np.where(new, 0.0, np.nan)
        again = usable & ~new
        away = models - self.start
        length = np.where(
            usable, _log_square(np.where(usable[:, :, None], steps, 0.0)), np.nan
        )
        nothing = np.zeros(len(peers))
        kept = Kept(
            shrink, length, nothing, _log_square(mine), self.moved.copy(), mine.shape[1]
        )
        if not (again.any() or away.any()):
            return kept
        self._measure()
        if again.any():
            before = self.first[row, slots]
            measured = np.minimum(self._log_length(before), self._longest[:, None])
            turned = _turned(steps - before, away)
            now = self._log_length(np.where(again[:, :, None], steps, 0.0))
            shrink = np.where(again & ~turned, now - measured, shrink)
        first, last = self._log_length(self.own.transpose(1, 0, 2)).T
        # A target that starts at its own fit has no first step to speak of: it counts as at least
        # half the median one.
        own_shrink = last - np.maximum(first, self._longest - 2 * LONGEST)
        return kept._replace(shrink=shrink, own=own_shrink)

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
        if (given & ~known).any():
            t = int(np.nonzero((given & ~known).any(axis=1))[0][0])
            raise InputError(
                f"target {t} cannot adopt from device"
                f" {int(choice.peers[t][given[t] & ~known[t]][0])}: it never answered."
            )
        weights = np.zeros(self.peers.shape)
        row, column = np.nonzero(given)
        np.add.at(weights, (row, at[row, column]), choice.weights[row, column])
        move = np.matmul(weights[:, None], self.last)[:, 0] + own[:, None] * self.own[1]
        alone = (weights**2 * (self.last**2).sum(axis=2)).sum(axis=1) + own**2 * (
            self.own[1] ** 2
        ).sum(axis=1)
        self.moved = np.sqrt((move**2).sum(axis=1) / np.maximum(alone, _NONE))
        return np.asarray(models + move)

    def to_arrays(self) -> dict[str, Any]:
        """Plain arrays, ready for `numpy.savez`."""
        return {name: getattr(self, name) for name in _ARRAYS}

    @staticmethod
    def from_arrays(arrays: Mapping[str, Any], targets: IntArray, size: int) -> Steps:
        """The inverse of `to_arrays`, for these targets and models of this size."""
        if set(arrays) != set(_ARRAYS):
            raise InputError(
                f"kept steps must hold the arrays {', '.join(_ARRAYS)}. Got"
                f" {', '.join(sorted(arrays))}."
            )
        T = len(targets)
        peers = np.asarray(arrays["peers"], dtype=np.int64)
        wanted = {
            "first": (T, peers.shape[-1], size),
            "last": (T, peers.shape[-1], size),
            "own": (2, T, size),
            "start": (T, size),
        }
        given = {
            name: np.array(arrays[name], dtype=np.float64)
            for name in (*wanted, "moved")
        }
        if (
            peers.ndim != 2
            or len(peers) != T
            or any(given[k].shape != shape for k, shape in wanted.items())
        ):
            raise InputError(
                f"kept steps must be of {T} targets and models of {size} numbers. Got those of"
                " another run."
            )
        if not all(np.isfinite(given[name]).all() for name in wanted) or given[
            "moved"
        ].shape != (T,):
            raise InputError(
                "kept steps are damaged: they hold something other than numbers."
            )
        made = Steps(targets=targets, start=given["start"])
        made.peers, made.first, made.last, made.own, made.moved = (
            peers,
            given["first"],
            given["last"],
            given["own"],
            given["moved"],
        )
        return made

    def _known(self, peers: IntArray) -> tuple[IntArray, Any]:
        """Where these peers are kept, and whether they are; at once where they stand as they
        are kept.
        """
        P = self.peers.shape[1]
        if (
            peers.shape[1] == P + 1
            and ((peers[:, :P] == self.peers) | (peers[:, :P] < 0)).all()
            and (peers[:, P] < 0).all()
        ):
            at = np.broadcast_to(
                np.minimum(np.arange(P + 1), max(P - 1, 0)), peers.shape
            )
            return at, peers >= 0
        return places(self.peers, peers)

    def _slots(self, peers: IntArray) -> tuple[IntArray, Any]:
        """Where these peers are kept, new ones behind those that were there, and which are new."""
        self.peers, at, new = joined(self.peers, peers)
        more = self.peers.shape[1] - self.first.shape[1]
        if more:
            self.first, self.last = (
                np.pad(kept, ((0, 0), (0, more), (0, 0)))
                for kept in (self.first, self.last)
            )
        return at, new

    def _measure(self) -> None:
        """Make the metric of every target whose first steps have changed."""
        count = (self.peers >= 0).sum(axis=1)
        stale = np.flatnonzero(count != self._counted)
        if not len(stale):
            return
        size, rank = self.start.shape[1], min(self.peers.shape[1], self.start.shape[1])
        if self._metric is None or self._metric[0].shape[1] != rank:
            self._metric = (
                np.zeros((len(count), rank, size)),
                np.ones((len(count), rank)),
                np.ones(len(count)),
            )
            stale = np.arange(len(count))
        axes, spread, ridge = self._metric
        with np.errstate(divide="ignore"):
            far = np.log((self.first**2).sum(axis=2))
        clip = np.exp(
            np.minimum(
                0.0,
                _median(far, self.peers >= 0)[:, None]
                + LONGEST
                - np.maximum(far, -700.0),
            )
            / 2
        )
        for t in stale.tolist():
            # no more: a row of zeros may change the last bit, and others may have met more peers
            rows = slice(0, int(count[t]))
            _, s, V = np.linalg.svd(
                self.first[t, rows] * clip[t, rows, None], full_matrices=False
            )
            variance = s**2 / max(1, count[t])
            ridge[t] = max(RIDGE * float(variance.sum()) / size, _NONE)
            axes[t, : len(s)], spread[t, : len(s)] = V, variance + ridge[t]
        self._counted = count
        self._longest = np.asarray(
            _median(self._log_length(self.first), self.peers >= 0) + LONGEST
        )

    def _log_length(self, steps: Array) -> Array:
        """(T, S) the log of squared lengths, in every target's metric."""
        axes, spread, ridge = self._metric
        along = np.matmul(steps, axes.transpose(0, 2, 1)) ** 2
        square = (along / spread[:, None]).sum(axis=2)
        # then there are directions that no first step took
        few = self._counted < axes.shape[2]
        if few.any():
            rest = (
                np.maximum((steps**2).sum(axis=2) - along.sum(axis=2), 0.0)
                / ridge[:, None]
            )
            square = square + np.where(few[:, None], rest, 0.0)
        return np.asarray(np.log(np.maximum(square, _NONE)))


def _median(values: Array, known: Any) -> Array:
    """(T,) the median of the known among (T, P) values; 0 where there are none."""
    many = known.sum(axis=1)
    ordered = np.sort(np.where(known, values, np.inf), axis=1)
    row, many = np.flatnonzero(many > 0), many[many > 0]
    out = np.zeros(len(values))
    out[row] = (ordered[row, (many - 1) // 2] + ordered[row, many // 2]) / 2
    return out


def _log_square(steps: Array) -> Array:
    """The log of squared lengths, in the units of the model."""
    return np.asarray(np.log(np.maximum((steps**2).sum(axis=-1), _NONE)))


def _turned(change: Array, away: Array) -> Any:
    """(T, S) whose steps have turned with the model's move (T, size) from its start."""
    return (change * away[:, None]).sum(axis=2) > 0


def vectors(models: Any) -> Array:
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


def as_vector(answer: Any, nothing: Array) -> Any:
    """An answer if it is numbers as many as a model has, else nothing: a bad peer costs its own
    answer.
    """
    fits = (
        isinstance(answer, np.ndarray)
        and answer.shape == nothing.shape
        and answer.dtype.kind == "f"
    )
    return answer if fits else nothing
