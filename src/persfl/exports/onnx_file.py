"""One ONNX graph for a whole fleet: device and columns in, prediction out.

The graph holds every device's model as tables with a row per device. A device that was not there
when fitting gets the fleet's model; without one (`unseen="error"`) its prediction is not a number.
All numbers are doubles, so the graph says what `predict` says.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.errors import InputError
from persfl.exports.fleet_parts import FleetPart, FleetTables, fleet_parts_of, tables_of
from persfl.exports.one_device import only_device
from persfl.exports.onnx_network import network_scores
from persfl.exports.onnx_nodes import ML, Nodes
from persfl.exports.onnx_trees import forests, shared_ensemble
from persfl.learners.network import Network
from persfl.learners.responses import unknown
from persfl.learners.shared_trees import ABSENT, BoostedModels, ClassTrees, SharedTrees
from persfl.traits import traits_of

if TYPE_CHECKING:
    from persfl.fitting.fitted import Fitted

DEVICE = "device"


def onnx_fleet(fitted: Fitted, device: Hashable | None = None) -> Any:
    """The fleet as an `onnx.ModelProto`; with `device` the model of that one alone.

    Inputs are `device` (of a fleet) and every column of the table by its name, each with one value
    per row.
    A regression gives `prediction`; classes give `label` and `probabilities`, in the order of
    `classes_`.
    """
    if unknown(fitted.models).any():
        raise InputError(
            "some models of this run stayed at home, so there is no graph of the fleet."
        )
    nodes = Nodes()
    if device is not None:
        fitted = only_device(fitted, device)
    else:
        _refuse_device(fitted)
    columns = _columns(nodes, fitted)
    at = _place(nodes, fitted) if device is None else _first_row(nodes)
    tables = tables_of(fitted)
    X = _inside(nodes, columns, tables, at)
    if isinstance(fitted.learner, Network):
        found = network_scores(nodes, fitted, X, at)
    else:
        found = _response(nodes, fitted, X, at)
    if fitted.classes:
        return _classes(nodes, fitted, found)
    steep = nodes.rows_of(tables.label_scale, at)
    level = nodes.rows_of(_unless(tables.label_centre, tables.known), at)
    value = nodes.op("Mul", nodes.flat(found), steep)
    return _finished(nodes, fitted, {"prediction": nodes.op("Add", value, level)})


def _unless(table: Any, known: bool) -> Any:
    """Newcomers have no number where there is no model for them."""
    return table if known else np.append(table[:-1], np.nan)


def _place(nodes: Nodes, fitted: Fitted) -> str:
    """(rows,) the number of each row's device; one past the last where it was not there."""
    ids = fitted.devices.tolist()
    n = len(ids)
    if all(isinstance(name, str) for name in ids):
        said = nodes.column(DEVICE, text=True)
        keys: dict[str, Any] = {"keys_strings": ids}
    elif all(isinstance(name, int) for name in ids):
        said = nodes.column(DEVICE, whole=True)
        keys = {"keys_int64s": ids}
    else:
        raise InputError("devices of a graph must all be texts or all whole numbers.")
    if isinstance(ids[0], str):
        return nodes.op(
            "LabelEncoder",
            said,
            domain=ML,
            values_int64s=list(range(n)),
            default_int64=n,
            **keys,
        )
    # runtimes have no encoder from whole numbers to whole numbers
    places = nodes.op(
        "LabelEncoder",
        said,
        domain=ML,
        values_floats=[float(i) for i in range(n)],
        default_float=float(n),
        **keys,
    )
    return nodes.op("Cast", places, to=nodes.onnx.TensorProto.INT64)


def _first_row(nodes: Nodes) -> str:
    """(rows,) zeros: there is one device, and its row is the first of every table."""
    shape = nodes.op("Shape", nodes.inputs[0].name)
    zero = nodes.onnx.numpy_helper.from_array(np.zeros(1, dtype=np.int64))
    return nodes.op("ConstantOfShape", shape, value=zero)


def _refuse_device(fitted: Fitted) -> None:
    if DEVICE in fitted.schema.inputs:
        raise InputError(
            f"a feature is called {DEVICE!r}, which is the graph's name for whose row it is."
            " Rename that column, and fit again."
        )


def _columns(nodes: Nodes, fitted: Fitted) -> list[str]:
    """The columns of the table as inputs, each turned into one or more numbers."""
    schema = fitted.schema
    preparation = schema.preparation
    if preparation is None:
        return [nodes.wide(nodes.column(name)) for name in schema.inputs]
    texts = dict(zip(preparation.texts, preparation.known, strict=True))
    fills = preparation.fills or [None] * len(schema.inputs)
    names = [*preparation.numbers, *preparation.texts]
    columns = []
    for name, fill in zip(names, fills, strict=True):
        said = nodes.column(name, text=name in texts)
        columns.append(_encoded(nodes, said, texts.get(name), fill))
    return columns


def _inside(nodes: Nodes, columns: Sequence[str], tables: FleetTables, at: str) -> str:
    """(rows, columns) in the units of the run."""
    X = nodes.beside(*columns)
    centred = nodes.op("Sub", X, nodes.rows_of(tables.centre, at))
    return nodes.op("Div", centred, nodes.rows_of(tables.scale, at))


def _encoded(nodes: Nodes, said: str, known: list[str] | None, fill: Any) -> str:
    """(rows, one or more) the numbers of a column; an empty text is a gap."""
    if known is None:
        if fill is not None:
            gap = nodes.op("IsNaN", said)
            said = nodes.op("Where", gap, nodes.constant(np.array(float(fill))), said)
        return nodes.wide(said)
    keys = known if fill is None else [*known, ""]
    places = list(range(len(known)))
    places += [] if fill is None else [known.index(fill)]
    place = nodes.op(
        "LabelEncoder",
        said,
        domain=ML,
        keys_strings=keys,
        values_int64s=places,
        default_int64=len(known),
    )
    ones = np.vstack([np.eye(len(known)), np.zeros(len(known))])
    return nodes.rows_of(ones, place)


def _response(nodes: Nodes, fitted: Fitted, X: str, at: str) -> str:
    """(rows, 1 or classes) values or chances, in the units of the run."""
    found = ""
    for part in fleet_parts_of(fitted):
        share = nodes.wide(nodes.rows_of(part.share, at))
        one = nodes.op("Mul", _linked(nodes, part, X, at), share)
        found = nodes.op("Add", found, one) if found else one
    models = fitted.models
    if not isinstance(models, BoostedModels) or not models.trees:
        return found
    features = len(fitted.schema.columns)
    heard = nodes.wide(nodes.rows_of(_hear_trees(fitted, models), at))
    if not fitted.classes:
        counts = traits_of(fitted.learner).task == "counts"
        for weight, trees in models.trees:
            one = nodes.op(
                "Mul",
                _shared(nodes, trees, features, X, at),
                nodes.constant(np.array(weight)),
            )
            more = nodes.op("Mul", one, heard)
            if counts:  # what is added to the logarithm of a rate multiplies it
                found = nodes.op("Mul", found, nodes.op("Exp", more))
            else:
                found = nodes.op("Add", found, more)
        return found
    both = nodes.op("Log", found)
    for weight, some in models.of_classes(fitted.classes):
        added = _class_trees(nodes, fitted, weight, some, X, at)
        both = nodes.op("Add", both, nodes.op("Mul", added, heard))
    return nodes.op("Softmax", both, axis=1)


def _hear_trees(fitted: Fitted, models: BoostedModels) -> Any:
    """(devices + 1,) 1 for who has trees of the fleet in its model, 0 for who is alone."""
    return np.append(~models.alone, fitted.population is not None) * 1.0


def _linked(nodes: Nodes, part: FleetPart, X: str, at: str) -> str:
    """What one part of all models says."""
    wide = X
    if part.told.shape[1]:
        told = nodes.rows_of(part.told[:, :, :-1], at)
        said = nodes.op(
            "Add", nodes.times_rows(told, X), nodes.rows_of(part.told[:, :, -1], at)
        )
        wide = nodes.beside(X, said)
    scores = nodes.rows_of(part.base, at)
    if part.slopes is not None:
        slopes = nodes.rows_of(part.slopes, at)
        scores = nodes.op("Add", scores, nodes.times_rows(slopes, wide))
    if part.forests:
        types = nodes.onnx.TensorProto
        if not part.fine:  # as scikit-learn compares
            single = nodes.op("Cast", wide, to=types.FLOAT)
            wide = nodes.op("Cast", single, to=types.DOUBLE)
        switch = nodes.wide(nodes.rows_of(part.which.astype(np.float64), at))
        trees = forests(part.forests, part.scores)
        raw = trees.write(nodes, nodes.beside(switch, wide))
        scores = nodes.op("Add", scores, nodes.op("Cast", raw, to=types.DOUBLE))
    if part.link == "exp":
        return nodes.op("Exp", scores)
    if part.link == "softmax":
        return nodes.op("Softmax", scores, axis=1)
    if part.link == "rest":
        each = nodes.op("Sigmoid", scores)
        return nodes.op("Div", each, nodes.op("ReduceSum", each, nodes.constant([1])))
    return scores


def _shared(nodes: Nodes, trees: SharedTrees, features: int, X: str, at: str) -> str:
    """(rows, 1) what trees of the whole fleet say."""
    made, asked = shared_ensemble(trees, features)
    if asked.shape[1]:
        X = nodes.beside(X, nodes.rows_of(asked, at))
    raw = nodes.op("Cast", made.write(nodes, X), to=nodes.onnx.TensorProto.DOUBLE)
    return nodes.op("Add", raw, nodes.constant(np.array([trees.base])))


def _class_trees(
    nodes: Nodes, fitted: Fitted, share: float, trees: ClassTrees, X: str, at: str
) -> str:
    """(rows, classes) what trees add to log chances: see `spread_classes`."""
    features = len(fitted.schema.columns)
    raw = nodes.beside(*(_shared(nodes, each, features, X, at) for each in trees.trees))
    if len(trees.trees) == 1:
        zero = nodes.op("Mul", raw, nodes.constant(np.array([0.0])))
        raw = nodes.beside(zero, raw)
    there = nodes.op("LogSoftmax", raw, axis=1)
    # a column for every class; those without trees have the same small chance everywhere
    place = np.zeros((len(trees.there), fitted.classes))
    place[np.arange(len(trees.there)), trees.there] = 1.0
    rest = np.full(fitted.classes, np.log(ABSENT))
    rest[trees.there] = 0.0
    full = nodes.op(
        "Add", nodes.op("MatMul", there, nodes.constant(place)), nodes.constant(rest)
    )
    chances = nodes.op("LogSoftmax", full, axis=1)
    return nodes.op("Mul", chances, nodes.constant(np.array([share])))


def _classes(nodes: Nodes, fitted: Fitted, chances: str) -> Any:
    """The likeliest class, by its own name, and the chances."""
    classes = fitted.schema.labels.classes
    assert classes is not None  # a classifier's labels have some
    best = nodes.op("ArgMax", chances, axis=1, keepdims=0)
    if classes.dtype.kind in "iub":
        label = nodes.rows_of(classes.astype(np.int64), best)
    else:
        label = nodes.op(
            "LabelEncoder",
            best,
            domain=ML,
            keys_int64s=list(range(len(classes))),
            values_strings=[str(name) for name in classes.tolist()],
        )
    return _finished(nodes, fitted, {"label": label, "probabilities": chances})


def _finished(nodes: Nodes, fitted: Fitted, results: dict[str, str]) -> Any:
    """The model, with its outputs by name."""
    types = nodes.onnx.TensorProto
    outputs = []
    for name, value in results.items():
        node = nodes.onnx.helper.make_node("Identity", [value], [name])
        nodes.nodes.append(node)
        kind = types.DOUBLE
        shape: list[Any] = ["rows"]
        if name == "probabilities":
            shape.append(fitted.classes)
        if name == "label":
            whole = fitted.schema.labels.classes
            assert whole is not None
            kind = types.INT64 if whole.dtype.kind in "iub" else types.STRING
        outputs.append(nodes.onnx.helper.make_tensor_value_info(name, kind, shape))
    notes = {"method": fitted.ran, "devices": str(len(fitted.devices))}
    return nodes.model(outputs, notes)
