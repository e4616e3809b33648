"""Where a run is kept: a new folder, one to go on with, or one in the place of another.

A run that --force replaces is set aside, and removed only when the new one is there.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from persfl.errors import InputError
from persfl.folder_locks import LOCK, refuse_held
from persfl.runs.begun_runs import is_begun, remove_begun
from persfl.runs.index import INDEX
from persfl.runs.run_folder import Folder
from persfl.runs.standing import STANDING, is_standing, remove_standing


class RunPlace(NamedTuple):
    """A run's folder, and where a run that --force replaced waits; no folder if there is nothing
    left to do.
    """

    folder: Folder | None
    aside: Path | None = None


def take_place(
    out: Path, spec: Mapping[str, object], chosen: argparse.Namespace
) -> RunPlace:
    """A new folder, or with --resume the one that is there."""
    out = behind(out)
    there = (out / INDEX).is_file()
    full = out.is_dir() and any(out.iterdir()) and not _only_a_lock(out)
    if chosen.resume and there:
        return RunPlace(_same_run(out, spec))
    if chosen.resume and is_begun(out):
        refuse_held(out)
        remove_begun(out)
        full = False
    if chosen.resume and full:
        raise InputError(
            f"{str(out)!r} is not a run folder: there is nothing to resume. Choose another --out."
        )
    aside = None
    if chosen.force and full and not is_begun(out):
        aside = _set_aside(out)
    try:
        return RunPlace(Folder.create(out, spec), aside)
    except BaseException:
        put_back(aside, out)
        raise


def behind(out: Path) -> Path:
    """The folder itself where a link leads to it: --force replaces the run, not the link."""
    # without a name: the folder that the person stands in, or the one above
    nameless = out.name in ("", "..")
    return out.resolve() if nameless or out.is_symlink() else out


def put_back(aside: Path | None, out: Path) -> None:
    """A run that --force set aside, where it was; beside it if somebody has put something there."""
    if aside is None:
        return
    if out.exists():
        say_where(aside)
    else:
        aside.rename(out)


def runs_aside(out: Path) -> list[Path]:
    """The runs that wait beside a folder."""
    name = re.escape(f".{out.name}.replaced")
    beside = out.resolve().parent.iterdir()
    return [path for path in beside if re.fullmatch(rf"{name}(-[0-9]+)?", path.name)]


def remove_run(path: Path) -> None:
    """Remove the files of a run folder, and the folder if it held nothing else."""
    if not (path / INDEX).is_file() or path.is_symlink():
        return
    try:
        Folder.open(path).remove()
    except InputError:  # of another version, or damaged: then it stays
        say_where(path)


def say_where(aside: Path | None) -> None:
    """Where a run is that --force replaced."""
    if aside is not None:
        text = f"persfl: the run that --force replaced is in {aside}."
        print(text, file=sys.stderr)


def _same_run(out: Path, spec: Mapping[str, object]) -> Folder | None:
    """The run that is there, if it is the same and not over."""
    folder = Folder.open(out, lock=True)
    try:
        before = folder.spec
        changed = [key for key in spec if before.get(key) != spec[key]]
        if changed:
            key = changed[0]
            raise InputError(
                f"{str(out)!r} holds another run: "
                f"{key} was {before.get(key)!r} and is {spec[key]!r} now. "
                "Use the same command to resume, or another --out."
            )
    except BaseException:
        folder.close()
        raise
    if not folder.finished:
        return folder
    if is_standing(
        out / STANDING
    ):  # of one that was killed before its page was written
        remove_standing(out)
    folder.close()
    print(f"{out} is finished already. Its report: persfl report {out}")
    return None


def _only_a_lock(out: Path) -> bool:
    """Whether a run was killed here before it had written anything."""
    return [path.name for path in out.iterdir()] == [LOCK]


def _set_aside(out: Path) -> Path:
    """Move a run that --force replaces to a name beside it that is free.

    One that waits there already, because its successor was cut, is not lost by a second --force.
    """
    keeps = "--force does not remove it. Choose another --out."
    if not (out / INDEX).is_file():
        raise InputError(f"{str(out)!r} is not a run folder, so {keeps}")
    refuse_held(out)
    strange = Folder.open(out).strangers()
    if strange:
        raise InputError(f"{str(strange[0])!r} does not belong to the run, so {keeps}")
    name = f".{out.name}.replaced"
    k = 1
    path = out.with_name(name)
    while path.exists() or path.is_symlink():
        k += 1
        path = out.with_name(f"{name}-{k}")
    out.rename(path)
    return path
