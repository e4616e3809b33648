"""What protection costs and what it hides: the tables of docs/privacy.md.

    python benchmarks/leaks.py             attacks, with and without protection; a minute
    python benchmarks/leaks.py --utility   errors by epsilon and rows; some minutes
    python benchmarks/leaks.py --published FOLDER   School and Heart, as others cut them

Attacks: 20 devices of one kind, 4 columns, noise 1. Utility: 40 devices of one kind whose
coefficients differ by 0.3, 5 columns, noise 1; squared error of predictions against the truth, mean
of five seeds (others than those that constants were chosen by). Every device declares the ranges
-4 to 4 of its columns and -12 to 12 of its label.
"""

from __future__ import annotations

import os

for name in (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
):
    os.environ[name] = "1"

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from persfl import Linear, PersonalizedClassifier, PersonalizedRegressor
from persfl.devices import Devices
from persfl.lab.leak_meter import NONE, leaks_of
from persfl.learners.tree import Tree
from persfl.methods import Method, Private
from persfl.privacy import PrivacyBudget, true_positives
from persfl.privacy.mechanisms import noised_products
from persfl.privacy.reconstruction import known_by_steps, row_error
from persfl.privacy.secure_noise import SeededNoise
from persfl.seeds import stream
from persfl.sources import clustered_regression
from persfl.types import Data

EPSILONS = (1.0, 3.0, 8.0)
ROWS = (10, 30, 100, 1000)
SEEDS = range(100, 105)
RANGES = {f"{k}": (-4.0, 4.0) for k in range(5)} | {"label": (-12.0, 12.0)}


def fleet(rows: int, seed: int, features: int = 5, n: int = 40) -> Devices:
    """Devices of one kind, each a little different."""
    how = {"clusters": 1, "noise": 1.0, "deviation": 0.3, "seed": seed}
    return clustered_regression(n=n, rows=rows, features=features, **how)


def attacks() -> None:
    """What attacks find, without protection and with it."""
    d = 4
    known = known_by_steps(np.random.default_rng(0).normal(size=(d + 1, d)))
    print(
        f"Steps of a linear regression of {d} columns: {known.unknowns} numbers to know,"
        f" {known.questions} unprotected answers determine {known.share:.0%} of them."
    )
    row = np.array([1.0, 0.4, -1.2, 0.7, 0.1, 0.9])
    print("\nA device with a single row: error of the row as read off its sums")
    for epsilon in (NONE, 8.0, 3.0, 1.0):
        told = np.outer(row, row)
        if epsilon:
            z = PrivacyBudget(epsilon=epsilon).multiplier()
            one = Data(row[None, 1:-1], row[-1:])
            source = SeededNoise(stream(0, "row"))
            told = noised_products(one, 2.5, z, source).matrix
        print(f"  epsilon {_name(epsilon):5} {row_error(told, row):.0%}")
    for rows in (10, 100):
        devices = fleet(rows, 0, d, 20)
        for learner in (Linear(intercept=True), Tree()):
            kind = type(learner).__name__
            print(
                f"\n{kind}, {rows} rows a device: error of X'X; rows found at 1 % false"
            )
            print(
                "alarms by what is told (mean, worst, most that epsilon allows), and by"
            )
            print("a model of own rows; labels alone in a leaf")
            for leak in leaks_of(devices, learner):
                most = 1.0
                if leak.epsilon:
                    budget = PrivacyBudget(epsilon=leak.epsilon)
                    most = true_positives(budget.whole**0.5, 0.01)
                shares = (leak.found, leak.worst, most, leak.by_model, leak.labels)
                cells = "  ".join(f"{share:7.1%}" for share in shares)
                print(f"  epsilon {_name(leak.epsilon):5} {leak.moments:6.2f}  {cells}")


def _name(epsilon: float) -> str:
    return f"{epsilon:g}" if epsilon else "none"


def error(method: str | Method, devices: Devices, seed: int) -> float:
    """Squared error of predictions at fresh points against the truth."""
    n = len(devices)
    model = PersonalizedRegressor(method=method, holdout=0, random_state=seed)
    model.fit(devices.X, devices.y, devices=np.asarray(devices.owner))
    fresh = np.random.default_rng(seed + 1).normal(size=(100, devices.features))
    truth = fresh @ np.asarray(devices.true_weights).T
    said = [model.predict(fresh, devices=np.full(100, i)) for i in range(n)]
    return float(np.mean((np.array(said).T - truth) ** 2))


def utility() -> None:
    """Errors by budget and number of rows, with own rows alone beside."""
    names = [
        *(f"epsilon {epsilon:g}" for epsilon in EPSILONS),
        "none",
        "own rows alone",
    ]
    print("rows   " + "  ".join(f"{name:>14}" for name in names))
    for rows in ROWS:
        methods = [Private(epsilon=epsilon, ranges=RANGES) for epsilon in EPSILONS]
        every: list[str | Method] = [*methods, "blend", "own"]
        found = [
            np.mean([error(method, fleet(rows, seed), seed) for seed in SEEDS])
            for method in every
        ]
        worse = [value > found[-1] for value in found]
        cells = [
            f"{value:.4f}{'*' if bad else ' '}"
            for value, bad in zip(found, worse, strict=True)
        ]
        print(f"{rows:5}  " + "  ".join(f"{cell:>14}" for cell in cells), flush=True)
    print("* joining is worse than staying alone")


def published(folder: Path) -> None:
    """School and Heart, as others cut them."""
    school = pd.read_csv(folder / "school.csv")
    X = school[[f"x{k}" for k in range(27)]].to_numpy(float)  # the last is constant
    y = (school["score"].to_numpy(float) - 1) / 69
    who = school["school"].to_numpy()
    print("School, epsilon 6, delta 1e-3: mean squared error, five splits")
    for method in (Private(epsilon=6.0, delta=1e-3), "own"):
        errors = []
        for k in range(5):
            learn = (school[f"split{k}"] == "train").to_numpy()
            model = PersonalizedRegressor(method=method, holdout=0)
            model.fit(X[learn], y[learn], devices=who[learn])
            said = model.predict(X[~learn], devices=who[~learn])
            errors.append(float(np.mean((said - y[~learn]) ** 2)))
        print(f"  {_title(method):16} {np.mean(errors):.4f}", flush=True)
    heart = pd.read_csv(folder / "heart.csv")
    X = heart.iloc[:, 2:15].to_numpy(float)
    sick = heart["disease"].to_numpy()
    where = heart["hospital"].to_numpy()
    learn = (heart["split"] == "train").to_numpy()
    print("Heart, epsilon 5, delta 1e-3: accuracy, mean of hospitals, five seeds")
    for method in (Private(epsilon=5.0, delta=1e-3), "own"):
        right = []
        for seed in SEEDS:
            model = PersonalizedClassifier(method=method, holdout=0, random_state=seed)
            model.fit(X[learn], sick[learn], devices=where[learn])
            said = model.predict(X[~learn], devices=where[~learn]) == sick[~learn]
            names = np.unique(where)
            right.append(np.mean([said[where[~learn] == k].mean() for k in names]))
        print(f"  {_title(method):16} {np.mean(right):.3f}", flush=True)


def _title(method: str | Method) -> str:
    return "own rows alone" if isinstance(method, str) else "private"


def main() -> None:
    """What was asked for on the command line."""
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked.add_argument("--utility", action="store_true")
    asked.add_argument("--published", type=Path, metavar="FOLDER")
    chosen = asked.parse_args()
    warnings.simplefilter("ignore")
    if chosen.utility:
        utility()
    elif chosen.published:
        published(chosen.published)
    else:
        attacks()


if __name__ == "__main__":
    main()
