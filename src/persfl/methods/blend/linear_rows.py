"""What devices compute for a blend of linear models, from their own rows; many at once in one
process, one alone at home.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.methods.blend.chunks import spans
from persfl.methods.blend.folds import TargetRows
from persfl.methods.blend.question_base import Question
from persfl.methods.blend.questions import GradientSteps, OwnRows, Weigh
from persfl.methods.blend.site import Spreads
from persfl.methods.blend.views import View, ViewSettings, means, squares_about
from persfl.proposers import GradientStep
from persfl.types import Array, Data, IntArray

BoolArray = NDArray[np.bool_]
Starts = Mapping[str, Array]
Offer = Callable[[Devices, Starts], dict[str, Array]]


def spreads(rows: Devices) -> Spreads:
    """Sums of squares about the devices' own means.

    >>> found = spreads(Devices.of([([[1.0], [3.0]], [0.0, 1.0])], quiet=True))
    >>> found.weight.tolist(), found.squares.tolist()
    ([2.0], [[2.0]])
    """
    return Spreads(rows.total, squares_about(rows, means(rows)))


class LinearPeers:
    """Devices that answer, in one view of their rows."""

    def __init__(self, learner: Linear, rows: Devices) -> None:
        self.learner = learner
        self.rows = rows

    @staticmethod
    def seen(learner: Linear, rows: Devices, look: ViewSettings) -> LinearPeers:
        """From rows as they are."""
        return LinearPeers(learner, View.of(look, rows).inside(rows))

    def answer(self, question: Question, who: IntArray) -> dict[str, Array]:
        """What each of these says; the question has an entry for every one."""
        assert isinstance(question, GradientSteps)
        step = GradientStep(question.step, steps=question.steps)
        return {"answers": self.stepped(step, who, question.models)}

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
        self.view = View.of(look, own.copies)
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
