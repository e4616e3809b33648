"""Blend of counts beside what a statistician would try first, on rows held back.

    python benchmarks/count_tables.py [--seeds 3] [--first 1000]
    python benchmarks/count_tables.py visits.csv --device clinic --label visits [--columns a,b]

Without a table: four made-up fleets (kinds, own levels, own slopes, counts that vary more than
chance). Half of every device's rows are learned from; errors are Poisson's deviance of the others,
means over rows, then over seeds. Rivals: one Poisson regression for all (a GEE has the same means),
the same with a column for each device (three penalties, the best in hindsight), one for each
device, and boosting under Poisson's loss with the device as a category. A regret is log(error /
error of the best rival in hindsight).
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import mean_poisson_deviance

from persfl import Linear, PersonalizedRegressor
from persfl.types import Array, IntArray, Mask

PENALTIES = (1e-3, 1e-2, 1e-1)
KNOWN = 255  # categories that boosting can tell apart
Rows = tuple[Array, Array, IntArray]


def made(kind: str, seed: int) -> Rows:
    """40 devices with 16 rows of 4 features."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(40), 16)
    X = rng.normal(size=(len(who), 4))
    slopes = np.repeat(0.4 * rng.normal(size=(1, 4)), 40, axis=0)
    level = 0.5 + 0.8 * rng.normal(size=40)
    if kind == "kinds":
        slopes = 0.6 * rng.normal(size=(3, 4))[rng.integers(3, size=40)]
        level = np.full(40, 0.5)
    if kind in ("slopes", "varied"):
        slopes = slopes + 0.3 * rng.normal(size=(40, 4))
    score = level[who] + (X * slopes[who]).sum(axis=1)
    rate = np.exp(np.clip(score, -5.0, 5.0))
    if kind == "varied":
        rate = rate * rng.gamma(1.0, 1.0, size=len(rate))
    return X, rng.poisson(rate) + 0.0, who


def read(path: Path, device: str, label: str, columns: str) -> Rows:
    """A table: its numbers, or the columns named; texts become columns of 0 and 1."""
    table = pd.read_csv(path)
    named = [name for name in columns.split(",") if name]
    rest = table[named] if named else table.drop(columns=[device, label])
    X = pd.get_dummies(rest, drop_first=True).to_numpy(dtype=np.float64)
    who = pd.factorize(table[device])[0]
    return X, table[label].to_numpy(dtype=np.float64), who


def halves(who: IntArray, seed: int) -> Mask:
    """Which rows are learned from: half of each device's, drawn by the seed."""
    luck = pd.Series(np.random.default_rng(seed).uniform(size=len(who)))
    place = luck.groupby(who).rank()
    many = luck.groupby(who).transform("size")
    return np.asarray(place <= np.maximum(1, np.round(many / 2)))


def rivals(
    X: Array, y: Array, who: IntArray, learn: Mask
) -> Iterator[tuple[str, Array]]:
    """What each says of the rows that are not learned from."""
    away = ~learn
    Z = (X - X[learn].mean(axis=0)) / (X[learn].std(axis=0) + 1e-9)
    fit = PoissonRegressor(alpha=1e-6, max_iter=1000).fit
    yield "one for all", fit(Z[learn], y[learn]).predict(Z[away])
    wide = np.column_stack([Z, np.eye(who.max() + 1)[who]])
    for alpha in PENALTIES:
        dummies = PoissonRegressor(alpha=alpha, max_iter=1000)
        yield (
            f"dummies {alpha:g}",
            dummies.fit(wide[learn], y[learn]).predict(wide[away]),
        )
    own = np.full(len(y), 1e-2)
    for i in np.unique(who[learn]).tolist():
        mine = learn & (who == i)
        theirs = away & (who == i)
        if theirs.any() and y[mine].sum() > 0:
            alone = PoissonRegressor(alpha=0.3, max_iter=1000).fit(Z[mine], y[mine])
            own[theirs] = alone.predict(Z[theirs])
    yield "own", own[away]
    if who.max() < KNOWN:
        grower = HistGradientBoostingRegressor(
            loss="poisson", categorical_features=[0], random_state=0
        )
        both = np.column_stack([who, Z])
        yield "boosting", grower.fit(both[learn], y[learn]).predict(both[away])


def errors(rows: Rows, seed: int) -> dict[str, float]:
    """Deviances of blend and of all rivals."""
    X, y, who = rows
    learn = halves(who, seed)
    model = PersonalizedRegressor(
        Linear("poisson", intercept=True), holdout=0, random_state=seed
    )
    model.fit(X[learn], y[learn], devices=who[learn])
    said = {"blend": model.predict(X[~learn], devices=who[~learn])}
    said |= dict(rivals(X, y, who, learn))
    return {
        name: float(mean_poisson_deviance(y[~learn], np.maximum(each, 1e-9)))
        for name, each in said.items()
    }


def main() -> None:
    """Print a line for every table."""
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked.add_argument("table", nargs="?", type=Path)
    asked.add_argument("--device", default="device")
    asked.add_argument("--label", default="y")
    asked.add_argument(
        "--columns", default="", help="features, with commas; all others"
    )
    asked.add_argument("--seeds", type=int, default=3)
    asked.add_argument("--first", type=int, default=1000)
    given = asked.parse_args()
    warnings.simplefilter("ignore")
    tables: dict[str, Callable[[int], Rows]]
    if given.table:
        rows = read(given.table, given.device, given.label, given.columns)
        tables = {given.table.stem: lambda _: rows}
    else:
        kinds = ("kinds", "levels", "slopes", "varied")
        tables = {kind: lambda seed, kind=kind: made(kind, seed) for kind in kinds}
    for name, rows_of in tables.items():
        seeds = range(given.first, given.first + given.seeds)
        found = pd.DataFrame([errors(rows_of(seed), seed) for seed in seeds]).mean()
        least = found.drop("blend").min()
        told = ", ".join(f"{key} {value:.3f}" for key, value in found.items())
        print(
            f"{name}: {told}; regret {np.log(found['blend'] / least):+.3f}", flush=True
        )


if __name__ == "__main__":
    main()
