"""What attacks on own rows have found, in plain words, beside the run that they were made on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from persfl.errors import InputError
from persfl.formats import reading
from persfl.runs.run_folder import Folder

LEAKS = "leaks.json"
# shares of rows or devices; the errors of sums and of a row have no upper end
SHARES = ("known", "found", "worst", "by_model", "labels")
_NUMBERS = {"epsilon", "moments", "row", *SHARES}
Leaked = dict[str, float | None]


def keep_leaks(run: Path, delta: float, found: Sequence[Leaked]) -> None:
    """Put it into a finished run folder, in place of what was there."""
    folder = Folder.open(run, lock=True)
    try:
        folder.write_json(LEAKS, {"delta": delta, "budgets": list(found)})
        folder.commit()
    finally:
        folder.close()


def read_leaks(folder: Folder) -> dict[str, Any] | None:
    """What a run folder knows of it; None where nobody measured it."""
    if LEAKS not in folder.index["files"]:
        return None
    words = folder.read_json(LEAKS)
    with reading(folder.path / LEAKS):
        return leaks_from(words)


def leaks_from(words: object) -> dict[str, Any]:
    """The same, checked: `delta`, and one mapping for each privacy budget.

    >>> leaks_from({"delta": 2, "budgets": []})
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: the delta of leaks must be a number from 0 to 1.
    """
    if not isinstance(words, dict) or set(words) != {"delta", "budgets"}:
        raise InputError("leaks must be a delta and a list of budgets.")
    if not _is_number(words["delta"]) or not 0 <= words["delta"] <= 1:
        raise InputError("the delta of leaks must be a number from 0 to 1.")
    budgets = words["budgets"]
    if not isinstance(budgets, list) or not 0 < len(budgets) < 100:
        raise InputError("leaks must be of at least one budget, and of less than 100.")
    for one in budgets:
        _check_budget(one)
    return words


def _check_budget(one: object) -> None:
    if not isinstance(one, Mapping) or set(one) != _NUMBERS:
        raise InputError(f"a budget's leaks must be {', '.join(sorted(_NUMBERS))}.")
    known = {name: value for name, value in one.items() if value is not None}
    if not all(map(_is_number, known.values())) or "epsilon" not in known:
        raise InputError("a budget's leaks must be numbers.")
    shares = [known[name] for name in SHARES if name in known]
    if min(known.values()) < 0 or max(shares, default=0.0) > 1:
        raise InputError("a share of rows that leak must be from 0 to 1.")


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value)
