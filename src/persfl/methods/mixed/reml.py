"""Restricted maximum likelihood of a mixed model, from each device's sums.

y_i = Z_i (m + u_i) + noise,   u_i ~ N(0, Sigma) in the random columns,   noise ~ N(0, s2)

Profiled over m and s2 it is a function of Sigma / s2 = L L' alone; its slope is in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from scipy.optimize import minimize

from persfl.checks import one_of
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.learners.linear import Linear
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.types import Array, IntArray

HAIR = 1e-10  # of the labels' mean square: noise is never less
NEARBY = 1e-4  # how far aside, of a parameter, slopes are looked at
NEWTON = 4  # steps at most
EFFECTS = ("diagonal", "full", "intercept")


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


class EffectSums(NamedTuple):
    """Of every device, in units of the noise, with Omega = 1 + Z D Z': Z' Omega^-1 Z,
    Z' Omega^-1 y, y' Omega^-1 y and log det Omega.
    """

    H: Array
    h: Array
    left: Array
    within: Array


class EffectRows(Protocol):
    """Rows of devices, behind their sums or behind somebody who can be asked."""

    @property
    def weight(self) -> float:
        """How many there are."""

    def evidence(self, L: Array, random: IntArray) -> EffectSums:
        """What they say under D = L L' of the random columns."""


@dataclass(frozen=True, eq=False)
class SummedRows:
    """Rows whose sums are known."""

    sums: DeviceSums

    @property
    def weight(self) -> float:
        return float(self.sums.weight.sum())

    def evidence(self, L: Array, random: IntArray) -> EffectSums:
        sums = self.sums
        F = random
        inner = np.eye(len(F)) + L.T @ sums.square[:, F[:, None], F] @ L
        back = np.broadcast_to(L.T, (len(inner), *L.T.shape))
        V = L @ np.linalg.solve(inner, back)
        side = sums.square[:, :, F] @ V
        H = sums.square - side @ sums.square[:, F, :]
        own = sums.product[:, F]
        h = sums.product - np.einsum("nij,nj->ni", side, own)
        left = sums.label - np.einsum("ni,nij,nj->n", own, V, own)
        return EffectSums(H, h, left, np.linalg.slogdet(inner)[1])


@dataclass(frozen=True, eq=False)
class RestrictedLikelihood:
    """REML as a function of Sigma over the noise: D = L L'; `label` is the sum of the labels'
    squares.
    """

    rows: EffectRows
    random: IntArray
    full: bool
    label: float

    def factor(self, told: Array) -> Array:
        """L of parameters: its diagonal, or its lower triangle."""
        q = len(self.random)
        L = np.zeros((q, q))
        L[np.tril_indices(q) if self.full else np.diag_indices(q)] = told
        return L

    def solved(self, L: Array) -> _Solved:
        """Common effects, noise and likelihood for this L."""
        H, h, left, within = self.rows.evidence(L, self.random)
        size, turn = np.linalg.eigh(H.sum(axis=0))
        told = size > 1e-11 * max(size.max(), 1e-300)
        axes = turn[:, told]
        C = (axes / size[told]) @ axes.T
        pull = h.sum(axis=0)
        common = C @ pull
        rows = self.rows.weight
        free = max(rows - int(told.sum()), 1.0)
        least = HAIR * self.label / max(rows, 1.0)
        noise = max((left.sum() - common @ pull) / free, least, 1e-300)
        twice = within.sum() + np.log(size[told]).sum()
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


def fit_of_sums(sums: DeviceSums, random: IntArray, *, full: bool) -> MixedFit:
    """The mixed model of these sums, in which the `random` columns differ between devices.

    >>> rng = np.random.default_rng(0)
    >>> Z = np.ones((400, 1))
    >>> own = np.repeat(rng.normal(size=40), 10)
    >>> y = 3.0 + own + 0.1 * rng.normal(size=400)
    >>> sums = DeviceSums.of(Z, y, np.ones(400), np.arange(0, 401, 10))
    >>> found = fit_of_sums(sums, np.array([0]), full=False)
    >>> (
    ...     round(float(found.noise), 2),
    ...     bool(abs(found.models[:, 0] - own[::10] - 3).max() < 0.1),
    ... )
    (0.01, True)
    """
    # columns of equal size: the search for variances is as easy in any units
    weight = max(float(sums.weight.sum()), 1e-300)
    size = np.sqrt(np.einsum("nii->i", sums.square) / weight)
    size = np.where(size > 0, size, 1.0)
    rows = SummedRows(sums.turned(np.diag(1.0 / size)))
    reml = RestrictedLikelihood(rows, random, full, float(sums.label.sum()))
    return likeliest_fit(reml, size)


def likeliest_fit(reml: RestrictedLikelihood, size: Array) -> MixedFit:
    """Where the likelihood is greatest, as models of columns that are so many times as large."""
    random = reml.random
    L = np.zeros((len(random), len(random)))
    if len(random):
        L = reml.factor(_settled(reml, _likeliest(reml)))
    now = reml.solved(L)
    e = (now.h - now.H @ now.common)[:, random]
    models = np.repeat(now.common[None], len(now.h), axis=0)
    spread = L @ L.T
    models[:, random] += e @ spread
    Sigma = now.noise * spread / np.outer(size[random], size[random])
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
    alone = replace(reml, full=False)
    close = {"maxiter": 500, "ftol": 1e-14, "gtol": 1e-8}
    how = {"jac": True, "method": "L-BFGS-B", "options": close}
    found = minimize(alone.minus, np.full(q, 0.5), **how).x
    if not reml.full:
        return np.asarray(found)
    start = np.zeros((q, q))
    np.fill_diagonal(start, np.maximum(np.abs(found), 1e-3))
    lower = start[np.tril_indices(q)]
    return np.asarray(minimize(reml.minus, lower, **how).x)


def _settled(reml: RestrictedLikelihood, told: Array) -> Array:
    """Newton's steps from where a search has stopped, as long as the slope gets less: a search
    stops where the likelihood hardly grows, some millionths beside its top, and where that is hangs
    on rounding. The curvature is that of the first place, by differences of slopes.
    """
    slope = reml.minus(told)[1]
    aside = NEARBY * (np.abs(told) + NEARBY)
    curved = np.stack(
        [(reml.minus(told + step)[1] - slope) / step.sum() for step in np.diag(aside)]
    )
    curved = (curved + curved.T) / 2
    if not np.isfinite(curved).all() or np.linalg.eigvalsh(curved)[0] <= 0:
        return told
    for _ in range(NEWTON):
        new = told - np.linalg.solve(curved, slope)
        less = reml.minus(new)[1]
        if not np.linalg.norm(less) < np.linalg.norm(slope):
            break
        told, slope = new, less
    return told


def unprofiled(sums: DeviceSums, random: IntArray, Sigma: Array, noise: float) -> float:
    """The restricted log likelihood of this Sigma and this noise."""
    size, turn = np.linalg.eigh(Sigma / noise)
    if size.min() < 0:
        return -np.inf
    L = turn * np.sqrt(size)
    rows = SummedRows(sums)
    label = float(sums.label.sum())
    now = RestrictedLikelihood(rows, random, full=True, label=label).solved(L)
    p = len(now.common)
    free = rows.weight - p
    # the profiled one has the best noise in its place
    worse = np.log(noise / now.noise) + now.noise / noise - 1.0
    return float(now.likelihood - 0.5 * free * worse)


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
    refuse_one(len(rows))
    Z = learner.with_intercept(rows.X)
    sums = DeviceSums.of(Z, rows.y, rows.weight, rows.start)
    random = random_columns(effects, Z.shape[1], level=learner.intercept)
    return fit_of_sums(sums, random, full=effects == "full")


def refuse_one(n: int) -> None:
    """Stop where one device is all there is."""
    if n < 2:
        raise InputError(
            "a mixed model needs at least 2 devices, to see how they differ. Got 1."
        )


def random_columns(effects: str, width: int, *, level: bool) -> IntArray:
    """Which columns differ between devices; the level is the last, where there is one."""
    every = np.arange(width)
    return every[width - level :] if effects == "intercept" else every
