"""Devices that mix several models: the models one after the other, and each device's shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from persfl.errors import InputError
from persfl.learners.storage.named_arrays import AnyArray, Arrays, has_form

if TYPE_CHECKING:
    from persfl.types import Model

Mixture = list[tuple[float, "Model"]]  # shares and models
SIZES = "mix_sizes"
SHARES = "mix_shares"


def mixtures_to(models: Sequence[Model]) -> tuple[list[Model], dict[str, AnyArray]]:
    """The models of all mixes; how many each device has, and their shares."""
    # A device may keep its own model.
    mixes = [model if isinstance(model, list) else [(1.0, model)] for model in models]
    pairs = [pair for mix in mixes for pair in mix]
    shares = np.array([share for share, _ in pairs])
    sizes = np.array([len(mix) for mix in mixes])
    return [part for _, part in pairs], {SIZES: sizes, SHARES: shares}


def mixtures_from(parts: Sequence[Model], arrays: Arrays) -> list[Mixture]:
    """The inverse of `mixtures_to`; shares must be shares."""
    sizes = arrays[SIZES]
    shares = arrays[SHARES]
    count = len(parts)
    sound = has_form(arrays, {SIZES: "i D", SHARES: "f N"}, N=count) and len(sizes) > 0
    # each size before their sum: a sum of absurd numbers may be any number
    sound = sound and bool(((sizes >= 1) & (sizes <= count)).all())
    if not sound or sizes.sum() != count:
        raise InputError(
            "mixes must have a share for every model, and a model for every device."
        )
    ends = np.cumsum(sizes)
    total = np.add.reduceat(shares, ends - sizes)
    if not (shares >= 0).all() or not np.allclose(total, 1.0):
        raise InputError("a device's shares in a mix must be at least 0 and sum to 1.")
    pairs = list(zip(shares.tolist(), parts, strict=True))
    spans = zip(ends.tolist(), sizes.tolist(), strict=True)
    return [pairs[end - size : end] for end, size in spans]
