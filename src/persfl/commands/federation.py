"""`persfl federation init | up | demo`, `node`, `federate`, `ledger`: a real federation over
Flower.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from persfl.commands.progress import json_number, table
from persfl.errors import InputError, need
from persfl.federation.wait_notices import unwilling_text
from persfl.terminal import visible

if TYPE_CHECKING:
    from persfl.federation.federation_folder import Federation
    from persfl.federation.run_plan import RunPlan
    from persfl.fitting.method_choice import Method


def init(chosen: argparse.Namespace) -> int:
    """A federation's folder."""
    from persfl.federation.federation_folder import init as made

    names = chosen.names or [f"node-{i + 1}" for i in range(chosen.nodes)]
    federation = made(
        Path(chosen.folder),
        names,
        host=chosen.host,
        port=chosen.port,
        inner=chosen.inner_port,
    )
    print(
        f"{federation.path} is a federation of {len(names)} devices: {', '.join(names)}."
    )
    print(
        f"Nodes reach it at {federation.host}:{federation.port}. Hand each owner the folder of"
        " their device, and nobody else's:"
    )
    print(
        "it holds the key that proves who they are. Each owner checks the policy in node.toml.\n"
    )
    print(
        f"  persfl federation up {chosen.folder}                                        # here"
    )
    print(
        f"  persfl node --config {chosen.folder}/{names[0]} --data rows.csv --label y      # at"
        " each device"
    )
    return 0


def up(chosen: argparse.Namespace) -> int:
    """The SuperLink behind its proxy, until it is stopped."""
    need("flwr", extra="flower", why="a federation")
    from persfl.federation.federation_folder import opened
    from persfl.federation.superlink import Up

    federation = opened(Path(chosen.folder))
    going = _until_stopped()
    with Up(federation, say=_say):
        _say(
            f"up: nodes come in at {federation.host}:{federation.port} (TLS, known keys only); stop"
            " with Ctrl-C"
        )
        while going():
            time.sleep(0.2)
    _say("down")
    return 0


def node(chosen: argparse.Namespace) -> int:
    """One device, until it is stopped."""
    need("flwr", extra="flower", why="a federation")
    from persfl.federation.federation_folder import NODE, node_told
    from persfl.federation.node import run_node
    from persfl.federation.node_folder import use_table
    from persfl.federation.policy import Policy

    folder = Path(chosen.config)
    told, policy = node_told(folder), Policy.read(folder / NODE)
    rows = use_table(
        folder,
        Path(chosen.data),
        label=chosen.label,
        drop=chosen.drop,
        weight=chosen.weight,
    )
    print(_leaving(told, policy, rows, folder), flush=True)
    if chosen.check:
        return 0
    return run_node(folder, say=_say, going=_until_stopped())


def _leaving(told: dict[str, Any], policy: Any, rows: Any, folder: Path) -> str:
    """What will leave this machine, before anything does."""
    sums = (
        "; and sums over its rows, per column (weights, values, squares), for shared units"
        if policy.sums
        else ""
    )
    target = (
        "As a target: its model or what it says at public points, losses of the models it is shown,"
        " with kin its own step, with blend fold losses and what it would answer without each fold,"
        " and at the end of a run its errors on rows held back and the sums of their labels."
        if policy.target
        else "It has no model of its own: it answers as a peer only."
    )
    families = ", ".join([*policy.models, *policy.networks]) or "none"
    few = ""
    if rows.data.rows < 2 * (len(rows.columns) + 1):
        few = (
            "\nCareful: fewer than two rows per coefficient. Answers of so few rows give much of"
            " them away, and they cannot\ntell a good answer from a planted one in every direction."
        )
    return (
        f"Device {told['device']!r} with {rows.data.rows} rows and {len(rows.columns)} features"
        f" joins {told['superlink']}.\nWhat will leave this machine:\n  The names of its columns"
        f" and how many rows it has{sums}.\n  As a peer: models computed from its rows, of the"
        f" families {families};\n  in a run at most {policy.questions_per_target} different answers"
        f" per target and {policy.questions} in all, of at most\n  {policy.steps} steps each, from"
        f" at least {policy.rows} rows, and leaves of trees from {policy.rows_per_leaf}.\n "
        f" {target}\nNo message holds a row. But unprotected answers can determine rows: about as"
        " many answers as there are features give\na linear model's second moments away, and"
        " whoever makes models up instead of passing them on can single rows out with\nevery other"
        f" family. The policy is in {folder / 'node.toml'}; what left is in: persfl ledger"
        f" {folder}{few}\n"
    )


def ledger(chosen: argparse.Namespace) -> int:
    """What was asked of a device, by whom, when, and how much was answered."""
    from persfl.federation.federation_folder import node_told
    from persfl.federation.ledger import Ledger

    folder = Path(chosen.folder)
    name = node_told(folder)["device"]
    if not (folder / "ledger.sqlite").is_file():
        print(f"Nothing has been asked of {name} yet.")
        return 0
    book = Ledger(folder / "ledger.sqlite")
    entries, refusals = book.table(), book.refusals()
    if chosen.json:
        print(json.dumps({"device": name, "asked": entries, "refused": refusals}))
        return 0
    head = (
        "asked for",
        "kind",
        "questions",
        "different",
        "answered",
        "not",
        "bytes out",
        "numbers",
        "first",
        "last",
    )
    shown = [
        (
            e["asker"] or "the coordinator",
            e["kind"],
            str(e["questions"]),
            str(e["different"]),
            str(e["answered"]),
            str(e["refused"]),
            str(e["bytes"]),
            str(e["numbers"]),
            _moment(e["first"]),
            _moment(e["last"]),
        )
        for e in entries
    ]
    print(f"What was asked of {name}:\n")
    table(head, shown)
    if refusals:
        print(
            "\nNot answered: "
            + ", ".join(
                f"{r['times']} times because of {r['code']!r}" for r in refusals
            )
            + "."
        )
    return 0


def federate(chosen: argparse.Namespace) -> int:
    """A run over a federation that is up."""
    need("flwr", extra="flower", why="a federation")
    from persfl.federation.federation_folder import opened
    from persfl.federation.launch import launch

    federation = opened(Path(chosen.folder))
    shown = Lines(chosen.json)
    code = launch(
        federation, plan_of(chosen, federation), resume=chosen.resume, show=shown
    )
    if code == 0:
        finish(Path(chosen.out), shown)
    return code


def finish(out: Path, shown: Lines) -> None:
    """What came out, and the pages that show it."""
    from persfl.report.run_pages import write_pages

    answer(out, shown)
    for path in write_pages(out):
        shown("report", {"path": str(path), "text": f"Open {path}."})


def answer(out: Path, shown: Lines) -> None:
    """What came out, as `persfl fit` says it."""
    from persfl.commands.answers import print_answer, verdict_facts
    from persfl.runs import load_model

    model = load_model(out)
    if shown.plain:
        facts = {
            name: json_number(value) for name, value in verdict_facts(model).items()
        }
        shown("answer", {"notes": model.notes_, **facts})
        return
    print()
    print_answer(model, out)


# Options that are settings of some methods, and what they are where nothing is said.
_OPTIONS = {"rounds": None, "peers": None, "step_size": "auto", "budget": 640}
_LOOP = {
    "rounds": None,
    "peers": None,
    "step_size": "auto",
    "steps": 1,
    "batch": None,
    "points": 0,
    "need": 0,
    "growth": 2.0,
    "reach": 10.0,
}


def method_of(chosen: argparse.Namespace) -> Method:
    """Which method a run goes by: as `persfl fit` chooses, as far as a federation can."""
    from persfl.fitting.method_choice import Method

    if chosen.method != "auto":
        return Method(chosen.method)
    loop = [
        f"--{name.replace('_', '-')}"
        for name, usual in _LOOP.items()
        if getattr(chosen, name) != usual
    ]
    if chosen.units == "raw":
        loop.append("--units raw")
    if "loss" in dict(chosen.set):
        loop.append("--set loss")
    if loop:
        why = f"{' and '.join(loop)} {'belong' if loop[1:] else 'belongs'} to it"
    else:
        return Method("blend")
    blend = [
        name
        for name, usual in (("budget", 640), ("ordered", False))
        if getattr(chosen, name) != usual
    ]
    if blend:
        raise InputError(
            f"--{blend[0]} is for blend, and this is a run of paper, since {why}. Leave one of them"
            " out."
        )
    return Method("paper", why)


# Settings of a plan that are options of the command, by the same names.
_SAME = (
    "model classes units holdout points steps batch seed ordered growth reach deadline quorum"
    " patience gather need"
)


def plan_of(chosen: argparse.Namespace, federation: Federation) -> RunPlan:
    """What a run is asked to do."""
    from persfl import methods
    from persfl.federation.run_plan import RunPlan

    home = None
    if chosen.target:
        if not chosen.label:
            raise InputError(
                "--target needs --label: the column of the target's own table to predict."
            )
        data = str(Path(chosen.target).resolve())
        table = {"data": data, "label": chosen.label, "drop": [], "weight": None}
        home = {"device": chosen.name, **table}
    method = method_of(chosen)
    given = vars(chosen)
    # A setting is the method's if it has one of that name, or else the model's.
    known = methods.method_of(method.name).get_params()
    settings = {name: value for name, value in chosen.set if name not in known}
    mine = {name: value for name, value in chosen.set if name in known}
    for name, usual in _OPTIONS.items():
        if given[name] != usual:
            mine[name] = given[name]
    return RunPlan(
        out=str(Path(chosen.out).resolve()),
        members=federation.members,
        devices=tuple(sorted(federation.members)),
        home=home,
        label=chosen.label or "y",
        settings=settings,
        method=method.name,
        why=method.why,
        method_settings=mine,
        **{name: given[name] for name in _SAME.split()},
    )


class Lines:
    """Events for a person, or as JSON lines."""

    def __init__(self, plain: bool) -> None:
        self.plain = plain

    def __call__(self, event: str, facts: dict[str, Any]) -> None:
        if self.plain:
            print(json.dumps({"event": event} | facts), flush=True)
            return
        if event == "round":
            loss = "unknown" if facts["loss"] is None else f"{facts['loss']:.4g}"
            unfit = (
                f", {facts['unfit']} of these did not fit who asked"
                if facts["unfit"]
                else ""
            )
            far = f", {facts['far']} went too far" if facts["far"] else ""
            refused = f", {facts['refused']} refused so far" if facts["refused"] else ""
            new = f", {facts['new']} new rows" if facts["new"] else ""
            text = (
                f"round {facts['round']}: asked {facts['asked']}, answered"
                f" {facts['answered']}{unfit}{far}{refused}; median loss {loss}{new};"
                f" {facts['seconds']:.1f} s, of these our own {facts['own']:.2f} s"
            )
        elif event == "devices":
            last = (
                f"; rounds {facts['first'] + 1} to {facts['rounds']}"
                if facts["rounds"]
                else ""
            )
            unwilling = facts.get("unwilling")
            but = f" ({unwilling_text(unwilling)})" if unwilling else ""
            targets = f"{len(facts['targets'])} of them targets"
            text = f"{len(facts['ids'])} devices, {targets}{but}{last}"
        elif event == "stopped":
            text = f"stopped: {facts['why']}"
        else:
            text = facts.get("text", "")
        if text:
            print(visible(str(text)), flush=True)


def demo(chosen: argparse.Namespace) -> int:
    """All of it on this machine."""
    need("flwr", extra="flower", why="a federation")
    from persfl.federation.demo import demonstrate

    out, shown = Path(chosen.out), Lines(chosen.json)
    return demonstrate(
        out,
        nodes=chosen.nodes,
        rounds=chosen.rounds,
        show=shown,
        finish=lambda: finish(out, shown),
    )


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _until_stopped() -> Callable[[], bool]:
    """A function that says whether to go on: until Ctrl-C or a polite end."""
    over = threading.Event()

    def stop(*_: Any) -> None:
        over.set()

    if threading.current_thread() is threading.main_thread():
        for sign in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sign, stop)
    return lambda: not over.is_set()
