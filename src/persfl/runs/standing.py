"""How far a run is, in a small file of its folder that is replaced in one step: for watchers.

The file is there while a command writes into the folder, and is no part of the run.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from persfl.errors import InputError
from persfl.files import read_whole, remove_regular, write_whole
from persfl.formats import json_from, json_to, reading
from persfl.runs.index import is_stage

STANDING = "progress.json"
DIARY = "progress.jsonl"  # the events of a federated run, which stay in its folder
_LARGEST = 10_000  # bytes
_COUNTS = ("round", "rounds", "asked", "answered")


class RunStanding(NamedTuple):
    """Where a run is. Moments are seconds since 1970.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> here = RunStanding("final", 3, 50, began=10.0, at=12.0, loss=0.5)
    >>> here.write(folder)
    >>> standing_of(folder) == here
    True
    """

    stage: str
    round: int
    rounds: int
    began: float  # when the stage did
    at: float
    asked: int = 0  # questions of the last round
    answered: int = 0
    loss: float | None = None  # median over devices
    left: float | None = None  # seconds until the stage is over, where that can be told
    report: bool = True  # whether a page will be written at the end

    def write(self, folder: Path) -> None:
        """Replace what the folder says."""
        write_whole(folder / STANDING, json_to(self._asdict()))


def standing_of(folder: Path) -> RunStanding | None:
    """Where the run of a folder says it is; None where it says nothing."""
    path = folder / STANDING
    try:
        if path.lstat().st_size > _LARGEST:
            raise InputError(f"{str(path)!r} is larger than persfl writes it.")
        content = read_whole(path)
    except FileNotFoundError:
        return None
    with reading(path):
        return _checked(json_from(content))


def remove_standing(folder: Path) -> None:
    """The command is over."""
    remove_regular(folder / STANDING)


def is_standing(path: Path) -> bool:
    """Whether a file is one of these, and not a person's own of that name."""
    try:
        return path.name == STANDING and standing_of(path.parent) is not None
    except (InputError, OSError):
        return False


def _checked(told: object) -> RunStanding:
    """What a file says, if it is what a run says; somebody else may have written it."""
    if not isinstance(told, dict) or set(told) != set(RunStanding._fields):
        raise InputError("a run says where it is by its own words.")
    if not isinstance(told["stage"], str) or not is_stage(told["stage"]):
        raise InputError("a stage has the name that a run gives it.")
    if not all(_is_count(told[name]) for name in _COUNTS):
        raise InputError("rounds and questions must be counts.")
    moments = [told["began"], told["at"]]
    numbers = [told[name] for name in ("loss", "left") if told[name] is not None]
    if not all(_is_number(value) for value in (*moments, *numbers)):
        raise InputError("losses and times must be finite numbers.")
    if not isinstance(told["report"], bool):
        raise InputError("report must be true or false.")
    return RunStanding(**told)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
