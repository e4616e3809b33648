"""Sums that are noised once: all that squared loss will ever learn of a device's rows.

They are made in units of declared ranges, the same for every run. Any units, any choice of columns
and any question of squared loss follow from them without another look at the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from persfl.federation.privacy_settings import PrivacySettings
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.privacy.choice import WIDTH
from persfl.privacy.mechanisms import noised_products, product_clip
from persfl.privacy.secure_noise import NoiseSource
from persfl.types import Array, Data
from persfl.wire import Terms


class PrivateSums(NamedTuple):
    """Sums of products of (1, columns, label) in these units, noise and all."""

    columns: tuple[str, ...]
    middle: Array
    scale: Array
    matrix: Array

    @staticmethod
    def of(
        columns: Sequence[str],
        data: Data,
        settings: PrivacySettings,
        source: NoiseSource,
    ) -> PrivateSums:
        """Of these rows, with fresh noise."""
        middle, scale = settings.units(columns)
        values = (np.column_stack([data.X, data.y]) - middle) / scale
        edge = WIDTH / 2.0  # of a range, in these units
        inside = np.clip(values, -edge, edge)
        rows = Data(inside[:, :-1], inside[:, -1], np.minimum(data.weight, 1.0))
        clip = settings.length(product_clip(len(columns)))
        told = noised_products(rows, clip, settings.noise_of_sums, source)
        return PrivateSums(tuple(columns), middle, scale, possible(told.matrix))

    def inside(self, terms: Terms) -> Array:
        """The same of (1, columns, label) in the units of a run."""
        place = [self.columns.index(name) for name in terms.columns]
        at = [*place, len(self.columns)]  # the label is last
        zeros = np.zeros(terms.features)
        mean = np.append(zeros if terms.mean is None else terms.mean, terms.label_mean)
        ones = np.ones(terms.features)
        scale = np.append(
            ones if terms.scale is None else terms.scale, terms.label_scale
        )
        turn = np.zeros((len(at) + 1, len(self.matrix)))
        turn[0, 0] = 1.0
        for k, j in enumerate(at):
            turn[k + 1, 0] = (self.middle[j] - mean[k]) / scale[k]
            turn[k + 1, j + 1] = self.scale[j] / scale[k]
        return np.asarray(turn @ self.matrix @ turn.T)


def possible(matrix: Array) -> Array:
    """The nearest sums that rows could have: no direction is negative, and there is a row.

    >>> possible(np.array([[-3.0, 0.0], [0.0, 2.0]])).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    value, turn = np.linalg.eigh((matrix + matrix.T) / 2)
    found = (turn * np.maximum(value, 0.0)) @ turn.T
    found[0, 0] = max(found[0, 0], 1.0)
    return np.asarray(found)


def device_sums(matrix: Array, level: bool) -> DeviceSums:
    """Sums of one device from those of (1, columns, label)."""
    first = 0 if level else 1
    return DeviceSums(
        matrix[None, first:-1, first:-1],
        matrix[None, first:-1, -1],
        matrix[None, -1, -1],
        matrix[None, 0, 0],
    )
