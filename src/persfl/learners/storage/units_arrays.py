"""Units as named arrays, and units of arrays that somebody else may have made."""

from __future__ import annotations

from typing import Any

import numpy as np

from persfl.errors import InputError
from persfl.learners.storage.named_arrays import Arrays, has_form
from persfl.units import Units

# D devices, F columns of numbers
_FORMS = {
    "mean": "fi F",
    "scale": "fi F",
    "label_mean": "fi",
    "label_scale": "fi",
    "centres": "fi D F",
    "label_centres": "fi D",
}


def units_to(units: Units) -> dict[str, Any]:
    """The numbers of units, by name."""
    return {name: value for name, value in vars(units).items() if name in _FORMS}


def units_from(kind: str, arrays: Arrays, *, devices: int, columns: int) -> Units:
    """Units whose numbers are finite and as many as they must be."""
    sound = has_form(arrays, _FORMS, D=devices, F=columns)
    if not sound or not all(np.isfinite(arrays[name]).all() for name in _FORMS):
        raise InputError("units must be finite numbers, for every column and device.")
    if not (arrays["scale"] > 0).all() or not arrays["label_scale"] > 0:
        raise InputError("units must be above 0.")
    level = float(arrays["label_mean"])
    spread = float(arrays["label_scale"])
    own = arrays["centres"], arrays["label_centres"]
    return Units(kind, arrays["mean"], arrays["scale"], level, spread, *own)
