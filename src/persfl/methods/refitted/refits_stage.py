"""Blend of refitted models as a stage of a fit: its models, and who is near whom."""

from __future__ import annotations

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.row_order import RowOrder
from persfl.methods.mixed.likeness import Likeness
from persfl.methods.mixed.linear_stage import record
from persfl.methods.mixed.near_round import one_round_stage
from persfl.methods.refitted.rule import RefitBlend, refit_blend
from persfl.training.state import Keep, Plan, State
from persfl.trust import Trust
from persfl.types import Models, Round

FLEET = 0.5  # of the models, at least, where it is said that all devices are alike


def refit_stage(
    devices: Devices,
    plan: Plan,
    *,
    classes: int,
    order: RowOrder,
    stage: str = "final",
    keep: Keep | None = None,
) -> State:
    """The rule on these devices, kept as a stage."""

    def rule(blank: Trust) -> tuple[Models, Round]:
        found = refit_blend(
            devices, plan.learner, classes=classes, seed=plan.seed, order=order
        )
        return found.models, _record(found, blank)

    return one_round_stage(devices, plan, rule, stage=stage, keep=keep)


def _record(found: RefitBlend, trust: Trust) -> Round:
    """As the linear rule records who is near whom: errors are those of its linear models, of
    classes summed over those that it sees.
    """
    blends = found.view.blends
    alike = blends[0].likeness
    if alike.whole > 0 and float(found.made_of[:, 1].mean()) < FLEET:
        alike = _by_posterior(found, alike)
    told = blends[0]._replace(
        names=found.names,
        shares=found.shares,
        made_of=found.made_of,
        posterior=found.view.posterior,
        centre_error=np.sum([each.centre_error for each in blends], axis=0),
        fleet_error=np.sum([each.fleet_error for each in blends], axis=0),
        likeness=alike,
    )
    return record(told, trust, adapts=False)


def _by_posterior(found: RefitBlend, alike: Likeness) -> Likeness:
    """Ranks, no verdicts: linear models see devices that are all alike, and fits of other models
    do not.
    """
    posterior = found.view.posterior
    top = np.maximum(posterior.max(axis=1, keepdims=True), 1e-300)
    chance = np.where(np.isnan(alike.chance), np.nan, 0.5 * posterior / top)
    return Likeness(chance, 0.0, False)
