"""CSV files, packed or not, as people save them."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from persfl.checks import many, repeated
from persfl.errors import InputError, PersflWarning
from persfl.sources.number_units import without_unit
from persfl.sources.unpacking import unpacked_text

# what stands for a missing value
_MISSING = ["#N/A", "N/A", "n/a", "NA", "<NA>", "NULL", "null", "None"]
_MISSING += ["NaN", "nan", "-NaN", "-nan", "#NA"]
# and what does among numbers
NOTHING = ["-", "--", "\u2013", ".", "..", "?"]
_FEW = 1000  # entries that show what a column holds
_MOST_BLANK = 2**14  # columns of a sheet, which a spreadsheet may all save
# columns that are many, and the seconds one takes
MANY_COLUMNS = 20_000
_A_COLUMN = 3e-4
# what no text in one byte a letter has: control letters, and the marks that UTF-16 begins with
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1f]|\A\xff\xfe|\A\xfe\xff")


def read_csv(
    path: Path,
    *,
    separator: str | None,
    decimal: str,
    thousands: str | None,
    text: str | None,
) -> pd.DataFrame:
    """A CSV file as a DataFrame; see `persfl.sources.table.read_frame`."""
    encoding = _encoding(path)
    first = _beginning(path, encoding)
    if not first.strip():
        raise InputError(
            f"{path.name!r} is empty. Its first line must name the columns, rows stand below it."
        )
    separator = separator or max(",;\t", key=first.split("\n", 1)[0].count)
    names = _names(first, separator, path)
    _check_names([name.strip() for name in names], path)
    if text is not None:
        text = next((name for name in names if name.strip() == text.strip()), text)
    options: dict[str, Any] = {
        "sep": separator,
        "decimal": decimal,
        "encoding": encoding,
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
            try:
                table = pd.DataFrame(pd.read_csv(content, **options))
            except pd.errors.ParserError:
                _refuse_more_cells(path, len(names), separator, encoding)
                raise
    if any(issubclass(one.category, pd.errors.ParserWarning) for one in said):
        # pandas has left them out
        _refuse_more_cells(path, len(names), separator, encoding)
    for name in table.columns:
        if name == text:
            table[name] = table[name].str.strip()
        elif not is_numeric_dtype(table[name]) and not is_bool_dtype(table[name]):
            table[name] = _cleaned(table[name], decimal, thousands)
    found = [str(name).strip() for name in table.columns]
    table.columns = pd.Index(
        [name or f"Unnamed: {place}" for place, name in enumerate(found)]
    )
    return table.drop(columns=[name for name in table.columns if _blank(table, name)])


def _cleaned(column: pd.Series, decimal: str, thousands: str | None) -> pd.Series:
    """A column without blanks around its texts. What was read as text because of them alone, or
    of marks that stand for nothing, holds numbers.
    """
    texts = column.str.strip()
    texts = texts.mask(texts.isin(["", *_MISSING]))
    present = texts.dropna()
    if not len(present):
        return texts
    nothing = present.isin(NOTHING)
    numbers, unit = without_unit(present[~nothing])
    if unit:
        texts = numbers.reindex(texts.index)
    if thousands is not None:
        numbers = numbers.str.replace(thousands, "", regex=False)
    numbers = numbers.str.replace(decimal, ".", regex=False)
    # most columns of texts show in their first that they hold no numbers
    found = pd.to_numeric(numbers.head(_FEW), errors="coerce")
    if not len(found) or found.isna().any():
        return texts
    found = pd.to_numeric(numbers, errors="coerce")
    if found.isna().any():
        return texts
    if unit:
        warnings.warn(
            f"column {str(column.name).strip()!r} holds numbers with {unit}, and is read as"
            " numbers.",
            PersflWarning,
            stacklevel=5,
        )
    if nothing.any():
        mark, rows = present[nothing].iloc[0], many(int(nothing.sum()), "row")
        warnings.warn(
            f"column {str(column.name).strip()!r} holds numbers, and {mark!r} in {rows}, which is"
            " taken for a missing value.",
            PersflWarning,
            stacklevel=5,
        )
    return found.reindex(texts.index)


def first_line(lines: Sequence[str], path: Path) -> tuple[list[str], str]:
    """What the columns of a CSV are called, and what stands between its cells; whatever follows."""
    first = lines[0] if lines else ""
    separator = max(",;\t", key=first.count)
    names = [name.strip() for name in _names(first, separator, path)]
    _check_names(names, path)
    return names, separator


def text_lines(path: Path) -> list[str]:
    """The lines of a CSV, each read for itself: as UTF-8, or as spreadsheets in Western Europe and
    America save texts.
    """
    with told_as_input(path), _content(path) as content:
        plain = content.read().removeprefix(codecs.BOM_UTF8)
    ends = plain.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return [_text(line) for line in ends.lstrip(b"\n").split(b"\n")]


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("cp1252", errors="replace")


def _blank(table: pd.DataFrame, name: object) -> bool:
    """Whether a column has no name and says nothing: row numbers, or a separator at line ends."""
    if not str(name).startswith("Unnamed: "):
        return False
    return name == "Unnamed: 0" or bool(table[name].isin([np.nan, ""]).all())


def _check_names(names: list[str], path: Path) -> None:
    """Stop where a name stands twice or too many are blank; warn where columns are many."""
    blank = names.count("")
    if blank > _MOST_BLANK:
        raise InputError(
            f"the first line of {path.name!r} has {blank:,} columns without a name. Name those that"
            " matter, and leave out the others."
        )
    twice = [name for name in repeated(names) if name]
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
            stacklevel=5,
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
        why = str(error).strip()
        raise InputError(f"{path.name!r} could not be read: {why}") from error


def _content(path: Path) -> IO[bytes] | io.BufferedReader:
    """A CSV to read from, packed or not."""
    return unpacked_text(path) if path.suffix.lower() == ".gz" else path.open("rb")


def _refuse_more_cells(path: Path, columns: int, separator: str, encoding: str) -> None:
    """Stop where a row says more than there are columns; separators at its end say nothing."""
    with _content(path) as content:
        text = io.TextIOWrapper(content, encoding=encoding, newline="")
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


def _encoding(path: Path) -> str:
    """How the letters of a file are written: UTF-8, or what spreadsheets in Western Europe and
    America save.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    with told_as_input(path), _content(path) as content:
        first = content.read(2**20)
        piece = first
        try:
            while piece:
                decoder.decode(piece)
                piece = content.read(2**20)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            if _BINARY.search(first):
                raise
        else:
            return "utf-8"
    warnings.warn(
        f"{path.name!r} is not UTF-8 text, so it is read as Windows-1252, as spreadsheets save it"
        " in Western Europe and America. If names look wrong, save it again as UTF-8.",
        PersflWarning,
        stacklevel=4,
    )
    return "cp1252"


def _beginning(path: Path, encoding: str) -> str:
    """The first of a CSV, with the line that names its columns; all kinds of line ends are one."""
    with told_as_input(path), _content(path) as file:
        text = codecs.getincrementaldecoder(encoding)().decode(file.read(2**20))
    text = text.removeprefix("\ufeff")
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
