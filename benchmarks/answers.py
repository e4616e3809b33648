"""Do the two answers hold: who helps, and was it worth it? A row per claim, with its goal.

    python benchmarks/answers.py [same-kind] [other-models] [digits] [no-structure] [removal]
        [stability] [verdicts] [real-verdicts] [cost]
        [--seeds 2] [--first 100] [--methods blend,paper,kin] [--plain]
        [--tables FILE:DEVICE:LABEL:ROWS[:AHEAD] ...] [--jobs 4]

same-kind     devices of known kinds: area under the ROC curve of `alike`, precision and recall of
              "helps"; linear models
other-models  the same of logistic models, trees of depth 3, a network
digits        the same of digits that are relabelled, rotated, or shifted in their features
no-structure  all devices alike, and all different: how many pairs are said to help, or to hurt
removal       house prices, and with --data FOLDER chickweight, household, wisdm: what errors rise
              by without the named helpers, as a fit tells it and as it is proved
stability     helpers named from two halves of every device's rows: rank correlation of `alike`
verdicts      the fleet's verdict and interval against fresh rows of the same devices
real-verdicts the same on the sets of `persfl run compare` and two more where later rows judge, with
              the default method (--plain: without trees, five times as fast)
cost          the processor's seconds of a fit with and without what answers take
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
from sklearn.tree import DecisionTreeRegressor

from persfl import PersonalizedClassifier, PersonalizedRegressor
from persfl.datasets import load_flights, load_housing
from persfl.devices import Devices
from persfl.evaluation.intervals import NOT_MEASURED, gains_of, over_devices
from persfl.evaluation.row_order import RowOrder
from persfl.evaluation.trials import run_trial, worth_of_trials
from persfl.fitting.quick_removal import quick_removal
from persfl.fitting.setup import Setup
from persfl.lab.comparison_sets import DataSet
from persfl.lab.comparison_specs import load_comparison
from persfl.learners import MLP
from persfl.methods import Blend
from persfl.methods.mixed import class_rule
from persfl.sources import clustered_regression, shifted_digits

DEVICES = 60
FEATURES = 10
FEW = 10  # rows of a device of the bundled tables


class Row(NamedTuple):
    """A claim: what was measured, where, and what it must be."""

    what: str
    goal: str
    found: str


# Fleets


def kinds_of_lines(
    kinds: int, noise: float, rows: int, seed: int
) -> tuple[Devices, Any]:
    """Devices of so many kinds of linear models."""
    made = clustered_regression(
        n=DEVICES, clusters=kinds, rows=rows, features=FEATURES, noise=noise, seed=seed
    )
    return made, np.asarray(made.clusters)


def lines(alike: bool, noise: float, rows: int, seed: int) -> Devices:
    """Devices of one linear model, or each of its own."""
    random = np.random.default_rng(seed)
    W = random.normal(size=(DEVICES, FEATURES))
    if alike:
        W[:] = W[0]
    parts = []
    for w in W:
        X = random.normal(size=(rows, FEATURES))
        parts.append((X, X @ w + noise * random.normal(size=rows)))
    return Devices.of(parts, quiet=True)


def _devices(X: Any, y: Any, whose: Any) -> Devices:
    """Rows in any order, by device."""
    return Devices.grouped(X, y, whose, range(int(whose.max()) + 1))


def helpers(
    rows: Devices, method: Any, estimator: Any = None, *, classes: bool = False
) -> pd.DataFrame:
    """Who helps whom, by position."""
    kind = PersonalizedClassifier if classes else PersonalizedRegressor
    model = kind(estimator, method=method, holdout=0, random_state=0)
    model.fit(rows.X, rows.y, devices=rows.owner)
    return model.helpers_


# Sections


def same_kind(chosen: argparse.Namespace) -> Iterator[Row]:
    """Known kinds."""
    for method in chosen.methods:
        for kinds in (2, 4, 8):
            for noise in (0.1, 0.5, 1.0):
                for rows in (10, 20):
                    told = []
                    for seed in range(chosen.seeds):
                        made, kind = kinds_of_lines(
                            kinds, noise, rows, chosen.first + seed
                        )
                        told.append(_told(helpers(made, method), kind))
                    goal = "AUC >= .97, precision >= .95"
                    goal += ", recall >= .8" if kinds <= 4 else ""
                    goal = goal if method == "blend" else "precision >= .95"
                    what = f"{method}, {kinds} kinds, noise {noise}, {rows} rows"
                    yield Row(what, goal, _means(told))


def other_models(chosen: argparse.Namespace) -> Iterator[Row]:
    """Known kinds of models that are not linear."""
    for name, made_by in _OTHERS.items():
        for method in chosen.methods:
            for kinds in (2, 4):
                told = []
                for seed in range(chosen.seeds):
                    made, kind = _kinds(name, kinds, chosen.first + seed)
                    estimator, classes = made_by()
                    table = helpers(made, method, estimator, classes=classes)
                    told.append(_told(table, kind))
                what = f"{method}, {name}, {kinds} kinds, 30 rows"
                yield Row(what, "precision >= .95", _means(told))


def digits(chosen: argparse.Namespace) -> Iterator[Row]:
    """Real images of known kinds."""
    goals = {"relabelled": "AUC >= .97, ", "rotated": "AUC >= .95, "}
    for method in chosen.methods:
        for shift in ("relabelled", "rotated", "feature-shifted"):
            told = []
            for seed in range(chosen.seeds):
                made = shifted_digits(shift, 40, seed=chosen.first + seed)
                table = helpers(made, method, classes=True)
                told.append(_told(table, np.asarray(made.clusters)))
            goal = goals.get(shift, "") if method == "blend" else ""
            what = f"{method}, {shift} digits"
            yield Row(what, f"{goal}precision >= .95", _means(told))


def _logistic() -> tuple[Any, bool]:
    return None, True


def _tree() -> tuple[Any, bool]:
    return DecisionTreeRegressor(max_depth=3), False


def _network() -> tuple[Any, bool]:
    return MLP(), False


_OTHERS = {"logistic": _logistic, "trees": _tree, "network": _network}


def _kinds(name: str, kinds: int, seed: int) -> tuple[Devices, Any]:
    """Forty devices with thirty rows of five features; 0 kinds: each of its own."""
    random = np.random.default_rng(seed)
    n, rows, d = 40, 30, 5
    kind = np.arange(n) % kinds if kinds else np.arange(n)
    truths = [_TRUTHS[name](random, d) for _ in range(int(kind.max()) + 1)]
    parts = []
    for k in kind.tolist():
        X = random.normal(size=(rows, d))
        y = truths[k](X)
        if name == "logistic":
            y = (y + random.logistic(size=rows) > 0) + 0.0
        else:
            y = y + 0.3 * random.normal(size=rows)
        parts.append((X, y))
    return Devices.of(parts, quiet=True), kind


def _line(random: np.random.Generator, d: int) -> Callable[[Any], Any]:
    w = 2 * random.normal(size=d)
    return lambda X: X @ w


def _steps(random: np.random.Generator, d: int) -> Callable[[Any], Any]:
    grown = DecisionTreeRegressor(max_depth=3, random_state=0)
    grown.fit(random.normal(size=(200, d)), 3 * random.normal(size=200))
    scale = float(grown.predict(random.normal(size=(500, d))).std())
    return lambda X: grown.predict(X) / scale


def _waves(random: np.random.Generator, d: int) -> Callable[[Any], Any]:
    inner = 1.5 * random.normal(size=(d, 8))
    outer = random.normal(size=8) / 2
    return lambda X: np.tanh(X @ inner) @ outer


_TRUTHS = {"logistic": _line, "trees": _steps, "network": _waves}


def _told(table: pd.DataFrame, kind: Any) -> tuple[float, float, float]:
    """Area, precision and recall."""
    same = kind[table["device"].to_numpy(int)] == kind[table["peer"].to_numpy(int)]
    says = (table["verdict"] == "helps").to_numpy()
    area = float(roc_auc_score(same, table["alike"]))
    right = float(same[says].mean()) if says.any() else np.nan
    return area, right, float(says[same].mean())


def _means(told: list[tuple[float, float, float]]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # where nothing was said
        area, right, found = np.nanmean(told, axis=0)
    return f"AUC {area:.3f}, precision {right:.2f}, recall {found:.2f}"


def no_structure(chosen: argparse.Namespace) -> Iterator[Row]:
    """Fleets without kinds."""
    for alike in (True, False):
        what = "all alike" if alike else "all different"
        goal = '"helps" >= 80 %, no "hurts"' if alike else '"helps" <= 10 %'
        for method in chosen.methods:
            asked = goal if method == "blend" or not alike else 'no "hurts"'
            for noise in (0.1, 1.0, 3.0):
                for rows in (5, 10, 20):
                    tables = [
                        helpers(lines(alike, noise, rows, chosen.first + seed), method)
                        for seed in range(chosen.seeds)
                    ]
                    title = f"{method}, {what}, noise {noise}, {rows} rows"
                    yield Row(title, asked, _said(tables))
        for name, made_by in _OTHERS.items():
            estimator, classes = made_by()
            tables = []
            for seed in range(chosen.seeds):
                made, _ = _kinds(name, int(alike), chosen.first + seed)
                tables.append(helpers(made, "blend", estimator, classes=classes))
            yield Row(f"blend, {what}, {name}", goal, _said(tables))


def _said(tables: list[pd.DataFrame]) -> str:
    """How many pairs help, and hurt."""
    shares = [
        np.mean([(table["verdict"] == word).mean() for table in tables])
        for word in ("helps", "hurts")
    ]
    return f"helps {shares[0]:.0%}, hurts {shares[1]:.0%}"


def removal(chosen: argparse.Namespace) -> Iterator[Row]:
    """Named helpers of real rows: what a fit tells by itself, and what is proved."""
    goal = "named >= random"
    for dataset in _real_sets(chosen):
        rows = dataset.dealt(chosen.first).learn
        _, classes = dataset.rows(chosen.first)
        for method in chosen.methods:
            kind = PersonalizedClassifier if classes else PersonalizedRegressor
            model = kind(method=method, random_state=0)
            model.fit(rows.X, rows.y, devices=rows.owner)
            told = model.fitted_.depends
            if told is not None:
                named = f"named {told.named}, random {told.random}"
                yield Row(f"{method}, {dataset.name}, by the fit", goal, named)
            found = model.removal(rows.X, rows.y, rows.owner, targets=chosen.targets)
            named = f"named {found.named}, random {found.random}"
            named += f"; {_kinds_said(model)}"
            what = f"{method}, {dataset.name}, without {found.many}, proved"
            yield Row(what, goal, named)


def _kinds_said(model: Any) -> str:
    """How many pairs are said to help."""
    return f"{(model.helpers_['verdict'] == 'helps').mean():.0%} help"


def _real_sets(chosen: argparse.Namespace) -> list[DataSet]:
    """House prices, and what lies in the folder --data of the other real sets."""
    folder = chosen.data or ""
    more = [
        DataSet(
            name="chickweight",
            file="chickweight.csv",
            device="Chick",
            label="weight",
            features=("Time",),
            squares=True,
            log=True,
            few=5,
            folder=folder,
        ),
        DataSet(
            name="household", file="household.npz", devices=60, few=24, folder=folder
        ),
        DataSet(name="wisdm", file="wisdm.npz", few=25, folder=folder),
    ]
    sets = [DataSet(name="txhousing", few=10), *more]
    there = [each for each in sets if not each.missing]
    return [each for each in there if not chosen.only or each.name in chosen.only]


def stability(chosen: argparse.Namespace) -> Iterator[Row]:
    """Two halves of the rows."""
    for kinds in (2, 4, 8):
        ranks = []
        for seed in range(chosen.seeds):
            made, _ = kinds_of_lines(kinds, 0.5, 20, chosen.first + seed)
            within = np.arange(len(made.y)) - made.start[made.owner]
            both = []
            for part in (0, 1):
                mine = within % 2 == part
                half = _devices(made.X[mine], made.y[mine], made.owner[mine])
                table = helpers(half, "blend").set_index(["device", "peer"])
                both.append(table["alike"].sort_index())
            ranks.append(both[0].corr(both[1], method="spearman"))
        yield Row(f"{kinds} kinds, 2 x 10 rows", "above .5", f"{np.mean(ranks):.2f}")


def verdicts(chosen: argparse.Namespace) -> Iterator[Row]:
    """What is said of the fleet, against fresh rows."""
    everything = []
    for name in (
        "alike",
        "a bit different",
        "different",
        "kinds",
        "loud",
        "housing",
        "flights",
    ):
        found = [_verdict(name, chosen.first + seed) for seed in range(chosen.draws)]
        everything += found
        yield _row_of_verdicts(name, found)
    yield _row_of_verdicts("all", everything)


def real_verdicts(chosen: argparse.Namespace) -> Iterator[Row]:
    """What is said of fleets of real rows by the default method, against rows held back."""
    everything = []
    ours = [
        replace(each, folder=chosen.data or "")
        for each in (*load_comparison("compare").sets, *_LATER)
    ]
    sets = [_set_of(text) for text in chosen.tables] or ours
    for dataset in sets:
        if dataset.missing or (chosen.only and dataset.name not in chosen.only):
            continue
        draws = [
            (dataset, chosen.first + draw, draw, chosen.plain)
            for draw in range(chosen.draws)
        ]
        with ProcessPoolExecutor(chosen.jobs) as pool:
            found = list(pool.map(_said_of, *zip(*draws, strict=True)))
        everything += found
        yield _row_of_verdicts(dataset.name, found)
    yield _row_of_verdicts("all", everything)


def _set_of(text: str) -> DataSet:
    """FILE:DEVICE:LABEL:ROWS[:AHEAD], rows in the order of time where some come ahead."""
    path, device, label, few, *ahead = text.split(":")
    file = Path(path)
    return DataSet(
        name=file.stem,
        file=file.name,
        folder=str(file.parent),
        device=device,
        label=label,
        few=int(few),
        ahead=int(ahead[0]) if ahead else 0,
    )


# later rows of fewer months, and of devices whose clock is their age
_LATER = (
    DataSet(name="next 3 months", bundled="txhousing", few=12, ahead=3),
    DataSet(
        name="next 3 weights",
        file="chickweight.csv",
        device="Chick",
        label="weight",
        features=("Time",),
        squares=True,
        log=True,
        few=8,
        ahead=3,
    ),
)


def _said_of(
    dataset: DataSet, draw: int, seed: int, plain: bool
) -> tuple[float, Any, Any]:
    """The true gain over the fleet, what was said of it, and what fresh rows say."""
    warnings.simplefilter("ignore")
    dealt = dataset.dealt(draw)
    learn = dealt.learn
    kind = PersonalizedClassifier if dealt.classes else PersonalizedRegressor
    ordered = dealt.order is not None and dealt.order.ordered
    method = Blend(trees=not plain)
    model = kind(method=method, ordered=ordered, random_state=seed)
    model.fit(learn.X, learn.y, devices=learn.owner)
    return _against_truth(model, learn, dealt.judge, dealt.classes)


def _row_of_verdicts(name: str, found: list[tuple[float, Any, Any]]) -> Row:
    told = [each for each in found if each[1].says != "not measured"]
    inside = [said.low <= true <= said.high for true, said, _ in told] or [np.nan]
    wrong = [_is_wrong(*each) for each in found]
    words = pd.Series([said.says for _, said, _ in found]).value_counts().to_dict()
    goal = "covers >= 90 %, right >= 95 %"
    said = f"covers {np.mean(inside):.0%}, right {1 - np.mean(wrong):.0%}; {words}"
    return Row(f"{name}, {len(found)} draws", goal, said)


def _is_wrong(true: float, said: Any, fresh: Any) -> bool:
    """Whether fresh rows say the opposite, of the mean error or of most devices."""
    most = fresh.better - fresh.worse
    if said.says.endswith("better for most") and most < 0:
        return True
    if said.says.endswith("worse for most") and most > 0:
        return True
    return (said.says == "helps" and true < 0) or (said.says == "hurts" and true > 0)


def _verdict(name: str, seed: int) -> tuple[float, Any, Any]:
    """The true gain over the fleet, what was said of it, and what fresh rows say."""
    learn, fresh = _bundled(name, seed) if name in _TABLES else _made_up(name, seed)
    classes = 2 if name == "flights" else 0
    kind = PersonalizedClassifier if classes else PersonalizedRegressor
    method = "fine-tuned" if classes else Blend(trees=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = kind(method=method, random_state=seed)
        model.fit(learn[0], learn[1], devices=learn[2])
    rows, rest = (_devices(*part) for part in (learn, fresh))
    return _against_truth(model, rows, rest, classes)


def _against_truth(
    model: Any, rows: Devices, fresh: Devices, classes: int
) -> tuple[float, Any, Any]:
    """The true gain over the fleet, what was said of it, and what fresh rows say."""
    trial = run_trial(
        rows,
        fresh,
        learner=model.learner_,
        units=model.units_,
        models=model.models_,
        classes=classes,
    )
    truth = worth_of_trials([trial], classes)
    own = truth.error("own")
    personal = truth.error("personal")
    true = float(gains_of(own.mean(), personal.mean()))
    judged = model.worth_
    said = NOT_MEASURED if judged is None else judged.fleet()
    return true, said, over_devices(own, personal)


_TABLES = ("housing", "flights")
Part = tuple[Any, Any, Any]


def _bundled(name: str, seed: int) -> tuple[Part, Part]:
    """Ten rows of each device to learn from, and the others."""
    bunch = load_housing() if name == "housing" else load_flights()
    mixed = bunch.frame.sample(frac=1.0, random_state=seed)
    device, label = mixed.columns[0], mixed.columns[-1]
    few = (mixed.groupby(device).cumcount() < FEW).to_numpy()
    y = mixed[label].to_numpy(float)
    y = (y == 2) + 0.0 if name == "flights" else y
    X = mixed[bunch.feature_names].to_numpy(float)
    whose = pd.factorize(mixed[device], sort=True)[0]
    return (X[few], y[few], whose[few]), (X[~few], y[~few], whose[~few])


def _made_up(name: str, seed: int) -> tuple[Part, Part]:
    """Forty devices with ten rows of five features, and 200 fresh ones of each."""
    random = np.random.default_rng(seed)
    n = 40
    W = np.tile(random.normal(size=5), (n, 1))
    if name == "different":
        W = 2 * random.normal(size=(n, 5))
    elif name in ("a bit different", "loud"):
        W = W + 0.3 * random.normal(size=(n, 5))
    elif name == "kinds":
        W = random.normal(size=(3, 5))[random.integers(3, size=n)]
    noise = np.exp(random.normal(size=n)) if name == "loud" else np.ones(n)

    def some(rows: int) -> Part:
        whose = np.repeat(np.arange(n), rows)
        X = random.normal(size=(len(whose), 5))
        y = (X * W[whose]).sum(axis=1) + noise[whose] * random.normal(size=len(whose))
        return X, y, whose

    return some(FEW), some(200)


def cost(chosen: argparse.Namespace) -> Iterator[Row]:
    """What the two answers take: refits of the fit, and the tables and verdicts after it."""
    learn, _ = _bundled("housing", chosen.first)
    rows = _devices(*learn)
    model = PersonalizedRegressor(random_state=0)
    began = time.process_time()
    model.fit(rows.X, rows.y, devices=rows.owner)
    fit = time.process_time() - began
    found = model.fitted_
    setup = Setup(found.learner, found.settings, found.schema, found.method)
    began = time.process_time()
    quick_removal(setup, rows, RowOrder(), RowOrder())
    refits = time.process_time() - began
    began = time.process_time()
    _ = model.helpers_, model.worth_.fleet()
    answers = time.process_time() - began
    share = (refits + answers) / (fit - refits)
    parts = (
        f"{share:.0%} (refits {refits:.1f} s, answers {answers:.1f} s, fit {fit:.1f} s)"
    )
    yield Row("housing, 10 rows: answers of a fit", "<= 20 % of the fit", parts)
    yield from _cost_without_refits(chosen.first)


class _Clocked:
    """A function that remembers the processor's seconds it took."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.seconds = 0.0

    def __call__(self, *args: Any) -> Any:
        began = time.process_time()
        found = self.function(*args)
        self.seconds += time.process_time() - began
        return found


def _cost_without_refits(seed: int) -> Iterator[Row]:
    """Who is alike of classes, and the tables after methods that refit nothing."""
    lines, _ = kinds_of_lines(4, 0.5, FEW, seed)
    learn, _ = _bundled("flights", seed)
    flights = _devices(*learn)
    fits = {
        "blend of classes, flights": (PersonalizedClassifier(), flights),
        "paper, lines": (PersonalizedRegressor(method="paper"), lines),
        "kin, lines": (PersonalizedRegressor(method="kin"), lines),
    }
    for what, (model, rows) in fits.items():
        clocked = _Clocked(class_rule.class_likeness)
        began = time.process_time()
        with patch.object(class_rule, "class_likeness", clocked):
            model.fit(rows.X, rows.y, devices=rows.owner)
        fit = time.process_time() - began
        began = time.process_time()
        _ = model.helpers_, model.worth_.fleet()
        answers = time.process_time() - began + clocked.seconds
        share = answers / (fit - clocked.seconds)
        parts = f"{share:.0%} (answers {answers:.2f} s, fit {fit:.1f} s)"
        yield Row(what, "<= 20 % of the fit", parts)


SECTIONS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "same-kind": same_kind,
    "other-models": other_models,
    "digits": digits,
    "no-structure": no_structure,
    "removal": removal,
    "stability": stability,
    "verdicts": verdicts,
    "real-verdicts": real_verdicts,
    "cost": cost,
}


def main() -> None:
    """Print every row as it comes."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("sections", nargs="*", default=[], metavar="SECTION")
    asked.add_argument("--seeds", type=int, default=2)
    asked.add_argument("--first", type=int, default=100, help="the first seed")
    asked.add_argument("--only", type=lambda text: text.split(","), default=[])
    asked.add_argument("--draws", type=int, default=30)
    asked.add_argument("--targets", type=int, default=12)
    asked.add_argument("--data", metavar="FOLDER")
    asked.add_argument("--plain", action="store_true", help="blend without trees")
    asked.add_argument("--tables", nargs="*", default=[], metavar="FILE:DEVICE:LABEL")
    asked.add_argument("--jobs", type=int, default=1)
    asked.add_argument(
        "--methods", type=lambda text: text.split(","), default=["blend"]
    )
    chosen = asked.parse_args()
    warnings.simplefilter("ignore")
    strange = set(chosen.sections) - set(SECTIONS)
    if strange:
        asked.error(f"no section is called {strange.pop()!r}: {', '.join(SECTIONS)}")
    for name in chosen.sections or SECTIONS:
        print(f"\n{name}")
        for row in SECTIONS[name](chosen):
            print(f"  {row.what:44} {row.goal:44} {row.found}", flush=True)


if __name__ == "__main__":
    main()
