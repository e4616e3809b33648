"""Units inside the cells of a column: $106.00, 83.9 %, 528 mi."""

from __future__ import annotations

import pandas as pd

# what stands before a number and is no part of a name; A7 and Route 7 may be codes
_MONEY = "[$\u20ac\u00a3\u00a5]"
# letters as they are, in no raw text: pyarrow's engine of patterns knows no names of them
_BEHIND = f"{_MONEY}|[%\u2030\u00b0\u00b5A-Za-z][%\u00b0\u00b2\u00b3/A-Za-z]{{0,7}}"
_NUMBER = r"[0-9]{1,3}(?:[.,][0-9]{3})+(?:[.,][0-9]+)?|[0-9]+(?:[.,][0-9]+)?|[.,][0-9]+"
_CELL = rf"(?P<sign>[-+]?)(?P<before>{_MONEY}?)\s*(?P<number>{_NUMBER})\s*(?P<behind>{_BEHIND})?"
_FEW = 1000  # entries that show what a column holds


def without_unit(texts: pd.Series) -> tuple[pd.Series, str]:
    """The numbers of a column whose every cell has the same unit, still as texts, and where the
    unit stands in words; else the texts as they are, and "".

    >>> without_unit(pd.Series(["$1,250.50", "-$3"]))[0].tolist()
    ['1,250.50', '-3']
    >>> without_unit(pd.Series(["5 km", "12 km"]))[1]
    "'km' behind them"
    >>> [
    ...     without_unit(pd.Series(cells))[1]
    ...     for cells in (["5 km", "2 mi"], ["3"], ["1.2.3a"])
    ... ]
    ['', '', '']
    """
    if not len(texts) or not texts.head(_FEW).str.fullmatch(_CELL).all():
        return texts, ""
    parts = texts.str.extract(f"^{_CELL}$").fillna("")
    units = parts[["before", "behind"]].drop_duplicates()
    before, behind = units.iloc[0]
    if len(units) > 1 or (parts["number"] == "").any() or not (before or behind):
        return texts, ""
    where = f"{before!r} before them" if before else f"{behind!r} behind them"
    return parts["sign"] + parts["number"], where
