"""What a federated round costs, how much of that is persfl's own, and how few questions reach the
same error.

python benchmarks/federation.py            nodes as processes, TLS, proxy; about four minutes
python benchmarks/federation.py --quick    no processes: messages in one process, few runs
"""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from persfl import ArrayFleet, Best, GradientStep, Linear, Uniform, personalize
from persfl.federation.demo import end, start_node, tables
from persfl.federation.federation_folder import init
from persfl.federation.launch import launch
from persfl.federation.local_grid import LocalGrid
from persfl.federation.node import supernode
from persfl.federation.node_folder import device_of, use_table
from persfl.federation.processes import free_ports
from persfl.federation.run_plan import RunPlan
from persfl.federation.superlink import Up
from persfl.fleets.flower import FlowerFleet, Policy, Post
from persfl.sources import clustered_regression
from persfl.wire import Terms

SETTINGS = [
    (300, 20, 0.05),
    (300, 10, 0.05),
    (60, 20, 0.05),
    (60, 10, 0.05),
    (60, 10, 0.1),
    (60, 10, 0.2),
    (30, 10, 0.1),
]


def questions(runs: int) -> None:
    """The paper's toy (100 devices of 2 kinds, 10 rows, 20 features, noise 0.1): error after so
    many questions.
    """
    print(f"median error of 5 targets in {runs} runs of the paper's toy, noise 0.1")
    for rounds, peers, step in SETTINGS:
        errors = []
        for seed in range(runs):
            devices = clustered_regression(
                n=100, clusters=2, rows=10, features=20, noise=0.1, seed=seed
            )
            fleet = ArrayFleet(
                devices,
                learner=Linear(),
                proposer=GradientStep(step),
                targets=range(5),
                seed=seed,
            )
            for _ in personalize(
                fleet, sampler=Uniform(peers), adopter=Best(), rounds=rounds, seed=seed
            ):
                pass
            errors += (
                ((fleet.models - devices.true_weights[:5]) ** 2).sum(axis=1).tolist()
            )
        print(
            f"  {rounds:3} rounds x {peers:2} peers, step {step:4}: {rounds * peers:4} questions, "
            f"{rounds * peers / 99:4.1f} per peer, error {np.median(errors):.4f}"
        )


def messages(rounds: int) -> None:
    """Our own work for a round of 5 devices that are all targets: packing, checking, answering,
    scoring; no network.
    """
    with tempfile.TemporaryDirectory() as place:
        homes = {}
        for name, path in tables(Path(place), 5).items():
            folder = Path(place) / name
            folder.mkdir()
            (folder / "node.toml").write_text(
                f'device = "{name}"\nsuperlink = "127.0.0.1:1"\n\n{Policy().text()}'
            )
            columns = use_table(folder, path, label="y", drop=[], weight=None).columns
            homes[name] = device_of(folder)
        post = Post(
            LocalGrid(homes), {name.encode(): name for name in homes}, pause=0.0
        )
        fleet = FlowerFleet(post, Terms(columns=tuple(columns)), ids=list(homes))
        list(personalize(fleet, sampler=Uniform(4), adopter=Best(), rounds=1))
        begin = time.perf_counter()
        list(
            personalize(
                fleet, sampler=Uniform(4), adopter=Best(), rounds=rounds, first=1
            )
        )
        print(
            "a round of 5 devices in one process, files and ledgers included:"
            f" {(time.perf_counter() - begin) / (rounds - 1):.3f} s"
        )


def processes(rounds: int, *, plain: bool) -> None:
    """Rounds of 5 nodes as processes; `plain` with Flower's own process for every message
    instead of ours that stays.
    """
    with tempfile.TemporaryDirectory() as place:
        port, inner = free_ports(2)
        rows = tables(Path(place) / "tables", 5)
        federation = init(Path(place) / "fed", list(rows), port=port, inner=inner)
        started = []
        plan = RunPlan(
            out=str(Path(place) / "run"),
            members=federation.members,
            devices=tuple(sorted(rows)),
            rounds=rounds,
            peers=4,
            units="raw",
            holdout=0.0,
            deadline=120.0,
            quorum=1.0,
            patience=300.0,
            gather=120.0,
        )
        found = []
        with Up(federation, say=lambda text: None):
            try:
                for name, table in rows.items():
                    if plain:
                        folder = federation.path / name
                        use_table(folder, table, label="y", drop=[], weight=None)
                        (own,) = free_ports(1)
                        started.append(
                            supernode(
                                folder,
                                own,
                                node_config=f'folder="{folder}"',
                                isolation="subprocess",
                            )
                        )
                    else:
                        started.append(start_node(federation, name, table, "y"))
                launch(
                    federation,
                    plan,
                    resume=False,
                    show=lambda event, facts: found.append((event, facts)),
                )
            finally:
                end(started)
    # the first includes starting
    later = [facts for event, facts in found if event == "round"][1:]
    if not later:
        print([facts for event, facts in found if event == "stopped"])
        return
    seconds, own = (
        np.median([facts["seconds"] for facts in later]),
        np.median([facts["own"] for facts in later]),
    )
    how = (
        "a new process for every message, as Flower does"
        if plain
        else "`persfl node`, whose process stays"
    )
    print(
        f"5 nodes, all targets, {how}: {seconds:.1f} s a round; of these our own {own:.2f} s"
        f" ({own / seconds:.1%})"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    messages(5 if quick else 50)
    if not quick:
        processes(8, plain=False)
        processes(4, plain=True)
    questions(2 if quick else 12)
