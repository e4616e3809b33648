"""The default rule for squared loss as a stage of a fit: its models, and who is near whom."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.row_course import found_order
from persfl.evaluation.row_order import RowOrder
from persfl.evaluation.split import taken
from persfl.learners.shared_trees import BoostedModels, WeighedTrees
from persfl.methods.mixed import PANEL
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.latest_rows import LatestRows
from persfl.methods.mixed.linear_rule import linear_blend
from persfl.methods.mixed.near_round import (
    NAMED,
    SHARED,
    level_last,
    likeliest,
    near_round,
    one_round_stage,
    others,
)
from persfl.methods.mixed.panel_draw import Panel
from persfl.methods.mixed.panel_knowledge import PanelKnowledge
from persfl.methods.mixed.panel_rule import learned_from_panel
from persfl.methods.mixed.sums_blend import LinearBlend
from persfl.training.state import Keep, Plan, State
from persfl.trust import Trust
from persfl.types import Array, Models, Round

if TYPE_CHECKING:
    from persfl.methods.blend.mixture import BlendResult


def linear_stage(
    devices: Devices,
    plan: Plan,
    *,
    level: bool,
    order: RowOrder | None = None,
    trees: bool = True,
    panel: int = PANEL,
    stage: str = "final",
    keep: Keep | None = None,
) -> State:
    """The rule on these devices, kept as a stage; of more than `panel` devices what they have in
    common is learned from so many.
    """

    def rule(blank: Trust) -> tuple[Models, Round]:
        if len(devices) > panel:
            drawn = Panel.drawn(len(devices), plan.seed, panel)
            known = _known_by_panel(devices, drawn, plan.seed, level, order, trees)
            return _told_round(devices, drawn, known, blank)
        found = linear_blend(
            devices,
            level=level,
            seed=plan.seed,
            order=found_order(devices, order or RowOrder()),
            trees=trees,
        )
        return models_of(found, level), record(found, blank)

    return one_round_stage(devices, plan, rule, stage=stage, keep=keep)


def _known_by_panel(
    devices: Devices,
    panel: Panel,
    seed: int,
    level: bool,
    order: RowOrder | None,
    trees: bool,
) -> PanelKnowledge:
    """What the panel of these devices learns from its rows."""
    which = np.zeros(len(devices), dtype=bool)
    which[panel.devices] = True
    some = taken(devices, which)
    theirs = None if order is None else order.at(which[devices.owner])
    return learned_from_panel(some, level=level, seed=seed, order=theirs, trees=trees)


def _told_round(
    devices: Devices, panel: Panel, known: PanelKnowledge, blank: Trust
) -> tuple[Models, Round]:
    """The models of all, and who is near whom, as `record` has it."""
    Z = known.axes.inside(devices.X)
    given = Z, devices.y, devices.weight, devices.start
    centre = panel.place_of(np.arange(len(devices)))
    told = known.told(DeviceSums.of(*given), LatestRows.of(*given), centre, NAMED)
    peers = others(panel.centres[told.at])
    round_ = near_round(
        blank,
        peers,
        told.posterior,
        np.column_stack([told.fleet_error, told.missed]),
        made_of=told.made_of,
        names=known.names,
        shares=known.shares,
        notes={
            "alike_peers": panel.centres[told.at],
            "alike": np.nan_to_num(told.chance),
            "alike_whole": np.array(known.facts.whole),
            "alike_kinds": np.array(known.facts.kinds),
            **known.population.to_notes(),
        },
    )
    # trees know none of so many devices apart
    nobody = np.full(len(devices), -1)
    trees = tuple((share, replace(each, place=nobody)) for share, each in known.trees)
    return with_shared_trees(told.models, trees, known.level), round_


def models_of(found: LinearBlend, level: bool) -> Models:
    """A vector per device, the level last; and trees beside them, where they have a share."""
    return with_shared_trees(found.models, found.trees, level)


def with_shared_trees(
    models: Array, trees: WeighedTrees, level: bool
) -> Array | BoostedModels:
    """Models with the level first as those of a learner, and these trees beside them."""
    vectors = level_last(models, level)
    if not trees:
        return vectors
    return BoostedModels(vectors, trees, np.zeros(len(vectors), dtype=bool))


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
