"""Squared loss: refits, each by the closed form of Algorithm 2's question.

Starting points are nothing, one model for the other devices, the mean of the other devices'
coefficients (`Prior`), and what neighbours answer from there (`Neighbours`). From each, the device
refits to its own rows, more or less strongly drawn toward the starting point.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.methods.blend.budget import SHORTER, asked_of
from persfl.methods.blend.chunks import spans
from persfl.methods.blend.few_rows import Thin, thin
from persfl.methods.blend.fixed_point import mean_of, settled
from persfl.methods.blend.neighbours import Neighbours
from persfl.methods.blend.prior import ROUNDS as PRIOR_ROUNDS
from persfl.methods.blend.prior import learned, noise_of
from persfl.methods.blend.ridge_refit import Toward, drawn, moments
from persfl.methods.blend.search import Asked, neighbours, unpaid
from persfl.methods.blend.site import Part, Starts
from persfl.proposers import GradientStep
from persfl.types import Array, Data

PULLS = {
    "own": (10.0, 1.0, 0.1),
    "pooled": (np.inf, 10.0, 1.0, 0.1),
    "mean": (np.inf, 3.0, 1.0, 0.3),
    "neighbours": (np.inf, 3.0, 1.0, 0.3),
}
POOL_ROUNDS, ROUNDS = 10, 4
FREE = 0.01  # how strongly an intercept is drawn, where slopes are drawn with 1
QUESTIONS = 1  # a refit counts as one


def names(learner: Linear) -> list[str]:
    """What offers are called."""
    return [f"{name} {pull:g}" for name, pulls in PULLS.items() for pull in pulls]


def starts(part: Part) -> tuple[dict[str, Array], Asked]:
    """What offers are made from, asked of the peers."""
    size = part.learner.size(part.features)
    who, left = asked_of(part, POOL_ROUNDS / SHORTER + 2 * PRIOR_ROUNDS)
    # not too long in units where features have spread 1
    step = GradientStep(0.5 / (part.features + 1))
    pooled = settled(
        lambda model: mean_of(
            part.answers(step, who, np.tile(model, (len(who), 1))),
            model,
            part.weight[who],
        ),
        np.zeros(size),
        POOL_ROUNDS if len(who) else 0,
    )
    prior = learned(part, pooled, who, rounds=PRIOR_ROUNDS if len(who) else 0)
    noise = np.sqrt(part.own_rough(prior.mean, prior.strength) * prior.noise)
    # the first round asks twice as many
    many = min(int(left) // (ROUNDS + 1), part.peers // 2 or 1)
    rule = Neighbours(many, part.peers, part.own_rows(), noise)
    start = np.tile(prior.mean, (len(noise), 1))
    asked = neighbours(part, Toward(prior.strength), rule, start, ROUNDS if many else 1)
    missing = {"pooled": not len(who), "mean": not len(who), "neighbours": not many}
    told = {
        "pooled": pooled,
        "mean": prior.mean,
        "spread": prior.spread,
        "noise": np.array([prior.noise]),
    }
    return told | {"neighbours": asked.models}, asked._replace(missing=unpaid(missing))


def offers(learner: Linear, own: Devices, told: Starts) -> dict[str, Array]:
    """(copies, size) per starting point and pull; `inf` is the starting point itself."""
    size = learner.size(own.features)
    plain = np.ones(size)
    if learner.intercept:
        plain[-1] = FREE
    nothing, strength = np.zeros(size), told["noise"][0] / told["spread"]
    found = {name: np.empty((len(own), size)) for name in names(learner)}
    few = thin(learner, own.counts, own.features)
    for kind, refits in ((few, _few_refits), (~few, _refits)):
        which = np.flatnonzero(kind)
        for lo, hi in spans(learner, own, which):
            some = which[lo:hi]
            refit, rough = refits(learner, own.gather(some), told["mean"], strength)
            learned_pull = np.sqrt(rough * told["noise"][0])[:, None] / told["spread"]
            near: dict[str, tuple[Array, Array]] = {
                "own": (nothing, plain),
                "pooled": (told["pooled"], plain),
                "mean": (told["mean"], learned_pull),
                "neighbours": (told["neighbours"][some], learned_pull),
            }
            for name, (toward, how) in near.items():
                for pull in PULLS[name]:
                    models = (
                        toward if pull == np.inf else refit(toward, pull * how + 1e-8)
                    )
                    found[f"{name} {pull:g}"][some] = models
    return found


# models by (toward, strength), and the rows' noise
Refits = tuple[Callable[[Array, Array], Array], Array]


def _refits(learner: Linear, data: Data, mean: Array, strength: Array) -> Refits:
    """Of devices with as many rows as coefficients."""
    gram, pulled = moments(learner, data)
    rough = noise_of(learner, data, drawn(gram, pulled, mean, strength), strength)
    return partial(drawn, gram, pulled), rough


def _few_refits(learner: Linear, data: Data, mean: Array, strength: Array) -> Refits:
    """Of devices with fewer."""
    rows = Thin.of(learner, data)

    def refit(toward: Array, pull: Array) -> Array:
        return rows.drawn(rows.inverse(pull), toward, pull)

    return refit, rows.rough(rows.inverse(strength), mean)


def shapes(learner: Linear, features: int, copies: int) -> dict[str, tuple[int, ...]]:
    """What `starts` holds, for whoever gets it from elsewhere."""
    size = learner.size(features)
    return {
        "pooled": (size,),
        "mean": (size,),
        "spread": (size,),
        "noise": (1,),
        "neighbours": (copies, size),
    }
