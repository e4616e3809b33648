"""What a device reads out of a question, and the small sums it answers some with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from persfl.devices import Devices
from persfl.errors import InputError
from persfl.fleets.rows import check_labels
from persfl.types import Data
from persfl.wire import Terms, WireError
from persfl.wire.models import finite

MOST = 10_000  # questions in one message
Told = Mapping[str, Any]  # what a message says, or its arrays


class Refused(Exception):
    """A polite no: a code, and nothing else."""


def adopted(
    learner: Any,
    model: Any,
    pieces: Sequence[Any],
    weights: Sequence[float],
    stay: float,
) -> Any:
    """The mix that was chosen, as `LoopFleet` makes it."""
    parts = [(stay, model)] if stay > 0 else []
    parts += [
        (weight, piece)
        for weight, piece in zip(weights, pieces, strict=True)
        if weight > 0
    ]
    if len(parts) == 1:
        return parts[0][1]
    models = [piece for _, piece in parts]
    stacked = (
        np.stack(models)
        if all(isinstance(piece, np.ndarray) for piece in models)
        else models
    )
    return learner.mix(stacked, np.array([weight for weight, _ in parts]))


def adoptions_of(head: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a target is told to adopt, oldest first."""
    told = head.get("adoptions", [])
    if not isinstance(told, list) or len(told) > MOST:
        raise WireError("adoptions must be a list.")
    for entry in told:
        if (
            not isinstance(entry, dict)
            or set(entry) != {"round", "stay", "weights", "set"}
            or not isinstance(entry["set"], bool)
        ):
            raise WireError("an adoption must say its round and weights.")
        weights = entry["weights"]
        if (
            not isinstance(entry["round"], int)
            or isinstance(entry["round"], bool)
            or not isinstance(weights, list)
        ):
            raise WireError("an adoption must say its round and weights.")
        shares = [entry["stay"], *weights]
        if (
            not all(isinstance(w, (int, float)) and 0 <= w <= 1 for w in shares)
            or not abs(sum(shares) - 1) <= 1e-6
        ):
            raise WireError("an adoption's weights must sum to 1.")
    return told


def check_fit(terms: Terms, table: Data) -> None:
    """Stop where a loss cannot take the labels; by the table alone, whatever units are asked for.

    Counts and classes have no other units. In units of the asker's choice, whether labels fit would
    tell the least of them.
    """
    learner = terms.learner()
    nothing = Data(np.zeros((1, terms.features)), np.array([-0.5]), np.ones(1))
    picky = hasattr(learner, "check_labels") and learner.check_labels(nothing)
    if (picky or terms.classes) and (terms.label_mean, terms.label_scale) != (0, 1):
        raise WireError("labels that are counts or classes have no other units.")
    check_labels([learner], alone(table))
    # What travels of a classifier names its classes: labels that are none would leave as they are.
    if terms.classes and not np.isin(table.y, np.arange(terms.classes)).all():
        raise InputError(f"labels must be whole numbers from 0 to {terms.classes - 1}.")


def alone(data: Data) -> Devices:
    """One device's rows as devices."""
    return Devices(data.X, data.y, data.weight, np.array([0, len(data.y)]), [0])


def sums_of(data: Data, about: Any) -> dict[str, Any]:
    """Weights, values and squared deviations summed per column (the label last): what shared
    units are made of.
    """
    values = np.column_stack([data.X, data.y])
    middle = (
        np.zeros(values.shape[1])
        if about is None
        else finite(about, (values.shape[1],))
    )
    away = values - middle
    return {
        "weight": np.array([data.weight.sum()]),
        "sums": data.weight @ away,
        "squares": data.weight @ away**2,
    }


def zeros_and_ones(data: Data) -> dict[str, Any]:
    """Per column (the label last): whether all values are 0 or 1."""
    values = np.column_stack([data.X, data.y])
    return {"binary": ((values == 0) | (values == 1)).all(axis=0).astype(np.int64)}


def whole_of(head: Mapping[str, Any], name: str, most: int = 2**53) -> int:
    """A whole number of a message.

    >>> whole_of({"round": -1}, "round")
    Traceback (most recent call last):
    ...
    persfl.wire.codec.WireError: round must be a whole number of at least 0.
    """
    value = head.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise WireError(f"{name} must be a whole number of at least 0.")
    return value


def size_of(arrays: Mapping[str, Any]) -> int:
    """Bytes of arrays."""
    return sum(array.nbytes for array in arrays.values())


def numbers_of(arrays: Mapping[str, Any]) -> int:
    """Numbers of arrays."""
    return sum(int(array.size) for array in arrays.values())


def parts_of(arrays: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Arrays by the first part of their names, all at once: a message may have ten thousand parts.

    >>> parts_of({"q0.vector": 1, "q0.a.b": 2, "targets": 3})
    {'q0': {'vector': 1, 'a.b': 2}}
    """
    found: dict[str, dict[str, Any]] = {}
    for name, array in arrays.items():
        first, dot, rest = name.partition(".")
        if dot:
            found.setdefault(first, {})[rest] = array
    return found


def digest_of(about: Any, *parts: Mapping[str, Any]) -> str:
    """The same for the same question, whenever it is put; `about` holds everything else that
    its answer depends on.
    """
    found = hashlib.sha256(repr(about).encode())
    for arrays in parts:
        for key in sorted(arrays):
            found.update(
                repr((key, arrays[key].dtype.str, arrays[key].shape)).encode()
                + arrays[key].tobytes()
            )
    return found.hexdigest()
