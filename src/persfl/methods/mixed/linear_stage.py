"""The default rule for squared loss as a stage of a fit: its models, and who is near whom."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.row_order import RowOrder
from persfl.learners.shared_trees import BoostedModels
from persfl.methods.mixed.linear_rule import LinearBlend, linear_blend
from persfl.training.state import Forget, Keep, Pace, Plan, State, resumable
from persfl.trust import Trust
from persfl.types import Array, Choice, IntArray, Models, Round

NAMED = 100  # of the likeliest centres, that are remembered for each device
# what models are made of, as `Fitted.made_of` reads it: own rows, the fleet, neighbours
SHARED = ("shared own", "shared pooled", "shared neighbours")


def linear_stage(
    devices: Devices,
    plan: Plan,
    *,
    level: bool,
    order: RowOrder | None = None,
    trees: bool = True,
    stage: str = "final",
    keep: Keep | None = None,
) -> State:
    """As `persfl.training.train`. A stage that was cut begins anew and ends the same, since
    nothing is drawn but by the seed.
    """
    keep = keep or Forget()
    state = resumable(keep.last(stage), devices, plan.learner)
    if state is not None and state.r == 1:
        return state
    pace = Pace(plan.step_size)
    blank = Trust(len(devices), np.arange(len(devices)))
    keep.after(
        stage, plan, State(0, None, Trust(len(devices), devices.start[:0]), pace), None
    )
    found = linear_blend(
        devices,
        level=level,
        seed=plan.seed,
        order=order,
        trees=trees,
    )
    round_ = record(found, blank)
    state = State(1, models_of(found, level), round_.trust, pace, (round_.loss,))
    keep.after(stage, replace(plan, rounds=1), state, round_)
    return state


def models_of(found: LinearBlend, level: bool) -> Models:
    """A vector per device, the level last; and trees beside them, where they have a share."""
    vectors = np.roll(found.models, -1, axis=1) if level else found.models
    vectors = np.ascontiguousarray(vectors)
    if not found.trees:
        return vectors
    return BoostedModels(vectors, found.trees, np.zeros(len(vectors), dtype=bool))


def record(found: LinearBlend, trust: Trust, *, adapts: bool = True) -> Round:
    """Who is near whom, as a round of asking: every device has looked at the models of its
    likeliest centres, and adopted each as far as it is part of the device's own model.

    Losses are mean squared errors on all rows of a device: of one model for all, and of each of
    those centres' models. Without `adapts` it is not kept what a device that was not there needs.
    """
    order = likeliest(found.posterior, found.likeness.chance)
    chance = np.take_along_axis(found.likeness.chance, order, axis=1)
    trust = trust.noted(
        {
            "alike_peers": found.centres[order],
            "alike": np.nan_to_num(chance),
            "alike_whole": np.array(found.likeness.whole),
            "alike_kinds": np.array(found.likeness.kinds),
            "mix": found.made_of,
            "mix_names": np.array(SHARED),
            "mix_rounds": np.array(1),
            "offer_names": np.array(found.names),
            "offer_shares": found.shares,
            **(found.population.to_notes() if adapts else {}),
        }
    )
    q = np.take_along_axis(found.posterior, order, axis=1)
    weights = found.made_of[:, 2:] * q
    there = found.centres[order]
    missed = np.take_along_axis(found.centre_error, order, axis=1)
    nobody = (there == np.arange(len(order))[:, None]) | ~np.isfinite(missed)
    peers = np.where(nobody, -1, there)
    weights = np.where(peers >= 0, weights, 0.0)
    missed = np.where(peers >= 0, missed, np.inf)
    losses = np.column_stack([found.fleet_error, missed])
    choice = Choice(
        np.where(weights > 0, peers, -1), weights, 1.0 - weights.sum(axis=1)
    )
    lengths = np.full(peers.shape, np.nan)
    trust = trust.updated(peers, losses, lengths, choice)
    return Round(0, peers, losses, lengths, choice, trust)


def likeliest(posterior: Array, chance: Array) -> IntArray:
    """(n, NAMED) the places of the centres most alike, of equals the likeliest first."""
    alike = np.nan_to_num(chance.round(6), nan=-1.0)
    return np.lexsort((-posterior, -alike), axis=1)[:, : min(NAMED, posterior.shape[1])]
