"""Models that look their device's rows up, as arrays, and back with every number checked."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from persfl.learners.near_rows import NearRows
from persfl.learners.storage.named_arrays import (
    AnyArray,
    Arrays,
    check_arrays,
    has_form,
    is_sensible,
    prefixed,
    under,
)
from persfl.types import Array

NEAR = "near_k"
_FORMS = {
    "k": "i8",
    "common": "f8|f4 S",
    "seen": "f8 R W",
    "label": "f8 R",
    "weight": "f8 R",
    "start": "i8 E",
    "share": "f8 D",
    "scale": "f8 D",
}


def near_to(models: NearRows) -> dict[str, AnyArray]:
    """What stands beside the vectors."""
    names = [one.name for one in fields(models) if one.name != "vectors"]
    return prefixed(
        "near_", {name: np.asarray(getattr(models, name)) for name in names}
    )


def near_from(vectors: Array, arrays: Arrays, classes: int | None) -> NearRows:
    """The inverse of `near_to`, for arrays that somebody else may have written."""
    parts: dict[str, Any] = under("near_", arrays)
    n, size = vectors.shape
    check_arrays(set(parts) == set(_FORMS))
    check_arrays(has_form(parts, _FORMS, D=n, S=size, E=n + 1))
    for name in ("common", "seen", "label", "weight", "share", "scale"):
        check_arrays(is_sensible(parts[name]))
    start = parts["start"]
    steps = np.diff(start)
    check_arrays(start[0] == 0 and start[-1] == len(parts["label"]))
    check_arrays((steps >= 0).all() and (parts["weight"] >= 0).all())
    share = parts["share"]
    check_arrays(((share >= 0) & (share <= 1)).all() and (parts["scale"] > 0).all())
    check_arrays((steps[share > 0] > 0).all())
    k = int(parts.pop("k"))
    check_arrays(k >= 1)
    if classes:
        check_arrays(np.isin(parts["label"], np.arange(classes)).all())
    return NearRows(vectors, k=k, **parts)
