"""The task whose rows are in this process."""

from __future__ import annotations

from dataclasses import dataclass

from persfl.training.train import InProcess
from persfl.types import Array


@dataclass(frozen=True, eq=False)
class LocalTask(InProcess):
    """The task whose rows are in this process, in the units in which models are learned."""

    classes: int = 0
    public: Array | None = None
    ordered: bool = False

    @property
    def together(self) -> bool:
        """They are."""
        return True
