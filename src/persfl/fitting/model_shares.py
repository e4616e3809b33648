"""What every device's model is made of, as the notes of a fit tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from persfl.errors import InputError
from persfl.methods.blend.mixture import SORTS, sorts
from persfl.rules.kin_rule import members

if TYPE_CHECKING:
    from persfl.trust import Trust
    from persfl.types import Array, Mask


def shares_of_models(trust: Trust, fallback: Mask) -> dict[str, Array]:
    """(devices,) each, by name; devices that `fallback` names keep the model of their own rows."""
    notes = trust.notes
    if "mix" in notes:
        shares = sorts(notes["mix_names"], notes["mix"])
        parts = np.where(fallback[:, None], [1.0, 0.0, 0.0], shares)
        return {name: parts[:, k] for k, name in enumerate(SORTS)}
    if "member" not in notes:
        raise InputError(
            "what a model is made of is known after method='blend', and after method='kin' with"
            " models that take steps. See helpers_ instead."
        )
    known = members(trust)
    kin = known.member.sum(axis=1)
    own = np.where(known.right & ~fallback, 1.0 / (1 + kin), 1.0)
    return {"kin": kin, "own": own, "others": 1 - own, "found": known.right}
