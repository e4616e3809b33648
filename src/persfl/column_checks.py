"""What a table's columns hold, and refusals that say what to do about it."""

from __future__ import annotations

from numbers import Number
from typing import Literal

import pandas as pd

from persfl.checks import many, some
from persfl.errors import InputError
from persfl.number_marks import marks_advice

Kind = Literal["number", "text"]

# What pandas calls objects that are numbers; "empty" has gaps only, as a column of a CSV without
# values has.
_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "boolean", "empty")
_TIMES = (
    "datetime",
    "datetime64",
    "date",
    "time",
    "timedelta",
    "timedelta64",
    "period",
)
_FIT_MISSING = (
    "Fill them in, drop those rows, or let them be replaced by each column's mean or most frequent "
    "category: impute=True (command line: --impute)."
)
_PREDICT_MISSING = (
    "Fill them in, leave those rows out (command line: --missing skip), or fit with impute=True, "
    "which then fills them in here too (command line: --impute, of fit or of predict)."
)
_MONTHS = (
    "Jan-uary Feb-ruary Mar-ch Apr-il May- Jun-e Jul-y Aug-ust Sep-t(ember)? Oct-ober"
)
_MONTHS += " Nov-ember Dec-ember"
# an English name of a month, in full or by its first letters
MONTH = "|".join(rf"{one.replace('-', '(')})?\.?" for one in _MONTHS.split())
_DATE = (
    r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T]\d{1,2}:\d{2}.*)?"
    rf"|(\d{{1,2}}[-/. ]+)?({MONTH})[-/., ]+(\d{{1,2}},? +)?\d{{4}}"
    rf"|\d{{4}}[-/. ]+({MONTH})([-/. ]+\d{{1,2}})?"
)


def needs_encoding(frame: pd.DataFrame) -> bool:
    """Whether some column holds no plain numbers."""
    return any(column_kind(frame[name], name) != "number" for name in frame.columns)


def refuse_text(frame: pd.DataFrame) -> None:
    """Stop where a column holds no numbers."""
    for name in frame.columns:
        if column_kind(frame[name], name) != "number":
            present = frame[name].dropna()
            example = repr(present.iloc[0]) if len(present) else "nothing"
            raise InputError(
                f"column {name!r} must hold numbers, as it did when fitting. Got {example}."
            )


def refuse_missing(frame: pd.DataFrame, *, fitting: bool = True) -> None:
    """Stop where values are missing, saying how many and where, and what can be done when
    fitting or predicting.
    """
    missing = frame.isna().sum()
    missing = missing[missing > 0].sort_values(ascending=False)
    if not len(missing):
        return
    counts = [f"{name} ({count})" for name, count in missing.items()]
    where = some(counts, 5).replace("'", "")
    rows = int(frame.isna().any(axis=1).sum())
    total = int(missing.sum())
    gaps = f"{many(total, 'value')} {'is' if total == 1 else 'are'} missing (NaN)"
    raise InputError(
        f"{gaps} in {rows:,} of {many(len(frame), 'row')}: {where}."
        f" {_FIT_MISSING if fitting else _PREDICT_MISSING}"
    )


def column_kind(values: pd.Series, name: object) -> Kind:
    """What a column holds; of dates, complex numbers and mixtures it says what to do."""
    kinds = pd.api.types
    if kinds.is_complex_dtype(values):
        raise InputError(
            f"column {name!r} must hold real numbers or texts. Got complex numbers."
        )
    if kinds.is_numeric_dtype(values) or kinds.is_bool_dtype(values):
        return "number"
    if kinds.is_datetime64_any_dtype(values) or kinds.is_timedelta64_dtype(values):
        raise InputError(_times(name))
    if isinstance(values.dtype, (pd.CategoricalDtype, pd.StringDtype)):
        return "text"
    # of objects: by what they are, gaps aside
    found = kinds.infer_dtype(values, skipna=True)
    if found == "string":
        return "text"
    if found in _NUMBERS:
        return "number"
    if found in _TIMES:
        raise InputError(_times(name))
    for value in values.dropna():
        if isinstance(value, complex) or not isinstance(value, (str, Number)):
            raise InputError(
                f"column {name!r} must hold numbers or texts. Got {value!r}."
            )
    raise InputError(f"column {name!r} mixes numbers and texts. Make it one of them.")


def _times(name: object) -> str:
    return (
        f"column {name!r} holds dates or times. Turn it into numbers (days since a start), leave it"
        f" out, or say what it is: time={name!r} or blocks={name!r}."
    )


def refuse_numbers(values: pd.Series, name: object) -> None:
    """Numbers written as text would become one category each."""
    present = values.dropna().astype(str).str.strip()
    if not len(present):
        return
    if present.str.fullmatch(_DATE).mean() >= 0.9:
        raise InputError(
            f"column {name!r} holds dates, such as {present.iloc[0]!r}. Turn it into numbers (days"
            f" since a start), leave it out, or say what it is: time={name!r} or blocks={name!r}"
            f" (command line: --drop {name}, --time {name}, --blocks {name})."
        )
    bad = present[pd.to_numeric(present, errors="coerce").isna()]
    advice = marks_advice(bad, present.drop(bad.index)) if len(bad) else ""
    if advice:
        raise InputError(
            f"column {name!r} holds numbers such as {bad.iloc[0]!r}, {advice}"
        )
    if len(present) >= 10 and len(bad) <= 0.1 * len(present):
        such = (
            f"{many(len(bad), 'value')} {'is' if len(bad) == 1 else 'are'} not, such as"
            f" {bad.iloc[0]!r}. Mend those"
            if len(bad)
            else "they are stored as text. Convert it"
        )
        raise InputError(
            f"column {name!r} holds numbers, but {such}, or leave the column out."
        )
