"""Blend over a federation: exchanges instead of rounds, each kept, so that an interrupted run
goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from persfl.adopters.best import Best
from persfl.errors import InputError
from persfl.federation.blend_exchange import BlendExchange, BlendScene
from persfl.federation.blend_journal import Exchanges
from persfl.federation.blend_outcome import Outcome
from persfl.federation.blend_site import FlowerSite
from persfl.federation.class_site import NO_ALIKE, ClassSite
from persfl.federation.leaves_site import LeavesSite
from persfl.federation.letters import Letters
from persfl.federation.loss_site import LossSite
from persfl.federation.messages import Responder
from persfl.federation.mixed_site import MixedSite
from persfl.federation.post import Post
from persfl.federation.run_plan import RunPlan
from persfl.federation.sums_site import NO_TREES, SumsSite
from persfl.federation.told_terms import (
    tells_bends,
    tells_leaves,
    tells_losses,
    tells_sums,
)
from persfl.federation.wait_notices import Waiting
from persfl.methods import Mixed
from persfl.methods.blend.algorithm import blend_over
from persfl.methods.blend.mixture import BlendResult
from persfl.runs.run_folder import Folder
from persfl.samplers.nobody import Nobody
from persfl.training.state import Pace, Plan, State
from persfl.traits import has_gradients, has_statistics
from persfl.trust import Trust
from persfl.wire.terms import Terms

STAGE = "final"
NETWORKS = ("mlp", "network")  # are blended by the same rule everywhere
BY_QUESTIONS = (
    "Over a federation models of this kind are blended by an earlier rule, from steps or refits"
    " that devices answer: they are others than those of 'persfl fit' on the same rows."
)


class ExchangeLines:
    """A line for every exchange; where too few have answered, who is waited for."""

    def __init__(
        self, letters: Letters, waiting: Waiting, say: Callable[..., None]
    ) -> None:
        self.letters = letters
        self.waiting = waiting
        self.say = say
        self._clock = time.monotonic()
        self._last = 0

    def __call__(self, facts: dict[str, Any]) -> None:
        missing = facts.pop("missing")
        number = facts["exchange"]
        if missing and number == self._last:  # the same one again
            self.waiting(f"exchange {number}", missing)
            return
        self.waiting.over()
        seconds = time.monotonic() - self._clock
        own = self.letters.own_seconds
        text = (
            f"exchange {number}: {facts['questions']} questions to {facts['asked']}"
            f" devices, {facts['answered']} answered; {seconds:.1f} s, of these our own"
            f" {own:.2f} s"
        )
        messages = self.letters.post.messages
        self.say("exchange", **facts, own=round(own, 4), messages=messages, text=text)
        self._clock = time.monotonic()
        self._last = number
        self.letters.own_seconds = 0.0


def _run(
    letters: Letters, scene: BlendScene, plan: RunPlan
) -> tuple[BlendExchange, BlendResult]:
    """From sums, or by asking for steps and refits."""
    method = plan.personalization
    if isinstance(method, Mixed):
        mixed = MixedSite(letters, scene, method.effects)
        return mixed, mixed.blended()
    if tells_sums(letters.terms):
        sums = SumsSite(letters, scene)
        return sums, sums.blended()
    if tells_bends(letters.terms):
        bends = ClassSite(letters, scene)
        return bends, bends.blended()
    if tells_losses(letters.terms):
        losses = LossSite(letters, scene)
        return losses, losses.blended()
    if tells_leaves(letters.terms):
        leaves = LeavesSite(letters, scene)
        return leaves, leaves.blended()
    site = FlowerSite(letters, scene)
    return site, blend_over(site, budget=plan.setting("budget"))


def blended(
    post: Post,
    terms: Terms,
    plan: RunPlan,
    folder: Folder,
    ids: Sequence[str],
    home: Mapping[str, Responder],
    wanted: Sequence[str],
    waiting: Waiting,
    say: Callable[..., None],
) -> tuple[Outcome, State]:
    """Run, or go on with, a blend."""
    mixed = isinstance(plan.personalization, Mixed)
    if mixed and not tells_sums(terms):
        raise InputError(
            "mixed over a federation is for linear models of numbers, from sums. Use --method"
            " mr-mtl, which asks for steps: own models are pulled toward their mean."
        )
    if has_statistics(terms.learner()):
        raise InputError(
            "blend over a federation mixes networks without running statistics (BatchNorm). Use"
            " --method paper or kin."
        )
    if not mixed and terms.mean is None and has_gradients(terms.learner()):
        raise InputError(
            "blend needs shared units. Leave --units out, and allow sums in the nodes' policies."
        )
    letters = Letters(post, terms, run=plan.run, home=home, deadline=plan.deadline)
    targets = np.array([ids.index(name) for name in wanted], dtype=np.int64)
    journal = Exchanges(folder)
    scene = BlendScene(
        ids=ids,
        targets=targets,
        seed=plan.seed,
        ordered=plan.ordered,
        quorum=plan.quorum,
        patience=plan.patience,
        journal=journal,
        say=ExchangeLines(letters, waiting, say),
        notice=lambda text: waiting(text, ()),
    )
    site, found = _run(letters, scene, plan)
    linear = tells_sums(terms) or tells_losses(terms)
    if linear and plan.setting("trees"):
        site.notes.append(NO_TREES)
    if tells_bends(terms):
        site.notes.append(NO_ALIKE)
    elif isinstance(site, FlowerSite) and terms.model not in NETWORKS:
        site.notes.append(BY_QUESTIONS)
    if all(model is None for model in found.models):
        raise InputError(
            "no target could be told its mix. Go on with --resume when they are back."
        )
    whole = Plan(
        site.learner,
        lambda _: None,
        terms.step_size,
        Nobody(),
        Best(),
        len(found.rounds),
        plan.seed,
    )
    state = State(
        0,
        np.empty((len(targets), 0)),
        Trust(len(ids), np.arange(len(ids))),
        Pace(terms.step_size),
    )
    for round_ in found.rounds:
        losses = (*state.losses, round_.loss[targets])
        state = replace(state, r=round_.r + 1, trust=round_.trust, losses=losses)
        folder.after(STAGE, whole, state, round_)
    journal.forget()
    return Outcome(site, found.models), state
