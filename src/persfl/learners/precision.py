"""How many digits networks are computed with; nothing is rounded unless somebody asked for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_CHOSEN = ContextVar("_CHOSEN", default="float32")


def precision_now() -> str:
    """What the computation at hand was asked for."""
    return _CHOSEN.get()


@contextmanager
def computed_in(precision: str) -> Iterator[None]:
    """Inside, products on a GPU have the digits of `precision`.

    "float32" is exact, also where torch would round convolutions by default. "tf32" rounds what
    goes into products to 10 binary digits. "bf16" computes the whole module with 8, while models,
    losses and steps stay float32.
    """
    products = torch.backends.cuda.matmul
    images = torch.backends.cudnn
    before = products.allow_tf32, images.allow_tf32
    token = _CHOSEN.set(precision)
    products.allow_tf32 = images.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        products.allow_tf32, images.allow_tf32 = before
        _CHOSEN.reset(token)
