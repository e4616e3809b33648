"""How fast rounds of neural networks are, all devices targets.

    python benchmarks/networks.py                on a CPU: ratios against a plain PyTorch loop over
    pairs, one thread python benchmarks/networks.py --compute cuda  on a GPU: milliseconds a round
    through the public API python benchmarks/networks.py --quick        small: shows that it works

The network is 64-32-10 with ReLU in float32, 50 rows per device, 20 peers, one gradient step per
answer. The plain loop does for every pair what a person would write: copy the model, one SGD step
on the peer's rows, the loss on the target's rows.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from typing import Any

import numpy as np
import torch
from torch import nn

from persfl import ArrayFleet, Best, Devices, GradientStep, Linear, Uniform, personalize
from persfl.learners import Network

STEP, PEERS, ROWS = 0.05, 20, 50


def network() -> nn.Module:
    """The network that is timed."""
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def rows(n: int, rows: int, features: int, classes: int) -> Devices:
    """Random devices."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((n * rows, features))
    y = (
        generator.integers(0, classes, n * rows) + 0.0
        if classes
        else generator.standard_normal(n * rows)
    )
    return Devices(X, y, np.ones(n * rows), np.arange(n + 1) * rows, range(n))


def timed(fleet: Any, rounds: int, compute: str) -> float:
    """The median seconds of a round, after a few that warm up."""
    spent, begin = [], time.perf_counter()
    for _ in personalize(fleet, sampler=Uniform(PEERS), adopter=Best(), rounds=rounds):
        if compute != "cpu":
            torch.cuda.synchronize()
        now = time.perf_counter()
        spent.append(now - begin)
        begin = now
    return statistics.median(spent[len(spent) // 3 :])


def plain(devices: Devices, targets: int) -> float:
    """Seconds a round would take for all targets, pair by pair, measured on a few of them."""
    data = [
        (torch.tensor(d.X, dtype=torch.float32), torch.tensor(d.y).long())
        for d in (devices[i] for i in range(len(devices)))
    ]
    loss, rng = nn.CrossEntropyLoss(), np.random.default_rng(0)
    models = [network() for _ in range(targets)]
    begin = time.perf_counter()
    for target in range(targets):
        X0, y0 = data[target]
        best, least = models[target], float("inf")
        for peer in rng.choice(len(data), PEERS, replace=False):
            answer = copy.deepcopy(models[target])
            X, y = data[peer]
            grads = torch.autograd.grad(loss(answer(X), y), list(answer.parameters()))
            with torch.no_grad():
                for parameter, slope in zip(answer.parameters(), grads, strict=True):
                    parameter -= STEP * slope
                score = float(loss(answer(X0), y0))
            if score < least:
                best, least = answer, score
        models[target] = best
    return (time.perf_counter() - begin) * len(devices) / targets


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compute", default="cpu")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--precision",
        default="highest",
        help="of products on a GPU: 'high' rounds them to TF32",
    )
    parser.add_argument(
        "--devices",
        type=int,
        nargs="+",
        default=[100, 1000, 10_000],
        help="sizes of fleets on a GPU",
    )
    chosen = parser.parse_args()
    torch.set_float32_matmul_precision(chosen.precision)
    learner = Network(network)
    if chosen.compute == "cpu":
        torch.set_num_threads(1)
        n = 25 if chosen.quick else 100
        devices = rows(n, ROWS, 64, 10)
        # one after the other, several times: other work on the machine then slows both
        pairs = []
        for _ in range(1 if chosen.quick else 5):
            ours = timed(
                ArrayFleet(devices, learner=learner, proposer=GradientStep(STEP)),
                6,
                "cpu",
            )
            pairs.append((ours, plain(devices, 2 if chosen.quick else 10)))
        ours, theirs = sorted(pairs, key=lambda pair: pair[1] / pair[0])[
            len(pairs) // 2
        ]
        print(
            f"network, {n} targets: {1e3 * ours:.1f} ms against {1e3 * theirs:.1f} ms pair by pair,"
            f" ratio {theirs / ours:.1f}"
        )
        one = [
            timed(
                ArrayFleet(
                    rows(m, ROWS, 64, 10),
                    learner=learner,
                    proposer=GradientStep(STEP),
                    targets=[0],
                ),
                30,
                "cpu",
            )
            for m in (n, 10 * n)
        ]
        print(
            f"one target among {10 * n} devices against among {n}: ratio {one[1] / one[0]:.2f}"
        )
        return
    for n in chosen.devices if not chosen.quick else (100,):
        devices = rows(n, ROWS, 64, 10)
        for compiled in (False, True):
            fleet = ArrayFleet(
                devices,
                learner=learner,
                proposer=GradientStep(STEP),
                compute=chosen.compute,
                compiled=compiled,
            )
            torch.cuda.reset_peak_memory_stats()
            spent = timed(fleet, 30, chosen.compute)
            peak = torch.cuda.max_memory_allocated() / 2**30
            print(
                f"network, {n} targets, {'compiled' if compiled else 'plain'}: {1e3 * spent:.2f}"
                f" ms, peak {peak:.2f} GiB",
                flush=True,
            )
    for compiled in (False, True):
        devices = rows(1000, 10, 100, 0)
        fleet = ArrayFleet(
            devices,
            learner=Linear(),
            proposer=GradientStep(STEP),
            compute=chosen.compute,
            dtype="float32",
            compiled=compiled,
        )
        spent = timed(fleet, 200, chosen.compute)
        print(
            f"linear, 1000 targets, 100 features, 10 rows, {'compiled' if compiled else 'plain'}:"
            f" {1e3 * spent:.2f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
