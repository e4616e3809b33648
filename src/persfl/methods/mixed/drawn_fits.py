"""A mixed model from refits: what the likelihood needs to know of a device whose sums are not told.

A device that adds points P to its rows, with P'P = A, and labels them by a model v, answers

    w(v) = (G + A)^-1 (b + A v),   G = Z'Z,  b = Z'y

With A = D^-1, where D is Sigma over the noise, that is the mixed model's own prediction under a
centre v. Answers to a centre m and to one aside of it say the rest, in units of the noise:

    w(m + u) - w(m) = K u,         K = (G + A)^-1 A
    H = A (I - K)                  = Z' Omega^-1 Z
    h = A (w(m) - m) + H m         = Z' Omega^-1 y
    left = |y - Z w(m)|^2 + (w(m) - m)' A (w(m) - m) + 2 m'h - m'H m     = y' Omega^-1 y
    within = -log det K            = log det Omega

From these the likelihood is what it is from sums (`persfl.methods.mixed.reml`), so that both end at
the same models. Columns whose own effects are none are drawn by A that is very large instead of
without end; that, and rounding, is all the difference there is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.reml import EffectSums
from persfl.types import Array, Mask

HAIR = 1e-8  # of D: the least that an own effect may vary, in columns of size 1
ODD = 1e-4  # how far from symmetric, and from between 0 and A, rounding may leave H


class Drawing(NamedTuple):
    """What devices are asked: a root P of the pull A = P'P, and centres (1 + width, width): one,
    and one aside of it for every column.
    """

    root: Array
    centres: Array

    @staticmethod
    def toward(L: Array, centre: Array) -> Drawing:
        """Under D = L L' (in all columns) and no less than a hair."""
        width = len(centre)
        size, turn = np.linalg.eigh(L @ L.T)
        root = (turn / np.sqrt(np.maximum(size, 0.0) + HAIR)).T
        aside = max(float(np.abs(centre).max()), 1e-3)
        asides = centre + aside * np.eye(width)
        return Drawing(root, np.concatenate([centre[None], asides]))


class DrawnFits(NamedTuple):
    """What devices answer: (n, 1 + width, width) models, (n,) sums of squares that the first of
    them leaves of the rows, and (n,) what these weigh.
    """

    models: Array
    left: Array
    weight: Array

    def evidence(self, asked: Drawing) -> EffectSums:
        """Of every device."""
        A = asked.root.T @ asked.root
        m = asked.centres[0]
        aside = (asked.centres[1:] - m).diagonal()
        first = self.models[:, 0]
        K = (self.models[:, 1:] - first[:, None]).transpose(0, 2, 1) / aside
        H = A @ (np.eye(len(m)) - K)
        H = (H + H.transpose(0, 2, 1)) / 2
        own = (first - m) @ A
        h = own + H @ m
        left = self.left + np.einsum("ni,ni->n", first - m, own)
        left = left + 2.0 * h @ m - np.einsum("i,nij,j->n", m, H, m)
        within = -np.linalg.slogdet(K)[1]
        return EffectSums(H, h, left, within)

    def of_rows(self, asked: Drawing) -> Mask:
        """(n,) whose answers can be such of rows: numbers, and 0 <= H <= A."""
        told = np.isfinite(self.models).all(axis=(1, 2))
        told &= np.isfinite(self.left) & (self.left >= 0)
        told &= np.isfinite(self.weight) & (self.weight > 0)
        sound = np.where(told[:, None, None], self.models, 0.0)
        m = asked.centres[0]
        aside = (asked.centres[1:] - m).diagonal()
        moved = (sound[:, 1:] - sound[:, :1]).transpose(0, 2, 1) / aside
        # P K P^-1 = (1 + P^-T G P^-1)^-1 is symmetric, and lies between 0 and 1
        inverse = np.linalg.inv(asked.root)
        S = asked.root @ moved @ inverse
        apart = np.abs(S - S.transpose(0, 2, 1)).max(axis=(1, 2))
        size = np.linalg.eigvalsh((S + S.transpose(0, 2, 1)) / 2)
        within = (size[:, 0] > -ODD) & (size[:, -1] < 1 + ODD)
        return np.asarray(told & within & (apart < ODD))


def drawn_fits(sums: DeviceSums, asked: Drawing) -> DrawnFits:
    """What devices with these sums answer; their columns stand in the order of the centres'.

    >>> Z = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 3.0]])
    >>> y = np.array([0.0, 1.0, 2.0])
    >>> sums = DeviceSums.of(Z, y, np.ones(3), np.array([0, 3]))
    >>> asked = Drawing.toward(np.eye(2), np.array([0.5, 0.5]))
    >>> found = drawn_fits(sums, asked)
    >>> found.models.shape, bool(found.of_rows(asked)[0])
    ((1, 3, 2), True)
    """
    A = asked.root.T @ asked.root
    pulled = sums.product[:, None] + asked.centres @ A
    solved = np.linalg.solve(sums.square + A, pulled.transpose(0, 2, 1))
    models = np.ascontiguousarray(solved.transpose(0, 2, 1), dtype=np.float64)
    return DrawnFits(models, sums.residual(models[:, 0]), sums.weight)
