"""Is the report's advice right? Rows are held back by hand, a fit says what to do without them, and
every way is judged by them.

    python benchmarks/advice.py [TABLE.csv:DEVICE:LABEL ...] [--draws 3] [--first 0] [--jobs 4]
        [--plain]

Without tables of your own: house prices and flights of the package, fleets whose devices are alike,
in kinds or all different, and house prices dealt anew among rows, which nothing predicts. Of each,
blend and the paper's rule with ten rounds, which simple ways often beat. A line for each fit as it
comes, a row per table and method, then one for each advice: how often it was given, and how often
it was right.

use personalized    right if they have less error than the best simple way named
use a simple way    right if that has less error than the personalized models
either              right if the difference lies in the interval given
collect rows        right if nothing has less error than always the mean, but for 2 %

The fit has nine rows of a device of the tables of the package and of fleets that are made up, and
all others judge, so that their chance is small. Of tables of your own 30 % judge: where these are
few, the difference they say is off by chance too, and "either" seems right less often than it is.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from persfl import PersonalizedClassifier, PersonalizedRegressor
from persfl.datasets import load_flights, load_housing
from persfl.evaluation.advice import METHODS_OF, advice
from persfl.evaluation.intervals import gains_of
from persfl.methods import Blend, Method, Paper, method_of

HELD = 0.3  # of every device's rows of a table of one's own, by hand
ROWS = 9  # of a device that a fit has of the others
FRESH = 200  # of a device that is made up
METHODS: dict[str, Method] = {"blend": method_of("blend"), "paper": Paper(rounds=10)}
MADE_UP = ("alike", "kinds", "different")
BUNDLED = ("housing", "flights", "housing dealt anew", *MADE_UP)


class Rows(NamedTuple):
    """A table, whose rows they are, and what is predicted."""

    X: pd.DataFrame
    y: pd.Series
    who: pd.Series
    classes: bool


class Told(NamedTuple):
    """What was advised, whether it was right, and whether personalized models did no worse."""

    name: str
    method: str
    advice: str
    right: bool
    first: bool


def table(name: str, seed: int) -> Rows:
    """One of the bundled tables, or a file of one's own."""
    if name in MADE_UP:
        return made_up(name, seed)
    if name not in BUNDLED:
        path, device, label = name.rsplit(":", 2)
        frame = pd.read_csv(path).dropna()
        return rows_of(frame, device, label)
    flights = name == "flights"
    frame = (load_flights() if flights else load_housing()).frame
    mixed = frame.sample(frac=1.0, random_state=seed)
    if name == "housing dealt anew":
        mixed = mixed.assign(log_price=mixed["log_price"].to_numpy()[::-1])
    return rows_of(mixed, str(mixed.columns[0]), str(mixed.columns[-1]))


def rows_of(frame: pd.DataFrame, device: str, label: str) -> Rows:
    """Texts and two values are classes."""
    y = frame[label]
    classes = not pd.api.types.is_numeric_dtype(y) or y.nunique() == 2
    X = frame.drop(columns=[device, label])
    return Rows(X, y, frame[device].astype(str), bool(classes))


def made_up(name: str, seed: int) -> Rows:
    """Forty devices with five features."""
    random = np.random.default_rng(seed)
    many = {"alike": 1, "kinds": 3, "different": 40}[name]
    truth = random.normal(size=(many, 5))[random.integers(many, size=40)]
    who = np.repeat(np.arange(40), ROWS + FRESH)
    X = random.normal(size=(len(who), 5))
    y = (X * truth[who]).sum(axis=1) + random.normal(size=len(who))
    frame = pd.DataFrame(X, columns=list("abcde")).assign(who=who, y=y)
    return rows_of(frame, "who", "y")


def told(name: str, method: str, seed: int, plain: bool) -> Told | None:
    """Fit without the rows held back, follow the advice, and look."""
    warnings.simplefilter("ignore")
    rows = table(name, seed)
    order = np.random.default_rng(seed).permutation(len(rows.y))
    place = rows.who.iloc[order].groupby(rows.who.iloc[order]).cumcount()
    size = rows.who.map(rows.who.value_counts())
    many = size - ROWS if name in BUNDLED else np.floor(HELD * size)
    held = (place.reindex(rows.who.index) < many).to_numpy()
    kind = PersonalizedClassifier if rows.classes else PersonalizedRegressor
    learned = rows.X[~held], rows.y[~held], rows.who[~held]

    def error(model: PersonalizedRegressor | PersonalizedClassifier) -> float:
        answers = (
            model.predict_proba(rows.X[held], rows.who[held])
            if isinstance(model, PersonalizedClassifier)
            else model.predict(rows.X[held], rows.who[held])
        )
        return mean_error(answers, rows, held, getattr(model, "classes_", None))

    way = METHODS[method]
    if plain and isinstance(way, Blend):
        way = Blend(trees=False)
    model = kind(method=way, random_state=seed).fit(*learned)
    found = None if model.worth_ is None else advice(model.worth_)
    if found is None:
        return None
    errors = {"personal": error(model), "base": base_error(rows, held)}
    for arm, (simply, units) in METHODS_OF.items():
        simple = kind(method=simply, units=units, holdout=0, random_state=seed)
        errors[arm] = error(simple.fit(*learned))
    gain = float(gains_of(errors[found.best], errors["personal"]))
    said = "either" if found.use else "collect rows"
    right = found.verdict.low <= gain <= found.verdict.high
    if not found.use:
        right = errors["base"] <= 1.02 * min(errors.values())
    elif found.clear or found.use != "personal":
        simple_one = found.use != "personal"
        said = "use a simple way" if simple_one else "use personalized"
        right = gain < 0 if simple_one else gain > 0
    return Told(name, method, said, right, gain >= 0)


def mean_error(
    answers: np.ndarray, rows: Rows, held: np.ndarray, classes: object
) -> float:
    """The mean over devices of squared errors, of chances where there are classes."""
    y = rows.y[held].to_numpy()
    true = y[:, None] == np.asarray(classes)[None] if rows.classes else y
    loss = (answers - true) ** 2
    each = loss.sum(axis=1) if rows.classes else loss
    return float(pd.Series(each).groupby(rows.who[held].to_numpy()).mean().mean())


def base_error(rows: Rows, held: np.ndarray) -> float:
    """Of always the mean, or the shares of classes."""
    known = rows.y[~held]
    if not rows.classes:
        answers = np.full(int(held.sum()), known.mean())
        return mean_error(answers, rows, held, None)
    shares = known.value_counts(normalize=True).sort_index()
    answers = np.tile(shares.to_numpy(), (int(held.sum()), 1))
    return mean_error(answers, rows, held, shares.index.to_numpy())


def summary(found: list[Told]) -> Iterator[str]:
    """How often each advice was given, and was right."""
    frame = pd.DataFrame(found)
    for (name, method), part in frame.groupby(["name", "method"], sort=False):
        said = part["advice"].value_counts().to_dict()
        right = f"{int(part['right'].sum())} of {len(part)} right"
        yield f"{Path(str(name)).name:24} {method:6} {right:16} {said}"
    for said, part in frame.groupby("advice"):
        right = f"{int(part['right'].sum())} of {len(part)} right"
        first = f"personalized no worse in {int(part['first'].sum())}"
        yield f"{said:24} {right:23} {first}"


def main() -> None:
    """Print every row."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("tables", nargs="*", default=[], metavar="TABLE:DEVICE:LABEL")
    asked.add_argument("--draws", type=int, default=3)
    asked.add_argument("--first", type=int, default=0, help="the first seed")
    asked.add_argument("--jobs", type=int, default=1)
    asked.add_argument("--plain", action="store_true", help="blend without trees")
    chosen = asked.parse_args()
    work = [
        (name, method, chosen.first + draw, chosen.plain)
        for name in chosen.tables or BUNDLED
        for method in METHODS
        for draw in range(chosen.draws)
    ]
    found = []
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for one in pool.map(told, *zip(*work, strict=True)):
            if one is not None:
                found.append(one)
                right = "right" if one.right else "wrong"
                print(f"{one.name}, {one.method}: {one.advice}, {right}", flush=True)
    print("\n".join(["", *summary(found)]))


if __name__ == "__main__":
    main()
