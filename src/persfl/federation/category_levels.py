"""Categories of a federation: the levels of text columns, declared once, so that all encode alike.

`federation.toml` and every `node.toml` have the same table:

    [categories]
    ward = ["surgery", "maternity"]

Each level becomes a column of zeros and ones, `ward=surgery`, as a fit in one process has it. No
device tells which of them its rows have.

>>> levels = levels_from({"ward": ["surgery", "maternity"]}, "node.toml")
>>> print(levels_text(levels), end="")
[categories]
"ward" = ["surgery", "maternity"]
>>> preparation_of(["age", "ward=surgery", "ward=maternity"], levels).texts
['ward']
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pandas as pd

from persfl.checks import some
from persfl.encoding import MOST_CATEGORIES, Preparation
from persfl.errors import InputError

Levels = Mapping[str, tuple[str, ...]]
_LONGEST = 200  # letters of a column's name, or of a level


def levels_from(told: object, where: str) -> Levels:
    """Declared levels, from plain values that somebody else may have written."""
    if not isinstance(told, Mapping):
        raise InputError(
            f"[categories] in {where} must give columns their levels. Got {told!r}."
        )
    found = {}
    for name, levels in told.items():
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST:
            raise InputError(f"[categories] in {where} must name columns.")
        if not _are_levels(levels):
            raise InputError(
                f"the levels of {name!r} in {where} must be 2 to {MOST_CATEGORIES} different texts,"
                f' such as ["no", "yes"]. Got {str(levels)[:100]}.'
            )
        found[name] = tuple(levels)
    return found


def _are_levels(value: object) -> bool:
    if not isinstance(value, list | tuple) or not 2 <= len(value) <= MOST_CATEGORIES:
        return False
    texts = all(isinstance(text, str) and 0 < len(text) <= _LONGEST for text in value)
    return texts and len(set(value)) == len(value)


def levels_text(levels: Levels) -> str:
    """As it stands in a TOML file; "" where there are none."""
    # TOML writes texts as JSON does
    lines = [f"{json.dumps(name)} = {json.dumps(levels[name])}" for name in levels]
    return "\n".join(["[categories]", *lines, ""]) if lines else ""


def level_columns(levels: Levels) -> dict[str, list[str]]:
    """What the columns of zeros and ones are called, by category."""
    return {name: [f"{name}={one}" for one in levels[name]] for name in levels}


def encoded(frame: pd.DataFrame, levels: Levels, table: str) -> pd.DataFrame:
    """A table whose categories are columns of zeros and ones; numbers stand first.

    >>> frame = pd.DataFrame({"ward": ["b", "a"], "age": [1.0, 2.0]})
    >>> encoded(frame, {"ward": ("a", "b")}, "rows.csv").to_dict("list")
    {'age': [1.0, 2.0], 'ward=a': [0.0, 1.0], 'ward=b': [1.0, 0.0]}
    """
    mine = [name for name in levels if name in frame.columns]
    found = {name: frame[name] for name in frame.columns if name not in mine}
    for name in mine:
        texts = as_texts(frame[name])
        known = levels[name]
        strange = sorted(set(texts.unique()) - set(known))
        if strange:
            raise InputError(
                f"column {name!r} of {table!r} holds {some(strange)}, which [categories] in"
                " node.toml does not list. Mend the rows, or add it there, in federation.toml and"
                " in every other node.toml."
            )
        for level, column in zip(known, level_columns(levels)[name], strict=True):
            if column in found:
                raise InputError(f"{table!r} has both {name!r} and {column!r}.")
            found[column] = (texts == level).astype(float)
    return pd.DataFrame(found, index=frame.index)


def as_texts(values: pd.Series) -> pd.Series:
    """A column as texts; whole numbers without a decimal point."""
    if pd.api.types.is_numeric_dtype(values):
        return values.map(lambda value: f"{value:g}")
    return values.astype(object).map(str)


def in_order(columns: Sequence[str], levels: Levels) -> list[str]:
    """Columns as all encode them: numbers first, then each category's levels as they are declared.

    A category of which no device has a column is left out.

    >>> in_order(["w=b", "w=a", "age"], {"w": ("a", "b")})
    ['age', 'w=a', 'w=b']
    >>> in_order(["w=a", "w=c", "age"], {"w": ("a", "b")})
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: devices have other levels of 'w' than federation.toml declares: ...
    """
    here = set(columns)
    declared = level_columns(levels)
    last: list[str] = []
    for name, wanted in declared.items():
        mine = {column for column in here if column.startswith(f"{name}=")}
        if mine and mine != set(wanted):
            odd = some(sorted(mine ^ set(wanted)))
            raise InputError(
                f"devices have other levels of {name!r} than federation.toml declares: they differ"
                f" in {odd}. Make [categories] the same there and in every node.toml."
            )
        last += wanted if mine else []
    return [*(name for name in columns if name not in set(last)), *last]


def preparation_of(columns: Sequence[str], levels: Levels) -> Preparation | None:
    """How a table becomes these columns; None where none of them is a level."""
    declared = level_columns(levels)
    here = set(columns)
    texts = [name for name, wanted in declared.items() if here.issuperset(wanted)]
    if not texts:
        return None
    taken = {column for name in texts for column in declared[name]}
    words = {
        "numbers": [name for name in columns if name not in taken],
        "texts": texts,
        "impute": False,
        "categories": [list(levels[name]) for name in texts],
        "fills": [],
    }
    return Preparation.from_words(words)
