"""Who is alike: by the angle between moves, measured where they can be compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from persfl.types import Array, Data, IntArray

NEAREST = 10
SHARP = 4.0  # one clear likeness out of several is enough


def likeness_of(mine: Array, theirs: Array) -> Array:
    """(copies, peers) how alike moves (copies, size) and (peers, size) point; likenesses at several
    models add up.

    >>> likeness_of(np.array([[2.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])).round(
    ...     1
    ... ).tolist()
    [[54.6, 1.0]]
    """
    mine, theirs = (
        moves / np.maximum(np.linalg.norm(moves, axis=1, keepdims=True), 1e-12)
        for moves in (mine, theirs)
    )
    return np.asarray(np.exp(SHARP * mine @ theirs.T))


def likest(who: IntArray, likeness: Array) -> IntArray:
    """(copies, peers) of these, the most alike first: a quarter of them, from five to ten."""
    count = min(len(who), max(5, min(NEAREST, len(who) // 4)))
    return np.asarray(who[np.argsort(-likeness, axis=1, kind="stable")[:, :count]])


def seen_classes(data: Data, classes: int) -> Any:
    """(..., classes) which classes the rows have."""
    return (
        (data.y[..., None] == np.arange(classes)) & (data.weight > 0)[..., None]
    ).any(axis=-2)
