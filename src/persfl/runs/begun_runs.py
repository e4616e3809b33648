"""Runs that were killed between their first writes: there is a folder, and no index yet."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from persfl.errors import InputError
from persfl.files import (
    UNFINISHED,
    read_whole,
    refuse_links,
    remove_empty,
    remove_regular,
)
from persfl.folder_locks import LOCK
from persfl.formats import json_from
from persfl.runs.index import INDEX

ROUNDS = "rounds"
_WHOLE = ("spec.json", "versions.json")
_PARTS = tuple(name + UNFINISHED for name in (*_WHOLE, INDEX))
# what every run is asked about, and every list of versions has
_SAYS = {"spec.json": "features", "versions.json": "persfl"}


def is_begun(path: Path, *, besides: Collection[str] = ()) -> bool:
    """Whether a folder holds the first files of a run, and nothing else but files of these names.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> is_begun(folder)
    False
    >>> (folder / "rounds").mkdir()
    >>> is_begun(folder)
    True
    >>> _ = (folder / "spec.json").write_text("a person's own")
    >>> is_begun(folder)
    False
    """
    if not path.is_dir() or (path / INDEX).exists():
        return False
    names = {entry.name for entry in path.iterdir()} - {LOCK, *besides}
    return bool(names) and all(_is_first(path / name) for name in names)


def remove_begun(path: Path) -> None:
    """Remove the first files of a run that has not begun."""
    for name in (*_WHOLE, *_PARTS, INDEX):
        remove_regular(path / name)
    remove_empty(path / ROUNDS)


def _is_first(path: Path) -> bool:
    """Whether this is one of the first things that a run writes."""
    if path.is_symlink():
        return False
    if path.name == ROUNDS:
        return path.is_dir() and not any(path.iterdir())
    if path.name in _PARTS:
        return path.is_file()
    if path.name not in _WHOLE or not path.is_file():
        return False
    try:
        said = json_from(read_whole(path))
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and _SAYS[path.name] in said


def refuse_full(path: Path) -> None:
    """Stop where a new run has no empty folder."""
    if not path.exists():
        return
    if is_begun(path):
        raise InputError(
            f"{str(path)!r} holds a run that was ended before anything of it was kept. Begin it"
            " again with --resume, or choose another --out."
        )
    if not path.is_dir() or any(entry.name != LOCK for entry in path.iterdir()):
        what = "Choose another --out, go on with --resume, or replace it with --force."
        raise InputError(f"{str(path)!r} is not empty. {what}")


def refuse_odd_rounds(path: Path) -> None:
    """Stop where `rounds` would lead elsewhere."""
    rounds = path / ROUNDS
    if rounds.is_symlink():
        refuse_links(path)
    if rounds.is_dir():
        refuse_links(rounds)
