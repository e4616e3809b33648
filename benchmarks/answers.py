"""Do the two answers hold: who helps, and was it worth it? A row per claim, with its goal.

    python benchmarks/answers.py [same-kind] [no-structure] [removal] [stability] [verdicts] [cost]
        [--seeds 2] [--methods blend,paper,kin]

same-kind     devices of known kinds: area under the ROC curve of `alike`, precision and recall of
              "helps"; linear models for all methods, digits with --digits (minutes each)
no-structure  all devices alike, and all different: how many pairs are said to help
removal       house prices, ten months of each city: what errors rise by without the named helpers
stability     helpers named from two halves of every device's rows: rank correlation of `alike`
verdicts      the fleet's verdict and interval against fresh rows of the same devices
cost          seconds of a fit with and without what answers take
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from persfl import PersonalizedClassifier, PersonalizedRegressor
from persfl.datasets import load_flights, load_housing
from persfl.devices import Devices
from persfl.evaluation.intervals import gains_of, over_devices
from persfl.evaluation.trials import run_trial, worth_of_trials
from persfl.methods import Blend
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


def helpers(rows: Devices, method: Any, *, classes: bool = False) -> pd.DataFrame:
    """Who helps whom, by position."""
    kind = PersonalizedClassifier if classes else PersonalizedRegressor
    model = kind(method=method, holdout=0, random_state=0)
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
                        made, kind = kinds_of_lines(kinds, noise, rows, 100 + seed)
                        told.append(_told(helpers(made, method), kind))
                    goal = "AUC >= .97, precision >= .95"
                    goal += ", recall >= .8" if kinds <= 4 else ""
                    goal = goal if method == "blend" else "precision >= .95"
                    what = f"{method}, {kinds} kinds, noise {noise}, {rows} rows"
                    yield Row(what, goal, _means(told))
    for shift in ("relabelled", "rotated", "feature-shifted") if chosen.digits else ():
        for method in chosen.methods:
            made = shifted_digits(shift, 40, seed=100)
            told = [
                _told(helpers(made, method, classes=True), np.asarray(made.clusters))
            ]
            yield Row(f"{method}, {shift} digits", "precision >= .95", _means(told))


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
        for noise in (0.1, 1.0, 3.0):
            for rows in (5, 10, 20):
                said = [
                    (
                        helpers(lines(alike, noise, rows, 100 + seed), "blend")[
                            "verdict"
                        ]
                        == "helps"
                    )
                    for seed in range(chosen.seeds)
                ]
                share = np.mean([each.mean() for each in said])
                what = "all alike" if alike else "all different"
                goal = '"helps" >= 80 %' if alike else '"helps" <= 10 %'
                yield Row(f"{what}, noise {noise}, {rows} rows", goal, f"{share:.0%}")


def removal(chosen: argparse.Namespace) -> Iterator[Row]:
    """Named helpers of real rows."""
    for method in chosen.methods:
        learn, _ = _bundled("housing", 100)
        model = PersonalizedRegressor(method=method, holdout=0, random_state=0)
        model.fit(learn[0], learn[1], devices=learn[2])
        found = model.removal(*learn, targets=chosen.targets)
        named = f"named {found.named}, random {found.random}"
        goal = "named at least as much as random"
        yield Row(f"{method}, housing, without {found.many}", goal, named)


def stability(chosen: argparse.Namespace) -> Iterator[Row]:
    """Two halves of the rows."""
    for kinds in (2, 4, 8):
        ranks = []
        for seed in range(chosen.seeds):
            made, _ = kinds_of_lines(kinds, 0.5, 20, 100 + seed)
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
        found = [_verdict(name, 100 + seed) for seed in range(chosen.draws)]
        everything += found
        yield _row_of_verdicts(name, found)
    yield _row_of_verdicts("all", everything)


def _row_of_verdicts(name: str, found: list[tuple[float, Any, Any]]) -> Row:
    inside = [said.low <= true <= said.high for true, said, _ in found]
    wrong = [
        (said.says == "helps" and true < 0) or (said.says == "hurts" and true > 0)
        for true, said, _ in found
    ]
    words = pd.Series([said.says for _, said, _ in found]).value_counts().to_dict()
    goal = "covers >= 90 %, right >= 95 %"
    said = f"covers {np.mean(inside):.0%}, right {1 - np.mean(wrong):.0%}; {words}"
    return Row(f"{name}, {len(found)} draws", goal, said)


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
    trial = run_trial(
        rows,
        rest,
        learner=model.learner_,
        units=model.units_,
        models=model.models_,
        classes=classes,
    )
    truth = worth_of_trials([trial], classes)
    own = truth.error("own")
    personal = truth.error("personal")
    true = float(gains_of(own.mean(), personal.mean()))
    return true, model.worth_.fleet(), over_devices(own, personal)


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
    """What the two answers take."""
    made, _ = kinds_of_lines(4, 0.5, 20, 100)
    began = time.perf_counter()
    model = PersonalizedRegressor(method=Blend(trees=False), random_state=0)
    model.fit(made.X, made.y, devices=made.owner)
    fit = time.perf_counter() - began
    began = time.perf_counter()
    _ = model.helpers_, model.worth_.fleet()
    answers = time.perf_counter() - began
    yield Row(
        "helpers_ and verdict after a fit", "<= 20 % of the fit", f"{answers / fit:.0%}"
    )


SECTIONS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "same-kind": same_kind,
    "no-structure": no_structure,
    "removal": removal,
    "stability": stability,
    "verdicts": verdicts,
    "cost": cost,
}


def main() -> None:
    """Print every row as it comes."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("sections", nargs="*", default=[], metavar="SECTION")
    asked.add_argument("--seeds", type=int, default=2)
    asked.add_argument("--draws", type=int, default=30)
    asked.add_argument("--targets", type=int, default=12)
    asked.add_argument(
        "--methods", type=lambda text: text.split(","), default=["blend"]
    )
    asked.add_argument("--digits", action="store_true")
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
