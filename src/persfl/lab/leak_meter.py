"""How much a fleet's answers give away, measured at home by attacking own rows: without
protection, and within privacy budgets.

Reconstruction: how far sums over a device's rows, as others know them, are off; 0 is all of it.
Membership: how many rows are found at 1 % of false alarms by whoever sees what devices tell and
knows all other rows, and by whoever sees a model of own rows alone, knows none of them and looks at
losses (who knows all other rows finds every row in such a model). Labels: how many rows' labels
stand in a tree, or a forest, alone in a leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.rivals import own_fits
from persfl.learners.linear import Linear
from persfl.learners.tree import Tree
from persfl.methods.private.random_trees import grows_trees
from persfl.privacy import PrivacyBudget
from persfl.privacy.mechanisms import (
    clipped,
    gradient_clip,
    noised_products,
    product_clip,
    row_gradients,
)
from persfl.privacy.membership import by_losses, by_sums, ridge_losses
from persfl.privacy.reconstruction import moment_error, row_error
from persfl.privacy.secure_noise import SeededNoise
from persfl.seeds import stream
from persfl.traits import has_gradients
from persfl.types import Array, Data, IntArray, Learner, Model

NONE = 0.0  # stands for no protection
SHADOWS = 60  # rows that models are fitted without, where that has no closed form


class Leak(NamedTuple):
    """What is given away with one budget; NaN for what does not apply.

    `moments` and `known`: the error of sums as others know them, in the mean over devices, and the
    share of devices of whom all sums are known. `found` and `worst`: rows that are found by what
    devices tell. `by_model`: by a model of own rows alone. `labels`: rows alone in a leaf. `row`:
    how far the best guess of a row is off that is all a device has, as a share of its length.
    """

    epsilon: float
    moments: float
    known: float
    found: float
    worst: float
    by_model: float
    labels: float
    row: float


def leaks_of(
    rows: Devices,
    learner: Learner,
    epsilons: Sequence[float] = (NONE, 8.0, 3.0, 1.0),
    *,
    delta: float = 1e-5,
    seed: int = 0,
) -> list[Leak]:
    """One for each budget, of rows in the units of the run.

    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=3, rows=8, features=2, seed=0)
    >>> off, on = leaks_of(rows, Linear(intercept=True), (NONE, 1.0))
    >>> off.known, off.found, on.known, bool(on.worst < 0.03)
    (1.0, 1.0, 0.0, True)
    """
    model = _by_model(learner, rows, seed)
    labels = _alone_in_leaves(learner, rows, seed)
    found = []
    for epsilon in epsilons:
        if epsilon == NONE:
            exact = isinstance(learner, Linear) and learner.kind == "squared"
            moments, known = (0.0, 1.0) if exact else (np.nan, np.nan)
            leak = Leak(epsilon, moments, known, 1.0, 1.0, model, labels, moments)
        else:
            z = PrivacyBudget(epsilon=epsilon, delta=delta).multiplier()
            leak = _protected(rows, learner, epsilon, z, seed)
        found.append(leak)
    return found


def _protected(
    rows: Devices, learner: Learner, epsilon: float, z: float, seed: int
) -> Leak:
    """With noise on what is told. What others make of it, models and all, tells no more."""
    told = row = np.nan
    if isinstance(learner, Linear) and learner.kind == "squared":
        clip = product_clip(rows.features)
        u = clipped(np.column_stack([np.ones(len(rows.y)), rows.X, rows.y]), clip)
        lengths = (u**2).sum(axis=1) / clip**2
        errors = []
        for i in range(len(rows)):
            source = SeededNoise(stream(seed, "meter", i))
            noisy = noised_products(rows[i], clip, z, source).matrix
            mine = u[rows.start[i] : rows.start[i + 1]]
            errors.append(moment_error(noisy, mine.T @ mine))
        told = float(np.mean(errors))
        row = _row_alone(rows, clip, z, seed)
    elif has_gradients(learner):
        lengths = _gradient_lengths(rows, learner, seed)
    else:
        lengths = np.ones(len(rows.y))  # a row is in one leaf of every tree
    found = by_sums(lengths, z)
    nothing = 0.0 if grows_trees(learner) else np.nan
    return Leak(epsilon, told, 0.0, found.mean, found.worst, np.nan, nothing, row)


def _row_alone(rows: Devices, clip: float, z: float, seed: int) -> float:
    """How far guesses of some rows are off, the middle one, if each were all that a device has."""
    luck = stream(seed, "rows alone").uniform(len(rows.y))
    errors = []
    for r in np.argsort(luck)[:SHADOWS].tolist():
        one = Data(rows.X[r : r + 1], rows.y[r : r + 1])
        source = SeededNoise(stream(seed, "row alone", r))
        noisy = noised_products(one, clip, z, source).matrix
        errors.append(row_error(noisy, np.array([1.0, *rows.X[r], rows.y[r]])))
    return float(np.median(errors))


def _gradient_lengths(rows: Devices, learner: Learner, seed: int) -> Array:
    """(rows,) how much of its room each row's gradient takes, at the start of a run; so it is in
    each of so many answers, and noise grows with their number.
    """
    assert has_gradients(learner)
    data = Data(rows.X, rows.y, np.ones(len(rows.y)))
    start = learner.init(Data(rows.X[:1], rows.y[:1]), stream(seed, "start"))
    clip = gradient_clip(rows.features)
    parts = clipped(row_gradients(learner, np.asarray(start), data), clip)
    return np.asarray(np.linalg.norm(parts, axis=1) / clip)


def _by_model(learner: Learner, rows: Devices, seed: int) -> float:
    """Rows that are found by losses of models of own rows, with them and without them."""
    if isinstance(learner, Linear) and learner.kind == "squared":
        pairs = [_ridge(rows[i], learner) for i in range(len(rows))]
    else:
        pairs = [_shadows(learner, rows, seed)]
    inside = np.concatenate([pair[0] for pair in pairs])
    outside = np.concatenate([pair[1] for pair in pairs])
    return by_losses(inside, outside).mean if len(inside) else np.nan


def _ridge(data: Data, learner: Linear) -> tuple[Array, Array]:
    return ridge_losses(learner.with_intercept(data.X), data.y, 1.0)


def _shadows(learner: Learner, rows: Devices, seed: int) -> tuple[Array, Array]:
    """Losses of some rows under fits with them and without them."""
    several = np.flatnonzero(rows.counts[rows.owner] > 2)
    luck = stream(seed, "shadows").uniform(len(several))
    some = several[np.argsort(luck)[:SHADOWS]]
    inside = list[float]()
    outside = list[float]()
    for r in some.tolist():
        data = rows[int(rows.owner[r])]
        here = r - int(rows.start[rows.owner[r]])
        row = data.take(np.array([here]))
        rest = np.flatnonzero(np.arange(data.rows) != here)
        for part, losses in ((data, inside), (data.take(rest), outside)):
            start = np.array([0, part.rows])
            one = Devices(part.X, part.y, part.weight, start, [0])
            model = own_fits(learner, one, seed)[0]
            losses.append(float(np.nan_to_num(learner.loss(model, row))))
    return np.array(inside), np.array(outside)


def _alone_in_leaves(learner: Learner, rows: Devices, seed: int) -> float:
    """Rows whose label is all that a leaf of their device's tree says, or one of its forest."""
    if not grows_trees(learner):
        return np.nan
    alone = 0
    for i in range(len(rows)):
        data = rows[i]
        leaves = _leaves_of(learner, learner.fit(data, stream(seed, "own", i)), data.X)
        each = [np.unique(leaf, return_inverse=True)[1] for leaf in leaves.T]
        single = [np.bincount(leaf)[leaf] == 1 for leaf in each]
        alone += int(np.any(single, axis=0).sum())
    return alone / len(rows.y)


def _leaves_of(learner: Learner, model: Model, X: Array) -> IntArray:
    """(rows, trees) where rows fall; all together where a model is no tree, of a single class."""
    if isinstance(learner, Tree):
        named = model._replace(value=np.arange(len(model.value), dtype=np.float64))
        return np.asarray(learner.predict(named, X), dtype=np.int64)[:, None]
    if not hasattr(model, "apply"):
        return np.zeros((len(X), 1), dtype=np.int64)
    return np.asarray(model.apply(X)).reshape(len(X), -1)
