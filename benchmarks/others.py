"""Blend of models that are not linear, on equal terms: trees, forests, boosting, networks.

    python benchmarks/others.py [--only tree,mlp] [--seeds 4] [--cities 8,12,20,46] [--made]
    python benchmarks/others.py --cost

House prices with ten rows of each of some cities, and flights with ten rows of each of 75
destinations; the rest to judge by. `--made` adds thirty devices of 22 rows each: curves with slopes
and levels of their own (Friedman's), three kinds of trees, and straight lines. Errors are means
over devices (squared error over the label's variance, or the share of wrong labels) of own models,
of one for all, of that one fine-tuned or refitted on own rows, and of the blend; `worst` is the
largest ratio of blend to own over the seeds; seconds of one core are those of one fit to all rows,
and of the blend. `--cost` prints these seconds alone, for scikit-learn's own settings of boosting,
histogram boosting and forests, with 675 and 3,000 rows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeClassifier

from persfl import Estimator, GradientStep, Tree
from persfl.datasets import load_flights, load_housing
from persfl.devices import Devices, offsets
from persfl.evaluation.rivals import own_fits, pooled_fit, tuned_fits
from persfl.learners import MLP, Network
from persfl.learners.responses import respond_each
from persfl.methods.blend import blend
from persfl.methods.refitted.rule import refit_blend
from persfl.public_points import public_points
from persfl.training import NETWORK_STEPS
from persfl.units import Units

KINDS = ("tree", "forest", "boosting", "mlp")
MADE = ("curves", "kinds", "lines")


def learner_of(kind: str, features: int, classes: int, seed: int) -> Any:
    """The model family by this name; None where it has none for classes."""
    if kind == "mlp":
        return Network(
            partial(MLP(), features, classes or 1),
            loss="cross_entropy" if classes else "squared",
            seed=seed,
        )
    if kind == "tree":
        return Estimator(DecisionTreeClassifier(max_depth=4)) if classes else Tree(3)
    if kind == "forest":
        return Estimator(
            RandomForestClassifier(20) if classes else RandomForestRegressor(20)
        )
    return (
        None
        if classes
        else Estimator(GradientBoostingRegressor(n_estimators=30, max_depth=2))
    )


def dealt(table: Any, devices: int, few: int, seed: int) -> tuple[Devices, Devices]:
    """Some devices; `few` random rows of each to learn from, and the rest."""
    who = pd.factorize(table.devices)[0]
    some = np.random.default_rng([seed, 1]).permutation(who.max() + 1)[:devices]
    mark = pd.Series(np.random.default_rng([seed, 2]).permutation(len(who)))
    learn = (mark.groupby(who).rank() <= few).to_numpy()
    X, y = table.data.to_numpy(float), table.target.to_numpy(float)
    parts = []
    for which in (learn, ~learn):
        at = np.flatnonzero(which & np.isin(who, some))
        at = at[np.argsort(who[at], kind="stable")]
        counts = np.unique(who[at], return_counts=True)[1]
        parts.append(
            Devices(
                np.ascontiguousarray(X[at]),
                y[at],
                np.ones(len(at)),
                offsets(counts),
                range(len(counts)),
            )
        )
    return parts[0], parts[1]


def made_up(name: str, n: int, few: int, seed: int) -> tuple[Devices, Devices]:
    """Devices of a generator: `few` rows of each to learn from, and 100 others."""
    luck = np.random.default_rng([seed, MADE.index(name)])
    owner = np.repeat(np.arange(n), few + 100)
    X = luck.uniform(-1, 1, size=(len(owner), 5))
    slopes = 1 + 0.5 * luck.normal(size=(n, 5))[owner]
    level = luck.normal(size=n)[owner]
    if name == "curves":
        bent = [np.sin(np.pi * X[:, 0] * X[:, 1]), X[:, 2] ** 2, X[:, 3], X[:, 4] / 2]
        y = level + 2 * (slopes[:, :4] * np.array(bent).T).sum(axis=1)
    elif name == "kinds":
        y = np.zeros(len(owner))
        for kind in range(3):
            which = luck.permutation(5)[:3]
            leaf = (X[:, which] > luck.uniform(-0.4, 0.4, size=3)) @ np.array([4, 2, 1])
            y = np.where(owner % 3 == kind, luck.normal(size=8)[leaf] * 2, y)
    else:
        y = level + (slopes * X).sum(axis=1)
    y = y + 0.5 * luck.normal(size=len(owner))
    late = np.arange(len(y)) % (few + 100) >= few
    parts = [
        Devices.grouped(X[part], y[part], owner[part], range(n))
        for part in (~late, late)
    ]
    return parts[0], parts[1]


def errors(
    kind: str, learn: Devices, test: Devices, classes: int, seed: int
) -> dict[str, float] | None:
    """Mean error per method, and the seconds that the blend took."""
    learner = learner_of(kind, learn.features, classes, seed)
    if learner is None:
        return None
    units = Units.of(learn, "shared" if kind == "mlp" else "raw", labels=not classes)
    inside = units.inside(learn)
    public = None if kind == "mlp" else public_points(inside, 100, seed=seed)
    begin = time.process_time()
    pooled = pooled_fit(learner, inside, seed)
    once = time.process_time() - begin
    steps = (
        GradientStep(NETWORK_STEPS[learner.kind], steps=100) if kind == "mlp" else None
    )

    def missed(models: Any) -> float:
        said = respond_each(
            learner, models, units.features(test.X, test.owner), test.owner, classes
        )
        wrong = (
            said.argmax(axis=1) != test.y
            if classes
            else (units.outside(said, test.owner) - test.y) ** 2 / learn.y.var()
        )
        return float((np.bincount(test.owner, weights=wrong) / test.counts).mean())

    everybody = (
        np.repeat(pooled[None], len(learn), axis=0)
        if kind == "mlp"
        else [pooled] * len(learn)
    )
    begin = time.process_time()
    by = blend if kind == "mlp" else refit_blend
    models = by(inside, learner, seed=seed, classes=classes).models
    took = time.process_time() - begin
    return {
        "own": missed(own_fits(learner, inside, seed)),
        "pooled": missed(everybody),
        "tuned": missed(tuned_fits(learner, inside, pooled, public, steps, seed)),
        "blend": missed(models),
        "once": once,
        "seconds": took,
    }


def seconds(work: Callable[[], object]) -> float:
    """Of one core."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def costs() -> None:
    """Print how many times as long as one fit to all rows a blend takes."""
    bases = (
        HistGradientBoostingRegressor(random_state=0),
        GradientBoostingRegressor(random_state=0),
        RandomForestRegressor(50, random_state=0),
    )
    for base in bases:
        for devices, few in ((45, 15), (30, 100)):
            rows, _ = made_up("curves", devices, few, 0)
            learner = Estimator(base)
            once = min(seconds(partial(pooled_fit, learner, rows, 0)) for _ in "123")
            took = seconds(partial(refit_blend, rows, learner))
            name = type(base).__name__
            print(f"{name:30}{devices:>4} x {few:<4}{once:9.2f}{took:9.2f}", end="")
            print(f"{took / once:9.1f} times", flush=True)


def main() -> None:
    """Print the table."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--only", default=",".join(KINDS))
    made.add_argument("--seeds", type=int, default=4)
    made.add_argument("--cities", default="8,12,20,46")
    made.add_argument("--no-flights", action="store_true")
    made.add_argument("--made", action="store_true")
    made.add_argument("--cost", action="store_true")
    chosen = made.parse_args()
    if chosen.cost:
        costs()
        return
    worlds = [
        ("housing", load_housing(), int(n), 0, 10) for n in chosen.cities.split(",")
    ]
    worlds += [] if chosen.no_flights else [("flights", load_flights(), 75, 3, 10)]
    worlds += [(name, None, 30, 0, 22) for name in MADE] if chosen.made else []
    heads = ("own", "pooled", "tuned", "blend", "worst", "once s", "blend s")
    print(f"{'':24}" + "".join(f"{name:>9}" for name in heads))
    for kind in chosen.only.split(","):
        for name, table, devices, classes, few in worlds:
            dealing = [
                dealt(table, devices, few, seed)
                if table is not None
                else made_up(name, devices, few, seed)
                for seed in range(chosen.seeds)
            ]
            runs = [
                errors(kind, *both, classes, seed) for seed, both in enumerate(dealing)
            ]
            if None in runs:
                continue
            f = pd.DataFrame(runs)
            mean = f.mean()
            cells = "".join(
                f"{mean[arm]:9.3f}" for arm in ("own", "pooled", "tuned", "blend")
            )
            print(
                f"{kind:9}{name:9}{devices:>4} "
                f" {cells}{(f.blend / f.own).max():9.2f}"
                f"{mean.once:9.2f}{mean.seconds:9.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
