"""Every method on equal terms, on real tables and generated devices.

    python benchmarks/blend.py [--data FOLDER] [--seeds 3] [--only txhousing,pb52]

Few rows of each device to learn from, the rest to judge by. Errors are means over devices: squared error over the label's
variance in the rows learned from, or the share of wrong labels. Rivals are fitted in shared units and in units centred per
device, and the better of the two counts, in hindsight: own rows only (local), one model for all (pooled), one for each of four
clusters of devices (k-means on means of features and of products with labels), one for all fine-tuned on own rows, and the
paper's rule (100 rounds, 20 peers). Regret is log(blend / best rival). Paired: blend against the best rival, mean over devices of
2 (rival - blend) / (rival + blend) with its 95 % interval over devices and seeds.

Housing and vowels come with the package; with --data a folder that has chickweight.csv, household.npz and wisdm.npz is used too.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

from persfl import Best, GradientStep, Linear, PersonalizedRegressor, Uniform
from persfl.blending import blend
from persfl.datasets import load_housing, load_vowels
from persfl.devices import Devices, offsets
from persfl.predicting import respond_each
from persfl.sources import clustered_regression
from persfl.training import Plan, step_of, train
from persfl.units import Units
from persfl.worth import own_fits, pooled_fit, tuned_fits, verdict

Rows = tuple[Any, Any, Any]  # X, y, whose


def housing(seed: int) -> Rows:
    """House prices in 46 cities."""
    table = load_housing()
    return table.data.to_numpy(float), table.target.to_numpy(float), pd.factorize(table.devices)[0]


def vowels(seed: int) -> Rows:
    """Ten vowels of 76 speakers."""
    table = load_vowels()
    return table.data.to_numpy(float), table.target.to_numpy(), pd.factorize(table.devices)[0]


def chicks(folder: Path) -> Callable[[int], Rows]:
    """How 50 chicks grew."""

    def load(seed: int) -> Rows:
        table = pd.read_csv(folder / "chickweight.csv")
        days = table["Time"].to_numpy(float)
        return np.column_stack([days, days**2]), np.log(table["weight"].to_numpy(float)), pd.factorize(table["Chick"])[0]

    return load


def archive(path: Path, devices: int | None = None) -> Callable[[int], Rows]:
    """A .npz file of rows, labels and groups; some of its devices."""

    def load(seed: int) -> Rows:
        kept = np.load(path)
        X, y, who = kept["X"].astype(float), kept["y"], kept["group"]
        if devices is not None:
            some = np.random.default_rng(7).choice(who.max() + 1, devices, replace=False)
            at = np.isin(who, some)
            X, y, who = X[at], y[at], np.unique(who[at], return_inverse=True)[1]
        return X, y.astype(float if str(kept["task"]) == "reg" else int), who

    return load


def linear(seed: int, n: int = 60, clusters: int = 4, rows: int = 120, features: int = 8) -> Rows:
    """y = x.(w_c + own deviation) + own level + noise; every device has its own covariance."""
    rng = np.random.default_rng(seed)
    kinds = rng.normal(size=(clusters, features))
    X, y = [], []
    for i in range(n):
        turn = np.eye(features) + 0.5 * rng.normal(size=(features, features)) / np.sqrt(features)
        x = rng.normal(size=(rows, features)) @ turn
        weights = kinds[i % clusters] + 0.15 * rng.normal(size=features)
        X.append(x)
        y.append(x @ weights + 0.3 * rng.normal() + 0.5 * rng.normal(size=rows))
    return np.concatenate(X), np.concatenate(y), np.repeat(np.arange(n), rows)


def digits(change: Callable[[Any, Any, int, Any], tuple[Any, Any]]) -> Callable[[int], Rows]:
    """Real digits dealt to 40 devices of four kinds; `change` makes the kind."""

    def load(seed: int) -> Rows:
        rng = np.random.default_rng(seed)
        images, labels = load_digits(return_X_y=True)
        order = rng.permutation(len(labels))
        who = np.arange(len(labels)) % 40
        X, y = images[order].reshape(-1, 8, 8), labels[order].copy()
        plans = [np.random.default_rng([seed, kind]) for kind in range(4)]
        for kind in range(4):
            at = who % 4 == kind
            X[at], y[at] = change(X[at], y[at], kind, plans[kind])
        return X.reshape(len(y), -1), y, who

    return load


def relabelled(X: Any, y: Any, kind: int, rng: Any) -> tuple[Any, Any]:
    """All kinds but one take four digits for each other."""
    name = np.arange(10)
    if kind:
        some = rng.choice(10, 4, replace=False)
        name[some] = name[np.roll(some, 1)]
    return X, name[y]


def rotated(X: Any, y: Any, kind: int, rng: Any) -> tuple[Any, Any]:
    """Every kind has turned its camera."""
    return np.rot90(X, kind, axes=(1, 2)), y


def sensors(X: Any, y: Any, kind: int, rng: Any) -> tuple[Any, Any]:
    """Every kind has its own gain, brightness and dead lines."""
    gain, level, dead = ((1.0, 0.0, None), (-1.0, 16.0, None), (0.5, 4.0, 2), (1.0, 0.0, 5))[kind]
    X = gain * X + level
    if dead is not None:
        X[:, dead], X[:, :, dead] = 0.0, 0.0
    return X, y


def label_shifted(seed: int) -> Rows:
    """Devices of five kinds; four fifths of a device's digits are of the two that its kind sees most."""
    rng = np.random.default_rng(seed)
    images, labels = load_digits(return_X_y=True)
    free, who = np.ones(len(labels), dtype=bool), np.full(len(labels), -1)
    for _ in range(len(labels) // 40):
        for i in rng.permutation(40):
            chance = np.where(labels // 2 == i % 5, 0.4, 0.025) * free
            taken = rng.choice(len(labels), p=chance / chance.sum())
            who[taken], free[taken] = i, False
    at = who >= 0
    return images[at], labels[at], who[at]


def dealt(rows: Rows, few: int, classes: int, seed: int) -> tuple[Devices, Devices]:
    """`few` random rows of each device (one of every class where few is 0) to learn from; of the rest at most 200 to judge by."""
    X, y, who = rows
    mark = np.random.default_rng([seed, 1]).permutation(len(y))
    by = [who] if few else [who, y]
    place = pd.Series(mark).groupby(by).rank(method="first").to_numpy()
    learn = place <= (few or 1)
    left = pd.Series(np.where(learn, np.inf, mark)).groupby(who).rank(method="first").to_numpy()
    judge = ~learn & (left <= 200)
    enough = np.bincount(who[judge], minlength=who.max() + 1) >= 3
    enough &= np.bincount(who[learn], minlength=who.max() + 1) >= (few or 2)
    return tuple(_devices(X, y, who, at & enough[who]) for at in (learn, judge))  # type: ignore[return-value]


def _devices(X: Any, y: Any, who: Any, at: Any) -> Devices:
    at = np.flatnonzero(at)[np.argsort(who[at], kind="stable")]
    names, counts = np.unique(who[at], return_counts=True)
    return Devices(np.ascontiguousarray(X[at]), y[at].astype(float), np.ones(len(at)), offsets(counts), names.tolist())


def errors(rows: Rows, few: int, seed: int, classes: int) -> dict[str, Any]:
    """(devices,) per method."""
    learn, test = dealt(rows, few, classes, seed)
    learner = _learner(classes)
    found: dict[str, Any] = {}
    scale = learn.y.var() if not classes else 1.0

    def judged(models: Any, units: Units) -> Any:
        said = respond_each(learner, models, units.features(test.X, test.owner), test.owner, classes)
        missed = said.argmax(axis=1) != test.y if classes else (units.outside(said, test.owner) - test.y) ** 2 / scale
        return np.bincount(test.owner, weights=missed) / test.counts

    for kind in ("shared", "centred"):
        units = Units.of(learn, kind, labels=not classes)
        inside, n = units.inside(learn), len(learn)
        pooled = pooled_fit(learner, inside, seed)
        group = _clusters(inside, classes, seed)
        clustered = np.empty((n, len(pooled)))
        for k in np.unique(group):
            clustered[group == k] = pooled_fit(learner, _taken(inside, group == k), seed)
        plan = Plan(learner, GradientStep, step_of("auto", learner, learn.features), Uniform(min(20, n - 1)), Best(), 100, seed)
        found |= {
            f"local/{kind}": judged(own_fits(learner, inside, seed), units),
            f"pooled/{kind}": judged(np.repeat(pooled[None], n, axis=0), units),
            f"clustered/{kind}": judged(clustered, units),
            f"fine-tuned/{kind}": judged(tuned_fits(learner, inside, pooled, None, None, seed), units),
            f"paper/{kind}": judged(train(inside, plan).models, units),
        }
    units = Units.of(learn, "shared", labels=not classes)
    begin = time.perf_counter()
    found["blend"] = judged(blend(units.inside(learn), learner, seed=seed, classes=classes).models, units)
    found["seconds"] = time.perf_counter() - begin
    return found


def _learner(classes: int) -> Linear:
    if not classes:
        return Linear(intercept=True)
    return Linear("logistic", intercept=True) if classes == 2 else Linear("multinomial", classes=classes, intercept=True)


def _clusters(rows: Devices, classes: int, seed: int) -> Any:
    marks = []
    for i in range(len(rows)):
        X, y = rows[i].X, rows[i].y
        said = (y[:, None] == np.arange(classes)) + 0.0 if classes else y[:, None]
        marks.append(np.concatenate([X.mean(axis=0), (np.column_stack([X, np.ones(len(y))]).T @ said / len(y)).ravel()]))
    signs = np.array(marks)
    return KMeans(4, n_init=5, random_state=seed).fit_predict((signs - signs.mean(axis=0)) / (signs.std(axis=0) + 1e-9))


def _taken(rows: Devices, which: Any) -> Devices:
    at = which[rows.owner]
    return Devices(rows.X[at], rows.y[at], rows.weight[at], offsets(rows.counts[which]), range(int(which.sum())))


def sets(folder: Path | None) -> dict[str, tuple[Callable[[int], Rows], int]]:
    """A loader and the rows of each device to learn from; 0 is one of every class."""
    found: dict[str, tuple[Callable[[int], Rows], int]] = {"txhousing": (housing, 10), "pb52": (vowels, 0)}
    if folder is not None:
        found |= {
            "chickweight": (chicks(folder), 5),
            "household": (archive(folder / "household.npz", 60), 24),
            "wisdm": (archive(folder / "wisdm.npz"), 25),
        }
    changed = {"relabelled": relabelled, "rotated": rotated, "feature-shifted": sensors}
    return found | {"linear": (linear, 20), "label-shifted": (label_shifted, 20)} | {k: (digits(f), 20) for k, f in changed.items()}


def large() -> None:
    """Time a whole fit: trial run and final run."""
    rows = clustered_regression(n=1000, clusters=5, rows=30, features=10, noise=0.5, seed=0)
    begin = time.perf_counter()
    PersonalizedRegressor(method="blend").fit(rows.X, rows.y, devices=rows.owner)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"1,000 devices x 30 rows x 10 features: {time.perf_counter() - begin:.0f} s, at most {peak:.1f} GiB")


def main() -> None:
    """Print the table."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--data", type=Path, help="folder with further tables")
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--first", type=int, default=1000, help="the first seed")
    made.add_argument("--only", default="")
    made.add_argument("--large", action="store_true", help="only time a fit of 1,000 devices with 30 rows and 10 features")
    chosen = made.parse_args()
    if chosen.large:
        large()
        return
    regrets = []
    names = ("local", "pooled", "clustered", "fine-tuned", "paper")
    print(
        f"{'':16}" + "".join(f"{name:>12}" for name in (*names, "blend")) + "   regret   paired (95 % interval)   over local      s"
    )
    for name, (load, few) in sets(chosen.data).items():
        if chosen.only and name not in chosen.only.split(","):
            continue
        runs = []
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            rows = load(seed)
            classes = int(rows[1].max()) + 1 if rows[1].dtype.kind in "iu" else 0
            runs.append(errors(rows, few, seed, classes))
        means = {key: float(np.mean([np.mean(run[key]) for run in runs])) for key in runs[0]}
        best = {arm: min((f"{arm}/{kind}" for kind in ("shared", "centred")), key=means.__getitem__) for arm in names}
        rival = min(best.values(), key=means.__getitem__)
        ours, theirs = (np.concatenate([run[key] for run in runs]) for key in ("blend", rival))
        total = ours + theirs
        paired = verdict(np.where(total > 0, 2 * (theirs - ours) / np.where(total > 0, total, 1.0), 0.0))
        regrets.append(np.log(means["blend"] / means[rival]))
        print(
            f"{name:16}" + "".join(f"{means[best[arm]]:12.4f}" for arm in names) + f"{means['blend']:12.4f}"
            f"   {regrets[-1]:+.3f}   {paired.gain:+.3f} ({paired.low:+.3f} to {paired.high:+.3f})"
            f"   {means['blend'] / means[best['local']] - 1:+8.1%}   {means['seconds']:6.1f}",
            flush=True,
        )  # fmt: skip
    print(f"mean regret {np.mean(regrets):+.3f} over {len(regrets)} sets, {chosen.seeds} seeds from {chosen.first}")


if __name__ == "__main__":
    main()
