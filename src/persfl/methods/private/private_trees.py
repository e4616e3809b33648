"""Models of devices from what all told of random trees, and from own rows at home."""

from __future__ import annotations

import numpy as np

from persfl.devices import Devices
from persfl.methods.private.private_budget import RunBudget
from persfl.methods.private.random_trees import (
    CALM,
    Leaves,
    RandomTrees,
    shared_depth,
)
from persfl.seeds import Stream, stream
from persfl.traits import has_chances
from persfl.types import Array, Data, IntArray, Learner, Model

WEIGHTS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)  # of what others told, against own rows


def tree_models(
    learner: Learner,
    rows: Devices,
    ranges: Array,
    classes: int,
    spend: RunBudget,
) -> list[Model]:
    """A model per device; `ranges` (columns and the label, 2) are declared. Labels of classes are
    their numbers.
    """
    low, high = ranges.T
    place = stream(spend.seed, "random trees")
    depth = shared_depth(learner)
    trees = RandomTrees.drawn(low[:-1], high[:-1], depth, place, classes)
    label = (0.0, 1.0)
    if not classes:
        label = (low[-1] + high[-1]) / 2, (high[-1] - low[-1]) / 2
    y = rows.y if classes else np.clip((rows.y - label[0]) / label[1], -1.0, 1.0)
    told = []
    for i in range(len(rows)):
        mine = slice(rows.start[i], rows.start[i + 1])
        source = spend.source(i, "leaves")
        told.append(trees.told(rows.X[mine], y[mine], spend.noise(), source))
    total = np.sum(told, axis=0)
    models = []
    for i in range(len(rows)):
        others = trees.heard(total - told[i])
        models.append(trees_at_home(learner, rows[i], trees, others, label, spend.seed))
    return models


def trees_at_home(
    learner: Learner,
    data: Data,
    trees: RandomTrees,
    others: Leaves,
    label: tuple[float, float],
    seed: int,
) -> Model:
    """Own trees, or random trees with what others told: what left-out rows clearly like, by their
    squared errors; of classes by those of chances.
    """
    middle, half = label
    place = stream(seed, "own")
    own: Model = learner.fit(data, place)
    if data.rows < 2:
        return own
    labels = trees.labels((data.y - middle) / half)
    alone = _left_out(learner, data, place, trees.classes) / half
    at = trees.places(data.X)
    weight = data.weight
    mine = _leaves_of(at, labels, weight, trees.form[1])
    best = own
    gain = 0.0
    for share in WEIGHTS:
        leaves = mine.and_of(others, share)
        # a row that is left out takes its label and its count along
        fewer = np.maximum(leaves.counts[at] + CALM - weight[:, None], CALM)
        less = leaves.sums[:, at] - (labels * weight[:, None]).T[:, :, None]
        missed = labels - (less / fewer).mean(axis=2).T
        better = (alone**2 - missed**2).sum(axis=1)
        error = better.std() / np.sqrt(max(data.rows - 1, 1))
        sure = better.mean() - error
        if sure > gain:
            gain = sure
            best = trees.models(learner, leaves.means * half + middle)
    return best


def _leaves_of(at: IntArray, labels: Array, weight: Array, many: int) -> Leaves:
    """Of own rows, which fall into these of so many leaves."""
    times = np.repeat(weight, at.shape[1])
    parts = [times, *(times * np.repeat(label, at.shape[1]) for label in labels.T)]
    found = [np.bincount(at.ravel(), part, minlength=many) for part in parts]
    return Leaves(np.array(found[1:]), np.array(found[0], dtype=np.float64))


def _left_out(learner: Learner, data: Data, place: Stream, classes: int) -> Array:
    """(rows, outputs) what own trees leave of rows that they did not see, in five folds."""
    luck = place.at("folds").uniform(data.rows)
    fold = np.argsort(np.argsort(luck)) % 5
    left = np.zeros((data.rows, classes or 1))
    for k in np.unique(fold).tolist():
        hide = np.flatnonzero(fold == k)
        grown = learner.fit(data.take(np.flatnonzero(fold != k)), place)
        left[hide] = _missed(learner, grown, data.take(hide), classes)
    return left


def _missed(learner: Learner, grown: Model, data: Data, classes: int) -> Array:
    """(rows, outputs) labels less what a model says, or whether they are of a class less its
    chance.
    """
    if not classes:
        return np.asarray(data.y - learner.predict(grown, data.X))[:, None]
    assert has_chances(learner)
    chances, known = learner.chances(grown, data.X)
    said = np.zeros((data.rows, classes))
    said[:, known.astype(np.int64)] = chances
    return np.asarray((data.y[:, None] == np.arange(classes)) - said)
