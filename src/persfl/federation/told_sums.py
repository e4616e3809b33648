"""Sums that devices tell: how they travel, whether they can be sums over rows, and how much each
counts.

Nobody sees the rows behind them. But sums over rows obey laws, and what breaks one is no sum: with
M the sums of products of all columns and the label, M is symmetric with no negative direction,
which holds the product between square and label (Cauchy and Schwarz) as well; and the column of
ones sums to the weight.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from persfl.learners.linear import Linear
from persfl.methods.blend.fixed_point import LONG, counted
from persfl.methods.blend.forms import Form
from persfl.methods.blend.questions import PartSums, Question, Take, reply_numbers
from persfl.methods.mixed.device_sums import DeviceSums, total
from persfl.methods.mixed.hidden_rows import NEVER
from persfl.types import Array

MANY = NEVER + 1  # parts that are told of, those without rows as zeros
ROUNDING = 1e-8  # of a share: sums are made from rounded numbers


@dataclass(frozen=True, eq=False)
class SumsFamily:
    """Linear models under squared loss, as `persfl.methods.blend.forms.ModelFamily`: devices are
    asked for their sums, and handed a model.
    """

    learner: Linear
    features: int
    classes: ClassVar[int] = 0
    views: ClassVar[tuple[str, ...]] = ()
    proposer: ClassVar[None] = None
    questions: ClassVar[tuple[type[Question], ...]] = (PartSums, Take)

    @property
    def size(self) -> int:
        """Of a model."""
        return self.learner.size(self.features)

    @property
    def level(self) -> bool:
        """Whether the first column of the sums is one of ones."""
        return self.learner.intercept

    def start_forms(self) -> Mapping[str, Form]:
        """Nothing is offered to be judged at home."""
        return {}

    def written(self, parts: Sequence[DeviceSums]) -> dict[str, Array]:
        """One device's sums of each part, as arrays; `read` takes them back."""
        every = DeviceSums(*(np.concatenate(each) for each in zip(*parts, strict=True)))
        upper = np.triu_indices(self.size)
        return every._replace(square=every.square[:, *upper])._asdict()

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
    rest = sums.product[:, :, None]
    last = np.concatenate([rest, sums.label[:, None, None]], axis=1)
    M = np.concatenate([sums.square, rest.transpose(0, 2, 1)], axis=1)
    M = np.concatenate([M, last], axis=2)
    if np.abs(M[weight == 0]).max(initial=0.0) > 0:
        return False
    diagonal = np.einsum("kii->ki", M)
    if (diagonal < 0).any():
        return False
    # each column as long as it is, so that what is small is looked at as closely
    root = np.maximum(np.sqrt(diagonal), 1e-150)
    alike = M / root[:, :, None] / root[:, None, :]
    lowest = np.linalg.eigvalsh(np.clip(alike, -2.0, 2.0)).min()
    return bool(lowest >= -ROUNDING * M.shape[1])


def counting(parts: Sequence[DeviceSums]) -> Array:
    """(devices,) what the sums of each are multiplied by: 1, or less for those that tell of more
    than ten usual devices have, or of a part that weighs more than ten usual ones of their own. Of
    three devices or more, what is usual is the middle one.

    >>> many = DeviceSums(np.ones((3, 1, 1)), np.ones((3, 1)), np.ones(3), np.ones(3))
    >>> counting([many.weighed(np.array([1.0, 1.0, 100.0]))] * 2).tolist()
    [1.0, 1.0, 0.02]
    """
    sums = total(parts)
    weight = sums.weight
    found = np.asarray(counted(weight) / weight)
    if len(weight) < 3:
        return found
    spread = np.einsum("nii->n", sums.square)
    for size in (spread, sums.label):
        most = LONG * float(np.median(size))
        if most > 0:
            found = np.minimum(found, most / np.maximum(size, most))
    found = np.minimum(found, _evenness(parts))
    for each in (
        np.stack([np.einsum("nii->n", part.square) for part in parts[:NEVER]]),
        np.stack([part.label for part in parts[:NEVER]]),
    ):
        found = np.minimum(found, _level_of_parts(each))
    return np.asarray(found)


def _level_of_parts(size: Array) -> Array:
    """(devices,) 1, or less where one part of a device is more than a hundred of its usual ones, by
    a size (parts, devices): hidden, it alone would say what offers are worth.
    """
    there = np.where(size > 0, size, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of no parts at all
        usual = np.nan_to_num(np.nanmedian(there, axis=0))
    most = LONG**2 * usual
    several = (size > 0).sum(axis=0) > 2
    less = most / np.maximum(size.max(axis=0), most).clip(1e-300)
    return np.where(several & (usual > 0), less, 1.0)


def _evenness(parts: Sequence[DeviceSums]) -> Array:
    """(devices,) 1, or less where one part weighs more than ten usual ones of the same device.

    Rows are dealt evenly. Who puts all weight into one part is never learned from when that is
    hidden, and would alone decide what everybody's offers are worth. A part without others counts
    as one usual part of the fleet.
    """
    weight = np.sort(np.stack([each.weight for each in parts[:NEVER]]), axis=0)
    count = (weight > 0).sum(axis=0)
    if not count.any():
        return np.ones(len(count))
    last = len(weight) - 1
    middle = np.minimum(len(weight) - count + (count - 1) // 2, last).clip(0)
    most = LONG * np.take_along_axis(weight, middle[None], axis=0)[0]
    lone = (count == 1) & (total(parts).weight == weight[-1])
    most[lone] = np.minimum(most[lone], np.median(most[count > 0]) / LONG)
    return np.where(count > 0, most / np.maximum(weight[-1], most).clip(1e-300), 1.0)
