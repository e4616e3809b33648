"""What came out of a run, for people and for programs."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from persfl.commands.progress import table
from persfl.evaluation.alike import alike, verdict_codes, what_was_found
from persfl.evaluation.error_table import error_lines
from persfl.evaluation.headline import expected_words, headline
from persfl.evaluation.verdicts import Worth
from persfl.evaluation.who_helps import pairs_known
from persfl.fitting.fitted import Fitted, HasFitted, fitted_of
from persfl.runs.model_checks import spec_of
from persfl.runs.run_folder import Folder
from persfl.terminal import visible

if TYPE_CHECKING:
    from persfl.evaluation.headline import Headline

# a fit that tells whether models depend on others refits what costs little
QUICK = "The models of these refits are without trees."


def verdict_facts(model: Fitted | HasFitted) -> dict[str, Any]:
    """The fleet's verdict against own rows, and the headline, for programs; nothing where no rows
    were held back.
    """
    worth = fitted_of(model).worth
    if worth is None:
        return {}
    told = headline(worth)
    facts = {"headline": told.found, "advice": told.advice, "use": told.use}
    return worth.fleet()._asdict() | facts


def print_answer(model: Fitted | HasFitted, out: Path) -> None:
    """What came out, for people: notes, the verdict, every error, what to do, and where the run is
    kept.
    """
    fitted = fitted_of(model)
    worth = fitted.worth
    told = headline(worth)
    for note in fitted.notes:
        print(visible(note))
    if worth is not None:
        print(told.found)
        if told.alone:
            print(told.alone)
        if len(fitted.trust.pairs.key):
            print(kinds_of(fitted))
        if fitted.depends is not None:
            print(f"{fitted.depends.sentence} {QUICK}")
        print()
        print_errors(worth)
        print_advice(told, out)
    print(f"\nModels and rounds are in {out}/.")


def print_advice(told: Headline, out: Path) -> None:
    """What to do, and the command for it where there is one."""
    if told.advice:
        print(f"\n{told.advice}")
    if not told.use:
        return
    from persfl.report.next_command import next_command  # with all of the report

    how = next_command(spec_of(Folder.open(out)), told.use, str(out))
    if how:
        print(f"  {visible(how)}")


def print_errors(worth: Worth) -> None:
    """Errors of all methods, and what the personalized models are beside them."""
    head, *lines = error_lines(worth.summary(), ahead=worth.ahead)
    table(head, lines)
    expected = expected_words(worth)
    if expected:
        print(expected)


def seconds(chosen: argparse.Namespace) -> str:
    """How long the person has waited, reading the packages included."""
    return f"{time.perf_counter() - chosen.began:.0f} s"


def kinds_of(fitted: Fitted) -> str:
    """Whether there are kinds of devices, in a sentence."""
    known = pairs_known(fitted.trust)
    found = alike(known, fitted.trust)
    return what_was_found(found, verdict_codes(known, found))
