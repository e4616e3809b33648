"""Methods that ask round by round, over shards: run as they are in one process, on a task whose
fleet asks the workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from persfl.evaluation.alike import alike
from persfl.evaluation.rivals import pooled_fit
from persfl.evaluation.who_helps import pairs_known
from persfl.learners.linear import Linear
from persfl.methods import Method
from persfl.rules.kin_rule import members
from persfl.scale.fleet_model import FleetModel
from persfl.scale.held_models import HeldModels
from persfl.scale.panel_fit import PanelFit, PanelRows
from persfl.scale.rows_elsewhere import ShardRows
from persfl.scale.shard_desk import ShardDesk
from persfl.scale.shard_questions import RowUse
from persfl.scale.shard_task import ShardTask
from persfl.training.state import Keep
from persfl.trust import Trust
from persfl.types import Array, IntArray
from persfl.units import Units


@dataclass(frozen=True)
class LearnByRounds:
    """A method's own rounds, of all devices."""

    method: Method
    desk: Callable[[RowUse], ShardDesk]
    keep: Keep

    def learned(
        self, fit: PanelFit, told: PanelRows, units: Units, *, trial: bool
    ) -> FleetModel:
        rows = ShardRows(self.desk(RowUse(units, trial)))
        learner = Linear(intercept=True)
        task = ShardTask(rows, learner, fit.seed, fit.ordered)
        stage = "trial" if trial else "final"
        state = self.method.run(task, stage=stage, keep=self.keep)
        pooled = pooled_fit(learner, rows)
        at, share, chance = named_peers(state.trust, fit.named)
        held = HeldModels(
            np.roll(np.asarray(state.models), 1, axis=1),
            np.roll(pooled, 1),
            parts_of_models(state.trust, len(rows)),
            at,
            share,
            chance,
            np.array(rows.ids),
        )
        return FleetModel(units, held, apart=False)


def parts_of_models(trust: Trust, n: int) -> Array:
    """(n, 3) own rows, fleet and neighbours in each model, where the method knows it."""
    found = np.full((n, 3), np.nan)
    if "member" in trust.notes:
        kin = members(trust)
        many = kin.member.sum(axis=1)
        found[:, 0] = np.where(kin.right, 1.0 / (1 + many), 1.0)
        found[:, 1] = 0.0
        found[:, 2] = 1.0 - found[:, 0]
    return found


def named_peers(trust: Trust, named: int) -> tuple[IntArray, Array, Array]:
    """(n, named) of the peers that each model took most from: who, -1 for nobody, how much of what
    it took, and the chance that they are alike.
    """
    n = trust.n
    at = np.full((n, named), -1)
    share = np.zeros((n, named))
    chance = np.full((n, named), np.nan)
    known = pairs_known(trust)
    found = alike(known, trust).chance
    target = known["target"].to_numpy()
    mine = known["share"].to_numpy()
    peer = known["peer"].to_numpy()
    order = np.lexsort((peer, -mine, target))
    order = order[mine[order] > 0]
    target = target[order]
    place = np.arange(len(order)) - np.searchsorted(target, target)
    few = place < named
    to = (target[few], place[few])
    from_ = order[few]
    at[to] = peer[from_]
    share[to] = mine[from_]
    chance[to] = found[from_]
    return at, share, chance
