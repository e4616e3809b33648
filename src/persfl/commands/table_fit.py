"""`persfl fit`: from a table to a model for every device, kept in a folder, with a report."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from persfl.checks import many, named, one_of, some
from persfl.commands.answers import print_answer, seconds, verdict_facts
from persfl.commands.folder_fit import fit_folder, is_for_shards
from persfl.commands.option_tables import FIT
from persfl.commands.options import defaults
from persfl.commands.progress import Progress
from persfl.commands.run_place import (
    RunPlace,
    behind,
    put_back,
    remove_run,
    runs_aside,
    say_where,
    take_place,
)
from persfl.commands.table_rows import TableRows, read_rows
from persfl.commands.trackers import trackers
from persfl.commands.user_module import file_and_name, in_a_file, load_module
from persfl.errors import InputError, need
from persfl.estimators.personalized import PersonalizedClassifier, PersonalizedRegressor
from persfl.files import fingerprint
from persfl.learners.named import base
from persfl.methods import Kin, Method, Paper, Private, method_of
from persfl.methods.private.private_method import BASES
from persfl.report.html import REPORT
from persfl.report.run_pages import write_page
from persfl.runs.model import keep_model, refuse_unkept
from persfl.sources.table import read_frame
from persfl.training.state import REFIT_ROUNDS, peers_asked

if TYPE_CHECKING:
    from persfl.commands.run_output import Personalized

# options that an estimator takes by the same name
SETTINGS = (
    *("ordered", "blocks", "time", "gap", "horizon"),
    *("units", "holdout", "trials", "impute"),
    *("compute", "precision", "memory"),
)
# options that are short for --set
SHORT = ("budget", "peers", "rounds", "step_size")
# options that may differ when a run is resumed: the result does not hang on them, or the spec says
# in other words what they came to
FREE = {
    "task",
    "features",
    "drop",
    "engine",
    "jobs",
    "memory",
    "json",
    "out",
    "resume",
    "force",
    "no_report",
    "track",
}


def fit_table(chosen: argparse.Namespace) -> int:
    """Models for every device of a table, kept in a folder, with a report."""
    need("pyarrow", extra="app", why="keeping a run")
    if is_for_shards(chosen):
        return fit_folder(chosen)
    out = Path(chosen.out)
    if out.exists() and not out.is_dir():
        raise InputError(
            f"--out {str(out)!r} is a file. Name a folder for the run, one that is not there yet."
        )
    if out.resolve() in Path(chosen.table).resolve().parents:
        raise InputError(
            f"the table lies in {str(out)!r}. Choose an --out of its own for the run."
        )
    rows = read_rows(chosen)
    newcomers = {"fallback": chosen.fallback, "unseen": chosen.unseen}
    model = estimator_for(chosen, rows, **newcomers)
    if chosen.model == "mlp" or in_a_file(chosen.model):
        need("torch", extra="torch", why="a network")
        need("safetensors", extra="torch", why="keeping networks")
    refuse_unkept(model)
    place = take_place(out, _spec(chosen, rows), chosen)
    if place.folder is None:
        return 0
    # Those that another command sets aside from now on are none of ours.
    replaced = runs_aside(behind(out)) if chosen.force or chosen.resume else []
    print_remarks(chosen, rows.remarks)
    _announce(chosen, rows, model)
    progress = Progress(
        place.folder,
        lines=chosen.json,
        place=place.folder.path,
        report=not chosen.no_report,
    )
    page = None
    try:
        if not _fit_and_keep(model, rows, place, progress, chosen):
            return 130
        for old in replaced:
            remove_run(old)
        if not chosen.no_report:
            page = write_page(place.folder, model, out / REPORT)
    finally:
        progress.over()
    _print_result(chosen, progress, model, rows, page)
    return 0


def estimator_for(
    chosen: argparse.Namespace,
    rows: TableRows,
    method: Method | None = None,
    **more: Any,
) -> Personalized:
    """The estimator that the options describe, by this method or the one they name."""
    classes = rows.task == "classification"
    kind = PersonalizedClassifier if classes else PersonalizedRegressor
    public = None if chosen.public is None else read_frame(chosen.public)
    if public is not None:
        absent = [name for name in rows.features if name not in public.columns]
        if absent:
            raise InputError(
                f"{chosen.public!r} must have the table's features. It has no"
                f" {named(absent, 'column')}."
            )
        public = public[rows.features]
    return kind(
        load_module(chosen.model)
        if in_a_file(chosen.model)
        else base(chosen.model, classes=classes),
        method=method or method_for(chosen),
        public=public,
        n_jobs=chosen.jobs,
        random_state=chosen.seed,
        **{name: vars(chosen)[name] for name in SETTINGS},
        **more,
    )


def method_for(chosen: argparse.Namespace) -> Method:
    """The method that --method names, with what --set says of it; --epsilon protects it."""
    method = method_of(chosen.method)
    if chosen.epsilon is not None and not isinstance(method, Private):
        one_of("the method of a private run", method.name, BASES)
        method = Private(epsilon=chosen.epsilon, base=method.name)
    elif chosen.epsilon is not None:
        method = method.set_params(epsilon=chosen.epsilon)
    has = method.get_params()
    said = {name: vars(chosen)[name] for name in SHORT}
    told = {name: value for name, value in said.items() if value is not None}
    told |= dict(chosen.set)
    for name in told:
        if (
            name not in has
            and chosen.method == "blend"
            and name in Paper().get_params()
        ):
            raise InputError(
                f"{name} is a setting of method 'paper', and this is a run of 'blend'. Add --method"
                " paper, or leave it out."
            )
    return method.set_params(**told)


def print_remarks(chosen: argparse.Namespace, remarks: list[str]) -> None:
    """What a person should know of how the table was taken."""
    for text in [] if chosen.json else remarks:
        print(text, file=sys.stderr)


def _fit_and_keep(
    model: Personalized,
    rows: TableRows,
    place: RunPlace,
    progress: Progress,
    chosen: argparse.Namespace,
) -> bool:
    """Fit and keep the model; False if the person stopped it."""
    folder = place.folder
    out = Path(chosen.out)
    assert folder is not None
    before = bool(folder.index["stages"]) or chosen.resume  # there is something to lose
    try:
        table = (rows.X, rows.y, rows.devices, rows.weight)
        told = trackers(chosen.track)
        model.fit(*table, keep=progress, aside=rows.aside, callbacks=told)
        keep_model(folder, model)
    # a module of the user's may raise anything, and what --force set aside must come back all the
    # same
    except Exception as error:
        progress.close()
        done = before or bool(folder.index["stages"]) or folder.finished
        if done or isinstance(error, OSError):
            folder.close()
            say_where(place.aside)
        else:  # nothing is done yet: the corrected command finds the place as it was
            folder.discard()
            put_back(place.aside, behind(out))
        raise
    except KeyboardInterrupt:
        progress.close()
        folder.save()
        folder.close()
        say_where(place.aside)
        print(
            f"\npersfl: stopped; what is done is kept in {out}. Go on with the same command and"
            " --resume.",
            file=sys.stderr,
        )
        return False
    progress.close()
    return True


def _announce(chosen: argparse.Namespace, rows: TableRows, model: Personalized) -> None:
    """Refits take their time: say how many there will be before they start."""
    n = rows.devices.nunique()
    method = method_of(model.method)
    refitted = chosen.model in ("tree", "forest", "boosting")
    if not refitted or n == 1 or chosen.json or not isinstance(method, Paper | Kin):
        return
    runs = 2 if chosen.holdout > 0 else 1
    peers = peers_asked(method.peers, n)
    rounds = REFIT_ROUNDS if method.rounds == "auto" else int(method.rounds)
    text = (
        f"{n * peers * rounds * runs:,.0f} fits to come; fewer with --set rounds=N,"
        " --set peers=N or --holdout 0."
    )
    print(text, file=sys.stderr)


def _spec(chosen: argparse.Namespace, rows: TableRows) -> dict[str, Any]:
    """What a run is asked to do, as plain values."""
    about = {
        "table": str(chosen.table),
        "table_sha256": fingerprint(rows.path),
        "features": rows.features,
        "task": rows.task,
    }
    if in_a_file(chosen.model):
        about["module_sha256"] = fingerprint(file_and_name(chosen.model)[0])
    if chosen.public is not None:
        about["public_sha256"] = fingerprint(Path(chosen.public))
    asked = {name: vars(chosen)[name] for name in defaults(FIT) if name not in FREE}
    asked["set"] = dict(chosen.set)
    groups = (
        None if rows.groups is None else [list(each) for each in rows.groups.items()]
    )
    return about | asked | {"groups": groups}


def _print_result(
    chosen: argparse.Namespace,
    progress: Progress,
    model: Personalized,
    rows: TableRows,
    page: Path | None,
) -> None:
    """The result in a few lines."""
    if chosen.json:
        report = None if page is None else str(page)
        facts = {"notes": model.notes_, **verdict_facts(model)}
        progress.say("done", out=str(Path(chosen.out)), report=report, **facts)
        return
    n = len(model.devices_)
    counts = ", ".join([many(n, "device"), many(len(rows.y), "row")])
    names = some(rows.features, 8).replace("'", "")
    features = f"{many(len(rows.features), 'feature')} ({names})"
    print(f"{counts}, {features}, {rows.task}; {seconds(chosen)}.")
    print_answer(model, Path(chosen.out))
    if page is not None:
        asked = len(model.trust_.pairs.key) > 0
        what = "see who helps whom" if asked else "read the report"
        print(f"Open {page} to {what}.")
