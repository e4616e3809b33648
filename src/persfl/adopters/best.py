"""Adopt the single answer with the smallest own loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from persfl.compiled import kernels
from persfl.trust import Trust
from persfl.types import Array, Choice, IntArray


def _best(peers: IntArray, losses: Array) -> tuple[IntArray, Array]:
    """(T,) the peer with the smallest loss, -1 without usable answers, and its loss."""
    fast = kernels()
    kinds = peers.dtype.char + losses.dtype.char
    if (
        fast is not None
        and kinds == "ld"
        and peers.flags.c_contiguous
        and losses.flags.c_contiguous
    ):
        found: tuple[IntArray, Array] = fast.least(peers, losses)
        return found
    if not peers.shape[1]:
        return np.full(len(peers), -1), np.full(len(peers), np.inf)
    row = np.arange(len(peers))
    column = losses[:, 1:].argmin(axis=1)
    least = losses[row, column + 1]
    return np.where(least < np.inf, peers[row, column], -1), least


def _adopt(peer: IntArray) -> Choice:
    took = (peer >= 0).astype(np.float64)
    return Choice(peer[:, None], took[:, None], 1.0 - took)


@dataclass(frozen=True)
class Best:
    """The paper's rule: always the best answer, even one that is worse than staying.

    >>> Best()(None, np.array([[4, 7]]), np.array([[1.0, 3.0, 2.0]])).peers.tolist()
    [[7]]
    """

    def __call__(self, trust: Trust | None, peers: IntArray, losses: Array) -> Choice:
        return _adopt(_best(peers, losses)[0])


@dataclass(frozen=True)
class BestOrStay:
    """The best answer if it lowers the own loss, else stay.

    Looks safe and is not always: with fewer rows than coefficients a target soon fits its own rows
    and then never moves again.

    >>> BestOrStay()(
    ...     None, np.array([[4, 7]]), np.array([[1.0, 3.0, 2.0]])
    ... ).stay.tolist()
    [1.0]
    """

    def __call__(self, trust: Trust | None, peers: IntArray, losses: Array) -> Choice:
        peer, least = _best(peers, losses)
        return _adopt(np.where(least < losses[:, 0], peer, -1))
