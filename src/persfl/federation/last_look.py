"""A device's last look at the model that it ends with: whether its own rows do better alone.

Shares are decided by what the fleet says of hidden rows, and what others answer for all rows no
fold has judged: one peer could be honest about the former and lie in the latter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from persfl.learners.responses import respond
from persfl.methods.blend.evidence import MOST, missed
from persfl.methods.blend.folds import TargetRows
from persfl.methods.mixed.class_home import SURE, WORSE
from persfl.methods.mixed.made_up_rows import has_strayed, rolled_columns
from persfl.types import Array, Data, Learner, Model

# own hidden errors of few rows may be small by luck: by so many rows' worth of them
SMALL = 40.0


class Alone(NamedTuple):
    """A model of own rows alone, and its mean loss over folds; without any, inf."""

    model: Model
    loss: float


class MixLosses(NamedTuple):
    """Mean losses of a mix, over all rows and over folds, and of own rows alone by folds (inf
    without any); what labels vary, what few that are alike by luck may vary besides, and how many
    rows there are.
    """

    seen: float
    hidden: float
    alone: float
    spread: float
    alike: float
    rows: float


def loses_much(looked: MixLosses) -> bool:
    """Whether a mix loses more than twice as much over all rows, which it has seen, as own rows
    alone do by folds, or ten times as much over folds.

    >>> looked = MixLosses(0.3, 0.1, 0.1, 1.0, 0.0, 10.0)
    >>> [loses_much(looked._replace(seen=seen)) for seen in (0.3, 0.5, np.nan)]
    [False, True, True]

    Where labels hardly have noise, own hidden errors say so:

    >>> loses_much(looked._replace(alone=0.001))
    True
    """
    level = looked.spread + looked.alike
    usual = looked.alone if np.isfinite(looked.alone) else level
    small = SMALL * max(usual, 0.0) + SURE * max(looked.alike - looked.spread, 0.0)
    luck = min(SURE * level, small) / max(looked.rows, 1.0)
    # what is no number is worse than anything
    sound = looked.seen <= WORSE * usual + luck
    return not (sound and looked.hidden <= MOST * usual + luck)


def is_worse(
    learner: Learner, own: TargetRows, models: Sequence[Model], alone: Alone
) -> bool:
    """Whether a mix loses far more than own rows alone do by folds: twice as much over all rows,
    which the mix has seen, or where these cannot see it (see `made_up_rows`), or ten times as much
    over folds. `models` are what it comes to with all rows, and without each fold.

    >>> from persfl import Devices, Linear
    >>> y = np.arange(1.0, 9.0)
    >>> rows = Devices.of([(y[:, None], y)], quiet=True)
    >>> from persfl.methods.blend.folds import Folding
    >>> own = TargetRows(rows, Folding(), np.zeros(1, dtype=np.int64))
    >>> good, bad = np.array([1.0]), np.array([-1.0])
    >>> copies = [good] * own.folding.count
    >>> looks = [[good, *copies], [bad, *copies], [good, *(bad for _ in copies)]]
    >>> [is_worse(Linear(), own, models, Alone(good, 0.1)) for models in looks]
    [False, True, True]
    """
    classes = own.folding.classes
    rows = own.rows[0]
    weight = own.usable
    hidden = 0.0
    for fold in np.unique(own.fold[weight > 0]).tolist():
        some = rows.take(np.flatnonzero((own.fold == fold) & (weight > 0)))
        part = float(some.weight.sum() / weight.sum())
        hidden += part * _mean_loss(learner, models[1 + fold], some, classes)
    seen = _mean_loss(learner, models[0], rows, classes)
    strayed = _strayed(learner, rows, models, classes)
    seen = max(seen, hidden + strayed if strayed else 0.0)
    many = float((rows.weight > 0).sum())
    spread, alike = _levels(rows, classes)
    return loses_much(MixLosses(seen, hidden, alone.loss, spread, alike, many))


def _strayed(
    learner: Learner, rows: Data, models: Sequence[Model], classes: int
) -> float:
    """What a mix loses at made-up rows, where those without each fold say the labels, if it is
    unlike them.
    """
    X = rolled_columns(rows.X)
    with np.errstate(all="ignore"):
        said = np.stack([respond(learner, each, X, classes) for each in models])
        if not has_strayed(said[0], said[1:]):
            return 0.0
        each = (said[0] - said[1:].mean(axis=0)) ** 2
        each = each.sum(axis=1) if classes else each
        return float(rows.weight @ each / rows.weight.sum())


def _mean_loss(learner: Learner, model: Model, rows: Data, classes: int) -> float:
    with np.errstate(all="ignore"):
        each = missed(respond(learner, model, rows.X, classes), rows.y, classes)
        return float(rows.weight @ each / rows.weight.sum())


def _levels(rows: Data, classes: int) -> tuple[float, float]:
    """What is lost by saying the same of every row, even chances or the mean; and what else few
    rows that are alike by luck may lose: one says nothing of how far others are from it.
    """
    if classes:
        return 1.0 - 1.0 / classes, 0.0
    share: Array = rows.weight / rows.weight.sum()
    mean = float(share @ rows.y)
    many = int((rows.weight > 0).sum())
    return float(share @ (rows.y - mean) ** 2), (mean / max(many, 1)) ** 2
