"""What a coordinator learns from the rows of a panel, or of everybody where there are few: the same
functions as in one process, and a trial that says whether it was worth it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.row_course import found_order
from persfl.evaluation.row_order import RowOrder
from persfl.evaluation.split import some_rows
from persfl.evaluation.trials import run_trial, worth_of_trials
from persfl.evaluation.verdicts import Worth
from persfl.learners.linear import Linear
from persfl.methods.blend_method import Blend
from persfl.methods.mixed.linear_rule import linear_blend
from persfl.methods.mixed.linear_stage import with_shared_trees
from persfl.methods.mixed.panel_knowledge import Panel, learned_from_panel
from persfl.proposers.gradient import GradientStep
from persfl.scale.column_moments import ColumnMoments
from persfl.scale.fleet_model import FleetModel, Ids, PanelKnower, WholeFleet
from persfl.scale.shard_worker import Looked
from persfl.training.state import STEP_ROUNDS, step_of
from persfl.types import Mask
from persfl.units import Units

TREES_APART = 255  # devices that trees can tell apart


class PanelRows(NamedTuple):
    """The devices of the panel: ids, rows, and which of these a trial learns from; and what columns
    are like in the whole fleet.
    """

    moments: ColumnMoments
    ids: Ids
    rows: Devices
    learn: Mask

    @staticmethod
    def of(answers: Mapping[int, Looked]) -> PanelRows:
        """What all shards tell, in their order: the order of answers changes nothing."""
        told = [answers[shard] for shard in sorted(answers)]
        moments = told[0].moments
        for each in told[1:]:
            moments = moments.joined(each.moments)
        there = [each for each in told if len(each.rows)]
        rows = Devices.joined([each.rows for each in there])
        rows.columns = there[0].rows.columns
        ids = np.concatenate([each.ids for each in there])
        # texts of one width, which can be kept as an array
        ids = ids.astype(np.int64 if ids.dtype.kind in "iu" else str)
        learn = np.concatenate([each.learn for each in there])
        return PanelRows(moments, ids, rows, learn)


@dataclass(frozen=True)
class PanelFit:
    """How the panel of a fleet of `n` devices learns."""

    n: int
    panel: Panel
    method: Blend
    seed: int
    ordered: bool
    named: int

    @property
    def everybody(self) -> bool:
        """Whether the panel is the whole fleet."""
        return len(self.panel.devices) == self.n

    def final(self, told: PanelRows) -> FleetModel:
        """From all rows."""
        units = told.moments.units()
        if self.everybody:
            units = Units.of(told.rows, "shared", labels=True)
        return self._learned(told.rows, told.ids, units)

    def trial(self, told: PanelRows) -> tuple[FleetModel, Worth | None]:
        """From the rows that a trial learns from, and how well it does on the others."""
        learn = some_rows(told.rows, told.learn)
        held = some_rows(told.rows, ~told.learn)
        units = Units.of(learn, "shared", labels=True)
        model = self._learned(learn, told.ids, units)
        if not len(held.y):
            return model, None
        positions = self.panel.devices
        models = model.told(learn, positions).models
        learner = Linear(intercept=True)
        step = step_of("auto", learner, learn.features)
        trial = run_trial(
            learn,
            held,
            learner=learner,
            units=units,
            models=with_shared_trees(models, model.knower.trees, True),
            steps=GradientStep(step, steps=STEP_ROUNDS),
            seed=self.seed,
        )
        return model, worth_of_trials([trial], 0)

    def _learned(self, rows: Devices, ids: Ids, units: Units) -> FleetModel:
        inside = units.inside(rows)
        order = RowOrder(ordered=self.ordered)
        how: dict[str, Any] = {"level": True, "seed": self.seed}
        how["trees"] = self.method.trees
        if self.everybody:
            order = found_order(inside, order)
            found = linear_blend(inside, order=order, **how)
            whole = WholeFleet(found, ids[found.centres], self.named)
            return FleetModel(units, whole, apart=self.n <= TREES_APART)
        known = learned_from_panel(inside, order=order, **how)
        at = np.searchsorted(self.panel.devices, self.panel.centres)
        knower = PanelKnower(known, self.panel, ids[at], self.named)
        return FleetModel(units, knower, apart=False)


def offers_of(model: FleetModel) -> list[tuple[str, float]]:
    """The offers that models are mixed from, and the share of each."""
    knower = model.knower
    known = knower.found if isinstance(knower, WholeFleet) else None
    if known is None and isinstance(knower, PanelKnower):
        return _pairs(knower.known.names, knower.known.shares.tolist())
    return [] if known is None else _pairs(known.names, known.shares.tolist())


def _pairs(names: Sequence[str], shares: Sequence[float]) -> list[tuple[str, float]]:
    return list(zip(names, shares, strict=True))
