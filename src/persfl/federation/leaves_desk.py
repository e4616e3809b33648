"""A protected device's side of trees: sums in leaves, told once, and a forest refined at home."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from persfl.federation.budget_book import ProtectedAnswer
from persfl.federation.inquiry import Inquiry
from persfl.federation.messages import Arrays, Refused, digest_of
from persfl.federation.private_rows import units_arrays
from persfl.federation.told_leaves import LeavesFamily
from persfl.methods.private.private_trees import trees_at_home
from persfl.types import Array, Model

if TYPE_CHECKING:
    from persfl.federation.private_desk import PrivateDesk


def leaves_told(
    desk: PrivateDesk, question: Inquiry, family: LeavesFamily
) -> Mapping[str, NDArray[Any]]:
    """Sums of labels and numbers of rows, or numbers of rows of each class, in every leaf; the same
    trees are told of once.
    """
    terms = question.terms
    noise = desk.settings.noise_of_sums
    if not desk.home.policy.sums:
        raise Refused("sums")

    def make() -> Arrays:
        rows = desk.rows(question)
        labels = np.nan_to_num(rows.y)
        told = trees.told(rows.X, labels, noise, desk.source)
        return {"leaves": told.ravel()}

    trees = family.trees
    about = ("leaves", terms.columns, terms.classes, terms.seed, trees.depth)
    paid = ProtectedAnswer(question.run, "leaves", "", noise)
    return desk.paid(question, paid, digest_of(about, units_arrays(terms)), make)


def forest_at_home(
    desk: PrivateDesk, question: Inquiry, family: LeavesFamily, others: Array
) -> Model:
    """What others told, weighed against own rows; it never leaves."""
    trees = family.trees
    rows = desk.rows(question)
    told = trees.heard(others.reshape(trees.form))
    seed = desk.home.lot.seed
    return trees_at_home(family.learner, rows, trees, told, (0.0, 1.0), seed)
