"""What a device computes for blend, on its own rows; here for many devices at once, at home for
one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.learners.responses import respond_each
from persfl.methods.blend.chunks import spans
from persfl.methods.blend.evidence import missed
from persfl.methods.blend.few_rows import Thin, thin
from persfl.methods.blend.folds import copies, fold_numbers, judged
from persfl.methods.blend.mixture import BLOCKS, CLASS_FOLDS, FOLDS
from persfl.methods.blend.offers import ridge as squared
from persfl.methods.blend.offers import steps
from persfl.methods.blend.prior import noise_of
from persfl.methods.blend.ridge_refit import Toward, drawn, moments
from persfl.methods.blend.site import Spreads, Starts
from persfl.methods.blend.views import Look, View, means
from persfl.types import Array, Data, IntArray, Proposer

_LARGEST = 2**20  # numbers of rows that are taken together for their products
HIDDEN = 0.3  # what a row weighs whose class no other row has


@dataclass(frozen=True)
class Folding:
    """How own rows are dealt into folds."""

    classes: int = 0
    ordered: bool = False
    seed: int = 0

    @property
    def count(self) -> int:
        """How many folds."""
        return BLOCKS if self.ordered else CLASS_FOLDS if self.classes else FOLDS

    def of(self, rows: Devices, numbers: IntArray) -> IntArray:
        """(rows,) which fold each row is in; `numbers` are the devices' own in the fleet."""
        return fold_numbers(
            rows,
            self.count,
            classes=self.classes,
            ordered=self.ordered,
            seed=self.seed,
            numbers=numbers,
        )


def route(learner: Linear) -> Any:
    """How offers come about: by refits in closed form, or by steps."""
    return squared if learner.kind == "squared" else steps


def spreads(rows: Devices, labels: bool) -> Spreads:
    """Sums of squares about the devices' own means.

    >>> found = spreads(Devices.of([([[1.0], [3.0]], [10.0, 30.0])], quiet=True), True)
    >>> found.weight.tolist(), found.squares.tolist(), found.label.tolist()
    ([2.0], [[2.0]], [200.0])
    """
    centre, level = means(rows, labels)
    n, owner = len(rows), rows.owner
    away = [
        rows.weight * (rows.X[:, j] - centre[owner, j]) ** 2
        for j in range(rows.features)
    ]
    squares = np.asarray(
        np.stack(
            [np.bincount(owner, weights=one, minlength=n) for one in away], axis=1
        ),
        dtype=np.float64,
    )
    label = (
        np.bincount(
            owner, weights=rows.weight * (rows.y - level[owner]) ** 2, minlength=n
        )
        if labels
        else rows.total
    )
    return Spreads(rows.total, squares, np.asarray(label))


class Peers:
    """Devices that answer, in one view of their rows."""

    def __init__(self, learner: Linear, rows: Devices) -> None:
        self.learner, self.rows = learner, rows
        self._strength = np.empty(0)  # that the inverses belong to

    @staticmethod
    def seen(learner: Linear, rows: Devices, look: Look) -> Peers:
        """From rows as they are."""
        return Peers(
            learner, View.of(look, rows, learner.kind == "squared").inside(rows)
        )

    @cached_property
    def _thin(self) -> Any:
        """(devices,) which have fewer rows than coefficients."""
        return thin(self.learner, self.rows.counts, self.rows.features)

    @cached_property
    def _place(self) -> IntArray:
        """(devices,) where each stands among those of its kind."""
        return np.where(self._thin, np.cumsum(self._thin), np.cumsum(~self._thin)) - 1

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        """Of the devices that have as many rows as coefficients."""
        who = np.flatnonzero(~self._thin)
        found = [
            moments(self.learner, self.rows.gather(who[lo:hi]))
            for lo, hi in spans(self.learner, self.rows, who)
        ]
        return tuple(np.concatenate(each) for each in zip(*found, strict=True))  # type: ignore[return-value]

    @cached_property
    def _few(self) -> Thin:
        """Of the others."""
        return Thin.of(self.learner, self.rows.gather(np.flatnonzero(self._thin)))

    def _inverse(self, strength: Array) -> Array:
        """Of the others, for one strength after the other: many questions have the same."""
        if not np.array_equal(strength, self._strength):
            few = self._few
            step = max(1, _LARGEST // few.rows[0].size)
            parts = [
                few.at(np.arange(lo, min(lo + step, len(few.rows))))
                for lo in range(0, len(few.rows), step)
            ]
            self._inverses = np.concatenate([part.inverse(strength) for part in parts])
            self._strength = np.array(strength)
        return self._inverses

    def answers(self, proposer: Proposer, who: IntArray, models: Array) -> Array:
        """(K, size) each to its model."""
        out = np.full(models.shape, np.nan)
        at = np.flatnonzero(who >= 0)
        for lo, hi in spans(self.learner, self.rows, who[at]):
            some, asked = at[lo:hi], proposer.ask(self.learner, models[at[lo:hi]])
            # the same answer, without adding up the rows again for every question
            if isinstance(proposer, Toward):
                out[some] = self._drawn(who[some], asked, proposer.strength)
            else:
                with np.errstate(all="ignore"):  # what overflows is not used
                    out[some] = proposer.answer(
                        self.learner, asked, self.rows.gather(who[some]), None
                    )
        return out

    def _drawn(self, who: IntArray, models: Array, strength: Array) -> Array:
        """(K, size) each drawn toward its model."""
        out = np.empty(models.shape)
        few = self._thin[who]
        if few.any():
            place = self._place[who[few]]
            out[few] = self._few.at(place).drawn(
                self._inverse(strength)[place], models[few], strength
            )
        if not few.all():
            gram, pull = self._moments
            place = self._place[who[~few]]
            out[~few] = drawn(gram[place], pull[place], models[~few], strength)
        return out

    def rough(self, who: IntArray, mean: Array, strength: Array) -> Array:
        """(K,) each device's own noise."""
        found = np.full(len(who), np.nan)
        for lo, hi in spans(self.learner, self.rows, who):
            part = who[lo:hi]
            few = self._thin[part]
            if few.any():
                place = self._place[part[few]]
                found[lo:hi][few] = self._few.at(place).rough(
                    self._inverse(strength)[place], mean
                )
            if not few.all():
                gram, pull = self._moments
                place = self._place[part[~few]]
                model = drawn(gram[place], pull[place], mean, strength)
                found[lo:hi][~few] = noise_of(
                    self.learner, self.rows.gather(part[~few]), model, strength
                )
        return found


class Own:
    """Devices as targets, in one view: copies of their rows, and what can be offered to them."""

    def __init__(
        self,
        learner: Linear,
        rows: Devices,
        look: Look,
        folding: Folding,
        numbers: IntArray,
    ) -> None:
        self.learner, self.rows, self.folding = learner, rows, folding
        self.fold, self.look = folding.of(rows, numbers), look
        own = copies(rows, self.fold, np.arange(len(rows)), folding.count)
        self.view = View.of(look, own, learner.kind == "squared")
        self.copies = Peers(learner, self.view.inside(own))

    def losses(self, models: Array) -> Array:
        """(copies, S) of models (copies, S, size), each on its copy's rows."""
        rows, wide = self.copies.rows, models.shape[1]
        found = np.full(models.shape[:2], np.inf)
        if not wide:
            return found
        for lo, hi in spans(self.learner, rows, wide=wide):
            data = rows.gather(np.arange(lo, hi))
            each = Data(data.X[:, None], data.y[:, None], data.weight[:, None])
            with np.errstate(all="ignore"):
                found[lo:hi] = self.learner.loss(models[lo:hi], each)
        return np.where(np.isfinite(found), found, np.inf)

    def offers(self, starts: Starts) -> dict[str, Array]:
        """(copies, size) per offer, in the units of the rows."""
        found = route(self.learner).offers(self.learner, self.copies.rows, starts)
        return {
            f"{self.look.name} {key}": self.view.outside(models, self.learner)
            for key, models in found.items()
        }

    def evidence(self, offers: dict[str, Array]) -> tuple[Array, Array]:
        """(devices, offers) the mean loss over rows, each by the copy that has not seen its fold;
        (devices,) the weight judged.

        A row weighs less where its fold has all rows of its class: own steps cannot show there what
        they do for a class that they have seen. (Its loss counts in the mean as any other, or rare
        classes would be forgotten.)
        """
        rows, count, classes = self.rows, self.folding.count, self.folding.classes
        at, usable = (
            rows.owner * (count + 1) + 1 + self.fold,
            judged(rows, self.fold, count),
        )
        weight, n = (
            np.bincount(rows.owner, weights=usable, minlength=len(rows)),
            len(rows),
        )
        sure = (
            np.bincount(
                rows.owner,
                weights=usable * np.where(self._hidden(at), HIDDEN, 1.0),
                minlength=n,
            )
            if classes
            else weight
        )
        told = np.empty((n, len(offers)))
        for column, models in enumerate(offers.values()):
            with np.errstate(all="ignore"):
                each = usable * missed(
                    respond_each(self.learner, models, rows.X, at, classes),
                    rows.y,
                    classes,
                )
            told[:, column] = np.bincount(
                rows.owner, weights=each, minlength=n
            ) / np.maximum(weight, 1e-12)
        return told, np.asarray(sure, dtype=np.float64)

    def _hidden(self, at: IntArray) -> Any:
        """(rows,) whether the copy that judges a row has nothing of its class."""
        left = self.copies.rows
        there = left.weight > 0
        known = np.zeros((len(left), self.folding.classes), dtype=bool)
        known[left.owner[there], left.y[there].astype(np.int64)] = True
        return ~known[at, self.rows.y.astype(np.int64)]


def mixed(offers: Any, shares: Array) -> Array:
    """(devices, size) offers (offers of (devices, size)) mixed by shares (devices, offers)."""
    found = np.zeros((len(shares), offers[0].shape[1]))
    for column, models in enumerate(offers):
        share = shares[:, column, None]
        found += share * np.where(share > 0, models, 0.0)
    return found
