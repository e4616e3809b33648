"""The index of a run folder (`run.json`): its files by name and digest, and how far its stages
are.

Somebody else may have written it. So every name in it must have the shape of a name that a run
gives, and none of these shapes leads out of the folder.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NotRequired, TypedDict, cast

from persfl.errors import InputError
from persfl.files import UNFINISHED, read_whole
from persfl.formats import json_from, json_to, reading

INDEX = "run.json"
FORMAT = 2
READABLE = (1, 2)
# What numbers rest on beside Python.
PACKAGES = (
    "persfl",
    "numpy",
    "scipy",
    "scikit-learn",
    "pandas",
    "numba",
    "pyarrow",
    "torch",
    "safetensors",
)
_ENDINGS = "json|npz|parquet|safetensors|skops|wire|txt"
_NAME = re.compile(rf"(?:rounds/)?[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*\.(?:{_ENDINGS})")
_STAGE = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PART = re.escape(UNFINISHED)
# a stage, the round that it is at, and how many were saved before: a person's own name has no such
# end
_SAVED = r"[a-z][a-z0-9-]*-[0-9]{6,}-[0-9]+"
# What may be removed once no index names it: files that a run makes on its way, by their shape.
_PASSING = re.compile(
    rf"(?:state-{_SAVED}\.(?:npz|skops)|(?:fleet|exchange)-[0-9]+\.wire)(?:{_PART})?"
    r"|(?:run|spec|versions|model|federation|leaks|worth|terms|contributions)"
    rf"\.(?:{_ENDINGS}){_PART}"
)
# What may be removed with the run that an index belongs to: names that some run does give.
_GIVEN = re.compile(
    r"(?:spec|versions|model|federation|leaks|contributions)\.json"
    r"|model\.(?:npz|safetensors)|worth\.parquet"
    r"|terms\.wire|state-[a-z0-9-]+\.npz|(?:fleet|exchange)-[0-9]+\.wire"
    r"|rounds/[a-z][a-z0-9-]*\.parquet"
)
_PASSING_ROUNDS = re.compile(rf"{_SAVED}\.parquet(?:{_PART})?")


class Place(TypedDict):
    """Where a stage stands: after which round, and in which file."""

    round: int
    state: str


class Index(TypedDict):
    """What `run.json` holds beside its own digest."""

    format: int
    finished: bool
    stages: dict[str, Place]
    files: dict[str, str]  # SHA-256 by name
    serial: NotRequired[int]  # how often a stage was saved
    fleet: NotRequired[str]  # of a federation: the file of its fleet's state


def new_index() -> Index:
    """Of a run that begins."""
    return {"format": FORMAT, "finished": False, "stages": {}, "files": {}}


def index_to(index: Index) -> bytes:
    """An index as the content of its file, with its own digest."""
    return json_to({**index, "sha256": digest(json_to(index))})


def index_from(where: Path) -> Index:
    """The inverse of `index_to`, if the file is sound and of a format that is read here."""
    content = read_whole(where)
    try:
        index = json_from(content)
        sound = index.pop("sha256") == digest(json_to(index))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise damage(where)
    if index.get("format") not in READABLE:
        known = " and ".join(str(number) for number in READABLE)
        found = f"{str(where.parent)!r} has format {index.get('format')!r}"
        raise InputError(f"{found}; this version of persfl reads formats {known}.")
    with reading(where):
        _check(index)
    old = [name for name in index["files"] if name.endswith(".skops")]
    if old:
        raise InputError(
            f"{str(where.parent / old[0])!r} is in a format of persfl 0.1.0 that could run code "
            "when read. Use persfl 0.1.0 to read it if you trust it, or fit again."
        )
    return cast(Index, dict(index))


def _check(index: Mapping[str, object]) -> None:
    """Stop where an index is not what it must be."""
    known = set(Index.__annotations__)
    if not set(index) <= known or not isinstance(index["finished"], bool):
        raise InputError(
            "an index says what is there, and whether the run is finished."
        )
    files = index["files"]
    stages = index["stages"]
    if not isinstance(files, dict) or not isinstance(stages, dict):
        raise InputError("an index must list files and stages.")
    for name, value in files.items():
        check_name(name)
        if not isinstance(value, str) or not _DIGEST.fullmatch(value):
            raise InputError("every file must have its SHA-256.")
    for stage, place in stages.items():
        if not _STAGE.fullmatch(stage) or place["state"] not in files:
            raise InputError("every stage must have its state.")
    serial = index.get("serial", 0)
    if type(serial) is not int or not 0 <= serial < 2**53:
        raise InputError("serial must be a whole number.")
    if index.get("fleet") is not None and index["fleet"] not in files:
        raise InputError("the fleet's state must be one of its files.")


def check_name(name: str) -> None:
    """Stop where a name is none that a run gives to a file.

    >>> check_name("rounds/../../notes.txt")
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: 'rounds/../../notes.txt' is not a name for a file of a run folder.
    """
    if not _NAME.fullmatch(name) or name == INDEX:
        raise InputError(f"{name[:80]!r} is not a name for a file of a run folder.")


def is_stage(name: str) -> bool:
    """Whether a run may have a stage of this name."""
    return _STAGE.fullmatch(name) is not None


def is_given(name: str) -> bool:
    """Whether runs give this name to a file of theirs.

    >>> is_given("model.json"), is_given("thesis.txt")
    (True, False)
    """
    return _GIVEN.fullmatch(name) is not None


def passing_files(folder: Path) -> list[Path]:
    """Files of the shapes that a run makes before it is over."""
    found = [path for path in folder.iterdir() if _PASSING.fullmatch(path.name)]
    rounds = folder / "rounds"
    if rounds.is_dir():
        found += [p for p in rounds.iterdir() if _PASSING_ROUNDS.fullmatch(p.name)]
    return found


def digest(content: bytes) -> str:
    """The SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def damage(path: Path) -> InputError:
    """What is said of a file whose digest is another."""
    return InputError(
        f"{str(path)!r} is damaged: it is not what persfl wrote. Restore it, or run again into"
        " another folder."
    )


def versions() -> dict[str, str | None]:
    """What a run runs with, by package; None where one is not installed.

    >>> sorted(versions())[:3]
    ['numba', 'numpy', 'pandas']
    """
    return {"python": platform.python_version()} | {
        name: _version(name) for name in PACKAGES
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
