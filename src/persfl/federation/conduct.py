"""A federated run from its plan: terms, rounds, result; kept so that it can go on after any
interruption.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from persfl.errors import InputError, PersflError
from persfl.federation.common_run import common_run
from persfl.federation.device import Device
from persfl.federation.launch import FAILURE, LINK_GONE
from persfl.federation.loop_run import loop_run
from persfl.federation.negotiation import (
    ASKED,
    agreement,
    in_raw_units,
    kept_agreement,
)
from persfl.federation.node_family import NodeFamily
from persfl.federation.noised_descent import (
    NoisedDescent,
    descent_words,
    steps_that_fit,
)
from persfl.federation.policy import Policy
from persfl.federation.post import Post
from persfl.federation.result import keep_result, schema_of
from persfl.federation.run_plan import RunPlan
from persfl.federation.run_scene import Diary, RunScene
from persfl.federation.told_leaves import LEAVES
from persfl.federation.told_terms import tells_leaves
from persfl.federation.wait_notices import Waiting
from persfl.files import write_whole
from persfl.folder_locks import holding
from persfl.formats import reading
from persfl.methods import Blend, Kin, Mixed, Own, Paper
from persfl.runs.index import INDEX
from persfl.runs.run_folder import Folder
from persfl.runs.standing import DIARY
from persfl.traits import has_gradients
from persfl.wire.codec import pack, unpack
from persfl.wire.terms import Terms

if TYPE_CHECKING:
    from flwr.serverapp import Grid


def conduct(grid: Grid, path: Path) -> None:
    """Run, or go on with, the run of a plan; what goes wrong is said in the diary, and
    everything done is kept.
    """
    plan = RunPlan.read(path)
    out = Path(plan.out)
    out.mkdir(parents=True, exist_ok=True)
    diary = Diary(out / DIARY)
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


def _conduct(grid: Grid, plan: RunPlan, out: Path, diary: Diary) -> None:
    names = {key.encode(): name for name, key in plan.members.items()}
    post = Post(grid, names or None)
    scene = _scene(post, plan, out, diary)
    if scene.folder.finished:
        diary.say("done", already=True)
        return
    method = plan.personalization
    steps_of = scene.paying and has_gradients(scene.terms.learner())
    if isinstance(method, Blend) and steps_of:
        paying = dict(scene.paying)
        fleet, state = common_run(scene, NoisedDescent(rounds=steps_that_fit(paying)))
        words = descent_words(paying)
        keep_result(scene.folder, fleet, scene.terms, plan, state, words)
    elif isinstance(method, Blend | Mixed):
        # blend's many files, where it runs
        from persfl.federation.blend_run import blended

        facts = {"ids": list(scene.ids), "targets": list(scene.targets)}
        unwilling = list(scene.waiting.unwilling)
        diary.say("devices", **facts, unwilling=unwilling, first=0, rounds=0)
        outcome, state = blended(
            post,
            scene.terms,
            plan,
            scene.folder,
            scene.ids,
            scene.home,
            scene.targets,
            scene.waiting,
            diary.say,
        )
        trees = LEAVES if tells_leaves(scene.terms) else ""
        keep_result(scene.folder, outcome, scene.terms, plan, state, trees)
    else:
        asks = isinstance(method, Paper | Kin | Own)
        fleet, state = (loop_run if asks else common_run)(scene, method)
        keep_result(scene.folder, fleet, scene.terms, plan, state)
    diary.say("done", rounds=state.r)


def _scene(post: Post, plan: RunPlan, out: Path, diary: Diary) -> RunScene:
    """A run at its beginning, or as it was left; its terms are agreed on once."""
    home = _home(plan)
    waiting = Waiting(post.seen, lambda facts: diary.say("waiting", **facts))
    ids = sorted({*plan.devices, *home})
    folder = Folder.open(out, every=0) if (out / INDEX).is_file() else None
    if folder is None or "terms.wire" not in folder.index["files"]:
        agreed = agreement(post, plan, ids, home, waiting)
        terms = agreed.terms
        spec = {
            "device": "device",
            "label": plan.label,
            "features": schema_of(terms, plan.levels).inputs,
            "groups": None,
            "separator": None,
            "decimal": ".",
            "federated": True,
            "asked": plan.record(),
            "unwilling": agreed.unwilling,
            "paying": agreed.paying,
            "protected": agreed.protected,
            "families": agreed.families,
            "left_out": agreed.left_out,
        }
        folder = Folder.begin(out, spec, every=0)
        folder.write("terms.wire", pack(*terms.to_wire()))
        folder.commit()
    plan.of_folder(folder)
    terms, told = _terms(folder, plan), folder.spec
    with reading(folder.path / "spec.json"):
        agreed = kept_agreement(terms, told)
    waiting.over()
    ids = [name for name in ids if name not in agreed.left_out]
    if not home:
        waiting.unwilling = agreed.unwilling
    targets = _targets(ids, home, waiting.unwilling)
    budgets = frozenset(agreed.protected)
    return RunScene(
        plan,
        post,
        folder,
        terms,
        ids,
        targets,
        home,
        waiting,
        diary,
        agreed.paying,
        budgets,
    )


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
    """The terms that were agreed, if they are what is asked for now.

    A network's name is that of a function to be imported: a folder must not choose it. And devices
    would learn from other rows than before, for ever, if it chose how many they hold back.
    """
    content = folder.read("terms.wire")
    with reading(folder.path / "terms.wire"):
        terms = Terms.from_wire(*unpack(content))
        agreed_on = (terms.model, terms.classes, dict(terms.settings))
        if agreed_on != (plan.model, plan.classes, dict(plan.settings)):
            raise InputError("the terms must be of the model that is asked for.")
        asked = in_raw_units(plan, terms.columns)
        if any(getattr(terms, name) != getattr(asked, name) for name in ASKED):
            raise InputError("the terms must be those that are asked for.")
    return terms


def _home(plan: RunPlan) -> dict[str, Device]:
    """The target at home, where there is one."""
    if plan.home is None:
        return {}
    make = plan.settings.get("make")
    # whoever starts the run owns these rows
    policy = Policy.unlimited((str(make),) if make else ())
    table = plan.home_table
    home = Device(
        plan.home_id,
        lambda r: table.read(plan.levels),
        policy=policy,
        family=NodeFamily.of(plan.family),
    )
    return {plan.home_id: home}
