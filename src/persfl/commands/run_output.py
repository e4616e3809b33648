"""`persfl report` and `persfl helpers`: what a finished run says."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path
from typing import Any

import pandas as pd

from persfl.checks import some
from persfl.commands.progress import table
from persfl.commands.user_module import load_module
from persfl.errors import InputError
from persfl.estimators.personalized import PersonalizedClassifier, PersonalizedRegressor
from persfl.formats import reading
from persfl.report.export import export
from persfl.report.run_pages import FEDERATION, write_pages
from persfl.runs.model_reader import load_model

Personalized = PersonalizedClassifier | PersonalizedRegressor
_HEAD = ("device", "peer", "asked", "adopted", "share", "reward", "95 % interval")


def write_report_again(chosen: argparse.Namespace) -> int:
    """The page of a finished run, and the federation's own where it was one."""
    check_out(chosen.out, ".html", table=chosen.run)
    out = Path(chosen.out) if chosen.out else None
    if out and out.name == FEDERATION:
        why = f"{FEDERATION} is that of a federation's own page"
        raise InputError(f"--out must have another name: {why}.")
    for path in write_pages(Path(chosen.run), out, module=_module(chosen)):
        print(path)
    return 0


def list_helpers(chosen: argparse.Namespace) -> int:
    """Who helps a device, ranked; or everything, exported."""
    model = model_of(chosen)
    with reading(Path(chosen.run)):
        found = model.helpers_
    if not len(found) and not chosen.export and not chosen.json:
        print(
            f"Nobody was asked: method {model.method_!r} has no answers of single peers."
        )
        return 0
    if chosen.device is not None and len(found):
        found = found[_of_device(found, chosen.device)]
    if chosen.export:
        print(export(found, chosen.export, verbatim=chosen.verbatim))
        return 0
    if chosen.json:
        print(found.to_json(orient="records"))
        return 0
    what = f"{len(found)} peers that {chosen.device} asked, most adopted first"
    if chosen.device is None:
        found = found.groupby("device", sort=False, observed=True).head(1)
        what = "each device's most adopted peer"
    lines = found.head(chosen.top).itertuples(index=False)
    table((*_HEAD, "verdict"), [_cells(line) for line in lines])
    more = len(found) - chosen.top
    print(f"\n{what}" + (f"; {more} more: --top {len(found)}" if more > 0 else ""))
    return 0


def model_of(chosen: argparse.Namespace) -> Personalized:
    """A run's model."""
    model: Personalized = load_model(chosen.run, module=_module(chosen))
    return model


def check_out(out: str | None, *endings: str, table: str) -> None:
    """Stop before the work, not after it, where its result could not be written."""
    if out is None:
        return
    path = Path(out)
    if path.resolve() == Path(table).resolve():
        raise InputError(f"--out {out!r} is the table itself. Choose another file.")
    if path.suffix not in endings:
        raise InputError(
            f"--out must end in {' or '.join(endings)}. Got {path.name!r}."
        )
    if not path.resolve().parent.is_dir():
        raise InputError(
            f"there is no folder {str(path.parent)!r} to write {path.name!r} into."
        )


def _module(chosen: argparse.Namespace) -> Any:
    return load_module(chosen.module) if chosen.module else None


def _of_device(found: pd.DataFrame, device: str) -> pd.Series:
    """Which rows are those of a device."""
    names = found["device"].astype(str)
    known = sorted(set(names))
    if device not in known:
        near = difflib.get_close_matches(device, known, n=3)
        hint = f"Did you mean {some(near)}?" if near else f"Known: {some(known, 5)}."
        raise InputError(f"there is no device {device!r} that asked anybody. {hint}")
    return names == device


def _cells(line: Any) -> tuple[str, ...]:
    """A row of who helps whom, as text."""
    # a peer that was asked and never answered has no reward
    low = line.reward_low
    high = line.reward_high
    return (
        str(line.device),
        str(line.peer),
        str(line.asked),
        adopted_text(line.adopted),
        f"{line.share:.1%}",
        "" if pd.isna(line.reward_mean) else f"{line.reward_mean:.3g}",
        "" if pd.isna(low) else f"{low:.3g} to {high:.3g}",
        str(line.verdict),
    )


def adopted_text(answers: float) -> str:
    """How many answers were adopted; parts of one where an adopter mixes.

    >>> adopted_text(12.0), adopted_text(4.75651), adopted_text(2.58e-5)
    ('12', '4.76', '<0.01')
    """
    if answers == round(answers):
        return f"{answers:.0f}"
    return f"{answers:.2f}" if answers >= 0.01 else "<0.01"
