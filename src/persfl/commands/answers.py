"""What came out of a run, for people and for programs."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import pandas as pd

from persfl.commands.progress import table
from persfl.evaluation.intervals import percent
from persfl.evaluation.verdicts import Worth
from persfl.lab.trial import summary
from persfl.report.info import better_rivals, sentence
from persfl.terminal import visible


def verdict_facts(model: Any) -> dict[str, Any]:
    """The fleet's verdict for programs; nothing where no rows were held back."""
    return {} if model.worth_ is None else dict(model.worth_.fleet()._asdict())


def print_answer(model: Any, out: Path) -> None:
    """What came out, for people: notes, the verdict, every error, and where the run is kept."""
    for note in model.notes_:
        print(visible(note))
    if model.worth_ is not None:
        print(sentence(model.worth_.fleet(), int(model.worth_.table["held"].sum())))
        for note in better_rivals(model.worth_):
            print(note)
        print()
        print_errors(model.worth_)
    print(f"\nModels and rounds are in {out}/.")


def print_errors(worth: Worth) -> None:
    """Errors of all methods."""
    errors = summary(worth)
    rows = []
    for name, row in errors.iterrows():
        gain = ""
        if not pd.isna(row.get("gain")):
            gain = f"{percent(row.gain)} ({percent(row.low)} to {percent(row.high)})"
        cells = [str(name), f"{row.error:.4f}", f"{row['median']:.4f}"]
        if worth.classes:
            cells.append(f"{row.mistakes:.3f}")
        rows.append((*cells, gain))
    mistakes = ["mistakes"] if worth.classes else []
    gains = "removed by personalizing (95 % interval)"
    table(("held-out error of", "mean", "median", *mistakes, gains), rows)


def seconds(chosen: argparse.Namespace) -> str:
    """How long the person has waited, reading the packages included."""
    return f"{time.perf_counter() - chosen.began:.0f} s"
