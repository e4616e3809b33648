"""Trials: losses of the personalized models and of their rivals on rows that none of them saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from persfl.evaluation.rivals import Models, own_fits, pooled_fit, tuned_fits
from persfl.evaluation.shared_moments import shared_moments
from persfl.evaluation.verdicts import Worth
from persfl.learners.responses import respond, respond_each
from persfl.traits import traits_of
from persfl.types import Array, IntArray, Learner
from persfl.units import Units

if TYPE_CHECKING:
    from persfl.devices import Devices
    from persfl.proposers.gradient import GradientStep


class Trial(NamedTuple):
    """One trial's losses on the rows it kept back: (rows,) per arm, mistakes too where there
    are classes.
    """

    held: Devices
    losses: dict[str, Array]
    mistakes: dict[str, Array]
    moments: IntArray | None = None
    """(rows,) what rows share with those of other devices, where they were held back by it."""


def run_trial(
    train: Devices,
    test: Devices,
    *,
    learner: Learner,
    units: Units,
    models: Models,
    classes: int = 0,
    public: Array | None = None,
    steps: GradientStep | None = None,
    seed: int = 0,
    more: Mapping[str, Models] | None = None,
) -> Trial:
    """Losses on `test` of personalized `models` (fitted on `train` in `units`) and of the rivals,
    fitted here on the same rows.

    `public` are the points, in `units`, that carry a pooled model to a device's own refit (learners
    without gradients). `more` are further rivals: a name and a model per device.
    """
    inside = units.inside(train)
    # classes have no units, and counts none but their own
    numbers = not classes and traits_of(learner).task != "counts"
    centred = Units.of(train, "centred", labels=numbers)
    pooled = pooled_fit(learner, inside, seed)
    own = own_fits(learner, inside, seed)
    one = pooled_fit(learner, centred.inside(train), seed)
    tuned = tuned_fits(learner, inside, pooled, public, steps, seed)
    X, Z = (each.features(test.X, test.owner) for each in (units, centred))

    def respond_by(each: Models) -> Array:
        return respond_each(learner, each, X, test.owner, classes)

    responses = {
        "own": respond_by(own),
        "pooled": respond(learner, pooled, X, classes),
        "centred": respond(learner, one, Z, classes),
        "tuned": respond_by(tuned),
        "personal": respond_by(models),
    }
    responses |= {name: respond_by(theirs) for name, theirs in (more or {}).items()}
    if classes:
        often = np.bincount(train.y.astype(np.int64), train.weight, classes)
        always = np.tile(often / often.sum(), (len(test.y), 1))
        return _of_chances(test, {"base": always} | responses, classes)
    losses = {"base": (np.average(train.y, weights=train.weight) - test.y) ** 2}
    for arm, response in responses.items():
        scale = centred if arm == "centred" else units
        losses[arm] = (scale.outside(response, test.owner) - test.y) ** 2
    return Trial(test, losses, {})


def _of_chances(test: Devices, chances: Mapping[str, Array], classes: int) -> Trial:
    """Brier scores and mistakes."""
    code = test.y.astype(np.int64)
    true = code[:, None] == np.arange(classes)
    losses = dict[str, Array]()
    mistakes = dict[str, Array]()
    for arm, chance in chances.items():
        losses[arm] = ((chance - true) ** 2).sum(axis=1)
        mistakes[arm] = (chance.argmax(axis=1) != code) + 0.0
    return Trial(test, losses, mistakes)


def worth_of_trials(
    trials: Sequence[Trial], classes: int, *, ahead: bool = False
) -> Worth:
    """The trials together: every row that was kept back once counts once. `ahead` says that they
    stand for rows to come.
    """
    held = [trial.held for trial in trials]
    n = len(held[0])
    owner = np.concatenate([part.owner for part in held])
    weight = np.concatenate([part.weight for part in held])
    y = np.concatenate([part.y for part in held])

    def sums(values: Array) -> Array:
        return np.bincount(owner, weights=values, minlength=n).astype(np.float64)

    with np.errstate(invalid="ignore", divide="ignore"):
        total = sums(weight)
        # how many equal rows carry as much evidence as these weighted ones
        evidence = total**2 / sums(weight**2)
        found: dict[str, object] = {
            "device": list(held[0].ids),
            "held": np.bincount(owner, minlength=n),
            "evidence": np.nan_to_num(evidence),
        }
        losses = _joined([trial.losses for trial in trials])
        mistakes = _joined([trial.mistakes for trial in trials])
        for arm in losses:
            found[f"error_{arm}"] = sums(losses[arm] * weight) / total
            if classes:
                found[f"mistakes_{arm}"] = sums(mistakes[arm] * weight) / total
        # how much a device's paired differences vary around their mean
        difference = losses["own"] - losses["personal"]
        mean = np.nan_to_num(sums(difference * weight) / total)
        away = (difference - mean[owner]) ** 2
        variance = sums(away * weight) / total
    freedom = np.maximum(evidence - 1, 1e-9)
    found["spread"] = np.sqrt(variance * evidence / freedom)
    scale = 1.0 if classes else _scale(y, weight)
    moments = [trial.moments for trial in trials if trial.moments is not None]
    shared = None
    if moments:
        moment = np.concatenate(moments)
        shared = shared_moments(moment, owner, weight, losses, ahead=ahead)
    return Worth(pd.DataFrame(found), scale, classes, shared)


def own_trial(
    train: Devices,
    test: Devices,
    learner: Learner,
    units: Units,
    classes: int,
    seed: int,
) -> Trial:
    """As `run_trial`, of models from own rows alone."""
    own = own_fits(learner, units.inside(train), seed)
    X = units.features(test.X, test.owner)
    said = respond_each(learner, own, X, test.owner, classes)
    if classes:
        return _of_chances(test, {"own": said}, classes)
    return Trial(test, {"own": (units.outside(said, test.owner) - test.y) ** 2}, {})


class Smaller(NamedTuple):
    """A trial, one like it that kept back fewer rows, and which of the first one's rows those are;
    the arms of one of them may be fewer.
    """

    trial: Trial
    smaller: Trial
    also: NDArray[np.bool_]


def with_falls(
    worth: Worth, whole: Devices, held: IntArray, pairs: Sequence[Smaller]
) -> Worth:
    """With what every error is expected to fall by once models learn from the `whole` fleet's rows,
    and not from all but the `held` (devices,) ones.

    Both trials of a pair judge by the rows that both kept back. An error falls about as one over
    the number of rows that are learned from; so what it falls by from one trial to the other tells
    the rest.
    """
    n = len(whole)
    sums: dict[str, Array] = {}
    totals: dict[str, Array] = {}
    there = _one_over(whole.counts - held) - 1.0 / whole.counts
    for trial, smaller, also in pairs:
        owner = smaller.held.owner
        weight = smaller.held.weight
        less = smaller.held.counts
        more = trial.held.counts
        here = _one_over(whole.counts - more) - _one_over(whole.counts - less)
        usable = (less > 0) & (less < more)
        factor = np.divide(there, here, out=np.zeros(n), where=usable)
        total = np.bincount(owner, weights=weight, minlength=n) * usable
        for arm in trial.losses.keys() & smaller.losses.keys():
            fell = (trial.losses[arm][also] - smaller.losses[arm]) * weight
            mine = np.bincount(owner, weights=fell, minlength=n) * factor
            sums[arm] = np.asarray(sums.get(arm, np.zeros(n)) + mine)
            totals[arm] = np.asarray(totals.get(arm, np.zeros(n)) + total)
    found = {
        f"fall_{arm}": np.divide(
            sums[arm], totals[arm], out=np.full(n, np.nan), where=totals[arm] > 0
        )
        for arm in worth.arms
        if arm in sums
    }
    return replace(worth, table=worth.table.assign(**found))


def _one_over(rows: IntArray) -> Array:
    return np.asarray(1.0 / np.maximum(rows, 1))


def _joined(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Rows of all trials behind each other, per arm."""
    return {arm: np.concatenate([part[arm] for part in parts]) for arm in parts[0]}


def _scale(y: Array, weight: Array) -> float:
    """The labels' variance; 1 where they are all the same."""
    level = float(np.average(y, weights=weight))
    variance = float(np.average((y - level) ** 2, weights=weight))
    return variance if variance > 0 else 1.0
