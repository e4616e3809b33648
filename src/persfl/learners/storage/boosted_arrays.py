"""Trees of the whole fleet as arrays, and back with every index checked."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from persfl.learners.shared_trees import (
    WORDS,
    BoostedModels,
    SharedTrees,
    trees_of_a_set,
)
from persfl.learners.storage.named_arrays import (
    AnyArray,
    Arrays,
    check_arrays,
    has_form,
    is_sensible,
    prefixed,
    under,
)
from persfl.types import Array

BOOSTED = "boosted_shares"
MOST = 10_000  # trees of classes
DEEPEST = 1_000  # questions on the way down
_FORMS = {
    "base": "f8",
    "place": "i8 D",
    "root": "i8 T",
    "feature": "i8 N",
    "threshold": "f8 N",
    "left": "i8 N",
    "right": "i8 N",
    "missing_left": "b N",
    "value": "f8 N",
    "sides": "i8 N",
    "goes_left": "u4 S 8",
}


def boosted_to(models: BoostedModels) -> dict[str, AnyArray]:
    """What stands beside the vectors."""
    arrays: dict[str, AnyArray] = {
        BOOSTED: np.array([share for share, _ in models.trees]),
        "boosted_alone": models.alone,
        "boosted_there": models.there,
    }
    for k, (_, trees) in enumerate(models.trees):
        parts = {
            one.name: np.asarray(getattr(trees, one.name)) for one in fields(trees)
        }
        arrays |= prefixed(f"boosted_{k}_", parts)
    return arrays


def boosted_from(
    vectors: Array, arrays: Arrays, features: int | None, classes: int | None
) -> BoostedModels:
    """The inverse of `boosted_to`, for arrays that somebody else may have written."""
    shares = arrays[BOOSTED]
    n = len(vectors)
    forms = {BOOSTED: "f8 K", "boosted_alone": "b D", "boosted_there": "i8 C"}
    sound = has_form(arrays, forms, D=n)
    check_arrays(sound and is_sensible(shares) and 0 < len(shares) <= MOST)
    there = arrays["boosted_there"]
    if len(there):  # in order, and a share and trees for all of them
        check_arrays(there[0] >= 0 and (np.diff(there) > 0).all())
        wide = trees_of_a_set(there)
        check_arrays(len(shares) % wide == 0)
        sets = shares.reshape(-1, wide)
        check_arrays((sets == sets[:, :1]).all())
    if classes is not None:
        check_arrays(bool(len(there)) == bool(classes) and (there < classes).all())
    trees = []
    for k in range(len(shares)):
        parts = under(f"boosted_{k}_", arrays)
        check_arrays(set(parts) == set(_FORMS) and has_form(parts, _FORMS, D=n))
        base = float(parts.pop("base"))
        rest: dict[str, Any] = parts
        trees.append(_checked(SharedTrees(base=base, **rest), features))
    pairs = zip(shares.tolist(), trees, strict=True)
    return BoostedModels(vectors, tuple(pairs), arrays["boosted_alone"], there)


def _checked(trees: SharedTrees, features: int | None) -> SharedTrees:
    """Trees whose indices lead nowhere else, and never back up."""
    many = len(trees.feature)
    check_arrays(0 < len(trees.root) <= many)
    check_arrays(trees.root[0] == 0 and (np.diff(trees.root) > 0).all())
    check_arrays(trees.root[-1] < many)
    here = np.arange(many)
    end = np.append(trees.root[1:], many)[
        np.searchsorted(trees.root, here, "right") - 1
    ]
    inner = trees.feature >= 0
    for child in (trees.left, trees.right):
        inside = (child > here) & (child < end)
        check_arrays((inside | ~inner).all() and (child >= 0).all())
    check_arrays((trees.feature >= -1).all())
    if features is not None:  # the first column is the device
        check_arrays((trees.feature <= features).all())
    check_arrays(len(trees.goes_left) > 0)  # a row is looked up where none is meant
    by_device = trees.sides >= 0
    check_arrays(
        (trees.sides >= -1).all() and (trees.sides < len(trees.goes_left)).all()
    )
    # the device is never compared with a number, and no column is looked up among devices
    check_arrays((by_device[inner] == (trees.feature[inner] == 0)).all())
    check_arrays((trees.place >= -1).all() and (trees.place < 32 * WORDS).all())
    check_arrays(is_sensible(trees.value) and is_sensible(np.array(trees.base)))
    check_arrays(not np.isnan(trees.threshold).any())
    depth = np.zeros(many, dtype=np.int64)
    for i in np.flatnonzero(inner).tolist():
        depth[trees.left[i]] = depth[trees.right[i]] = depth[i] + 1
    check_arrays(depth.max() <= DEEPEST)
    return trees
