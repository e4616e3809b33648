"""The task whose rows are in this process."""

from __future__ import annotations

from dataclasses import dataclass

from persfl.evaluation.row_order import RowOrder
from persfl.training.training_run import InProcess
from persfl.types import Array


@dataclass(frozen=True, eq=False)
class LocalTask(InProcess):
    """The task whose rows are in this process, in the units in which models are learned."""

    classes: int = 0
    public: Array | None = None
    ordered: bool = False
    """Whether rows come in the order of time, where there is no more to say of their `order`."""
    known: RowOrder | None = None

    @property
    def order(self) -> RowOrder:
        """What repeats in the rows."""
        return self.known or RowOrder(ordered=self.ordered)

    @property
    def together(self) -> bool:
        """They are."""
        return True

    @property
    def once(self) -> bool:
        """Answers cost nothing here."""
        return False
