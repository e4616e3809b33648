"""How fast a round is, as ratios measured in one run, on one thread.

    python benchmarks/core.py            about two minutes
    python benchmarks/core.py --quick    a few seconds, for a smoke test

The rival is `plain_round` below: the loop a person would write, one pair at a time in NumPy, doing
what a fleet's round does (draw peers, step, score, measure the step, choose, remember per pair how
often it was asked, its reward and its share). Each figure is the best of several interleaved
repetitions of both, because the machine is shared.
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
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from persfl import (
    ArrayFleet,
    Best,
    Estimator,
    GradientStep,
    Linear,
    LoopFleet,
    Refit,
    Tree,
    Uniform,
    personalize,
)
from persfl.compiled import kernels
from persfl.sources import clustered_regression

STEP, PEERS, ROWS = 0.05, 20, 10


def plain_round(
    data: list[Any],
    models: Any,
    targets: Any,
    rng: np.random.Generator,
    memory: dict[Any, Any],
) -> Any:
    """One round of Algorithm 1 for every target, pair by pair."""
    new = np.empty_like(models)
    for row, target in enumerate(targets):
        w, (X0, y0) = models[row], data[target]
        now = np.mean((y0 - X0 @ w) ** 2)
        peers = rng.choice(len(data) - 1, PEERS, replace=False)
        best = np.inf
        for peer in peers + (peers >= target):
            X, y = data[peer]
            proposal = w - STEP * (-2 / len(y) * X.T @ (y - X @ w))
            length = np.linalg.norm(proposal - w)
            loss = np.mean((y0 - X0 @ proposal) ** 2)
            known = memory.setdefault((target, peer), [0, 0.0, 0.0, 0.0, 0])
            known[0] += 1
            known[1] += now - loss
            known[2] += (now - loss) ** 2
            known[3] = length
            if loss < best:
                best, new[row], chosen = loss, proposal, known
        chosen[4] += 1
    return new


def best_of(
    jobs: dict[str, tuple[Callable[[], Any], int]], repeats: int
) -> dict[str, float]:
    """Seconds per unit of each job, the best of interleaved repetitions; a job is (function,
    units of work it does).
    """
    times = dict.fromkeys(jobs, np.inf)
    for _ in range(repeats + 1):
        for name, (job, units) in jobs.items():
            begin = time.perf_counter()
            job()
            times[name] = min(times[name], (time.perf_counter() - begin) / units)
    return times


def rounds_of(fleet: Any, rounds: int) -> Callable[[], None]:
    """A job that runs some rounds."""

    def job() -> None:
        trust = None
        for round_ in personalize(
            fleet, sampler=Uniform(PEERS), adopter=Best(), rounds=rounds, seed=0
        ):
            trust = round_.trust
        # what was remembered is added up when it is read: that belongs to the price
        _ = trust is None or trust.pairs

    return job


def linear(n: int, features: int, targets: int, rounds: int, repeats: int) -> None:
    """Fleet against plain loop."""
    devices = clustered_regression(n=n, rows=ROWS, features=features, noise=0.1, seed=0)
    who = list(range(targets))
    fleet = ArrayFleet(
        devices, learner=Linear(), proposer=GradientStep(STEP), targets=who
    )
    loop = LoopFleet(
        devices, learner=Linear(), proposer=GradientStep(STEP), targets=who
    )
    data = [(d.X, d.y) for d in devices]
    rng, memory = np.random.default_rng(0), {}

    def plain() -> None:
        models = np.zeros((targets, features))
        for _ in range(max(1, rounds // 20)):
            models = plain_round(data, models, who, rng, memory)

    left = np.ones((PEERS * 8, features))
    square = np.ones((features, PEERS * 8))
    jobs: dict[str, Any] = {
        "plain": (plain, max(1, rounds // 20)),
        "fleet": (rounds_of(fleet, rounds), rounds),
        "loop": (rounds_of(loop, 1), 1),
        "matmul": (lambda: [left @ square for _ in range(50)], 50),
    }
    times = best_of(jobs, repeats)
    flops = targets * PEERS * 3 * 2 * ROWS * features
    machine = 2 * (PEERS * 8) ** 2 * features / times["matmul"]
    print(
        f"{'one target' if targets == 1 else 'all targets':12} n={n:<6} d={features:<4} plain"
        f" {times['plain'] * 1e3:8.3f} ms   fleet {times['fleet'] * 1e3:7.3f} ms   ratio"
        f" {times['plain'] / times['fleet']:5.1f}x   (LoopFleet"
        f" {times['loop'] / times['fleet']:5.0f}x)   round {flops / times['fleet'] / 1e9:5.2f}"
        f" GFLOP/s   matrix product {machine / 1e9:5.1f} GFLOP/s"
    )


def growth(large: int, rounds: int, repeats: int) -> None:
    """One target: does a round cost more when there are more devices?"""
    jobs = {}
    for n in (100, large):
        devices = clustered_regression(n=n, rows=ROWS, features=20, noise=0.1, seed=0)
        fleet = ArrayFleet(
            devices, learner=Linear(), proposer=GradientStep(STEP), targets=[0]
        )
        jobs[f"n={n}"] = (rounds_of(fleet, rounds), rounds)
    small, big = best_of(jobs, repeats).values()
    print(
        f"one target   n={large} against n=100: {big / small:.2f}x the time per round"
        f" ({big * 1e6:.0f} us, {small * 1e6:.0f} us)"
    )


def trees(rounds: int, repeats: int) -> None:
    """Algorithm 2 against bare fits on rows of the same size."""
    devices = clustered_regression(n=100, rows=ROWS, features=20, seed=0)
    rng = np.random.default_rng(0)
    public = rng.standard_normal((100, 20))
    learner = Estimator(DecisionTreeRegressor(max_depth=3))
    fleet = LoopFleet(
        devices,
        learner=learner,
        proposer=Refit(public, private_weight=1, public_weight=1),
        targets=[0],
    )
    grown = LoopFleet(
        devices,
        learner=Tree(3),
        proposer=Refit(public, private_weight=1, public_weight=1),
        targets=[0],
    )
    X = np.vstack([devices[1].X, public])
    y, weight = X @ devices.true_weights[0], np.ones(len(X))

    def bare() -> None:
        for _ in range(rounds * PEERS):
            DecisionTreeRegressor(max_depth=3).fit(X, y, sample_weight=weight)

    jobs = {
        "bare": (bare, rounds),
        "fleet": (rounds_of(fleet, rounds), rounds),
        "grown": (rounds_of(grown, rounds), rounds),
    }
    times = best_of(jobs, repeats)
    ratio, fast = times["fleet"] / times["bare"], times["grown"] / times["bare"]
    print(
        f"trees        20 answers cost {ratio:.2f}x of 20 bare fits ({times['bare'] * 1e3:.1f} ms);"
        f" with Tree {fast:.2f}x"
    )


def main() -> None:
    """Print every ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    begin = time.perf_counter()
    compiled = kernels() is not None
    print(
        f"numba: {'yes' if compiled else 'no'}; kernels ready after"
        f" {time.perf_counter() - begin:.1f} s; one thread"
    )
    scale = 1 if quick else 5
    linear(100, 20, 1, 200 * scale, scale)
    linear(100, 100, 100, 20 * scale, scale)
    linear(1000, 20, 1000, 20 if quick else 100, scale)
    growth(10_000 if quick else 100_000, 200 * scale, scale)
    trees(scale, scale)
    print(
        f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB (all of"
        " the above in one process)"
    )


if __name__ == "__main__":
    main()
