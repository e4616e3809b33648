"""`persfl fit` of a folder of files that is larger than memory: over shards, by an engine."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from persfl.checks import many
from persfl.commands.answers import seconds
from persfl.commands.folder_answers import print_facts
from persfl.commands.option_tables import FIT
from persfl.commands.options import defaults
from persfl.commands.shard_progress import ShardProgress
from persfl.errors import InputError
from persfl.folder_locks import holding
from persfl.methods import method_of
from persfl.report.sharded_page import write_sharded_page
from persfl.run_kinds import is_sharded
from persfl.scale.dataset import ParquetDataset
from persfl.scale.engines import engine_of
from persfl.scale.model_table import ModelTable
from persfl.scale.run_layout import SHARDS
from persfl.scale.shard_reader import TableColumns
from persfl.scale.sharded_fit import ShardedFit, fit_shards
from persfl.scale.sharded_run import ShardedRun

# options that a fit over shards goes by; the others are for tables that fit one process
KNOWN = {
    *("device", "label", "features", "drop", "weight", "method", "set", "ordered"),
    *("holdout", "seed", "jobs", "json", "out", "resume", "no_report", "engine"),
    *("task", "units", "trials"),
}
SAME = {"task": "regression", "units": "shared", "trials": 1}


def is_for_shards(chosen: argparse.Namespace) -> bool:
    """Whether a table is a folder, or an engine is named."""
    return chosen.engine is not None or Path(chosen.table).is_dir()


def fit_folder(chosen: argparse.Namespace) -> int:
    """Models for every device of a folder of files, as a table in a run folder."""
    _refuse_options(chosen)
    out = Path(chosen.out)
    executor = engine_of(chosen.engine or "processes", chosen.jobs)
    if is_sharded(out) and not chosen.resume:
        raise InputError(
            f"{str(out)!r} holds a run already. Go on with it by --resume, or choose another"
            " --out."
        )
    out.mkdir(parents=True, exist_ok=True)
    say = ShardProgress(chosen.json)
    with holding(out):
        rows = ParquetDataset(
            chosen.table, chosen.device, chosen.label, weight=chosen.weight
        )
        index = rows.shards(out / SHARDS, say.share_done)
        asked = _asked(chosen, rows.columns(index))
        asked.check(index)
        if not chosen.json:
            need = asked.memory(index, executor.workers)
            print(need.sentence(executor.workers), file=sys.stderr)
        run = fit_shards(index, out, asked, executor, resume=True, say=say.shards_done)
        say.close()
        page = None if chosen.no_report else write_sharded_page(ModelTable.open(out))
    _print_result(chosen, run, page)
    return 0


def _refuse_options(chosen: argparse.Namespace) -> None:
    usual = defaults(FIT)
    for name, default in usual.items():
        said = vars(chosen)[name]
        if said in (default, SAME.get(name)) or (name == "set" and not said):
            continue
        if name not in KNOWN or name in SAME:
            option = "--" + name.replace("_", "-")
            raise InputError(
                f"{option} is for tables that fit one process. Leave it out: a fit over shards"
                " is of linear models of numbers."
            )


def _asked(chosen: argparse.Namespace, columns: TableColumns) -> ShardedFit:
    features = [name for name in columns.features if name not in chosen.drop]
    wanted = tuple(chosen.features or features)
    method = method_of(chosen.method).set_params(**dict(chosen.set))
    return ShardedFit(
        replace(columns, features=wanted),
        method,
        holdout=chosen.holdout,
        seed=chosen.seed,
        ordered=chosen.ordered,
    )


def _print_result(
    chosen: argparse.Namespace, run: ShardedRun, page: Path | None
) -> None:
    spec = run.spec
    if chosen.json:
        report = None if page is None else str(page)
        told = {"event": "done", "out": chosen.out, "report": report}
        print(json.dumps(told | dict(run.facts)))
        return
    counts = [many(spec["devices"], "device"), many(spec["rows"], "row")]
    counts.append(many(len(spec["features"]), "feature"))
    print(f"{', '.join(counts)}; {seconds(chosen)}.")
    print_facts(run)
    print(f"\nModels are in {run.folder / 'models'}, one row a device.")
    if page is not None:
        print(f"Open {page} to read the report.")
