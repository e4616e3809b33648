"""What devices say of themselves before a run, and whether it can be so: their columns, the version
of persfl that they have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping

from persfl import __version__
from persfl.checks import some
from persfl.federation.letters import are_few
from persfl.federation.messages import PROTOCOL, Head
from persfl.wire.terms import COLUMNS

_LONGEST = 1_000  # letters of a column's name


def usual_columns(there: Mapping[str, Head]) -> list[str]:
    """The columns that most devices have, in the order of the first device that has them.

    >>> three = {
    ...     "ann": {"columns": ["z"]},
    ...     "bob": {"columns": ["x"]},
    ...     "eve": {"columns": ["x"]},
    ... }
    >>> usual_columns(three)
    ['x']
    """
    sets = [frozenset(there[name]["columns"]) for name in sorted(there)]
    times = Counter(sets)
    usual = max(sets, key=lambda each: times[each])
    first = next(name for name in sorted(there) if usual == {*there[name]["columns"]})
    return list(there[first]["columns"])


def with_other_columns(there: Mapping[str, Head]) -> dict[str, str]:
    """Who differs from most in its columns, and what to say of it. One device may say anything.

    >>> two = {"ann": {"columns": ["z"]}, "bob": {"columns": ["x"]}}
    >>> with_other_columns({**two, "eve": {"columns": ["x"]}})["ann"]
    "every device must have the same columns: device 'ann' differs in 'x', 'z'."
    """
    usual = {*usual_columns(there)}
    found: dict[str, str] = {}
    for name in sorted(there):
        odd = sorted(usual ^ {*there[name]["columns"]})
        if odd:
            who = f"device {name!r} differs in {some(odd)}"
            found[name] = f"every device must have the same columns: {who}."
    return found


def are_names(columns: object) -> bool:
    """Whether what a device says of its columns can be names: each once, none a book."""
    if not isinstance(columns, list) or not 0 < len(columns) <= COLUMNS:
        return False
    good = all(isinstance(name, str) and len(name) <= _LONGEST for name in columns)
    return good and len(set(columns)) == len(columns)


def other_version(name: str, head: Head) -> str:
    """What to say of a device whose persfl knows other questions; "" where it knows the same.

    >>> other_version("ann", {"protocol": PROTOCOL})
    ''
    >>> other_version("ann", {})[:68]
    "device 'ann' has another version of persfl (0.2 or before) than here"
    """
    if head.get("protocol") == PROTOCOL:
        return ""
    told = head.get("version")
    known = isinstance(told, str) and re.fullmatch(r"[0-9][0-9a-z.+]{0,30}", told)
    has = told if known else "0.2 or before"
    return (
        f"device {name!r} has another version of persfl ({has}) than here. Install this one there:"
        f" pip install 'persfl[flower]=={__version__}'."
    )


def go_on_without(
    some: Collection[str], there: Collection[str], home: Collection[str]
) -> bool:
    """Whether the others begin without these: they are few, and none is the target at home."""
    return are_few(some, there) and not any(name in home for name in some)


def without(name: str) -> str:
    """What is said of a device that is left out, after the reason."""
    return f"The others run without {name!r}."
