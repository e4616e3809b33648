"""Cross-validation for tables of devices: `DeviceKFold` for devices that are known,
`LeaveDevicesOut` for new ones.

Both go wherever scikit-learn takes `cv=`. They ask different questions: how well is the next row of
a known device predicted, and how well is a device that nobody has seen?
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils.multiclass import type_of_target

from persfl.checks import some, whole
from persfl.devices import Devices
from persfl.encoding import as_frame, is_table
from persfl.errors import InputError
from persfl.evaluation.row_order import RowOrder, hidden_folds
from persfl.fitting.row_columns import Key, OrderWords, Span
from persfl.seeds import stream

if TYPE_CHECKING:
    from persfl.fitting.schema import Ids, Table
    from persfl.types import IntArray

Split = tuple["IntArray", "IntArray"]


class _DeviceSplits(BaseCrossValidator):  # type: ignore[misc]
    """What both have: how many splits, whose rows, and the seed."""

    # with scikit-learn's metadata routing, groups of a split are what `devices` are of a fit
    __metadata_request__split = {"groups": "devices"}  # noqa: RUF012

    n_splits: int
    device: str | None
    random_state: int

    def get_n_splits(
        self, X: object = None, y: object = None, groups: object = None
    ) -> int:
        """How many splits there are."""
        return whole("n_splits", self.n_splits, least=2)

    def _owners(self, X: Table, groups: Ids) -> IntArray:
        """(rows,) which device each row belongs to, numbered by first appearance."""
        if self.device is not None:
            if not is_table(X) or self.device not in as_frame(X).columns:
                has = list(as_frame(X).columns) if is_table(X) else []
                known = f" Its columns: {some(has, 10)}." if has else ""
                raise InputError(
                    f"device={self.device!r} must name a column of X, a table.{known}"
                )
            groups = as_frame(X)[self.device]
        if groups is None:
            raise InputError(
                "say whose rows these are: device='COLUMN' of X, or groups=... of the call."
            )
        column = pd.Series(np.asarray(groups).ravel())
        rows = len(as_frame(X)) if is_table(X) else np.shape(X)[0]
        if len(column) != rows:
            raise InputError(
                f"groups must have an entry for each of the {rows} rows. Got {len(column)}."
            )
        if column.isna().any():
            raise InputError(
                f"{int(column.isna().sum())} of {len(column)} rows have no device. Drop them."
            )
        return np.asarray(pd.factorize(column)[0], dtype=np.int64)


class DeviceKFold(_DeviceSplits):
    """Folds within devices: every device has rows to learn from in every fold.

    A device's rows are dealt to the folds one by one, at random, class by class where labels are
    classes. So each row is judged once, and a device with two rows or more is never unknown. (A
    device with a single row is, in the fold that judges it.)

    With `blocks` rows of one key (a date, a batch) are judged together, at all devices at once.
    With `time` or `ordered=True` a fold learns the past and judges what comes next; then the
    earliest rows are never judged.

    Parameters
    ----------
    n_splits : how many folds.
    device : the column of X that says whose row it is; None: by `groups` of the call.
    ordered, time, blocks, gap, horizon : as for `PersonalizedRegressor`.
    random_state : the same number gives the same folds.

    >>> from sklearn.model_selection import cross_val_score
    >>> from persfl import PersonalizedRegressor
    >>> from persfl.datasets import load_housing
    >>> housing = load_housing()
    >>> few = housing.frame.groupby("city").head(10)
    >>> X = few[["city", *housing.feature_names]]
    >>> model = PersonalizedRegressor(device="city", method="own", holdout=0)
    >>> folds = DeviceKFold(5, device="city")
    >>> cross_val_score(model, X, few["log_price"], cv=folds).shape
    (5,)
    """

    def __init__(
        self,
        n_splits: int = 5,
        *,
        device: str | None = None,
        ordered: bool = False,
        time: Key = None,
        blocks: Key = None,
        gap: Span = None,
        horizon: Span = None,
        random_state: int = 0,
    ) -> None:
        self.n_splits = n_splits
        self.device = device
        self.ordered = ordered
        self.time = time
        self.blocks = blocks
        self.gap = gap
        self.horizon = horizon
        self.random_state = random_state

    def split(self, X: Table, y: Ids = None, groups: Ids = None) -> Iterator[Split]:
        """Row numbers to learn from and to judge by, fold by fold."""
        many = self.get_n_splits()
        owner = self._owners(X, groups)
        words = OrderWords(self.ordered, self.blocks, self.time, self.gap, self.horizon)
        order = words.read(X, None, len(owner))
        if order.random:
            if np.bincount(owner).max() < 2:
                raise InputError(
                    "every device has a single row, so nothing can be judged. Use"
                    " LeaveDevicesOut."
                )
            fold = self._dealt(owner, y, many)
            for k in range(many):
                yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        else:
            yield from self._hidden(owner, order, many)

    def _dealt(self, owner: IntArray, y: Ids, many: int) -> IntArray:
        """(rows,) the fold that judges each."""
        luck = stream(self.random_state, "dealt").at(np.arange(len(owner)))
        chance = luck.uniform(1)[:, 0]
        label = _class_codes(y, len(owner))
        turn = np.lexsort((chance, label, owner))
        # every device begins at another fold, or small ones would all fill the first
        begin = stream(self.random_state, "first").at(np.arange(owner.max() + 1))
        first = (begin.uniform(1)[:, 0] * many).astype(np.int64)
        place = np.arange(len(owner)) - np.searchsorted(owner[turn], owner[turn])
        fold = np.empty(len(owner), dtype=np.int64)
        fold[turn] = (first[owner[turn]] + place) % many
        return fold

    def _hidden(self, owner: IntArray, order: RowOrder, many: int) -> Iterator[Split]:
        """By keys or forward in time."""
        when = order.time
        turn = np.lexsort((owner,) if when is None else (when, owner))
        sizes = np.bincount(owner)
        nothing = np.zeros(len(owner))
        rows = Devices.grouped(
            nothing[:, None], nothing, owner[turn], range(len(sizes))
        )
        # the first two parts of the time are only learned from
        parts = many + 2 if order.ordered else many
        folds = hidden_folds(rows, order.at(turn), parts, seed=self.random_state)
        if len(folds) != many:
            raise InputError(
                f"n_splits={many} folds need more keys or moments than there are: {len(folds)} can"
                " be made. Lower n_splits."
            )
        for fold in folds:
            yield np.sort(turn[fold.learn]), np.sort(turn[fold.judge])


class LeaveDevicesOut(_DeviceSplits):
    """Folds of whole devices: how well is a device predicted that nobody has seen?

    Devices are dealt to the folds at random, so that each is left out once. Such a device gets what
    the fleet says (`unseen="pooled"`), with a warning.

    Parameters
    ----------
    n_splits : how many folds.
    device : the column of X that says whose row it is; None: by `groups` of the call.
    random_state : the same number gives the same folds.

    >>> folds = LeaveDevicesOut(2)
    >>> whose = ["a", "a", "b", "b"]
    >>> [judge.tolist() for _, judge in folds.split(np.zeros((4, 1)), groups=whose)]
    [[2, 3], [0, 1]]
    """

    def __init__(
        self, n_splits: int = 5, *, device: str | None = None, random_state: int = 0
    ) -> None:
        self.n_splits = n_splits
        self.device = device
        self.random_state = random_state

    def split(self, X: Table, y: Ids = None, groups: Ids = None) -> Iterator[Split]:
        """Row numbers to learn from and to judge by, fold by fold."""
        many = self.get_n_splits()
        owner = self._owners(X, groups)
        devices = int(owner.max()) + 1
        if devices < many:
            raise InputError(
                f"n_splits must be at most {devices}, the number of devices. Got {many}."
            )
        luck = stream(self.random_state, "left out").at(np.arange(devices))
        place = np.argsort(np.argsort(luck.uniform(1)[:, 0]))
        fold = (place % many)[owner]
        for k in range(many):
            yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)


def _class_codes(y: Ids, rows: int) -> IntArray:
    """(rows,) numbers of classes; all 0 where labels are no classes."""
    if y is None or type_of_target(y) not in ("binary", "multiclass"):
        return np.zeros(rows, dtype=np.int64)
    return np.asarray(pd.factorize(pd.Series(np.asarray(y).ravel()))[0])
