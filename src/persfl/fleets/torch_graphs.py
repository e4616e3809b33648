"""A chunk's computation as one graph, compiled for the shapes at hand."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from persfl.fleets.torch_runtime import TensorRows

    Whole = Callable[..., torch.Tensor]


class Graphs:
    """What was compiled so far.

    Computations are traced first, down to single operations: the compiler itself cannot look into
    transforms of functions with slopes of their own.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, Whole] = {}

    def __call__(
        self, method: Whole, tensors: list[torch.Tensor], rows: list[TensorRows]
    ) -> torch.Tensor:
        """What the method says of these tensors and rows."""
        inputs = tensors + [tensor for some in rows for tensor in some.tensors]
        key = (method.__name__, *(_kind(tensor) for tensor in inputs))
        if key not in self._known:
            self._known[key] = _compiled(method, inputs, len(tensors), rows)
        return self._known[key](*inputs)


def _kind(tensor: torch.Tensor) -> Hashable:
    return tensor.shape, tensor.stride(), tensor.dtype


def _compiled(
    method: Whole, inputs: list[torch.Tensor], first: int, rows: list[TensorRows]
) -> Whole:
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    def whole(*flat: torch.Tensor) -> torch.Tensor:
        rest = iter(flat[first:])
        held = [some.holding([next(rest) for _ in some.tensors]) for some in rows]
        return method(*flat[:first], *held, None)

    graph = make_fx(whole)(*inputs)
    compiled: Whole = torch.compile(graph, dynamic=False)
    return compiled
