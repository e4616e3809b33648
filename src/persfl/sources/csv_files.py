"""CSV files, packed or not, as people save them."""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from persfl.errors import InputError, PersflWarning
from persfl.sources.unpacking import unpacked_text

# what stands for a missing value
_MISSING = ["#N/A", "N/A", "n/a", "NA", "<NA>", "NULL", "null", "None"]
_MISSING += ["NaN", "nan", "-NaN", "-nan", "#NA"]
# columns that are many, and the seconds one takes
MANY_COLUMNS = 20_000
_A_COLUMN = 3e-4


def read_csv(
    path: Path,
    *,
    separator: str | None,
    decimal: str,
    thousands: str | None,
    text: str | None,
) -> pd.DataFrame:
    """A CSV file as a DataFrame; see `persfl.sources.table.read_frame`."""
    first = _beginning(path)
    separator = separator or max(",;\t", key=first.split("\n", 1)[0].count)
    names = _names(first, separator, path)
    _check_names(names, path)
    options: dict[str, Any] = {
        "sep": separator,
        "decimal": decimal,
        "low_memory": False,
        "index_col": False,
    }
    if thousands is not None:
        options["thousands"] = thousands
    if text is not None and text in names:
        # The column that says whose row it is, is text as it stands: 007 and NA are names.
        missing = {name: ["", *_MISSING] for name in names} | {text: [""]}
        options |= {"dtype": {text: str}, "keep_default_na": False}
        options["na_values"] = missing
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", pd.errors.ParserWarning)
        with told_as_input(path), _content(path) as content:
            table = pd.DataFrame(pd.read_csv(content, **options))
    if any(issubclass(one.category, pd.errors.ParserWarning) for one in said):
        _refuse_more_cells(path, len(names), separator)  # pandas has left them out
    if text is not None and text in table.columns:
        table[text] = table[text].str.strip()
    return table.drop(columns=[name for name in table.columns if _blank(table, name)])


def _blank(table: pd.DataFrame, name: object) -> bool:
    """Whether a column has no name and says nothing: row numbers, or a separator at line ends."""
    if not str(name).startswith("Unnamed: "):
        return False
    return name == "Unnamed: 0" or bool(table[name].isin([np.nan, ""]).all())


def _check_names(names: list[str], path: Path) -> None:
    """Stop where a name stands twice; warn where columns are many."""
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    if twice:
        raise InputError(
            f"{path.name!r} has the column {twice[0]!r} more than once. Give every column its"
            " own name."
        )
    if len(names) > MANY_COLUMNS:
        warnings.warn(
            f"{path.name!r} has {len(names):,} columns: reading and preparing them takes about"
            f" {len(names) * _A_COLUMN:,.0f} seconds before learning begins. For less, leave"
            " out of the file those that do not matter.",
            PersflWarning,
            stacklevel=4,
        )


@contextlib.contextmanager
def told_as_input(path: Path) -> Iterator[None]:
    """Whatever a library says of a file that it cannot read, as a sentence that names the file."""
    try:
        yield
    except InputError:
        raise
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    except Exception as error:
        raise InputError(f"{path.name!r} could not be read: {error}") from error


def _content(path: Path) -> IO[bytes] | io.BufferedReader:
    """A CSV to read from, packed or not."""
    return unpacked_text(path) if path.suffix.lower() == ".gz" else path.open("rb")


def _refuse_more_cells(path: Path, columns: int, separator: str) -> None:
    """Stop where a row says more than there are columns; separators at its end say nothing."""
    with _content(path) as content:
        text = io.TextIOWrapper(content, encoding="utf-8-sig", newline="")
        rows = csv.reader(text, delimiter=separator)
        for number, cells in enumerate(_sound(rows, path), start=1):
            if any(cell.strip() for cell in cells[columns:]):
                what = f"has {len(cells)} cells, where the first line names {columns} columns"
                raise InputError(
                    f"row {number} of {path.name!r} {what}. Put cells that hold {separator!r}"
                    " between quotation marks, or part columns by another mark."
                )


def _sound(rows: Iterator[list[str]], path: Path) -> Iterator[list[str]]:
    try:
        yield from rows
    except csv.Error as error:
        raise InputError(f"{path.name!r} could not be read: {error}.") from error


def _beginning(path: Path) -> str:
    """The first of a CSV, with the line that names its columns; all kinds of line ends are one."""
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rb") as file:
            text = codecs.getincrementaldecoder("utf-8-sig")().decode(file.read(2**20))
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path.name!r} could not be read: {error}") from error
    return str(text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\n"))


def _names(text: str, separator: str, path: Path) -> list[str]:
    """What the columns are called."""
    if len(separator) != 1:
        raise InputError(f"the separator must be one character. Got {separator!r}.")
    try:
        return next(csv.reader(io.StringIO(text), delimiter=separator), [])
    except csv.Error as error:
        raise InputError(
            f"the first line of {path.name!r} could not be read: {error}."
        ) from error


def _not_utf8(path: Path) -> InputError:
    return InputError(
        f"{path.name!r} is not UTF-8 text. Save it again as UTF-8 (in a spreadsheet: 'CSV UTF-8')."
    )
