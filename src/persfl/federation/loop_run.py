"""A run of the loop over a federation, kept round by round so that it can go on after any
interruption.
"""

from __future__ import annotations

from dataclasses import replace

from persfl.adopters.best import Best
from persfl.errors import InputError
from persfl.federation.fleet import FlowerFleet
from persfl.federation.run_scene import STAGE, RunScene
from persfl.fleets.guarded import Guarded
from persfl.formats import reading
from persfl.loop import personalize
from persfl.methods import Kin, Method, Own, Paper
from persfl.rules.kin_rule import finished, kin
from persfl.samplers.nobody import Nobody
from persfl.training.state import Plan, State, peers_asked, rounds_for
from persfl.traits import has_gradients
from persfl.types import Adopter, Round, Sampler


def loop_run(scene: RunScene, method: Method) -> tuple[FlowerFleet, State]:
    """Run, or go on with, the rounds of a method that asks peers."""
    last = scene.folder.last(STAGE)
    fleet = scene.fleet() if last is None else _fleet_before(scene)
    guarded = Guarded(
        fleet,
        growth=scene.plan.growth,
        reach=scene.plan.reach,
        about="own" if scene.terms.public is None else "answers",
    )
    state = last or scene.first_state(fleet)
    if state.kept is not None:
        fleet.kept = state.kept
    plan = loop_plan_over(fleet, method, scene)
    names = {"ids": list(scene.ids), "targets": list(scene.targets)}
    unwilling = list(scene.waiting.unwilling)
    scene.diary.say(
        "devices", **names, unwilling=unwilling, first=state.r, rounds=plan.rounds
    )
    if plan.rounds == 0:
        fleet.observe(0)  # which asks targets for their models
    scene.diary.begin()
    rounds = personalize(
        guarded,
        sampler=plan.sampler,
        adopter=plan.adopter,
        rounds=plan.rounds,
        seed=plan.seed,
        trust=state.trust,
        first=state.r,
    )
    for round_ in () if finished(state.trust) else rounds:
        state = _after(scene, fleet, guarded, plan, state, round_)
        if finished(round_.trust):
            break
    return fleet, state


def _fleet_before(scene: RunScene) -> FlowerFleet:
    """The devices as they were when the run was cut."""
    name = str(scene.folder.index.get("fleet"))
    body = scene.folder.read(name)
    with reading(scene.folder.path / name):
        return scene.fleet(state=body)


def loop_plan_over(fleet: FlowerFleet, method: Method, scene: RunScene) -> Plan:
    """The rounds of a method as they are over a federation."""
    learner = fleet.learner
    n = fleet.n
    sampler: Sampler = Nobody()
    adopter: Adopter = Best()
    rounds = 0
    if isinstance(method, Own):
        if not fleet.codec.models_travel:
            raise InputError(
                f"own over a federation is for models that travel. Got {scene.terms.model}: fit it"
                " on each device."
            )
    elif isinstance(method, Kin):
        rounds = rounds_for(method.rounds, learner)
        # Steps are from a target's model to an answer: the coordinator must know both.
        steps = has_gradients(learner) and fleet.codec.models_travel
        rule = kin(min(peers_asked(method.peers, n), n - 1), steps=steps)
        sampler = rule.sampler
        adopter = rule.adopter
    elif isinstance(method, Paper):
        rounds = rounds_for(method.rounds, learner)
        peers = min(peers_asked(method.peers, n), n - 1)
        own = method.sampler is not None
        sampler = method.asking(n) if own else method.asks(peers, n)
        adopter = method.adopter or adopter
    else:
        raise InputError(f"{method.name} does not run over a federation yet.")
    step = scene.terms.step_size
    seed = scene.plan.seed
    return Plan(learner, lambda _: fleet.proposer, step, sampler, adopter, rounds, seed)


def _after(
    scene: RunScene,
    fleet: FlowerFleet,
    guarded: Guarded,
    plan: Plan,
    state: State,
    round_: Round,
) -> State:
    """Keep a round, and say how it went."""
    for jump in guarded.jumps:
        fleet.roster.count(scene.ids[jump.peer], "guarded")
    losses = (*state.losses, round_.loss)
    state = replace(
        state, r=round_.r + 1, trust=round_.trust, losses=losses, kept=fleet.kept
    )
    # The state of the fleet and of the loop, in one step; and once that is kept, that before goes.
    folder = scene.folder
    name = f"fleet-{state.r:06d}.wire"
    before = folder.index.get("fleet")
    folder.write(name, fleet.state())
    folder.index["fleet"] = name
    if before not in (None, name):
        folder.index["files"].pop(before, None)
    folder.after(STAGE, plan, state, round_)
    unfit = sum(jump.why == "loss" for jump in guarded.jumps)
    far = len(guarded.jumps) - unfit
    scene.diary.round(fleet, round_, unfit=unfit, far=far)
    guarded.jumps.clear()
    scene.waiting.over()
    return state
