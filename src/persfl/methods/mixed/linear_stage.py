"""The default rule for numbers and counts as a stage of a fit: its models, and who is near whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.row_order import RowOrder
from persfl.learners.linear import Linear
from persfl.learners.shared_trees import BoostedModels
from persfl.methods.mixed.linear_rule import LinearBlend, linear_blend
from persfl.methods.mixed.loss_rule import loss_blend
from persfl.methods.mixed.near_round import (
    SHARED,
    level_last,
    likeliest,
    near_round,
    one_round_stage,
    others,
)
from persfl.training.state import Keep, Plan, State
from persfl.trust import Trust
from persfl.types import Models, Round

if TYPE_CHECKING:
    from persfl.methods.blend.mixture import BlendResult


def linear_stage(
    devices: Devices,
    plan: Plan,
    learner: Linear,
    *,
    order: RowOrder | None = None,
    trees: bool = True,
    stage: str = "final",
    keep: Keep | None = None,
) -> State:
    """The rule on these devices, kept as a stage."""
    level = learner.intercept

    def rule(blank: Trust) -> tuple[Models, Round]:
        if learner.kind == "squared":
            found = linear_blend(
                devices, level=level, seed=plan.seed, order=order, trees=trees
            )
        else:
            found = loss_blend(
                devices, learner, seed=plan.seed, order=order, trees=trees
            )
        return models_of(found, level), record(found, blank)

    return one_round_stage(devices, plan, rule, stage=stage, keep=keep)


def models_of(found: LinearBlend, level: bool) -> Models:
    """A vector per device, the level last; and trees beside them, where they have a share."""
    vectors = level_last(found.models, level)
    if not found.trees:
        return vectors
    return BoostedModels(vectors, found.trees, np.zeros(len(vectors), dtype=bool))


def sums_result(found: LinearBlend, level: bool) -> BlendResult:
    """What the rule found, as the result of a blend."""
    # that package begins with offers, which begin with this
    from persfl.methods.blend.mixture import BlendResult

    n = len(found.models)
    round_ = record(found, Trust(n, np.arange(n)))
    return BlendResult(models_of(found, level), SHARED, found.made_of, (round_,))


def record(found: LinearBlend, trust: Trust, *, adapts: bool = True) -> Round:
    """Who is near whom, as a round of asking: every device has looked at the models of its
    likeliest centres, and adopted each as far as it is part of the device's own model.

    Losses are mean squared errors on all rows of a device: of one model for all, and of each of
    those centres' models. Without `adapts` it is not kept what a device that was not there needs.
    """
    order = likeliest(found.posterior, found.likeness.chance)
    chance = np.take_along_axis(found.likeness.chance, order, axis=1)
    missed = np.take_along_axis(found.centre_error, order, axis=1)
    # whoever told no sums has no errors
    peers = np.where(np.isfinite(missed), others(found.centres[order]), -1)
    missed = np.where(peers >= 0, missed, np.inf)
    return near_round(
        trust,
        peers,
        np.take_along_axis(found.posterior, order, axis=1),
        np.column_stack([found.fleet_error, missed]),
        made_of=found.made_of,
        names=found.names,
        shares=found.shares,
        notes={
            "alike_peers": found.centres[order],
            "alike": np.nan_to_num(chance),
            "alike_whole": np.array(found.likeness.whole),
            "alike_kinds": np.array(found.likeness.kinds),
            **(found.population.to_notes() if adapts else {}),
        },
    )
