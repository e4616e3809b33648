"""`persfl federate`: a run over a federation that is up, and what it says while it goes on."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from persfl.commands.progress import json_number
from persfl.errors import InputError, need
from persfl.federation.wait_notices import unwilling_text
from persfl.terminal import visible

if TYPE_CHECKING:
    from persfl.federation.federation_folder import Federation
    from persfl.federation.run_plan import RunPlan


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
    from persfl.runs.model_reader import load_model

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
# Options of methods that go by rounds.
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


def run_method(chosen: argparse.Namespace) -> str:
    """The method that a run goes by; blend takes no options of methods that go by rounds."""
    name: str = chosen.method
    loop = [
        f"--{option.replace('_', '-')}"
        for option, usual in _LOOP.items()
        if name == "blend" and getattr(chosen, option) != usual
    ]
    if loop:
        raise InputError(
            f"{loop[0]} is for methods that go by rounds, and this is a run of 'blend'. Add"
            " --method paper, or leave it out."
        )
    return name


# Settings of a plan that are options of the command, by the same names.
_SAME = (
    "model family classes units holdout points steps batch seed ordered growth reach deadline"
    " quorum patience gather need"
)


def plan_of(chosen: argparse.Namespace, federation: Federation) -> RunPlan:
    """What a run is asked to do."""
    from persfl.federation.run_plan import RunPlan
    from persfl.methods import method_of

    home = None
    if chosen.target:
        if not chosen.label:
            raise InputError(
                "--target needs --label: the column of the target's own table to predict."
            )
        data = str(Path(chosen.target).resolve())
        table = {"data": data, "label": chosen.label, "drop": [], "weight": None}
        home = {"device": chosen.name, **table}
    method = run_method(chosen)
    given = vars(chosen)
    # A setting is the method's if it has one of that name, or else the model's.
    known = method_of(method).get_params()
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
        categories=federation.categories,
        label=chosen.label or "y",
        settings=settings,
        method=method,
        method_settings=mine,
        **{name: given[name] for name in _SAME.split()},
    )


class Lines:
    """Events for a person, or as JSON lines."""

    def __init__(self, plain: bool) -> None:
        self.plain = plain
        self._rounds = 0  # of the whole run
        self._seconds: list[float] = []  # that each round took

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
                f"{self._left(facts['round'], facts['seconds'])}"
            )
        elif event == "devices":
            last = (
                f"; rounds {facts['first'] + 1} to {facts['rounds']}"
                if facts["rounds"]
                else ""
            )
            self._rounds = facts["rounds"]
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

    def _left(self, r: int, seconds: float) -> str:
        """How long it will take yet, by the rounds so far."""
        self._seconds.append(seconds)
        if r >= self._rounds:
            return ""
        usual = sum(self._seconds) / len(self._seconds)
        return f"; about {usual * (self._rounds - r):.0f} s left"
