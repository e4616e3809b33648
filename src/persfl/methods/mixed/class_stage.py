"""The default rule for classes as a stage of a fit: its models, and who is near whom."""

from __future__ import annotations

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.row_order import RowOrder
from persfl.learners.linear import Linear
from persfl.learners.shared_trees import BoostedModels
from persfl.methods.mixed.class_rule import ClassRule, class_rule
from persfl.methods.mixed.near_round import (
    likeliest,
    near_round,
    one_round_stage,
    others,
)
from persfl.training.state import Keep, Plan, State
from persfl.trust import Trust
from persfl.types import Array, Models, Round


def class_stage(
    devices: Devices,
    plan: Plan,
    learner: Linear,
    *,
    classes: int,
    order: RowOrder | None = None,
    trees: bool = True,
    stage: str = "final",
    keep: Keep | None = None,
) -> State:
    """The rule on these devices, kept as a stage."""

    def rule(blank: Trust) -> tuple[Models, Round]:
        found = class_rule(
            devices, learner, classes=classes, seed=plan.seed, order=order, trees=trees
        )
        return _models(found), _record(found, devices, blank)

    return one_round_stage(devices, plan, rule, stage=stage, keep=keep)


def _models(found: ClassRule) -> Models:
    """A vector per device, and trees beside them, where they have a share."""
    grown = [(share, each) for share, each in found.shared_trees if share > 0]
    if not grown:
        return found.models
    pairs = tuple((share, one) for share, each in grown for one in each.trees)
    alone = np.zeros(len(found.models), dtype=bool)
    return BoostedModels(found.models, pairs, alone, grown[0][1].there)


def _record(found: ClassRule, devices: Devices, trust: Trust) -> Round:
    """As `linear_stage.record`; losses are those of the learner on all rows of a device."""
    alike = found.likeness
    order = likeliest(found.posterior, alike.chance)
    there = found.centres[order]
    peers = others(there)
    losses = np.full((len(devices), peers.shape[1] + 1), np.inf)
    for i in range(len(devices)):
        asked = peers[i][peers[i] >= 0]
        models = np.concatenate([found.centre[None], found.models[asked]])
        losses[i, np.append(True, peers[i] >= 0)] = _losses(found, models, devices, i)
    return near_round(
        trust,
        peers,
        np.take_along_axis(found.posterior, order, axis=1),
        losses,
        made_of=found.made_of,
        names=found.names,
        shares=found.shares,
        notes={
            "alike_peers": there,
            "alike": np.nan_to_num(np.take_along_axis(alike.chance, order, axis=1)),
            "alike_whole": np.array(alike.whole),
            "alike_kinds": np.array(alike.kinds),
        },
    )


def _losses(found: ClassRule, models: Array, devices: Devices, i: int) -> Array:
    """(models,) what each loses on all rows of a device."""
    data = devices[i]
    return np.array([float(found.learner.loss(model, data)) for model in models])
