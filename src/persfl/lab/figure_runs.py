"""One runner for every figure: pieces of work, each kept on disk as soon as it is done."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from persfl.errors import InputError
from persfl.files import write_whole
from persfl.lab.curves import TOGETHER, curves
from persfl.lab.figure_files import results_folder
from persfl.lab.figure_settings import Settings
from persfl.lab.figure_specs import Spec
from persfl.lab.jobs import finished_jobs, longest_first
from persfl.types import Array

_FORM = 2  # of kept curves: raise it when the same settings begin to give other numbers


@dataclass(frozen=True)
class Piece:
    """Work that is done in one go: some runs of one series."""

    figure: str
    series: str
    settings: Settings
    runs: tuple[int, ...]
    seed: int
    folder: Path

    @property
    def cost(self) -> float:
        """A rough number of microseconds, to start with the longest."""
        s = self.settings
        if s.network:
            asked = s.peers if s.method == "algorithm1" else 2
            return s.rounds * (2000 + 80 * s.n * asked)
        if s.tree:
            trees = s.trees if s.learner == "forest" else 1
            return s.rounds * s.peers * (500 + 20 * s.features) * trees
        if s.online:
            return s.rounds * len(self.runs) * s.n * s.rows * s.features * 0.02
        return s.rounds * (100 + len(self.runs) * (s.peers * 0.3 + s.features))

    def kept(self, run: int) -> Path:
        """Where the curve of a run is; its name depends on everything that the curve depends on."""
        what = json.dumps(
            [_FORM, asdict(self.settings), self.seed, run], sort_keys=True
        )
        return (
            self.folder
            / "runs"
            / f"{hashlib.sha256(what.encode()).hexdigest()[:20]}.npy"
        )

    @property
    def done(self) -> bool:
        """Whether every run has been kept."""
        return all(self.curve(run) is not None for run in self.runs)

    def curve(self, run: int) -> Array | None:
        """A kept curve; None where there is none, or a damaged one that has to be made again."""
        try:
            curve = np.load(self.kept(run), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        size = self.settings.rounds + (not self.settings.vector)
        return curve if curve.shape == (size,) and curve.dtype == np.float64 else None

    def work(self) -> tuple[Piece, float]:
        """Compute and keep; returns itself and the seconds it took."""
        begin = time.perf_counter()
        made = curves(self.settings, self.runs, self.seed)
        for run, curve in zip(self.runs, made, strict=True):
            _keep(self.kept(run), curve)
        return self, time.perf_counter() - begin


@dataclass(frozen=True)
class Result:
    """The curves of a figure: per series (runs, rounds + 1), column r after round r.

    Column 0 is NaN where it has no meaning.
    """

    spec: Spec
    curves: dict[str, Array]
    runs: int
    seed: int


def pieces(spec: Spec, *, runs: int, seed: int, out: Path) -> list[Piece]:
    """The work for one figure."""
    found = []
    for series in spec.series:
        size = TOGETHER if series.settings.vector else 1
        for first in range(0, runs, size):
            some = tuple(range(first, min(runs, first + size)))
            folder = out / spec.name
            found.append(
                Piece(spec.name, series.name, series.settings, some, seed, folder)
            )
    return found


def collect(spec: Spec, *, runs: int, seed: int, out: Path) -> Result:
    """Read back the kept curves of a figure."""
    found: dict[str, list[Array]] = {series.name: [] for series in spec.series}
    for piece in pieces(spec, runs=runs, seed=seed, out=out):
        for run in piece.runs:
            curve = piece.curve(run)
            if curve is None:
                what = "is missing or damaged. Run the same command again."
                raise InputError(f"{piece.kept(run)} {what}")
            if piece.settings.vector:
                curve = np.concatenate([[np.nan], curve])
            found[piece.series].append(curve)
    return Result(
        spec, {name: np.stack(rows) for name, rows in found.items()}, runs, seed
    )


def run_spec(
    spec: Spec,
    *,
    runs: int = 12,
    seed: int = 0,
    jobs: int = 1,
    out: str | Path = "reproduction",
    done: Callable[[Piece], object] | None = None,
) -> Result:
    """Run what is not kept yet and return all curves of a figure.

    >>> import tempfile
    >>> from persfl.lab.figure_specs import load_spec
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = run_spec(load_spec("fig5").rounds(20), runs=2, out=folder)
    >>> result.curves["oracle"].shape
    (2, 21)
    """
    results_folder(Path(out), spec.name)
    every = pieces(spec, runs=runs, seed=seed, out=Path(out))
    todo = [piece for piece in every if not piece.done]
    for piece, _ in finished_jobs(longest_first(todo), jobs=jobs):
        if done is not None:
            done(piece)
    return collect(spec, runs=runs, seed=seed, out=Path(out))


def _keep(path: Path, curve: Array) -> None:
    """All or nothing: two commands may do the same piece."""
    write_whole(path, lambda file: np.save(file, curve))
