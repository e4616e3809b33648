"""What a method is given over shards: a fleet, and rows that are with workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from persfl.evaluation.row_order import RowOrder
from persfl.learners.linear import Linear
from persfl.scale.rows_elsewhere import ShardRows
from persfl.scale.shard_engine import sharded_fleet

if TYPE_CHECKING:
    from persfl.types import Fleet, Model, Proposer


@dataclass(frozen=True, eq=False)
class ShardTask:
    """As `LocalTask`, of rows that are with workers."""

    rows: ShardRows
    learner: Linear
    seed: int
    ordered: bool = False
    classes: int = 0
    public: None = None
    n_jobs: int | None = 1
    compute: str | None = None

    @property
    def n(self) -> int:
        """How many devices there are."""
        return len(self.rows)

    @property
    def features(self) -> int:
        """How many columns rows have."""
        return self.rows.features

    @property
    def order(self) -> RowOrder:
        """What repeats in the rows."""
        return RowOrder(ordered=self.ordered)

    @property
    def together(self) -> bool:
        """Nobody's rows are hidden from anybody here."""
        return True

    @property
    def once(self) -> bool:
        """Answers cost nothing here."""
        return False

    def fleet(self, proposer: Proposer, start: Sequence[Model] | None = None) -> Fleet:
        """A new fleet of all devices, beginning with these models."""
        return sharded_fleet(self.rows, self.learner, proposer, start, self.seed)
