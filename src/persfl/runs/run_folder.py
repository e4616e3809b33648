"""The files of a run: written under new names, then named by the index in one step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from persfl.errors import InputError, need
from persfl.files import (
    fingerprint,
    read_whole,
    refuse_links,
    remove_empty,
    remove_regular,
    write_whole,
)
from persfl.folder_locks import LOCK, Lock, refuse_held
from persfl.formats import json_from, json_to, numbers_from, reading, table_from
from persfl.runs.begun_runs import refuse_full, refuse_odd_rounds, remove_begun
from persfl.runs.index import (
    FORMAT,
    INDEX,
    Index,
    check_name,
    damage,
    digest,
    index_from,
    index_to,
    is_given,
    new_index,
    passing_files,
    versions,
)
from persfl.runs.stages import Saver, all_rounds, last_state
from persfl.runs.standing import STANDING, is_standing, remove_standing

if TYPE_CHECKING:
    import pandas as pd

    from persfl.training.state import Plan, State
    from persfl.types import Round

T = TypeVar("T")
PAGES = ("report.html", "federation.html")


class Folder:
    """Keeps a run (see `persfl.training.Keep`): states at most every `every` seconds, and at the
    end of each stage.

    `every` defaults to the environment variable PERSFL_SAVE_SECONDS, or 5; 0 saves after every
    round.

    >>> import tempfile
    >>> folder = Folder.create(Path(tempfile.mkdtemp()) / "run", {"rounds": 3})
    >>> folder.write("note.txt", b"hello")
    >>> folder.commit()
    >>> Folder.open(folder.path).read("note.txt"), folder.finished
    (b'hello', False)
    """

    def __init__(
        self,
        path: Path,
        index: Index,
        *,
        every: float | None = None,
        lock: Lock | None = None,
    ) -> None:
        self.path = path
        self.index = index
        self._lock = lock
        self._made = False  # whether the folder itself was made for this run
        self._saver = Saver(every)

    @staticmethod
    def create(
        path: Path, spec: Mapping[str, object], *, every: float | None = None
    ) -> Folder:
        """A new run in an empty or absent folder; nobody else writes there until it is over."""
        refuse_held(path)
        refuse_full(path)
        made = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        lock = Lock(path)
        try:
            lock.take()
            refuse_full(path)  # somebody else may have been faster
            try:
                folder = Folder.begin(path, spec, every=every)
            except BaseException:
                remove_begun(path)
                raise
        except BaseException:
            lock.release()
            if made:
                remove_empty(path)
            raise
        folder._lock = lock
        folder._made = made
        return folder

    @staticmethod
    def begin(
        path: Path, spec: Mapping[str, object], *, every: float | None = None
    ) -> Folder:
        """A new run in a folder that may hold other files already."""
        path.mkdir(parents=True, exist_ok=True)
        refuse_links(path)
        (path / "rounds").mkdir(exist_ok=True)
        folder = Folder(path, new_index(), every=every)
        folder.write_json("spec.json", spec)
        folder.write_json("versions.json", versions())
        folder.commit()
        return folder

    @staticmethod
    def open(path: Path, *, every: float | None = None, lock: bool = False) -> Folder:
        """A run that is there; with `lock` to go on with it, while nobody else does."""
        where = path / INDEX
        if not where.is_file():
            raise InputError(
                f"{str(path)!r} is not a run folder: it has no {INDEX}. Make one with: persfl fit"
                f" TABLE --out {path}"
            )
        with contextlib.ExitStack() as undone:
            held = Lock(path) if lock else None
            if held is not None:
                held.take()
                undone.callback(held.release)
            refuse_links(path)
            refuse_odd_rounds(path)
            folder = Folder(path, index_from(where), every=every, lock=held)
            undone.pop_all()  # the folder holds it now
        return folder

    @property
    def finished(self) -> bool:
        return self.index["finished"]

    @property
    def spec(self) -> dict[str, Any]:
        found = self.read_json("spec.json")
        with reading(self.path / "spec.json"):
            return dict(found)

    def close(self) -> None:
        """Let others write into the folder; nothing is lost that was committed."""
        if self._lock is not None:
            self._lock.release()

    # Files

    def write(self, name: str, content: bytes | Callable[[IO[bytes]], object]) -> None:
        """Write a file (`content` may be a function that writes to it); it belongs to the run
        once `commit` has named it.
        """
        check_name(name)
        refuse_odd_rounds(self.path)
        write_whole(self.path / name, content)
        self.index["files"][name] = fingerprint(self.path / name)

    def write_json(self, name: str, value: object) -> None:
        self.write(name, json_to(value))

    def write_arrays(self, name: str, arrays: Mapping[str, Any]) -> None:
        self.write(name, lambda file: np.savez(file, **arrays))

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        need("pyarrow", extra="app", why="keeping a run")
        self.write(
            name, lambda file: table.to_parquet(file, index=False, compression="zstd")
        )

    def read(self, name: str) -> bytes:
        """A file's content, which is what the index says."""
        where = self.path / name
        if name not in self.index["files"]:
            raise InputError(
                f"{str(self.path)!r} has no {name!r}: the run was not finished. Go on with: persfl"
                " fit ... --resume"
            )
        try:
            content = read_whole(where)
        except (FileNotFoundError, IsADirectoryError):
            what = "Restore it, or run again into another folder."
            raise InputError(f"{str(where)!r} is missing. {what}") from None
        if digest(content) != self.index["files"][name]:
            raise damage(where)
        return content

    def read_json(self, name: str) -> Any:
        return self._read_as(json_from, name)

    def read_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        return self._read_as(numbers_from, name)

    def read_table(self, name: str) -> pd.DataFrame:
        return self._read_as(table_from, name)

    def _read_as(self, form: Callable[[bytes], T], name: str) -> T:
        content = self.read(name)
        with reading(self.path / name):
            return form(content)

    def commit(self) -> None:
        """Make what was written part of the run, in one step, and remove what no longer is."""
        self.index["format"] = FORMAT
        refuse_odd_rounds(self.path)
        write_whole(self.path / INDEX, index_to(self.index))
        for old in passing_files(self.path):
            if old.relative_to(self.path).as_posix() not in self.index["files"]:
                remove_regular(old)

    def drop(self, *, prefix: str) -> None:
        """Name the files no longer that begin like this; `commit` removes them."""
        files = self.index["files"]
        for name in [name for name in files if name.startswith(prefix)]:
            del files[name]

    def finish(self) -> None:
        """The result is written: the states are no longer needed."""
        self.drop(prefix="state-")
        self.index["stages"] = {}
        self.index["finished"] = True
        self.commit()
        self.close()

    def strangers(self) -> list[Path]:
        """Files in the folder that do not belong to the run: the index does not name them, or no
        run does, or they are not what was written under that name.
        """
        known = {INDEX, LOCK, *PAGES, *self._own()}
        files = [path for path in sorted(self.path.rglob("*")) if not path.is_dir()]
        strange = [
            path
            for path in files
            if path.relative_to(self.path).as_posix() not in known
        ]
        return [path for path in strange if not is_standing(path)]

    def _own(self) -> list[str]:
        """Files that are what the index says; somebody else may have written that, beside files
        of a person's.
        """
        return [
            name
            for name, told in self.index["files"].items()
            if is_given(name)
            and (self.path / name).is_file()
            and fingerprint(self.path / name) == told
        ]

    def remove(self) -> None:
        """Remove a run that was replaced: its files and its pages, and nothing else."""
        own = self._own()
        self.index["files"] = {name: self.index["files"][name] for name in own}
        for page in PAGES:
            remove_regular(self.path / page)
        self.discard(replaced=True)

    def discard(self, *, replaced: bool = False) -> None:
        """Remove the files of this run, and the folder if it was made for it and is empty then.

        For a run that has failed before anything was done, by whoever began it.
        """
        for name in [*self.index["files"], INDEX]:
            remove_regular(self.path / name)
        for path in passing_files(self.path):
            remove_regular(path)
        if is_standing(self.path / STANDING):
            remove_standing(self.path)
        self.close()
        remove_empty(self.path / "rounds")
        if self._made or replaced:
            remove_empty(self.path)

    # Keep: see `persfl.runs.stages`

    def last(self, stage: str) -> State | None:
        """The state to go on from."""
        return last_state(self, stage)

    def after(self, stage: str, plan: Plan, state: State, round_: Round | None) -> None:
        """Remember a round; write when it is time."""
        self._saver.after(self, stage, plan, state, round_)

    def save(self) -> None:
        """Write where the run stands now."""
        self._saver.save(self)

    def rounds(self, stage: str = "final") -> pd.DataFrame:
        """All rounds of a stage, one row per round and device (positions in `devices_`)."""
        return all_rounds(self, stage)
