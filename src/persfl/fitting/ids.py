"""Devices by their ids, as the user gave them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from persfl.errors import InputError
from persfl.types import IntArray


def id_array(ids: Iterable[Hashable]) -> NDArray[Any]:
    """Ids as an array; of objects where they are not all numbers or all texts.

    >>> id_array(["a", 1]).dtype, id_array([2, 1]).tolist()
    (dtype('O'), [2, 1])
    """
    names = list(ids)
    if len({type(name) for name in names}) == 1 and not isinstance(names[0], tuple):
        plain = np.array(names)
        if plain.ndim == 1 and plain.tolist() == names:
            return plain
    kept = np.empty(len(names), dtype=object)
    kept[:] = names
    return kept


def places(known: Sequence[Hashable], ids: Sequence[Hashable]) -> IntArray:
    """The positions of ids among those that are known, -1 for those that are not.

    >>> places(["a", "b"], ["b", "c"]).tolist()
    [1, -1]
    """
    at = {name: i for i, name in enumerate(known)}
    refuse_lookalikes(at, ids)
    return np.array([at.get(name, -1) for name in ids], dtype=np.int64)


def refuse_lookalikes(known: Iterable[Hashable], ids: Iterable[Hashable]) -> None:
    """Stop where a device seems new only because its id is of another kind: 7 and '7'."""
    there = set(known)
    strangers = [name for name in ids if name not in there]
    if not strangers:
        return
    same = {str(name): name for name in there}
    twin = next((name for name in strangers if str(name) in same), None)
    if twin is not None:
        before = same[str(twin)]
        raise InputError(
            f"device {twin!r} is known as {before!r}: the same id, but a"
            f" {type(twin).__name__} where a {type(before).__name__} was used before."
            " Give ids of one kind."
        )
