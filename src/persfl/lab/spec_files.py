"""Specs as files: where they are, what they say, whether every value has the type it must have."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from persfl.checks import some
from persfl.errors import InputError

SPECS = Path(__file__).parents[1] / "specs"
COMPARES = ("[[set]]", "[[published]]")  # what only the spec of a comparison has
Values = dict[str, Any]  # by name, as TOML gives them
Reference = dict[str, Any]  # a curve of the authors: lists by name
Changes = Mapping[str, Any]  # that a caller makes to them


def spec_names(folder: str = "") -> list[str]:
    """The names of the figures that come with persfl, the paper's first.

    Those in a folder are no part of `all`.

    >>> spec_names()[:3]
    ['fig2a', 'fig2b', 'fig2c']
    """
    paths = (SPECS / folder).glob("*.toml")
    figures = []
    for path in paths:
        content = path.read_text(encoding="utf-8")
        if not any(word in content for word in COMPARES):
            figures.append(path)
    names = [path.relative_to(SPECS).with_suffix("").as_posix() for path in figures]
    return sorted(
        names, key=lambda name: (not name.startswith("fig") or "-" in name, name)
    )


def read_spec(name: str | Path) -> tuple[Path, Values]:
    """Where a spec is, by name or path, and what it says.

    One with [[set]] instead of [[series]] is a comparison of methods, one with [[published]] a
    comparison with other people's numbers.
    """
    path = Path(name)
    if not path.suffix:
        path = SPECS / f"{name}.toml"
    if not path.is_file():
        known = ", ".join([*spec_names(), "compare", "published"])
        what = f"there is no experiment {str(name)!r}. Known: {known}"
        raise InputError(f"{what}; or give the path of a .toml file.")
    if not path.stem.strip("."):  # results go into a folder of that name
        raise InputError(
            f"a spec must have a name. Got {path.name!r}: call the file otherwise."
        )
    try:
        return path, tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path.name!r} is not valid TOML: {error}.") from error


def typed_values(
    spec: str,
    values: Changes,
    kind: type,
    known: Sequence[str],
) -> Values:
    """Values for the `known` fields of a dataclass, each of its field's type.

    TOML says 1 where 1.0 is meant, and has lists where we have tuples: both are changed.

    >>> from persfl.lab.comparison_sets import DataSet
    >>> typed_values(
    ...     "mine", {"cost": 3, "features": ["a", "b"]}, DataSet, ["cost", "features"]
    ... )
    {'cost': 3.0, 'features': ('a', 'b')}
    """
    unknown = sorted(set(values) - set(known))
    if unknown:
        moved = (
            " Where networks are computed is now compute."
            if "device" in unknown and "compute" in known
            else ""
        )
        raise InputError(
            f"{spec}: unknown key {some(unknown)}.{moved} Known: {', '.join(known)}."
        )
    types = {field.name: str(field.type) for field in fields(kind)}
    return {key: _typed(spec, key, value, types[key]) for key, value in values.items()}


def _typed(spec: str, key: str, value: object, wanted: str) -> object:
    if wanted == "float" and type(value) is int:  # a bool is an int, but no number
        return float(value)
    if wanted.startswith("tuple") and isinstance(value, list | tuple):
        if all(isinstance(word, str) for word in value):
            return tuple(value)
    elif type(value).__name__ == wanted:
        return value
    raise InputError(f"{spec}: {key} must be of type {wanted}. Got {value!r}.")


@cache
def references() -> dict[str, Reference]:
    """What the authors' notebook gave, by name: rounds, median, 10 % and 90 % quantiles.

    >>> references()["fig2a d=20"]["runs"]
    12
    """
    found: dict[str, Reference] = {}
    for path in sorted((SPECS / "reference").glob("*.json")):
        found |= json.loads(path.read_text(encoding="utf-8"))
    return found
