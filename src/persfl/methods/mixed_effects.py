"""The linear mixed model: common effects, and own ones that are drawn from a normal distribution.

y_i = X_i (m + u_i) + noise,   u_i ~ N(0, Sigma),   noise ~ N(0, s2)
w_i = m + u_i,                 u_i = Sigma X_i' Omega_i^-1 (y_i - X_i m)      (empirical Bayes)

`Sigma` and `s2` are where the restricted likelihood (REML) is greatest; `m` is then generalised
least squares. Sigma is that of levels alone ("intercept"), of all coefficients without covariances
("diagonal"), or with them ("full"). All of it follows from each device's X'X, X'y and y'y.

Of other losses (classes, counts) it is the penalized version: common effects, and own ones of one
variance, which left-out rows tell (`persfl.methods.dummies`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from scipy.optimize import minimize

from persfl.checks import one_of
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.learners.linear import Linear
from persfl.methods.dummies import dummy_fits
from persfl.methods.method_fields import MethodSettings, setting
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.protocol import Needs, Task
from persfl.methods.single_fit import at_once
from persfl.training.state import Keep, State
from persfl.types import Array, IntArray

if TYPE_CHECKING:
    import pandas as pd

EFFECTS = ("diagonal", "full", "intercept")
HAIR = 1e-10  # of the labels' mean square: noise is never less


class MixedFit(NamedTuple):
    """Models (devices, size), common effects and their covariance, Sigma of the random columns,
    the noise's variance, and the restricted log likelihood.
    """

    models: Array
    common: Array
    covariance: Array
    Sigma: Array
    noise: float
    likelihood: float


@dataclass(frozen=True, eq=False)
class RestrictedLikelihood:
    """REML from sums, as a function of Sigma over the noise: D = L L'."""

    sums: DeviceSums
    random: IntArray
    full: bool

    def factor(self, told: Array) -> Array:
        """L of parameters: its diagonal, or its lower triangle."""
        q = len(self.random)
        L = np.zeros((q, q))
        L[np.tril_indices(q) if self.full else np.diag_indices(q)] = told
        return L

    def solved(self, L: Array) -> _Solved:
        """Common effects, noise and likelihood for this L."""
        sums = self.sums
        F = self.random
        inner = np.eye(len(F)) + L.T @ sums.square[:, F[:, None], F] @ L
        V = L @ np.linalg.solve(inner, np.broadcast_to(L.T, (len(inner), *L.T.shape)))
        side = sums.square[:, :, F] @ V
        H = sums.square - side @ sums.square[:, F, :]
        h = sums.product - np.einsum("nij,nj->ni", side, sums.product[:, F])
        left = sums.label - np.einsum(
            "ni,nij,nj->n", sums.product[:, F], V, sums.product[:, F]
        )
        size, turn = np.linalg.eigh(H.sum(axis=0))
        told = size > 1e-11 * max(size.max(), 1e-300)
        C = (turn[:, told] / size[told]) @ turn[:, told].T
        common = C @ h.sum(axis=0)
        free = max(float(sums.weight.sum()) - int(told.sum()), 1.0)
        least = HAIR * float(sums.label.sum()) / max(float(sums.weight.sum()), 1.0)
        noise = max((left.sum() - common @ h.sum(axis=0)) / free, least, 1e-300)
        twice = np.linalg.slogdet(inner)[1].sum() + np.log(size[told]).sum()
        twice += free * (np.log(2.0 * np.pi * noise) + 1.0)
        return _Solved(common, C, noise, float(-0.5 * twice), H, h, bool(told.all()))

    def minus(self, told: Array) -> tuple[float, Array]:
        """Minus the log likelihood and its slope."""
        L = self.factor(told)
        now = self.solved(L)
        F = self.random
        HF = now.H[:, F, :]
        R = now.H[:, F[:, None], F].sum(axis=0)
        R = R - np.einsum("nik,kl,njl->ij", HF, now.C, HF, optimize=True)
        e = (now.h - now.H @ now.common)[:, F]
        slope = (R - e.T @ e / now.noise) @ L
        q = len(F)
        at = np.tril_indices(q) if self.full else np.diag_indices(q)
        return -now.likelihood, slope[at]


class _Solved(NamedTuple):
    common: Array
    C: Array
    noise: float
    likelihood: float
    H: Array
    h: Array
    told: bool


def mixed_fit(learner: Linear, rows: Devices, effects: str = "diagonal") -> MixedFit:
    """The mixed model of squared loss.

    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(
    ...     n=40, clusters=1, rows=10, features=2, deviation=0.5, noise=0.1, seed=0
    ... )
    >>> found = mixed_fit(Linear(), rows)
    >>> np.sqrt(np.diag(found.Sigma)).round(1).tolist(), round(float(found.noise), 2)
    ([0.6, 0.6], 0.01)
    """
    one_of("effects", effects, EFFECTS)
    if len(rows) < 2:
        raise InputError(
            "a mixed model needs at least 2 devices, to see how they differ."
        )
    Z = learner.with_intercept(rows.X)
    # columns of equal size: the search for variances is as easy in any units
    size = np.sqrt((Z**2).mean(axis=0))
    size = np.where(size > 0, size, 1.0)
    sums = DeviceSums.of(Z / size, rows.y, rows.weight, rows.start)
    random = np.arange(Z.shape[1])
    if effects == "intercept":
        random = random[rows.features :]  # none where there is no intercept
    reml = RestrictedLikelihood(sums, random, effects == "full")
    L = np.zeros((len(random), len(random)))
    if len(random):
        L = reml.factor(_likeliest(reml))
    now = reml.solved(L)
    e = (now.h - now.H @ now.common)[:, random]
    models = np.repeat(now.common[None], len(rows), axis=0)
    models[:, random] += e @ (L @ L.T)
    Sigma = now.noise * (L @ L.T) / np.outer(size[random], size[random])
    covariance = now.noise * now.C / np.outer(size, size)
    if not now.told:
        covariance = np.full_like(covariance, np.nan)
    # the likelihood is of the residuals: in other units of columns it is another
    likely = now.likelihood - float(np.log(size).sum())
    return MixedFit(
        models / size, now.common / size, covariance, Sigma, now.noise, likely
    )


def _likeliest(reml: RestrictedLikelihood) -> Array:
    """From own effects without covariances to the greatest likelihood."""
    q = len(reml.random)
    alone = RestrictedLikelihood(reml.sums, reml.random, full=False)
    close = {"maxiter": 500, "ftol": 1e-14, "gtol": 1e-8}
    how = {"jac": True, "method": "L-BFGS-B", "options": close}
    found = minimize(alone.minus, np.full(q, 0.5), **how).x
    if not reml.full:
        return np.asarray(found)
    start = np.zeros((q, q))
    np.fill_diagonal(start, np.maximum(np.abs(found), 1e-3))
    return np.asarray(minimize(reml.minus, start[np.tril_indices(q)], **how).x)


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


def unprofiled(sums: DeviceSums, random: IntArray, Sigma: Array, noise: float) -> float:
    """The restricted log likelihood of this Sigma and this noise."""
    size, turn = np.linalg.eigh(Sigma / noise)
    if size.min() < 0:
        return -np.inf
    L = turn * np.sqrt(size)
    now = RestrictedLikelihood(sums, random, full=True).solved(L)
    p = len(now.common)
    free = float(sums.weight.sum()) - p
    # the profiled one has the best noise in its place
    worse = np.log(noise / now.noise) + now.noise / noise - 1.0
    return float(now.likelihood - 0.5 * free * worse)


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
            leaves="Sums of products of its columns and labels, once; of classes all of its rows.",
            not_federated="No question of a federation asks for these sums alone.",
        )

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        learner = task.learner
        effects = one_of("effects", self.effects, EFFECTS)
        if not isinstance(learner, Linear):
            raise InputError(f"mixed is for linear models. Got {learner!r}.")
        if task.n < 2:
            raise InputError(
                "a mixed model needs at least 2 devices, to see how they differ. Got 1."
            )
        if learner.kind == "squared":
            models = mixed_fit(learner, task.rows, effects).models
        else:
            own = effects != "intercept"
            models = dummy_fits(learner, task.rows, slopes=own, seed=task.seed)
        return at_once(task, models, stage=stage, keep=keep)

    def summary(
        self, rows: Devices, names: Sequence[str] | None = None
    ) -> MixedSummary:
        """Common effects and variance components with standard errors, in the rows' units."""
        return mixed_summary(rows, self.effects, names)
