"""What shared units are made of, as a protected device tells it: from its sums of products, where
it tells those, or from noised sums of values and squares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from persfl.federation.budget_book import ProtectedAnswer
from persfl.federation.inquiry import Inquiry
from persfl.federation.messages import Arrays, Refused, digest_of
from persfl.federation.private_rows import rows_with_columns
from persfl.federation.told_terms import tells_sums
from persfl.privacy.noised_spread import spread_room, told_spread
from persfl.types import Array
from persfl.wire.models import finite

if TYPE_CHECKING:
    from persfl.federation.private_desk import PrivateDesk


def column_sums(desk: PrivateDesk, question: Inquiry) -> dict[str, NDArray[Any]]:
    """What shared units are made of; whether values are all 0 or 1 is not told."""
    terms = question.terms
    about = question.arrays.get("about")
    wide = terms.features + 1
    away = np.zeros(wide) if about is None else finite(about, (wide,))
    columns = desk.home.source(question.round).columns
    told = desk.tells_sums([str(name) for name in columns])
    if not (told and tells_sums(terms)):
        return _column_spread(desk, question, away)
    matrix = desk.sums(question).inside(terms)
    sums = matrix[0, 1:] - away * matrix[0, 0]
    squares = np.diag(matrix)[1:] - 2 * away * matrix[0, 1:] + away**2 * matrix[0, 0]
    return {
        "weight": matrix[:1, 0].copy(),
        "sums": sums,
        # rounding must not leave less than there is of the sums alone
        "squares": np.maximum(squares, sums**2 / matrix[0, 0]),
        "binary": np.zeros(wide, dtype=np.int64),
    }


def _column_spread(
    desk: PrivateDesk, question: Inquiry, away: Array
) -> dict[str, NDArray[Any]]:
    """The same where sums of products are not told: in the units of the table."""
    if not desk.home.policy.sums:
        raise Refused("sums")
    told, ranges = _spread(desk, question)
    half = np.ptp(ranges, axis=1) / 2.0
    apart = ranges.mean(axis=1) - away
    count, sums, squares = told[0], *np.split(told[1:], 2)
    noise = desk.settings.noise_of_units * spread_room(len(half))
    around = half**2 * squares + 2.0 * half * apart * sums + apart**2 * count
    return {
        "weight": np.array([count]),
        "sums": half * sums + apart * count,
        "squares": np.maximum(around, 0.0),
        "binary": np.zeros(len(half), dtype=np.int64),
        "noise": np.array([noise]),
    }


def _spread(desk: PrivateDesk, question: Inquiry) -> tuple[Array, Array]:
    """The number of rows, sums of values and of squares of the run's columns and label, in
    units of declared ranges; and these (columns and label, 2).
    """
    now = desk.home.source(question.round)
    columns = sorted(str(name) for name in now.columns)
    settings = desk.settings
    classes = question.terms.classes
    if settings.lacking(columns, classes):
        raise Refused("privacy")
    ranges = settings.pairs(columns, classes)
    middle = ranges.mean(axis=1)
    half = np.ptp(ranges, axis=1) / 2.0

    def make() -> Arrays:
        data = rows_with_columns(now.columns, columns, now.data)
        values = (np.column_stack([data.X, data.y]) - middle) / half
        noise = settings.noise_of_units
        return {"told": told_spread(values, noise, desk.source)}

    digest = digest_of(("units", columns), {"ranges": ranges})
    paid = ProtectedAnswer(question.run, "units", "", settings.noise_of_units)
    found = desk.paid(question, paid, digest, make)["told"]
    wide = len(columns) + 1
    place = [columns.index(name) for name in question.terms.columns]
    at = np.array([*place, wide - 1])
    told = np.concatenate([found[:1], found[1 + at], found[1 + wide + at]])
    return told, ranges[at]
