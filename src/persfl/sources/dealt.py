"""Images dealt out to devices in rotation clusters: a world in which it is known who is of a kind.

angle_i = 360 * cluster(i) / clusters degrees;   x = image turned by angle_i
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.ndimage import rotate

from persfl.checks import whole
from persfl.devices import Devices, offsets
from persfl.errors import InputError
from persfl.seeds import Stream, stream
from persfl.types import AnyArray, Array, IntArray


class Dealt(NamedTuple):
    """What devices learn from, and other rows of the same devices to judge by;
    `training.clusters` says who is of a kind.
    """

    training: Devices
    held: Devices


def clustered_images(
    images: Array,
    labels: ArrayLike,
    n: int,
    *,
    clusters: int,
    rows: int,
    held: int,
    training: int,
    seed: int = 0,
) -> Dealt:
    """`n` devices in `clusters` of equal size, in order, each with `rows` images to learn from and
    `held` others.

    `images` is (images, channels, height, width), from 0 to 1. They are cut once, `training` of
    them to learn from and the rest to hold out, so that nobody is judged by an image that anybody
    has learned from. Both sides are shuffled and dealt out, each device's turned by the angle of
    its cluster; when the pile cannot serve another device it is shuffled and dealt again. A device
    never has an image twice.

    >>> images, labels = (
    ...     np.random.default_rng(0).random((50, 3, 4, 4)),
    ...     np.arange(50) % 2,
    ... )
    >>> world = clustered_images(
    ...     images, labels, 6, clusters=2, rows=5, held=4, training=30
    ... )
    >>> world.training, world.held.counts.tolist(), world.training.clusters.tolist()
    (Devices(6 devices, 30 rows, 48 features), [4, 4, 4, 4, 4, 4], [0, 0, 0, 1, 1, 1])
    """
    images, classes = checked_images(np.asarray(images), np.asarray(labels))
    whole("n", n, least=1)
    whole("clusters", clusters, least=1, most=n, why=f"{n} devices")
    whole(
        "training", training, least=1, most=len(images) - 1, why=f"{len(images)} images"
    )
    order = stream(seed, "images").generator().permutation(len(images))
    kinds = np.arange(n) * clusters // n
    whole("rows", rows, least=1, most=training)
    whole("held", held, least=1, most=len(images) - training)

    def dealt(pile: IntArray, each: int, name: str) -> Devices:
        hands = _hands(pile, n, each, stream(seed, name))
        turned = [
            _turned(images[hand], 360.0 * kind / clusters)
            for kind, hand in zip(kinds.tolist(), hands, strict=True)
        ]
        X = np.stack(turned).reshape(n * each, -1)
        return Devices(
            X,
            classes[hands].ravel(),
            np.ones(n * each),
            offsets(np.full(n, each)),
            range(n),
            clusters=kinds,
        )

    return Dealt(
        dealt(order[:training], rows, "training"), dealt(order[training:], held, "held")
    )


def checked_images(images: AnyArray, labels: AnyArray) -> tuple[AnyArray, Array]:
    """Images and the numbers of their classes, or an InputError."""
    if labels.dtype.kind not in "uifb":
        raise InputError(
            f"labels must be numbers, 0 for the first class. Got {labels.dtype}."
        )
    if images.ndim != 4 or labels.shape != images.shape[:1]:
        raise InputError(
            "images must be (images, channels, height, width), with a label each. Got"
            f" {images.shape}, {labels.shape}."
        )
    # NaN is neither
    if images.dtype.kind not in "uifb" or not (
        images.min(initial=0) >= 0 and images.max(initial=0) <= 1
    ):
        raise InputError(
            "images must hold numbers from 0 to 1. Divide whole numbers by 255."
        )
    return images, labels.astype(np.float64)


def _hands(pile: IntArray, n: int, each: int, place: Stream) -> IntArray:
    """(n, each) images from the top of the pile, which is shuffled anew when it cannot serve
    another device.
    """
    served = len(pile) // each
    piles = [
        place.at(k).generator().permutation(pile)[: served * each].reshape(served, each)
        for k in range(-(-n // served))
    ]
    return np.asarray(np.concatenate(piles)[:n])


def _turned(images: Array, angle: float) -> Array:
    """Images turned by so many degrees, between pixels by linear interpolation."""
    turned = rotate(
        images.astype(np.float64), angle, axes=(3, 2), reshape=False, order=1
    )
    return np.asarray(np.clip(turned, 0.0, 1.0))
