"""The linear mixed model: common effects, and own ones that are drawn from a normal distribution.

y_i = X_i (m + u_i) + noise,   u_i ~ N(0, Sigma),   noise ~ N(0, s2)
w_i = m + u_i,                 u_i = Sigma X_i' Omega_i^-1 (y_i - X_i m)      (empirical Bayes)

A device that was not there has `m`, and with some rows (`adapt`) the same u_i as others.

`Sigma` and `s2` are where the restricted likelihood (REML) is greatest; `m` is then generalised
least squares. Sigma is that of levels alone ("intercept"), of all coefficients without covariances
("diagonal"), or with them ("full"). All of it follows from each device's X'X, X'y and y'y.

Of classes and counts own effects have one variance, which the likelihood tells
(`persfl.methods.mixed.laplace_effects`). Of models of more than 100 numbers, and of robust losses,
it is the penalized version: left-out rows tell the variance (`persfl.methods.dummies`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import one_of
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.learners.linear import Linear
from persfl.methods.dummies import dummy_fits
from persfl.methods.method_fields import MethodSettings, setting
from persfl.methods.mixed import SMALL
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.laplace_effects import WITH_CHANCES, laplace_fits
from persfl.methods.mixed.population import Population
from persfl.methods.mixed.reml import (
    EFFECTS,
    MixedFit,
    mixed_fit,
    random_columns,
    refuse_one,
    unprofiled,
)
from persfl.methods.protocol import Needs, Task
from persfl.methods.shared_models import own_columns
from persfl.methods.single_fit import at_once
from persfl.training.state import Keep, State
from persfl.types import Array, IntArray

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class MixedSummary:
    """A mixed model as people know it: `print` shows it, `common` and `spread` are tables."""

    common: pd.DataFrame
    """Common effects: effect, standard error, z."""
    spread: pd.DataFrame
    """Standard deviations of own effects and of the noise: variance, its standard error, sd."""
    correlation: pd.DataFrame
    """Of own effects."""
    devices: int
    rows: int
    likelihood: float

    def __str__(self) -> str:
        head = f"{self.devices} devices, {self.rows} rows, REML log likelihood"
        parts = [
            f"{head} {self.likelihood:.2f}",
            "common effects\n" + self.common.round(4).to_string(),
            "own effects and noise\n" + self.spread.round(4).to_string(),
        ]
        if len(self.correlation) > 1:
            text = self.correlation.round(2).to_string()
            parts.append("correlation of own effects\n" + text)
        return "\n\n".join(parts)


def mixed_summary(
    rows: Devices, effects: str = "diagonal", names: Sequence[str] | None = None
) -> MixedSummary:
    """Common effects and variance components of rows with an intercept, with standard errors.

    Those of variances come from the curvature of the restricted likelihood.
    """
    import pandas as pd

    learner = Linear(intercept=True)
    found = mixed_fit(learner, rows, effects)
    if np.isnan(found.covariance).any():
        raise InputError(
            "common effects cannot be told apart: a column is constant, or a sum of others."
        )
    columns = list(names or rows.columns or [f"x{k}" for k in range(rows.features)])
    columns.append("intercept")
    error = np.sqrt(np.diag(found.covariance))
    common = pd.DataFrame(
        {"effect": found.common, "se": error, "z": found.common / error}, index=columns
    )
    random = columns if effects != "intercept" else columns[-1:]
    variance = np.append(np.diag(found.Sigma), found.noise)
    spread = pd.DataFrame(
        {
            "variance": variance,
            "se": _variance_errors(learner, rows, effects, found),
            "sd": np.sqrt(variance),
        },
        index=[*random, "noise"],
    )
    sd = np.sqrt(np.maximum(np.diag(found.Sigma), 1e-300))
    alike = pd.DataFrame(found.Sigma / np.outer(sd, sd), index=random, columns=random)
    return MixedSummary(common, spread, alike, len(rows), len(rows.X), found.likelihood)


def _variance_errors(
    learner: Linear, rows: Devices, effects: str, found: MixedFit
) -> Array:
    """Standard errors of the diagonal of Sigma and of the noise; NaN at the edge, where a variance
    is 0.
    """
    Z = learner.with_intercept(rows.X)
    sums = DeviceSums.of(Z, rows.y, rows.weight, rows.start)
    every = np.arange(Z.shape[1])
    random = every[-1:] if effects == "intercept" else every
    q = len(random)
    at = np.tril_indices(q) if effects == "full" else np.diag_indices(q)
    middle = np.append(found.Sigma[at], found.noise)

    def likelihood(v: Array) -> float:
        Sigma = np.zeros((q, q))
        Sigma[at] = v[:-1]
        Sigma = Sigma + np.tril(Sigma, -1).T
        return unprofiled(sums, random, Sigma, float(v[-1]))

    inside = np.linalg.eigvalsh(found.Sigma).min() > 1e-8 * found.Sigma.max()
    if not inside:
        return np.full(q + 1, np.nan)
    sd = np.sqrt(np.diag(found.Sigma))
    step = 1e-3 * np.append(np.outer(sd, sd)[at], found.noise)
    many = len(middle)
    curve = np.zeros((many, many))
    for i in range(many):
        for j in range(i + 1):
            a = step * (np.arange(many) == i)
            b = step * (np.arange(many) == j)
            four = likelihood(middle + a + b) - likelihood(middle + a - b)
            four += likelihood(middle - a - b) - likelihood(middle - a + b)
            curve[i, j] = curve[j, i] = four / (4.0 * step[i] * step[j])
    error = np.sqrt(np.maximum(np.diag(np.linalg.pinv(-curve)), 0.0))
    diagonal = np.flatnonzero(np.append(at[0] == at[1], True))
    return np.asarray(error[diagonal])


def population_of(found: MixedFit, random: IntArray, *, level: bool) -> Population:
    """What a device that was not there is before it shows a row: the common effects, and how far
    devices are from them.
    """
    size = len(found.common)
    order = np.roll(np.arange(size), 1) if level else np.arange(size)
    Sigma = np.zeros((size, size))
    Sigma[np.ix_(random, random)] = found.Sigma
    return Population(
        names=np.array(["mixed"]),
        shares=np.ones(1),
        centre=found.common[None, order],
        Sigma=Sigma[order[:, None], order][None],
        usual=np.array([1.0 / max(found.noise, np.finfo(float).tiny ** 0.5)]),
        alike=np.array([_SURE]),
        centres=np.zeros((0, size)),
        axes=np.zeros((0, 0)),
    )


_SURE = (
    1e12  # rows' worth of evidence for the noise: it is everybody's, not a newcomer's
)


@dataclass(frozen=True)
class Mixed(MethodSettings):
    """Common effects and own ones, which are shrunk as the fleet's spread says."""

    name: ClassVar[str] = "mixed"
    about: ClassVar[str] = (
        "A linear mixed model: common effects, and own ones as far as rows tell"
    )
    source: ClassVar[str] = "Laird, Ware 1982; Patterson, Thompson 1971 (REML)"

    effects: str = setting(
        "diagonal", "own effects: diagonal, full, or the intercept alone"
    )

    def needs(self) -> Needs:
        return Needs(
            gradients=True,
            leaves="Sums of products of its columns and labels, once (refits where its owner"
            " allows no sums); of classes all of its rows.",
            questions=True,
        )

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        learner = task.learner
        effects = one_of("effects", self.effects, EFFECTS)
        if not isinstance(learner, Linear):
            raise InputError(f"mixed is for linear models. Got {learner!r}.")
        refuse_one(task.n)
        if learner.kind == "squared":
            found = mixed_fit(learner, task.rows, effects)
            random = random_columns(effects, len(found.common), level=learner.intercept)
            notes = population_of(found, random, level=learner.intercept).to_notes()
            return at_once(task, found.models, stage=stage, keep=keep, notes=notes)
        slopes = effects != "intercept"
        own = own_columns(learner, task.rows.features, slopes=slopes)
        small = learner.size(task.rows.features) <= SMALL
        if learner.kind in WITH_CHANCES and small and len(own):
            models = laplace_fits(learner, task.rows, own)
        else:
            models = dummy_fits(learner, task.rows, slopes=slopes, seed=task.seed)
        return at_once(task, models, stage=stage, keep=keep)

    def summary(
        self, rows: Devices, names: Sequence[str] | None = None
    ) -> MixedSummary:
        """Common effects and variance components with standard errors, in the rows' units."""
        return mixed_summary(rows, self.effects, names)
