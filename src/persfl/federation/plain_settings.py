"""Settings from TOML or JSON: plain values into a frozen dataclass, each of its kind.

An unknown key is an error, because a limit with a typing mistake protects nobody.

>>> @dataclasses.dataclass(frozen=True)
... class Few:
...     rows: int = 5
...     names: tuple[str, ...] = ()
>>> settings_from(Few, {"rows": 7, "names": ["a"]}, "the policy")
Few(rows=7, names=('a',))
>>> settings_from(Few, {"row": 7}, "the policy")
Traceback (most recent call last):
...
persfl.errors.InputError: the policy has no setting 'row'. Did you mean 'rows'?
>>> settings_from(Few, {"rows": True}, "the policy")
Traceback (most recent call last):
...
persfl.errors.InputError: rows of the policy must be a whole number. Got True.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from persfl.errors import InputError

T = TypeVar("T")


def _texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(v, str) for v in value)


def _numbers(value: object) -> bool:
    plain = (int, float)
    return isinstance(value, list | tuple) and all(type(v) in plain for v in value)


# By the word that annotates a field: whether a value is of that kind, and what that is called.
_KINDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "int": (
        lambda v: isinstance(v, int) and not isinstance(v, bool),
        "a whole number",
    ),
    "float": (
        lambda v: isinstance(v, int | float) and not isinstance(v, bool),
        "a number",
    ),
    "bool": (lambda v: isinstance(v, bool), "true or false"),
    "str": (lambda v: isinstance(v, str), "a text"),
    "None": (lambda v: v is None, "nothing"),
    "tuple[str, ...]": (_texts, "a list of names"),
    "tuple[float, ...]": (_numbers, "a list of numbers"),
    "Mapping[str, str]": (
        lambda v: isinstance(v, Mapping) and _texts(list(v.values())),
        "names with texts",
    ),
    "Mapping[str, object]": (lambda v: isinstance(v, Mapping), "a table of settings"),
}


def settings_from(kind: type[T], told: object, where: str) -> T:
    """The settings that `told` holds; `where` is what they are the settings of."""
    if not isinstance(told, Mapping):
        raise InputError(f"{where} must be a table of settings. Got {told!r}.")
    made: Any = kind
    words = {one.name: str(one.type) for one in dataclasses.fields(made)}
    given = {}
    for name, value in told.items():
        if name not in words:
            near = get_close_matches(str(name), list(words), 1)
            hint = (
                f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(words)}."
            )
            raise InputError(f"{where} has no setting {name!r}. {hint}")
        kinds = [_KINDS[word] for word in words[name].split(" | ")]
        if not any(fits(value) for fits, _ in kinds):
            wanted = " or ".join(text for _, text in kinds)
            raise InputError(f"{name} of {where} must be {wanted}. Got {value!r}.")
        if isinstance(value, int) and words[name] == "float":
            value = float(value)
        given[name] = tuple(value) if isinstance(value, list) else value
    try:
        return kind(**given)
    except TypeError:  # a field without a default
        absent = [name for name in words if name not in given]
        raise InputError(f"{where} lacks {absent[0]!r}.") from None
