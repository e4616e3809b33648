"""Classes over a federation: the rule that asks for bends of the log chance, for small models,
beside the earlier rule, which asks for steps, and the rule of one process with all its offers.

    python benchmarks/class_federation.py [--seeds 3] [--first 13000] [--data FOLDER]
        [--published FOLDER] [--larger]

Prints log loss and the share of wrong labels on rows that nobody learned from, means over draws.
Nothing travels: what the two rules of a federation give is what they give in one process
(tests/federation holds that). With --larger on digits of several kinds, whose models are too large
for a federation to ask for bends: what the rule would be worth there without fits to devices alike.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np
from tasks import Array, IntArray, Rows, Task, few, sections

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.methods.blend import blend
from persfl.methods.mixed.class_fits import log_chances
from persfl.methods.mixed.class_rule import ClassRule, class_rule


def terciles(seed: int) -> Task:
    """Ten months of 30 cities: are prices low, usual or high?"""
    made = few(seed, kind="housing", n=30, rows=10)
    cut = np.quantile(made.learn.y, [1 / 3, 2 / 3])
    parts = (
        Rows(rows.X, np.searchsorted(cut, rows.y).astype(float), rows.g)
        for rows in (made.learn, made.judge)
    )
    return Task(*parts, classes=3)


def kinds(seed: int) -> Task:
    """30 devices of three kinds, two classes, 15 rows of five columns."""
    draw = np.random.default_rng([seed, 41])
    W = 2.0 * draw.normal(size=(3, 6))

    def made(each: int) -> Rows:
        g = np.repeat(np.arange(30), each)
        X = draw.normal(size=(len(g), 5))
        score = W[g % 3, 0] + (X * W[g % 3, 1:]).sum(axis=1)
        chance = 1.0 / (1.0 + np.exp(-score))
        return Rows(X, (draw.random(len(g)) < chance).astype(float), g)

    return Task(made(15), made(100), classes=2)


def tasks(
    data: Path | None, published: Path | None, larger: bool
) -> dict[str, Callable]:
    """Sets whose models are small, or larger ones."""
    known = sections(data, published)
    if larger:
        return {name: known["sets"].tasks[name] for name in ("relabelled", "rotated")}
    found: dict[str, Callable] = {"terciles": terciles, "kinds": kinds}
    for section, name in (("published", "heart"), ("sets", "pb52")):
        if name in known[section].tasks:
            found[name] = known[section].tasks[name]
    return found


def judged(score: Array, label: IntArray) -> Array:
    """Log loss, chances below a millionth being as bad as that, and wrong labels."""
    log = log_chances(score)[np.arange(len(label)), label]
    return np.array(
        [-np.maximum(log, np.log(1e-6)).mean(), (score.argmax(1) != label).mean()]
    )


def errors(task: Task, seed: int) -> Iterator[Array]:
    """Of the earlier rule, the new one, and that of one process."""
    X = task.learn.X
    mean, spread = X.mean(axis=0), X.std(axis=0) + 1e-9
    owners = range(int(task.learn.g.max()) + 1)
    rows = Devices.grouped((X - mean) / spread, task.learn.y, task.learn.g, owners)
    new = (task.judge.X - mean) / spread
    two = task.classes == 2
    learner = Linear(
        "logistic" if two else "multinomial",
        intercept=True,
        classes=None if two else task.classes,
    )
    label = task.judge.y.astype(int)
    before = blend(rows, learner, seed=seed, classes=task.classes).models
    W = np.asarray(before).reshape(len(rows), learner.classes, -1)
    Z = np.column_stack([new, np.ones(len(new))])
    score = np.einsum("rd,rkd->rk", Z, W[task.judge.g])
    yield judged(np.column_stack([0 * label, score]) if two else score, label)
    for whole in (False, True):
        found: ClassRule = class_rule(
            rows, learner, classes=task.classes, seed=seed, trees=whole, alike=whole
        )
        yield judged(np.log(found.chances(new, task.judge.g)), label)


def main() -> None:
    """Measure, and print."""
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked.add_argument("--seeds", type=int, default=3)
    asked.add_argument("--first", type=int, default=13000)
    asked.add_argument("--data", type=Path)
    asked.add_argument("--published", type=Path)
    asked.add_argument("--larger", action="store_true")
    given = asked.parse_args()
    print("| | earlier rule | federation | one process |\n|---|---|---|---|")
    for name, make in tasks(given.data, given.published, given.larger).items():
        seeds = range(given.first, given.first + given.seeds)
        found = np.mean([list(errors(make(s), s)) for s in seeds], axis=0)
        cells = (f"{loss:.3f}, {wrong:.3f}" for loss, wrong in found)
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
