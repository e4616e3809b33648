"""The default rule for classes as a stage of a fit: its models, and who is near whom."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import expit

from persfl.devices import Devices
from persfl.evaluation.row_order import RowOrder
from persfl.learners.linear import Linear
from persfl.learners.shared_trees import BoostedModels
from persfl.methods.mixed.class_rule import ClassRule, class_rule
from persfl.methods.mixed.linear_stage import NAMED, SHARED
from persfl.training.state import Forget, Keep, Pace, Plan, State, resumable
from persfl.trust import Trust
from persfl.types import Array, Choice, Models, Round


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
    """As `persfl.training.train`. A stage that was cut begins anew and ends the same, since
    nothing is drawn but by the seed.
    """
    keep = keep or Forget()
    state = resumable(keep.last(stage), devices, learner)
    if state is not None and state.r == 1:
        return state
    pace = Pace(plan.step_size)
    nothing = Trust(len(devices), devices.start[:0])
    keep.after(stage, plan, State(0, None, nothing, pace), None)
    found = class_rule(
        devices, learner, classes=classes, seed=plan.seed, order=order, trees=trees
    )
    round_ = _record(found, devices)
    state = State(1, _models(found), round_.trust, pace, (round_.loss,))
    keep.after(stage, replace(plan, rounds=1), state, round_)
    return state


def _models(found: ClassRule) -> Models:
    """A vector per device, and trees beside them, where they have a share."""
    share = float(found.shares[-1])
    if found.trees is None or share <= 0:
        return found.models
    pairs = tuple((share, each) for each in found.trees.trees)
    alone = np.zeros(len(found.models), dtype=bool)
    return BoostedModels(found.models, pairs, alone, found.trees.there)


def _record(found: ClassRule, devices: Devices) -> Round:
    """As `linear_stage.record`; losses are those of the learner on all rows of a device."""
    n = len(devices)
    order = np.argsort(-found.posterior, axis=1, kind="stable")[:, :NAMED]
    there = found.centres[order]
    peers = np.where(there == np.arange(n)[:, None], -1, there)
    q = np.take_along_axis(found.posterior, order, axis=1)
    weights = np.where(peers >= 0, found.made_of[:, 2:] * q, 0.0)
    losses = np.full((n, peers.shape[1] + 1), np.inf)
    for i in range(n):
        asked = peers[i][peers[i] >= 0]
        models = np.concatenate([found.centre[None], found.models[asked]])
        losses[i, np.append(True, peers[i] >= 0)] = _losses(found, models, devices, i)
    notes = {
        # how alike two devices are is not calibrated for classes: a chance is never better than
        # even, and nothing is said of any pair
        "alike_peers": there,
        "alike": 0.5 * _better(losses, devices),
        "alike_whole": np.array(np.nan),
        "alike_kinds": np.array(False),
        "mix": found.made_of,
        "mix_names": np.array(SHARED),
        "mix_rounds": np.array(1),
        "offer_names": np.array(found.names),
        "offer_shares": found.shares,
    }
    choice = Choice(
        np.where(weights > 0, peers, -1), weights, 1.0 - weights.sum(axis=1)
    )
    lengths = np.full(peers.shape, np.nan)
    trust = Trust(n, np.arange(n)).noted(notes)
    trust = trust.updated(peers, losses, lengths, choice)
    return Round(0, peers, losses, lengths, choice, trust)


def _better(losses: Array, devices: Devices) -> Array:
    """(n, peers) how likely a device's labels are by a peer's model, against the fleet's."""
    nats = (losses[:, :1] - losses[:, 1:]) * devices.counts[:, None]
    return np.asarray(expit(np.maximum(nats, -700.0)))


def _losses(found: ClassRule, models: Array, devices: Devices, i: int) -> Array:
    """(models,) what each loses on all rows of a device."""
    data = devices[i]
    return np.array([float(found.learner.loss(model, data)) for model in models])
