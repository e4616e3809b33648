"""Neighbours: every other device may be the centre of a device's model, and all are as likely.

    w_i ~ mean over the centres j of N(w_j, Sigma)

Kinds, neighbours and one big crowd are found by the same rule. With t the precision of device i's
noise, V = (t G + P)^-1, H = t G - t G V t G and h = t b - t G V t b (see `mixed_model`), how well
the rows of i go with the centre j is

    log chance_ij = h_i' w_j - w_j' H_i w_j / 2 + a number of i alone

and the *posterior* q_ij is its share among all centres. A device's model is then what its rows make
of the mean centre: V (t b + P sum_j q_ij w_j). Sigma is found by EM.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from persfl.methods.mixed.device_sums import DeviceSums
from persfl.types import Array, IntArray

STEPS = 4  # of EM; more change nothing that hidden rows could tell
LEAST = 1e-6  # variance


class Near(NamedTuple):
    """Models (n, d), the posterior (n, centres), and Sigma."""

    models: Array
    posterior: Array
    Sigma: Array


def near(
    sums: DeviceSums,
    precision: Array,
    start: Array,
    Sigma: Array,
    centres: IntArray,
    steps: int = STEPS,
) -> Near:
    """From models `start` and this Sigma; `centres` are the devices that may be one."""
    n, d = start.shape
    G = precision[:, None, None] * sums.square
    b = precision[:, None] * sums.product
    models = start
    here = np.full(n, -1)
    here[centres] = np.arange(len(centres))
    mine = np.flatnonzero(here >= 0)
    q = np.empty((n, len(centres)))
    V = _unknown(G, Sigma)
    # products of two coefficients, each pair once: most of the time goes to these
    one, other = np.triu_indices(d)
    twice = np.where(one == other, 1.0, 2.0)
    for step in range(steps + 1):
        W = models[centres]
        outer = W[:, one] * W[:, other]
        side = G @ V
        H = G - side @ G
        h = b - np.einsum("nij,nj->ni", side, b)
        q = h @ W.T - (H[:, one, other] * (twice / 2)) @ outer.T
        q[mine, here[mine]] = -np.inf  # nobody is the own centre
        q = np.exp(q - q.max(axis=1, keepdims=True))
        q /= q.sum(axis=1, keepdims=True)
        mean = q @ W
        # what is expected of w_i given the centre j, less w_j:  own_i - pull_i w_j
        own = np.einsum("nij,nj->ni", V, b)
        pull = V @ G
        models = own + mean - np.einsum("nij,nj->ni", pull, mean)
        if step < steps:
            second = np.empty((n, d, d))
            second[:, one, other] = second[:, other, one] = q @ outer
            cross = np.einsum("nij,nj,nk->ik", pull, mean, own, optimize=True)
            spread = np.einsum("nij,njk,nlk->il", pull, second, pull, optimize=True)
            Sigma = V.sum(axis=0) + own.T @ own - cross - cross.T + spread
            Sigma = (Sigma + Sigma.T) / (2 * n)
            V = _unknown(G, Sigma)
    return Near(models, q, Sigma)


def toward_centres(
    sums: DeviceSums, precision: Array, mean: Array, Sigma: Array
) -> Array:
    """(n, d) what rows make of the mean centre (n, d) of each device."""
    G = precision[:, None, None] * sums.square
    V = _unknown(G, Sigma)
    own = np.einsum("nij,nj->ni", V, precision[:, None] * sums.product)
    return np.asarray(own + mean - np.einsum("nij,nj->ni", V @ G, mean))


def _unknown(G: Array, Sigma: Array) -> Array:
    """(n, d, d) what is unknown of w_i once its rows and its centre are known."""
    P = np.linalg.inv(Sigma + LEAST * np.eye(len(Sigma)))
    return np.linalg.inv(G + P)
