"""A round's computation on a GPU, recorded once and replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


class Replayed:
    """A function of arrays recorded as a CUDA graph: launching kernel by kernel takes longer than they run.

    Arrays go in and come out through pinned memory, and the copies are part of the recording: a call costs one launch and, where
    something comes out, one wait. What it returns is overwritten by the next call.
    """

    def __init__(self, function: Any, inputs: tuple[Any, ...], device: Any, pool: Any) -> None:
        import torch

        self.pinned = tuple(torch.from_numpy(np.ascontiguousarray(array)).pin_memory() for array in inputs)
        held = tuple(array.to(device) for array in self.pinned)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                out = function(*held)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.into = tuple(array.numpy() for array in self.pinned)
        self.output: torch.Tensor | None = None if out is None else torch.empty(out.shape, dtype=out.dtype, pin_memory=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            for tensor, array in zip(held, self.pinned, strict=True):
                tensor.copy_(array, non_blocking=True)
            out = function(*held)
            if self.output is not None:
                self.output.copy_(out, non_blocking=True)
        self.held = held  # the recording reads this memory

    def __call__(self, *inputs: Any) -> Any:
        import torch

        torch.cuda.current_stream().synchronize()  # the last replay must have read its inputs before they are overwritten
        for place, array in zip(self.into, inputs, strict=True):
            np.copyto(place, array)
        self.graph.replay()
        if self.output is None:
            return None
        torch.cuda.current_stream().synchronize()
        return self.output.numpy()
