"""What answers determine exactly: how many numbers are known, and how near a guess comes.

Under squared loss every answer is made of sums of products of columns and the label. Whoever has
as many different answers as there are such numbers has all of them; where a part has no more rows
than columns, they are the rows, up to a turn; a part of one row is that row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from persfl.types import Array


class Known(NamedTuple):
    """`unknowns` numbers there are to be known, `rank` of them are determined, and `questions`
    answers would determine all.
    """

    unknowns: int
    rank: int
    questions: int

    @property
    def share(self) -> float:
        """How much of it is known."""
        return self.rank / self.unknowns


def known_by_steps(models: Array) -> Known:
    """What is known of a device's second moments by someone with its steps from these models
    (answers, columns): each tells `square @ model - product`.

    >>> known_by_steps(np.zeros((1, 3)))
    Known(unknowns=9, rank=3, questions=4)
    >>> known_by_steps(np.vstack([np.zeros(3), np.eye(3)])).share
    1.0
    """
    d = models.shape[1]
    at = np.triu_indices(d)
    wide = len(at[0])
    lines = []
    for model in models:
        block = np.zeros((d, wide + d))
        for k, (i, j) in enumerate(zip(*at, strict=True)):
            block[i, k] += model[j]
            if i != j:
                block[j, k] += model[i]
        block[:, wide:] = -np.eye(d)
        lines.append(block)
    rank = int(np.linalg.matrix_rank(np.vstack(lines))) if lines else 0
    return Known(wide + d, rank, d + 1)


def moment_error(told: Array, true: Array) -> float:
    """How far a guess of second moments is off, as a share of their size.

    >>> moment_error(np.eye(2), np.eye(2)), moment_error(np.zeros((2, 2)), np.eye(2))
    (0.0, 1.0)
    """
    size = float(np.linalg.norm(true))
    return float(np.linalg.norm(told - true)) / size if size else 0.0


def row_error(told: Array, row: Array) -> float:
    """How far the best guess of a row is off, as a share of its length, from sums over a part
    that has this row alone: the largest direction of the sums, turned so that the first entry,
    which is 1 in every row, is right.

    >>> u = np.array([1.0, 2.0, -3.0])
    >>> round(row_error(np.outer(u, u), u), 9)
    0.0
    """
    value, turn = np.linalg.eigh((told + told.T) / 2)
    guess = turn[:, -1] * np.sqrt(max(float(value[-1]), 0.0))
    guess = guess * (1.0 if guess[0] >= 0 else -1.0)
    return float(np.linalg.norm(guess - row) / np.linalg.norm(row))
