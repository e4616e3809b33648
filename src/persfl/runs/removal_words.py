"""What refits have told of a run's helpers, in plain words: who is missed, and by whom."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from persfl.errors import InputError
from persfl.evaluation.dependence import Contributions, Removal, Rise
from persfl.formats import reading
from persfl.runs.run_folder import Folder

CONTRIBUTIONS = "contributions.json"

_RISES = ("named", "random", "difference")
_TOLD = {"devices", "rises", "missed", "refits", "of"}
_COUNTS = ("many", "refits", "targets")


def removal_to(found: Removal) -> dict[str, Any]:
    """Rises and counts, without the table."""
    rises = {name: list(map(float, getattr(found, name))) for name in _RISES}
    return rises | {name: int(getattr(found, name)) for name in _COUNTS}


def removal_from(words: Mapping[str, Any]) -> Removal:
    """The inverse.

    >>> rise = Rise(0.1, 0.0, 0.2)
    >>> removal_from(removal_to(Removal(rise, rise, rise, 10, 7, 46))).named
    Rise(rise=0.1, low=0.0, high=0.2)
    """
    if not isinstance(words, dict) or set(words) != {*_RISES, *_COUNTS}:
        raise InputError("what errors rise by must be three rises and three numbers.")
    rises = [rise_from(words[name]) for name in _RISES]
    counts = [count_from(words[name]) for name in _COUNTS]
    return Removal(rises[0], rises[1], rises[2], counts[0], counts[1], counts[2])


def rise_from(values: Sequence[Any]) -> Rise:
    """A rise and its interval."""
    known = isinstance(values, list) and len(values) == 3
    if not known or not all(type(value) in (int, float) for value in values):
        raise InputError("a rise must be three numbers.")
    rise, low, high = map(float, values)
    if not -1.0 <= low <= rise <= high < math.inf:
        raise InputError("a rise must lie in its interval.")
    return Rise(rise, low, high)


def count_from(value: object) -> int:
    """How many."""
    if type(value) is not int or value < 1:
        raise InputError("a number of devices or refits must be 1 or more.")
    return value


def keep_contributions(run: Path, found: Contributions) -> None:
    """Put it into a finished run folder, in place of what was there."""
    table = found.table
    rises = table[["rise", "low", "high"]].to_numpy(dtype=float).tolist()
    words = {
        "devices": [str(name) for name in table["device"]],
        "rises": rises,
        "missed": [bool(yes) for yes in table["missed"]],
        "refits": found.refits,
        "of": found.devices,
    }
    folder = Folder.open(run, lock=True)
    try:
        folder.write_json(CONTRIBUTIONS, words)
        folder.commit()
    finally:
        folder.close()


def read_contributions(folder: Folder) -> Contributions | None:
    """What a run folder knows of it; None where nobody measured it."""
    if CONTRIBUTIONS not in folder.index["files"]:
        return None
    words = folder.read_json(CONTRIBUTIONS)
    with reading(folder.path / CONTRIBUTIONS):
        return _contributions_from(words)


def _contributions_from(words: Mapping[str, Any]) -> Contributions:
    if not isinstance(words, dict) or set(words) != _TOLD:
        raise InputError("contributions must be devices, rises and two numbers.")
    devices = words["devices"]
    rises = words["rises"]
    if not isinstance(devices, list) or not all(isinstance(x, str) for x in devices):
        raise InputError("contributions must name devices.")
    if not isinstance(rises, list) or not 0 < len(rises) == len(devices):
        raise InputError("contributions must be a rise of every device that they name.")
    found = [
        (name, *rise_from(rise)) for name, rise in zip(devices, rises, strict=True)
    ]
    table = pd.DataFrame(found, columns=["device", "rise", "low", "high"])
    missed = words["missed"]
    known = isinstance(missed, list) and len(missed) == len(devices)
    if not known or not all(isinstance(yes, bool) for yes in missed):
        raise InputError("contributions must say of every device whether it is missed.")
    table = table.assign(missed=missed)
    return Contributions(table, count_from(words["refits"]), count_from(words["of"]))
