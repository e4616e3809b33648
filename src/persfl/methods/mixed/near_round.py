"""What rules without rounds of their own leave: one round that says who is near whom, kept as a
stage of a fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from persfl.devices import Devices
from persfl.training.state import Forget, Keep, Pace, Plan, State, resumable
from persfl.trust import Trust
from persfl.types import Array, Choice, IntArray, Models, Round

NAMED = 100  # of the likeliest centres, that are remembered for each device
# what models are made of, as `Fitted.made_of` reads it: own rows, the fleet, neighbours
SHARED = ("shared own", "shared pooled", "shared neighbours")


def one_round_stage(
    devices: Devices,
    plan: Plan,
    rule: Callable[[Trust], tuple[Models, Round]],
    *,
    stage: str,
    keep: Keep | None,
) -> State:
    """As `persfl.training.train`, of a rule that makes its models at once. A stage that was cut
    begins anew and ends the same, since nothing is drawn but by the seed.
    """
    keep = keep or Forget()
    state = resumable(keep.last(stage), devices, plan.learner)
    if state is not None and state.r == 1:
        return state
    n = len(devices)
    pace = Pace(plan.step_size)
    keep.after(stage, plan, State(0, None, Trust(n, devices.start[:0]), pace), None)
    models, round_ = rule(Trust(n, np.arange(n)))
    state = State(1, models, round_.trust, pace, (round_.loss,))
    keep.after(stage, replace(plan, rounds=1), state, round_)
    return state


def level_last(models: Array, level: bool) -> Array:
    """Models (n, d) whose first coefficient is the level, in the order of `Linear`.

    >>> level_last(np.array([[9.0, 1.0, 2.0]]), True).tolist()
    [[1.0, 2.0, 9.0]]
    """
    return np.ascontiguousarray(np.roll(models, -1, axis=1) if level else models)


def likeliest(posterior: Array, chance: Array) -> IntArray:
    """(n, NAMED) the places of the centres most alike, of equals the likeliest first."""
    alike = np.nan_to_num(chance.round(6), nan=-1.0)
    return np.lexsort((-posterior, -alike), axis=1)[:, : min(NAMED, posterior.shape[1])]


def others(there: IntArray) -> IntArray:
    """(n, centres) these devices as peers; -1 where a device would be its own."""
    return np.where(there == np.arange(len(there))[:, None], -1, there)


def near_round(
    trust: Trust,
    peers: IntArray,
    posterior: Array,
    losses: Array,
    *,
    made_of: Array,
    names: Sequence[str],
    shares: Array,
    notes: Mapping[str, Any],
) -> Round:
    """Every device has looked at the models of these peers, and adopted each as far as it is part
    of the device's own model: by its posterior, of what neighbours are of it.
    """
    weights = np.where(peers >= 0, made_of[:, 2:] * posterior, 0.0)
    known = {
        "mix": made_of,
        "mix_names": np.array(SHARED),
        "mix_rounds": np.array(1),
        "offer_names": np.array(names),
        "offer_shares": shares,
    }
    choice = Choice(
        np.where(weights > 0, peers, -1), weights, 1.0 - weights.sum(axis=1)
    )
    lengths = np.full(peers.shape, np.nan)
    trust = trust.noted({**notes, **known}).updated(peers, losses, lengths, choice)
    return Round(0, peers, losses, lengths, choice, trust)
