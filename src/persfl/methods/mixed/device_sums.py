"""What squared loss needs to know of a device: four sums over its rows.

    square = Z'Z    product = Z'y    label = y'y    weight = number of rows

`Z` are the device's rows, with a column of ones in front where models have a level. Every linear
model of squared loss, its residuals on any rows, and its noise follow from these, so rows are read
once, and hiding some of them is a subtraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from persfl.types import Array, IntArray


class DeviceSums(NamedTuple):
    """The sums of every device: (n, d, d), (n, d), (n,) and (n,)."""

    square: Array
    product: Array
    label: Array
    weight: Array

    @staticmethod
    def of(Z: Array, y: Array, weight: Array, start: IntArray) -> DeviceSums:
        """Of rows that stand device by device; those of device i are start[i] to start[i + 1].

        >>> Z = np.array([[1.0, 2.0], [1.0, 4.0], [1.0, 5.0]])
        >>> y = np.array([1.0, 2.0, 3.0])
        >>> DeviceSums.of(Z, y, np.ones(3), np.array([0, 2, 3])).product.tolist()
        [[3.0, 10.0], [3.0, 15.0]]
        """
        n = len(start) - 1
        d = Z.shape[1]
        square = np.zeros((n, d, d))
        found = DeviceSums(square, np.zeros((n, d)), np.zeros(n), np.zeros(n))
        weighed = Z * weight[:, None]
        for i in range(n):
            rows = slice(start[i], start[i + 1])
            mine = weighed[rows].T
            label = y[rows]
            share = weight[rows]
            found.square[i] = mine @ Z[rows]
            found.product[i] = mine @ label
            found.label[i] = (share * label) @ label
            found.weight[i] = share.sum()
        return found

    def weighed(self, by: Array) -> DeviceSums:
        """As if each device's rows weighed so many times as much."""
        found = []
        for array in self:
            rest = [1] * (array.ndim - 1)
            found.append(array * by.reshape(-1, *rest))
        return DeviceSums(*found)

    def turned(self, axes: Array) -> DeviceSums:
        """Of columns Z @ axes instead of Z."""
        square = axes.T @ self.square @ axes
        return DeviceSums(square, self.product @ axes, self.label, self.weight)

    def residual(self, models: Array) -> Array:
        """(n,) sums of squared residuals of a model per device.

        What is left of a perfect model after rounding counts as 0.
        """
        fitted = np.einsum("ni,nij,nj->n", models, self.square, models)
        said = (models * self.product).sum(axis=1)
        left = self.label - 2.0 * said + fitted
        return np.asarray(np.maximum(left, 0.0))

    def missed(self, models: Array) -> Array:
        """(n, models) mean squared residuals of every model (models, d) on every device's rows."""
        n, d = self.product.shape
        outer = models[:, :, None] * models[:, None, :]
        flat = outer.reshape(len(models), d * d)
        square = self.square.reshape(n, d * d)
        fitted = square @ flat.T - 2.0 * self.product @ models.T
        left = np.maximum(self.label[:, None] + fitted, 0.0)
        return left / self.weight[:, None]

    def crossed(self, models: Array) -> Array:
        """(offers, offers) sums of products of residuals, of offers' models (offers, n, d)."""
        fitted = np.einsum("cni,nij->cnj", models, self.square)
        both = np.einsum("cni,eni->ce", fitted, models)
        mine = np.einsum("cni,ni->c", models, self.product)
        return np.asarray(self.label.sum() - mine[:, None] - mine[None, :] + both)


def total(parts: Sequence[DeviceSums]) -> DeviceSums:
    """Of all these rows together."""
    return DeviceSums(*(np.sum(each, axis=0) for each in zip(*parts, strict=True)))


def about_own_means(sums: DeviceSums) -> tuple[DeviceSums, Array]:
    """The same sums with columns taken about each device's own means, and the way back.

    The first column must be the ones. A model v of those columns is the model `back' v` of these.
    """
    n, d = sums.product.shape
    back = np.repeat(np.eye(d)[None], n, axis=0)
    # what the ones weigh: of working rows not their number
    mass = np.maximum(sums.square[:, :1, 0], 1e-12)
    back[:, 1:, 0] = -sums.square[:, 1:, 0] / mass
    square = back @ sums.square @ back.transpose(0, 2, 1)
    product = np.einsum("nij,nj->ni", back, sums.product)
    return DeviceSums(square, product, sums.label, sums.weight), back
