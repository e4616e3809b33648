"""Trees for the whole fleet, grown by scikit-learn and read out as plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from persfl.devices import Devices
from persfl.learners.shared_trees import WORDS, SharedTrees
from persfl.types import Array, IntArray

CATEGORIES = (
    255  # that scikit-learn can tell apart; of more devices trees see the rows alone
)
# Rows that one thread is quicker with. Several meet after every split, and where other programs
# keep the cores busy they wait a hundred times as long for each other as they work.
FEW = 20_000


def grow(
    rows: Devices, which: IntArray, y: Array, strangers: bool = False
) -> SharedTrees:
    """Trees for these rows and labels; the device is a category in front, unless there are too many
    or the trees are for `strangers` too.
    """
    devices = len(rows)
    several = devices <= CATEGORIES and not strangers
    owner = rows.owner[which]
    X = rows.X[which]
    wide = np.column_stack([owner if several else np.zeros(len(X)), X])
    grower = HistGradientBoostingRegressor(
        categorical_features=[0] if several else None,
        random_state=0,
    )
    weight = rows.weight[which]
    alike = bool(
        (weight == weight[0]).all()
    )  # then bins need no weighted quantiles, which are slow
    with threads_for(len(X)):
        grower.fit(wide, y, sample_weight=None if alike else weight)
    place = np.full(devices, -1)
    if several:
        there = np.unique(owner)
        place[there] = np.arange(len(there))
    return read_trees(grower, place)


def threads_for(rows: int) -> threadpool_limits:
    """Lets scikit-learn's trees use one thread where rows are few; they stay the same trees."""
    return threadpool_limits(1 if rows < FEW else None, user_api="openmp")


def read_trees(grower: Any, place: IntArray) -> SharedTrees:
    """The arrays of trees that were grown."""
    trees = [step[0] for step in grower._predictors]
    nodes = np.concatenate([tree.nodes for tree in trees])
    many = np.array([len(tree.nodes) for tree in trees])
    root = np.cumsum(many) - many
    shift = np.repeat(root, many)
    splits = np.array([len(tree.raw_left_cat_bitsets) for tree in trees])
    before = np.repeat(np.cumsum(splits) - splits, many)
    leaf = nodes["is_leaf"].astype(bool)
    by_device = nodes["is_categorical"].astype(bool) & ~leaf
    sides = np.where(by_device, nodes["bitset_idx"].astype(np.int64) + before, -1)
    goes_left = np.concatenate(
        [np.zeros((1, WORDS), dtype=np.uint32)]
        + [tree.raw_left_cat_bitsets.reshape(-1, WORDS) for tree in trees]
    )
    return SharedTrees(
        base=float(np.ravel(grower._baseline_prediction)[0]),
        place=place,
        root=root,
        feature=np.where(leaf, -1, nodes["feature_idx"].astype(np.int64)),
        threshold=np.where(leaf, 0.0, nodes["num_threshold"]),
        left=np.where(leaf, 0, nodes["left"].astype(np.int64) + shift),
        right=np.where(leaf, 0, nodes["right"].astype(np.int64) + shift),
        missing_left=nodes["missing_go_to_left"].astype(bool),
        value=nodes["value"].astype(np.float64),
        sides=np.where(sides >= 0, sides + 1, -1),
        goes_left=goes_left,
    )
