"""A chunk's computation as one graph, compiled for the shapes at hand."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from persfl.kernel_cache import closed_to_others

if TYPE_CHECKING:
    import torch

    from persfl.fleets.torch_runtime import TensorRows

    Whole = Callable[..., torch.Tensor]

TORCH_CACHE = "TORCHINDUCTOR_CACHE_DIR"  # where torch keeps what it compiled


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
    from torch.fx.experimental.proxy_tensor import make_fx

    def whole(*flat: torch.Tensor) -> torch.Tensor:
        rest = iter(flat[first:])
        held = [some.holding([next(rest) for _ in some.tensors]) for some in rows]
        return method(*flat[:first], *held, None)

    graph = make_fx(whole)(*inputs)
    compiled: Whole = by_torch(graph)
    return compiled


def by_torch(function: Callable[..., Any]) -> Any:
    """A function that torch compiles for the shapes that it is given."""
    import torch

    keep_apart()
    return torch.compile(function, dynamic=False)


def keep_apart() -> None:
    """Have torch keep what it compiles where nobody else can put anything.

    By itself it runs what lies in a folder of /tmp that has this user's name, whoever made that.
    Headers that it has compiled lie there whatever it is told, so it is to keep none.
    """
    os.environ["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] = "0"
    loaded: Any = sys.modules.get("torch._inductor.config")
    if hasattr(loaded, "cpp_cache_precompile_headers"):
        loaded.cpp_cache_precompile_headers = False  # it has read the variable already
    places = [Path(os.environ[TORCH_CACHE])] if os.environ.get(TORCH_CACHE) else []
    with contextlib.suppress(RuntimeError):  # a user without a home
        places.append(Path.home() / ".cache" / "persfl" / "torch")
    for place in places:
        with contextlib.suppress(OSError):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if closed_to_others(place):
                os.environ[TORCH_CACHE] = str(place)
                return
    os.environ[TORCH_CACHE] = tempfile.mkdtemp(prefix="persfl-torch-")
