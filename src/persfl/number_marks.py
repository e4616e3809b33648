"""Marks inside numbers: decimal commas, and what stands between thousands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from persfl.sources.csv_files import NOTHING

_MARKED = r"[-+]?([0-9][0-9.,]*|,[0-9]+)"  # a number, however its marks are meant
_GROUPS = r"[-+]?[1-9][0-9]{0,2}(,[0-9]{3})+"
_BOTH = r"[-+]?[1-9][0-9]{0,2}(\.[0-9]{3})+,[0-9]+"
_FEW = (
    1000  # of a column: most columns of texts show in these that they hold no numbers
)


@dataclass(frozen=True)
class Marks:
    """How the numbers of a table are written, and what shows it."""

    decimal: str
    thousands: str | None
    shown: str

    @property
    def sentence(self) -> str:
        """What was found, and the options that say the same."""
        what, options = "decimal commas", f"--decimal {self.decimal}"
        if self.decimal == ".":
            what, options = "commas between thousands", f"--thousands {self.thousands}"
        elif self.thousands:
            what = "decimal commas and dots between thousands"
            options += f" --thousands {self.thousands}"
        return f"As {self.shown} shows, numbers have {what}: the table is read with {options}."


def marks_in(frame: pd.DataFrame) -> Marks | None:
    """How numbers are written, where columns that were read as texts leave no doubt; None where
    there are no marks, or columns contradict each other.

    >>> marks_in(
    ...     pd.DataFrame({"a": ["1,234,567", "8"], "b": ["1,200", "900"]})
    ... ).thousands
    ','
    >>> marks_in(pd.DataFrame({"a": ["1,5", "2"], "b": ["1,234", "1.234,5"]}))
    Marks(decimal=',', thousands='.', shown="'1.234,5'")
    >>> marks_in(pd.DataFrame({"a": ["1,234", "56,789"]}))  # may be 1.234
    >>> marks_in(pd.DataFrame({"a": ["1,234.5"], "b": ["1,5"]}))
    """
    cells = _marked(frame)
    commas = cells[cells.str.contains(",", regex=False)]
    if not len(commas):
        return None
    grouped = commas.str.fullmatch(rf"{_GROUPS}(\.[0-9]+)?")
    if grouped.all():
        return _thousands(commas, _point(cells) or _clear_point(frame))
    both = commas[commas.str.fullmatch(_BOTH)]
    parted = commas[commas.str.fullmatch(r"[-+]?[0-9]*,[0-9]+")]
    if len(parted) + len(both) < len(commas) or _fractions(frame):
        return None
    shown = both if len(both) else parted[~parted.str.fullmatch(_GROUPS)]
    return Marks(",", "." if len(both) else None, repr(shown.iloc[0]))


def _thousands(commas: pd.Series, point: str | None) -> Marks | None:
    """Commas between thousands, if a number shows it by itself or a decimal `point` elsewhere."""
    clear = commas[commas.str.contains(r",.*[,.]")]
    if len(clear):
        return Marks(".", ",", repr(clear.iloc[0]))
    if point is None:
        return None
    return Marks(".", ",", f"{commas.iloc[0]!r} beside {point!r}")


def _marked(frame: pd.DataFrame) -> pd.Series:
    """The numbers of columns that were read as texts and hold nothing else."""
    found = [pd.Series(dtype=str)]
    for name in frame.columns:
        if pd.api.types.is_numeric_dtype(frame[name]):
            continue
        present = frame[name].dropna().astype(str).str.strip()
        present = present[~present.isin(NOTHING)]
        some = present.head(_FEW)
        if some.str.fullmatch(_MARKED).all() and present.str.fullmatch(_MARKED).all():
            found.append(present)
    marked: pd.Series = pd.concat(found)
    return marked


def _point(cells: pd.Series) -> str | None:
    """A number whose point stands between no thousands."""
    points: pd.Series = cells[cells.str.fullmatch(r"[-+]?[0-9]*\.[0-9]+")]
    clear = points[~points.str.fullmatch(r"[-+]?[1-9][0-9]{0,2}\.[0-9]{3}")]
    return str(clear.iloc[0]) if len(clear) else None


def _clear_point(frame: pd.DataFrame) -> str | None:
    """The like among columns that were read as numbers: there 12.5 may have been 12.500."""
    for values in _fractions(frame):
        size = values.abs()
        finer = (size * 1000 - (size * 1000).round()).abs() > 1e-6
        clear = values[finer | (size < 1) | (size >= 1000)]
        if len(clear):
            return f"{clear.iloc[0]:.12g}"
    return None


def _fractions(frame: pd.DataFrame) -> list[pd.Series]:
    """The broken numbers of each column that was read as numbers and has some."""
    columns = [frame[name] for name in frame.columns]
    floats = [one.dropna() for one in columns if pd.api.types.is_float_dtype(one)]
    broken = [one[np.isfinite(one) & (one % 1 != 0)] for one in floats]
    return [one for one in broken if len(one)]


def marks_advice(bad: pd.Series, plain: pd.Series) -> str:
    """What to do about numbers with marks that a reader must be told of, or "" where these are
    none.

    `plain` are the others of the column, which read as numbers as they stand.

    >>> marks_advice(pd.Series(["1,234", "56,789"]), pd.Series(["7"])).split(". ")[0]
    'which may be 1234 or 1.234'
    """

    def mostly(pattern: str) -> bool:
        found = bad.str.fullmatch(rf"[-+]?{pattern}").sum()
        return bool(found and found + len(plain) >= 0.9 * (len(bad) + len(plain)))

    comma = _reading("decimal", ",")
    dot = _reading("thousands", ".")
    if mostly(r"[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?"):
        first = bad.iloc[0]
        groups = (
            bad.str.contains(r",.*[,.]").any()
            or plain.str.contains(".", regex=False).any()
        )
        if not groups and bad.str.contains(r"^[-+]?0").any():
            return f"with a decimal comma. Read the table with {comma}."
        if groups:
            reading = _reading("thousands", ",")
            return f"with commas between thousands. Read the table with {reading}."
        return (
            f"which may be {first.replace(',', '')} or {first.replace(',', '.')}. Read the table"
            f" with {_reading('thousands', ',')} for the first, with {comma} for the second."
        )
    if mostly(r"[0-9]+,[0-9]+"):
        return f"with a decimal comma. Read the table with {comma}."
    if mostly(r"([0-9]{1,3}(\.[0-9]{3})+|[0-9]+)(,[0-9]+)?"):
        both = f"{dot} and {comma}" if bad.str.contains(",", regex=False).any() else dot
        return f"with dots between thousands. Read the table with {both}."
    spaces = (
        "\u00a0\u202f"  # as they are: not every engine of patterns knows such names
    )
    if mostly(rf"[0-9]{{1,3}}([' {spaces}][0-9]{{3}})+([.,][0-9]+)?"):
        return "with marks between thousands. Write them without."
    return ""


def _reading(option: str, mark: str) -> str:
    """How to say it, in Python and on the command line."""
    return f"{option}='{mark}' (command line: --{option} {mark})"
