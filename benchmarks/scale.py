"""Fits that grow: a fit over shards by several processes, and a fit in one process.

    python benchmarks/scale.py growth [--devices 1000,10000,100000] [--jobs 2] [--rows 30]
    python benchmarks/scale.py cores [--devices 50000] [--jobs 2]
    python benchmarks/scale.py rounds [--devices 50000] [--jobs 2]
    python benchmarks/scale.py threads [--devices 10000] [--jobs 2]
    python benchmarks/scale.py same
    python benchmarks/scale.py predict [--million 10]
    python benchmarks/scale.py one [--devices 10000] [--rows 100] [--features 10] [--classes 2]
        [--holdout 0]

growth    seconds, seconds per device and memory of fits over shards as fleets grow; without pyarrow
          (or with --made-up) workers make their rows up instead of reading Parquet, and keep
          models as arrays
cores     seconds with one process and with several, and the efficiency
rounds    seconds of a round of paper over shards (20 peers, rows made up and held by the
          workers) with one process and with several, and the efficiency
threads   seconds of the compiled kernels of such a round in one process, by one thread and by
          several
same      how far models of 1, 2 and 7 shards are from those of one process
predict   rows a second of predictions, Parquet in and out
one       one fit in one process, trial run and final run; devices are of five kinds

Every fit is measured in a process of its own, so that its peak is its own. Seconds are by the
clock; on a machine that is busy with other work they are too many.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from persfl import (
    ArrayFleet,
    Best,
    GradientStep,
    Linear,
    PersonalizedClassifier,
    PersonalizedRegressor,
    Uniform,
    personalize,
)
from persfl.devices import Devices
from persfl.methods import Blend
from persfl.methods.mixed.panel_draw import Panel
from persfl.scale.crew import Crew
from persfl.scale.engines import engine_of
from persfl.scale.executor import Answers, InThisProcess
from persfl.scale.fleet_file import read_knower, write_knower
from persfl.scale.held_rows import HeldRows
from persfl.scale.panel_fit import LearnBlend, PanelFit, PanelRows
from persfl.scale.rows_elsewhere import ShardRows
from persfl.scale.shard_desk import ShardDesk
from persfl.scale.shard_index import Shard, ShardIndex
from persfl.scale.shard_questions import (
    Made,
    Make,
    Question,
    RowQuestion,
    RowUse,
    ShardLook,
)
from persfl.scale.shard_reader import ShardPiece, TableColumns
from persfl.scale.shard_task import ShardTask
from persfl.scale.shard_worker import ShardJob, looked_at, trial_errors
from persfl.scale.sharded_fit import ShardedFit, fit_shards
from persfl.scale.table_predictions import PredictJob, predict_files
from persfl.sources import clustered_regression
from persfl.trust import Trust
from persfl.units import Units

KINDS = 5
PIECE = 2_000  # devices that are made up together
SHARDS = 64
MADE_UP = "--made-up"
HERE = importlib.util.find_spec("pyarrow") is not None and MADE_UP not in sys.argv


# Rows: made up by the seed, a piece of devices at a time


def made_up(first: int, many: int, rows: int, features: int) -> Devices:
    """Devices of five kinds, from a position in the fleet on; always the same there."""
    centres = np.random.default_rng(0).normal(size=(KINDS, features))
    luck = np.random.default_rng([1, first])
    W = centres[luck.integers(KINDS, size=many)]
    W = W + 0.2 * luck.normal(size=(many, features))
    X = luck.normal(size=(many, rows, features))
    y = np.einsum("nrd,nd->nr", X, W) + 0.5 * luck.normal(size=(many, rows))
    start = rows * np.arange(many + 1)
    flat = X.reshape(-1, features)
    return Devices(flat, y.ravel(), np.ones(y.size), start, range(many))


def edges_of(devices: int) -> np.ndarray:
    """Where shards begin: whole pieces."""
    pieces = -(-devices // PIECE)
    shards = min(SHARDS, pieces)
    cuts = np.arange(shards + 1) * pieces // shards * PIECE
    return np.minimum(cuts, devices)


@dataclass(frozen=True)
class MadeUpJob:
    """As `ShardJob`, of rows that no file holds: for machines without pyarrow."""

    job: ShardJob
    devices: int
    rows: int

    def begin(self) -> Answers:
        run = Path(self.job.run)
        known: list = []
        held = HeldRows(self.pieces, self.job.holdout, self.job.seed, False)

        def answer(question: Question) -> object:
            pieces = self.pieces(question.shard)
            if isinstance(question, ShardLook):
                return looked_at(pieces, self.job, question.wanted)
            if isinstance(question, RowQuestion):
                return held.answer(question)
            if not known:
                known.append(read_knower(run / "learned.npz", self.job.named))
                known.append(read_knower(run / "trial.npz", 0))
            kept = []
            for piece in pieces:
                errors = trial_errors(self.job, piece, known[1])
                told = known[0].told(piece.rows, piece.positions)
                W = known[0].coefficients(told.models)
                kept.append(np.column_stack([W, errors.personal, told.at]))
            np.save(run / f"part-{question.shard}.npy", np.concatenate(kept))
            return Made(sum(map(len, kept)))

        return answer

    def pieces(self, shard: int) -> Iterator[ShardPiece]:
        edges = edges_of(self.devices)
        features = len(self.job.columns.features)
        for first in range(edges[shard], edges[shard + 1], PIECE):
            many = min(PIECE, edges[shard + 1] - first)
            rows = made_up(first, many, self.rows, features)
            yield ShardPiece(first, np.arange(first, first + many), rows)


def write_shards(folder: Path, devices: int, rows: int, features: int) -> ShardIndex:
    """The same rows as a folder of shards."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    names = [f"x{k}" for k in range(features)]
    edges = edges_of(devices)
    shards = []
    columns: dict[str, str] = {}
    for k in range(len(edges) - 1):
        name = f"shard-{k:05d}.parquet"
        writer = None
        for first in range(edges[k], edges[k + 1], PIECE):
            many = min(PIECE, edges[k + 1] - first)
            made = made_up(first, many, rows, features)
            table = {"device": made.owner + first, "y": made.y}
            table |= {name: made.X[:, j] for j, name in enumerate(names)}
            piece = pa.table(table)
            columns = {field.name: str(field.type) for field in piece.schema}
            writer = writer or pq.ParquetWriter(folder / name, piece.schema)
            writer.write_table(piece, row_group_size=len(piece))
        writer.close()
        count = int(edges[k + 1] - edges[k])
        last = int(edges[k + 1]) - 1
        shards.append(
            Shard(name, count, count * rows, int(edges[k]), last, PIECE * rows)
        )
    index = ShardIndex(folder, "device", columns, shards)
    index.write()
    return index


# One fit over shards, in this process and its workers


def fit_once(devices: int, rows: int, features: int, jobs: int, folder: Path) -> dict:
    """Seconds of its stages, and peaks of memory."""
    columns = TableColumns("y", tuple(f"x{k}" for k in range(features)))
    engine = engine_of("processes", jobs)
    began = time.perf_counter()
    stages: dict[str, float] = {}
    peaks = [0.0]

    def say(what: str, done: int, total: int) -> None:
        stages.setdefault(what, time.perf_counter())
        peaks.extend(map(peak_of, multiprocessing.active_children()))

    if HERE:
        index = ShardIndex.read(folder / "shards")
        fit_shards(index, folder / "run", ShardedFit(columns, Blend()), engine, say=say)
    else:
        _fit_made_up(columns, devices, rows, engine, folder, say)
    ended = time.perf_counter()
    times = [began, *stages.values(), ended]
    names = ["begin", *stages]
    spent = dict(zip(names, np.diff(times).tolist(), strict=True))
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "devices": devices,
        "jobs": jobs,
        "seconds": ended - began,
        "stages": spent,
        "coordinator_gib": own,
        "worker_gib": max(peaks),
    }


def peak_of(process: multiprocessing.process.BaseProcess) -> float:
    """The most memory that a process has had, in GiB."""
    try:
        about = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return 0.0
    lines = [line.split() for line in about.splitlines() if line.startswith("VmHWM")]
    return float(lines[0][1]) / 2**20 if lines else 0.0


def _fit_made_up(columns, devices, rows, engine, folder: Path, say) -> None:
    run = folder / "run"
    run.mkdir(parents=True)
    job = ShardJob("", str(run), columns, 0.25, 0, False, 10)
    panel = Panel.drawn(devices, 0, Blend().panel)
    fit = PanelFit(devices, panel, LearnBlend(Blend()), 0, False, 10)
    edges = edges_of(devices)
    many = len(edges) - 1
    with Crew(engine, MadeUpJob(job, devices, rows)) as crew:
        say("looking at rows", 0, many)
        questions = {}
        for k in range(many):
            here = (panel.devices >= edges[k]) & (panel.devices < edges[k + 1])
            questions[k] = ShardLook(k, panel.devices[here])
        told = PanelRows.of(dict(crew.ask(questions)))
        say("learning what devices have in common", 0, 1)
        trial, _ = fit.trial(told)
        write_knower(run / "trial.npz", trial)
        write_knower(run / "learned.npz", fit.final(told))
        say("making models", 0, many)
        for shard, _ in crew.ask({k: Make(k) for k in range(many)}):
            say("making models", shard, many)


def measured(devices: int, rows: int, features: int, jobs: int) -> dict:
    """The same in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        if HERE:
            write_shards(Path(place) / "shards", devices, rows, features)
        words = ["--devices", devices, "--rows", rows, "--features", features]
        words += ["--jobs", jobs, "--folder", place, *([] if HERE else [MADE_UP])]
        command = [sys.executable, __file__, "fit", *map(str, words)]
        said = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(said.stdout.splitlines()[-1])


def growth(sizes: list[int], rows: int, features: int, jobs: int) -> None:
    """As fleets grow."""
    source = "Parquet" if HERE else "made up at the workers"
    print(
        f"{rows} rows x {features} features a device, {jobs} processes, rows {source}"
    )
    print("  devices   seconds   ms a device   learning   coordinator   each worker")
    per = {}
    for n in sizes:
        found = measured(n, rows, features, jobs)
        per[n] = found["seconds"] / n
        learning = found["stages"].get("learning what devices have in common", 0.0)
        print(
            f"{n:>9,} {found['seconds']:9.1f} {1e3 * per[n]:13.3f} {learning:9.1f} s"
            f" {found['coordinator_gib']:9.2f} GiB {found['worker_gib']:9.2f} GiB",
            flush=True,
        )
    if len(sizes) > 1:
        ratio = per[sizes[-1]] / per[10_000] if 10_000 in per else float("nan")
        print(f"seconds a device at {sizes[-1]:,} over those at 10,000: {ratio:.2f}")


def cores(devices: int, rows: int, features: int, jobs: int) -> None:
    """One process and several."""
    one = measured(devices, rows, features, 1)
    several = measured(devices, rows, features, jobs)
    for stage in ("looking at rows", "making models"):
        both = [found["stages"][stage] for found in (one, several)]
        share = both[0] / both[1] / jobs
        print(
            f"{devices:,} devices, {stage}: {both[0]:.1f} s with 1 process, {both[1]:.1f} s"
            f" with {jobs}: efficiency {share:.2f}"
        )
    print(f"the whole fit: {one['seconds']:.1f} s and {several['seconds']:.1f} s")


def rounds(devices: int, rows: int, features: int, jobs: int) -> None:
    """Rounds of paper with one process and with several, and whether models are the same."""
    spent = {}
    models = {}
    for many in (1, jobs):
        spent[many], models[many] = _rounds_by(devices, rows, features, many)
    same = np.array_equal(models[1], models[jobs])
    share = spent[1] / spent[jobs] / jobs
    print(
        f"{devices:,} devices x {rows} rows x {features} features, a round of paper:"
        f" {spent[1]:.2f} s with 1 process, {spent[jobs]:.2f} s with {jobs}: efficiency"
        f" {share:.2f}; models {'the same to the last bit' if same else 'differ'}"
    )


def _rounds_by(
    devices: int, rows: int, features: int, jobs: int
) -> tuple[float, np.ndarray]:
    """Seconds of a round in the mean over a few, once rows are there."""
    edges = edges_of(devices)
    counts = np.diff(edges).tolist()
    files = [Shard("", n, n * rows, 0, 0, PIECE * rows) for n in counts]
    index = ShardIndex(Path(), "device", {}, files)
    columns = TableColumns("y", tuple(f"x{k}" for k in range(features)))
    job = MadeUpJob(ShardJob("", "", columns, 0.0, 0, False, 0), devices, rows)
    raw = Units.shared(np.zeros(features), np.ones(features), 0.0, 1.0)
    with Crew(engine_of("processes", jobs), job) as crew:
        known = ShardRows(ShardDesk(crew, index, RowUse(raw, trial=False)))
        task = ShardTask(known, Linear(intercept=True), seed=0)
        fleet = task.fleet(GradientStep(0.05))
        asking = personalize(fleet, sampler=Uniform(20), adopter=Best(), rounds=6)
        next(asking)  # kernels are loaded
        began = time.perf_counter()
        done = [round_.r for round_ in asking]
        return (time.perf_counter() - began) / len(done), np.array(fleet.models)


def threads(devices: int, rows: int, features: int, jobs: int) -> None:
    """The kernels of a round by one thread and by several."""
    made = made_up(0, devices, rows, features)
    peers = Uniform(20)(Trust(devices, np.arange(devices)), 0, 0)
    spent = {}
    told = {}
    for many in (1, jobs):
        fleet = ArrayFleet(
            made, learner=Linear(), proposer=GradientStep(0.05), n_jobs=many
        )
        fleet.probe(peers, 0)
        began = time.perf_counter()
        for r in range(5):
            told[many] = fleet.probe(peers, r).losses
        spent[many] = (time.perf_counter() - began) / 5
    same = np.array_equal(told[1], told[jobs])
    print(
        f"{devices:,} devices x {rows} rows x {features} features, 20 peers: {spent[1]:.2f} s by 1"
        f" thread, {spent[jobs]:.2f} s by {jobs}: efficiency {spent[1] / spent[jobs] / jobs:.2f};"
        f" losses {'the same to the last bit' if same else 'differ'}"
    )


# The other parts


def same() -> None:
    """How far models of shards are from those of one process."""
    n, rows, features = 600, 10, 4
    made = made_up(0, n, rows, features)
    names = [f"x{k}" for k in range(features)]
    for panel in (4000, 200):
        method = Blend(panel=panel)
        one = PersonalizedRegressor(method=method, holdout=0)
        one.fit(made.X, made.y, devices=made.owner)
        fitted = one.fitted_
        models = np.asarray(getattr(fitted.models, "vectors", fitted.models))
        for shards in (1, 2, 7):
            found = _models_of_shards(made, names, method, shards)
            units = fitted.units
            W = models[:, :-1] * units.label_scale / units.scale
            away = np.abs(found[:, :-1] - W).max()
            print(
                f"{n} devices, panel {panel}, {shards} shards: largest difference {away:.1e}"
            )


def _models_of_shards(made, names, method, shards: int) -> np.ndarray:
    import pandas as pd

    from persfl.scale.sharding import shard_folder

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        table = pd.DataFrame(made.X, columns=names)
        table = table.assign(y=made.y, device=made.owner)
        (place / "rows").mkdir()
        table.to_parquet(place / "rows" / "x.parquet", index=False)
        index = shard_folder(
            place / "rows", place / "s", device="device", shards=shards
        )
        asked = ShardedFit(TableColumns("y", tuple(names)), method, holdout=0.0)
        run = fit_shards(index, place / "run", asked, InThisProcess())
        parts = sorted((run.folder / "models").iterdir())
        wanted = [*(f"coef_{name}" for name in names), "intercept"]
        return pd.concat([pd.read_parquet(part) for part in parts])[wanted].to_numpy()


def predict(million: int, devices: int, features: int) -> None:
    """Rows a second, one process."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        index = write_shards(place / "shards", devices, 12, features)
        names = tuple(f"x{k}" for k in range(features))
        asked = ShardedFit(TableColumns("y", names), Blend(trees=False), holdout=0.0)
        fit_shards(index, place / "run", asked, InThisProcess())
        luck = np.random.default_rng(0)
        (place / "new").mkdir()
        for k in range(million):
            columns = {name: luck.normal(size=10**6) for name in names}
            table = pa.table({"device": luck.integers(devices, size=10**6), **columns})
            pq.write_table(table, place / "new" / f"{k:03d}.parquet")
        job = PredictJob(str(place / "run"), str(place / "new"), str(place / "out"), ())
        began, busy = time.perf_counter(), time.process_time()
        told = predict_files(job, InThisProcess())
        took, busy = time.perf_counter() - began, time.process_time() - busy
        shutil.rmtree(place / "out")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"predict: {told.rows:,} rows of {devices:,} devices x {features} features in"
        f" {took:.1f} s ({busy:.1f} s of one core: {told.rows / busy:,.0f} rows a second a"
        f" core), {peak:.1f} GiB"
    )


def one(n: int, rows: int, features: int, classes: int, holdout: float) -> None:
    """One fit in this process, timed; set against the truth to see that it is a fit at all."""
    made = clustered_regression(
        n=n, clusters=5, rows=rows, features=features, noise=0.5, seed=0
    )
    y = (made.y > 0) + 0.0 if classes else made.y
    kind = PersonalizedClassifier if classes else PersonalizedRegressor
    begin, busy = time.perf_counter(), time.process_time()
    model = kind(method="blend", holdout=holdout).fit(made.X, y, devices=made.owner)
    took, busy = time.perf_counter() - begin, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    fresh = np.random.default_rng(1).standard_normal((n, features))
    truth = (fresh * made.true_weights).sum(axis=1)
    said = model.predict(fresh, devices=np.arange(n))
    missed = ((said - truth) ** 2).mean() / truth.var()
    if classes:
        missed = (said != (truth > 0)).mean()
    what = f"{classes} classes" if classes else "numbers"
    print(
        f"{n:>7,} devices x {rows:>3} rows x {features} features, {what:9}, holdout {holdout:4}:"
        f" {took:6.0f} s ({busy:.0f} s of one core), {peak:4.1f} GiB, error {missed:.4f}",
        flush=True,
    )


def main() -> None:
    """Print what was asked for."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    whats = ("growth", "cores", "rounds", "threads", "same", "predict", "one", "fit")
    made.add_argument("what", choices=whats, nargs="?", default="growth")
    made.add_argument("--devices", default="")
    made.add_argument("--rows", type=int, default=0)
    made.add_argument("--features", type=int, default=10)
    made.add_argument("--jobs", type=int, default=2)
    made.add_argument("--million", type=int, default=10)
    made.add_argument("--classes", type=int, default=0, choices=(0, 2))
    made.add_argument("--holdout", type=float, default=0.25)
    made.add_argument("--folder", type=Path)
    made.add_argument(MADE_UP, action="store_true")
    told = made.parse_args()
    usual = {"growth": "1000,10000,100000", "cores": "50000"}
    usual |= {"rounds": "50000", "predict": "100000"}
    sizes = [
        int(each) for each in (told.devices or usual.get(told.what, "10000")).split(",")
    ]
    many = told.rows or (100 if told.what == "one" else 30)
    if told.what == "growth":
        growth(sizes, many, told.features, told.jobs)
    elif told.what == "cores":
        cores(sizes[0], many, told.features, told.jobs)
    elif told.what == "rounds":
        rounds(sizes[0], many, told.features, told.jobs)
    elif told.what == "threads":
        threads(sizes[0], many, told.features, told.jobs)
    elif told.what == "same":
        same()
    elif told.what == "predict":
        predict(told.million, sizes[0], told.features)
    elif told.what == "one":
        one(sizes[0], many, told.features, told.classes, told.holdout)
    else:
        print(
            json.dumps(fit_once(sizes[0], many, told.features, told.jobs, told.folder))
        )


if __name__ == "__main__":
    main()
