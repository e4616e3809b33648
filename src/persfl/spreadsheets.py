"""CSV files that somebody may open in a spreadsheet, which runs a cell that begins like a
formula.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO

import pandas as pd

from persfl.files import write_whole

# Before what a spreadsheet takes for a formula, at the beginning of a cell. Where it parts cells at
# semicolons or tabs, quotation marks within a line mean nothing to it: a cell may begin in a text.
_BEGINNING = re.compile(
    r"\A(?=[=+\-@\uff1d\uff0b\uff0d\uff20\t\r\n])"
    r"|(?<=[;\t\r\n])(?=[=+\-@\uff1d\uff0b\uff0d\uff20])"
)


def write_csv(
    table: pd.DataFrame, target: Path | IO[str], *, verbatim: bool = False
) -> None:
    """Write a table, texts that begin like a formula behind a ' unless `verbatim`; numbers stay
    numbers.

    >>> import sys
    >>> write_csv(pd.DataFrame({"who": ["=1+1", "ann"], "x": [-1.5, 2.0]}), sys.stdout)
    who,x
    '=1+1,-1.5
    ann,2.0
    """
    made = table if verbatim else harmless(table)
    if isinstance(
        target, Path
    ):  # a file that is there stays until the new one is whole
        write_whole(target, lambda file: made.to_csv(file, index=False))
    else:
        made.to_csv(target, index=False)


def harmless(table: pd.DataFrame) -> pd.DataFrame:
    """The same table, its names and texts such that a spreadsheet shows them and runs none."""
    made = table.copy()
    for place in range(table.shape[1]):
        values = table.iloc[:, place]
        if not pd.api.types.is_numeric_dtype(values):
            made.isetitem(place, values.astype(object).map(quoted).to_numpy())
    made.columns = pd.Index([quoted(name) for name in table.columns], dtype=object)
    return made


def quoted(cell: object) -> object:
    """A cell as it may stand in a spreadsheet. A text that is a number is no formula.

    >>> quoted("=HYPERLINK(1)"), quoted("-5"), quoted("- none"), quoted(-5)
    ("'=HYPERLINK(1)", '-5', "'- none", -5)
    >>> quoted("ann;=1+1"), quoted("north-west; -5")
    ("ann;'=1+1", 'north-west; -5')
    """
    if not isinstance(cell, str) or _number(cell):
        return cell
    return _BEGINNING.sub("'", cell)


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text == text.strip()
