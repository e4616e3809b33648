"""Networks on disk: named tensors in the safetensors format, which holds numbers and nothing that
could run.

A module's code is not kept. A network of persfl's own (`MLP`) is rebuilt from its widths; any other
needs its module again when the models are loaded, and its names and shapes must be those of the
file.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from persfl.checks import some
from persfl.errors import InputError, need
from persfl.learners.mlp import MLP
from persfl.learners.network import Network
from persfl.types import Array

_MOST_WIDTHS, _MOST_AXES = 1000, 64  # layers are made one by one, which takes time
_SETTINGS = ("l2", "epochs", "rate", "seed", "dtype")


def described(learner: Network) -> dict[str, Any]:
    """A network in plain words: how it is rebuilt, and the names and shapes that its models
    have.
    """
    make, made = learner.make, None
    if isinstance(make, partial) and isinstance(make.func, MLP):
        made = asdict(make.func) | {"sizes": list(make.args)}
    parts = [[name, list(shape)] for name, shape in learner.shapes.items()]
    settings = {name: getattr(learner, name) for name in _SETTINGS}
    return {
        "loss": learner.kind,
        "shape": learner.shape,
        "mlp": made,
        "parts": parts,
    } | settings


def refuse_larger(words: Mapping[str, Any], room: int) -> None:
    """Stop where a network is described as larger than the file that holds its weights."""
    if set(words) != {"loss", "shape", "mlp", "parts", *_SETTINGS}:
        raise InputError(
            "a network must have its loss, its shape, its parts and its settings."
        )
    shapes = [tuple(shape) for _, shape in words["parts"]]
    if not all(_is_shape(shape) for shape in shapes):
        raise InputError("the parts of a network must have shapes.")
    count = sum(math.prod(shape) for shape in shapes)
    if 4 * count > room:
        raise InputError("a network must not be larger than the file of its weights.")
    if words["mlp"] is None:
        return
    about = words["mlp"]
    widths = [about["sizes"][0], *about["hidden"], *about["sizes"][1:]]
    if len(about["sizes"]) != 2 or not all(
        isinstance(w, int) and w > 0 for w in widths
    ):
        raise InputError("a network must have widths.")
    if len(widths) > _MOST_WIDTHS:
        raise InputError(f"a network must have at most {_MOST_WIDTHS} widths.")
    layers = [
        shape for here, there in pairwise(widths) for shape in ((there, here), (there,))
    ]
    if shapes != layers:
        raise InputError("a network must be as large as its parts.")


def _is_shape(shape: tuple[Any, ...]) -> bool:
    """Few lengths, none of them absurd: their product is taken."""
    return len(shape) <= _MOST_AXES and all(
        isinstance(n, int) and 0 <= n < 2**40 for n in shape
    )


def rebuilt(words: Mapping[str, Any], module: Any = None) -> Any:
    """The learner that `described` told of; `module` (a module, what makes one, or a Network)
    where it is the user's own.
    """
    if isinstance(module, Network):
        learner = module
    elif words["mlp"] is None and module is None:
        return Absent(dict(words))
    else:
        if words["loss"] == "own":
            raise InputError(
                "these networks were trained with a loss of your own: hand in the Network they were"
                " trained with."
            )
        if module is None:
            about = dict(words["mlp"])
            module = partial(
                MLP(tuple(about["hidden"]), about["activation"]), *about["sizes"]
            )
        made = hasattr(module, "parameters") and not isinstance(module, type)
        make = partial(copy.deepcopy, module) if made else module
        settings = {name: words[name] for name in _SETTINGS}
        shape = None if words["shape"] is None else tuple(words["shape"])
        learner = Network(make, loss=words["loss"], shape=shape, **settings)
    wanted = {name: tuple(shape) for name, shape in words["parts"]}
    if learner.shapes != wanted:
        odd = [
            name
            for name in {**wanted, **learner.shapes}
            if wanted.get(name) != learner.shapes.get(name)
        ]
        raise InputError(
            f"the module is not the one these models were trained with: it differs in {some(odd)}."
        )
    return learner


def packed(learner: Network, models: Mapping[str, Array]) -> bytes:
    """Models (T, size), or one (size,), by name, as one safetensors file: a tensor `NAME/PART` for
    every part.

    >>> learner = Network(partial(MLP((2,)), 1, 1), loss="squared")
    >>> content = packed(
    ...     learner, {"models": np.zeros((5, learner.size()), dtype=np.float32)}
    ... )
    >>> unpacked(learner.shapes, content)["models"].shape
    (5, 7)
    """
    save = need("safetensors.numpy", extra="torch", why="keeping networks").save
    named = {
        f"{name}/{part}": np.ascontiguousarray(v)
        for name, m in models.items()
        for part, v in learner.named(m).items()
    }
    return bytes(save(named))


def unpacked(shapes: Mapping[str, tuple[int, ...]], content: bytes) -> dict[str, Array]:
    """The inverse of `packed`; every part must be there, in its shape, with finite numbers (all
    NaN: a device without a model).
    """
    load = need("safetensors.numpy", extra="torch", why="reading networks").load
    try:
        tensors = load(content)
    except Exception as error:  # the library has several of its own
        raise InputError(
            "the file of networks is damaged: it is not in the safetensors format."
        ) from error
    found: dict[str, Array] = {}
    for name in sorted({key.partition("/")[0] for key in tensors}):
        parts = []
        for part, shape in shapes.items():
            tensor = tensors.get(f"{name}/{part}")
            lead = None if tensor is None else tensor.shape[: tensor.ndim - len(shape)]
            if (
                tensor is None
                or lead is None
                or tensor.shape != (*lead, *shape)
                or len(lead) > 1
            ):
                raise InputError(
                    f"the file of networks is damaged: {name}/{part} is missing or has another"
                    " shape."
                )
            if tensor.dtype not in (np.float32, np.float64):
                raise InputError(
                    f"the file of networks is damaged: {name}/{part} must hold numbers."
                )
            parts.append(tensor.reshape(*lead, -1))
        if len({part.shape[:-1] for part in parts}) > 1:
            raise InputError(
                f"the file of networks is damaged: the parts of {name} are of different numbers of"
                " models."
            )
        found[name] = np.concatenate(parts, axis=-1)
        if not (
            np.isfinite(found[name]).all(axis=-1) | np.isnan(found[name]).all(axis=-1)
        ).all():
            raise InputError(
                f"the file of networks is damaged: {name} must hold finite numbers."
            )
    return found


@dataclass(frozen=True)
class Absent:
    """Stands where a learner would whose module is not at hand: what is known can be shown, but
    nothing predicted.
    """

    words: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.words["loss"])

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The names and shapes of a model's parts."""
        return {name: tuple(shape) for name, shape in self.words["parts"]}

    def predict(self, model: Any, X: Any) -> Any:
        raise InputError(
            "predicting needs the module these networks were trained with: load_model(path,"
            " module=...), or on the command line --module FILE.py:NAME."
        )

    labels = chances = loss = predict
