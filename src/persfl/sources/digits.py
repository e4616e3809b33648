"""Handwritten digits in rotation clusters: scikit-learn's 1,797 images of 8 x 8 pixels, dealt out to devices.

angle_i = 360 * cluster(i) / clusters degrees;   x = image / 16 turned by angle_i,   y = the digit

A device of one cluster sees all its images turned by the same angle, so its peers of the same cluster have the same problem and the
others a different one: a 6 on its head is a 9.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import rotate
from sklearn.datasets import load_digits

from persfl.checks import whole
from persfl.devices import Devices, offsets
from persfl.seeds import stream
from persfl.types import Array, IntArray

TRAINING = 1300  # images that devices learn from; the other 497 are only ever held out


class Digits(NamedTuple):
    """What devices learn from, and other rows of the same devices to judge by; `training.clusters` says who is of a kind."""

    training: Devices
    held: Devices


def clustered_digits(n: int = 120, *, clusters: int = 4, rows: int = 10, held: int = 40, seed: int = 0) -> Digits:
    """`n` devices in `clusters` of equal size, in order, each with `rows` images to learn from and `held` others.

    The images are cut once, 1,300 to learn from and 497 to hold out, so that nobody is judged by an image that anybody has learned
    from. Both sides are shuffled and dealt out. While there are enough images no two devices share one: `rows=10` lasts for 130
    devices. After that the images are shuffled and dealt out again, and again: among 480 devices with 10 rows an image is with
    three or four of them, turned by the angle of each; 40 held-out rows last for 12 devices. A device never has an image twice.

    >>> world = clustered_digits(n=24, clusters=8, rows=5, held=10, seed=0)
    >>> world.training, world.held.counts.tolist()[:3], world.training.clusters.tolist()[:6]
    (Devices(24 devices, 120 rows, 64 features), [10, 10, 10], [0, 0, 0, 1, 1, 1])
    """
    whole("n", n, least=1)
    whole("clusters", clusters, least=1, most=n, why=f"{n} devices")
    images = stream(seed, "images").generator().permutation(len(_digits()[1]))
    kinds = np.arange(n) * clusters // n
    return Digits(
        _dealt(images[:TRAINING], kinds, clusters, whole("rows", rows, least=1, most=TRAINING), stream(seed, "training")),
        _dealt(images[TRAINING:], kinds, clusters, whole("held", held, least=1, most=len(images) - TRAINING), stream(seed, "held")),
    )


def _dealt(images: IntArray, kinds: IntArray, clusters: int, each: int, place: Any) -> Devices:
    """Every device's hand: `each` images from the top of the pile, which is shuffled anew when it cannot serve another device."""
    n, served = len(kinds), len(images) // each
    piles = [place.at(k).generator().permutation(images)[: served * each].reshape(served, each) for k in range(-(-n // served))]
    hands = np.concatenate(piles)[:n]
    X = np.stack([_turned(360.0 * kind / clusters)[hand] for kind, hand in zip(kinds.tolist(), hands, strict=True)])
    y = _digits()[1][hands].ravel()
    start = offsets(np.full(n, each))
    return Devices(X.reshape(n * each, -1), y, np.ones(n * each), start, range(n), clusters=kinds)


@cache
def _digits() -> tuple[Array, Array]:
    found = load_digits()
    return found.images / 16.0, found.target.astype(np.float64)


@cache
def _turned(angle: float) -> Array:
    """(images, 64) all images turned by so many degrees, between pixels by linear interpolation."""
    images = _digits()[0]
    turned = rotate(images, angle, axes=(2, 1), reshape=False, order=1)
    return np.asarray(np.clip(turned, 0.0, 1.0).reshape(len(images), -1))
