"""What a run over shards says: its facts, helpers of a device, predictions for a folder."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from persfl.checks import many, percent
from persfl.commands.answers import seconds
from persfl.commands.progress import table
from persfl.errors import InputError
from persfl.evaluation.error_table import error_lines
from persfl.report.sharded_page import (
    kept_verdict,
    models_made_of,
    write_sharded_page,
)
from persfl.report.sharded_words import against_own_rows
from persfl.scale.engines import engine_of
from persfl.scale.model_table import PARTS, ModelTable
from persfl.scale.sharded_run import ShardedRun
from persfl.scale.table_predictions import PredictJob, predict_files
from persfl.terminal import shown


def print_facts(run: ShardedRun) -> None:
    """What came out, for people."""
    found = ModelTable.open(run.folder)
    print(models_made_of(found))
    worth = run.facts["worth"]
    if worth is None:
        return
    whose = f"{run.facts['panel']:,} devices of {run.spec['devices']:,}"
    if run.facts["panel"] < run.spec["devices"]:
        print(f"Measured on {whose}, drawn by the seed:")
    print(against_own_rows(kept_verdict(run), worth["held"]))
    print()
    head, *lines = error_lines(worth["arms"])
    table(head, lines)


def list_table_helpers(chosen: argparse.Namespace) -> int:
    """Who helps a device, from the table of helpers."""
    found = ModelTable.open(chosen.run)
    for option in ("export", "prove", "contributions"):
        if vars(chosen)[option]:
            raise InputError(
                f"--{option} is for runs in one process. The helpers of a run over shards are a"
                f" Parquet table: {Path(chosen.run) / 'helpers'}."
            )
    if chosen.device is None:
        raise InputError(
            "say whose helpers: --device ID. This run has too many to list."
        )
    rows = found.helpers(chosen.device)[: chosen.top]
    if chosen.json:
        print(json.dumps(rows))
        return 0
    name = shown(chosen.device)
    if not rows:
        print(f"Nobody is named as a helper of {name}.")
        return 0
    tried = rows[0]["error"] is not None
    head = ("peer", "alike", "share", *(["its model's error here"] if tried else []))
    lines: list[tuple[str, ...]] = []
    for row in rows:
        error = [f"{row['error']:.4g}"] if tried else []
        peer, share = str(row["peer"]), percent(row["share"])
        lines.append((peer, f"{row['alike']:.2f}", share, *error))
    table(head, lines)
    mine = found.model(chosen.device)
    if None in [mine[name] for name in PARTS]:
        return 0
    shares = ", ".join(f"{percent(mine[name])} {name}" for name in PARTS)
    print(f"\nThe model of {name} is {shares}.")
    return 0


def predict_folder(chosen: argparse.Namespace) -> int:
    """Predictions for a folder of files, or one file."""
    if chosen.out is None:
        raise InputError("name a folder for the predictions: --out FOLDER.")
    if chosen.impute:
        raise InputError("--impute is for runs in one process. Use --missing skip.")
    job = PredictJob(
        run=str(Path(chosen.run).resolve()),
        source=str(Path(chosen.table).resolve()),
        out=str(Path(chosen.out).resolve()),
        keep=() if chosen.only else (tuple(chosen.keep) or None),
        unseen=chosen.unseen or "pooled",
        missing=chosen.missing,
        only=chosen.device,
    )
    told = predict_files(job, engine_of(chosen.engine, chosen.jobs))
    if told.newcomers:
        rows = many(told.newcomers, "row")
        what = "of devices that were not there when fitting: predicted by one model for all"
        print(f"persfl: {rows} {what}.", file=sys.stderr)
    if told.without:
        rows = many(told.without, "row")
        print(f"persfl: {rows} without a prediction.", file=sys.stderr)
    print(
        f"{many(told.rows, 'row')} with predictions in {chosen.out}; {seconds(chosen)}."
    )
    return 0


def report_table(chosen: argparse.Namespace) -> int:
    """The page of a run over shards."""
    out = None if chosen.out is None else Path(chosen.out)
    print(write_sharded_page(ModelTable.open(chosen.run), out))
    return 0
