"""A federated run from its plan: units, rounds, result; kept so that it can go on after any
interruption.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from persfl.adopters import Best
from persfl.errors import InputError, PersflError
from persfl.federation.blend_run import blended
from persfl.federation.device import Device
from persfl.federation.fleet import FlowerFleet
from persfl.federation.launch import FAILURE, LINK_GONE, PROGRESS
from persfl.federation.negotiation import agreement
from persfl.federation.policy import Policy
from persfl.federation.post import Post
from persfl.federation.result import keep_result
from persfl.federation.run_plan import RunPlan
from persfl.federation.wait_notices import Waiting
from persfl.files import append, holding, write_whole
from persfl.fleets.guarded import Guarded
from persfl.formats import reading
from persfl.loop import personalize
from persfl.rules import finished, kin
from persfl.runs import INDEX, Folder
from persfl.training import Pace, Plan, State, peers_of
from persfl.trust import Trust
from persfl.types import Round
from persfl.wire import Terms, pack, sends_model, unpack

STAGE = "final"


class Diary:
    """One JSON line per event in the run folder, for whoever watches."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def say(self, event: str, **facts: Any) -> None:
        line = json.dumps({"event": event, "at": round(time.time(), 3)} | facts)
        append(self._path, line + "\n")


def conduct(grid: Any, path: Path) -> None:
    """Run, or go on with, the run of a plan; what goes wrong is said in the diary, and
    everything done is kept.
    """
    plan = RunPlan.read(path)
    out = Path(plan.out)
    out.mkdir(parents=True, exist_ok=True)
    diary = Diary(out / PROGRESS)
    diary.say("begun", pid=os.getpid())
    try:
        with holding(out):
            _conduct(grid, plan, out, diary)
    except PersflError as error:
        diary.say("stopped", why=str(error), kind=type(error).__name__)
        raise
    except BaseException as error:
        write_whole(out / FAILURE, traceback.format_exc().encode())
        diary.say("stopped", why=_why(error), kind=type(error).__name__)
        raise


def _why(error: BaseException) -> str:
    """What ended a run that nobody stopped, and how to go on.

    Flower interrupts an app whose SuperLink has gone away, so that is what an interrupt here means.
    """
    from httpx import TransportError

    if isinstance(
        error, KeyboardInterrupt | SystemExit | TransportError | ConnectionError
    ):
        return LINK_GONE
    return (
        f"{type(error).__name__}, see {FAILURE} in the run folder. Everything is kept: go on with"
        " the same command and --resume."
    )


def _conduct(grid: Any, plan: RunPlan, out: Path, diary: Diary) -> None:
    post = Post(
        grid,
        (
            {key.encode(): name for name, key in plan.members.items()}
            if plan.members
            else None
        ),
    )
    home = _home(plan)
    waiting = Waiting(post.seen, lambda facts: diary.say("waiting", **facts))
    ids = sorted({*plan.devices, *home})
    folder = Folder.open(out, every=0) if (out / INDEX).is_file() else None
    if folder is None or "terms.wire" not in folder.index["files"]:
        terms, unwilling = agreement(post, plan, ids, home, waiting)
        spec = {
            "device": "device",
            "label": plan.label,
            "features": list(terms.columns),
            "groups": None,
            "separator": None,
            "decimal": ".",
            "federated": True,
            "asked": plan.record(),
            "unwilling": unwilling,
        }
        folder = Folder.begin(out, spec, every=0)
        head, arrays = terms.to_wire()
        folder.write("terms.wire", pack(head, arrays))
        folder.commit()
    if folder.finished:
        diary.say("done", already=True)
        return
    terms = _terms(folder, plan)
    waiting.over()
    waiting.unwilling = (
        [] if home else [str(name) for name in folder.spec.get("unwilling", [])]
    )
    targets = _targets(ids, home, waiting.unwilling)
    facts = {"ids": ids, "targets": targets, "unwilling": list(waiting.unwilling)}
    if plan.method == "blend":
        diary.say("devices", **facts, first=0, rounds=0)
        outcome, state = blended(
            post, terms, plan, folder, ids, home, targets, waiting, diary.say
        )
        keep_result(folder, outcome, terms, plan, state)
        diary.say("done", rounds=state.r)
        return
    last = folder.last(STAGE)
    fleet = FlowerFleet(
        post,
        terms,
        ids=ids,
        targets=targets,
        home=home,
        run=plan.run,
        deadline=plan.deadline,
        quorum=plan.quorum,
        patience=plan.patience,
        need=plan.need,
        say=waiting,
        state=None if last is None else folder.read(folder.index["fleet"]),
    )
    guarded = Guarded(
        fleet,
        growth=plan.growth,
        reach=plan.reach,
        about="own" if terms.public is None else "answers",
    )
    state = last or State(
        0, np.empty((len(fleet.targets), 0)), Trust.blank(fleet), Pace(terms.step_size)
    )
    diary.say("devices", **facts, first=state.r, rounds=plan.rounds)
    sampler, adopter = _rule(plan, fleet)
    if state.kept is not None:
        fleet.kept = state.kept
    whole = Plan(
        fleet.learner,
        lambda _: fleet.proposer,
        terms.step_size,
        sampler,
        adopter,
        plan.rounds,
        plan.seed,
    )
    losses, clock = list(state.losses), time.monotonic()
    rounds = personalize(
        guarded,
        sampler=sampler,
        adopter=adopter,
        rounds=plan.rounds,
        seed=plan.seed,
        trust=state.trust,
        first=state.r,
    )
    for round_ in () if finished(state.trust) else rounds:
        for jump in guarded.jumps:
            fleet.roster.count(ids[jump.peer], "guarded")
        losses.append(round_.loss)
        # the models are the fleet's own state
        nowhere = np.empty((len(fleet.targets), 0))
        state = State(
            round_.r + 1,
            nowhere,
            round_.trust,
            Pace(terms.step_size),
            tuple(losses),
            fleet.kept,
        )
        _keep(folder, fleet, whole, state, round_)
        clock = _said(diary, fleet, guarded, round_, clock)
        waiting.over()
        if finished(round_.trust):
            break
    keep_result(folder, fleet, terms, plan, state)
    diary.say("done", rounds=state.r)


def _targets(
    ids: list[str], home: dict[str, Device], unwilling: Sequence[str]
) -> list[str]:
    """Who gets a model: the target at home, or everybody who wants one."""
    found = sorted(home) or [name for name in ids if name not in unwilling]
    if not found:
        raise InputError(
            "no device wants a model: all have target = false in their node.toml. Bring one with"
            " --target."
        )
    return found


def _terms(folder: Folder, plan: RunPlan) -> Terms:
    """The terms that were agreed; the model they name must be the one that is asked for now.

    A network's name is that of a function to be imported: a folder must not choose it.
    """
    content = folder.read("terms.wire")
    with reading(folder.path / "terms.wire"):
        terms = Terms.from_wire(*unpack(content))
        agreed_on = (terms.model, terms.classes, dict(terms.settings))
        if agreed_on != (plan.model, plan.classes, dict(plan.settings)):
            raise InputError("the terms must be of the model that is asked for.")
    return terms


def _rule(plan: RunPlan, fleet: FlowerFleet) -> tuple[Any, Any]:
    """Whom to ask, and what to adopt."""
    peers = min(plan.peers, fleet.n - 1)
    if plan.method == "kin":
        # Steps are from a target's model to an answer: the coordinator must know both.
        rule = kin(
            peers,
            steps=hasattr(fleet.learner, "grad")
            and sends_model(fleet.proposer, fleet.learner),
        )
        return rule.sampler, rule.adopter
    return peers_of(peers, fleet.n), Best()


def _keep(
    folder: Folder, fleet: FlowerFleet, plan: Plan, state: State, round_: Round
) -> None:
    """The state of the fleet and of the loop, in one step."""
    before = folder.index.get("fleet")
    name = f"fleet-{state.r:06d}.wire"
    folder.write(name, fleet.state())
    folder.index["fleet"] = name
    if before not in (None, name):
        folder.index["files"].pop(before, None)
    # and once that is kept, the state before goes
    folder.after(STAGE, plan, state, round_)


def _said(
    diary: Diary, fleet: FlowerFleet, guarded: Guarded, round_: Round, clock: float
) -> float:
    now = time.monotonic()
    asked = round_.peers >= 0
    usable = int((np.isfinite(round_.losses[:, 1:]) & asked).sum())
    unfit = sum(jump.why == "loss" for jump in guarded.jumps)
    seconds, own = now - clock, fleet.letters.own_seconds
    known = round_.loss[np.isfinite(round_.loss)]
    diary.say(
        "round",
        round=round_.r + 1,
        asked=int(asked.sum()),
        answered=usable + len(guarded.jumps),
        unfit=unfit,
        far=len(guarded.jumps) - unfit,
        refused=sum(c["refused"] for c in fleet.roster.counts.values()),
        loss=float(np.median(known)) if len(known) else None,
        seconds=round(seconds, 3),
        own=round(own, 4),
        new=sum(fleet.new.values()),
        messages=fleet.post.messages,
    )
    fleet.letters.own_seconds = 0.0
    fleet.new.clear()
    guarded.jumps.clear()
    return time.monotonic()


def _home(plan: RunPlan) -> dict[str, Device]:
    """The target at home, where there is one."""
    if plan.home is None:
        return {}
    make = plan.settings.get("make")
    # whoever starts the run owns these rows
    policy = Policy.unlimited((str(make),) if make else ())
    table = plan.home_table
    return {plan.home_id: Device(plan.home_id, lambda r: table.read(), policy=policy)}
