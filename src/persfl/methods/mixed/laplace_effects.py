"""Mixed models of classes and counts: common effects, and own ones of one variance, which the
likelihood tells.

    w_i = b + d_i,   d_i ~ N(0, tau) in the own columns,   labels by w_i'x (logit, log)

For a tau the b and d_i are where  sum of losses + sum |d_i|^2 / (2 tau)  is least. Integrated over
d_i, to the second order about them (Laplace; Breslow and Clayton 1993), twice minus the log
likelihood is

    2 (sum of losses) + sum |d_i|^2 / tau + sum log det(1 + tau H_i)

with H_i the curvature of device i's losses in its own columns. tau is where that is least. Common
slopes have a prior that says no more than that columns do not decide alone: N(0, 2.5) for a column
of spread 1 (Gelman et al. 2008), so that classes which some column separates have a finite slope.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.learners.losses import sigmoid, softmax
from persfl.methods.dummies import Parts, own_parts_of
from persfl.types import Array, IntArray

WITH_CHANCES = ("logistic", "multinomial", "poisson")
SPREAD = 2.5  # of a common slope, for a column of spread 1
LEAST, MOST = 1e-4, 1e2  # of tau
CLOSE = 0.05  # of its logarithm
LOOKS = 16  # at the likelihood, at most


def laplace_fits(learner: Linear, rows: Devices, own: IntArray) -> Array:
    """(devices, size) common effects plus each device's own.

    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=20, clusters=1, rows=20, features=2, seed=0)
    >>> labels = (rows.y > 0) + 0.0
    >>> told = Devices(rows.X, labels, rows.weight, rows.start, rows.ids)
    >>> learner = Linear("logistic", intercept=True)
    >>> models = laplace_fits(learner, told, np.array([2]))
    >>> bool(models[:, 2].std() < 0.1)  # devices are alike
    True
    """
    common = _weak_prior(learner, rows)
    begin: list[Parts | None] = [None]

    def parts(tau: float) -> Parts:
        made = own_parts_of(learner, rows, own, 0.5 / tau, common, begin[0])
        begin[0] = made
        return made

    def twice(log_tau: float) -> float:
        tau = float(np.exp(log_tau))
        return _twice_minus_likelihood(learner, rows, own, tau, parts(tau), common)

    how = {"xatol": CLOSE, "maxiter": LOOKS}
    between = np.log(LEAST), np.log(MOST)
    best = minimize_scalar(twice, bounds=between, method="bounded", options=how).x
    found = parts(float(np.exp(best)))
    models = np.repeat(found.common[None], len(rows), axis=0)
    models[:, own] += found.own
    return models


def _weak_prior(learner: Linear, rows: Devices) -> Array:
    """(size,) penalties of the squares of common effects."""
    mean = np.average(rows.X, axis=0, weights=rows.weight)
    variance = np.average((rows.X - mean) ** 2, axis=0, weights=rows.weight)
    penalty = 0.5 * variance / SPREAD**2
    if learner.intercept:
        penalty = np.append(penalty, 0.0)
    return np.tile(penalty, learner.classes)


def _twice_minus_likelihood(
    learner: Linear,
    rows: Devices,
    own: IntArray,
    tau: float,
    parts: Parts,
    common: Array,
) -> float:
    """But for a number that is the same for every tau."""
    found = 2.0 * common @ parts.common**2 + (parts.own**2).sum() / tau
    for i in np.flatnonzero(rows.counts).tolist():
        data = rows[i]
        model = parts.common.copy()
        model[own] += parts.own[i]
        scores = learner.scores(model, data.X)
        curve = _curvature(learner, scores) * data.weight[:, None, None]
        Z = learner.with_intercept(data.X)
        whole = np.einsum("rkl,ri,rj->kilj", curve, Z, Z)
        size = Z.shape[1] * learner.classes
        H = whole.reshape(size, size)[np.ix_(own, own)]
        found += np.linalg.slogdet(np.eye(len(own)) + tau * H)[1]
        found += 2.0 * float(data.weight.sum()) * float(learner.loss(model, data))
    return float(found)


def _curvature(learner: Linear, scores: Array) -> Array:
    """(rows, classes, classes) second derivatives of each row's loss in its scores."""
    if learner.kind == "multinomial":
        p = softmax(scores)
        return np.asarray(
            p[:, :, None] * np.eye(p.shape[1]) - p[:, :, None] * p[:, None]
        )
    if learner.kind == "logistic":
        p = sigmoid(scores)
        return np.asarray((p * (1.0 - p))[:, None, None])
    return np.asarray(np.exp(np.minimum(scores, 100.0))[:, None, None])
