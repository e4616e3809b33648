"""`persfl federation init | up | demo`, `node`, `ledger`: a real federation over Flower."""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from persfl.commands.federate import Lines, finish
from persfl.commands.leak_lines import leak_lines
from persfl.commands.privacy_lines import (
    FOREIGN,
    OFF,
    OUTDATED,
    costs,
    spent,
    spent_lines,
)
from persfl.commands.progress import table
from persfl.errors import need
from persfl.formats import reading
from persfl.terminal import visible

if TYPE_CHECKING:
    from persfl.federation.federation_folder import NodeConfig
    from persfl.federation.ledger import Ledger
    from persfl.federation.policy import Policy
    from persfl.federation.row_table import Rows


def make_folder(chosen: argparse.Namespace) -> int:
    """A federation's folder."""
    from persfl.federation.federation_folder import init

    names = chosen.names or [f"node-{i + 1}" for i in range(chosen.nodes)]
    federation = init(
        Path(chosen.folder),
        names,
        host=chosen.host,
        port=chosen.port,
        inner=chosen.inner_port,
        categories=dict(chosen.categories),
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
    from persfl.federation.federation_folder import NODE, read_node
    from persfl.federation.ledger import Ledger
    from persfl.federation.node import run_node
    from persfl.federation.node_folder import LEDGER, node_privacy, use_table
    from persfl.federation.policy import Policy

    folder = Path(chosen.config)
    config = read_node(folder)
    policy = Policy.read(folder / NODE)
    rows = use_table(
        folder,
        Path(chosen.data),
        label=chosen.label,
        drop=chosen.drop,
        weight=chosen.weight,
        moved=chosen.moved,
    )
    settings = node_privacy(folder)
    book = Ledger(folder / LEDGER, marked=True)
    if settings is None:
        print(visible(_leaving(config, policy, rows, folder)) + OFF, flush=True)
    else:
        account = book.protected.account(settings.budget)
        names = [str(name) for name in rows.columns]
        print(f"Device {config.device!r} joins {config.superlink}.")
        told = book.protected.told("units")
        print(visible(costs(settings, names, account, units=told)), flush=True)
        if book.protected.outdated:
            print(OUTDATED, flush=True)
    if chosen.check:
        print(leak_lines(rows.data, book, settings), end="")
        return 0
    return run_node(folder, say=_say, going=_until_stopped())


def _leaving(node: NodeConfig, policy: Policy, rows: Rows, folder: Path) -> str:
    """What will leave this machine, before anything does."""
    from persfl.federation.node_family import NodeFamily
    from persfl.learners.any_family import ANY

    sums = (
        "; and sums over its rows,\n  per column (weights, values, squares) for shared units, and"
        " in a blend of linear models of products of\n  columns and the label, part by part of its"
        " rows: their second moments;\n  in a blend of classes the rows of each class, and their"
        " sum: of a class with one row, that row"
        if policy.sums
        else ""
    )
    target = (
        "As a target: its model or what it says at public points, losses of the models it is shown,"
        " with kin its own step, with blend of other models than linear regressions fold losses and"
        " what it would answer without each fold,"
        " and at the end of a run its errors on rows held back and the sums of their labels."
        if policy.target
        else "It has no model of its own: it answers as a peer only."
    )
    family = NodeFamily.read(folder / "node.toml").model
    models = [f"any ({family})" if name == ANY else name for name in policy.models]
    families = ", ".join([*models, *policy.networks]) or "none"
    few = ""
    if rows.data.rows < 2 * (len(rows.columns) + 1):
        few = (
            "\nCareful: fewer than two rows per coefficient. Answers of so few rows give much of"
            " them away, and they cannot\ntell a good answer from a planted one in every direction."
        )
    return (
        f"Device {node.device!r} with {rows.data.rows} rows and {len(rows.columns)} features"
        f" joins {node.superlink}.\nWhat will leave this machine:\n  The names of its columns"
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
    from persfl.federation.federation_folder import NODE, read_node
    from persfl.federation.ledger import Ledger
    from persfl.federation.privacy_settings import PrivacySettings

    folder = Path(chosen.folder)
    name = read_node(folder).device
    if not (folder / "ledger.sqlite").is_file():
        print(f"Nothing has been asked of {name} yet.")
        return 0
    book = Ledger(folder / "ledger.sqlite", marked=True)
    settings = PrivacySettings.read(folder / NODE)
    with reading(folder / "ledger.sqlite"):  # somebody else may have written it
        protection = spent(settings, book)
        if chosen.json:
            told = {"device": name, "asked": book.table(), "refused": book.refusals()}
            print(json.dumps(told | {"privacy": protection}))
        else:
            _print_ledger(name, book, protection)
    return 0


def _print_ledger(name: str, book: Ledger, protection: dict[str, Any] | None) -> None:
    """For people."""
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
        for e in book.table()
    ]
    print(f"What was asked of {name}:\n")
    table(head, shown)
    refusals = book.refusals()
    if refusals:
        print(
            "\nNot answered: "
            + ", ".join(
                f"{r['times']} times because of {r['code']!r}" for r in refusals
            )
            + "."
        )
    print(f"\n{spent_lines(protection)}", end="")
    if book.foreign:
        print(FOREIGN)
    if book.protected.outdated:
        print(OUTDATED)
    if protection is not None and protection["answers"]:
        print()
        _protected_table(protection["answers"])


def _protected_table(answers: list[dict[str, Any]]) -> None:
    """Noised answers one by one: who was told what, with which noise."""
    shown = [
        (
            one["asker"] or "the coordinator",
            one["kind"],
            one["run"],
            f"{one['noise']:.3g}",
            _moment(one["at"]),
        )
        for one in answers
    ]
    table(("told", "what", "run", "noise", "when"), shown)


def demo(chosen: argparse.Namespace) -> int:
    """All of it on this machine."""
    need("flwr", extra="flower", why="a federation")
    from persfl.federation.demo import demonstrate

    out = Path(chosen.out)
    shown = Lines(chosen.json)
    return demonstrate(
        out,
        nodes=chosen.nodes,
        rounds=chosen.rounds,
        show=shown,
        finish=lambda: finish(out, shown),
    )


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {visible(text)}", flush=True)


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _until_stopped() -> Callable[[], bool]:
    """A function that says whether to go on: until Ctrl-C or a polite end."""
    over = threading.Event()

    def stop(*_: object) -> None:
        over.set()

    if threading.current_thread() is threading.main_thread():
        for sign in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sign, stop)
    return lambda: not over.is_set()
