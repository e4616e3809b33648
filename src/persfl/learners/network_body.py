"""What a network makes of rows before its last layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from persfl.learners.network import Network
    from persfl.types import Array

_ROWS = 1024  # that pass at a time


def last_layer(learner: Network) -> str:
    """The name of the last layer that is trained; "" where the module is one layer.

    >>> from torch import nn
    >>> from persfl.learners import Network
    >>> body = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> last_layer(Network(lambda: body, loss="squared"))
    '2'
    """
    moves = learner.moves
    sizes = [int(np.prod(shape)) for shape in learner.shapes.values()]
    begins = np.append(0, np.cumsum(sizes)[:-1])
    names = [name.rpartition(".")[0] for name in learner.shapes]
    trained = [name for name, at in zip(names, begins, strict=True) if moves[at]]
    return trained[-1]


def before_last(learner: Network, model: Array, X: Array) -> Array:
    """(rows, width) what comes to the last layer; of one layer the rows themselves."""
    name = last_layer(learner)
    if not name:
        return X
    module = learner.module(model).eval()
    came: list[torch.Tensor] = []

    def note(_: torch.nn.Module, given: tuple[Any, ...]) -> None:
        came.append(given[0].detach().flatten(1))

    module.get_submodule(name).register_forward_pre_hook(note)
    shape = learner.shape or X.shape[1:]
    with torch.no_grad():
        for begin in range(0, len(X), _ROWS):
            part = np.asarray(X[begin : begin + _ROWS], dtype=learner.dtype)
            module(torch.from_numpy(part).reshape(-1, *shape))
    return torch.cat(came).numpy().astype(np.float64)
