"""Predictions for a folder of files: Parquet or CSV in, Parquet out, a piece of rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from persfl.checks import named, repeated, some
from persfl.errors import InputError
from persfl.files import write_whole
from persfl.scale.crew import Crew
from persfl.scale.executor import Answers, Executor
from persfl.scale.model_table import ModelTable
from persfl.scale.shard_reader import NUMBERS, column_numbers
from persfl.scale.sharding import ids_column
from persfl.scale.source_files import SourceFiles

if TYPE_CHECKING:
    import pyarrow as pa


class Predicted(NamedTuple):
    """How many rows a file had, how many were of newcomers, and how many have no prediction."""

    rows: int
    newcomers: int
    without: int


@dataclass(frozen=True)
class PredictJob:
    """What workers are told: predict files of a folder by the models of a run."""

    run: str
    source: str
    out: str
    keep: tuple[str, ...] | None = None
    """Columns that are written beside the prediction; all without it."""
    unseen: str = "pooled"
    missing: str = "error"
    only: str | None = None
    """The one device whose rows are predicted; all without it."""

    def begin(self) -> Answers:
        return TablePredictor(self).answer


class TablePredictor:
    """One worker: all models are in its memory, and a piece of rows."""

    def __init__(self, job: PredictJob) -> None:
        table = ModelTable.open(job.run)
        self.job = job
        self.features = table.features
        self.files = SourceFiles.of(job.source, table.device)
        names = self.files.schema.names
        self.keep = names if job.keep is None else list(job.keep)
        known = set(names)
        absent = [name for name in [*self.features, *self.keep] if name not in known]
        if absent:
            raise InputError(
                f"the files have no {named(absent, 'column')}. Their columns:"
                f" {some(names, 12)}."
            )
        for name in self.features:
            kind = str(self.files.schema.field(name).type)
            if not kind.startswith(NUMBERS):
                raise InputError(
                    f"column {name!r} of the files holds {kind}, no numbers, and models predict"
                    " from numbers. Write it as numbers."
                )
        self.weights = table.weights

    def answer(self, question: int) -> Predicted:
        """Predict one file."""
        import pyarrow.parquet as pq

        path = self.files.files[question]
        out = Path(self.job.out) / output_name(self.job.source, path)
        one = SourceFiles((path,), self.files.schema, self.files.device)
        wanted = list(dict.fromkeys([one.device, *self.features, *self.keep]))
        pieces = (self._piece(piece, path) for piece in one.pieces(wanted))
        first = next(pieces, None)
        if first is None:
            return Predicted(0, 0, 0)
        counts = []

        def write(file: IO[bytes]) -> None:
            with pq.ParquetWriter(file, first[0].schema) as writer:
                for rows, told in chain([first], pieces):
                    writer.write_table(rows)
                    counts.append(told)

        write_whole(out, write)
        return Predicted(*map(sum, zip(*counts, strict=True)))

    def _piece(self, piece: pa.Table, path: Path) -> tuple[pa.Table, Predicted]:
        import pyarrow as pa
        import pyarrow.compute as pc

        device = self.files.device
        ids = ids_column(piece[device])
        if self.job.only is not None:
            mine = pc.equal(ids, pa.scalar(self.job.only).cast(ids.type))
            piece = piece.filter(mine)
            ids = ids.filter(mine)
        X = column_numbers(piece, self.features)
        usable = np.isfinite(X).all(axis=1)
        if not usable.all() and self.job.missing == "error":
            raise InputError(
                f"{int((~usable).sum())} rows of {path.name!r} have missing or infinite values."
                " Leave them without a prediction: --missing skip."
            )
        place = self.weights.places(ids)
        new = place < 0
        if new.any() and self.job.unseen == "error":
            name = ids.filter(pa.array(new))[0].as_py()
            raise InputError(
                f"device {name!r} of {path.name!r} was not there when fitting. Leave such rows"
                " without a prediction: --unseen skip, or predict them by one model for all:"
                " --unseen pooled."
            )
        known = usable & ~(new & (self.job.unseen == "skip"))
        said = np.full(len(X), np.nan)
        said[known] = self.weights.predict(X[known], place[known])
        columns: dict[str, Any] = {device: piece[device]}
        columns |= {name: piece[name] for name in self.keep if name != device}
        free = "prediction"
        while free in columns:
            free += "_2"
        columns[free] = pa.array(said, from_pandas=True)
        told = Predicted(len(X), int((new & known).sum()), int((~known).sum()))
        return pa.table(columns), told


def output_name(source: str, path: Path) -> Path:
    """The file of predictions for a file of rows, under the folder of predictions.

    >>> output_name("new", Path("new/may/1.csv.gz")).as_posix()
    'may/1.parquet'
    """
    folder = Path(source)
    inside = Path(path.name) if folder == path else path.relative_to(folder)
    return inside.with_name(inside.name.split(".")[0] + ".parquet")


def predict_files(job: PredictJob, executor: Executor) -> Predicted:
    """All files of a folder; how many rows that was."""
    device = ModelTable.open(job.run).device
    files = SourceFiles.of(job.source, device).files
    out = Path(job.out)
    _refuse_same([output_name(job.source, path) for path in files], out)
    total = Predicted(0, 0, 0)
    with Crew(executor, job) as crew:
        for _, told in crew.ask(dict(enumerate(range(len(files))))):
            total = Predicted(*map(sum, zip(total, told, strict=True)))
    return total


def _refuse_same(names: Sequence[Path], out: Path) -> None:
    twice = repeated(names)
    if twice:
        raise InputError(
            f"two files would be predicted into {twice[0].name!r}. Rename one."
        )
    there = [name for name in names if (out / name).exists()]
    if there:
        raise InputError(
            f"{str(out / there[0])!r} is there already. Name a new folder with --out."
        )
