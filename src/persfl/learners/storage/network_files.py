"""Networks on disk: named tensors in the safetensors format, which holds numbers and nothing that
could run.

A module's code is not kept. A network of persfl's own (`MLP`) is rebuilt from its widths; any other
needs its module again when the models are loaded, and its names and shapes must be those of the
file.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from persfl.checks import some
from persfl.errors import InputError, need
from persfl.learners.mlp import MLP
from persfl.learners.network import Network

if TYPE_CHECKING:
    import torch

    from persfl.learners.storage.named_arrays import AnyArray
    from persfl.types import Array

Shape = tuple[int, ...]
_MOST_WIDTHS, _MOST_AXES = 1000, 64  # layers are made one by one, which takes time
_SETTINGS = ("l2", "epochs", "rate", "seed", "dtype")


def network_words(learner: Network) -> dict[str, Any]:
    """A network in plain words: how it is rebuilt, and the names and shapes that its models
    have.
    """
    make = learner.make
    mlp = None
    if isinstance(make, partial) and isinstance(make.func, MLP):
        mlp = asdict(make.func) | {"sizes": list(make.args)}
    frozen = {"frozen": learner.frozen} if learner.frozen else {}
    return {
        "loss": learner.kind,
        "shape": learner.shape,
        "mlp": mlp,
        "parts": [[name, list(shape)] for name, shape in learner.shapes.items()],
        "l2": learner.l2,
        "epochs": learner.epochs,
        "rate": learner.rate,
        "seed": learner.seed,
        "dtype": learner.dtype,
        **frozen,
    }


def check_network_size(words: Mapping[str, Any], room: int) -> None:
    """Stop where a network is described as larger than the file that holds its weights."""
    if set(words) - {"frozen"} != {"loss", "shape", "mlp", "parts", *_SETTINGS}:
        raise InputError(
            "a network must have its loss, its shape, its parts and its settings."
        )
    shapes = [tuple(shape) for _, shape in words["parts"]]
    if not all(map(_is_shape, shapes)):
        raise InputError("the parts of a network must have shapes.")
    if 4 * sum(map(math.prod, shapes)) > room:
        raise InputError("a network must not be larger than the file of its weights.")
    if words["mlp"] is not None:
        _check_widths(words["mlp"], shapes)


def _check_widths(mlp: Mapping[str, Any], shapes: Sequence[Shape]) -> None:
    """Stop where an MLP would not have these parts, before it is made."""
    first, *others = mlp["sizes"]
    widths = [first, *mlp["hidden"], *others]
    if len(others) != 1 or not all(isinstance(w, int) and w > 0 for w in widths):
        raise InputError("a network must have widths.")
    if len(widths) > _MOST_WIDTHS:
        raise InputError(f"a network must have at most {_MOST_WIDTHS} widths.")
    layers: list[Shape] = []
    for here, there in pairwise(widths):
        layers += [(there, here), (there,)]
    if list(shapes) != layers:
        raise InputError("a network must be as large as its parts.")


def _is_shape(shape: Sequence[object]) -> bool:
    """Few lengths, none of them absurd: their product is taken."""
    return len(shape) <= _MOST_AXES and all(
        isinstance(n, int) and 0 <= n < 2**40 for n in shape
    )


def network_from(
    words: Mapping[str, Any],
    module: torch.nn.Module | Callable[[], torch.nn.Module] | Network | None = None,
) -> Network | AbsentNetwork:
    """The learner that `network_words` told of; `module` (a module, what makes one, or a Network)
    where it is the user's own.
    """
    if isinstance(module, Network):
        learner = module
    elif words["mlp"] is None and module is None:
        return AbsentNetwork(dict(words))
    else:
        learner = _made_again(words, module)
    wanted = {name: tuple(shape) for name, shape in words["parts"]}
    if learner.shapes != wanted:
        names = {**wanted, **learner.shapes}
        odd = [name for name in names if wanted.get(name) != learner.shapes.get(name)]
        raise InputError(
            f"the module is not the one these models were trained with: it differs in {some(odd)}."
        )
    if learner.frozen != words.get("frozen", ""):
        raise InputError(
            "the module is not the one these models were trained with: its frozen parts have other"
            " numbers. Hand in the body they were trained with."
        )
    return learner


def _made_again(
    words: Mapping[str, Any],
    module: torch.nn.Module | Callable[[], torch.nn.Module] | None,
) -> Network:
    if words["loss"] == "own":
        raise InputError(
            "these networks were trained with a loss of your own: hand in the Network they were"
            " trained with."
        )
    nn = need("torch.nn", extra="torch", why="a Network")
    if module is None:
        mlp = words["mlp"]
        net = MLP(tuple(mlp["hidden"]), mlp["activation"])
        module = partial(net, *mlp["sizes"])
    make = partial(copy.deepcopy, module) if isinstance(module, nn.Module) else module
    settings = {name: words[name] for name in _SETTINGS}
    shape = None if words["shape"] is None else tuple(words["shape"])
    return Network(make, loss=words["loss"], shape=shape, **settings)


def networks_to(learner: Network, models: Mapping[str, Array]) -> bytes:
    """Models (T, size), or one (size,), by name, as one safetensors file: a tensor `NAME/PART` for
    every part.

    >>> learner = Network(partial(MLP((2,)), 1, 1), loss="squared")
    >>> content = networks_to(
    ...     learner, {"models": np.zeros((5, learner.size()), dtype=np.float32)}
    ... )
    >>> networks_from(learner.shapes, content)["models"].shape
    (5, 7)
    """
    save = need("safetensors.numpy", extra="torch", why="keeping networks").save
    tensors = {}
    for name, vectors in models.items():
        for part, values in learner.named(vectors).items():
            tensors[f"{name}/{part}"] = np.ascontiguousarray(values)
    return bytes(save(tensors))


def networks_from(shapes: Mapping[str, Shape], content: bytes) -> dict[str, Array]:
    """The inverse of `networks_to`; every part must be there, in its shape, with finite numbers
    (all NaN: a device without a model).
    """
    load = need("safetensors.numpy", extra="torch", why="reading networks").load
    try:
        tensors = load(content)
    except Exception as error:  # the library has several of its own
        raise _damage("it is not in the safetensors format") from error
    names = sorted({key.partition("/")[0] for key in tensors})
    return {name: _joined(name, shapes, tensors) for name in names}


def _joined(
    name: str, shapes: Mapping[str, Shape], tensors: Mapping[str, AnyArray]
) -> Array:
    """The vectors of these models again."""
    parts: list[AnyArray] = []
    for part, shape in shapes.items():
        where = f"{name}/{part}"
        tensor = tensors.get(where)
        if tensor is None:
            raise _damage(f"{where} is missing or has another shape")
        # before a part's own axes there may be one for many models
        lead = tensor.shape[: tensor.ndim - len(shape)]
        if tensor.shape != (*lead, *shape) or len(lead) > 1:
            raise _damage(f"{where} is missing or has another shape")
        if tensor.dtype not in (np.float32, np.float64):
            raise _damage(f"{where} must hold numbers")
        parts.append(tensor.reshape(*lead, -1))
    if len({part.shape[:-1] for part in parts}) > 1:
        raise _damage(f"the parts of {name} are of different numbers of models")
    found = np.concatenate(parts, axis=-1)
    known = np.isfinite(found).all(axis=-1) | np.isnan(found).all(axis=-1)
    if not known.all():
        raise _damage(f"{name} must hold finite numbers")
    return found


def _damage(what: str) -> InputError:
    return InputError(f"the file of networks is damaged: {what}.")


@dataclass(frozen=True)
class AbsentNetwork:
    """Stands where a learner would whose module is not at hand: what is known can be shown, but
    nothing predicted.
    """

    words: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.words["loss"])

    @property
    def shapes(self) -> dict[str, Shape]:
        """The names and shapes of a model's parts."""
        return {name: tuple(shape) for name, shape in self.words["parts"]}

    def predict(self, model: object, X: object) -> NoReturn:
        raise InputError(
            "predicting needs the module these networks were trained with: load_model(path,"
            " module=...), or on the command line --module FILE.py:NAME."
        )

    labels = chances = loss = predict
