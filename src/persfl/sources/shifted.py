"""Handwritten digits at devices of a few kinds: scikit-learn's 1,797 images of 8 x 8 pixels, each
with one device.

What makes the kind is the shift: what a digit is called, how the camera is turned, what the sensor
does, or which digits come by.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.datasets import load_digits

from persfl.checks import one_of, whole
from persfl.devices import Devices
from persfl.seeds import Stream, stream
from persfl.types import Array, IntArray

KINDS = 4
PAIRS = 5
# gain, brightness, dead row and column
SENSORS = ((1.0, 0.0, None), (-1.0, 16.0, None), (0.5, 4.0, 2), (1.0, 0.0, 5))
# chance of each of the two digits a device sees most, and of each of the eight others
MOST = 0.4
REST = 0.025


def shifted_digits(shift: str, n: int = 40, *, seed: int = 0) -> Devices:
    """`n` devices, kinds in turn (`.clusters`), that share out all images: about 45 each for 40
    devices.

    `shift` is what kinds differ in:

    - "relabelled": all kinds but the first take four digits for each other;
    - "rotated": the camera is turned by 0, 90, 180 or 270 degrees;
    - "feature-shifted": as it is, negative, dim with a dead row and column, or bright with another;
    - "label-shifted": five kinds; four fifths of what a device sees are the two digits of its kind.

    >>> devices = shifted_digits("rotated", 20, seed=0)
    >>> devices, devices.clusters.tolist()[:5]
    (Devices(20 devices, 1797 rows, 64 features), [0, 1, 2, 3, 0])
    >>> seen = shifted_digits("label-shifted", 20, seed=0)[
    ...     3
    ... ].y  # of the fourth kind: mostly 6 and 7
    >>> bool(np.isin(seen, [6, 7]).mean() > 0.6)
    True
    """
    one_of("shift", shift, SHIFTS)
    images, labels = load_digits(return_X_y=True)
    whole("n", n, least=1, most=len(labels), why=f"{len(labels)} images")
    place = stream(seed, "shifted", shift)
    if shift not in _CHANGES:
        who = _seen_most(labels, n, place)
        return _dealt(images, labels, who, np.arange(n) % PAIRS)
    order = place.at("deal").generator().permutation(len(labels))
    who = np.arange(len(labels)) % n
    kinds = np.arange(n) % KINDS
    X = images[order].reshape(-1, 8, 8)
    y = labels[order]
    for kind in range(KINDS):
        at = kinds[who] == kind
        rng = place.at("kind", kind).generator()
        X[at], y[at] = _CHANGES[shift](X[at], y[at], kind, rng)
    return _dealt(X.reshape(len(y), -1), y, who, kinds)


def _dealt(X: Array, y: IntArray, who: IntArray, kinds: IntArray) -> Devices:
    ids = range(len(kinds))
    return Devices.grouped(X, y.astype(np.float64), who, ids, clusters=kinds)


def _seen_most(labels: IntArray, n: int, place: Stream) -> IntArray:
    """(images,) whose each is: devices take turns, each drawing by the chances of its kind
    among what is left; -1 is nobody's.
    """
    rng = place.generator()
    free = np.ones(len(labels), dtype=bool)
    who = np.full(len(labels), -1)
    for _ in range(len(labels) // n):
        for i in rng.permutation(n):
            chance = np.where(labels // 2 == i % PAIRS, MOST, REST) * free
            taken = rng.choice(len(labels), p=chance / chance.sum())
            who[taken], free[taken] = i, False
    return who


def _relabelled(
    X: Array, y: IntArray, kind: int, rng: np.random.Generator
) -> tuple[Array, IntArray]:
    name = np.arange(10)
    if kind:
        some = rng.choice(10, 4, replace=False)
        name[some] = name[np.roll(some, 1)]
    return X, name[y]


def _rotated(
    X: Array, y: IntArray, kind: int, rng: np.random.Generator
) -> tuple[Array, IntArray]:
    return np.rot90(X, kind, axes=(1, 2)), y


def _sensed(
    X: Array, y: IntArray, kind: int, rng: np.random.Generator
) -> tuple[Array, IntArray]:
    gain, level, dead = SENSORS[kind]
    X = gain * X + level
    if dead is not None:
        X[:, dead], X[:, :, dead] = 0.0, 0.0
    return X, y


_CHANGES: dict[
    str, Callable[[Array, IntArray, int, np.random.Generator], tuple[Array, IntArray]]
] = {
    "relabelled": _relabelled,
    "rotated": _rotated,
    "feature-shifted": _sensed,
}
SHIFTS = (*_CHANGES, "label-shifted")
