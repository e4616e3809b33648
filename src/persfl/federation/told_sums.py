"""Sums that devices tell: how they travel, whether they can be sums over rows, and how much each
counts.

Nobody sees the rows behind them. But sums over rows obey laws, and what breaks one is no sum: with
M the sums of products of all columns and the label, M is symmetric with no negative direction,
which holds the product between square and label (Cauchy and Schwarz) as well; and the column of
ones sums to the weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from persfl.learners.linear import Linear
from persfl.methods.blend.fixed_point import LONG, counted
from persfl.methods.blend.forms import Form
from persfl.methods.blend.question_base import Question, reply_numbers
from persfl.methods.blend.questions import Draw, PartSums, Take
from persfl.methods.mixed.device_sums import DeviceSums, total
from persfl.methods.mixed.hidden_rows import NEVER
from persfl.methods.mixed.latest_rows import LatestRows
from persfl.types import Array, Mask

MANY = NEVER + 1  # parts that are told of, those without rows as zeros
ROUNDING = 1e-8  # of a share: sums are made from rounded numbers


@dataclass(frozen=True, eq=False)
class LinearSums:
    """What families of linear models that are made from sums over rows have in common."""

    learner: Linear
    features: int
    classes: ClassVar[int] = 0
    views: ClassVar[tuple[str, ...]] = ()
    proposer: ClassVar[None] = None

    @property
    def size(self) -> int:
        """Of a model."""
        return self.learner.size(self.features)

    @property
    def level(self) -> bool:
        """Whether the first column of the sums is one of ones."""
        return self.learner.intercept


@dataclass(frozen=True, eq=False)
class SumsFamily(LinearSums):
    """Linear models under squared loss, as `persfl.methods.blend.forms.ModelFamily`: devices are
    asked for their sums, and handed a model.
    """

    questions: ClassVar[tuple[type[Question], ...]] = (PartSums, Draw, Take)

    def start_forms(self) -> Mapping[str, Form]:
        """Nothing is offered to be judged at home."""
        return {}

    def written(
        self, parts: Sequence[DeviceSums], latest: Array | None = None
    ) -> dict[str, Array]:
        """One device's sums of each part, as arrays, and where rows are ordered those of the latest
        rows of each (parts, columns and label); `read` and `read_latest` take them back.
        """
        every = DeviceSums(*(np.concatenate(each) for each in zip(*parts, strict=True)))
        upper = np.triu_indices(self.size)
        found = every._replace(square=every.square[:, *upper])._asdict()
        return found if latest is None else found | {"latest": latest}

    def read(self, told: Mapping[str, Any]) -> DeviceSums | None:
        """The sums of a device's parts; None where they are no sums over rows."""
        upper = np.triu_indices(self.size)
        half = reply_numbers(told.get("square"), (MANY, len(upper[0])))
        square = np.zeros((MANY, self.size, self.size))
        square[:, *upper] = half
        square[:, *upper[::-1]] = half
        product = reply_numbers(told.get("product"), (MANY, self.size))
        label, weight = (
            reply_numbers(told.get(k), (MANY,)) for k in ("label", "weight")
        )
        found = DeviceSums(square, product, label, weight)
        return found if is_of_rows(found, self.level) else None

    def read_latest(
        self, told: Mapping[str, Any], sums: DeviceSums
    ) -> LatestRows | None:
        """The mean of the latest rows of each part with these sums, zeros where nothing is told;
        None where there can be no such rows.
        """
        if "latest" not in told:
            return LatestRows(np.zeros((MANY, self.size)), np.zeros(MANY))
        latest = reply_numbers(told.get("latest"), (MANY, self.size + 1))
        if not np.isfinite(latest).all() or not (self.level or not latest.any()):
            return None
        count = latest[:, 0]
        there = count > 0
        few = count <= sums.weight * (1.0 + ROUNDING)
        if not few.all() or latest[~there].any():
            return None
        mean = latest / np.where(there, count, 1.0)[:, None]
        # a few of the rows behind M, that weigh c and have the mean v:  M - c v v'  are the rest
        rest = _products(sums) - count[:, None, None] * mean[:, :, None] * mean[:, None]
        if not _of_rows(rest, _products(sums)):
            return None
        return LatestRows(mean[:, :-1], mean[:, -1])


def latest_of(latest: Sequence[LatestRows], learn: Sequence[int]) -> LatestRows:
    """Those of the last of these parts of which each device tells any.

    >>> parts = [LatestRows(np.ones((2, 1)), np.array([3.0, 4.0]))]
    >>> parts += [LatestRows(np.array([[1.0], [0.0]]), np.array([5.0, 0.0]))]
    >>> latest_of(parts, (0, 1)).label.tolist()
    [5.0, 4.0]
    """
    columns, label = latest[0].columns * 0.0, latest[0].label * 0.0
    for k in sorted(learn):
        there = latest[k].columns[:, 0] > 0
        columns = np.where(there[:, None], latest[k].columns, columns)
        label = np.where(there, latest[k].label, label)
    return LatestRows(columns, label)


def is_of_rows(sums: DeviceSums, level: bool) -> bool:
    """Whether these can be sums over rows, with room for rounding; of some rows at all.

    >>> Z = np.array([[1.0, 2.0], [1.0, 4.0]])
    >>> true = DeviceSums.of(Z, np.array([1.0, 3.0]), np.ones(2), np.array([0, 2]))
    >>> is_of_rows(true, True), is_of_rows(true._replace(label=true.label / 9), True)
    (True, False)
    """
    every = (sums.square, sums.product, sums.label, sums.weight)
    if not all(np.isfinite(array).all() for array in every):
        return False
    weight = sums.weight
    if (weight < 0).any() or not weight.sum() > 0:
        return False
    if level and (np.abs(sums.square[:, 0, 0] - weight) > ROUNDING * weight).any():
        return False
    M = _products(sums)
    if np.abs(M[weight == 0]).max(initial=0.0) > 0:
        return False
    return _of_rows(M, M)


def _products(sums: DeviceSums) -> Array:
    """(parts, columns and label, columns and label) of all columns and the label."""
    rest = sums.product[:, :, None]
    last = np.concatenate([rest, sums.label[:, None, None]], axis=1)
    M = np.concatenate([sums.square, rest.transpose(0, 2, 1)], axis=1)
    return np.concatenate([M, last], axis=2)


def _of_rows(M: Array, whole: Array) -> bool:
    """Whether M has no negative direction, where columns are as long as they are in `whole`: what
    is small is looked at as closely.
    """
    diagonal = np.einsum("kii->ki", whole)
    if (diagonal < 0).any():
        return False
    root = np.maximum(np.sqrt(diagonal), 1e-150)
    alike = M / root[:, :, None] / root[:, None, :]
    lowest = np.linalg.eigvalsh(np.clip(alike, -2.0, 2.0)).min()
    return bool(lowest >= -ROUNDING * M.shape[1])


def counting(parts: Sequence[DeviceSums]) -> Array:
    """(devices,) what the sums of each are multiplied by: 1, or less for those that tell of more
    than ten usual devices have. Of three devices or more, what is usual is the middle one.

    >>> many = DeviceSums(np.ones((3, 1, 1)), np.ones((3, 1)), np.ones(3), np.ones(3))
    >>> counting([many.weighed(np.array([1.0, 1.0, 100.0]))] * 2).tolist()
    [1.0, 1.0, 0.02]
    """
    sums = total(parts)
    return counting_of(sums.weight, sums.square, sums.label)


def counting_of(weight: Array, square: Array, label: Array) -> Array:
    """(devices,) the same of devices whose sums these are in all."""
    found = np.asarray(counted(weight) / weight)
    if len(weight) < 3:
        return found
    for size in (np.einsum("nii->n", square), label):
        most = LONG * float(np.median(size))
        if most > 0:
            found = np.minimum(found, most / np.maximum(size, most))
    return np.asarray(found)


def uneven(parts: Sequence[DeviceSums]) -> Mask:
    """(devices,) those of which one part has the weight or squares of more than ten usual parts
    of the same device, or labels of more than a hundred; also those with one part that is no usual
    one.

    Rows are dealt evenly. A part that is all of a device is never learned from when it is hidden,
    and would alone decide what everybody's offers are worth.

    >>> many = DeviceSums(np.ones((2, 1, 1)), np.ones((2, 1)), np.ones(2), np.ones(2))
    >>> uneven([many, many, many.weighed(np.array([1.0, 11.0])), many, many]).tolist()
    [False, True]
    """
    dealt = parts[:NEVER]
    weight = np.stack([part.weight for part in dealt])
    # in shared units a row's squares are about 1: what is nearly nothing is not so far from it
    square = weight + [np.einsum("nii->n", part.square) for part in dealt]
    label = weight + [part.label for part in dealt]
    there = weight > 0
    count = there.sum(axis=0)
    if not there.any():
        return np.zeros(len(count), dtype=bool)
    usual = _usual(weight, there)
    # one row is one part; what weighs more in one part was not dealt
    found = (count == 1) & (usual > np.median(usual[count > 0]))
    for size, most in ((weight, LONG), (square, LONG), (label, LONG**2)):
        found |= size.max(axis=0) > most * _usual(size, there)
    return np.asarray(found & (count > 0))


def _usual(size: Array, there: Mask) -> Array:
    """(devices,) the middle of the parts that are there, of two the smaller."""
    sizes = np.sort(np.where(there, size, np.inf), axis=0)
    middle = ((there.sum(axis=0) - 1) // 2).clip(0)
    return np.asarray(np.take_along_axis(sizes, middle[None], axis=0)[0])


def in_one_part(parts: Sequence[DeviceSums], who: Mask) -> list[DeviceSums]:
    """The same sums, those of `who` in the part that is never hidden."""
    moved = who.astype(np.float64)
    kept = [part.weighed(1.0 - moved) for part in parts]
    whole = total([kept[NEVER], total(parts).weighed(moved)])
    return [*kept[:NEVER], whole]
