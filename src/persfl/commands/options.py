"""Options as tables of text, one row an option, and what reads each kind of value.

A row has four columns, two spaces or more apart:

    --peers N   number   auto   of the paper's loop: peers asked per round

the words (an option and what stands for its value, or a name without dashes for what has a place),
the kind of value, the default, the meaning. A kind is a key of `KINDS`, `switch` for an option
without a value, `a|b` for one of several words; a `*` behind it takes several. The default is
written as on the command line; `-` is none, `needed` that there is no run without, `cores` the
number of this machine's. A row of its own that ends in a colon is the title of a group; one that
begins with a space goes on with the meaning above. A meaning may say %(default)s.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

MODELS = ("linear", "mlp", "tree", "forest", "boosting")
_NONE = "-"
_NEEDED = "needed"
_CORES = "cores"
_EMPTY = "''"
_SWITCH = "switch"


class Option(NamedTuple):
    """One row of a table, or only a `meaning`: the title of a group."""

    words: str
    kind: str
    default: str
    meaning: str

    @property
    def settings(self) -> dict[str, Any]:
        """What argparse is told beside the name."""
        value = self.words.partition(" ")[2]
        kind = self.kind.removesuffix("*")
        several = self.kind.endswith("*")
        named = self.words.startswith("--")
        found: dict[str, Any] = {"help": self.meaning}
        if kind == _SWITCH:
            return found | {"action": "store_true"}
        if "|" in kind:
            found["choices"] = kind.split("|")
        elif KINDS[kind] is not None:
            found["type"] = KINDS[kind]
        if value:
            found["metavar"] = value
        if several:
            found |= {"action": "append", "default": []} if named else {"nargs": "*"}
        elif self.default == _NEEDED and named:
            found["required"] = True
        elif self.default == _NONE and not named:
            found["nargs"] = "?"
        elif self.default not in (_NONE, _NEEDED):
            usual = {_CORES: os.cpu_count() or 1, _EMPTY: ""}
            found["default"] = usual.get(self.default, self.default)
        return found


def options(text: str) -> Iterator[Option]:
    """The rows of a table.

    >>> [row.meaning for row in options("--top N  whole  20  how many\\n    lines")]
    ['how many lines']
    """
    whole_rows = re.sub(r"\n +", " ", text)
    for row in filter(None, whole_rows.splitlines()):
        if row.endswith(":"):
            yield Option("", "", "", row[:-1])
        else:
            yield Option(*re.split(r"  +", row, maxsplit=3))


def add_options(made: argparse.ArgumentParser, text: str) -> None:
    """Give a parser the options of a table."""
    group: argparse._ActionsContainer = made
    for option in options(text):
        if option.words:
            group.add_argument(option.words.split()[0], **option.settings)
        else:
            group = made.add_argument_group(option.meaning)


def defaults(text: str) -> dict[str, object]:
    """Every option of a table as it is where nothing is said.

    >>> defaults("--top N  whole  20  how many\\n--out FILE  text  needed  where")
    {'top': 20, 'out': None}
    """
    made = argparse.ArgumentParser()
    for option in options(text):
        name = option.words.split()[0]
        if name.startswith("--"):
            made.add_argument(name, **{**option.settings, "required": False})
    return vars(made.parse_args([]))


def _model(text: str) -> str:
    """A model's name, or a file with one; the file itself is looked at when the command runs."""
    if text not in MODELS and ".py" not in text:
        raise argparse.ArgumentTypeError(
            f"must be one of {', '.join(MODELS)}, or FILE.py:NAME, not {text!r}"
        )
    return text


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _whole(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(
            f"must be a whole number above 0, not {text!r}"
        )
    return number


def _number(text: str) -> str | float:
    """ "auto", or a number."""
    if text == "auto":
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise argparse.ArgumentTypeError(f"must be 'auto' or a number, not {text!r}")


def _setting(text: str) -> tuple[str, object]:
    """KEY=VALUE, the value as TOML has it; a bare word is text."""
    import tomllib

    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"must be KEY=VALUE, not {text!r}")
    try:
        found = tomllib.loads(f"x = {value}")["x"]
    except (tomllib.TOMLDecodeError, ValueError, RecursionError):
        return key.strip(), value
    if not _is_plain(found):
        raise argparse.ArgumentTypeError(
            f"{key.strip()} must be a number, true, false, text or a list of these, not {value!r};"
            " text of another kind stands in quotes"
        )
    return key.strip(), found


def _levels(text: str) -> tuple[str, tuple[str, ...]]:
    """COLUMN=A,B: a column, and the levels it may have."""
    column, equals, levels = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"must be COLUMN=A,B, not {text!r}")
    return column.strip(), tuple(_names(levels))


def _is_plain(value: object) -> bool:
    """Whether this is kept as it is: TOML knows dates, times and tables, too."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return isinstance(value, (str, int, float))


KINDS: dict[str, Callable[[str], object] | None] = {
    "text": None,
    "int": int,
    "float": float,
    "whole": _whole,
    "number": _number,
    "names": _names,
    "model": _model,
    "setting": _setting,
    "levels": _levels,
}
