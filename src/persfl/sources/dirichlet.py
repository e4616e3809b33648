"""Images dealt out so that devices see other classes than others do, as the field deals CIFAR.

shares_c ~ Dirichlet(alpha, ..., alpha);   device i has the share_ci of the images of class c
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from persfl.checks import real, whole
from persfl.devices import Devices, offsets
from persfl.errors import InputError
from persfl.seeds import stream
from persfl.sources.dealt import Dealt, checked_images
from persfl.types import AnyArray, Array, IntArray

_TRIES = 1000  # deals before there are too few images for all


def dirichlet_images(
    images: Array,
    labels: ArrayLike,
    n: int,
    *,
    alpha: float,
    held: float = 0.25,
    least: int = 10,
    seed: int = 0,
) -> Dealt:
    """`n` devices; a small `alpha` (.1) leaves each with few classes, a large one (100) with all.

    `images` is (images, channels, height, width), from 0 to 1. Every image is with one device. All
    is dealt anew until every device has `least` images; a random share `held` of each device's, at
    least one and not all, is to judge by.

    >>> images = np.random.default_rng(0).random((300, 1, 4, 4))
    >>> world = dirichlet_images(images, np.arange(300) % 3, 5, alpha=0.5)
    >>> len(world.training.y) + len(world.held.y)
    300
    """
    images, classes = checked_images(np.asarray(images), np.asarray(labels))
    whole("n", n, least=1)
    whole("least", least, least=2)
    real("alpha", alpha, above=0)
    if not 0 < real("held", held, above=0) < 1:
        raise InputError(f"held must be a share below 1. Got {held}.")
    owner = _owners(classes, n, float(alpha), least, seed)
    order = stream(seed, "dirichlet", "order").generator().permutation(len(owner))
    order = order[np.argsort(owner[order], kind="stable")]
    counts = np.bincount(owner, minlength=n)
    many = np.clip(np.round(held * counts), 1, counts - 1).astype(np.int64)
    place = np.arange(len(order)) - offsets(counts)[owner[order]]
    judges = place < many[owner[order]]
    flat = images.reshape(len(images), -1)

    def part(which: IntArray) -> Devices:
        sizes = np.bincount(owner[which], minlength=n)
        ones = np.ones(len(which))
        return Devices(flat[which], classes[which], ones, offsets(sizes), range(n))

    return Dealt(part(order[~judges]), part(order[judges]))


def _owners(classes: AnyArray, n: int, alpha: float, least: int, seed: int) -> IntArray:
    """(images,) whose each image is."""
    for k in range(_TRIES if least * n <= len(classes) else 0):
        rng = stream(seed, "dirichlet", k).generator()
        owner = np.empty(len(classes), dtype=np.int64)
        for label in np.unique(classes):
            mine = rng.permutation(np.flatnonzero(classes == label))
            shares = rng.dirichlet(np.full(n, alpha))
            ends = np.round(np.cumsum(shares) * len(mine)).astype(np.int64)
            owner[mine] = np.searchsorted(ends, np.arange(len(mine)), side="right")
        owner = np.minimum(owner, n - 1)  # sums of shares may end below 1
        if np.bincount(owner, minlength=n).min() >= least:
            return owner
    raise InputError(
        f"{len(classes)} images are too few for {n} devices with at least {least} each at"
        f" alpha={alpha:g}. Take fewer devices, a smaller least or a larger alpha."
    )
