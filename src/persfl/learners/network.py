"""Any `torch.nn.Module` as a learner: neural networks, all (target, peer) pairs of a round in one
batched computation.

    L(w) = sum_i weight_i * loss(f_w(x_i), y_i) / sum_i weight_i + l2 * ||w||^2

A model is one vector: the module's parameters, then what steps leave alone (frozen parameters,
floating buffers), each in the module's order; `named` shows it as named arrays.
So steps have lengths, models can be averaged, and nothing but numbers travels.

Modules always run in eval mode. Dropout is therefore off: randomness inside a module cannot be
named, and a step is small anyway. BatchNorm normalises with the running statistics that travel in
the model. They belong to the target: a peer's step uses but does not change them, and after each
adoption the target renews them from its own rows (`settled`), with the module's own momentum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.checks import one_of, real, whole
from persfl.errors import InputError, need
from persfl.seeds import Stream
from persfl.traits import Traits
from persfl.types import Array, Data

if TYPE_CHECKING:
    import torch

KINDS = ("cross_entropy", "logistic", "squared", "absolute")
_BYTES = 256 * 2**20  # what a batched call on arrays may take at a time


@dataclass(frozen=True, init=False, eq=False)
class Network:
    """A model family given by a function that makes a fresh module.

    `loss` is "cross_entropy" (labels 0 to outputs - 1), "logistic" (one output, labels 0 and 1),
    "squared" or "absolute" (one output), or a function of (outputs, labels) to a loss per row.
    `shape` is that of one row, where the module wants more than a vector: `(1, 8, 8)` for images.
    `dtype` is "float32" or "float64". All devices start from the same weights: those that `make`
    gives under `seed`. `fit`, which trains a network alone, takes `epochs` steps of Adam at `rate`
    on all rows.

    >>> from torch import nn
    >>> learner = Network(lambda: nn.Linear(2, 1), loss="squared", dtype="float64")
    >>> data = Data(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([1.0, 4.0]))
    >>> model = np.array([1.0, 2.0, 0.5])
    >>> float(learner.loss(model, data)), learner.grad(model, data).tolist()
    (0.25, [0.5, 1.0, 1.0])
    >>> {name: value.tolist() for name, value in learner.named(model).items()}
    {'weight': [[1.0, 2.0]], 'bias': [0.5]}
    """

    # how many proximal steps an answer to `Refit` takes: a network is not trained anew for every
    # question
    refit_steps = 5

    make: Callable[[], Any]
    kind: str
    l2: float
    epochs: int
    rate: float
    seed: int
    shape: tuple[int, ...] | None
    dtype: str
    _each: Any = field(repr=False)  # the user's loss per row, where it is their own
    _module: Any = field(repr=False)
    _start: Array = field(repr=False)  # the weights that make gave
    # name, shape, from, to
    _places: tuple[tuple[str, tuple[int, ...], int, int], ...] = field(repr=False)
    # how many of the numbers are parameters; the rest are buffers
    _trained: int = field(repr=False)
    _norms: bool = field(repr=False)  # whether there are running statistics to renew
    # outputs by features, once found: rows of a stream are checked every round
    _widths: dict[int, int] = field(repr=False)

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        loss: str | Callable[[Any, Any], Any] = "cross_entropy",
        shape: tuple[int, ...] | None = None,
        dtype: str = "float32",
        l2: float = 0.0,
        epochs: int = 200,
        rate: float = 0.01,
        seed: int = 0,
    ) -> None:
        torch = need("torch", extra="torch", why="a Network")
        if isinstance(loss, str):
            one_of("loss", loss, KINDS)
        elif not callable(loss):
            raise InputError(
                f"loss must be one of {', '.join(KINDS)}, or a function of (outputs, labels). Got"
                f" {loss!r}."
            )
        one_of("dtype", dtype, ("float32", "float64"))
        if isinstance(make, torch.nn.Module) or not callable(make):
            raise InputError(
                "make must be a function that makes a fresh module, such as lambda:"
                " nn.Linear(4, 1)."
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(seed))
            module = _made(make)
        if not isinstance(module, torch.nn.Module):
            raise InputError(
                f"make must return a torch.nn.Module. Got {type(module).__name__}."
            )
        module = module.to("cpu", getattr(torch, dtype)).eval()
        if any(
            torch.nn.parameter.is_lazy(value)
            for value in (*module.parameters(), *module.buffers())
        ):
            raise InputError(
                "the module has lazy parts, which have no shape yet. Name the number of features"
                " instead."
            )
        held = [
            (k, v)
            for k, v in (*module.named_parameters(), *module.named_buffers())
            if v.is_floating_point()
        ]
        # those that steps change come first
        parts = sorted(held, key=lambda part: not part[1].requires_grad)
        places, at = [], 0
        for name, value in parts:
            places.append((name, tuple(value.shape), at, at + value.numel()))
            at += value.numel()
        trained = sum(value.numel() for _, value in parts if value.requires_grad)
        if not trained:
            raise InputError(
                "the module has no parameters that require a gradient, so there is nothing to"
                " learn."
            )
        norms = any(
            hasattr(part, "running_mean") and part.running_mean is not None
            for part in module.modules()
        )
        for name, value in {
            "make": make,
            "kind": loss if isinstance(loss, str) else "own",
            "l2": real("l2", l2, least=0),
            "epochs": whole("epochs", epochs, least=0),
            "rate": real("rate", rate, above=0),
            "seed": int(seed),
            "shape": None if shape is None else tuple(int(s) for s in shape),
            "dtype": dtype,
            "_each": None if isinstance(loss, str) else loss,
            "_module": module,
            "_start": np.concatenate(
                [value.detach().numpy().ravel() for _, value in parts]
            ),
            "_places": tuple(places),
            "_trained": trained,
            "_norms": norms,
            "_widths": {},
        }.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return (
            f"Network({type(self._module).__name__}, {self._trained} parameters,"
            f" loss={self.kind!r})"
        )

    # Models

    def size(self, features: int = 0) -> int:
        """How many numbers a model has."""
        return self._places[-1][3]

    @property
    def traits(self) -> Traits:
        """Vectors with gradients and a mean; running statistics where the module has some."""
        return Traits.of(self.kind, gradients=True, renews=self._norms, tensors=True)

    @property
    def renews(self) -> bool:
        """Whether there are running statistics, which `settled` renews."""
        return self._norms

    @property
    def width(self) -> int:
        """About how many numbers a row takes on its way through the module and back."""
        area = int(np.prod(self.shape[1:])) if self.shape is not None else 1
        return (
            4
            * area
            * sum(shape[0] for _, shape, _, _ in self._places if len(shape) >= 2)
        )

    @property
    def moves(self) -> Any:
        """(size,) which numbers of a model steps change: parameters do, running statistics do
        not.
        """
        return np.arange(self.size()) < self._trained

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The names and shapes of a model's parts."""
        return {name: shape for name, shape, _, _ in self._places}

    def width_of_output(self, features: int) -> int:
        """How many numbers the module says about a row."""
        if features not in self._widths:
            self._widths[features] = self._width_of_output(features)
        return self._widths[features]

    def _width_of_output(self, features: int) -> int:
        torch = need("torch", extra="torch", why="a Network")
        try:
            with torch.no_grad():
                z = self._module(
                    self._shaped(
                        torch.zeros((2, features), dtype=getattr(torch, self.dtype))
                    )
                )
        except Exception as error:  # whatever a module of the user's says
            text = str(error).strip().splitlines()
            raise InputError(
                f"the module does not take rows of {features} features in {self.dtype}:"
                f" {text[0] if text else repr(error)}"
            ) from error
        if not hasattr(z, "shape") or not len(z.shape) or z.shape[0] != 2:
            raise InputError(
                "the module must give one entry per row along its first axis. Got something else."
            )
        return int(np.prod(z.shape)) // 2

    def init(self, data: Data, stream: Stream | None) -> Array:
        """The module as `make` gives it; running statistics from the device's rows."""
        lead = data.X.shape[:-2]
        return self.settled(
            np.broadcast_to(self._start, (*lead, self._start.size)).copy(),
            data,
            momentum=1.0,
        )

    def fresh(self, data: Data, stream: Stream) -> Array:
        """Another start: the module as `make` gives it under a seed drawn at this place. What
        must start apart starts here.
        """
        other = Network(
            self.make, dtype=self.dtype, shape=self.shape, seed=stream.integer()
        )
        return other.init(data, None)

    def named(self, model: Array) -> dict[str, Array]:
        """A model as named arrays, as a module's `state_dict` has them."""
        return {
            name: np.asarray(model[..., a:b]).reshape(*model.shape[:-1], *shape)
            for name, shape, a, b in self._places
        }

    def flat(self, named: Any) -> Array:
        """The inverse of `named`."""
        known = [name for name, *_ in self._places]
        if set(known) - set(named):
            raise InputError(
                f"named arrays must hold {', '.join(known)}. Got"
                f" {', '.join(sorted(map(str, named)))}."
            )
        return np.concatenate(
            [np.asarray(named[name], dtype=self.dtype).ravel() for name in known]
        )

    def module(self, model: Array) -> Any:
        """A fresh module that holds this model, for use with plain PyTorch."""
        torch = need("torch", extra="torch", why="a Network")
        made = self.make().to("cpu", getattr(torch, self.dtype)).eval()
        held = dict(made.named_parameters()) | dict(made.named_buffers())
        with torch.no_grad():
            for name, value in self.named(np.asarray(model)).items():
                held[name].copy_(torch.as_tensor(value))
        return made

    def mix(self, models: Array, weights: Array) -> Array:
        """(..., size) the weighted mean, running statistics included."""
        weights = np.asarray(weights, dtype=models.dtype)
        return np.asarray(
            np.where(weights[..., None] != 0, weights[..., None] * models, 0.0).sum(
                axis=-2
            )
        )

    def check(self, model: Any, features: int) -> Array:
        """A handed-in model as a vector of the right length, also from named arrays."""
        try:
            if isinstance(model, dict):
                model = self.flat(model)
            array = np.array(model, dtype=self.dtype)
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
        torch = need("torch", extra="torch", why="a Network")
        z = self._outputs(model, X)
        if self.kind == "cross_entropy":
            return np.asarray(
                torch.softmax(torch.as_tensor(z), dim=-1).numpy(), dtype=np.float64
            )
        z = z[..., 0]
        return np.asarray(
            1.0 / (1.0 + np.exp(-z)) if self.kind == "logistic" else z, dtype=np.float64
        )

    def labels(self, model: Array, X: Array) -> Array:
        """The response as a label: the likelier class."""
        z = self._outputs(model, X)
        if self.kind == "cross_entropy":
            return np.asarray(z.argmax(axis=-1), dtype=np.float64)
        return np.asarray(
            z[..., 0] > 0 if self.kind == "logistic" else z[..., 0], dtype=np.float64
        )

    def chances(self, model: Array, X: Array) -> tuple[Array, Array]:
        """The chance of every label, and the labels."""
        found = self.predict(model, X)
        if self.kind == "cross_entropy":
            return found, np.arange(float(found.shape[-1]))
        if self.kind == "logistic":
            return np.stack([1.0 - found, found], axis=-1), np.array([0.0, 1.0])
        raise InputError(
            f"chances of labels exist for loss='cross_entropy' and 'logistic'. Got {self.kind!r}."
        )

    def _outputs(self, model: Array, X: Array) -> Array:
        lead = np.broadcast_shapes(model.shape[:-1], X.shape[:-2])
        return np.asarray(self._batched(self.outputs, lead, model, X).numpy())

    def loss(self, model: Array, data: Data) -> Any:
        """(...) the mean loss over the rows; inf where it overflows or there are no rows."""
        lead = np.broadcast_shapes(model.shape[:-1], data.y.shape[:-1])
        found = self._batched(self.losses, lead, model, data.X, data.y, data.weight)
        value = np.asarray(found.numpy(), dtype=np.float64)
        return np.where(np.isfinite(value), value, np.inf)[()]

    def grad(self, model: Array, data: Data, *, seen: Any = None) -> Array:
        """(..., size) the gradient of `loss`; 0 for running statistics. `seen` (..., classes):
        others are left out of the loss.
        """
        lead = np.broadcast_shapes(model.shape[:-1], data.y.shape[:-1])
        found = self._batched(
            self.slopes,
            lead,
            model,
            data.X,
            data.y,
            data.weight,
            *([] if seen is None else [seen]),
        )
        return np.asarray(found.numpy())

    def fit(self, data: Data, stream: Stream | None) -> Array:
        """(..., size) trained alone from the starting weights: `epochs` steps of Adam on all rows.

        Of the weights on the way those with the least loss are kept, so that a fit is never worse
        than its start.
        """
        start = self.init(data, stream)
        lead = start.shape[:-1]
        tensors = self._tensors(lead, start, data.X, data.y, data.weight)
        if not lead:
            tensors = [tensor[None] for tensor in tensors]
        step = self._fitting(tensors)
        found = [
            self._fit([t[i : i + step] for t in tensors])
            for i in range(0, len(tensors[0]), step)
        ]
        best = (
            np.concatenate([models.numpy() for models in found]).reshape(start.shape)
            if found
            else start
        )
        return self.settled(best, data) if self._norms else best

    def _fit(self, tensors: list[Any]) -> torch.Tensor:
        """(D, size) `fit` for D devices at once."""
        import torch

        w, *rows = tensors
        best, least = w, torch.full(w.shape[:1], torch.inf, dtype=w.dtype)
        m, v = torch.zeros_like(w), torch.zeros_like(w)
        for t in range(1, self.epochs + 2):
            found = self._mapped(self._slope_and_loss, [w, *rows])
            slope, now = found[:, :-1], found[:, -1]
            best, least = (
                torch.where((now < least)[:, None], w, best),
                torch.minimum(torch.nan_to_num(now, torch.inf), least),
            )
            m, v = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope**2
            w = w - self.rate * (m / (1 - 0.9**t)) / (
                (v / (1 - 0.999**t)).sqrt() + 1e-8
            )
        return best

    def _slope_and_loss(
        self, w: torch.Tensor, X: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        """(size + 1,) `slopes` and `losses` from one pass; both 0 without rows."""
        import torch
        from torch.func import grad_and_value

        moving, fixed = self.parts(w)
        slopes, value = grad_and_value(self._aim(fixed, X, y, weight))(moving)
        return torch.cat(
            [
                self.joined(slopes),
                torch.zeros_like(w[self._trained :]),
                value.reshape(1),
            ]
        )

    def settled(
        self, models: Array, data: Data, momentum: float | None = None
    ) -> Array:
        """(..., size) the same weights with running statistics renewed from these rows;
        unchanged without BatchNorm.
        """
        if not self._norms:
            return models
        from torch.func import functional_call

        torch = need("torch", extra="torch", why="a Network")
        module = self._module_with(momentum)
        out = np.array(models)
        flat, X, weight = (
            out.reshape(-1, out.shape[-1]),
            data.X.reshape(-1, *data.X.shape[-2:]),
            data.weight.reshape(-1, data.rows),
        )
        buffers = [place for place in self._places if place[2] >= self._trained]
        # row by row, without padding: statistics must see real rows only
        for i in range(len(flat)):
            rows = X[i][weight[i] > 0]
            if len(rows) < 2:
                continue
            held = {
                name: torch.as_tensor(value.copy())
                for name, value in self.named(flat[i]).items()
            }
            with torch.no_grad():
                functional_call(
                    module,
                    held,
                    (self._shaped(torch.as_tensor(rows.astype(self.dtype))),),
                )
            for name, _, a, b in buffers:
                flat[i, a:b] = held[name].numpy().ravel()
        return flat.reshape(out.shape)

    def _module_with(self, momentum: float | None) -> Any:
        import copy

        module = copy.deepcopy(self._module)
        for part in module.modules():
            if hasattr(part, "running_mean") and part.running_mean is not None:
                part.train()
                if momentum is not None:
                    part.momentum = momentum
        return module

    def check_labels(self, data: Data) -> str | None:
        """What these labels lack, if this loss cannot take them; rows that the module cannot
        take are an error.
        """
        outputs = self.width_of_output(data.X.shape[-1])
        if self.kind in ("logistic", "squared", "absolute") and outputs != 1:
            return f"loss={self.kind!r} takes a module with one output a row. It gives {outputs}."
        if self.kind == "logistic":
            good, wants = (data.y == 0) | (data.y == 1), "labels 0 and 1"
        elif self.kind == "cross_entropy":
            good = (data.y >= 0) & (data.y < outputs) & (data.y == np.floor(data.y))
            wants = f"whole labels from 0 to {outputs - 1}, as many as the module has outputs"
        else:
            return None
        return (
            None
            if good.all()
            else f"loss={self.kind!r} takes {wants}. Got {data.y[~good][0]:g}."
        )

    # The same on tensors, one model and one device's rows; `torch.func.vmap` adds axes

    def parts(
        self, w: torch.Tensor
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Named views of a model's vector: parameters, and buffers, which steps do not change."""
        views = {name: w[a:b].view(shape) for name, shape, a, b in self._places}
        moving = {name for name, _, a, _ in self._places if a < self._trained}
        return {k: v for k, v in views.items() if k in moving}, {
            k: v for k, v in views.items() if k not in moving
        }

    def joined(self, parts: dict[str, torch.Tensor]) -> torch.Tensor:
        """The vector again."""
        import torch

        return torch.cat(
            [parts[name].reshape(-1) for name, *_ in self._places if name in parts]
        )

    def outputs(self, w: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
        """(rows, outputs) what the module says."""
        moving, fixed = self.parts(w)
        return self.said(moving | fixed, X)

    def losses(
        self, w: torch.Tensor, X: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        """The weighted mean loss."""
        moving, fixed = self.parts(w)
        return self.part_loss(moving | fixed, X, y, weight)

    def slopes(
        self,
        w: torch.Tensor,
        X: torch.Tensor,
        y: torch.Tensor,
        weight: torch.Tensor,
        seen: Any = None,
    ) -> torch.Tensor:
        """(size,) the gradient of `losses`; 0 for running statistics, and where there are no
        rows.
        """
        import torch

        moving, fixed = self.parts(w)
        found = self.part_slopes(moving, fixed, X, y, weight, seen)
        return torch.cat([self.joined(found), torch.zeros_like(w[self._trained :])])

    def part_slopes(
        self,
        parts: dict[str, torch.Tensor],
        fixed: dict[str, torch.Tensor],
        X: torch.Tensor,
        y: torch.Tensor,
        weight: torch.Tensor,
        seen: Any = None,
    ) -> dict[str, torch.Tensor]:
        """The gradient by part: slopes of slices of a vector would each be a vector of zeros to
        add up.
        """
        from torch.func import grad

        return grad(self._aim(fixed, X, y, weight, seen))(parts)

    def _aim(
        self,
        fixed: dict[str, torch.Tensor],
        X: torch.Tensor,
        y: torch.Tensor,
        weight: torch.Tensor,
        seen: Any = None,
    ) -> Any:
        """What steps descend: `part_loss` of the parts that move, but without rows only the
        ridge, so that there is no slope.
        """
        import torch

        total = weight.sum()
        total = torch.where(total > 0, total, torch.ones_like(total))
        return lambda some: (
            self._sum(some | fixed, X, y, weight, seen) / total + self._ridge(some)
        )

    def said(self, parts: dict[str, torch.Tensor], X: torch.Tensor) -> torch.Tensor:
        """(rows, outputs) what the module says."""
        from torch.func import functional_call

        out = functional_call(self._module, parts, (self._shaped(X),))
        return out if out.ndim == 2 else out.reshape(X.shape[0], -1)

    def part_loss(
        self,
        parts: dict[str, torch.Tensor],
        X: torch.Tensor,
        y: torch.Tensor,
        weight: torch.Tensor,
    ) -> torch.Tensor:
        """The weighted mean loss."""
        return self._sum(parts, X, y, weight) / weight.sum() + self._ridge(parts)

    def _ridge(self, parts: dict[str, torch.Tensor]) -> Any:
        if not self.l2:
            return 0.0
        return self.l2 * sum(
            (parts[name] ** 2).sum()
            for name, _, a, _ in self._places
            if a < self._trained
        )

    def _sum(
        self,
        parts: dict[str, torch.Tensor],
        X: torch.Tensor,
        y: torch.Tensor,
        weight: torch.Tensor,
        seen: Any = None,
    ) -> torch.Tensor:
        import torch
        from torch.nn import functional as F

        z = self.said(parts, X)
        if seen is not None:  # far below the others, a class takes nothing from them
            z = torch.where(seen > 0, z, torch.full_like(z, -1e4))
        if self._each is not None:
            each = self._each(z, y)
        elif self.kind == "cross_entropy":
            each = F.cross_entropy(z, y.long(), reduction="none")
        elif self.kind == "logistic":
            each = F.binary_cross_entropy_with_logits(z[:, 0], y, reduction="none")
        else:
            away = z[:, 0] - y
            each = away**2 if self.kind == "squared" else away.abs()
        return (torch.where(weight > 0, each, torch.zeros_like(each)) * weight).sum()

    def _shaped(self, X: torch.Tensor) -> torch.Tensor:
        return X if self.shape is None else X.reshape(X.shape[0], *self.shape)

    def _batched(
        self, function: Any, lead: tuple[int, ...], model: Array, *arrays: Array
    ) -> torch.Tensor:
        """A function of one model and one device's arrays over all leading axes, a chunk at a
        time.
        """
        import torch

        tensors = self._tensors(lead, model, *arrays)
        if not lead:
            return function(*tensors).detach()
        many = len(tensors[0])
        if not many:
            one = function(*(torch.zeros(t.shape[1:], dtype=t.dtype) for t in tensors))
            return torch.empty((*lead, *one.shape), dtype=one.dtype)
        step = self._fitting(tensors)
        found = torch.cat(
            [
                self._mapped(function, [t[i : i + step] for t in tensors])
                for i in range(0, many, step)
            ]
        )
        return found.reshape(*lead, *found.shape[1:]).detach()

    def _tensors(
        self, lead: tuple[int, ...], model: Array, *arrays: Array
    ) -> list[Any]:
        """Models and arrays as tensors, their leading axes made one (none where there were
        none).
        """
        torch = need("torch", extra="torch", why="a Network")
        out = []
        for k, array in enumerate((model, *arrays)):
            own = array.shape[-2:] if k == 1 else array.shape[-1:]
            tensor = torch.tensor(
                np.broadcast_to(array, (*lead, *own)), dtype=getattr(torch, self.dtype)
            )
            out.append(tensor.reshape(-1, *own) if lead else tensor)
        return out

    def _fitting(self, tensors: list[Any]) -> int:
        """How many models and their rows to take at a time."""
        w, X = tensors[:2]
        return max(
            1, int(_BYTES // (8 * (4 * w.shape[1] + 4 * X.shape[1] * X.shape[2])))
        )

    def _mapped(self, function: Any, tensors: list[Any]) -> torch.Tensor:
        import torch
        from torch.func import vmap

        try:
            return vmap(function)(*tensors)
        except RuntimeError as error:
            if "vmap" not in str(error) and "functorch" not in str(error):
                raise
            return torch.stack(
                [function(*(t[i] for t in tensors)) for i in range(tensors[0].shape[0])]
            )


def _made(make: Callable[[], Any]) -> Any:
    """A fresh module; the function is the user's, and may raise anything."""
    try:
        return make()
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"the module could not be made: {type(error).__name__}: {error}. "
            "What makes it must take the arguments (features, outputs) or none."
        ) from error
