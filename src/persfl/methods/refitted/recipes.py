"""The ways in which an estimator is fitted for a fleet, and what each of them costs.

    all rows      one fit to everybody's rows
    told          the same, told the device's own level and what the linear rule's offer `near` says
                  of a row: the device as a category, in numbers that also serve many devices
    near + rest   to what the offer `near` leaves of hidden rows, told the device's level
    groups        a fit to the rows of each group of devices that share centres (`near_groups`)
    own rows      a fit to every device's rows

One fit to all rows costs 1. A fit of forests or boosting takes as long for one row as for `FIXED`,
and trees look at every column:

    price = (sum over fits of rows + FIXED) / (all rows + FIXED) * (columns + told) / columns

Without a fold there are fewer rows, and `FIXED` stays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.tree import BaseDecisionTree

from persfl.errors import InputError
from persfl.learners.estimator import Estimator
from persfl.learners.tree import Tree
from persfl.methods.refitted.linear_view import DEVICE
from persfl.seeds import stream
from persfl.types import Data, Learner

FIXED = 300  # rows; measured for forests and boosting of scikit-learn
DEAR = 2.5  # fits of all rows: a recipe of a higher price is not tried


class Recipe(NamedTuple):
    """A way to fit: for whom together, told which offers of the linear rule, and of which offer
    the leftovers ("" for labels).
    """

    name: str
    whom: str = "all"
    told: tuple[str, ...] = ()
    rest: str = ""

    def price(
        self,
        rows: int,
        fits: int,
        columns: int,
        fixed: float,
        labels: int = 1,
        share: float = 1.0,
    ) -> float:
        """In fits of all rows, of a fit to such a share of them; the linear rule sees so many
        labels.

        >>> Recipe("all rows").price(700, 1, 4, FIXED)
        1.0
        >>> Recipe("groups", whom="groups").price(700, 5, 4, FIXED)
        2.2
        """
        wider = (columns + labels * len(self.told)) / columns
        return (share * rows + fits * fixed) / (rows + fixed) * wider


RECIPES = (
    Recipe("all rows"),
    Recipe("told", told=(DEVICE, "near")),
    Recipe("near + rest", told=(DEVICE,), rest="near"),
    Recipe("groups", whom="groups"),
    Recipe("own rows", whom="own"),
)


def fixed_rows(learner: Learner) -> float:
    """How many rows a fit takes at least the time of; 0 where a fit to a device's few rows takes
    less than the linear rule spends on a device.

    >>> fixed_rows(Tree()), fixed_rows(Estimator(Ridge()))
    (0.0, 0.0)
    """
    quick = isinstance(learner, Tree)
    if isinstance(learner, Estimator):
        quick = isinstance(
            learner.estimator, BaseDecisionTree | Ridge | LinearRegression
        )
    return 0.0 if quick else float(FIXED)


def takes_leftovers(learner: Learner, columns: int) -> bool:
    """Whether labels may be any numbers: models of counts refuse those below 0.

    >>> from sklearn.linear_model import PoissonRegressor
    >>> takes_leftovers(Tree(), 2), takes_leftovers(Estimator(PoissonRegressor()), 2)
    (True, False)
    """
    rows = np.arange(20.0)
    X = np.repeat(rows[:, None], columns, axis=1)
    try:
        learner.fit(Data(X, np.where(rows % 2, 1.0, -1.0)), stream(0, "leftovers"))
    except (ValueError, InputError):
        return False
    return True
