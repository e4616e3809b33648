"""What networks compute for many models at once, each with its own rows."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from persfl.checks import many
from persfl.errors import PersflWarning
from persfl.learners.network_module import cannot_map, norms
from persfl.learners.precision import computed_in
from persfl.types import Data

if TYPE_CHECKING:
    from persfl.learners.network_tensors import NetworkTensors
    from persfl.types import Array

    OfOne = Callable[..., Tensor]  # of one model and one device's arrays

Found = TypeVar("Found")
# what a batched call on arrays may take at a time, on a processor and on a GPU
_BYTES = {"cpu": 256 * 2**20, "cuda": 4 * 2**30}


@dataclass(frozen=True, eq=False)
class NetworkBatches:
    """A network's functions of one model, for many."""

    network: NetworkTensors
    device: torch.device = torch.device("cpu")  # noqa: RUF009
    precision: str = "float32"
    memory: float | None = None  # in GiB, of a batched call

    def batched(self, function: OfOne, model: Array, X: Array, *more: Array) -> Array:
        """A function of one model and one device's arrays over all leading axes, a chunk at a
        time.
        """
        lead = np.broadcast_shapes(model.shape[:-1], X.shape[:-2])
        tensors = _tensors(self.network.dtype, lead, model, X, *more)
        if not lead:
            with computed_in(self.precision):
                one = function(*(tensor.to(self.device) for tensor in tensors))
            return np.asarray(one.detach().cpu().numpy())
        if not len(tensors[0]):
            one = function(*(torch.zeros(t.shape[1:], dtype=t.dtype) for t in tensors))
            return np.asarray(torch.empty((*lead, *one.shape), dtype=one.dtype).numpy())
        found = torch.cat(
            self._chunk_by_chunk(tensors, lambda some: self._there(function, some))
        )
        return np.asarray(found.reshape(*lead, *found.shape[1:]).numpy())

    def _there(self, function: OfOne, tensors: list[Tensor]) -> Tensor:
        """A function of one over the first axis, computed on the device."""
        with computed_in(self.precision):
            found = _mapped(function, [tensor.to(self.device) for tensor in tensors])
        return found.detach().cpu()

    def _chunks(self, tensors: list[Tensor]) -> list[list[Tensor]]:
        """As many models and their rows at a time as memory should hold."""
        w, X = tensors[:2]
        each = 8 * (4 * w.shape[1] + X.shape[1] * (4 * X.shape[2]))
        if (
            self.device.type != "cpu"
        ):  # what a processor computes one by one takes little
            each += 8 * X.shape[1] * self.network.width
        room = float(_BYTES.get(self.device.type, _BYTES["cpu"]))
        if self.memory is not None:
            room = self.memory * 2**30
        return _parted(tensors, max(1, int(room // each)))

    def _chunk_by_chunk(
        self, tensors: list[Tensor], work: Callable[[list[Tensor]], Found]
    ) -> list[Found]:
        """What work makes of each chunk; where memory runs out, this and later ones are halved."""
        done: list[Found] = []
        waiting = self._chunks(tensors)[::-1]
        while waiting:
            some = waiting.pop()
            try:
                done.append(work(some))
            except torch.cuda.OutOfMemoryError:
                size = len(some[0]) // 2
                if not size:
                    raise
                torch.cuda.empty_cache()
                fewer = f"going on with {many(size, 'model')} at a time."
                said = f"the device ran out of memory: {fewer}"
                warnings.warn(said, PersflWarning, stacklevel=4)
                later = [_parted(chunk, size)[::-1] for chunk in [*waiting, some]]
                waiting = [part for parts in later for part in parts]
        return done

    def fit_from(self, start: Array, data: Data, *, epochs: int, rate: float) -> Array:
        """(..., size) after so many steps of Adam on all rows: of the weights on the way those
        with the least loss, so that a fit is never worse than its start.
        """
        behind = self._behind(data)
        if behind is not None:
            rest, rows = behind
            return rest.fit_from(start, rows, epochs=epochs, rate=rate)
        lead = start.shape[:-1]
        tensors = _tensors(self.network.dtype, lead, start, data.X, data.y, data.weight)
        if not lead:
            tensors = [tensor[None] for tensor in tensors]
        found = self._chunk_by_chunk(
            tensors, lambda some: self._fit(some, epochs, rate)
        )
        if not found:
            return start
        return np.concatenate([models.numpy() for models in found]).reshape(start.shape)

    def _fit(self, tensors: list[Tensor], epochs: int, rate: float) -> Tensor:
        w, *rows = (tensor.to(self.device) for tensor in tensors)
        best = w
        least = torch.full_like(w[:, 0], torch.inf)
        for now, value in self._adam(w, rows, epochs, rate):
            best = torch.where((value < least)[:, None], now, best)
            least = torch.minimum(torch.nan_to_num(value, torch.inf), least)
        return best.cpu()

    def descended(
        self,
        start: Array,
        data: Data,
        marks: Sequence[int],
        rate: float,
        seen: Array | None = None,
    ) -> dict[int, Array]:
        """(..., size) per mark: these models after so many steps of Adam on all rows."""
        behind = self._behind(data)
        if behind is not None:
            rest, seen_rows = behind
            return rest.descended(start, seen_rows, marks, rate, seen)
        lead = start.shape[:-1]
        more = [] if seen is None else [seen]
        rows = (data.X, data.y, data.weight, *more)
        tensors = _tensors(self.network.dtype, lead, start, *rows)
        if not lead:
            tensors = [tensor[None] for tensor in tensors]
        parts = self._chunk_by_chunk(
            tensors, lambda some: self._marked(some, marks, rate)
        )
        if not parts:
            return dict.fromkeys(marks, start)
        return {
            mark: np.concatenate(models).reshape(start.shape)
            for mark, models in zip(marks, zip(*parts, strict=True), strict=True)
        }

    def stepped(self, start: Array, data: Data, steps: int, size: float) -> Array:
        """(models, weights) after so many plain steps on all rows, which are sent there once."""
        behind = self._behind(data)
        if behind is not None:
            rest, rows = behind
            return rest.stepped(start, rows, steps, size)
        lead = start.shape[:-1]
        tensors = _tensors(self.network.dtype, lead, start, data.X, data.y, data.weight)
        found = self._chunk_by_chunk(
            tensors, lambda some: self._steps(some, steps, size)
        )
        return np.concatenate(found) if found else start

    def _steps(self, tensors: list[Tensor], steps: int, size: float) -> Array:
        w, *rows = (tensor.to(self.device) for tensor in tensors)
        for _ in range(steps):
            with computed_in(self.precision):
                w = w - size * _mapped(self.network.slopes, [w, *rows])
        return np.asarray(w.cpu().numpy())

    def _behind(self, data: Data) -> tuple[NetworkBatches, Data] | None:
        """What steps are taken with behind a frozen body, and what that makes of the rows."""
        cut = self.network.cut(data.X.shape[-1])
        if cut is None:
            return None
        X = torch.as_tensor(data.X, dtype=self.network.dtype).flatten(0, -2)
        made = cut.features(X.to(self.device)).cpu().numpy()
        rows = Data(made.reshape(*data.X.shape[:-1], -1), data.y, data.weight)
        return replace(self, network=cut.rest), rows

    def _marked(
        self, tensors: list[Tensor], marks: Sequence[int], rate: float
    ) -> list[Array]:
        w, *rows = (tensor.to(self.device) for tensor in tensors)
        ways = enumerate(self._adam(w, rows, max(marks), rate))
        kept = {t: now.cpu().numpy() for t, (now, _) in ways if t in marks}
        return [kept[mark] for mark in marks]

    def _adam(
        self, w: Tensor, rows: list[Tensor], steps: int, rate: float
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Models before the first step and after each, and their losses."""
        m = torch.zeros_like(w)
        v = torch.zeros_like(w)
        for t in range(1, steps + 2):
            with computed_in(self.precision):
                found = _mapped(self.network.slope_and_loss, [w, *rows])
            slope = found[:, :-1]
            yield w, found[:, -1]
            m = 0.9 * m + 0.1 * slope
            v = 0.999 * v + 0.001 * slope**2
            ahead = m / (1 - 0.9**t)
            spread = v / (1 - 0.999**t)
            w = w - rate * ahead / (spread.sqrt() + 1e-8)

    def renewed(self, models: Array, data: Data, momentum: float | None) -> Array:
        """(..., size) the same weights with running statistics renewed from these rows."""
        module = copy.deepcopy(self.network.module)
        for norm in norms(module):
            norm.train()
            if momentum is not None:
                norm.momentum = momentum
        flat = np.array(models).reshape(-1, models.shape[-1])
        X = data.X.reshape(-1, *data.X.shape[-2:])
        weight = data.weight.reshape(-1, data.rows)
        # row by row, without padding: statistics must see real rows only
        for model, rows, counts in zip(flat, X, weight, strict=True):
            real = rows[counts > 0]
            if len(real) >= 2:
                self._renew(
                    module, model, torch.as_tensor(real, dtype=self.network.dtype)
                )
        return flat.reshape(models.shape)

    def _renew(self, module: nn.Module, model: Array, rows: Tensor) -> None:
        """Let rows pass through a module in training, and write its statistics into the model."""
        moving, fixed = self.network.parts(torch.as_tensor(model.copy()))
        with torch.no_grad():
            functional_call(module, moving | fixed, (self.network.shaped(rows),))
        for name, _, begin, end in self.network.slots:
            if begin >= self.network.trained:
                model[begin:end] = fixed[name].numpy().ravel()


def _parted(tensors: list[Tensor], size: int) -> list[list[Tensor]]:
    """So many of the first axis at a time."""
    count = len(tensors[0])
    return [[t[i : i + size] for t in tensors] for i in range(0, count, size)]


def _tensors(
    dtype: torch.dtype, lead: tuple[int, ...], model: Array, *arrays: Array
) -> list[Tensor]:
    """Models and arrays as tensors, their leading axes made one (none where there were none)."""
    out = []
    for k, array in enumerate((model, *arrays)):
        own = array.shape[-2:] if k == 1 else array.shape[-1:]
        tensor = torch.tensor(np.broadcast_to(array, (*lead, *own)), dtype=dtype)
        out.append(tensor.reshape(-1, *own) if lead else tensor)
    return out


def _mapped(function: OfOne, tensors: list[Tensor]) -> Tensor:
    """A function of one over the first axis; one after the other where the module cannot be
    mapped.
    """
    try:
        return vmap(function)(*tensors)
    except RuntimeError as error:
        if not cannot_map(error):
            raise
        return torch.stack([function(*some) for some in zip(*tensors, strict=True)])
