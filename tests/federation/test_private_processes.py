"""Protected devices as processes of their own, over Flower on loopback: two askers who tell each
other everything, and a node that is started anew between them, draw on one budget. How a run that
wants more than is left is refused is in test_private_devices.py.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")
pytest.importorskip("pyarrow")

from persfl.cli import main
from persfl.federation.demo import end, start_node
from persfl.federation.federation_folder import init
from persfl.federation.processes import Process, free_ports, listening, quiet, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes as on Linux")

ROOT = Path(__file__).parents[2]
NAMES = ["north", "south"]
PRIVACY = """
[privacy]
epsilon = 3.0
answers = 6
[privacy.ranges]
a = [-4, 4]
b = [-4, 4]
"""


def table(path, seed):
    X = np.random.default_rng(seed).normal(size=(30, 2))
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=(X[:, 0] > 0) * 1)
    frame.to_csv(path, index=False)


@pytest.fixture
def fleet(tmp_path):
    """The federation, and a function that starts a node anew."""
    port, inner = free_ports(2)
    fed = init(tmp_path / "fed", NAMES, port=port, inner=inner)
    link = [sys.executable, "-m", "persfl", "federation", "up", str(fed.path)]
    up = Process(link, env=quiet(tmp_path / "f"), log=tmp_path / "up", cwd=ROOT)
    nodes = {}

    def start(name):
        """The node, anew where there is one."""
        end([nodes.pop(name)] if name in nodes else [])
        nodes[name] = start_node(fed, name, tmp_path / f"{name}.csv", "y")

    for k, name in enumerate(NAMES):
        table(tmp_path / f"{name}.csv", k)
        toml = fed.path / name / "node.toml"
        toml.write_text(toml.read_text() + PRIVACY)
    try:
        for name in NAMES:
            start(name)
        assert until(lambda: listening(port), 90)
        yield fed, start
    finally:
        end([up, *nodes.values()])


def federate(fed, out, *more):
    words = ["federate", str(fed.path), "--out", str(out), "--classes", "2", *more]
    waits = ["--quorum", "1", "--patience", "120", "--gather", "120"]
    made = [sys.executable, "-m", "persfl", *words, *waits]
    done = subprocess.run(made, capture_output=True, text=True, cwd=ROOT, check=False)
    return done.returncode, done.stdout + done.stderr


def ledger(fed, name, capsys):
    capsys.readouterr()
    assert main(["ledger", str(fed.path / name), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["privacy"]


@pytest.mark.slow
def test_two_askers_and_a_restart_draw_on_one_budget(fleet, tmp_path, capsys):
    fed, start = fleet
    few = ["--method", "fedavg", "--rounds", "3", "--set", "share=1.0"]
    code, said = federate(fed, tmp_path / "first", *few)
    assert code == 0, said
    before = ledger(fed, "north", capsys)
    assert before["answers_left"] == 3
    start("north")
    code, said = federate(fed, tmp_path / "second", "--method", "blend", "--seed", "3")
    assert code == 0, said
    after = ledger(fed, "north", capsys)
    assert after["answers"][: len(before["answers"])] == before["answers"]
    assert before["spent"] < after["spent"] <= 3.0
    kinds = [line["kind"] for line in after["answers"]]
    assert kinds.count("units") == 1
