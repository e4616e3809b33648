"""A federation of processes on this machine: TLS, node authentication, proxy, four nodes; refusals,
failures, kills.

One test, because starting processes takes most of the time: all are started once, its parts are
told one after the other, and what only has to be waited for (nodes that are not let in) waits
beside them.
"""

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

import httpx
from faulty_node import SECRET

from persfl import (
    ArrayFleet,
    Best,
    Devices,
    GradientStep,
    Linear,
    Uniform,
    personalize,
)
from persfl.cli import main
from persfl.evaluation.split import split
from persfl.federation import flower_api
from persfl.federation.demo import end, start_node
from persfl.federation.federation_folder import init
from persfl.federation.node import refusal, supernode
from persfl.federation.node_folder import use_table
from persfl.federation.processes import Process, free_ports, listening, quiet, until
from persfl.fleets import Guarded
from persfl.fleets.flower import Ledger
from persfl.runs import Folder, load_model
from persfl.sources import clustered_regression
from persfl.units import Units

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes as on Linux")

ROOT = Path(__file__).parents[2]
NODES, ROUNDS, PEERS = 4, 2, 3
DEVICES = clustered_regression(
    n=NODES, clusters=2, rows=20, features=3, noise=0.1, seed=4
)
NAMES = [f"node-{i + 1}" for i in range(NODES)]
FAULTY = ROOT / "tests" / "faulty_node.py"


class World:
    """The federation under test and everything that runs for it."""

    def __init__(self, place):
        self.place, self.children = place, []
        port, inner = free_ports(2)
        self.fed = init(place / "fed", NAMES, port=port, inner=inner)
        self.nodes = {}
        for i, name in enumerate(NAMES):
            frame = pd.DataFrame(DEVICES[i].X, columns=["a", "b", "c"]).assign(
                y=DEVICES[i].y
            )
            frame.to_csv(place / f"{name}.csv", index=False)
            use_table(
                self.fed.path / name,
                place / f"{name}.csv",
                label="y",
                drop=[],
                weight=None,
            )

    def up(self):
        self.link = self.child(self.persfl("federation", "up", self.fed.path), "up.log")

    def persfl(self, *words):
        return [sys.executable, "-m", "persfl", *map(str, words)]

    def child(self, words, log):
        made = Process(
            words, env=quiet(self.place / "flwr"), log=self.place / log, cwd=ROOT
        )
        self.children.append(made)
        return made

    def start(self, name):
        """The first node is `persfl node` itself; the others may be told to misbehave later on."""
        if name == NAMES[0]:
            self.nodes[name] = start_node(
                self.fed, name, self.place / f"{name}.csv", "y"
            )
            self.children.append(self.nodes[name])
        else:
            words = [sys.executable, str(FAULTY), str(self.fed.path / name)]
            self.nodes[name] = self.child(words, f"{name}.log")

    def federate(self, out, *more, during=None):
        """`persfl federate`; `during` sees every event."""
        words = self.persfl(
            "federate", self.fed.path, "--out", self.place / out, "--json", *more
        )
        child = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
        )
        events = []
        try:
            for line in child.stdout:
                events.append(
                    json.loads(line)
                    if line.startswith("{")
                    else {"event": "text", "text": line}
                )
                if during:
                    during(events[-1])
            return child.wait(60), events
        finally:
            child.kill()
            child.wait()
            child.stdout.close()

    def links(self):
        """Process ids of the SuperLink."""
        return [
            pid
            for pid, words in running(str(self.fed.path))
            if "flower-superlink" in words
        ]

    def log(self, name):
        return (self.place / name).read_text()


def running(mark):
    """Processes with this text in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (
                    (entry / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode(errors="replace")
                )
            except OSError:
                continue
            if mark in words:
                found.append((int(entry.name), words))
    return found


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    try:
        made.up()
        for name in NAMES:
            made.start(name)
        assert until(lambda: listening(made.fed.port), 90), made.log("up.log")
        yield made
    finally:
        end(made.children)
        left = (
            []
            if until(lambda: not running(str(made.place)), 15)
            else running(str(made.place))
        )
        for pid, _ in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, left


LEARN = [
    "--method",
    "paper",
    "--rounds",
    str(ROUNDS),
    "--peers",
    str(PEERS),
    "--quorum",
    "1",
    "--patience",
    "120",
    "--gather",
    "120",
    "--deadline",
    "30",
]


def killed_everywhere_and_still_the_result_of_one_process(world):
    """kill -9 of the SuperLink, of a node and of the run itself: what comes out equals a run in
    one process.
    """
    killed = set()

    def kill_link(event):
        if event["event"] == "round" and event["round"] == 1 and not killed:
            killed.add("link")
            os.kill(world.links()[0], signal.SIGKILL)
            node = world.nodes["node-3"]
            os.kill(node.pid, signal.SIGKILL)  # and with it goes its SuperNode
            node.wait(10)

    code, events = world.federate("run", *LEARN, during=kill_link)
    assert killed == {"link"}, events
    assert code == 3, events
    assert "SuperLink" in events[-1]["why"], events  # what happened, and how to go on
    assert "--resume" in events[-1]["why"], events
    assert until(lambda: not running(str(world.fed.path / "node-3")), 30)
    world.start("node-3")
    assert until(lambda: bool(world.links()) and listening(world.fed.inner), 60)

    def kill_run(event):
        if event["event"] == "begun":
            killed.add(event["pid"])
        if event["event"] == "devices":  # in the middle of its round
            (pid,) = killed - {"link"}
            os.kill(pid, signal.SIGKILL)

    code, events = world.federate("run", *LEARN, "--resume", during=kill_run)
    assert code == 3, events
    code, events = world.federate("run", *LEARN, "--resume")
    assert code == 0, events

    # which rows a node holds back
    secrets = [Ledger(world.fed.path / name / "ledger.sqlite").secret for name in NAMES]
    parts = [
        split(Devices.of([DEVICES[i]], quiet=True), 0.25, seed=seed)[0][0]
        for i, seed in enumerate(secrets)
    ]
    learn = Devices.of(parts, ids=NAMES, quiet=True)
    fleet = ArrayFleet(
        Units.of(learn, "shared", labels=True).inside(learn),
        learner=Linear(intercept=True),
        proposer=GradientStep(0.1),
    )
    done = list(
        personalize(
            Guarded(fleet),
            sampler=Uniform(PEERS),
            adopter=Best(),
            rounds=ROUNDS,
            seed=0,
        )
    )
    model, rounds = (
        load_model(world.place / "run"),
        Folder.open(world.place / "run").rounds(),
    )
    assert model.devices_.tolist() == NAMES
    np.testing.assert_array_equal(
        np.stack(rounds["asked"]), np.concatenate([round_.peers for round_ in done])
    )
    np.testing.assert_array_equal(
        np.stack(rounds["adopted"]),
        np.concatenate([round_.choice.peers for round_ in done]),
    )
    np.testing.assert_allclose(model.models_, fleet.models, rtol=1e-8, atol=1e-10)
    assert np.median(model.losses_[-1]) < np.median(model.losses_[0])
    assert model.worth_.table["held"].tolist() == [5] * NODES
    for name in ("report.html", "federation.html"):
        assert (world.place / "run" / name).stat().st_size > 1000
    assert any(
        event["event"] == "round" and event["own"] < 0.2 * event["seconds"]
        for event in events
    )
    assert [event for event in events if event["event"] == "answer"]


def strangers_knock(world):
    """SuperNodes that must not get in, started; how they fared is asked later."""
    fed = world.fed
    other = init(
        world.place / "other", ["node-1", "node-2"], port=fed.port, inner=fed.inner
    )
    # a key that nobody registered, with the right certificate authority
    unknown = other.path / "node-1"
    shutil.copy(fed.ca, unknown / "ca.pem")
    double = world.place / "double"  # the key of a node that is connected
    shutil.copytree(fed.path / "node-1", double)
    strange = other.path / "node-2"  # of another federation altogether
    says = {
        double: "another process has its key",
        unknown: "its key is not in the coordinator's federation.toml",
        strange: "is not the federation of this folder",
    }
    began = {}
    for folder, port in zip(says, free_ports(3), strict=True):
        (folder / "supernode.log").unlink(missing_ok=True)
        (folder / "secret").write_bytes(b"x" * 32)
        began[folder] = supernode(folder, port)
        world.children.append(began[folder])
    return other, began, says


def strangers_were_refused(world, other, began, says):
    for folder, child in began.items():
        assert until(lambda child=child: child.code is not None, 90)
        log = (folder / "supernode.log").read_text()
        assert flower_api.JOINED not in log
        why, hopeless = refusal(log, folder)
        assert says[folder] in why, log
        assert hopeless == ("of this folder" in says[folder])  # only that cannot change

    fed = world.fed
    trust = ssl.create_default_context(cafile=str(fed.ca))
    door, inside = f"https://127.0.0.1:{fed.port}", f"https://127.0.0.1:{fed.inner}"
    with httpx.Client(verify=trust, trust_env=False) as client:
        for path in (
            "/v1/control/list-runs",
            "/v1/control/start-run",
            "/v1/runtime/get-nodes",
            "/health",
            "/docs",
            "/",
            "/v1/fleet/../control/list-runs",
            "/v1/fleet/%2e%2e/control/list-runs",
            "/v1/fleet",
            "//v1/fleet/get-run",
        ):
            request = httpx.Request(
                "POST", door + path, content=b"", extensions={"target": path.encode()}
            )
            assert client.send(request).status_code == 404, path
            assert client.get(door + path).status_code == 404, path
        inner = client.post(f"{inside}/v1/control/list-runs", content=b"").status_code
        assert inner != 404  # the same call is there behind the proxy
        # no signature
        assert (
            client.post(f"{door}/v1/fleet/pull-messages", content=b"").status_code
            == 400
        )
        wrong = ssl.create_default_context(cafile=str(other.ca))
        with (
            httpx.Client(verify=wrong, trust_env=False) as stranger,
            pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY"),
        ):
            stranger.post(f"{door}/v1/fleet/pull-messages", content=b"")
        with pytest.raises(httpx.HTTPError):
            client.post(
                f"http://127.0.0.1:{fed.port}/v1/fleet/pull-messages", content=b""
            )


def failing_nodes_cost_their_answers_only(world):
    """A target at home among nodes of which one hangs, one sends NaN and is killed, one sends
    the wrong shape and then fails.
    """
    bad = {"node-2": "hang", "node-3": "nan", "node-4": "shape"}
    for name, how in bad.items():
        (world.fed.path / name / "mode").write_text(how)

    def kill(event):
        if event["event"] == "round" and event["round"] == 2:
            os.kill(world.nodes["node-3"].pid, signal.SIGKILL)

    mine = Devices.of([DEVICES[0]], quiet=True)[0]
    pd.DataFrame(mine.X, columns=["a", "b", "c"]).assign(y=mine.y).to_csv(
        world.place / "mine.csv", index=False
    )
    code, events = world.federate(
        "faults",
        "--target",
        str(world.place / "mine.csv"),
        "--label",
        "y",
        "--name",
        "me",
        "--method",
        "paper",
        "--rounds",
        "4",
        "--peers",
        "4",
        "--deadline",
        "4",
        "--quorum",
        "0.15",
        "--patience",
        "60",
        "--gather",
        "60",
        "--units",
        "raw",
        "--step-size",
        "0.2",
        "--steps",
        "3",
        during=kill,
    )
    assert code == 0, events
    rounds = [event for event in events if event["event"] == "round"]
    assert rounds[-1]["loss"] < 0.7 * rounds[0]["loss"]
    told = {
        row["device"]: row
        for row in Folder.open(world.place / "faults").read_json("federation.json")[
            "counts"
        ]
    }
    # on a busy machine an honest node may be late, too
    assert told["node-1"]["answered"] >= 2
    assert told["node-2"]["late"] >= 1
    assert told["node-3"]["format"] >= 1
    assert told["node-4"]["format"] >= 1
    assert told["node-4"]["failed"] >= 1
    assert told["node-3"]["late"] + told["node-3"]["gone"] >= 1
    assert all(told[name]["answered"] == 0 for name in bad)
    assert all(told[name]["rested"] >= 1 for name in bad)

    private = world.fed.path / "node-4"
    assert SECRET in (private / "errors.log").read_text()
    places = [
        path
        for path in world.place.rglob("*")
        if path.is_file() and private not in path.parents
    ]
    assert not [path for path in places if SECRET.encode() in path.read_bytes()]
    assert SECRET not in json.dumps(events)


def the_ledger_tells_what_left(world, capsys):
    capsys.readouterr()
    assert main(["ledger", str(world.fed.path / "node-1"), "--json"]) == 0
    told = {
        (entry["asker"], entry["kind"]): entry
        for entry in json.loads(capsys.readouterr().out)["asked"]
    }
    assert told["me", "answer"]["answered"] >= 2
    assert told["node-2", "answer"]["answered"] >= 1
    assert ("node-1", "score") in told


@pytest.mark.slow
def test_a_federation_of_processes(world, capsys):
    killed_everywhere_and_still_the_result_of_one_process(world)
    strangers = strangers_knock(world)
    failing_nodes_cost_their_answers_only(world)
    strangers_were_refused(world, *strangers)
    the_ledger_tells_what_left(world, capsys)
