"""Measures what the settings page says: held-out error of one changed setting at a time, on the
bundled data.

python docs/measure_settings.py            all tables, three draws each (about ten minutes)
python docs/measure_settings.py --draws 1  a first look
python docs/measure_settings.py --only default,rows,budget,paper,trees    some of them

Every draw gives each device ten random rows to learn from and keeps all its other rows to judge by.
An error is the mean over devices: mean squared error over the label's variance (housing), share of
wrong labels (flights). Shown is the mean over draws and, after ±, half of the range between the
lowest and the highest draw. Draw k has seed k.
"""

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from persfl import (
    BestOrStay,
    PersflWarning,
    PersonalizedClassifier,
    PersonalizedRegressor,
    TopK,
    Tree,
    Weighted,
)
from persfl.datasets import load_flights, load_housing
from persfl.evaluation.trials import run_trial, worth_of_trials
from persfl.evaluation.verdicts import ARMS
from persfl.sources import from_table

ROWS = 10
NUMBERS = (5, 10, 20, 40)  # rows per city; the smallest city has 62
RUNAWAY = 10  # an error this many times the label's variance is no model any more
DEFAULT: dict[str, Any] = {}
PAPER = {"method": "paper"}
BUDGET = [("40", {"budget": 40}), ("160", {"budget": 160}), ("640 (default)", DEFAULT)]
LINEAR: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "rounds": [
        ("10", {"rounds": 10}),
        ("30", {"rounds": 30}),
        ("100 (default)", DEFAULT),
        ("300", {"rounds": 300}),
    ],
    "peers": [
        ("1", {"peers": 1}),
        ("5", {"peers": 5}),
        ("20 (default)", DEFAULT),
        ("45", {"peers": 45}),
    ],
    "step_size": [
        *((f"auto x {x:g}", {"times": x}) for x in (0.1, 0.3)),
        ("auto (default)", DEFAULT),
        *((f"auto x {x:g}", {"times": x}) for x in (3, 10, 100)),
    ],
    "adopter": [
        ("Best() (default)", DEFAULT),
        *((repr(a), {"adopter": a}) for a in (BestOrStay(), TopK(4), Weighted(0.02))),
    ],
    "units": [
        ("shared (default)", DEFAULT),
        ("centred", {"units": "centred"}),
        ("raw", {"units": "raw"}),
    ],
}
TREES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "method": [("blend (default)", {"method": "blend"}), ("paper", DEFAULT)],
    "rounds": [("1", {"rounds": 1}), ("5", {"rounds": 5}), ("20 (default)", DEFAULT)],
    "step_size": [
        ("0.1", {"step_size": 0.1}),
        ("1 (default)", DEFAULT),
        ("10", {"step_size": 10}),
    ],
    "public": [
        ("10", {"public": 10}),
        ("100 (default)", DEFAULT),
        ("1000", {"public": 1000}),
    ],
    "units": [
        ("raw (default)", DEFAULT),
        ("shared", {"units": "shared"}),
        ("centred", {"units": "centred"}),
    ],
}


class Problem:
    """A table, cut anew in every draw."""

    def __init__(
        self, bunch: Any, device: str, label: str, kind: Any, auto: float
    ) -> None:
        self.frame, self.features = bunch.frame, bunch.feature_names
        self.device, self.label, self.kind, self.auto = device, label, kind, auto

    def cut(self, seed: int, rows: int = ROWS) -> tuple[pd.DataFrame, pd.DataFrame]:
        """So many random rows of every device, and the rest."""
        mixed = self.frame.sample(frac=1.0, random_state=seed)
        few = mixed.groupby(self.device).cumcount() < rows
        return mixed[few].sort_index(), mixed[~few].sort_index()

    def fitted(self, few: pd.DataFrame, seed: int, settings: dict[str, Any]) -> Any:
        """A model with these settings; `times` is a step size in units of the automatic one."""
        settings = dict(settings)
        if "times" in settings:
            settings["step_size"] = self.auto * settings.pop("times")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PersflWarning)
            model = self.kind(**{"holdout": 0, "random_state": seed} | settings)
            return model.fit(
                few[self.features], few[self.label], devices=few[self.device]
            )

    def error(self, model: Any, rest: pd.DataFrame) -> float:
        """The mean over devices."""
        found = model.predict(rest[self.features], devices=rest[self.device])
        if self.kind is PersonalizedClassifier:
            return float(
                (found != rest[self.label]).groupby(rest[self.device]).mean().mean()
            )
        return float(
            ((found - rest[self.label]) ** 2).groupby(rest[self.device]).mean().mean()
            / rest[self.label].var(ddof=0)
        )

    def rivals(
        self, few: pd.DataFrame, rest: pd.DataFrame, seed: int
    ) -> dict[str, float]:
        """What own rows alone, one model for all, fine-tuning and the paper's rule reach on the
        same rows.
        """
        model = self.fitted(few, seed, {})
        paper = self.fitted(few, seed, PAPER)
        learn, held = (
            from_table(
                part, device=self.device, label=self.label, features=self.features
            )
            for part in (few, rest)
        )
        assert learn.ids == held.ids, "every device must have rows on both sides"
        classes = len(model.classes_) if hasattr(model, "classes_") else 0
        worth = worth_of_trials(
            [
                run_trial(
                    learn,
                    held,
                    learner=model.learner_,
                    units=model.units_,
                    models=model.models_,
                    classes=classes,
                )
            ],
            classes,
        )
        found = {
            name: float(np.mean(worth.mistakes(arm) if classes else worth.error(arm)))
            for arm, name in ARMS.items()
        }
        return {"personalized, the paper's rule": self.error(paper, rest)} | found


def shown(errors: list[float]) -> str:
    """Mean and half range over draws."""
    if max(errors) > RUNAWAY:
        return f"above {RUNAWAY}"
    return f"{np.mean(errors):.3f} ± {(max(errors) - min(errors)) / 2:.3f}"


def sweep(
    problems: dict[str, Problem],
    changes: dict[str, list[tuple[str, dict[str, Any]]]],
    draws: int,
    **base: Any,
) -> None:
    """One table per setting; what all of them share is fitted once."""
    known: dict[str, str] = {}
    for setting, values in changes.items():
        print(
            f"\n| {setting} | {' | '.join(problems)} |\n|---{'|---' * len(problems)}|"
        )
        for name, change in values:
            cells = []
            for which, problem in problems.items():
                key = f"{which} {change}"
                known[key] = known.get(key) or over(problem, draws, base | change)
                cells.append(known[key])
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


def over(problem: Problem, draws: int, settings: dict[str, Any]) -> str:
    """A cell: the same settings on every draw."""
    errors = []
    for seed in range(draws):
        few, rest = problem.cut(seed)
        errors.append(problem.error(problem.fitted(few, seed, settings), rest))
    return shown(errors)


def main(arguments: list[str] | None = None) -> None:
    """Print all tables."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument(
        "--draws", type=int, default=3, help="random cuts of each table (default 3)"
    )
    asked.add_argument(
        "--only",
        default="default,rows,budget,paper,trees",
        help="some of the tables, by these names",
    )
    chosen = asked.parse_args(arguments)
    draws, only = chosen.draws, chosen.only.split(",")
    begin = time.perf_counter()
    housing = Problem(load_housing(), "city", "log_price", PersonalizedRegressor, 0.1)
    flights = Problem(
        load_flights(), "destination", "arrival", PersonalizedClassifier, 4.0
    )
    print(
        f"{Path(__file__).name}: {draws} draws, seeds 0 to {draws - 1}; {ROWS} rows per device to"
        " learn from"
    )
    names = [
        *list(ARMS.values())[1:-1],
        "personalized, the paper's rule",
        ARMS["personal"],
    ]
    if "default" in only:
        print(
            "\nlinear models, default settings, and their rivals on the same rows\n\n| | housing |"
            " flights |\n|---|---|---|"
        )
        found = {
            name: [p.rivals(*p.cut(k), k) for k in range(draws)]
            for name, p in (("housing", housing), ("flights", flights))
        }
        for name in names:
            print(
                f"| {name} | {shown([f[name] for f in found['housing']])} |"
                f" {shown([f[name] for f in found['flights']])} |"
            )
    if "rows" in only:
        print("\nthe same on housing with other numbers of rows per city")
        print(
            f"\n| rows per city | {' | '.join(map(str, NUMBERS))} |\n|---{'|---' * len(NUMBERS)}|"
        )
        cut = [
            [housing.rivals(*housing.cut(k, rows), k) for k in range(draws)]
            for rows in NUMBERS
        ]
        for name in names:
            print(
                f"| {name} | {' | '.join(shown([f[name] for f in column]) for column in cut)} |"
            )
    if "budget" in only:
        print("\nlinear models, blend, another budget")
        sweep({"housing": housing, "flights": flights}, {"budget": BUDGET}, draws)
    if "paper" in only:
        print("\nlinear models, the paper's rule, one setting changed at a time")
        sweep({"housing": housing, "flights": flights}, LINEAR, draws, method="paper")
    if "trees" in only:
        print(
            "\ntrees of depth 3 (Tree): blend, and the paper's rule, one setting changed at a time"
        )
        sweep(
            {"housing": housing},
            TREES,
            draws,
            estimator=Tree(max_depth=3),
            method="paper",
        )
    print(f"\n{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
