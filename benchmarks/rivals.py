"""What a statistician, or anybody with a table, would try first: small, plain, on whole arrays.

A rival is a function of rows, labels and whose row it is (numbers from 0 on, every one with a row),
and returns a function that predicts. What there is to choose is chosen on these rows alone.

    own mean, own ridge     a device's own rows
    pooled                  one ridge model for all
    dummies                 the same with a column for each device
    level, diagonal, full   mixed models: which coefficients differ between devices, and how
    GTVMin                  own models pulled together along a graph of the most similar ones
    boosting                trees of all rows, with the device as a category

`centred` gives the same about each device's own means. For classes: logistic models of own rows,
of all, of all with a column for each device; and boosting.

>>> rng = np.random.default_rng(0)
>>> g = np.repeat(np.arange(20), 5)
>>> X = rng.normal(size=(100, 2))
>>> y = X[:, 0] + g % 2 + 0.1 * rng.normal(size=100)
>>> said = RIVALS["level"](X, y, g)(np.zeros((2, 2)), np.arange(2))
>>> said.round(1).tolist()
[0.0, 1.0]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_matrix
from scipy.spatial import cKDTree
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Predict = Callable[[Array, IntArray], Array]
Rival = Callable[[Array, Array, IntArray], Predict]

STRENGTHS = np.logspace(-3, 4, 15)  # of ridge, on columns of spread 1
PULLS = np.logspace(-3, 1, 9)  # of GTVMin, against a device's mean loss
NEIGHBOURS = 4
CATEGORIES = 255  # as many as boosting can take


def standard(X: Array, y: Array) -> tuple[Callable[[Array], Array], float, float]:
    """Columns in units of the fleet, and the label's mean and spread."""
    mean = X.mean(axis=0)
    spread = X.std(axis=0)
    spread[spread < 1e-9] = 1.0
    return lambda rows: (rows - mean) / spread, float(y.mean()), float(y.std()) or 1.0


def rows_of(g: IntArray) -> list[IntArray]:
    """Which rows each device has."""
    order = np.argsort(g, kind="stable")
    return np.split(order, np.cumsum(np.bincount(g))[:-1])


# Ridge models


def ridge(Z: Array, t: Array) -> tuple[Array, float, float]:
    """Coefficients, intercept (not shrunk), and the mean squared error of rows left out one by
    one, where the strength has the least.
    """
    rows = len(t)
    middle, level = Z.mean(axis=0), float(t.mean())
    if rows < 2:
        return np.zeros(Z.shape[1]), level, np.inf
    U, s, Vt = np.linalg.svd(Z - middle, full_matrices=False)
    seen = U.T @ (t - level)
    kept = s**2 / (s**2 + STRENGTHS[:, None])
    leverage = 1 / rows + kept @ (U.T**2)
    left = (t - level - (kept * seen) @ U.T) / np.maximum(1 - leverage, 1e-9)
    error = (left**2).mean(axis=1)
    best = int(error.argmin())
    w = Vt.T @ (s / (s**2 + STRENGTHS[best]) * seen)
    return w, float(level - middle @ w), float(error[best])


def own_mean(X: Array, y: Array, g: IntArray) -> Predict:
    """The mean of a device's labels."""
    mean = np.bincount(g, weights=y) / np.bincount(g)
    return lambda _, who: mean[who]


def own_ridge(X: Array, y: Array, g: IntArray) -> Predict:
    """A ridge model of each device's own rows, with a strength of its own."""
    units = standard(X, y)[0]
    Z = units(X)
    found = [ridge(Z[at], y[at]) for at in rows_of(g)]
    W = np.stack([w for w, _, _ in found])
    level = np.array([c for _, c, _ in found])
    return lambda rows, who: (units(rows) * W[who]).sum(axis=1) + level[who]


def pooled(X: Array, y: Array, g: IntArray) -> Predict:
    """One ridge model of all rows."""
    units = standard(X, y)[0]
    w, level, _ = ridge(units(X), y)
    return lambda rows, _: units(rows) @ w + level


def dummies(X: Array, y: Array, g: IntArray) -> Predict:
    """One ridge model of all rows with a column for each device, of whichever height is best."""
    units = standard(X, y)[0]
    each = np.eye(g.max() + 1)
    heights = (0.3, 1.0, 3.0)
    found = [ridge(np.c_[units(X), high * each[g]], y) for high in heights]
    best = int(np.argmin([error for _, _, error in found]))
    w, level, _ = found[best]
    d = X.shape[1]
    own = level + heights[best] * w[d:]
    return lambda rows, who: units(rows) @ w[:d] + own[who]


# Mixed models


def sums(Z: Array, t: Array, g: IntArray) -> tuple[Array, Array, Array, Array]:
    """Per device: products of columns, of columns and labels, of labels; and rows."""
    parts = rows_of(g)
    G = np.stack([Z[at].T @ Z[at] for at in parts])
    b = np.stack([Z[at].T @ t[at] for at in parts])
    squares = np.array([t[at] @ t[at] for at in parts])
    return G, b, squares, np.array([float(len(at)) for at in parts])


class MixedModels(NamedTuple):
    """Models of the devices (n, d), about mu (d,) with covariance S (d, d); noise is a variance."""

    w: Array
    mu: Array
    S: Array
    noise: float


def mixed_models(
    Z: Array, t: Array, g: IntArray, *, free: str, steps: int = 500
) -> MixedModels:
    """w_i ~ N(mu, S), t = Z w_i + noise: restricted maximum likelihood, by EM.

    The first column of Z is all ones; `free` says what differs between devices: "level" (its
    coefficient alone), "diagonal" (all, independently), "full".
    """
    G, b, squares, rows = sums(Z, t, g)
    n, d = b.shape
    eye = np.eye(d)
    may = np.zeros((d, d)) if free == "level" else eye if free == "diagonal" else eye**0
    may[0, 0] = 1.0
    mu = np.linalg.solve(G.sum(axis=0) + 1e-6 * rows.sum() * eye, b.sum(axis=0))
    noise = max(
        float(_left(squares, b, G, np.tile(mu, (n, 1))).sum() / rows.sum()), 1e-9
    )
    S = noise / 2 * eye * may
    for _ in range(steps):
        # E: what own rows tell of a change in w is T = S Z' (noise + Z S Z')^-1 Z; with H the
        # precision that a device adds to mu, whose spread is C, w has K S + K C K' about its mean.
        A = noise * eye + S @ G
        T = np.linalg.solve(A, S @ G)
        K = eye - T
        H = (G - G @ T) / noise
        h = (b - _each(G, np.linalg.solve(A, (b @ S)[..., None])[..., 0])) / noise
        C = np.linalg.inv(H.sum(axis=0) + 1e-9 * eye)
        mu = C @ h.sum(axis=0)
        u = (h - H @ mu) @ S
        V = K @ S
        # M
        new = (u.T @ u + (V + T @ C @ T.swapaxes(1, 2)).sum(axis=0)) / n * may
        spread = V + K @ C @ K.swapaxes(1, 2)
        all_left = _left(squares, b, G, mu + u) + np.einsum("nij,nji->n", G, spread)
        louder = max(float(all_left.sum() / rows.sum()), 1e-9)
        moved = np.abs(new - S).max() / max(np.abs(S).max(), 1e-12)
        moved += abs(louder / noise - 1)
        S, noise = (new + new.T) / 2, louder
        if moved < 1e-5:
            break
    return MixedModels(mu + u, mu, S, noise)


def _each(M: Array, v: Array) -> Array:
    """Every device's matrix times its vector."""
    return np.einsum("nij,nj->ni", M, v)


def _left(squares: Array, b: Array, G: Array, w: Array) -> Array:
    """Every device's sum of squared residuals."""
    return np.maximum(
        squares - 2 * (w * b).sum(axis=1) + (w * _each(G, w)).sum(axis=1), 0
    )


def mixed(X: Array, y: Array, g: IntArray, *, free: str) -> Predict:
    """A mixed model, in units of the fleet."""
    units, mean, spread = standard(X, y)
    found = mixed_models(with_ones(units(X)), (y - mean) / spread, g, free=free)
    return linear(units, found.w, mean, spread)


def with_ones(Z: Array) -> Array:
    """A column of ones first."""
    return np.c_[np.ones(len(Z)), Z]


def linear(
    units: Callable[[Array], Array], W: Array, mean: float, spread: float
) -> Predict:
    """Predictions of models, one per device, the first coefficient being the level."""
    return lambda X, g: mean + spread * (with_ones(units(X)) * W[g]).sum(axis=1)


# GTVMin: total variation along a graph of devices


def graph(G: Array, b: Array) -> csr_matrix:
    """(n, n) 1 for the four nearest own ridge models and whoever has one among its nearest."""
    n, d = b.shape
    own = np.linalg.solve(G + 0.1 * np.eye(d), b[..., None])[..., 0]
    most = min(NEIGHBOURS, n - 1)
    near = cKDTree(own).query(own, most + 1)[1][:, 1:]
    one = (np.ones(near.size), (np.repeat(np.arange(n), most), near.ravel()))
    directed = coo_matrix(one, shape=(n, n)).tocsr()
    return directed.maximum(directed.T)


def pulled(
    G: Array, b: Array, rows: Array, edges: csr_matrix, pull: float, start: Array
) -> Array:
    """argmin of the mean losses + pull * sum over edges |w_i - w_j|^2, by conjugate gradients."""
    d = b.shape[1]
    mean, target = G / rows[:, None, None], b / rows[:, None]
    degree = np.asarray(edges.sum(axis=1)).ravel()[:, None]
    tiny = 1e-8 * np.eye(d)
    own = np.linalg.inv(mean + pull * degree[..., None] * np.eye(d) + tiny)

    def applied(w: Array) -> Array:
        return _each(mean, w) + pull * (degree * w - edges @ w)

    w = start
    left = target - applied(w)
    step = ready = _each(own, left)
    size = (left * ready).sum()
    for _ in range(500):
        if (left**2).sum() <= 1e-14 * (target**2).sum():
            break
        moved = applied(step)
        far = size / max((step * moved).sum(), 1e-300)
        w = w + far * step
        left = left - far * moved
        ready = _each(own, left)
        size, before = (left * ready).sum(), size
        step = ready + size / before * step
    return w


def gtvmin(X: Array, y: Array, g: IntArray) -> Predict:
    """The squared penalty, with the pull that predicts own folds best."""
    units, mean, spread = standard(X, y)
    Z, t = with_ones(units(X)), (y - mean) / spread
    error = np.zeros(len(PULLS))
    for learn, judge in folds(g):
        for k, w in enumerate(_by_pull(Z[learn], t[learn], g[learn], PULLS)):
            error[k] += ((t[judge] - (Z[judge] * w[g[judge]]).sum(axis=1)) ** 2).sum()
    best = PULLS[[error.argmin()]]
    return linear(units, next(_by_pull(Z, t, g, best)), mean, spread)


def _by_pull(Z: Array, t: Array, g: IntArray, pulls: Array) -> Iterator[Array]:
    G, b, _, rows = sums(Z, t, g)
    edges = graph(G, b)
    w = np.zeros_like(b)
    for pull in pulls:
        w = pulled(G, b, rows, edges, float(pull), w)
        yield w


def folds(g: IntArray, parts: int = 5) -> Iterator[tuple[Array, Array]]:
    """(rows to learn from, rows to judge by) as masks; no device is left without rows."""
    draw = np.random.default_rng(0)
    part = np.empty(len(g), dtype=int)
    for at in rows_of(g):
        part[at] = draw.permutation(len(at)) % parts if len(at) > 1 else parts
    for k in range(parts):
        if (part == k).any():
            yield part != k, part == k


# Boosting


def boosting(X: Array, y: Array, g: IntArray) -> Predict:
    """Trees of all rows, with the device as a category where there are at most 255."""
    columns, named = _with_device(X, g)
    made = HistGradientBoostingRegressor(categorical_features=named, random_state=0)
    made.fit(columns(X, g), y)
    return lambda rows, who: made.predict(columns(rows, who))


def _with_device(
    X: Array, g: IntArray
) -> tuple[Callable[[Array, IntArray], Array], list[int] | None]:
    if g.max() >= CATEGORIES:
        return lambda rows, _: rows, None
    return lambda rows, who: np.c_[rows, who], [X.shape[1]]


# In other units


def centred(rival: Rival) -> Rival:
    """The same on columns and labels about each device's own means."""

    def fit(X: Array, y: Array, g: IntArray) -> Predict:
        rows = np.bincount(g)
        means = [np.bincount(g, weights=column) / rows for column in X.T]
        middle, level = np.stack(means, axis=1), np.bincount(g, weights=y) / rows
        said = rival(X - middle[g], y - level[g], g)
        return lambda rows, who: said(rows - middle[who], who) + level[who]

    return fit


# Classes: what predicts is a class


def logistic(X: Array, y: Array, g: IntArray) -> Predict:
    """One logistic model of all rows, in units of the fleet."""
    units = standard(X, y)[0]
    made = _logistic(units(X), y)
    return lambda rows, _: made(units(rows))


def logistic_dummies(X: Array, y: Array, g: IntArray) -> Predict:
    """The same with a column for each device."""
    units = standard(X, y)[0]
    each = np.eye(g.max() + 1)
    made = _logistic(np.c_[units(X), each[g]], y)
    return lambda rows, who: made(np.c_[units(rows), each[who]])


def own_logistic(X: Array, y: Array, g: IntArray) -> Predict:
    """A logistic model of each device's own rows."""
    units = standard(X, y)[0]
    Z = units(X)
    made = [_logistic(Z[at], y[at]) for at in rows_of(g)]

    def said(rows: Array, who: IntArray) -> Array:
        found = np.empty(len(who))
        for i in np.unique(who):
            found[who == i] = made[i](units(rows[who == i]))
        return found

    return said


def _logistic(Z: Array, y: Array) -> Callable[[Array], Array]:
    """With the strength of the least log loss in own folds, or 1 where a class has a single row."""
    names, counts = np.unique(y, return_counts=True)
    if len(names) < 2:
        return lambda rows: np.full(len(rows), names[0])
    if counts.min() < 2:
        return LogisticRegression(max_iter=3000).fit(Z, y).predict
    grid = [LogisticRegression(C=c, max_iter=3000) for c in np.logspace(-4, 2, 7)]
    how = {"cv": min(5, int(counts.min())), "scoring": "neg_log_loss"}
    score = [cross_val_score(one, Z, y, **how).mean() for one in grid]
    return grid[int(np.argmax(score))].fit(Z, y).predict


def boosted_classes(X: Array, y: Array, g: IntArray) -> Predict:
    """Trees of all rows, with the device as a category where there are at most 255."""
    columns, named = _with_device(X, g)
    made = HistGradientBoostingClassifier(categorical_features=named, random_state=0)
    made.fit(columns(X, g), y)
    return lambda rows, who: made.predict(columns(rows, who))


RIVALS: dict[str, Rival] = {
    "own mean": own_mean,
    "own ridge": own_ridge,
    "pooled": pooled,
    "dummies": dummies,
    "level": partial(mixed, free="level"),
    "diagonal": partial(mixed, free="diagonal"),
    "full": partial(mixed, free="full"),
    "GTVMin": gtvmin,
    "boosting": boosting,
    "diagonal, centred": centred(partial(mixed, free="diagonal")),
    "full, centred": centred(partial(mixed, free="full")),
    "GTVMin, centred": centred(gtvmin),
    "own logistic": own_logistic,
    "pooled logistic": logistic,
    "logistic dummies": logistic_dummies,
    "boosted classes": boosted_classes,
}
