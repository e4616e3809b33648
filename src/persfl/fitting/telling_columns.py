"""Columns that seem to be the label under another name: no feature tells every row by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from persfl.checks import those

if TYPE_CHECKING:
    from persfl.devices import Devices
    from persfl.fitting.schema import TableSchema
    from persfl.types import Array, IntArray

LOOKED = 10_000  # rows at most, or twice as many, in which columns are compared with the label
MANY_VALUES = 20  # different labels that no column is in the order of by chance
SEVERAL = 5  # rows of a class, or of a text, that do not fall together by chance


def telling(rows: Devices, schema: TableSchema) -> list[str]:
    """Columns in the label's own order, row for row, or of which every entry has one class.

    >>> from persfl.devices import Devices
    >>> from persfl.fitting.cells import Labels
    >>> from persfl.fitting.schema import TableSchema
    >>> y = np.random.default_rng(0).normal(size=90)
    >>> X = np.column_stack([y[::-1], np.exp(y)])
    >>> rows = Devices(X, y, np.ones(90), np.array([0, 40, 90]), ["a", "b"])
    >>> telling(rows, TableSchema(Labels(), 2, ("noise", "copy")))[0][:37]
    "Column 'copy' is in the label's order"
    """
    step = max(1, len(rows.y) // LOOKED)
    X = rows.X[::step]
    label = rows.y[::step]
    if schema.labels.count:
        return _said(_of_classes(X, label.astype(np.int64), schema))
    values = len(np.unique(label))
    if values < MANY_VALUES:
        return []
    X = X[np.argsort(label, kind="stable")]
    steps = np.diff(X, axis=0)
    sorted_ones = (steps >= 0).all(axis=0) | (steps <= 0).all(axis=0)
    return [
        f"Column {schema.columns[k]!r} is in the label's order, row for row: it may be the label in"
        " other units. If it is not known when predicting, leave it out (command line: --drop"
        f" {schema.columns[k]})."
        for k in np.flatnonzero(sorted_ones).tolist()
        if 2 * len(np.unique(X[:, k])) >= values
    ]


def _of_classes(X: Array, label: IntArray, schema: TableSchema) -> list[str]:
    """Columns whose numbers or texts tell the class of every row."""
    found, label = np.unique(label, return_inverse=True)
    classes = np.arange(len(found))
    if len(found) < 2 or np.bincount(label).min() < SEVERAL:
        return []
    lowest = np.stack([X[label == k].min(axis=0) for k in classes])
    highest = np.stack([X[label == k].max(axis=0) for k in classes])
    order = lowest.argsort(axis=0)
    lowest = np.take_along_axis(lowest, order, axis=0)
    highest = np.take_along_axis(highest, order, axis=0)
    apart = np.all(highest[:-1] < lowest[1:], axis=0)
    texts = schema.preparation.texts if schema.preparation else []
    numbers = len(schema.columns) - sum(map(len, schema.categories))
    names = [schema.columns[k] for k in np.flatnonzero(apart[:numbers]).tolist()]
    for name, places in zip(texts, schema.categories, strict=True):
        level = X[:, places].argmax(axis=1)
        rows = np.bincount(level)
        pairs = np.unique(np.stack([level, label]), axis=1)
        if len(pairs[0]) == np.count_nonzero(rows) and rows[rows > 0].min() >= SEVERAL:
            names.append(name)
    return names


def _said(names: list[str]) -> list[str]:
    if not names:
        return []
    told = those(names, "tells", "tell", thing="column")
    be = "it may be the label by another name. If it is"
    if len(names) > 1:
        be = "each may be the label by another name. If they are"
    return [
        f"{told[0].upper()}{told[1:]} the class of every row: {be} not known when predicting, leave"
        f" {'it' if len(names) == 1 else 'them'} out (command line: --drop {','.join(names)})."
    ]
