"""How the torch engine runs: rows there, chunks that fit into memory, recorded computations."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.checks import one_of
from persfl.errors import PersflWarning

if TYPE_CHECKING:
    import torch

    from persfl.devices import Devices
    from persfl.types import AnyArray

TensorJob = Callable[..., "torch.Tensor | None"]  # of tensors
SHARE = 0.25  # of the free memory that one chunk may take,
GPU_BYTES = 8 * 2**30  # and how many bytes at most, unless somebody says otherwise
CPU_BYTES = 256 * 2**20
MOST_RECORDED = 64


def tensor_dtype(name: str) -> torch.dtype:
    """The kind of number that models are made of there."""
    import torch

    known = {"float32": torch.float32, "float64": torch.float64}
    return known[one_of("dtype", name, tuple(known))]


class Runtime:
    """Runs functions of arrays on a torch device, a chunk of targets at a time."""

    def __init__(
        self,
        device: torch.device,
        *,
        targets: int,
        records: bool,
        memory: float | None = None,
    ) -> None:
        self.device = device
        self.memory = memory
        self.targets = targets
        self.records = records
        self._chunk: int | None = None  # where memory ran out
        self._recorded: dict[Hashable, Replayed] = {}
        self._shared: object = None

    def forget(self) -> None:
        """Drop the recordings: something that they read lies elsewhere now."""
        for recorded in self._recorded.values():
            recorded.done.synchronize()
        self._recorded.clear()

    def run(
        self,
        key: Hashable,
        function: TensorJob,
        models: torch.Tensor,
        *inputs: AnyArray,
    ) -> AnyArray | None:
        """What the function says of these arrays, as an array; recorded where that is possible."""
        # A recording keeps the memory it used. One for all targets is worth that; one per chunk
        # would add up to all of them, and chunks are large enough to keep the device busy without.
        if not self.records or len(inputs[0]) < self.targets:
            out = function(*(self.tensor(array) for array in inputs))
            return None if out is None else out.cpu().numpy()
        return self.replayed(key, function, models, *inputs).wait()

    def replayed(
        self,
        key: Hashable,
        function: TensorJob,
        models: torch.Tensor,
        *inputs: AnyArray,
    ) -> Replayed:
        """A recording of it, under way with these arrays; made where there is none."""
        if key not in self._recorded:
            if len(self._recorded) >= MOST_RECORDED:
                self.forget()
            # recording runs the function, which may change the models
            kept = models.clone()
            try:
                recorded = Replayed(function, inputs, self.device, self._pool())
            finally:
                models.copy_(kept)
            self._recorded[key] = recorded
        self._recorded[key].launch(*inputs)
        return self._recorded[key]

    def chunks(
        self, targets: int, fits: int, work: Callable[[slice], Any]
    ) -> list[Any]:
        """Do the work for all targets, so many at a time as fit; a chunk that does not is halved.

        It is then done again: work must allow that.
        """
        import torch

        size = self.fitting(targets, fits)
        done: list[Any] = []
        first = 0
        while first < targets:
            part = slice(first, min(first + size, targets))
            try:
                done.append(work(part))
                first = part.stop
            except torch.cuda.OutOfMemoryError:
                if size == 1:
                    raise
                self.forget()
                torch.cuda.empty_cache()
                size = self._chunk = max(1, size // 2)
                said = f"the device ran out of memory: going on with {size} targets at a time."
                warnings.warn(said, PersflWarning, stacklevel=5)
        return done

    def fitting(self, targets: int, fits: int) -> int:
        """How many targets to take at a time, where so many fit; chunks of one size, where there
        is one: each size is compiled anew.
        """
        most = min(self._chunk or targets, fits, targets) or 1
        alike = (n for n in range(most, most // 2, -1) if not targets % n)
        return next(alike, -(-targets // -(-targets // most)) if targets else 1)

    def room(self) -> float:
        """How many bytes a chunk may take: what was asked for, or a share of what is free."""
        import torch

        if self.memory is not None:
            return self.memory * 2**30
        if self.device.type == "cuda":
            free = torch.cuda.mem_get_info(self.device)[0]
            return min(GPU_BYTES, SHARE * free)
        return CPU_BYTES

    def peak(self, work: Callable[[], object]) -> int:
        """How many bytes some work takes on a GPU, measured."""
        import torch

        torch.cuda.synchronize(self.device)
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        work()
        return torch.cuda.max_memory_allocated(self.device) - before

    def tensor(self, values: AnyArray) -> torch.Tensor:
        """An array where the computation is."""
        import torch

        return torch.as_tensor(np.ascontiguousarray(values)).to(self.device)

    def _pool(self) -> object:
        """Memory that all recordings share: they are replayed one after the other."""
        import torch

        if self._shared is None:
            self._shared = torch.cuda.graph_pool_handle()
        return self._shared


class TensorRows:
    """Devices' rows as tensors: a device's are a slice, gathered for the pairs at hand."""

    def __init__(
        self,
        rows: Devices,
        device: torch.device,
        dtype: torch.dtype,
        features: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        import torch

        self.devices = rows
        parts = [
            torch.as_tensor(part).to(device, dtype)
            for part in (rows.X, rows.y, rows.weight)
        ]
        if features is not None:
            parts[0] = features(parts[0])
        self.start = torch.as_tensor(rows.start[:-1].copy()).to(device)
        self.counts = torch.as_tensor(rows.counts).to(device)
        self.longest = max(1, int(rows.counts.max(initial=1)))
        self.even = len(rows) * self.longest == len(rows.X)
        self.slots = torch.arange(self.longest, device=device)
        if self.even:
            shape = (len(rows), self.longest)
            parts = [part.reshape(*shape, *part.shape[1:]) for part in parts]
        self.X, self.y, self.weight = parts

    def __getitem__(
        self, which: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Padded rows, leading axes as `which`; weight 0 where there are none."""
        import torch

        somebody = which >= 0
        safe = which.clamp_min(0)
        if self.even:
            return self.X[safe], self.y[safe], self.weight[safe] * somebody[..., None]
        real = (self.slots < self.counts[safe][..., None]) & somebody[..., None]
        at = torch.where(real, self.start[safe][..., None] + self.slots, 0)
        return self.X[at], self.y[at], self.weight[at] * real

    @property
    def tensors(self) -> list[torch.Tensor]:
        """What a computation reads of them."""
        return [self.X, self.y, self.weight, self.start, self.counts, self.slots]

    def holding(self, tensors: list[torch.Tensor]) -> TensorRows:
        """The same rows, read from these tensors."""
        other = copy.copy(self)
        other.X, other.y, other.weight, other.start, other.counts, other.slots = tensors
        return other


class Replayed:
    """A function of arrays recorded as a CUDA graph: launching kernel by kernel takes longer than
    they run.

    Arrays go in and come out through pinned memory. What comes out stays until the launch after
    the next one: there are two places for it, so that one can be read while the next is computed.
    """

    def __init__(
        self,
        function: TensorJob,
        inputs: tuple[AnyArray, ...],
        device: torch.device,
        pool: Any,
    ) -> None:
        import torch

        self.pinned = tuple(
            torch.from_numpy(np.ascontiguousarray(array)).pin_memory()
            for array in inputs
        )
        held = tuple(array.to(device) for array in self.pinned)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                out = function(*held)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.into = tuple(array.numpy() for array in self.pinned)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            for tensor, array in zip(held, self.pinned, strict=True):
                tensor.copy_(array, non_blocking=True)
            out = function(*held)
        # the recording reads this memory, and what the function holds
        self.held = held
        self.function = function
        self.said: torch.Tensor | None = out
        self.outputs: list[torch.Tensor] = []
        if out is not None:
            self.outputs = [
                torch.empty_like(out, device="cpu").pin_memory() for _ in "12"
            ]
        self.arrays = [output.numpy() for output in self.outputs]
        self.turn = 0
        self.done = torch.cuda.Event()

    def launch(self, *inputs: AnyArray) -> None:
        """Begin with these arrays."""
        # the last replay must have read its inputs before they are overwritten
        self.done.synchronize()
        for place, array in zip(self.into, inputs, strict=True):
            np.copyto(place, array)
        self.graph.replay()
        if self.said is not None:
            self.turn = 1 - self.turn
            self.outputs[self.turn].copy_(self.said, non_blocking=True)
        self.done.record()

    def wait(self) -> AnyArray | None:
        """What came out of the last launch."""
        if self.said is None:
            return None
        self.done.synchronize()
        return self.arrays[self.turn]
