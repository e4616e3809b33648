"""The banks of a `FleetMix` as arrays, and back with every index checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from persfl.learners.fleet_mix import FleetMix, ModelBank
from persfl.learners.storage.named_arrays import (
    AnyArray,
    Arrays,
    check_arrays,
    has_form,
    is_sensible,
    prefixed,
    under,
)
from persfl.types import Model

BANKS = "bank_shares"
_VECTORS = "bank_vectors"
_ALONE = "bank_alone_"
_MOST = 20  # banks of a fleet
_FORMS = {"which": "i8 D", "told": "f8 D K F"}

To = Callable[[Sequence[Model]], dict[str, AnyArray]]
Back = Callable[[Arrays, int, int | None], list[Model]]


def banks_to(models: FleetMix, to: To) -> dict[str, AnyArray]:
    """Shares, vectors and every bank; `to` writes a bank's models."""
    arrays: dict[str, AnyArray] = {
        BANKS: np.array([share for share, _ in models.banks])
    }
    if models.vectors is not None:
        arrays[_VECTORS] = models.vectors
    named = {f"bank_{k}_": bank for k, (_, bank) in enumerate(models.banks)}
    for start, bank in (named | {_ALONE: models.alone}).items():
        arrays |= prefixed(start, {"which": bank.which, "told": bank.told})
        if bank.models:
            arrays |= prefixed(f"{start}of_", to(bank.models))
    return arrays


def banks_from(
    arrays: Arrays, features: int | None, classes: int | None, back: Back
) -> FleetMix:
    """The inverse of `banks_to`, for arrays that somebody else may have written."""
    shares = arrays[BANKS]
    vectors = arrays.get(_VECTORS)
    check_arrays(has_form(arrays, {BANKS: "f8 K"}) and len(shares) <= _MOST)
    check_arrays((shares > 0).all() and (shares <= 1).all())
    alone = _bank(_ALONE, arrays, features, classes, back)
    n, _, width = alone.told.shape
    if vectors is None:
        check_arrays(np.isclose(shares.sum(), 1.0))
    else:
        sound = has_form(arrays, {_VECTORS: "f8 D F"}, D=n, F=width)
        check_arrays(sound and is_sensible(vectors))
    banks = [
        _bank(f"bank_{k}_", arrays, width - 1, classes, back)
        for k in range(len(shares))
    ]
    for bank in banks:
        check_arrays(len(bank.which) == n and (bank.which >= 0).all())
    pairs = zip(shares.tolist(), banks, strict=True)
    return FleetMix(vectors, tuple(pairs), alone)


def _bank(
    start: str, arrays: Arrays, features: int | None, classes: int | None, back: Back
) -> ModelBank:
    """One bank: every device's model is there, and takes as many columns as it is told."""
    parts = {name: arrays.get(f"{start}{name}", np.zeros(0)) for name in _FORMS}
    check_arrays(has_form(parts, _FORMS) and len(parts["which"]) > 0)
    told = parts["told"]
    which = parts["which"]
    check_arrays(is_sensible(told) and told.shape[2] > 1)
    check_arrays(features is None or told.shape[2] == features + 1)
    inside = under(f"{start}of_", arrays)
    wide = told.shape[2] - 1 + told.shape[1]
    models = back(inside, wide, classes) if inside else []
    check_arrays(all(model is not None for model in models))
    check_arrays((which >= -1).all() and (which < len(models)).all())
    return ModelBank(tuple(models), which, told)
