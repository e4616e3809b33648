"""Whether a published split tells methods apart: heart, split anew many times, and the weather's
eight dates, hidden one after the other.

    python benchmarks/published_luck.py --published FOLDER [--splits 20] [--first 7000]

Heart: as many rows of each hospital as in FLamby's split, drawn by the seed; accuracies (mean of
the four hospitals) of blend and its rivals, and the mean difference of blend to each with its
standard error. Weather: the mean squared error on each date, in units of the labels' variance, of
own means and of one ridge model for all, which have learned from the other seven.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import Judged, errors_of, rivals_on
from sklearn.linear_model import Ridge
from tasks import CLASSES, Rows, Task, sections

from persfl.types import Array


def joined(task: Task) -> Rows:
    """All rows of a task."""
    both = (task.learn, task.judge)
    return Rows(
        np.concatenate([one.X for one in both]),
        np.concatenate([one.y for one in both]),
        np.concatenate([one.g for one in both]),
    )


def again(task: Task, seed: int) -> Task:
    """The same rows, as many of each device to learn from, drawn anew."""
    every = joined(task)
    luck = pd.Series(np.random.default_rng([seed, 41]).random(len(every.g)))
    many = np.bincount(task.learn.g)
    learn = (luck.groupby(every.g).rank() <= many[every.g]).to_numpy()
    return replace(task, learn=every.at(learn), judge=every.at(~learn))


def accuracies(task: Task, seeds: range) -> Iterator[dict[str, float]]:
    """Of blend and its rivals, split by split."""
    for seed in seeds:
        here = again(task, seed)
        found = {"blend": errors_of(here, lambda: Judged().fit(here, seed))}  # noqa: B023
        found |= rivals_on(replace(here, known=None), CLASSES)
        yield {name: 1.0 - float(np.mean(one["errors"])) for name, one in found.items()}


def by_date(task: Task) -> Iterator[tuple[float, float, float]]:
    """Each date, and what own means and one model for all make of it."""
    learn = task.learn
    dates = np.asarray(task.dates)
    scale = learn.y.var()
    for date in np.unique(dates).tolist():
        seen = dates != date
        mean = pd.Series(learn.y[seen]).groupby(learn.g[seen]).mean()
        own = mean.reindex(learn.g[~seen]).to_numpy()
        wide = _standard(learn.X, seen)
        one = Ridge(1.0).fit(wide[seen], learn.y[seen]).predict(wide[~seen])
        missed = [((learn.y[~seen] - said) ** 2).mean() / scale for said in (own, one)]
        yield date, *map(float, missed)


def _standard(X: Array, seen: Array) -> Array:
    return np.asarray((X - X[seen].mean(axis=0)) / X[seen].std(axis=0))


def main() -> None:
    """Print both."""
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked.add_argument("--published", type=Path, required=True)
    asked.add_argument("--splits", type=int, default=20)
    asked.add_argument("--first", type=int, default=7000)
    given = asked.parse_args()
    warnings.simplefilter("ignore")
    tasks = sections(None, given.published)["published"].tasks
    print("date  own means  one model for all")
    for date, own, one in by_date(tasks["fmi"](0)):
        print(f"{date:4.0f}{own:11.3f}{one:19.3f}")
    seeds = range(given.first, given.first + given.splits)
    table = pd.DataFrame(list(accuracies(tasks["heart"](0), seeds)))
    away = table.rsub(table["blend"], axis=0)
    unsure = away.std() / len(away) ** 0.5
    for name in table:
        mean = f"{name:20}{table[name].mean():7.4f}"
        print(f"{mean}   blend is {away[name].mean():+.4f} ({unsure[name]:.4f})")


if __name__ == "__main__":
    main()
