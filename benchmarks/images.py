"""The field's image tables: FEMNIST by writers and UCI-HAR by people, method by method.

    python benchmarks/images.py har --data FOLDER [--compute cuda]
    python benchmarks/images.py femnist --data FOLDER --devices 100 --compute cuda

FOLDER holds `femnist539.npz` (X, y, writer, test) and `har.npz` (X, y, person, test, test_bout).
Nothing is downloaded. FEMNIST is the choice of writers and rows of FedEM's script; HAR the random
split of PFLlib, or whole recordings hidden (`--split test_bout`).

Every method's settings are chosen on the devices' own training rows: a fifth of each device's is
hidden, those with the best mean accuracy there after half of the rounds are taken, and the method
runs on all training rows once. `--choosing 100` lets the first 100 devices choose for all. Test
rows are scored once. With `--out` accuracies are kept by method; what is in that file already is
not computed again, so a table can be made in parts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from persfl import Devices
from persfl.errors import Diverged
from persfl.learners import Network
from persfl.learners.responses import respond
from persfl.methods import METHODS, LocalTask
from persfl.seeds import stream

# what others published, in per cent: mean over devices and bottom decile; with which network
PUBLISHED = {
    "femnist": [
        ("FedEM's README: own, FedAvg, + tuning, FedEM", "71.0, 78.6, 75.3, 79.9"),
        (
            "kNN-Per, other writers, MobileNet: FedAvg, Ditto, FedRep",
            "83.4, 84.3, 85.3",
        ),
        ("kNN-Per itself, the same; bottom decile", "88.2; 78.8"),
    ],
    "har": [("no published table could be verified", "")],
}


def femnist_net() -> nn.Module:
    """Two convolutions and a linear layer."""
    first = (nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(512, 62))


def har_net() -> nn.Module:
    """Two convolutions over time and a linear layer."""
    first = (nn.Conv2d(9, 16, (1, 9)), nn.ReLU(), nn.MaxPool2d((1, 4)))
    second = (nn.Conv2d(16, 32, (1, 9)), nn.ReLU(), nn.MaxPool2d((1, 4)))
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(160, 6))


@dataclass(frozen=True, eq=False)
class World:
    """A table's rows: to learn from, and to score once."""

    training: Devices
    test: Devices
    learner: Network
    classes: int


def devices_of(X: Any, y: Any, owner: Any) -> Devices:
    """Rows in the order of their owners."""
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner)
    start = np.concatenate([[0], np.cumsum(counts)])
    rows = X[order].astype(np.float64), y[order] + 0.0
    return Devices(*rows, np.ones(len(y)), start, range(len(counts)))


def femnist(folder: Path, devices: int, split: str) -> World:
    """Writers; pixels as FedEM feeds them."""
    with np.load(folder / "femnist539.npz") as file:
        some = file["writer"] < devices
        X, y, owner, test = (file[k][some] for k in ("X", "y", "writer", "test"))
    X = (X / 255.0 - 0.1307) / 0.3081
    test = test.astype(bool)
    parts = [devices_of(X[m], y[m], owner[m]) for m in (~test, test)]
    learner = Network(femnist_net, shape=(1, 28, 28), epochs=100, rate=0.003)
    return World(*parts, learner, 62)


def har(folder: Path, devices: int, split: str) -> World:
    """People; every signal standardised by all training rows."""
    with np.load(folder / "har.npz") as file:
        some = file["person"] < devices
        X, y, owner, test = (file[k][some] for k in ("X", "y", "person", split))
    test = test.astype(bool)
    signals = X.astype(np.float64).reshape(-1, 9, 128)
    axes = (0, 2)
    centre = signals[~test].mean(axis=axes, keepdims=True)
    spread = signals[~test].std(axis=axes, keepdims=True)
    X = ((signals - centre) / spread).reshape(len(y), -1)
    parts = [devices_of(X[m], y[m], owner[m]) for m in (~test, test)]
    learner = Network(har_net, shape=(9, 1, 128), epochs=100, rate=0.003)
    return World(*parts, learner, 6)


WORLDS: dict[str, Callable[[Path, int, str], World]] = {"femnist": femnist, "har": har}
STEPS = (0.1, 0.3)
# a method's name, and what is tried on own rows
GRIDS: dict[str, list[dict[str, Any]]] = {
    "own": [{}],
    "fedavg": [{"step_size": step, "share": 1.0} for step in STEPS],
    "fedavg+fine-tuning": [{"step_size": step, "share": 1.0} for step in STEPS],
    "ditto": [{"step_size": 0.3, "share": 1.0, "pull": pull} for pull in (0.1, 1.0)],
    "fedrep": [{"step_size": step} for step in STEPS],
    "apfl": [{"step_size": step, "share": 1.0} for step in STEPS],
    "knn-per": [{"step_size": 0.3, "share": 1.0, "k": k} for k in (5, 10)],
    "ifca": [{"step_size": 0.3, "share": 1.0, "clusters": k} for k in (2, 4)],
    "dac": [{"step_size": step} for step in STEPS],
    "pens": [{"step_size": step} for step in STEPS],
    "paper": [{"step_size": step} for step in STEPS],
    "kin": [{"step_size": 0.3}],
    "blend": [{}],
}
AVERAGING = ("fedavg", "fedavg+fine-tuning", "knn-per")


def hidden_fifth(rows: Devices, seed: int) -> tuple[Devices, Devices]:
    """Each device's rows without a fifth of them, and that fifth."""
    marks = stream(seed, "hidden").uniform(len(rows.y))
    order = np.lexsort([marks, rows.owner])
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - rows.start[rows.owner[order]]
    hide = place < rows.counts[rows.owner] // 5
    parts = [(rows.X[m], rows.y[m], rows.owner[m]) for m in (~hide, hide)]
    return devices_of(*parts[0]), devices_of(*parts[1])


def accuracies(learner: Network, models: Any, rows: Devices, classes: int) -> Any:
    """(devices,) the share of rows that each device's model labels right."""
    if isinstance(models, np.ndarray):
        found = []
        for i in range(0, len(rows), 50):
            who = np.arange(i, min(i + 50, len(rows)))
            data = rows.gather(who)
            right = learner.labels(models[who], data.X) == data.y
            found.append((right * data.weight).sum(axis=1) / data.weight.sum(axis=1))
        return np.concatenate(found)
    said = [respond(learner, m, rows[i].X, classes) for i, m in enumerate(models)]
    return np.array(
        [(z.argmax(axis=1) == rows[i].y).mean() for i, z in enumerate(said)]
    )


def run(
    world: World, name: str, settings: dict[str, Any], rounds: int, chosen: Any
) -> Any:
    """(devices,) test accuracies of a method with these settings."""
    method = METHODS[name]()
    known = method.get_params()
    wanted = settings | {"rounds": rounds}
    method = method.set_params(**{k: v for k, v in wanted.items() if k in known})
    learner = world.learner.on(
        chosen.compute, precision=chosen.precision, memory=chosen.memory
    )
    task = LocalTask(
        world.training,
        learner,
        seed=chosen.seed,
        compute=chosen.compute,
        classes=world.classes,
    )
    models = method.run(task).models
    return accuracies(learner, models, world.test, world.classes)


def grid_of(name: str, chosen: Any) -> list[dict[str, Any]]:
    """What is tried of a method: its grid, and for methods that average also how many own steps
    a round has and how many devices take part in it.
    """
    grid = GRIDS[name]
    if name not in AVERAGING:
        return grid
    more = [{"local": local, "share": chosen.share} for local in chosen.local]
    return [settings | some for settings in grid for some in more]


def best_settings(world: World, name: str, chosen: Any) -> dict[str, Any]:
    """Those with the best mean accuracy on hidden training rows of the devices that choose."""
    grid = grid_of(name, chosen)
    if len(grid) == 1:
        return grid[0]
    rows = world.training
    some = rows.owner < chosen.choosing
    rows = devices_of(rows.X[some], rows.y[some], rows.owner[some])
    learn, judge = hidden_fifth(rows, chosen.seed)
    trial = World(learn, judge, world.learner, world.classes)
    scores = []
    for settings in grid:
        try:
            found = run(trial, name, settings, chosen.rounds // 2, chosen)
            scores.append(float(found.mean()))
        except Diverged:
            scores.append(-1.0)
    return grid[int(np.argmax(scores))]


def measured(world: World, name: str, chosen: Any) -> dict[str, Any]:
    """A method's accuracies by device, with which settings, and how many seconds it took."""
    begin = time.perf_counter()
    settings = best_settings(world, name, chosen)
    accuracy = run(world, name, settings, chosen.rounds, chosen).tolist()
    spent = time.perf_counter() - begin
    return {"accuracy": accuracy, "settings": settings, "spent": spent}


def line(name: str, weight: Any, accuracy: Any, settings: Any, spent: float) -> str:
    """A row of the table."""
    found = np.array(accuracy)
    shown = ", ".join(f"{k}={v:g}" for k, v in settings.items())
    mean = 100 * np.average(found, weights=weight)
    figures = (100 * found.mean(), mean, 100 * np.quantile(found, 0.1))
    numbers = " | ".join(f"{figure:.1f}" for figure in figures)
    return f"| {name} | {numbers} | {shown} | {spent:.0f} s |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=list(WORLDS))
    parser.add_argument("--data", type=Path, required=True, help="the folder of files")
    parser.add_argument("--devices", type=int, default=10**9, help="the first so many")
    known = [name for name in GRIDS if name in METHODS]
    parser.add_argument("--methods", nargs="+", choices=known, default=known)
    parser.add_argument("--rounds", type=int, default=200)
    own = "own steps in a round that are tried, for methods that average"
    parser.add_argument("--local", type=int, nargs="+", default=[1], help=own)
    share = "the share of the devices in a round of a method that averages"
    parser.add_argument("--share", type=float, default=1.0, help=share)
    choosing = "settings are chosen on the first so many devices"
    parser.add_argument("--choosing", type=int, default=10**9, help=choosing)
    parser.add_argument("--split", default="test", help="HAR: test or test_bout")
    parser.add_argument("--compute", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--memory", type=float, help="GiB that are computed at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a file for accuracies by device")
    chosen = parser.parse_args(arguments)
    world = WORLDS[chosen.table](chosen.data, chosen.devices, chosen.split)
    many = f"{len(world.training)} devices, {len(world.training.y)} rows to learn from"
    print(
        f"{chosen.table}, {many}, {len(world.test.y)} to score, {chosen.rounds} rounds"
    )
    for whose, numbers in PUBLISHED[chosen.table]:
        print(f"published ({whose}): {numbers}")
    print("| method | mean | by rows | bottom decile | settings | |", flush=True)
    print("|---|---|---|---|---|---|", flush=True)
    kept: dict[str, Any] = {}
    if chosen.out is not None and chosen.out.exists():
        kept = json.loads(chosen.out.read_text())
    for name in chosen.methods:
        try:
            if name not in kept:
                kept[name] = measured(world, name, chosen)
        except Diverged as error:
            print(f"| {name} | diverged: {error} |", flush=True)
            continue
        print(line(name, world.test.counts, **kept[name]), flush=True)
        if chosen.out is not None:
            chosen.out.write_text(json.dumps(kept))


if __name__ == "__main__":
    main()
