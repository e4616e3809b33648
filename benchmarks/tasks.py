"""Rows to learn from and rows to judge by, made anew from every seed: what the default rule is
measured on.

    few         4, 6, 8 devices with 3, 5, 10 rows: alike, of own levels, different, real cities
    nonlinear   Friedman's function with personal slopes, thresholds, interactions; a linear control
    loud        one device whose labels are a hundred times as noisy as anybody else's
    time        the past to learn from, the future to judge by: house prices, households, two
                generators that drift, one whose devices share dates and shocks
    published   heart, school and weather by other people's protocols
    sets        the ten sets of the spec `compare`
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from persfl.datasets import load_housing
from persfl.devices import Devices
from persfl.lab.comparison_sets import DataSet
from persfl.lab.comparison_specs import load_comparison
from persfl.lab.row_splits import RowSplit
from persfl.sources.shifted import SHIFTS

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Features, labels and whose row it is, from 0 on."""

    X: Array
    y: Array
    g: IntArray

    def at(self, which: Array) -> Rows:
        """Some of the rows."""
        return Rows(self.X[which], self.y[which], self.g[which])


@dataclass(frozen=True)
class Task:
    """What to learn from and what to judge by."""

    learn: Rows
    judge: Rows
    columns: tuple[str, ...] = ()
    classes: int = 0  # 0: labels are numbers
    told: str = ""  # what a user could say: "ordered", "blocks"
    dates: Array | None = None  # of the rows to learn from
    unit: float = 0.0  # of errors; 0: the variance of the labels learned from
    by_rows: bool = False  # the mean over rows, not over devices
    known: float | None = None  # the least error that others have published
    split: RowSplit | None = (
        None  # the same rows, where persfl's other methods are tried
    )

    def errors(self, said: Array) -> list[float]:
        """Each device's mean squared error in units, or share of wrong labels; one number where it
        is the mean over rows.
        """
        y, g = self.judge.y, self.judge.g
        if self.classes:
            missed = (said != y).astype(float)
        else:
            missed = (said - y) ** 2 / (self.unit or self.learn.y.var())
        if self.by_rows:
            return [float(missed.mean())]
        return (np.bincount(g, weights=missed) / np.bincount(g)).tolist()


Make = Callable[[int], Task]


@dataclass(frozen=True)
class Section:
    """Tasks by name; `repeat` is how many seeds stand for one, where a fit takes no time."""

    tasks: dict[str, Make]
    rivals: tuple[str, ...]
    repeat: int = 1
    left_out: list[str] = field(default_factory=list)


# Made-up devices


def linear_rows(
    W: Array, rows: int, noise: Array | float, draw: np.random.Generator
) -> Rows:
    """Rows of devices with these models, the first coefficient being the level."""
    n, d = len(W), W.shape[1] - 1
    g = np.repeat(np.arange(n), rows)
    X = draw.normal(size=(n * rows, d))
    said = W[g, 0] + (X * W[g, 1:]).sum(axis=1)
    return Rows(X, said + np.broadcast_to(noise, n)[g] * draw.normal(size=len(g)), g)


FEW_KINDS = {  # spread of the levels, spread of the slopes, noise
    "alike": (0.0, 0.0, 1.0),
    "levels": (1.0, 0.0, 0.5),
    "different": (1.0, 1.0, 0.3),
}


def few(seed: int, *, kind: str, n: int, rows: int) -> Task:
    """Few devices with few rows of three features."""
    draw = np.random.default_rng([seed, n, rows, *kind.encode()])
    if kind == "housing":
        return _few_cities(n, rows, draw)
    level, slope, noise = FEW_KINDS[kind]
    middle = draw.normal(size=4)
    W = middle + np.array([level, slope, slope, slope]) * draw.normal(size=(n, 4))
    learn = linear_rows(W, rows, noise, draw)
    judge = linear_rows(W, 200, noise, draw)
    return Task(
        learn, judge, unit=float(judge.y.var())
    )  # twelve rows' own tells little


def _few_cities(n: int, rows: int, draw: np.random.Generator) -> Task:
    every, columns = _housing()[:2]
    cities = draw.choice(every.g.max() + 1, n, replace=False)
    learn, judge = [], []
    for city in cities:
        at = draw.permutation(np.flatnonzero(every.g == city))
        learn.append(at[:rows])
        judge.append(at[rows : rows + 200])
    parts = [_renumbered(every.at(np.concatenate(part))) for part in (learn, judge)]
    return Task(parts[0], parts[1], columns, unit=float(parts[1].y.var()))


def _renumbered(rows: Rows) -> Rows:
    """Devices numbered in the order in which they come."""
    return Rows(rows.X, rows.y, pd.factorize(rows.g)[0])


def loud(seed: int) -> Task:
    """60 devices with 20 rows of six features; the labels of the first are a hundred times as
    loud. The truth without noise judges.
    """
    draw = np.random.default_rng([seed, 11])
    n, d = 60, 6
    W = np.c_[np.zeros(n), draw.normal(size=d) + 0.3 * draw.normal(size=(n, d))]
    noise = np.full(n, 0.05)
    noise[0] = 5.0
    learn = linear_rows(W, 20, noise, draw)
    return Task(learn, linear_rows(W, 200, 0.0, draw), unit=1.0)


def _friedman(X: Array, own: Array) -> Array:
    curved = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    return curved + (10 + 5 * own[:, 0]) * X[:, 3] + (5 + 5 * own[:, 1]) * X[:, 4]


def _thresholds(X: Array, own: Array) -> Array:
    step = 4.0 * (X[:, 0] > 0.5 + 0.15 * own[:, 0]) - 3.0 * (X[:, 1] > 0.3)
    return step + 2.0 * (X[:, 2] > 0.7) * own[:, 1] + own[:, 2]


def _interactions(X: Array, own: Array) -> Array:
    Z = X - 0.5
    both = 12 * Z[:, 0] * Z[:, 1] + 8 * Z[:, 2] * np.abs(Z[:, 3])
    return both + own[:, 0] + 2 * own[:, 1] * Z[:, 4]


def _straight(X: Array, own: Array) -> Array:
    return (
        X[:, :6] @ np.arange(1.0, 7.0)
        + (2 * X[:, :6] * own[:, :6]).sum(axis=1)
        + own[:, 6]
    )


TRUTHS = {  # and the spread of noise
    "friedman": (_friedman, 1.0),
    "thresholds": (_thresholds, 0.7),
    "interactions": (_interactions, 0.7),
    "linear control": (_straight, 1.0),
}


def nonlinear(seed: int, *, kind: str, n: int, rows: int) -> Task:
    """Devices with a function in common and numbers of their own in it; eight features."""
    draw = np.random.default_rng([seed, n, rows, *kind.encode()])
    truth, noise = TRUTHS[kind]
    own = draw.normal(size=(n, 8))

    def made(each: int) -> Rows:
        g = np.repeat(np.arange(n), each)
        X = draw.random((len(g), 8))
        return Rows(X, truth(X, own[g]) + noise * draw.normal(size=len(g)), g)

    return Task(made(rows), made(100))


# In the order of time


@cache
def _housing() -> tuple[Rows, tuple[str, ...], IntArray]:
    """House prices of 46 cities, their columns, and the month of each row."""
    table = load_housing()
    frame = table.frame
    codes = pd.factorize(frame["city"])[0].astype(np.int64)
    X = frame[list(table.feature_names)].to_numpy(float)
    months = (12 * frame["year"] + frame["month"]).to_numpy(np.int64)
    return (
        Rows(X, frame["log_price"].to_numpy(float), codes),
        tuple(table.feature_names),
        months,
    )


def housing(seed: int, *, past: int, future: int) -> Task:
    """The last `past` months before a date of this seed's, and the `future` months after it.

    Cities with fewer than half of those rows, or none to judge by, are left out.
    """
    every, columns, months = _housing()
    first, last = int(months.min()) + past, int(months.max()) - future + 1
    now = int(np.random.default_rng([seed, past, future]).integers(first, last + 1))
    learn = (months >= now - past) & (months < now)
    judge = (months >= now) & (months < now + future)
    known = np.bincount(every.g[learn], minlength=46) >= past / 2
    known &= np.bincount(every.g[judge], minlength=46) > 0
    number = np.cumsum(known) - 1
    parts = []
    for which in (learn & known[every.g], judge & known[every.g]):
        part = every.at(which)
        parts.append(Rows(part.X, part.y, number[part.g]))
    dates = months[learn & known[every.g]].astype(float)
    return Task(*parts, columns, told="ordered", dates=dates)


@cache
def _homes(folder: str) -> tuple[Array, Array, tuple[str, ...]]:
    """(homes, hours, features), (homes, hours) and the columns."""
    with np.load(Path(folder) / "household.npz") as file:
        X, y, g = file["X"].astype(float), file["y"].astype(float), file["group"]
        names = tuple(map(str, file["names"]))
    n = g.max() + 1
    return X.reshape(n, -1, X.shape[1]), y.reshape(n, -1), names


def household(seed: int, *, folder: str, days: int = 4) -> Task:
    """60 homes: some days hour by hour, and the day that follows."""
    X, y, columns = _homes(folder)
    draw = np.random.default_rng([seed, 17])
    homes = draw.choice(len(X), 60, replace=False)
    begin = 24 * int(draw.integers(X.shape[1] // 24 - days))
    past, future = np.arange(24 * days) + begin, np.arange(24) + begin + 24 * days

    def rows(hours: IntArray) -> Rows:
        at = np.ix_(homes, hours)
        g = np.repeat(np.arange(60), len(hours))
        return Rows(X[at].reshape(len(g), -1), y[at].ravel(), g)

    dates = np.tile(past // 24, 60).astype(float)
    return Task(rows(past), rows(future), columns, told="ordered", dates=dates)


def _cut(X: Array, y: Array, past: int, told: str) -> Task:
    """Of (devices, times, features) and (devices, times): the past and the future."""
    n, _, d = X.shape

    def rows(A: Array, b: Array) -> Rows:
        return Rows(A.reshape(-1, d), b.ravel(), np.repeat(np.arange(n), b.shape[1]))

    dates = np.tile(np.arange(float(past)), n)
    parts = rows(X[:, :past], y[:, :past]), rows(X[:, past:], y[:, past:])
    return Task(*parts, told=told, dates=dates)


def drift(seed: int) -> Task:
    """40 devices whose levels and slopes wander, partly together; 30 times, and the next 10."""
    draw = np.random.default_rng([seed, 19])
    n, times, d = 40, 40, 4
    walk = 0.1 * draw.normal(size=(1, times, d + 1)) + 0.15 * draw.normal(
        size=(n, times, d + 1)
    )
    W = (
        draw.normal(size=d + 1)
        + 0.5 * draw.normal(size=(n, 1, d + 1))
        + walk.cumsum(axis=1)
    )
    X = draw.normal(size=(n, times, d))
    said = W[..., 0] + (X * W[..., 1:]).sum(axis=2)
    return _cut(X, said + 0.3 * draw.normal(size=(n, times)), 30, "ordered")


def wander(seed: int) -> Task:
    """60 slow processes of one law: where each will be in two steps, from where it is and was.
    24 times, and the next 100. Own rows show a short piece of a path, which looks like a law.
    """
    draw = np.random.default_rng([seed, 23])
    n, past, future = 60, 24, 100
    times = past + future + 5
    shocks = draw.normal(size=(n, times))
    z, v = np.zeros((n, times)), np.zeros(n)
    for k in range(1, times):
        v = 0.7 * v + 0.3 * shocks[:, k]
        z[:, k] = 0.97 * z[:, k - 1] + v
    k = np.arange(3, times - 2)
    X = np.stack([z[:, k], z[:, k] - z[:, k - 1], z[:, k - 1] - z[:, k - 3]], axis=2)
    return _cut(X, z[:, k + 2], past, "ordered")


def shock(seed: int, *, shared: bool) -> Task:
    """100 devices in ten regions, eight dates to learn from and two that follow. Where it is
    shared, a region has the same shock and nearly the same features on a date.
    """
    draw = np.random.default_rng([seed, 29, shared])
    n, dates, d = 100, 10, 10
    region = np.arange(n) % 10
    if shared:
        X = draw.normal(size=(10, dates, d))[region] + 0.3 * draw.normal(
            size=(n, dates, d)
        )
        common = draw.normal(size=(10, dates))[region]
    else:
        X = 1.04 * draw.normal(size=(n, dates, d))
        common = draw.normal(size=(n, dates))
    return _cut(X, X[..., 0] + common + 0.3 * draw.normal(size=(n, dates)), 8, "blocks")


# Other people's tables and protocols


def _least_published(folder: str, name: str) -> float:
    """The best of the numbers in published.json, as an error."""
    content = json.loads((Path(folder) / "published.json").read_text(encoding="utf-8"))
    entries = content["sets"][name]["published"]
    same = [one["value"] for one in entries if one["metric"] == entries[0]["metric"]]
    return 1 - max(same) if content["sets"][name]["better"] == "higher" else min(same)


def heart(seed: int, *, folder: str) -> Task:
    """Four hospitals: ill or not (FLamby's split); the share of wrong labels, mean of the four."""
    frame = pd.read_csv(Path(folder) / "heart.csv")
    columns = tuple(frame.columns[2:15])
    names = ["cleveland", "hungarian", "switzerland", "va"]
    g = frame["hospital"].map(names.index).to_numpy(np.int64)
    every = Rows(
        frame[list(columns)].to_numpy(float), frame["disease"].to_numpy(float), g
    )
    train = (frame["split"] == "train").to_numpy()
    known = _least_published(folder, "heart")
    return Task(every.at(train), every.at(~train), columns, classes=2, known=known)


def school(seed: int, *, folder: str) -> Task:
    """Exam scores of 139 schools; one of five splits; the mean over rows."""
    frame = pd.read_csv(Path(folder) / "school.csv")
    columns = tuple(f"x{k}" for k in range(27))  # the last is all ones
    score = (frame["score"].to_numpy(float) - 1) / 69
    every = Rows(
        frame[list(columns)].to_numpy(float), score, frame["school"].to_numpy(np.int64)
    )
    train = (frame[f"split{seed % 5}"] == "train").to_numpy()
    known = _least_published(folder, "school")
    parts = every.at(train), every.at(~train)
    return Task(*parts, columns, unit=1.0, by_rows=True, known=known)


def weather(seed: int, *, folder: str, at_random: bool = False) -> Task:
    """Tomorrow's highest temperature at 192 stations: eight dates to learn from, two to judge by,
    the authors' (the same everywhere) or drawn anew for each station.
    """
    frame = pd.read_csv(Path(folder) / "fmi.csv")
    columns = tuple(f"t{kind}_{k}" for kind in ("max", "min") for k in range(1, 6))
    g = frame["station"].to_numpy(np.int64)
    every = Rows(
        frame[list(columns)].to_numpy(float), frame["y_tmax"].to_numpy(float), g
    )
    train = (frame["split"] == "train").to_numpy()
    if at_random:
        mark = pd.Series(np.random.default_rng([seed, 31]).random(len(g)))
        train = (mark.groupby(g).rank() <= 8).to_numpy()
    dates = frame["date"].to_numpy(float)[train]
    parts = every.at(train), every.at(~train)
    if at_random:
        return Task(*parts, columns, unit=1.0)
    known = _least_published(folder, "fmi")
    return Task(*parts, columns, told="blocks", dates=dates, unit=1.0, known=known)


# The sets of the spec `compare`


def compared(seed: int, *, data: DataSet) -> Task:
    """The rows of a comparison."""
    split = data.dealt(seed)
    return Task(
        _rows(split.learn), _rows(split.judge), classes=split.classes, split=split
    )


def _rows(devices: Devices) -> Rows:
    return Rows(devices.X, devices.y, devices.owner)


# All of it

LINEAR = (
    "own mean",
    "own ridge",
    "pooled",
    "dummies",
    "level",
    "diagonal",
    "full",
    "GTVMin",
)
EVERYBODY = (*LINEAR, "boosting")
IN_OTHER_UNITS = ("diagonal, centred", "full, centred", "GTVMin, centred")
OF_CLASSES = ("heart", "wisdm", "pb52", *SHIFTS)  # sets whose labels are classes
CLASSES = ("own logistic", "pooled logistic", "logistic dummies", "boosted classes")


def sections(data: Path | None, published: Path | None) -> dict[str, Section]:
    """All sections by name; what needs a folder that is not there is left out, by name."""
    small = {
        f"{kind} {n} x {rows}": partial(few, kind=kind, n=n, rows=rows)
        for kind in (*FEW_KINDS, "housing")
        for n in (4, 6, 8)
        for rows in (3, 5, 10)
    }
    curved = {
        f"{kind} {n} x {rows}": partial(nonlinear, kind=kind, n=n, rows=rows)
        for kind in TRUTHS
        for n, rows in ((20, 15), (40, 40))
    }
    return {
        "few": Section(small, ("own ridge", "pooled"), repeat=5),
        "nonlinear": Section(curved, EVERYBODY),
        "loud": Section({"loud device": loud}, ("own ridge", "pooled"), repeat=4),
        "time": _time(data),
        "published": _published(published),
        "sets": _sets(data),
    }


def _time(data: Path | None) -> Section:
    tasks: dict[str, Make] = {
        "txhousing, 24 months, next 6": partial(housing, past=24, future=6),
        "txhousing, 60 months, next 12": partial(housing, past=60, future=12),
    }
    left_out = []
    if data is not None and (data / "household.npz").is_file():
        tasks["household, next day"] = partial(household, folder=str(data))
    else:
        left_out.append("household")
    tasks |= {
        "drift": drift,
        "wander": wander,
        "shared shocks": partial(shock, shared=True),
    }
    return Section(tasks, EVERYBODY, left_out=left_out)


def _published(folder: Path | None) -> Section:
    makers: dict[str, Make] = {
        "heart": partial(heart, folder=str(folder)),
        "school": partial(school, folder=str(folder)),
        "fmi": partial(weather, folder=str(folder)),
        "fmi, dates at random": partial(weather, folder=str(folder), at_random=True),
    }
    there = {
        name: make
        for name, make in makers.items()
        if folder is not None and (folder / f"{name.split(',')[0]}.csv").is_file()
    }
    return Section(
        there, EVERYBODY, left_out=[name for name in makers if name not in there]
    )


def _sets(data: Path | None) -> Section:
    spec, left_out = load_comparison("compare").there(data)
    tasks: dict[str, Make] = {
        one.name: partial(compared, data=one) for one in spec.sets
    }
    return Section(tasks, (*EVERYBODY, *IN_OTHER_UNITS), left_out=left_out)
