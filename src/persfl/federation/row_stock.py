"""Which rows a device answers from: its own choice, made once, by a secret that never leaves.

Whoever asks says how many rows to hold back, how many folds, how large a batch. Which rows these
are is the device's secret, and stays the same: two answers from sets that differ by one row would
be that row. Rows that arrive wait until there are enough of them; a group is then dealt once and
for all, and never dealt again together with others.

>>> import numpy as np
>>> from persfl.federation.ledger import Ledger
>>> stock = Stock(Ledger(), Lot(7), least=3)
>>> rows = Data(np.arange(12.0)[:, None], np.zeros(12))
>>> [stock.taken(["x"], rows.take(np.arange(n))).data.rows for n in (2, 8, 10, 12)]
[0, 8, 8, 12]
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.split import split
from persfl.federation.ledger import Ledger
from persfl.federation.messages import Refused
from persfl.methods.blend.folds import fold_numbers
from persfl.methods.mixed.hidden_rows import dealt
from persfl.seeds import Stream, stream
from persfl.types import Data, IntArray, Mask


class Lot(NamedTuple):
    """What rows are dealt by: a secret seed, and a number among devices dealt by one seed."""

    seed: int
    number: int = 0

    def of(self, group: int) -> Lot:
        """For the rows of a later group."""
        return (
            self
            if not group
            else Lot(stream(self.seed, "group", group).integer(), self.number)
        )

    def at(self, *path: Any) -> Stream:
        """A place for random numbers of this device."""
        return stream(self.seed, *path, self.number)


@dataclass(frozen=True, eq=False)
class Taken:
    """The rows that are answered from, in the order in which they came; their places and groups."""

    data: Data
    place: IntArray
    group: IntArray


@dataclass(frozen=True, eq=False)
class Deal:
    """Rows to learn from and rows held back; `place` and `group` are those of the former."""

    learn: Data
    held: Data
    place: IntArray
    group: IntArray
    held_place: IntArray

    @property
    def mark(self) -> str:
        """The same for the same rows."""
        return hashlib.sha256(
            self.place.tobytes() + b"|" + self.held_place.tobytes()
        ).hexdigest()


class Stock:
    """The rows that a device may answer from; `least` are the fewest that may be told apart."""

    def __init__(self, ledger: Ledger, lot: Lot, least: int) -> None:
        self.ledger, self.lot, self.least = ledger, lot, max(least, 1)

    def taken(self, columns: Any, data: Data) -> Taken:
        """Those of these rows that are in the stock; new ones come in once they are enough."""
        used = np.flatnonzero(data.weight > 0)
        data = data.take(used) if len(used) < data.rows else data
        ids = self._known_again(columns, data)
        groups = self.ledger.stock()
        new = ~np.isin(ids, np.concatenate([*groups, ids[:0]]))
        if int(new.sum()) >= self.least:
            self.ledger.admit(ids[new])
            groups = self.ledger.stock()
        known = np.concatenate([*groups, ids[:0]])
        owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        order = np.argsort(ids, kind="stable")
        at = np.minimum(np.searchsorted(ids, known, sorter=order), max(len(ids) - 1, 0))
        there = (
            ids[order[at]] == known if len(ids) else np.zeros(len(known), dtype=bool)
        )
        place = np.flatnonzero(there)
        return Taken(data.take(order[at[place]]), place, owner[place])

    def _known_again(self, columns: Sequence[str], data: Data) -> IntArray:
        """(rows,) marks of these rows. By new columns all would be strangers, and answers from
        them, less earlier ones, the few that have gone: so rows are known by the old ones first.
        """
        names = [str(name) for name in columns]
        found = marks(names, data, self.lot.seed)
        before = self.ledger.columns()
        if before is None or set(before) == set(names):
            if before is None:
                self.ledger.know_by(names, found[:0], found[:0])
            return found
        if not set(before) <= set(names):  # nobody could say which these are
            raise Refused("split")
        X = data.X[:, [names.index(name) for name in before]]
        old = marks(before, Data(X, data.y, data.weight), self.lot.seed)
        self.ledger.know_by(names, old, found)
        return found

    def deal(self, taken: Taken, share: float, classes: int) -> Deal:
        """Hold back a share of every group; none where these would be too few to be told of."""
        held = np.zeros(len(taken.place), dtype=bool)
        for g in np.unique(taken.group).tolist() if share else ():
            mine = np.flatnonzero(taken.group == g)
            back = _held(taken.data.take(mine), share, classes, self.lot.of(g))
            enough = back.sum() >= self.least and (
                g == 0 or (~back).sum() >= self.least
            )
            held[mine] = back if enough else False
        learn = np.flatnonzero(~held)
        kept = np.flatnonzero(held)
        data = taken.data
        place = taken.place
        group = taken.group[learn]
        return Deal(data.take(learn), data.take(kept), place[learn], group, place[kept])

    def folds(self, deal: Deal, count: int, *, classes: int, ordered: bool) -> IntArray:
        """(rows,) the fold of each row to learn from; only as many as have enough rows each."""
        found = np.zeros(len(deal.place), dtype=np.int64)
        for g in np.unique(deal.group).tolist():
            mine = np.flatnonzero(deal.group == g)
            lot = self.lot.of(g)
            many = max(1, min(count, len(mine) // self.least))
            how: dict[str, Any] = {
                "classes": classes,
                "ordered": ordered,
                "seed": lot.seed,
            }
            rows = alone(deal.learn.take(mine))
            numbers = np.array([lot.number])
            found[mine] = fold_numbers(rows, many, numbers=numbers, **how)
        self.check(*(deal.place[found != f] for f in np.unique(found).tolist()))
        return found

    def parts(self, deal: Deal, *, ordered: bool) -> IntArray:
        """(rows,) the part of each row to learn from, of those that are hidden together; a part
        that has rows has enough of them.
        """
        found = np.zeros(len(deal.place), dtype=np.int64)
        for g in np.unique(deal.group).tolist():
            mine = np.flatnonzero(deal.group == g)
            lot = self.lot.of(g)
            count = np.array([len(mine)])
            number = np.array([lot.number])
            found[mine] = dealt(
                count, number, lot.seed, ordered=ordered, least=self.least
            )
        self.check(*(deal.place[found == k] for k in np.unique(found).tolist()))
        return found

    def latest(self, deal: Deal, part: IntArray) -> Mask:
        """(rows,) the last of each of these parts: as many as are enough to be told of, or all of
        a part, where too few others would be left.
        """
        found = np.zeros(len(part), dtype=bool)
        for k in np.unique(part).tolist():
            mine = np.flatnonzero(part == k)
            found[mine[-self.least :] if len(mine) >= 2 * self.least else mine] = True
            self.check(deal.place[mine[found[mine]]])
        return found

    def batches(self, deal: Deal, size: int) -> list[IntArray]:
        """Rows to learn from in batches of at least `size`, always the same ones."""
        found: list[IntArray] = []
        for g in np.unique(deal.group).tolist():
            mine = np.flatnonzero(deal.group == g)
            order = mine[np.argsort(self.lot.of(g).at("batches").uniform(len(mine)))]
            many = max(1, len(mine) // size)
            found += [np.sort(order[k::many]) for k in range(many)]
        self.check(*(deal.place[batch] for batch in found))
        return found

    def check(self, *places: IntArray) -> None:
        """Refuse what is told of sets of rows that are too near to others that were told of."""
        for place in places:
            if not len(place):
                continue
            chosen = np.zeros(int(place.max()) + 1, dtype=bool)
            chosen[place] = True
            if not self.ledger.answers_from(chosen, self.least):
                raise Refused("split")


def _held(data: Data, share: float, classes: int, lot: Lot) -> Any:
    """(rows,) whether a row is held back, as in one process."""
    count = data.rows
    numbers = np.arange(count + 0.0)[:, None]
    start = np.array([0, count])
    numbered = Devices(numbers, data.y, data.weight, start, [0])
    _, back = split(numbered, share, seed=lot.seed, classes=classes, first=lot.number)
    held = np.zeros(count, dtype=bool)
    held[back.X[:, 0].astype(np.int64)] = True
    return held


def alone(data: Data) -> Devices:
    """One device's rows as devices."""
    return Devices(data.X, data.y, data.weight, np.array([0, len(data.y)]), [0])


def marks(columns: Any, data: Data, seed: int) -> IntArray:
    """(rows,) a number by which a row is known again, wherever it stands; equal rows differ in it.

    >>> same = Data(np.array([[1.0], [2.0], [1.0]]), np.zeros(3))
    >>> a, b = marks(["x"], same, 3), marks(["x"], same.take(np.array([1, 0, 2])), 3)
    >>> len(set(a.tolist())), set(a.tolist()) == set(b.tolist())
    (3, True)
    """
    names = [str(name) for name in columns]
    order = np.array(sorted(range(len(names)), key=lambda i: names[i]), dtype=np.int64)
    # -0.0 is 0.0
    cells = np.column_stack([data.X[:, order], data.y, data.weight]) + 0.0
    key = np.full(len(cells), stream(seed, "marks").key, dtype=np.uint64)
    place = Stream(key)
    for column in np.ascontiguousarray(cells.T).view(np.uint64):
        place = place.at(column)
    found = place.keys
    rank = np.empty(len(found), dtype=np.int64)
    sort = np.argsort(found, kind="stable")
    first = np.searchsorted(found[sort], found[sort])
    rank[sort] = np.arange(len(found)) - first
    return np.asarray(place.at(rank).keys).view(np.int64)
