"""`persfl report` and `persfl helpers`: what a finished run says."""

from __future__ import annotations

import argparse
import difflib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from persfl.checks import percent, some
from persfl.commands.answers import QUICK, kinds_of
from persfl.commands.progress import table
from persfl.commands.run_tables import check_out, model_ids, read_like_fit
from persfl.commands.user_module import load_module
from persfl.errors import InputError
from persfl.evaluation.dependence import Removal, Rise
from persfl.formats import reading
from persfl.run_kinds import is_sharded
from persfl.runs.model_checks import spec_of
from persfl.runs.model_reader import load_model, read_fitted
from persfl.runs.removal_words import keep_contributions
from persfl.runs.run_folder import Folder

if TYPE_CHECKING:
    from persfl.estimators.personalized import (
        PersonalizedClassifier,
        PersonalizedRegressor,
    )

    Personalized = PersonalizedClassifier | PersonalizedRegressor
_LEGEND = (
    "alike: the chance that both are of one kind, from which the verdict follows. reward: how much"
    " the peer's answers, few as they are, lowered the device's own loss."
)
_HEAD = (
    "device",
    "peer",
    "alike",
    "asked",
    "adopted",
    "share",
    "reward",
    "95 % interval",
)


def write_report_again(chosen: argparse.Namespace) -> int:
    """The page of a finished run, and the federation's own where it was one."""
    from persfl.report.run_pages import FEDERATION, write_pages

    check_out(chosen.out, ".html", table=chosen.run)
    if is_sharded(chosen.run):
        from persfl.commands.folder_answers import report_table

        return report_table(chosen)
    out = Path(chosen.out) if chosen.out else None
    if out and out.name == FEDERATION:
        why = f"{FEDERATION} is that of a federation's own page"
        raise InputError(f"--out must have another name: {why}.")
    for path in write_pages(Path(chosen.run), out, module=_module(chosen)):
        print(path)
    return 0


def list_helpers(chosen: argparse.Namespace) -> int:
    """Who helps a device, ranked; or everything, exported."""
    if is_sharded(chosen.run):
        from persfl.commands.folder_answers import list_table_helpers

        return list_table_helpers(chosen)
    if chosen.prove:
        return _prove(model_of(chosen), chosen)
    if chosen.contributions:
        return _contributions(model_of(chosen), chosen)
    folder = Folder.open(Path(chosen.run))
    fitted = read_fitted(folder, module=_module(chosen))[0]
    with reading(folder.path):
        found = fitted.helpers()
    if not len(found) and not chosen.export and not chosen.json:
        print(
            f"Nobody was asked: method {fitted.ran!r} has no answers of single peers."
        )
        return 0
    if chosen.device is not None and len(found):
        found = found[_of_device(found, chosen.device)]
    if chosen.export:
        from persfl.report.export import export

        print(export(found, chosen.export, verbatim=chosen.verbatim))
        return 0
    if chosen.json:
        print(found.to_json(orient="records"))
        return 0
    list_pairs(found, chosen)
    print(kinds_of(fitted))
    if fitted.depends is not None:
        print(f"{fitted.depends.sentence} {QUICK}")
    return 0


def list_pairs(found: pd.DataFrame, chosen: argparse.Namespace) -> None:
    """Those whom a device asked, or of each device the one that it took most from."""
    what = f"{len(found)} peers that {chosen.device} asked, most adopted first"
    if not found["adopted"].any():
        what = (
            f"{len(found)} peers that {chosen.device} asked, of whom it adopted nobody"
        )
    if chosen.device is None:
        found = found[found["adopted"] > 0]
        found = found.groupby("device", sort=False, observed=True).head(1)
        what = "each device's most adopted peer"
    if not len(found):
        print("No device adopted what a single peer answered.")
        return
    lines = found.head(chosen.top).itertuples(index=False)
    table((*_HEAD, "verdict"), [_cells(line) for line in lines])
    more = len(found) - chosen.top
    print(f"\n{what}" + (f"; {more} more: --top {len(found)}" if more > 0 else ""))
    print(_LEGEND)


def _rows_of_fit(
    model: Personalized, chosen: argparse.Namespace, option: str
) -> tuple[pd.DataFrame, pd.Series, pd.Series | None, pd.DataFrame]:
    """The table of the fit: features, labels, whose rows they are, and what orders them."""
    if chosen.table is None:
        raise InputError(
            f"{option} fits again, and a run folder holds no rows. Say where they are: --table"
            " FILE."
        )
    spec = spec_of(Folder.open(Path(chosen.run)))
    said = [name for name in (model.blocks, model.time) if isinstance(name, str)]
    frame = read_like_fit(Path(chosen.table), spec, also=[spec["label"], *said])
    whose = model_ids(frame[spec["device"]], model.devices_)
    X = frame[spec["features"]]
    if model.device is not None:
        X = X.assign(**{model.device: whose})
    devices = None if model.device is not None else whose
    aside = frame[[name for name in said if name not in X]]
    return X, frame[spec["label"]], devices, aside


def _prove(model: Personalized, chosen: argparse.Namespace) -> int:
    """What errors rise by without the named helpers, and without random devices."""
    X, y, devices, aside = _rows_of_fit(model, chosen, "--prove")
    how = {"many": chosen.without, "targets": chosen.targets}
    found = model.removal(X, y, devices, aside=aside, **how)
    if chosen.json:
        facts = {name: value._asdict() for name, value in _rises(found).items()}
        more = {"without": found.many, "refits": found.refits}
        print(json.dumps(facts | more | {"targets": found.targets}))
        return 0
    lines = [
        (name, percent(rise.rise), f"{percent(rise.low)} to {percent(rise.high)}")
        for name, rise in _rises(found).items()
    ]
    table((f"without {found.many}", "errors rise by", "95 % interval"), lines)
    print(f"\n{found.sentence} {found.refits} fits.")
    return 0


def _contributions(model: Personalized, chosen: argparse.Namespace) -> int:
    """Who helps the others most; it is kept in the run folder."""
    X, y, devices, aside = _rows_of_fit(model, chosen, "--contributions")
    found = model.contributions(X, y, devices, aside=aside, refits=chosen.refits)
    keep_contributions(Path(chosen.run), found)
    if chosen.json:
        print(found.table.to_json(orient="records"))
        return 0
    lines = [
        (
            str(name),
            percent(rise),
            f"{percent(low)} to {percent(high)}",
            "missed" if missed else "cannot tell",
        )
        for name, rise, low, high, missed in found.table.head(chosen.top)
        .to_numpy()
        .tolist()
    ]
    table(("without", "others' errors rise by", "95 % interval", ""), lines)
    print(f"\n{found.sentence}")
    return 0


def _rises(found: Removal) -> dict[str, Rise]:
    """By who was taken out."""
    return {
        "named": found.named,
        "random": found.random,
        "difference": found.difference,
    }


def model_of(chosen: argparse.Namespace) -> Personalized:
    """A run's model."""
    model: Personalized = load_model(chosen.run, module=_module(chosen))
    return model


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
        percent(line.alike),
        str(line.asked),
        adopted_text(line.adopted),
        percent(line.share, digits=1),
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
