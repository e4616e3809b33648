"""What a method noted of its run beside counts, as a folder tells it: looked at before it is
shown.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from persfl.errors import InputError
from persfl.learners.storage.named_arrays import AnyArray, has_form

# those that pages and tables show; a method that goes on looks at its own
_SHOWN = {
    "mix": "f M K",
    "mix_names": "U K",
    "offer_names": "U O",
    "offer_shares": "f O",
    "alike": "f T A",
    "alike_peers": "i T A",
    "alike_whole": "f",
    "alike_kinds": "b",
    "panel": "i T P",
    "member": "b T P",
    "right": "b T",
    "mark": "f T",
}
_SHARES = ("mix", "offer_shares", "alike", "alike_whole")
_ROUNDING = 1e-6


def check_notes(notes: Mapping[str, AnyArray], targets: int) -> None:
    """Stop where notes have another form than a run gives them, or shares are none.

    >>> check_notes({"alike_kinds": np.array("yes")}, 3)
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: what a run noted of who is alike or mixed must be as it notes it.
    """
    forms = {name: form for name, form in _SHOWN.items() if name in notes}
    sound = has_form(notes, forms, T=targets)
    if sound:
        told = [notes[name] for name in _SHARES if name in notes]
        sound = all(((v >= 0) & (v <= 1 + _ROUNDING)).all() for v in told)
    if sound and "mix" in notes:
        # a device that fell silent before its model was mixed has none
        whole = notes["mix"].sum(axis=1)
        sound = bool(((np.abs(whole - 1.0) <= 2 * _ROUNDING) | (whole == 0)).all())
    if not sound:
        raise InputError(
            "what a run noted of who is alike or mixed must be as it notes it."
        )
