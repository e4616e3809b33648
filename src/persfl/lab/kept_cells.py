"""Cells of a comparison, method by method in parallel, kept in a file as they come."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from persfl.errors import InputError
from persfl.files import write_whole
from persfl.lab.comparison_cells import Cell, Measurements, measurements
from persfl.lab.comparison_sets import DataSet, Table
from persfl.lab.jobs import finished_jobs
from persfl.lab.row_splits import RowSplit
from persfl.lab.standings import CellRecord

_FORM = 4  # of kept results
# what is kept of a cell method by method
_BY_METHOD = ("errors", "seconds", "picked", "failed")
WRITING = (
    20.0  # times as long as a file takes to write, work goes on before the next time
)


@dataclass(frozen=True)
class CellPart:
    """One method on a cell: the smallest piece of work, and the smallest that is kept."""

    cell: Cell
    method: str

    @property
    def cost(self) -> float:
        """Its even share of the cell's."""
        return self.cell.cost / len(self.cell.methods)

    def work(self) -> tuple[Measurements, float]:
        """The measurements as plain values, and the seconds of one core.

        By one thread, so that sums come out the same anywhere.
        """
        cell = self.cell
        content = cell.data.content
        begin = time.process_time()
        with threadpool_limits(1):
            found = measurements(
                _dealt(cell.data, cell.seed, content),
                (self.method,),
                rounds=cell.rounds,
                budget=cell.budget,
                questions=cell.questions,
                seed=cell.seed,
            )
        seconds = time.process_time() - begin
        about = {"set": cell.data.name, "seed": cell.seed}
        about |= {"settings": cell.data.settings, "content": content}
        return about | found | {"total": round(seconds, 2)}, seconds


@lru_cache(maxsize=1)
def _dealt(data: DataSet | Table, seed: int, _content: str) -> RowSplit:
    """The rows of a cell, dealt once for the methods that one process tries in a row."""
    return data.dealt(seed)


def run_cells(
    cells: Sequence[Cell],
    *,
    jobs: int = 1,
    path: Path | None = None,
    done: Callable[[Measurements], object] | None = None,
) -> list[Measurements]:
    """Do what is not in the file at `path` yet, seed by seed, and return all in order.

    Every method's part of a cell is kept in the file as it comes; `done` is told of whole cells.
    """
    first = cells[0]
    about = {"form": _FORM, "code": code(), "methods": list(first.methods)}
    about |= {"rounds": first.rounds, "budget": first.budget}
    about |= {"questions": first.questions}
    contents = {cell.data.name: cell.data.content for cell in cells}

    def same(cell: Cell, known: CellRecord) -> bool:
        rows = bool(known["content"] == contents[cell.data.name])
        return rows and bool(known["settings"] == _plain(cell.data.settings))

    kept = {} if path is None else _kept(path, about)
    for cell in cells:
        known = kept.get(cell.key)
        if known is not None and not same(cell, known):
            del kept[cell.key]
    todo = [
        CellPart(cell, method)
        for cell in sorted(cells, key=lambda cell: (cell.seed, -cell.cost))
        for method in methods_left(kept.get(cell.key, {}), cell.methods)
    ]
    with _Writer(path, about, kept) as file:
        for found, _ in finished_jobs(todo, jobs=jobs):
            key = found["set"], found["seed"]
            kept[key] = _joined(kept.get(key), _plain(found), first.methods)
            file.changed()
            if done is not None and not methods_left(kept[key], first.methods):
                done(kept[key])
    return [kept[cell.key] for cell in cells]


def methods_left(cell: CellRecord, methods: Sequence[str]) -> list[str]:
    """Those that a cell lacks, of what was asked for.

    >>> methods_left(
    ...     {"errors": {"own": {}}, "failed": {"mixed": "why"}}, ["own", "kin"]
    ... )
    ['kin']
    """
    there = {*cell.get("errors", {}), *cell.get("failed", {})}
    return [name for name in methods if name not in there]


def _joined(
    cell: Measurements | None, part: Measurements, methods: Sequence[str]
) -> Measurements:
    """A cell with one more part; methods stand in the order in which they were asked for."""
    if cell is None:
        return part
    found = cell | {"total": round(cell["total"] + part["total"], 2)}
    for key in _BY_METHOD:
        both = cell[key] | part[key]
        found[key] = {name: both[name] for name in methods if name in both}
    return found


class _Writer:
    """Writes results to a file: at once, but for a small share of the time that work takes."""

    def __init__(
        self,
        path: Path | None,
        about: CellRecord,
        kept: Mapping[tuple[str, int], Measurements],
    ) -> None:
        self.path = path
        self.about = about
        self.kept = kept
        self.again = 0.0  # not before
        self.waiting = False

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        if self.waiting:
            self.write()

    def changed(self) -> None:
        """There is something new."""
        self.waiting = True
        if time.perf_counter() >= self.again:
            self.write()

    def write(self) -> None:
        """All of it, in the place of what was there."""
        begin = time.perf_counter()
        if self.path is not None:
            content = {**self.about, "cells": list(self.kept.values())}
            write_whole(self.path, (json.dumps(content) + "\n").encode())
        end = time.perf_counter()
        self.again = end + WRITING * (end - begin)
        self.waiting = False


def read_cells(path: Path) -> dict[str, Any]:
    """A file of kept results."""
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        what = f"{str(path)!r} could not be read as kept results"
        raise InputError(f"{what}: {error}") from error
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list) or not all(map(_is_cell, cells)):
        what = "holds no results of a comparison"
        raise InputError(f"{str(path)!r} {what}. Choose another file.")
    return dict(content)


def _is_cell(cell: object) -> bool:
    """Whether this is what is kept of a cell, by the names of its parts."""
    wanted = {"set", "seed", "settings", "content", "total", "devices", "rows"}
    if not isinstance(cell, dict) or not wanted | set(_BY_METHOD) <= set(cell):
        return False
    named = isinstance(cell["set"], str) and type(cell["seed"]) is int
    return named and all(isinstance(cell[key], dict) for key in _BY_METHOD)


def _kept(path: Path, about: CellRecord) -> dict[tuple[str, int], Measurements]:
    if not path.exists():
        return {}
    content = read_cells(path)
    other = next(
        (key for key, value in about.items() if content.get(key) != value), None
    )
    if other is not None:
        what = f"holds results of other {other}, not to be mixed with these"
        raise InputError(f"{str(path)!r} {what}. Choose another --out.")
    return {(cell["set"], cell["seed"]): cell for cell in content["cells"]}


def _plain(value: CellRecord) -> dict[str, Any]:
    """As it reads when it comes back from a file."""
    return dict(json.loads(json.dumps(value)))


@cache
def code() -> str:
    """A fingerprint of the package's source: results of other code are other results."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(
            path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes()
        )
    return digest.hexdigest()[:20]
