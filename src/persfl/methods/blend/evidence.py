"""How much of each offer: by a device's own folds, and by what the folds of all others say.

    share ~ exp(-(n * own fold loss + 100 * mean fold loss of the others) * c / 3)        c = 1/2
    for squared error, 1 for Brier

`n` is the weight of the own rows that were judged. Squared errors are measured by the device's
level, so that one loud device does not decide for the fleet: the mean over its best third of
offers, together with the fleet's median level as if that were ten rows more, because two or three
rows can be fitted by luck. What an offer loses above a device's best one counts for the others as
at most three times what is usual: a few devices alone do not choose for all. The fold losses are
the one message beyond probes and proposals: a number per offer and device.
"""

from __future__ import annotations

import numpy as np

from persfl.types import Array, Mask

OTHERS = 100.0  # rows that the fleet's evidence counts as, at most
USUAL = 10.0  # rows that the fleet's level counts as
WARMTH = 3.0
FURTHEST = 3.0  # usual losses above the best offer that one device's say counts as, ...
LITTLE = 0.1  # ... and of a level, or of a Brier score, what is usual at least
MOST = 10.0  # an offer this many times above the level is as bad as any
LEAST = 1e-3  # a smaller share is nothing
WORST = 2.0  # a Brier score: sure of a class that is not the row's
# an offer this many times above the best one, or the level, is no model: any share is too much
ABSURD = 1e4


def missed(response: Array, y: Array, classes: int) -> Array:
    """(rows,) by how much responses miss labels: squared error, or the Brier score of chances
    (rows, classes).

    >>> (
    ...     missed(np.array([[0.5, 0.5]]), np.array([1.0]), 2).tolist(),
    ...     missed(np.array([3.0]), np.array([1.0]), 0).tolist(),
    ... )
    ([0.5], [4.0])
    """
    with np.errstate(all="ignore"):  # what overflows is not chosen
        return np.asarray(
            ((response - (y[:, None] == np.arange(classes))) ** 2).sum(axis=1)
            if classes
            else (response - y) ** 2
        )


def _others(own: Array, known: Mask) -> Array:
    """(devices, offers) by how much offers lose above a device's best, in the mean of all other
    devices that know. Nobody's say counts as much more than that of the others: without three, or
    the quarter, that say the most.

    >>> own = np.array([[1.0, 1.2], [1.0, 1.2], [1.0, 1.2], [10.0, 0.0]])
    >>> _others(own, np.full(4, True))[0].round(2).tolist()
    [0.1, 0.13]
    """
    above = (own - own.min(axis=1, keepdims=True)) * known[:, None]
    if known.any():
        many = int(known.sum())
        few = min(max(3, many // 4), many // 2)
        usual = np.sort(above[known], axis=0)[many - 1 - few]
        above = np.minimum(above, FURTHEST * np.maximum(usual, LITTLE))
    others = np.maximum(known.sum() - known, 1)[:, None]
    return np.asarray((above.sum(axis=0) - above) / others)


def shares_by_loss(
    losses: Array, rows: Array, *, relative: bool, sure: float = 1.0
) -> Array:
    """(devices, offers) from mean fold losses of that shape and the rows behind them; devices
    without any follow the others.

    `sure` is the share of all rows that could be judged.

    >>> losses = np.array([[1.0, 2.0], [1.0, 1.5], [1.0, 1.2]])
    >>> shares_by_loss(losses, np.array([10.0, 10.0, 0.0]), relative=False).round(
    ...     3
    ... ).tolist()
    [[0.993, 0.007], [0.993, 0.007], [0.993, 0.007]]

    Of an absurd offer not even a small share is taken, and it moves no level:

    >>> losses = np.array([[1.0, 2.0, 1e28], [1.0, 2.0, 1.0]])
    >>> shares_by_loss(losses, np.array([1.0, 1.0]), relative=True)[0].round(1).tolist()
    [0.5, 0.5, 0.0]

    Nobody's chances are worse than sure and wrong, whatever it says:

    >>> losses = np.vstack([np.tile([0.1, 0.6], (8, 1)), [[1e9, 0.0]]])
    >>> shares_by_loss(losses, np.full(9, 9.0), relative=False)[0].round(2).tolist()
    [1.0, 0.0]
    """
    known = rows > 0
    own = np.where(
        known[:, None],
        np.where(np.isfinite(losses), np.minimum(losses, 1e100), 1e100),
        0.0,
    )
    absurd = own > WORST * (1.0 + 1e-9)
    if not relative:
        absurd &= own > own.min(axis=1, keepdims=True)
        own = np.minimum(own, WORST)
    else:
        near = np.minimum(own, ABSURD * own.min(axis=1, keepdims=True))
        best = np.sort(near, axis=1)[:, : max(3, losses.shape[1] // 3)].mean(axis=1)
        usual = np.median(best[known]) if known.any() else 1.0
        level = (rows * best + USUAL * usual) / (rows + USUAL)
        own = own / np.maximum(level, 1e-12)[:, None]
        absurd = (own > ABSURD) & (own > own.min(axis=1, keepdims=True))
        own = np.minimum(own, MOST) * known[:, None]
    others = _others(own, known)
    heard = (rows * known).sum() - rows * known
    # few devices with few rows do not know as much
    told = np.minimum(OTHERS * sure, heard)
    score = (
        ((rows * known)[:, None] * own + told[:, None] * others)
        * (0.5 if relative else 1.0)
        / WARMTH
    )
    score = np.where(absurd, np.inf, score)
    weight = np.exp(-(score - score.min(axis=1, keepdims=True)))
    weight /= weight.sum(axis=1, keepdims=True)
    weight = np.where(weight >= LEAST, weight, 0.0)
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))
