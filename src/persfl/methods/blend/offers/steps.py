"""Offers for other losses: gradient steps.

Starting points are the device's own level, one model for the other devices (their steps averaged),
and what the likest of them answer: the average over the nearest ("alike"), by the angle between
their gradients and the device's at three models, and from there `Neighbours`. From each, the device
takes steps on its own rows. Classes that it has never seen are a question of their own: they may be
rare here, or have had no chance to be seen yet. So steps are taken in both ways, with unseen
classes pushed down and with unseen classes left out; evidence decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.methods.blend.blend_settings import StepSettings
from persfl.methods.blend.budget import SHORTER, some_of
from persfl.methods.blend.chunks import spans
from persfl.methods.blend.fixed_point import mean_of, settled, usual
from persfl.methods.blend.forms import Form, Numbers
from persfl.methods.blend.moves_alike import likeness_of, likest, seen_classes
from persfl.methods.blend.neighbours import Neighbours
from persfl.methods.blend.offers.linear_family import LinearFamily
from persfl.methods.blend.questions import GradientSteps, OwnRows
from persfl.methods.blend.search import Search, neighbours, unpaid
from persfl.methods.blend.site import Bundle, Group, Starts
from persfl.proposers import GradientStep
from persfl.seeds import stream
from persfl.training import STEP_SIZES
from persfl.types import Array, Data, IntArray

STARTS = ("own", "pooled", "alike", "neighbours")


@dataclass(frozen=True, eq=False)
class StepOffers(LinearFamily):
    """Offers for linear models under other losses."""

    unit = SHORTER
    asks = (GradientSteps,)

    @property
    def _chosen(self) -> StepSettings:
        return self.settings.steps

    def names(self) -> list[str]:
        """What offers are called."""
        return _names(self.linear, self._chosen)

    def start_forms(self) -> Mapping[str, Form]:
        """What `starts` holds."""
        each = Numbers(("copies", "size"))
        return {"pooled": Numbers(("size",)), "alike": each, "neighbours": each}

    def starts(self, bundle: Bundle) -> list[tuple[Starts, Search]]:
        """What offers are made from, asked of the peers."""
        return [self._starts(group) for group in bundle.groups]

    def _starts(self, group: Group) -> tuple[Starts, Search]:
        chosen = self._chosen
        budget = group.budget
        pace = step_for(self.linear, self.features, chosen)
        each = chosen.pool_rounds + 3
        many = budget.fleet(min(group.peers, self.settings.fleet), each)
        who = some_of(group.peers, many, stream(group.seed, "asked"))
        left = budget.left(many, each)
        pooled = np.zeros(self.size)
        alike = np.tile(pooled, (group.targets * group.copies, 1))
        rounds = spent = 0
        if many:
            pooled = self._pooled(group, who)
            near = nearest_by_steps(group, self.linear, who, pooled, pace)
            rounds = min(chosen.near_rounds, int(left) // (2 * near.shape[1]))
            spent = rounds * near.shape[1]
            alike = near_average(
                group, near, pace, chosen.near_steps, rounds, self.size
            )
            sound = np.isfinite(alike).all(axis=1, keepdims=True) & (rounds > 0)
            alike = np.where(sound, alike, pooled)
        peers = (int(left) - spent) // (chosen.rounds + 1)
        peers = min(peers, group.peers // 2 or 1)
        weight = group.own(OwnRows(look=group.look))["weight"]
        rule = Neighbours(peers, group.peers, weight, None)
        fleet = group.fleet(GradientStep(pace, steps=chosen.short), alike)
        found = neighbours(group, fleet, rule, chosen.rounds if peers else 1)
        missing = {"pooled": not many, "alike": not rounds, "neighbours": not peers}
        starts = {"pooled": pooled, "alike": alike, "neighbours": found.models}
        return starts, found._replace(missing=unpaid(missing))

    def _pooled(self, group: Group, who: IntArray) -> Array:
        """One model for these peers, shrunk a little: where their averaged steps no longer move
        it.
        """
        linear = self.linear
        weight = group.weight[who]
        slopes = np.ones(self.size)
        if linear.intercept:
            slopes.reshape(linear.classes, -1)[:, -1] = 0.0
        step = bold_step(linear, self.features)
        shrink = 2.0 * step * self._chosen.shrink / weight.sum()

        def answer(model: Array) -> Array:
            models = np.tile(model, (len(who), 1))
            question = GradientSteps(look=group.look, models=models, step=step, steps=1)
            said = group.ask(question, who)["answers"]
            return np.asarray(mean_of(said, model, weight) - shrink * slopes * model)

        return settled(answer, np.zeros(len(slopes)), self._chosen.pool_rounds)

    def offers(self, own: Devices, starts: Starts) -> dict[str, Array]:
        """(copies, size) per starting point and number of own steps."""
        return _offers(self.linear, own, starts, self._chosen)


def step_for(learner: Linear, features: int, chosen: StepSettings) -> float:
    """Shorter where there are many features, or where the loss is steep."""
    short = chosen.longest * min(1.0, 64.0 / max(features, 1))
    return min(short, bold_step(learner, features))


def bold_step(learner: Linear, features: int) -> float:
    """As long as averaged steps may be: one that is too long is noticed, and shortened (see
    `settled`).
    """
    return STEP_SIZES[learner.kind][0] * min(1.0, 64.0 / max(features, 1))


def _names(learner: Linear, chosen: StepSettings) -> list[str]:
    """What offers are called."""
    found = []
    for name in STARTS:
        for unseen in _ways(learner, name):
            for steps in chosen.own_steps:
                level = name != "own" or learner.intercept
                if steps > 0 or (unseen != "out" and level):
                    found.append(_named(name, unseen, steps))
    return found


def _named(start: str, unseen: str, steps: int) -> str:
    return f"{start}{'-seen' if unseen == 'out' else ''} {steps}"


def _offers(
    learner: Linear, own: Devices, told: Starts, chosen: StepSettings
) -> dict[str, Array]:
    """(copies, size) per starting point and number of own steps."""
    size = learner.size(own.features)
    pace = chosen.slower * step_for(learner, own.features, chosen)
    found: dict[str, Array] = {}
    start = {name: np.broadcast_to(told[name], (len(own), size)) for name in STARTS[1:]}
    start["own"] = level(learner, own, pace, chosen.level_steps)
    for unseen in ("free", "down", "out"):
        which = [name for name in STARTS if unseen in _ways(learner, name)]
        if not which:
            continue
        begin = np.stack([start[name] for name in which])
        for steps, models in tuned(learner, own, begin, pace, unseen, chosen.own_steps):
            for name, each in zip(which, models, strict=True):
                found[_named(name, unseen, steps)] = each
    return {name: found[name] for name in _names(learner, chosen)}


def _ways(learner: Linear, name: str) -> tuple[str, ...]:
    classes = learner.classes > 1 and learner.intercept
    return ("down", "out") if classes and name != "own" else ("free",)


def nearest_by_steps(
    group: Group, learner: Linear, who: IntArray, pooled: Array, pace: float
) -> IntArray:
    """(copies, peers) whose steps point most like one's own: at zero, where one class is
    favoured, and at the pooled model.
    """
    size = len(pooled)
    look = group.look
    favour = np.zeros(size)
    if learner.intercept:
        favour.reshape(learner.classes, -1)[0, -1] = 5.0
    models = np.stack([np.zeros(size), favour, pooled])
    asked = np.repeat(models, len(who), axis=0)
    question = GradientSteps(look=look, models=asked, step=pace, steps=1)
    answers = group.ask(question, np.tile(who, 3))["answers"]
    all_theirs = np.stack(
        [usual(each) for each in (answers - asked).reshape(3, -1, size)]
    )
    own = group.own(OwnRows(look=look, models=models, step=pace, steps=1))["answers"]
    all_mine = own - models[:, None]
    heard = np.isfinite(all_theirs).all(axis=(0, 2))
    likeness = np.where(heard, 0.0, -np.inf) + np.zeros((all_mine.shape[1], 1))
    for k in range(3):
        theirs = all_theirs[k]
        mine = all_mine[k]
        if k == 1 and learner.classes > 1:
            theirs, mine = (
                moves.reshape(len(moves), learner.classes, -1)[:, 0]
                for moves in (theirs, mine)
            )
        if not heard.any():
            break
        centre = theirs[heard].mean(axis=0)
        scale = theirs[heard].std(axis=0) + 1e-6 * pace
        theirs, mine = (
            (np.nan_to_num(moves) - centre) / scale for moves in (theirs, mine)
        )
        likeness += likeness_of(mine, theirs)
    return likest(who, likeness)


def near_average(
    group: Group, near: IntArray, step: float, steps: int, rounds: int, size: int
) -> Array:
    """(copies, size) from zero, round by round the mean of the steps of the nearest."""
    many = near.shape[1]
    models = np.zeros((len(near), size))
    whose = np.repeat(np.arange(len(near)), many)
    for _ in range(rounds):
        question = GradientSteps(
            look=group.look, models=models[whose], step=step, steps=steps
        )
        answers = group.ask(question, near.ravel(), whose)["answers"]
        said = answers.reshape(len(near), many, size)
        # of each copy's nearest: what is usual differs from model to model
        moves = np.stack([usual(each) for each in said - models[:, None]])
        good = np.isfinite(moves).all(axis=2, keepdims=True)
        total = np.where(good, said, 0.0).sum(axis=1) / np.maximum(good.sum(axis=1), 1)
        models = np.where(good.sum(axis=1) > 0, total, models)
    return models


def level(learner: Linear, own: Devices, step: float, steps: int) -> Array:
    """(copies, size) what a device knows without its features: own steps from zero, of the
    intercept alone.
    """
    models = np.zeros((len(own), learner.size(own.features)))
    if not learner.intercept:
        return models
    moves = np.zeros((learner.classes, own.features + 1))
    moves[:, -1] = step
    for lo, hi in spans(learner, own):
        data = own.gather(np.arange(lo, hi))
        for _ in range(steps):
            models[lo:hi] -= moves.ravel() * learner.grad(models[lo:hi], data)
    return models


def tuned(
    learner: Linear,
    own: Devices,
    start: Array,
    step: float,
    unseen: str,
    after: Sequence[int],
) -> Iterator[tuple[int, Array]]:
    """(..., copies, size) models after so many own steps. Weights of classes that the rows do not
    have stay, and these classes are pushed "down" by the others, or left "out" of the
    comparison; "free" steps move everything.
    """
    marks = {steps: np.empty(start.shape) for steps in after}
    for lo, hi in spans(learner, own, wide=math.prod(start.shape[:-2])):
        data = own.gather(np.arange(lo, hi))
        model = np.array(start[..., lo:hi, :])
        done = 0
        seen = None if unseen == "free" else seen_classes(data, learner.classes)
        for steps in after:
            for _ in range(steps - done):
                model = model - step * _own_slope(
                    learner, model, data, seen, unseen == "out"
                )
            marks[steps][..., lo:hi, :], done = model, steps
    yield from marks.items()


def _own_slope(
    learner: Linear, model: Array, data: Data, seen: Array | None, out: bool
) -> Array:
    with np.errstate(all="ignore"):  # what overflows is not chosen
        if seen is None:
            return np.asarray(learner.grad(model, data))
        if out:  # far below the others, a class takes nothing from them
            low = (
                model.reshape(*model.shape[:-1], learner.classes, -1) * seen[..., None]
            )
            low[..., -1] = np.where(seen, low[..., -1], -1e3)
            model = low.reshape(model.shape)
        return np.asarray(
            np.where(
                np.repeat(seen, model.shape[-1] // learner.classes, axis=-1),
                learner.grad(model, data),
                0.0,
            )
        )
