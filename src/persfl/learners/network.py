"""Any `torch.nn.Module` as a learner: neural networks, all (target, peer) pairs of a round in one
batched computation.

    L(w) = sum_i weight_i * loss(f_w(x_i), y_i) / sum_i weight_i + l2 * ||w||^2

A model is one vector: the module's parameters, then what steps leave alone (floating buffers),
each in the module's order; `named` shows it as named arrays. Frozen parameters are in no vector:
they are the same for all devices.
So steps have lengths, models can be averaged, and nothing but numbers travels.

Modules always run in eval mode: dropout is off, since randomness inside a module cannot be named.
BatchNorm normalises with the running statistics that travel in the model. They belong to the
target: a peer's step does not change them, and after each adoption the target renews them from its
own rows (`settled`), with the module's own momentum.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from persfl.checks import one_of, real, whole
from persfl.errors import InputError, need
from persfl.learners.network_face import NetworkFace
from persfl.traits import Traits

if TYPE_CHECKING:
    import torch

    from persfl.learners.network_batches import NetworkBatches
    from persfl.learners.network_losses import EachLoss
    from persfl.learners.network_tensors import NetworkTensors
    from persfl.seeds import Stream
    from persfl.types import Array, Data


@dataclass(frozen=True, init=False, eq=False)
class Network(NetworkFace):
    """A model family given by a function that makes a fresh module.

    `loss` is "cross_entropy" (labels 0 to outputs - 1), "logistic" (one output, labels 0 and 1),
    "squared" or "absolute" (one output), or a function of (outputs, labels) to a loss per row.
    `shape` is that of one row, where the module wants more than a vector: `(1, 8, 8)` for images.
    `dtype` is "float32" or "float64". All devices start from the same weights: those that `make`
    gives under `seed`. `fit`, which trains a network alone, takes `epochs` steps of Adam at `rate`
    on all rows.

    >>> from torch import nn
    >>> learner = Network(lambda: nn.Linear(2, 1), loss="squared", dtype="float64")
    >>> from persfl import Data
    >>> data = Data(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([1.0, 4.0]))
    >>> model = np.array([1.0, 2.0, 0.5])
    >>> float(learner.loss(model, data)), learner.grad(model, data).tolist()
    (0.25, [0.5, 1.0, 1.0])
    >>> {name: value.tolist() for name, value in learner.named(model).items()}
    {'weight': [[1.0, 2.0]], 'bias': [0.5]}
    """

    # of an answer to `Refit`, proximal ones: a network is not trained anew for every question
    refit_steps = 5

    make: Callable[[], object]
    kind: str
    l2: float
    epochs: int
    rate: float
    seed: int
    shape: tuple[int, ...] | None
    dtype: str
    _tensors: NetworkTensors = field(repr=False)  # what the module computes
    _batches: NetworkBatches = field(repr=False)  # the same for many models
    _start: Array = field(repr=False)  # the weights that make gave
    _norms: bool = field(repr=False)  # whether there are running statistics to renew

    def __init__(
        self,
        make: Callable[[], object],
        *,
        loss: str | EachLoss = "cross_entropy",
        shape: tuple[int, ...] | None = None,
        dtype: str = "float32",
        l2: float = 0.0,
        epochs: int = 200,
        rate: float = 0.01,
        seed: int = 0,
    ) -> None:
        need("torch", extra="torch", why="a Network")
        from persfl.learners.network_batches import NetworkBatches
        from persfl.learners.network_losses import network_loss
        from persfl.learners.network_module import DTYPES, layout_of, new_module, norms
        from persfl.learners.network_tensors import NetworkTensors
        from persfl.learners.pair_convolutions import in_pairs

        meaning = network_loss(loss)
        one_of("dtype", dtype, ("float32", "float64"))
        module = new_module(make, dtype, int(seed))
        in_pairs(module)
        slots, start, trained = layout_of(module)
        ridge = real("l2", l2, least=0)
        row = None if shape is None else tuple(int(length) for length in shape)
        settings = (meaning, ridge, row, DTYPES[dtype])
        tensors = NetworkTensors(module, slots, trained, *settings)
        for name, value in {
            "make": make,
            "kind": meaning.name,
            "l2": ridge,
            "epochs": whole("epochs", epochs, least=0),
            "rate": real("rate", rate, above=0),
            "seed": int(seed),
            "shape": row,
            "dtype": dtype,
            "_tensors": tensors,
            "_batches": NetworkBatches(tensors),
            "_start": start,
            "_norms": bool(norms(module)),
        }.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        name = type(self._tensors.module).__name__
        count = self._tensors.trained
        return f"Network({name}, {count} parameters, loss={self.kind!r})"

    # Models

    def size(self, features: int = 0) -> int:
        """How many numbers a model has."""
        return self._start.size

    @property
    def traits(self) -> Traits:
        """Vectors with gradients and a mean; running statistics where the module has some."""
        return Traits.of(self.kind, gradients=True, renews=self._norms, tensors=True)

    @property
    def moves(self) -> NDArray[np.bool_]:
        """(size,) which numbers steps change: parameters do, running statistics do not."""
        return np.arange(self.size()) < self._tensors.trained

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The names and shapes of a model's parts."""
        return {slot.name: slot.shape for slot in self._tensors.slots}

    def init(self, data: Data, stream: Stream | None) -> Array:
        """The module as `make` gives it; running statistics from the device's rows."""
        lead = data.X.shape[:-2]
        start = np.broadcast_to(self._start, (*lead, self._start.size)).copy()
        return self.settled(start, data, momentum=1.0)

    def fresh(self, data: Data, stream: Stream) -> Array:
        """Another start: the module as `make` gives it under a seed drawn at this place. What
        must start apart starts here.
        """
        seed = stream.integer()
        other = Network(self.make, dtype=self.dtype, shape=self.shape, seed=seed)
        return other.init(data, None)

    def named(self, model: Array) -> dict[str, Array]:
        """A model as named arrays, as a module's `state_dict` has them."""
        return {
            name: np.asarray(model[..., a:b]).reshape(*model.shape[:-1], *shape)
            for name, shape, a, b in self._tensors.slots
        }

    def flat(self, named: Mapping[str, Array]) -> Array:
        """The inverse of `named`."""
        known = list(self.shapes)
        if set(known) - set(named):
            given = ", ".join(sorted(map(str, named)))
            raise InputError(f"named arrays must hold {', '.join(known)}. Got {given}.")
        return np.concatenate(
            [np.asarray(named[name], dtype=self.dtype).ravel() for name in known]
        )

    def module(self, model: Array) -> torch.nn.Module:
        """A fresh module that holds this model, for use with plain PyTorch."""
        from persfl.learners.network_module import fill, new_module

        made = new_module(self.make, self.dtype, self.seed)
        fill(made, self.named(np.asarray(model)))
        return made

    def mix(self, models: Array, weights: Array) -> Array:
        """(..., size) the weighted mean, running statistics included."""
        shares = np.asarray(weights, dtype=models.dtype)[..., None]
        return np.asarray(np.where(shares != 0, shares * models, 0.0).sum(axis=-2))

    def check(self, model: object, features: int) -> Array:
        """A handed-in model as a vector of the right length, also from named arrays."""
        try:
            given: Any = self.flat(model) if isinstance(model, dict) else model
            array = np.array(given, dtype=self.dtype)
        except (TypeError, ValueError):
            array = np.empty(0)
        if array.shape != (self.size(),) or not np.isfinite(array).all():
            raise InputError(
                f"a model of {self!r} must be {self.size()} finite numbers. Got"
                f" {type(model).__name__}."
            )
        return array

    # What a model says

    def predict(self, model: Array, X: Array) -> Array:
        """The response: a value, the chance of label 1, or the chance of every class (one more
        axis).
        """
        return self._tensors.loss.response(self._outputs(model, X))

    def labels(self, model: Array, X: Array) -> Array:
        """The response as a label: the likelier class."""
        return self._tensors.loss.label(self._outputs(model, X))

    def chances(self, model: Array, X: Array) -> tuple[Array, Array]:
        """The chance of every label, and the labels."""
        return self._tensors.loss.chances(self.predict(model, X))

    def _outputs(self, model: Array, X: Array) -> Array:
        return self._batches.batched(self._tensors.outputs, model, X)

    def loss(self, model: Array, data: Data) -> Any:
        """(...) the mean loss over the rows; inf where it overflows or there are no rows."""
        rows = (data.X, data.y, data.weight)
        found = self._batches.batched(self._tensors.losses, model, *rows)
        value = found.astype(np.float64)
        return np.where(np.isfinite(value), value, np.inf)[()]

    def grad(self, model: Array, data: Data, *, seen: Array | None = None) -> Array:
        """(..., size) the gradient of `loss`; 0 for running statistics. `seen` (..., classes):
        others are left out of the loss.
        """
        rows = [data.X, data.y, data.weight] + ([] if seen is None else [seen])
        return self._batches.batched(self._tensors.slopes, model, *rows)

    def fit(self, data: Data, stream: Stream | None) -> Array:
        """(..., size) trained alone from the starting weights: `epochs` steps of Adam on all rows.

        Of the weights on the way those with the least loss are kept, so that a fit is never worse
        than its start.
        """
        start = self.init(data, stream)
        best = self._batches.fit_from(start, data, epochs=self.epochs, rate=self.rate)
        return self.settled(best, data)

    def descended(
        self,
        models: Array,
        data: Data,
        marks: Sequence[int],
        rate: float,
        seen: Array | None = None,
    ) -> dict[int, Array]:
        """(..., size) per mark: these models after so many steps of Adam at this rate."""
        return self._batches.descended(models, data, marks, rate, seen)

    def stepped(self, models: Array, data: Data, steps: int, size: float) -> Array:
        """(models, size) these models after so many plain steps on all rows."""
        return self._batches.stepped(models, data, steps, size)

    @property
    def frozen(self) -> str:
        """A mark of the numbers that are frozen, the same for all devices; empty without any."""
        from persfl.learners.network_module import mark_of_frozen

        return mark_of_frozen(self._tensors.module)

    def on(
        self, compute: str, *, precision: str = "float32", memory: float | None = None
    ) -> Network:
        """The same network, whose fits, losses and slopes are computed there, as torch names it;
        `precision` and `memory` as `persfl.ArrayFleet` has them, also for fleets of it.
        """
        from persfl.learners.network_batches import NetworkBatches
        from persfl.learners.network_module import device_named

        other = copy.copy(self)
        place = device_named(compute)
        batches = NetworkBatches(self._tensors, place, precision, memory)
        object.__setattr__(other, "_batches", batches)
        return other

    def settled(
        self, models: Array, data: Data, momentum: float | None = None
    ) -> Array:
        """(..., size) the same weights with running statistics renewed from these rows;
        unchanged without BatchNorm.
        """
        return self._batches.renewed(models, data, momentum) if self._norms else models

    def check_labels(self, data: Data) -> str | None:
        """What these labels lack, if anything; rows that the module cannot take are an error."""
        outputs = self.width_of_output(data.X.shape[-1])
        return self._tensors.loss.complaint(data.y, outputs)
