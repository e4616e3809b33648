"""Banks by recipe: fitted to the rows that a fold does not hide, and what they leave of those."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from persfl.devices import Devices
from persfl.learners.fleet_mix import ModelBank
from persfl.learners.responses import respond_bank
from persfl.methods.refitted.linear_view import LinearView, fold_says
from persfl.methods.refitted.recipes import Recipe
from persfl.seeds import Stream, stream
from persfl.types import Array, Data, IntArray, Learner, Model


@dataclass(frozen=True, eq=False)
class BankFits:
    """The rows of a fleet, and what the linear rule knows of them."""

    rows: Devices
    learner: Learner
    classes: int
    seed: int
    view: LinearView
    groups: IntArray

    def whose(self, recipe: Recipe) -> IntArray:
        """(n,) which fit of a recipe each device's rows are for."""
        n = len(self.rows)
        if recipe.whom == "own":
            return np.arange(n)
        return self.groups if recipe.whom == "groups" else np.zeros(n, dtype=np.int64)

    def fitted(self, recipe: Recipe) -> ModelBank:
        """By all rows."""
        every = np.ones(len(self.rows.y), dtype=bool)
        return self._fitted(recipe, every, self.view.models)

    def left(self, recipe: Recipe, fold: int) -> Array:
        """(hidden rows, 1 or classes) what a recipe leaves of the rows that a fold hides."""
        parts = self.view.hidden
        models = self.view.folds[fold]
        learn = np.isin(parts.part, parts.folds[fold].learn)
        bank = self._fitted(recipe, learn, models)
        at = self.hidden(fold)
        X = self.rows.X[at]
        owner = self.rows.owner[at]
        said = respond_bank(self.learner, bank, X, owner, self.classes)
        if self.classes:
            return np.asarray((self.rows.y[at, None] == np.arange(self.classes)) - said)
        if recipe.rest:
            base = self.view.names.index(recipe.rest)
            said = said + fold_says(models[:, [base]], X, owner)[:, 0, 0]
        return np.asarray(self.rows.y[at] - said)[:, None]

    def judges(self, fold: int) -> bool:
        """Whether a fold hides rows, and leaves some to learn from."""
        parts = self.view.hidden
        learn = np.isin(parts.part, parts.folds[fold].learn)
        return bool(len(self.hidden(fold)) and learn.any())

    def hidden(self, fold: int) -> IntArray:
        """The rows that a fold hides."""
        parts = self.view.hidden
        return np.flatnonzero(np.isin(parts.part, parts.folds[fold].judge))

    def _fitted(
        self, recipe: Recipe, learn: NDArray[np.bool_], told: Array
    ) -> ModelBank:
        """`told` (labels, offers + 1, n, features + 1) are the linear models that will tell rows to
        come; rows to learn from are told by models that have not seen them. Where there is none of
        those, the bank says 0.
        """
        rows = self.rows
        view = self.view
        offers = view.places(recipe.told)
        X = rows.X
        y = rows.y
        if offers:
            X = np.column_stack([X, view.said[:, :, offers].reshape(len(X), -1)])
        if recipe.rest:
            y = y - view.said[:, 0, view.names.index(recipe.rest)]
        if offers or recipe.rest:
            learn = learn & view.judged
        which = self.whose(recipe)
        columns = told[:, offers].transpose(2, 0, 1, 3)
        columns = columns.reshape(len(rows), -1, rows.features + 1)
        models: list[Model] = []
        fit_of = np.full(int(which.max()) + 1, -1)
        used = np.flatnonzero(learn)
        used = used[np.argsort(which[rows.owner[used]], kind="stable")]
        whose, first = np.unique(which[rows.owner[used]], return_index=True)
        for k, mine in zip(whose.tolist(), np.split(used, first)[1:], strict=True):
            fit_of[k] = len(models)
            data = Data(X[mine], y[mine], rows.weight[mine])
            models.append(self.learner.fit(data, self._place(recipe, k)))
        place = fit_of[which]
        # devices without a row to learn from go by all rows
        if models and (place < 0).any():
            data = Data(X[learn], y[learn], rows.weight[learn])
            place[place < 0] = len(models)
            models.append(self.learner.fit(data, self._place(recipe, -1)))
        return ModelBank(tuple(models), place, np.ascontiguousarray(columns))

    def _place(self, recipe: Recipe, k: int) -> Stream:
        return stream(self.seed, "refitted", recipe.name, k + 1)
