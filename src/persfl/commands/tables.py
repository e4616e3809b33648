"""`persfl fit`, `helpers`, `report`, `compare`, `demo`: from a table to models and a report."""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from persfl.checks import many, named, some, those
from persfl.commands import modules
from persfl.commands.shown import Shown, table
from persfl.encoding import refuse_missing, refuse_numbers
from persfl.errors import InputError, need
from persfl.files import read_whole, refuse_links, write_whole
from persfl.formats import reading
from persfl.learners.named import base
from persfl.sources.table import device_codes, read_frame, refuse_endless
from persfl.spreadsheets import write_csv
from persfl.terminal import visible
from persfl.training import REFIT_ROUNDS, Forget, peers_asked

# Tables


class Rows:
    """A table read for fitting: features, labels, whose row it is."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        path = Path(chosen.table)
        frame = read_frame(
            path,
            separator=chosen.separator,
            decimal=chosen.decimal,
            thousands=chosen.thousands,
            text=chosen.device,
        )
        special = [
            chosen.device,
            chosen.label,
            *([chosen.weight] if chosen.weight else []),
            *([chosen.group] if chosen.group else []),
        ]
        unknown = [
            name
            for name in [*special, *chosen.features, *chosen.drop]
            if name not in frame.columns
        ]
        if unknown:
            near = difflib.get_close_matches(
                unknown[0], [str(name) for name in frame.columns], n=1
            )
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise InputError(
                f"{path.name!r} has no {named(unknown, 'column')}. Its columns:"
                f" {some(list(frame.columns), 12)}.{hint}"
            )
        if len(set(special)) < len(special):
            raise InputError(
                "--device, --label, --weight and --group must be different columns. Got"
                f" {', '.join(special)}."
            )
        if not len(frame):
            raise InputError(f"{path.name!r} has no rows.")
        kept = chosen.features or [
            name
            for name in frame.columns
            if name not in special and name not in chosen.drop
        ]
        wrong = [name for name in kept if name in (chosen.device, chosen.label)]
        if wrong:
            raise InputError(
                f"--features must leave out the device and the label. Got {wrong[0]!r}."
            )
        if not kept:
            raise InputError(
                f"{path.name!r} has no feature columns beside {', '.join(special)}. Add at least"
                " one."
            )
        self.path, self.features = path, [str(name) for name in kept]
        self.X = frame[kept]
        gone = int(frame[chosen.label].isna().sum())
        if gone:
            raise InputError(
                f"{gone} of {len(frame)} rows have no label in column {chosen.label!r}. Drop those"
                " rows."
            )
        self.y, self.devices = frame[chosen.label], frame[chosen.device]
        device_codes(self.devices, len(frame), where=f"column {chosen.device!r}")
        refuse_endless(frame[[*kept, chosen.label]], path)
        self.weight = (
            _weights(frame[chosen.weight], chosen.weight) if chosen.weight else None
        )
        self.groups: dict[Any, Any] | None = None
        if chosen.group:
            refuse_missing(frame[[chosen.group]])
            pairs = frame[[chosen.device, chosen.group]].drop_duplicates()
            twice = pairs[chosen.device][pairs[chosen.device].duplicated()]
            if len(twice):
                raise InputError(
                    "--group must be the same in all rows of a device. Device"
                    f" {str(twice.iloc[0])!r} has several."
                )
            self.groups = dict(
                zip(
                    pairs[chosen.device].tolist(),
                    pairs[chosen.group].astype(str).tolist(),
                    strict=True,
                )
            )
        self.task, remark = _task(self.y, chosen.task, chosen.label)
        self.remarks = [text for text in (remark, _counting(self.X)) if text]
        if (
            self.task == "classification"
            and pd.api.types.is_float_dtype(self.y)
            and (self.y % 1 != 0).any()
        ):
            # names of classes, which scikit-learn would take for measurements
            self.y = self.y.map(str)


def _task(y: pd.Series, asked: str, name: str) -> tuple[str, str]:
    """What kind of label this is, and what a person should know about that choice."""
    numbers = pd.api.types.is_numeric_dtype(y) and not pd.api.types.is_bool_dtype(y)
    kinds = y.nunique()
    if asked == "classification" and numbers and kinds > 1000:
        raise InputError(
            f"column {name!r} has {kinds} different numbers: too many to be classes."
        )
    if asked == "regression" and not numbers:
        raise InputError(
            f"--task regression needs numbers in column {name!r}. Got {y.tolist()[0]!r}."
        )
    if asked != "auto":
        return asked, ""
    if pd.api.types.is_bool_dtype(y):
        return "classification", f"{name} holds True and False, taken as classes."
    if not numbers:
        refuse_numbers(y, name)
        if kinds > 1000 or (kinds > 20 and kinds > len(y) / 2):
            raise InputError(
                f"column {name!r} has {kinds} different texts such as {y.iloc[0]!r}: too many to be"
                " classes."
            )
        return (
            "classification",
            f"{name} holds {kinds} different texts, taken as classes.",
        )
    if kinds == 2:
        return (
            "classification",
            f"{name} has two values, so they are taken as classes (--task regression for numbers).",
        )
    if kinds <= 20 and (y % 1 == 0).all():
        return (
            "regression",
            (
                f"{name} has {kinds} different whole numbers, taken as numbers (--task"
                " classification for classes)."
            ),
        )
    return "regression", ""


def _counting(X: pd.DataFrame) -> str:
    """What to say of columns that only count the rows, as tables from a spreadsheet or from R
    have them.
    """
    first = {
        name: X[name].iloc[0]
        for name in X.columns
        if pd.api.types.is_integer_dtype(X[name])
    }
    counts = np.arange(len(X))
    found = [
        name
        for name, start in first.items()
        if start in (0, 1) and (X[name] == start + counts).all()
    ]
    if not found or len(X) < 10:
        return ""
    what = those(found, "only counts", "only count", thing="column")
    drop = f"--drop {','.join(found)}"
    return f"{what} the rows and is learned from all the same. Leave it out: {drop}."


def _weights(values: pd.Series, name: str) -> Any:
    if (
        not pd.api.types.is_numeric_dtype(values)
        or values.isna().any()
        or not (values >= 0).all()
        or np.isinf(values).any()
    ):
        raise InputError(
            f"--weight {name!r} must hold finite numbers of at least 0 in every row."
        )
    return values.to_numpy(dtype=np.float64)


def _base(model: str, task: str) -> Any:
    """The base estimator of a model's name."""
    return (
        modules.load(model)
        if _in_a_file(model)
        else base(model, classes=task == "classification")
    )


def _in_a_file(model: str) -> bool:
    return ".py" in model


def _model(chosen: argparse.Namespace, rows: Rows) -> Any:
    from persfl.estimators import PersonalizedClassifier, PersonalizedRegressor

    kind = (
        PersonalizedClassifier
        if rows.task == "classification"
        else PersonalizedRegressor
    )
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
        _base(chosen.model, rows.task),
        method=chosen.method,
        budget=chosen.budget,
        ordered=chosen.ordered,
        peers=chosen.peers,
        rounds=chosen.rounds,
        step_size=chosen.step_size,
        units=chosen.units,
        public=public,
        holdout=chosen.holdout,
        trials=chosen.trials,
        fallback=getattr(chosen, "fallback", False),
        # comparing needs no model for newcomers
        unseen=getattr(chosen, "unseen", "error"),
        impute=chosen.impute,
        compute=chosen.compute,
        n_jobs=chosen.jobs,
        random_state=chosen.seed,
    )


# Commands


def fit(chosen: argparse.Namespace) -> int:
    """Models for every device of a table, kept in a folder, with a report."""
    from persfl import runs

    need("pyarrow", extra="app", why="keeping a run")
    out = Path(chosen.out)
    if out.exists() and not out.is_dir():
        raise InputError(
            f"--out {str(out)!r} is a file. Name a folder for the run, one that is not there yet."
        )
    if out.resolve() in Path(chosen.table).resolve().parents:
        raise InputError(
            f"the table lies in {str(out)!r}. Choose an --out of its own for the run."
        )
    rows = Rows(chosen)
    model = _model(chosen, rows)
    if chosen.model == "mlp" or _in_a_file(chosen.model):
        need("torch", extra="torch", why="a network")
        need("safetensors", extra="torch", why="keeping networks")
    runs.refuse_unkept(model)
    spec = _spec(chosen, rows)
    folder, aside = _folder(out, spec, chosen)
    if folder is None:
        return 0
    # Those that another command sets aside from now on are none of ours.
    replaced = _asides(_behind(out)) if chosen.force or chosen.resume else []
    _remark(chosen, rows.remarks)
    shown = Shown(folder, lines=chosen.json)
    _announce(chosen, rows, model)
    before = bool(folder.index["stages"]) or chosen.resume  # there is something to lose
    try:
        model._fit(rows.X, rows.y, rows.devices, rows.weight, keep=shown)
        runs.keep_model(folder, model)
    # a module of the user's may raise anything, and what --force set aside must come back all the
    # same
    except Exception as error:
        shown.close()
        done = before or bool(folder.index["stages"]) or folder.finished
        if done or isinstance(error, OSError):
            folder.close()
            _say_aside(aside)
        else:  # nothing is done yet: the corrected command finds the place as it was
            folder.discard()
            _put_back(aside, _behind(out))
        raise
    except KeyboardInterrupt:
        shown.close()
        folder.save()
        folder.close()
        _say_aside(aside)
        print(
            f"\npersfl: stopped; what is done is kept in {out}. Go on with the same command and"
            " --resume.",
            file=sys.stderr,
        )
        return 130
    shown.close()
    for old in replaced:
        _remove_run(old)
    where = None if chosen.no_report else _report(folder, model, out / "report.html")
    _said(chosen, shown, model, rows, out, where)
    return 0


def _announce(chosen: argparse.Namespace, rows: Rows, model: Any) -> None:
    """Refits take their time: say how many there will be before they start."""
    from persfl.estimators.method import method_of
    from persfl.methods.blend.offers.refits import fits_to_come

    n = rows.devices.nunique()
    if chosen.model not in ("tree", "forest", "boosting") or n == 1 or chosen.json:
        return
    if method_of(model).name == "blend":
        fits = fits_to_come(
            n,
            chosen.budget,
            classes=rows.task == "classification",
            ordered=chosen.ordered,
        )
        runs = 2 if chosen.holdout > 0 else 1
        print(
            f"Up to {fits * runs:,} fits to come, {chosen.budget:,} a device and run that it asks"
            " others for at most; fewer with --budget or --holdout 0.",
            file=sys.stderr,
        )
    else:
        peers = peers_asked(chosen.peers, n)
        rounds = REFIT_ROUNDS if chosen.rounds == "auto" else chosen.rounds
        runs = 2 if chosen.holdout > 0 else 1
        print(
            f"{n * peers * rounds * runs:,.0f} fits to come; fewer with --rounds, --peers or"
            " --holdout 0.",
            file=sys.stderr,
        )


def _folder(
    out: Path, spec: dict[str, Any], chosen: argparse.Namespace
) -> tuple[Any, Path | None]:
    """A new folder, or with --resume the one that is there, and where --force set a run aside.

    No folder if there is nothing left to do.
    """
    from persfl.runs import INDEX, Folder, refuse_held

    out = _behind(out)
    there = (out / INDEX).is_file()
    full = out.is_dir() and any(out.iterdir())
    if chosen.resume and there:
        return _resumed(out, spec), None
    if chosen.resume and full and not _only_a_lock(out):
        raise InputError(
            f"{str(out)!r} is not a run folder: there is nothing to resume. Choose another --out."
        )
    aside = None
    if chosen.force and full and not _only_a_lock(out):
        if not there:
            raise InputError(
                f"{str(out)!r} is not a run folder, so --force does not remove it. Choose another"
                " --out."
            )
        refuse_held(out)
        strange = Folder.open(out).strangers()
        if strange:
            raise InputError(
                f"{str(strange[0])!r} does not belong to the run, so --force does not remove it."
                " Choose another --out."
            )
        aside = _aside(out)
        out.rename(aside)  # until the new run is there
    try:
        return Folder.create(out, spec), aside
    except BaseException:
        _put_back(aside, out)
        raise


def _resumed(out: Path, spec: dict[str, Any]) -> Any:
    """The run that is there, if it is the same and not over."""
    from persfl.runs import Folder

    folder = Folder.open(out, lock=True)
    try:
        before = folder.spec
        changed = [key for key in spec if before.get(key) != spec[key]]
        if changed:
            key = changed[0]
            raise InputError(
                f"{str(out)!r} holds another run: "
                f"{key} was {before.get(key)!r} and is {spec[key]!r} now. "
                "Use the same command to resume, or another --out."
            )
    except BaseException:
        folder.close()
        raise
    if folder.finished:
        folder.close()
        print(f"{out} is finished already. Its report: persfl report {out}")
        return None
    return folder


def _behind(out: Path) -> Path:
    """The folder itself where a link leads to it: --force replaces the run, not the link."""
    nameless = out.name in (
        "",
        "..",
    )  # the folder that the person stands in, or the one above
    return out.resolve() if nameless or out.is_symlink() else out


def _only_a_lock(out: Path) -> bool:
    """Whether a run was killed here before it had written anything."""
    from persfl.files import LOCK

    return [path.name for path in out.iterdir()] == [LOCK]


def _aside(out: Path) -> Path:
    """Where a run that --force replaces waits until the new one is there: a name that is free.

    One that waits there already, because its successor was cut, is not lost by a second --force.
    """
    name = f".{out.name}.replaced"
    path, k = out.with_name(name), 1
    while path.exists() or path.is_symlink():
        k += 1
        path = out.with_name(f"{name}-{k}")
    return path


def _asides(out: Path) -> list[Path]:
    """The runs that wait beside a folder."""
    name = f".{out.name}.replaced"
    beside = [
        path for path in out.resolve().parent.iterdir() if path.name.startswith(name)
    ]
    return [
        path
        for path in beside
        if re.fullmatch(r"(-[0-9]+)?", path.name.removeprefix(name))
    ]


def _put_back(aside: Path | None, out: Path) -> None:
    """A run that --force set aside, where it was; beside it if somebody has put something there."""
    if aside is None:
        return
    if out.exists():
        _say_aside(aside)
    else:
        aside.rename(out)


def _say_aside(aside: Path | None) -> None:
    if aside is not None:
        text = f"persfl: the run that --force replaced is in {aside}."
        print(text, file=sys.stderr)


def _remove_run(path: Path) -> None:
    """Remove the files of a run folder, and the folder if it held nothing else."""
    from persfl.runs import INDEX, Folder

    if (path / INDEX).is_file() and not path.is_symlink():
        try:
            Folder.open(path).remove()
        except InputError:  # of another version, or damaged: then it stays
            print(
                f"persfl: the run that --force replaced is in {path}.", file=sys.stderr
            )


def _spec(chosen: argparse.Namespace, rows: Rows) -> dict[str, Any]:
    from persfl.files import fingerprint

    settings = (
        "device",
        "label",
        "weight",
        "group",
        "model",
        "method",
        "budget",
        "ordered",
        "peers",
        "rounds",
        "step_size",
        "units",
        "holdout",
        "trials",
        "fallback",
        "unseen",
        "impute",
        "seed",
        "separator",
        "decimal",
        "thousands",
        "public",
        "compute",
    )
    asked = {name: getattr(chosen, name) for name in settings}
    about = {
        "table": str(chosen.table),
        "table_sha256": fingerprint(rows.path),
        "features": rows.features,
        "task": rows.task,
    }
    if _in_a_file(chosen.model):
        about["module_sha256"] = fingerprint(modules.split(chosen.model)[0])
    if chosen.public is not None:
        about["public_sha256"] = fingerprint(Path(chosen.public))
    groups = (
        None
        if rows.groups is None
        else [[name, group] for name, group in rows.groups.items()]
    )
    return about | asked | {"groups": groups}


def _said(
    chosen: argparse.Namespace,
    shown: Shown,
    model: Any,
    rows: Rows,
    out: Path,
    where: Path | None,
) -> None:
    """The result in a few lines."""
    if chosen.json:
        report = None if where is None else str(where)
        shown.say(
            "done",
            out=str(out),
            report=report,
            notes=model.notes_,
            **verdict_facts(model),
        )
        return
    counts = ", ".join([many(len(model.devices_), "device"), many(len(rows.y), "row")])
    names = some(rows.features, 8).replace("'", "")
    print(
        f"{counts}, {many(len(rows.features), 'feature')} ({names}), {rows.task};"
        f" {_seconds(chosen)}."
    )
    print_answer(model, out)
    if where is not None:
        what = "see who helps whom" if len(model.devices_) > 1 else "read the report"
        print(f"Open {where} to {what}.")


def verdict_facts(model: Any) -> dict[str, Any]:
    """The fleet's verdict for programs; nothing where no rows were held back."""
    return {} if model.worth_ is None else dict(model.worth_.fleet()._asdict())


def print_answer(model: Any, out: Path) -> None:
    """What came out, for people: notes, the verdict, every error, and where the run is kept."""
    from persfl.report.info import better_rivals, sentence

    for note in model.notes_:
        print(visible(note))
    if model.worth_ is not None:
        print(sentence(model.worth_.fleet(), int(model.worth_.table["held"].sum())))
        for note in better_rivals(model.worth_):
            print(note)
        print()
        arms(model.worth_)
    print(f"\nModels and rounds are in {out}/.")


def _seconds(chosen: argparse.Namespace) -> str:
    """How long the person has waited, reading the packages included."""
    return f"{time.perf_counter() - chosen.began:.0f} s"


def arms(worth: Any) -> None:
    """Errors of all methods."""
    from persfl.evaluation.intervals import percent
    from persfl.lab.trial import summary

    rows = []
    for name, row in summary(worth).iterrows():
        gain = (
            ""
            if pd.isna(row.get("gain"))
            else f"{percent(row.gain)} ({percent(row.low)} to {percent(row.high)})"
        )
        mistakes = (f"{row.mistakes:.3f}",) if worth.classes else ()
        rows.append(
            (str(name), f"{row.error:.4f}", f"{row['median']:.4f}", *mistakes, gain)
        )
    mistakes = ("mistakes",) if worth.classes else ()
    table(
        (
            "held-out error of",
            "mean",
            "median",
            *mistakes,
            "removed by personalizing (95 % interval)",
        ),
        rows,
    )


def _remark(chosen: argparse.Namespace, remarks: list[str]) -> None:
    for text in [] if chosen.json else remarks:
        print(text, file=sys.stderr)


def _report(folder: Any, model: Any, path: Path) -> Path:
    from persfl.report import info, write_report

    spec = asked_of(folder)
    groups = None if not spec.get("groups") else dict(spec["groups"])
    with reading(folder.path):  # its numbers may make no sense together
        found = info(
            model, device=str(spec["device"]), label=str(spec["label"]), groups=groups
        )
    return write_report(found | {"federation": bool(spec.get("federated"))}, path)


def asked_of(folder: Any) -> dict[str, Any]:
    """What a run was asked, if it says what reports and predictions need."""
    from persfl.runs.model_checks import check_spec

    spec: dict[str, Any] = folder.spec
    with reading(folder.path / "spec.json"):
        check_spec(spec)
    return spec


def report(chosen: argparse.Namespace) -> int:
    """The page of a finished run, and the federation's own where it was one."""
    ending(chosen.out, ".html", table=chosen.run)
    if chosen.out and Path(chosen.out).name == "federation.html":
        why = "federation.html is that of a federation's own page"
        raise InputError(f"--out must have another name: {why}.")
    for path in write_reports(
        Path(chosen.run), Path(chosen.out) if chosen.out else None, chosen=chosen
    ):
        print(path)
    return 0


def write_reports(
    run: Path, out: Path | None = None, chosen: argparse.Namespace | None = None
) -> list[Path]:
    """Write the pages of a run folder and return where they are."""
    from persfl.runs import Folder, load_model

    folder, pages = Folder.open(run), []
    where = out or run / "report.html"
    if "federation.json" in folder.index["files"]:
        from persfl.report.federation_page import is_ours, write_federation

        facts = folder.read_json("federation.json")
        beside = where.with_name("federation.html")
        if beside.exists() and not is_ours(beside):
            what = f"{str(beside)!r} is there and was not made by persfl"
            raise InputError(f"{what}. Choose another folder for --out.")
        with reading(run / "federation.json"):
            pages.append(write_federation(facts, beside))
    if not pages or "model.json" in folder.index["files"]:
        pages.insert(
            0,
            _report(
                folder, load_model(run) if chosen is None else loaded(chosen), where
            ),
        )
    return pages


def loaded(chosen: argparse.Namespace) -> Any:
    """A run's model."""
    from persfl.runs import load_model

    return load_model(
        chosen.run, module=modules.load(chosen.module) if chosen.module else None
    )


def helpers(chosen: argparse.Namespace) -> int:
    """Who helps a device, ranked; or everything, exported."""
    from persfl.report.export import export

    model = loaded(chosen)
    with reading(Path(chosen.run)):
        found = model.helpers_
    if chosen.device is not None:
        names = found["device"].astype(str)
        if chosen.device not in set(names):
            near = difflib.get_close_matches(chosen.device, sorted(set(names)), n=3)
            hint = (
                f"Did you mean {some(near)}?"
                if near
                else f"Known: {some(sorted(set(names)), 5)}."
            )
            raise InputError(
                f"there is no device {chosen.device!r} that asked anybody. {hint}"
            )
        found = found[names == chosen.device]
    if chosen.export:
        print(export(found, chosen.export, verbatim=chosen.verbatim))
        return 0
    if chosen.json:
        print(found.to_json(orient="records"))
        return 0
    if chosen.device is None:
        shown = found.groupby("device", sort=False, observed=True).head(1)
        what = "each device's most adopted peer"
    else:
        shown, what = (
            found,
            f"{len(found)} peers that {chosen.device} asked, most adopted first",
        )
    head = (
        "device",
        "peer",
        "asked",
        "adopted",
        "share",
        "reward",
        "95 % interval",
        "verdict",
    )
    rows = [
        (
            str(r.device),
            str(r.peer),
            str(r.asked),
            _taken(r.adopted),
            f"{r.share:.1%}",
            _known(r.reward_mean),
            f"{r.reward_low:.3g} to {r.reward_high:.3g}"
            if r.reward_low == r.reward_low
            else "",
            str(r.verdict),
        )
        for r in shown.head(chosen.top).itertuples(index=False)
    ]
    table(head, rows)
    more = len(shown) - len(rows)
    print(f"\n{what}" + (f"; {more} more: --top {len(shown)}" if more > 0 else ""))
    return 0


def _known(number: float) -> str:
    """A number, or nothing where there is none: a peer that was asked and never answered has no
    reward.
    """
    return f"{number:.3g}" if number == number else ""


def compare(chosen: argparse.Namespace) -> int:
    """All methods on the same held-out rows."""
    from persfl.commands import comparing
    from persfl.lab.trial import compare as compared
    from persfl.lab.trial import summary

    over_seeds = comparing.asked(chosen)
    ending(chosen.out, ".csv", *([".json"] if over_seeds else []), table=chosen.table)
    rows = Rows(chosen)
    _remark(chosen, rows.remarks)
    model = _model(chosen, rows)
    if over_seeds:
        devices = model._learn_rows(rows.X, rows.y, rows.devices, rows.weight)
        devices.check(quiet=True)
        return comparing.compare_methods(
            chosen, rows.path.name, devices, model._classes
        )
    shown = Shown(Forget(), lines=chosen.json)
    worth = compared(
        model, rows.X, rows.y, rows.devices, sample_weight=rows.weight, keep=shown
    )
    shown.close()
    per_device = worth.device().rename(columns={"personal": "personalized"})
    if chosen.out:
        write_csv(per_device, Path(chosen.out), verbatim=chosen.verbatim)
    if chosen.json:
        print(
            json.dumps(
                {
                    "event": "done",
                    "methods": json.loads(
                        summary(worth).reset_index().to_json(orient="records")
                    ),
                }
            )
        )
        return 0
    held = worth.table["held"]
    rows_of = (
        f"{many(int(held.sum()), 'row')} of {many(int((held > 0).sum()), 'device')}"
    )
    what = (
        "Brier score"
        if worth.classes
        else "mean squared error over the label's variance"
    )
    print(f"{what}, on {rows_of} that no model saw; {_seconds(chosen)}.\n")
    arms(worth)
    print(
        "\nThe last column counts every device once. Where its interval contains 0, the difference"
        " may be chance."
    )
    if chosen.out:
        print(f"Every device's errors are in {chosen.out}.")
    print("All methods on equal terms, kin and blend too: add --seeds 5.")
    return 0


def _taken(answers: float) -> str:
    """How many answers were adopted; parts of one where an adopter mixes.

    >>> _taken(12.0), _taken(4.75651), _taken(2.58e-5)
    ('12', '4.76', '<0.01')
    """
    if answers == round(answers):
        return f"{answers:.0f}"
    return f"{answers:.2f}" if answers >= 0.01 else "<0.01"


def ending(out: str | None, *endings: str, table: str) -> None:
    """Stop before the work, not after it, where its result could not be written."""
    if out is not None and Path(out).resolve() == Path(table).resolve():
        raise InputError(
            f"--out {str(out)!r} is the table itself. Choose another file."
        )
    if out is not None and Path(out).suffix not in endings:
        raise InputError(
            f"--out must end in {' or '.join(endings)}. Got {Path(out).name!r}."
        )
    if out is not None and not Path(out).resolve().parent.is_dir():
        raise InputError(
            f"there is no folder {str(Path(out).parent)!r} to write {Path(out).name!r} into."
        )


def _refuse_others(out: Path, content: bytes) -> None:
    """Stop where a demo would replace what is not a demo's: its table, or the run beside it."""
    from persfl.runs import INDEX, Folder

    if not out.exists() or not any(out.iterdir()):
        return
    refuse_links(out)
    table, run = out / "housing.csv", out / "run"
    its = table.is_file() and read_whole(table) == content
    if its and (run / INDEX).is_file():
        digest = hashlib.sha256(content).hexdigest()
        its = Folder.open(run).spec.get("table_sha256") == digest
    if not its:
        raise InputError(
            f"{str(out)!r} is there and was not made by a demo. Choose another --out."
        )


def demo(chosen: argparse.Namespace) -> int:
    """Bundled real data: 46 Texan cities, eight months of house prices each."""
    from persfl.cli import parser
    from persfl.datasets import load_housing

    out = Path(chosen.out)
    housing = load_housing()
    few = (
        housing.frame.sample(frac=1.0, random_state=0)
        .groupby("city")
        .head(8)
        .sort_values(["city", "year", "month"])
    )
    content = few.to_csv(index=False).encode()
    _refuse_others(out, content)
    write_whole(out / "housing.csv", content)
    command = [
        "fit",
        str(out / "housing.csv"),
        "--device",
        "city",
        "--label",
        "log_price",
        "--out",
        str(out / "run"),
        "--force",
    ]
    print(
        "46 Texan cities want to predict house prices. Each has eight months of its own and shows"
        " them to nobody."
    )
    print("The same for your own table:\n")
    print(f"  persfl {' '.join(command[:-1])}\n", flush=True)
    asked = parser().parse_args([*command, *(["--json"] if chosen.json else [])])
    asked.began = chosen.began
    return fit(asked)
