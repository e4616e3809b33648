"""What a coordinator learns from the rows of a panel, or of everybody where there are few: the same
functions as in one process, and a trial that says whether it was worth it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from persfl.checks import one_of
from persfl.devices import Devices
from persfl.evaluation.row_course import found_order
from persfl.evaluation.row_order import RowOrder
from persfl.evaluation.split import some_rows
from persfl.evaluation.trials import run_trial, worth_of_trials
from persfl.evaluation.verdicts import Worth
from persfl.learners.linear import Linear
from persfl.methods.blend_method import Blend
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.linear_rule import linear_blend
from persfl.methods.mixed.linear_stage import with_shared_trees
from persfl.methods.mixed.panel_draw import Panel
from persfl.methods.mixed.panel_rule import learned_from_panel
from persfl.methods.mixed.reml import EFFECTS, fit_of_sums, random_columns
from persfl.methods.mixed_effects import Mixed
from persfl.proposers.gradient import GradientStep
from persfl.scale.column_moments import ColumnMoments
from persfl.scale.fleet_model import FleetModel, Ids
from persfl.scale.mixed_knower import MixedKnower, sums_with_level
from persfl.scale.panel_knower import PanelKnower, WholeFleet
from persfl.scale.shard_questions import Looked
from persfl.training.state import STEP_ROUNDS, step_of
from persfl.types import Mask
from persfl.units import Units

TREES_APART = 255  # devices that trees can tell apart


class PanelRows(NamedTuple):
    """The devices of the panel: ids, rows, and which of these a trial learns from; and what columns
    are like in the whole fleet, in all rows and in those that a trial learns from.
    """

    moments: ColumnMoments
    learned: ColumnMoments
    ids: Ids
    rows: Devices
    learn: Mask

    def units(self, *, trial: bool) -> Units:
        """Those of all rows of the fleet, or of all that a trial learns from."""
        return (self.learned if trial else self.moments).units()

    def learned_from(self, *, trial: bool) -> Devices:
        """All rows, or those that a trial learns from."""
        return some_rows(self.rows, self.learn) if trial else self.rows

    @staticmethod
    def of(answers: Mapping[int, Looked]) -> PanelRows:
        """What all shards tell, in their order: the order of answers changes nothing."""
        told = [answers[shard] for shard in sorted(answers)]
        moments, learned = told[0][:2]
        for each in told[1:]:
            moments = moments.joined(each.moments)
            learned = learned.joined(each.learned)
        there = [each for each in told if len(each.rows)]
        rows = Devices.joined([each.rows for each in there])
        rows.columns = there[0].rows.columns
        ids = np.concatenate([each.ids for each in there])
        # texts of one width, which can be kept as an array
        ids = ids.astype(np.int64 if ids.dtype.kind in "iu" else str)
        learn = np.concatenate([each.learn for each in there])
        return PanelRows(moments, learned, ids, rows, learn)


class Learn(Protocol):
    """How a method learns what devices have in common."""

    def learned(
        self, fit: PanelFit, told: PanelRows, units: Units, *, trial: bool
    ) -> FleetModel:
        """From the rows of the panel, or of a trial those that it learns from."""


@dataclass(frozen=True)
class PanelFit:
    """How the panel of a fleet of `n` devices learns."""

    n: int
    panel: Panel
    learn: Learn
    seed: int
    ordered: bool
    named: int

    @property
    def everybody(self) -> bool:
        """Whether the panel is the whole fleet."""
        return len(self.panel.devices) == self.n

    def final(self, told: PanelRows) -> FleetModel:
        """From all rows."""
        units = told.units(trial=False)
        if self.everybody:
            units = Units.of(told.rows, "shared", labels=True)
        return self.learn.learned(self, told, units, trial=False)

    def trial(self, told: PanelRows) -> tuple[FleetModel, Worth | None]:
        """From the rows that a trial learns from, and how well it does on the others."""
        learn = told.learned_from(trial=True)
        held = some_rows(told.rows, ~told.learn)
        units = told.units(trial=True)
        if self.everybody:
            units = Units.of(learn, "shared", labels=True)
        model = self.learn.learned(self, told, units, trial=True)
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
        moments = RowOrder(ordered=self.ordered).moments(told.rows, ~told.learn)
        judged = [trial._replace(moments=moments)]
        return model, worth_of_trials(judged, 0, ahead=self.ordered)


@dataclass(frozen=True)
class LearnBlend:
    """Blend: from the panel's rows alone."""

    method: Blend

    def learned(
        self, fit: PanelFit, told: PanelRows, units: Units, *, trial: bool
    ) -> FleetModel:
        inside = units.inside(told.learned_from(trial=trial))
        order = RowOrder(ordered=fit.ordered)
        how: dict[str, Any] = {"level": True, "seed": fit.seed}
        how["trees"] = self.method.trees
        if fit.everybody:
            order = found_order(inside, order)
            found = linear_blend(inside, order=order, **how)
            whole = WholeFleet(found, told.ids[found.centres], fit.named)
            return FleetModel(units, whole, apart=fit.n <= TREES_APART)
        known = learned_from_panel(inside, order=order, **how)
        at = np.searchsorted(fit.panel.devices, fit.panel.centres)
        knower = PanelKnower(known, fit.panel, told.ids[at], fit.named)
        return FleetModel(units, knower, apart=False)


@dataclass(frozen=True)
class LearnMixed:
    """The mixed model: from everybody's sums, which `gather` brings here."""

    method: Mixed
    gather: Callable[[Units, bool], DeviceSums]

    def learned(
        self, fit: PanelFit, told: PanelRows, units: Units, *, trial: bool
    ) -> FleetModel:
        if fit.everybody:
            inside = units.inside(told.learned_from(trial=trial))
            sums = sums_with_level(inside)
        else:
            sums = self.gather(units, trial)
        effects = one_of("effects", self.method.effects, EFFECTS)
        random = random_columns(effects, sums.product.shape[1], level=True)
        found = fit_of_sums(sums, random, full=effects == "full")
        knower = MixedKnower(found.common, found.Sigma, found.noise, random)
        return FleetModel(units, knower, apart=False)


def offer_shares(model: FleetModel) -> list[tuple[str, float]]:
    """The offers that models are mixed from, and the share of each."""
    knower = model.knower
    known = knower.found if isinstance(knower, WholeFleet) else None
    if known is None and isinstance(knower, PanelKnower):
        return _pairs(knower.known.names, knower.known.shares.tolist())
    return [] if known is None else _pairs(known.names, known.shares.tolist())


def _pairs(names: Sequence[str], shares: Sequence[float]) -> list[tuple[str, float]]:
    return list(zip(names, shares, strict=True))
