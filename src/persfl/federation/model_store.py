"""Where a device keeps its own model between questions: a file per run, replaced in one step."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

from persfl.errors import InputError
from persfl.files import read_whole, write_whole
from persfl.wire import (
    Terms,
    WireError,
    model_from,
    model_to,
    nested,
    pack,
    unpack,
    within,
)


class Kept(NamedTuple):
    """A device's model before round `round`, and the terms it was learned under."""

    round: int
    model: Any
    terms: Terms


class Shelf:
    """Models by run, in a folder or (without one) in memory.

    >>> import numpy as np
    >>> shelf = Shelf()
    >>> terms = Terms(columns=("a",), settings={"intercept": False})
    >>> shelf.put("run", Kept(3, np.array([1.5]), terms))
    True
    >>> shelf.put("other", Kept(0, np.array([1.5]), terms), most=600)
    False
    >>> shelf.get("run").round, shelf.get("run").model.tolist()
    (3, [1.5])
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._held: dict[str, bytes] = {}

    def put(self, run: str, kept: Kept, most: int = 2**53) -> bool:
        """Replace the model of a run; it is on the disk when this returns.

        False, and nothing happens, where all models together would take more than `most` bytes.
        """
        head, arrays = kept.terms.to_wire()
        arrays |= nested("model", model_to(kept.terms.learner(), kept.model))
        body = pack(head | {"run": run, "round": kept.round}, arrays)
        if len(body) + self._others(run) > most:
            return False
        if self.folder is None:
            self._held[run] = body
        else:
            write_whole(self._path(run), body)
        return True

    def _others(self, run: str) -> int:
        """Bytes of the models of other runs."""
        if self.folder is None:
            return sum(len(body) for name, body in self._held.items() if name != run)
        mine = self._path(run)
        if not self.folder.is_dir():
            return 0
        with os.scandir(self.folder) as files:
            return sum(file.stat().st_size for file in files if file.name != mine.name)

    def get(self, run: str) -> Kept | None:
        """The model of a run, if there is one."""
        if self.folder is None:
            return _read(self._held[run]) if run in self._held else None
        return _read(read_whole(self._path(run))) if self._path(run).is_file() else None

    def latest(self) -> Kept:
        """The model that changed last."""
        files = (
            []
            if self.folder is None
            else sorted(
                self.folder.glob("*.model"), key=lambda path: path.stat().st_mtime
            )
        )
        if not files:
            raise InputError("there is no model here yet. Take part in a run first.")
        return _read(read_whole(files[-1]))

    def _path(self, run: str) -> Path:
        assert self.folder is not None
        # a run's name comes from elsewhere
        return self.folder / f"{hashlib.sha256(run.encode()).hexdigest()[:16]}.model"


def _read(body: bytes) -> Kept:
    head, arrays = unpack(body)
    terms = Terms.from_wire(head, arrays)
    if not isinstance(head.get("round"), int):
        raise WireError("a kept model must say after which round.")
    return Kept(
        head["round"],
        model_from(
            terms.learner(), within("model", arrays), terms.features, terms.classes
        ),
        terms,
    )
