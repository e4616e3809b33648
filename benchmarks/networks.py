"""How fast rounds of neural networks are, all devices targets.

    python benchmarks/networks.py                 on a CPU, one thread: ratios against plain loops
    python benchmarks/networks.py --device cuda   on a GPU: milliseconds a round, and memory
    python benchmarks/networks.py --quick         small: shows that it works

Everything goes through the public API: 50 rows per device, 20 peers, one gradient step per answer.
MLP is 64-32-10 with ReLU; CNN two convolutions of 16 and 32 filters on 3 x 32 x 32 pixels; digits
one of 8 filters on 8 x 8 pixels, 10 rows. The plain loop does for every pair what a person would
write: copy the model, one SGD step on the peer's rows, the loss on the target's rows.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from persfl import ArrayFleet, Best, Devices, GradientStep, Linear, Uniform, personalize
from persfl.learners import Network

STEP, PEERS, ROWS = 0.05, 20, 50


def mlp() -> nn.Module:
    """64 features, 10 classes."""
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def cnn() -> nn.Module:
    """3 x 32 x 32 pixels, 10 classes."""
    first = (nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(1152, 10))


def digit_cnn() -> nn.Module:
    """8 x 8 pixels, 10 classes."""
    filters = (nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*filters, nn.Flatten(), nn.Linear(72, 10))


def rows(n: int, rows: int, features: int, classes: int) -> Devices:
    """Random devices."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((n * rows, features))
    y = generator.standard_normal(n * rows)
    if classes:
        y = generator.integers(0, classes, n * rows) + 0.0
    return Devices(X, y, np.ones(n * rows), np.arange(n + 1) * rows, range(n))


def timed(fleet: ArrayFleet, rounds: int) -> float:
    """The median seconds from one round's record to the next, after a few that warm up."""
    spent = []
    begin = time.perf_counter()
    for _ in personalize(fleet, sampler=Uniform(PEERS), adopter=Best(), rounds=rounds):
        now = time.perf_counter()
        spent.append(now - begin)
        begin = now
    return statistics.median(spent[len(spent) // 3 :])


def plain(
    devices: Devices,
    make: Callable[[], nn.Module],
    shape: tuple[int, ...],
    targets: int,
    place: str = "cpu",
) -> float:
    """Seconds a round would take for all targets, pair by pair, measured on a few of them."""
    data = [
        (
            torch.tensor(d.X, dtype=torch.float32).view(-1, *shape).to(place),
            torch.tensor(d.y).long().to(place),
        )
        for d in (devices[i] for i in range(len(devices)))
    ]
    loss = nn.CrossEntropyLoss()
    rng = np.random.default_rng(0)
    models = [make().to(place) for _ in range(targets)]
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


def ratio(
    name: str, learner: Network, make: Any, shape: Any, devices: Devices, quick: bool
) -> None:
    """Print how many times longer the loop over pairs takes, on one thread."""
    found = []
    # one after the other, several times: other work on the machine then slows both
    for _ in range(1 if quick else 5):
        fleet = ArrayFleet(devices, learner=learner, proposer=GradientStep(STEP))
        ours = timed(fleet, 6)
        theirs = plain(devices, make, shape, 2 if quick else 10)
        found.append((theirs / ours, ours, theirs))
    times, ours, theirs = sorted(found)[len(found) // 2]
    print(
        f"{name}, {len(devices)} targets: {1e3 * ours:.1f} ms against"
        f" {1e3 * theirs:.1f} ms pair by pair, ratio {times:.1f}",
        flush=True,
    )


def on_a_processor(quick: bool) -> None:
    """Ratios, which other work on the machine changes less than times."""
    torch.set_num_threads(1)
    n = 25 if quick else 100
    ratio("MLP", Network(mlp), mlp, (64,), rows(n, ROWS, 64, 10), quick)
    digits = Network(digit_cnn, shape=(1, 8, 8))
    ratio("CNN on digits", digits, digit_cnn, (1, 8, 8), rows(n, 10, 64, 10), quick)
    one = []
    for many in (n, 10 * n):
        devices = rows(many, ROWS, 64, 10)
        step = GradientStep(STEP)
        fleet = ArrayFleet(devices, learner=Network(mlp), proposer=step, targets=[0])
        one.append(timed(fleet, 30))
    print(f"one target among {10 * n} devices against {n}: {one[1] / one[0]:.2f}")


def line(name: str, fleet: ArrayFleet, rounds: int) -> float:
    """Print a row of the table; milliseconds."""
    timed(fleet, 2)
    torch.cuda.reset_peak_memory_stats()
    spent = 1e3 * timed(fleet, rounds)
    peak = torch.cuda.max_memory_allocated() / 2**30
    print(f"| {name} | {spent:.2f} ms | {peak:.1f} GiB |", flush=True)
    return spent


def convolutions(device: str, quick: bool) -> None:
    """The CNN in every precision, and four times as many devices."""
    found = {}
    few = 20 if quick else 100
    for n, precision in (
        (few, "float32"),
        (4 * few, "float32"),
        (few, "bf16"),
        (few, "tf32"),
        (4 * few, "bf16"),
    ):
        fleet = ArrayFleet(
            rows(n, ROWS, 3072, 10),
            learner=Network(cnn, shape=(3, 32, 32)),
            proposer=GradientStep(STEP),
            compute=device,
            compiled=True,
            precision=precision,
        )
        name = f"CNN, {n} devices, {precision}"
        found[n, precision] = line(name, fleet, 6)
        if n > few:
            times = found[n, precision] / found[few, precision]
            print(f"| {name} over {few} | {times:.2f}x | |", flush=True)
        del fleet
        torch.cuda.empty_cache()
    loop = plain(rows(few, ROWS, 3072, 10), cnn, (3, 32, 32), 3, device)
    print(f"| CNN, {few} devices, plain loop over pairs | {1e3 * loop:.0f} ms | |")


def small_models(device: str, quick: bool, sizes: list[int]) -> None:
    """The MLP and linear models."""
    for n in [100] if quick else sizes:
        for compiled in (False, True):
            fleet = ArrayFleet(
                rows(n, ROWS, 64, 10),
                learner=Network(mlp),
                proposer=GradientStep(STEP),
                compute=device,
                compiled=compiled,
            )
            line(f"MLP, {n} devices{', compiled' * compiled}", fleet, 40)
    for compiled in (False, True):
        fleet = ArrayFleet(
            rows(1000, 10, 100, 0),
            learner=Linear(),
            proposer=GradientStep(STEP),
            compute=device,
            dtype="float32",
            compiled=compiled,
        )
        name = f"linear, 1,000 devices, 100 features, 10 rows{', compiled' * compiled}"
        line(name, fleet, 200)


def same_choices(device: str) -> None:
    """Whether devices choose alike on both, in float64, and for any chunk size."""
    found = []
    for settings in ({"compute": "cpu"}, {}, {"memory": 0.001}, {"compiled": True}):
        fleet = ArrayFleet(
            rows(40, 12, 64, 10),
            learner=Network(digit_cnn, shape=(1, 8, 8), dtype="float64"),
            proposer=GradientStep(0.2),
            **({"compute": device} | settings),
        )
        run = personalize(fleet, sampler=Uniform(10), adopter=Best(), rounds=10)
        found.append([round_.choice.peers.tolist() for round_ in run])
    alike = all(choices == found[0] for choices in found)
    print(f"choices in float64, on both, in chunks and compiled, are the same: {alike}")


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", "--compute", default="cpu")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--devices",
        type=int,
        nargs="+",
        default=[100, 1000, 10_000],
        help="sizes of fleets of MLPs on a GPU",
    )
    chosen = parser.parse_args()
    if chosen.device == "cpu":
        on_a_processor(chosen.quick)
        return
    print("| | a round | peak memory |\n|---|---|---|")
    small_models(chosen.device, chosen.quick, chosen.devices)
    convolutions(chosen.device, chosen.quick)
    same_choices(chosen.device)


if __name__ == "__main__":
    main()
