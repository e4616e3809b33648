"""Squared loss: refits, each by the closed form of Algorithm 2's question.

Starting points are nothing, one model for the other devices, the mean of the other devices'
coefficients (`Prior`), and what neighbours answer from there (`Neighbours`). From each, the device
refits to its own rows, more or less strongly drawn toward the starting point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.methods.blend.blend_settings import RidgeSettings
from persfl.methods.blend.budget import SHORTER, some_of
from persfl.methods.blend.chunks import spans
from persfl.methods.blend.few_rows import Thin, thin
from persfl.methods.blend.fixed_point import mean_of, settled
from persfl.methods.blend.forms import Form, Numbers
from persfl.methods.blend.neighbours import Neighbours
from persfl.methods.blend.offers.linear_family import LinearFamily
from persfl.methods.blend.prior import learned
from persfl.methods.blend.questions import GradientSteps, Noise, OwnRows, Pull
from persfl.methods.blend.ridge_refit import Toward, drawn, moments, noise_of
from persfl.methods.blend.search import Search, neighbours, unpaid
from persfl.methods.blend.site import Bundle, Group, Starts
from persfl.seeds import stream
from persfl.types import Array, Data


@dataclass(frozen=True, eq=False)
class Ridge(LinearFamily):
    """Offers for linear models under squared loss."""

    unit = 1
    asks = (GradientSteps, Pull, Noise)

    @property
    def _chosen(self) -> RidgeSettings:
        return self.settings.ridge

    def names(self) -> list[str]:
        """What offers are called."""
        return _names(self._chosen)

    def start_forms(self) -> Mapping[str, Form]:
        """What `starts` holds."""
        return {
            "pooled": Numbers(("size",)),
            "mean": Numbers(("size",)),
            "spread": Numbers(("size",), above=0.0),
            "noise": Numbers((1,), above=0.0),
            "neighbours": Numbers(("copies", "size")),
        }

    def starts(self, bundle: Bundle) -> list[tuple[Starts, Search]]:
        """What offers are made from, asked of the peers."""
        return [self._starts(group) for group in bundle.groups]

    def _starts(self, group: Group) -> tuple[Starts, Search]:
        chosen = self._chosen
        budget = group.budget
        look = group.look
        each = chosen.pool_rounds / SHORTER + 2 * chosen.prior_rounds
        many = budget.fleet(min(group.peers, self.settings.fleet), each)
        who = some_of(group.peers, many, stream(group.seed, "asked"))
        # not too long in units where features have spread 1
        step = 0.5 / (self.features + 1)

        def answer(model: Array) -> Array:
            asked = np.tile(model, (many, 1))
            question = GradientSteps(look=look, models=asked, step=step, steps=1)
            said = group.ask(question, who)["answers"]
            return mean_of(said, model, group.weight[who])

        pooled = settled(answer, np.zeros(self.size), chosen.pool_rounds if many else 0)
        prior = learned(group, pooled, who, rounds=chosen.prior_rounds if many else 0)
        own = group.own(OwnRows(look=look, mean=prior.mean, strength=prior.strength))
        noise = np.sqrt(own["noise"] * prior.noise)
        # the first round asks twice as many
        left = int(budget.left(many, each)) // (chosen.rounds + 1)
        peers = min(left, group.peers // 2 or 1)
        rule = Neighbours(peers, group.peers, own["weight"], noise)
        start = np.tile(prior.mean, (len(noise), 1))
        fleet = group.fleet(Toward(prior.strength), start)
        found = neighbours(group, fleet, rule, chosen.rounds if peers else 1)
        missing = {"pooled": not many, "mean": not many, "neighbours": not peers}
        told = {
            "pooled": pooled,
            "mean": prior.mean,
            "spread": prior.spread,
            "noise": np.array([prior.noise]),
            "neighbours": found.models,
        }
        return told, found._replace(missing=unpaid(missing))

    def offers(self, own: Devices, starts: Starts) -> dict[str, Array]:
        """(copies, size) per starting point and pull."""
        return _offers(self.linear, own, starts, self._chosen)


def _names(chosen: RidgeSettings) -> list[str]:
    """What offers are called."""
    return [
        f"{name} {pull:g}" for name, pulls in chosen.pulls.items() for pull in pulls
    ]


def _offers(
    learner: Linear, own: Devices, told: Starts, chosen: RidgeSettings
) -> dict[str, Array]:
    """(copies, size) per starting point and pull; `inf` is the starting point itself."""
    size = learner.size(own.features)
    plain = np.ones(size)
    if learner.intercept:
        plain[-1] = chosen.free
    nothing = np.zeros(size)
    strength = told["noise"][0] / told["spread"]
    found = {name: np.empty((len(own), size)) for name in _names(chosen)}
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
                for pull in chosen.pulls[name]:
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
