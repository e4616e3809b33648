"""What devices compute for a blend of linear models, from their own rows; many at once in one
process, one alone at home.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.methods.blend.chunks import spans
from persfl.methods.blend.few_rows import Thin, thin
from persfl.methods.blend.folds import TargetRows
from persfl.methods.blend.questions import (
    GradientSteps,
    Noise,
    OwnRows,
    Pull,
    Question,
    Weigh,
)
from persfl.methods.blend.ridge_refit import drawn, moments, noise_of
from persfl.methods.blend.site import Spreads
from persfl.methods.blend.views import View, ViewSettings, means
from persfl.proposers import GradientStep
from persfl.types import Array, Data, IntArray

_LARGEST = 2**20  # numbers of rows that are taken together for their products
BoolArray = NDArray[np.bool_]
Starts = Mapping[str, Array]
Offer = Callable[[Devices, Starts], dict[str, Array]]


def spreads(rows: Devices, labels: bool) -> Spreads:
    """Sums of squares about the devices' own means.

    >>> found = spreads(Devices.of([([[1.0], [3.0]], [10.0, 30.0])], quiet=True), True)
    >>> found.weight.tolist(), found.squares.tolist(), found.label.tolist()
    ([2.0], [[2.0]], [200.0])
    """
    centre, level = means(rows, labels)
    n = len(rows)
    owner = rows.owner
    away = [
        rows.weight * (rows.X[:, j] - centre[owner, j]) ** 2
        for j in range(rows.features)
    ]
    sums = [np.bincount(owner, weights=one, minlength=n) for one in away]
    squares = np.asarray(np.stack(sums, axis=1), dtype=np.float64)
    if not labels:
        return Spreads(rows.total, squares, rows.total)
    off = rows.weight * (rows.y - level[owner]) ** 2
    label = np.bincount(owner, weights=off, minlength=n)
    return Spreads(rows.total, squares, np.asarray(label))


class LinearPeers:
    """Devices that answer, in one view of their rows."""

    def __init__(self, learner: Linear, rows: Devices) -> None:
        self.learner = learner
        self.rows = rows
        self._strength = np.empty(0)  # that the inverses belong to

    @staticmethod
    def seen(learner: Linear, rows: Devices, look: ViewSettings) -> LinearPeers:
        """From rows as they are."""
        view = View.of(look, rows, learner.kind == "squared")
        return LinearPeers(learner, view.inside(rows))

    def answer(self, question: Question, who: IntArray) -> dict[str, Array]:
        """What each of these says; the question has an entry for every one."""
        if isinstance(question, GradientSteps):
            step = GradientStep(question.step, steps=question.steps)
            return {"answers": self.stepped(step, who, question.models)}
        if isinstance(question, Pull):
            return {"answers": self.pulled(who, question.models, question.strength)}
        assert isinstance(question, Noise)
        return {"noise": self.noise(who, question.mean, question.strength)}

    @cached_property
    def _thin(self) -> BoolArray:
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
        grams, pulls = zip(*found, strict=True)
        return np.concatenate(grams), np.concatenate(pulls)

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

    def stepped(self, step: GradientStep, who: IntArray, models: Array) -> Array:
        """(K, size) steps of each from its model; NaN where `who` is -1."""
        out = np.full(models.shape, np.nan)
        at = np.flatnonzero(who >= 0)
        for lo, hi in spans(self.learner, self.rows, who[at]):
            some = at[lo:hi]
            rows = self.rows.gather(who[some])
            with np.errstate(all="ignore"):  # what overflows is not used
                out[some] = step.answer(self.learner, models[some], rows, None)
        return out

    def pulled(self, who: IntArray, models: Array, strength: Array) -> Array:
        """(K, size) refits of each, drawn toward its model; as `Toward`, but rows are added up
        once for all questions.
        """
        out = np.full(models.shape, np.nan)
        for few, many in self._kinds(who):
            if len(few):
                rows, inverse = self._inverted(who[few], strength)
                out[few] = rows.drawn(inverse, models[few], strength)
            if len(many):
                gram, pull = self._added(who[many])
                out[many] = drawn(gram, pull, models[many], strength)
        return out

    def noise(self, who: IntArray, mean: Array, strength: Array) -> Array:
        """(K,) each device's own, about its refit."""
        found = np.full(len(who), np.nan)
        for few, many in self._kinds(who):
            if len(few):
                rows, inverse = self._inverted(who[few], strength)
                found[few] = rows.rough(inverse, mean)
            if len(many):
                model = drawn(*self._added(who[many]), mean, strength)
                data = self.rows.gather(who[many])
                found[many] = noise_of(self.learner, data, model, strength)
        return found

    def _kinds(self, who: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Places in `who`, in parts that fit into memory: of devices with few rows, and others."""
        at = np.flatnonzero(who >= 0)
        for lo, hi in spans(self.learner, self.rows, who[at]):
            few = self._thin[who[at[lo:hi]]]
            yield at[lo:hi][few], at[lo:hi][~few]

    def _inverted(self, who: IntArray, strength: Array) -> tuple[Thin, Array]:
        """The rows of these devices, which have few, and the inverses of their products."""
        place = self._place[who]
        return self._few.at(place), self._inverse(strength)[place]

    def _added(self, who: IntArray) -> tuple[Array, Array]:
        """The moments of these devices, which have many rows."""
        gram, pull = self._moments
        place = self._place[who]
        return gram[place], pull[place]


class LinearTargets:
    """Devices as targets, in one view: copies of their rows, and what can be offered to them."""

    def __init__(
        self,
        learner: Linear,
        own: TargetRows,
        look: ViewSettings,
        offer: Offer,
    ) -> None:
        self.learner = learner
        self.own = own
        self.offer = offer
        self.view = View.of(look, own.copies, learner.kind == "squared")
        self.copies = LinearPeers(learner, self.view.inside(own.copies))

    def answer(self, question: Question) -> dict[str, Array]:
        """What every copy says."""
        if isinstance(question, Weigh):
            return {"losses": self.losses(question.models)}
        assert isinstance(question, OwnRows)
        rows = self.copies.rows
        everyone = np.arange(len(rows))
        found = {"weight": rows.total}
        if question.models is not None and question.step and question.steps:
            step = GradientStep(question.step, steps=question.steps)
            shown = [np.tile(model, (len(rows), 1)) for model in question.models]
            said = [self.copies.stepped(step, everyone, models) for models in shown]
            found["answers"] = np.stack(said)
        if question.mean is not None and question.strength is not None:
            mean = question.mean
            strength = question.strength
            found["noise"] = self.copies.noise(everyone, mean, strength)
        return found

    def losses(self, models: Array) -> Array:
        """(copies, S) of models (copies, S, size), each on its copy's rows."""
        rows = self.copies.rows
        wide = models.shape[1]
        found = np.full(models.shape[:2], np.inf)
        if not wide:
            return found
        for lo, hi in spans(self.learner, rows, wide=wide):
            data = rows.gather(np.arange(lo, hi))
            each = Data(data.X[:, None], data.y[:, None], data.weight[:, None])
            with np.errstate(all="ignore"):
                found[lo:hi] = self.learner.loss(models[lo:hi], each)
        return np.where(np.isfinite(found), found, np.inf)

    def offers(self, starts: Starts) -> list[Array]:
        """(copies, size) per offer, in the units of the rows."""
        found = self.offer(self.copies.rows, starts)
        return [self.view.outside(models, self.learner) for models in found.values()]

    def judged(self, offers: Sequence[Array]) -> tuple[Array, Array]:
        """(targets, offers) the mean loss over rows, each by the copy that has not seen its fold;
        (targets,) the weight judged.

        A row weighs less where its fold has all rows of its class: own steps cannot show there what
        they do for a class that they have seen. (Its loss counts in the mean as any other, or rare
        classes would be forgotten.)
        """
        own = self.own
        told = [own.losses(self.learner, models) for models in offers]
        weight = own.usable
        if own.folding.classes:
            hidden = own.folding.settings.hidden
            weight = weight * np.where(self._hidden(), hidden, 1.0)
        return np.stack(told, axis=1), own.total(weight)

    def whole(self, offers: Sequence[Array]) -> list[Array]:
        """(targets, size) per offer: what is made of all rows."""
        return self.own.whole(offers)

    def _hidden(self) -> BoolArray:
        """(rows,) whether the copy that judges a row has nothing of its class."""
        left = self.copies.rows
        rows = self.own.rows
        there = left.weight > 0
        known = np.zeros((len(left), self.own.folding.classes), dtype=bool)
        known[left.owner[there], left.y[there].astype(np.int64)] = True
        return np.asarray(~known[self.own.judges, rows.y.astype(np.int64)])


def mixed_offers(offers: Sequence[Array], shares: Array) -> Array:
    """(devices, size) offers (offers of (devices, size)) mixed by shares (devices, offers)."""
    found = np.zeros((len(shares), offers[0].shape[1]))
    for column, models in enumerate(offers):
        share = shares[:, column, None]
        found += share * np.where(share > 0, models, 0.0)
    return found
