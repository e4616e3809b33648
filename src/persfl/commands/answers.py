"""What came out of a run, for people and for programs."""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

from persfl.commands.progress import table
from persfl.evaluation.alike import alike, verdict_codes, what_was_found
from persfl.evaluation.intervals import percent
from persfl.evaluation.verdicts import Worth
from persfl.evaluation.who_helps import pairs_known
from persfl.fitting.fitted import Fitted, HasFitted, fitted_of
from persfl.terminal import visible


def verdict_facts(model: Fitted | HasFitted) -> dict[str, Any]:
    """The fleet's verdict for programs; nothing where no rows were held back."""
    worth = fitted_of(model).worth
    return {} if worth is None else worth.fleet()._asdict()


def print_answer(model: Fitted | HasFitted, out: Path) -> None:
    """What came out, for people: notes, the verdict, every error, and where the run is kept."""
    from persfl.report.worth_info import better_rivals, sentence

    fitted = fitted_of(model)
    worth = fitted.worth
    for note in fitted.notes:
        print(visible(note))
    if worth is not None:
        print(sentence(worth.fleet(), int(worth.table["held"].sum())))
        for note in better_rivals(worth):
            print(note)
        if len(fitted.trust.pairs.key):
            print(kinds_of(fitted))
        if fitted.depends is not None:
            print(fitted.depends.sentence)
        print()
        print_errors(worth)
    print(f"\nModels and rounds are in {out}/.")


def print_errors(worth: Worth) -> None:
    """Errors of all methods."""
    rows = []
    for arm in worth.summary():
        cells = [arm["name"], f"{arm['error']:.4f}", f"{arm['median']:.4f}"]
        if worth.classes:
            cells.append(f"{arm['mistakes']:.3f}")
        gain = ""
        if arm["gain"] is not None and not math.isnan(arm["gain"]):
            between = f"{percent(arm['low'])} to {percent(arm['high'])}"
            gain = f"{percent(arm['gain'])} ({between})"
        rows.append((*cells, gain))
    mistakes = ["mistakes"] if worth.classes else []
    gains = "removed by personalizing (95 % interval)"
    table(("held-out error of", "mean", "median", *mistakes, gains), rows)


def seconds(chosen: argparse.Namespace) -> str:
    """How long the person has waited, reading the packages included."""
    return f"{time.perf_counter() - chosen.began:.0f} s"


def kinds_of(fitted: Fitted) -> str:
    """Whether there are kinds of devices, in a sentence."""
    known = pairs_known(fitted.trust)
    found = alike(known, fitted.trust)
    return what_was_found(found, verdict_codes(known, found))
