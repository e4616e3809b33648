"""Fully connected networks of many devices in one graph: the layers of each row's own device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.errors import InputError

if TYPE_CHECKING:
    from persfl.exports.onnx_nodes import Nodes
    from persfl.fitting.fitted import Fitted
    from persfl.learners.network import Network

_BENDS = {
    "ReLU": "Relu",
    "Tanh": "Tanh",
    "Sigmoid": "Sigmoid",
    "Identity": "Identity",
    "Dropout": "Identity",  # models run in eval mode
}


def network_scores(nodes: Nodes, fitted: Fitted, X: str, at: str) -> str:
    """(rows, 1 or classes) of networks that are a chain of layers."""
    learner: Network = fitted.learner  # type: ignore[assignment]
    new = fitted.newcomer_model()
    models = list(fitted.models)
    # without a model for newcomers any will do: what it says is no number in the end
    vectors = np.array([*models, models[0] if new is None else new], dtype=np.float64)
    if learner.shape is not None:
        raise _no_chain("a network on images")
    tables = learner.named(vectors)
    module = learner.module(vectors[0])
    found = X
    for name, layer in _chain(module):
        kind = type(layer).__name__
        if kind != "Linear":
            found = nodes.op(_BENDS[kind], found)
            continue
        found = nodes.times_rows(nodes.rows_of(tables[f"{name}weight"], at), found)
        if f"{name}bias" in tables:
            found = nodes.op("Add", found, nodes.rows_of(tables[f"{name}bias"], at))
    if learner.kind == "cross_entropy":
        return nodes.op("Softmax", found, axis=1)
    if learner.kind == "logistic":
        one = nodes.op("Sigmoid", found)
        other = nodes.op("Sub", nodes.constant(np.array([1.0])), one)
        return nodes.beside(other, one)
    return found


def _chain(module: Any) -> list[tuple[str, Any]]:
    """The layers of a sequence, with the beginnings of their parameters' names."""
    if type(module).__name__ == "Linear":
        return [("", module)]
    found = [(f"{name}.", layer) for name, layer in module.named_children()]
    kinds = {type(layer).__name__ for _, layer in found}
    strange = sorted(kinds - {"Linear", *_BENDS})
    if type(module).__name__ != "Sequential" or strange:
        raise _no_chain(", ".join(strange) or type(module).__name__)
    return found


def _no_chain(what: str) -> InputError:
    return InputError(
        f"a graph of the fleet is made of networks that are a chain of linear layers. Got {what}."
        " Export one device: torch.onnx.export(fitted.learner.module(vectors[0]), ...)."
    )
