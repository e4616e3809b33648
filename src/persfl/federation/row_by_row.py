"""The rows of a protected device, each read for itself.

A table that is read as a whole tells of its rows by how that fails: one row with an odd cell would
stop all answers, or make other rows be read in another way. Here no row has a part in how another
one is read, columns are those of the first line, and a row that does not fit is left out.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from persfl.errors import InputError
from persfl.federation.category_levels import Levels, level_columns
from persfl.federation.row_table import Rows, RowTable
from persfl.sources.csv_files import first_line, text_lines
from persfl.sources.table import read_frame
from persfl.types import Array, Data, Mask

_TRUTHS = {"true": "1", "false": "0"}  # as pandas reads them
_PARQUET = (".parquet", ".pq")


def read_row_by_row(table: RowTable, levels: Levels) -> Rows:
    """The rows that fit, with the columns that `RowTable.read` gives them."""
    path = Path(table.data)
    parquet = path.suffix.lower() in _PARQUET
    frame = read_frame(path) if parquet else _cells(path)
    special = [table.label, *([table.weight] if table.weight else [])]
    absent = [name for name in special if name not in frame.columns]
    if absent:
        raise InputError(f"{path.name!r} has no column {absent[0]!r}.")
    there = [name for name in frame.columns if name not in {*special, *table.drop}]
    texts = [name for name in levels if name in there]
    plain = [name for name in there if name not in texts]
    sound = np.ones(len(frame), dtype=bool)
    found = [_numbers(frame[name]) for name in plain]
    for name in texts:
        marks = _marks(frame[name], levels[name])
        sound &= marks.any(axis=1)
        found += list(marks.T)
    made = level_columns(levels)
    columns = [*map(str, plain), *(one for name in texts for one in made[name])]
    X = np.array(found, dtype=np.float64).reshape(len(columns), len(frame)).T
    y = _numbers(frame[table.label])
    weight = _numbers(frame[table.weight]) if table.weight else np.ones(len(y))
    sound &= np.isfinite(np.column_stack([X, y, weight])).all(axis=1)
    return Rows(columns, Data(X[sound], y[sound], weight[sound]))


def _cells(path: Path) -> pd.DataFrame:
    """A CSV as texts. A line is a row, so that a lone quotation mark hides no other row."""
    lines = text_lines(path)
    names, separator = first_line(lines, path)
    rows = [_row(line, separator, len(names)) for line in lines[1:] if line.strip()]
    frame = pd.DataFrame(rows, columns=pd.Index(names, dtype=object), dtype=object)
    return frame.drop(columns=[""], errors="ignore")  # row numbers, or line ends


def _row(line: str, separator: str, many: int) -> list[str]:
    """The cells of one line; blanks, which do not fit, where they are too many or none."""
    try:
        cells: Sequence[str] = next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        cells = []
    if any(cell.strip() for cell in cells[many:]):
        cells = []
    return [*cells[:many], *[""] * (many - len(cells))]


def _numbers(cells: pd.Series) -> Array:
    """A column as numbers, cell by cell; NaN where there is none.

    >>> _numbers(pd.Series(["1.5", " 2", "True", "", "x"])).tolist()
    [1.5, 2.0, 1.0, nan, nan]
    """
    if not pd.api.types.is_numeric_dtype(cells):
        words = cells.map(lambda cell: str(cell).strip())
        cells = words.map(lambda word: _TRUTHS.get(word.lower(), word))
    found = pd.to_numeric(cells, errors="coerce")
    return np.asarray(found.to_numpy(dtype=np.float64, na_value=np.nan))


def _marks(cells: pd.Series, levels: Sequence[str]) -> Mask:
    """(rows, levels) which of them each cell is; a number may be written in several ways.

    >>> _marks(pd.Series(["1.0", "b", "c"]), ("1", "b")).tolist()
    [[True, False], [False, True], [False, False]]
    """
    texts = cells.map(str).to_numpy(dtype=object)
    numbers = [f"{number:g}" for number in _numbers(cells)]
    short = np.array(numbers, dtype=object)
    known = np.array(levels, dtype=object)
    said = np.where(np.isin(texts, known), texts, short)
    return np.asarray(said[:, None] == known)
