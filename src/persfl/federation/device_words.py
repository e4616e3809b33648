"""What devices say of themselves before a run, and whether it can be so: their columns, the version
of persfl that they have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from persfl import __version__
from persfl.checks import some
from persfl.errors import InputError
from persfl.federation.messages import PROTOCOL, Head
from persfl.wire.terms import COLUMNS

_LONGEST = 1_000  # letters of a column's name


def common_columns(there: Mapping[str, Head]) -> list[str]:
    """The columns that everybody has, in the order of the first device that has them.

    One device may say anything, so whoever differs from most is named.

    >>> three = {
    ...     "ann": {"columns": ["z"]},
    ...     "bob": {"columns": ["x"]},
    ...     "eve": {"columns": ["x"]},
    ... }
    >>> common_columns(three)
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: every device must have the same columns: device 'ann' differs in ...
    """
    sets = {name: frozenset(there[name]["columns"]) for name in sorted(there)}
    times = Counter(sets.values())
    usual = max(sets.values(), key=lambda each: times[each])
    for name, found in sets.items():
        if found != usual:
            odd = some(sorted(found ^ usual))
            who = f"device {name!r} differs in {odd}"
            raise InputError(f"every device must have the same columns: {who}.")
    return list(there[next(iter(sets))]["columns"])


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
