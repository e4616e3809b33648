"""Models of a fleet that are a vector for each device, and something more beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from persfl.types import Array


@dataclass(frozen=True, eq=False)
class VectorModels(Sequence[Array]):
    """As a sequence these are the vectors; what is beside them is told by who derives from this.

    >>> [model.tolist() for model in VectorModels(np.eye(2))]
    [[1.0, 0.0], [0.0, 1.0]]
    """

    vectors: Array

    def __len__(self) -> int:
        return len(self.vectors)

    @overload
    def __getitem__(self, i: int) -> Array: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Array]: ...
    def __getitem__(self, i: int | slice) -> Array | Sequence[Array]:
        return np.asarray(self.vectors[i])

    def __iter__(self) -> Iterator[Array]:
        return iter(self.vectors)
