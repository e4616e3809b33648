"""Trials: losses of the personalized models and of their rivals on rows that none of them saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from persfl.devices import Devices
from persfl.evaluation.rivals import own_fits, pooled_fit, tuned_fits
from persfl.evaluation.verdicts import Worth
from persfl.learners.responses import respond, respond_each
from persfl.proposers import GradientStep
from persfl.types import Array, Learner
from persfl.units import Units


class Trial(NamedTuple):
    """One trial's losses on the rows it kept back: (rows,) per arm, mistakes too where there
    are classes.
    """

    held: Devices
    losses: dict[str, Array]
    mistakes: dict[str, Array]


def run_trial(
    train: Devices,
    test: Devices,
    *,
    learner: Learner,
    units: Units,
    models: Any,
    classes: int = 0,
    public: Array | None = None,
    steps: GradientStep | None = None,
    seed: int = 0,
    more: Mapping[str, Any] | None = None,
) -> Trial:
    """Losses on `test` of personalized `models` (fitted on `train` in `units`) and of the rivals,
    fitted here on the same rows.

    `public` are the points, in `units`, that carry a pooled model to a device's own refit (learners
    without gradients). `more` are further rivals: a name and a model per device.
    """
    owner = test.owner
    inside = units.inside(train)
    centred = Units.of(train, "centred", labels=not classes)
    pooled = pooled_fit(learner, inside, seed)
    X, Z = units.features(test.X, owner), centred.features(test.X, owner)
    arms = {
        "own": respond_each(
            learner, own_fits(learner, inside, seed), X, owner, classes
        ),
        "pooled": respond(learner, pooled, X, classes),
        "centred": respond(
            learner, pooled_fit(learner, centred.inside(train), seed), Z, classes
        ),
        "tuned": respond_each(
            learner,
            tuned_fits(learner, inside, pooled, public, steps, seed),
            X,
            owner,
            classes,
        ),
        "personal": respond_each(learner, models, X, owner, classes),
    }
    arms |= {
        name: respond_each(learner, theirs, X, owner, classes)
        for name, theirs in (more or {}).items()
    }
    if classes:
        code = test.y.astype(np.int64)
        true = code[:, None] == np.arange(classes)
        losses = {
            arm: ((response - true) ** 2).sum(axis=1) for arm, response in arms.items()
        }
        return Trial(
            test,
            losses,
            {
                arm: (response.argmax(axis=1) != code) + 0.0
                for arm, response in arms.items()
            },
        )
    losses = {}
    for arm, response in arms.items():
        losses[arm] = (
            (centred if arm == "centred" else units).outside(response, owner) - test.y
        ) ** 2
    return Trial(test, losses, {})


def worth_of_trials(trials: Sequence[Trial], classes: int) -> Worth:
    """The trials together: every row that was kept back once counts once."""
    held = [trial.held for trial in trials]
    owner = np.concatenate([part.owner for part in held])
    weight, y = (
        np.concatenate([part.weight for part in held]),
        np.concatenate([part.y for part in held]),
    )
    n = len(held[0])

    def means(values: Any) -> Array:
        with np.errstate(invalid="ignore", divide="ignore"):
            sums = np.bincount(owner, weights=values * weight, minlength=n)
            return np.asarray(sums / np.bincount(owner, weights=weight, minlength=n))

    count = np.bincount(owner, minlength=n)
    # how many equal rows carry as much evidence as these weighted ones
    with np.errstate(invalid="ignore", divide="ignore"):
        evidence = np.bincount(owner, weights=weight, minlength=n) ** 2 / np.bincount(
            owner, weights=weight**2, minlength=n
        )
    found: dict[str, Any] = {
        "device": list(held[0].ids),
        "held": count,
        "evidence": np.nan_to_num(evidence),
    }
    losses = {
        arm: np.concatenate([trial.losses[arm] for trial in trials])
        for arm in trials[0].losses
    }
    for arm in losses:
        found[f"error_{arm}"] = means(losses[arm])
        if classes:
            found[f"mistakes_{arm}"] = means(
                np.concatenate([trial.mistakes[arm] for trial in trials])
            )
    difference = losses["own"] - losses["personal"]
    away = difference - np.nan_to_num(means(difference))[owner]
    found["spread"] = np.sqrt(
        means(away**2) * evidence / np.maximum(evidence - 1, 1e-9)
    )
    level = float(np.average(y, weights=weight))
    variance = (
        float(np.average((y - level) ** 2, weights=weight)) if not classes else 1.0
    )
    return Worth(pd.DataFrame(found), variance if variance > 0 else 1.0, classes)
