"""Kin: find the devices that answer from the same truth, and learn from all of them at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from persfl.errors import InputError
from persfl.evaluation.rivals import own_fits
from persfl.methods.loop_plan import loop_plan
from persfl.methods.method_fields import MethodSettings, setting
from persfl.methods.paper import LEAVES
from persfl.methods.protocol import Needs, Task
from persfl.rules.kin_rule import kin, members
from persfl.training.state import (
    KIN_ROUNDS,
    Keep,
    State,
    peers_asked,
    peers_of,
    rounds_for,
)
from persfl.training.training_run import train
from persfl.traits import has_gradients


@dataclass(frozen=True)
class Kin(MethodSettings):
    """The rule `persfl.kin`; a device that finds no kin keeps the model of its own rows."""

    name: ClassVar[str] = "kin"
    source: ClassVar[str] = "persfl, docs/kin.md"
    about: ClassVar[str] = (
        "Models were made by finding devices that answer from the same truth and learning from all"
        " of them"
    )

    peers: int | str = setting(
        "auto", "peers that a device asks each round; auto: 20, or all there are"
    )
    rounds: int | str = setting(
        "auto", "rounds at most; auto: 400, or 20 for models that are refitted"
    )
    step_size: float | str = setting("auto", "the first step; halved if losses grow")

    def needs(self) -> Needs:
        return Needs(leaves=LEAVES)

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        if task.n < 2:
            raise InputError("kin needs at least 2 devices, to find groups. Got 1.")
        peers_of(self.peers, task.n)  # which refuses more than there are
        rule = kin(peers_asked(self.peers, task.n), steps=has_gradients(task.learner))
        plan = loop_plan(
            task,
            rounds_for(self.rounds, task.learner, KIN_ROUNDS),
            step_size=self.step_size,
            sampler=rule.sampler,
            adopter=rule.adopter,
        )
        return sure(train(task, plan, stage=stage, keep=keep), task)


def sure(state: State, task: Task) -> State:
    """The state with the models of own rows where no kin was found.

    Where rows are not in one place a device without kin keeps the model that it ended with.
    """
    if "member" not in state.trust.notes or not task.together:
        return state
    found = members(state.trust).right
    if found.all():
        return state
    own = own_fits(task.learner, task.rows, task.seed)
    return replace(state, models=np.where(found[:, None], state.models, own))
