"""How long the default blend takes and how much memory, as fleets grow: a whole fit, trial run and
final run.

    python benchmarks/scale.py [--devices 10000] [--rows 100] [--features 10] [--classes 2]
    [--holdout 0]

Devices are of five kinds. Each line is measured in a process of its own, so that its peak is its
own. `--all` prints the table of docs/blend.md: 1,000 devices of 30 rows and 10,000 of 100, numbers
and two classes, with and without a trial run.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

from persfl import PersonalizedClassifier, PersonalizedRegressor
from persfl.sources import clustered_regression

TABLE = [
    (n, rows, classes, holdout)
    for n, rows in ((1_000, 30), (10_000, 100))
    for classes in (0, 2)
    for holdout in (0.0, 0.25)
]


def fitted(n: int, rows: int, features: int, classes: int, holdout: float) -> None:
    """One fit, timed; what it predicts is set against the truth to see that it is a fit at all."""
    made = clustered_regression(
        n=n, clusters=5, rows=rows, features=features, noise=0.5, seed=0
    )
    y = (made.y > 0) + 0.0 if classes else made.y
    kind = PersonalizedClassifier if classes else PersonalizedRegressor
    begin, busy = time.perf_counter(), time.process_time()
    model = kind(method="blend", holdout=holdout).fit(made.X, y, devices=made.owner)
    took, busy = time.perf_counter() - begin, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    fresh = np.random.default_rng(1).standard_normal((n, features))
    truth = (fresh * made.true_weights).sum(axis=1)
    said = model.predict(fresh, devices=np.arange(n))
    missed = (
        (said != (truth > 0)).mean()
        if classes
        else ((said - truth) ** 2).mean() / truth.var()
    )
    what = f"{classes} classes" if classes else "numbers"
    print(
        f"{n:>7,} devices x {rows:>3} rows x {features} features, {what:9}, holdout {holdout:4}:"
        f" {took:6.0f} s ({busy:.0f} s of one core), {peak:4.1f} GiB, error {missed:.4f}",
        flush=True,
    )


def main() -> None:
    """Print a line, or the table."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--devices", type=int, default=10_000)
    made.add_argument("--rows", type=int, default=100)
    made.add_argument("--features", type=int, default=10)
    made.add_argument("--classes", type=int, default=0, choices=(0, 2))
    made.add_argument("--holdout", type=float, default=0.25)
    made.add_argument("--all", action="store_true")
    chosen = made.parse_args()
    if not chosen.all:
        fitted(
            chosen.devices, chosen.rows, chosen.features, chosen.classes, chosen.holdout
        )
        return
    for n, rows, classes, holdout in TABLE:
        here = [
            "--devices",
            n,
            "--rows",
            rows,
            "--classes",
            classes,
            "--holdout",
            holdout,
            "--features",
            chosen.features,
        ]
        subprocess.run([sys.executable, __file__, *map(str, here)], check=True)


if __name__ == "__main__":
    main()
