"""Rows that stand for others: as many, with the same weights, means and second moments.

What a model under squared loss tells of rows is made of these moments, in exact arithmetic. Numbers
of a computer are rounded, though: somebody who asks with weights of 1e14 gets rows that are rounded
one by one, and two such answers differ by single rows. So a device answers from rows alike, made in
the units of its own table before anything of a question touches them. Nothing is left in them but
the moments, and no rounding can tell more.

>>> data = Data(np.array([[1.0], [2.0], [6.0]]), np.array([1.0, 0.0, 5.0]))
>>> made = rows_alike(data)
>>> moments = [np.column_stack([one.X, one.y, np.ones(3)]) for one in (data, made)]
>>> np.allclose(moments[0].T @ moments[0], moments[1].T @ moments[1])
True
>>> np.allclose(data.X, made.X)
False
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from persfl.seeds import stream
from persfl.types import Array, Data, IntArray
from persfl.wire.terms import Terms

_EPS = float(np.finfo(np.float64).eps)


def rows_alike(data: Data) -> Data:
    """Made-up rows with the moments of these; none weighs 0."""
    if data.rows < 2:
        return data
    values = np.column_stack([data.X, data.y])
    root = np.sqrt(data.weight)
    middle = data.weight @ values / data.weight.sum()
    # A reflection that takes the weights' roots to the first axis; the others are about the means.
    level = root / np.linalg.norm(root)
    axis = level.copy()
    axis[0] += 1.0  # all are above 0, so nothing cancels
    axis /= np.linalg.norm(axis)
    away = root[:, None] * (values - middle)
    turned = away - 2.0 * np.outer(axis, axis @ away)
    factor = _factor(turned[1:], np.abs(middle) * np.linalg.norm(root))
    # Any directions about the means do; chance ones make rows of which none stands out.
    chance = (
        stream(0, "alike").uniform(data.rows * len(factor)).reshape(data.rows, -1) - 0.5
    )
    frame = np.linalg.qr(chance - np.outer(level, level @ chance))[0]
    spread = frame @ factor
    made = middle + spread / root[:, None]
    return Data(np.ascontiguousarray(made[:, :-1]), made[:, -1].copy(), data.weight)


def _factor(about: Array, levels: Array) -> Array:
    """(rank, columns) the factor of the moments that every matrix with these moments has.

    A column that says nothing new gets no line of its own. Otherwise that line would be what chance
    made of it, or for a column of zeros a line of `about` itself: a row, more or less. `levels` say
    how large columns were before their means were taken off, and so what is rounding.
    """
    peaks = np.abs(about).max(axis=0)
    # or squares of very large and small numbers get lost
    units = np.where(peaks > 0, peaks, 1.0)
    sizes = units * np.linalg.norm(about / units, axis=0)
    rounding = _EPS * (levels + sizes)
    says = sizes > 64 * rounding
    if not says.any():
        return np.zeros((0, len(sizes)))
    about = np.where(says, about, 0.0)
    worst = float((rounding[says] / sizes[says]).max())
    least = np.where(says, sizes, np.inf) * min(max(64 * worst, 1e-12), 1e-9)
    factor: Array = np.asarray(np.linalg.qr(about, mode="r"))
    diagonal = np.diagonal(factor)
    if (np.abs(diagonal) > least[: len(diagonal)]).all():
        return factor * np.where(diagonal < 0, -1.0, 1.0)[:, None]
    return _echelon(about, least)


def _echelon(about: Array, least: Array) -> Array:
    """The same column by column; those of which no more than `least` is new are passed over."""
    rest = about.copy()
    lines = list[Array]()
    for k in range(about.shape[1]):
        unit = float(np.abs(rest[:, k]).max())
        new = rest[:, k] / (unit or 1.0)
        size = float(np.linalg.norm(new))
        if unit * size <= least[k] or len(lines) == len(about):
            continue
        new /= size
        line = np.zeros(about.shape[1])
        line[k:] = new @ rest[:, k:]
        rest[:, k:] -= np.outer(new, line[k:])
        lines.append(line)
    return np.stack(lines)


class Likenesses:
    """Rows alike that were made before: making them takes longer than a step from them.

    `most` numbers are kept, those that were used last.
    """

    def __init__(self, most: int = 2**25) -> None:
        self._most = most
        self._made: OrderedDict[str, Data] = OrderedDict()

    def of(self, data: Data) -> Data:
        """As `rows_alike`."""
        found = hashlib.sha256(repr(data.X.shape).encode())
        for part in (data.X, data.y, data.weight):
            found.update(np.ascontiguousarray(part).tobytes())
        key = found.hexdigest()
        made = self._made.pop(key, None)
        self._made[key] = rows_alike(data) if made is None else made
        while (
            len(self._made) > 1
            and sum(each.X.size for each in self._made.values()) > self._most
        ):
            self._made.popitem(last=False)
        return self._made[key]

    def within(self, data: Data, parts: Sequence[IntArray]) -> Data:
        """The same within each of these parts, which stay where they are."""
        X = data.X.copy()
        y = data.y.copy()
        for part in parts:
            made = self.of(data.take(part))
            X[part], y[part] = made.X, made.y
        return Data(X, y, data.weight)


def by_moments(terms: Terms) -> bool:
    """Whether answers under these terms are made of second moments.

    >>> by_moments(Terms(columns=("a",)))
    True
    >>> by_moments(Terms(columns=("a",), settings={"loss": "huber"}))
    False
    """
    if terms.classes:
        return False
    return terms.model == "ridge" or (
        terms.model == "linear" and terms.learner().kind == "squared"
    )
