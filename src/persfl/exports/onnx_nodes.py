"""A graph that is written node by node: names, constants, and the few operations we use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from persfl.errors import need
from persfl.types import Array, IntArray

OPSET = 17
ML_OPSET = 3
ML = "ai.onnx.ml"


class Nodes:
    """Nodes and constants of a graph; every method returns the name of what it computes."""

    def __init__(self) -> None:
        self.onnx: Any = need("onnx", extra="onnx", why="an ONNX graph")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self._count = 0

    def op(self, kind: str, *inputs: str, domain: str = "", **settings: object) -> str:
        """One operation on named values."""
        made = self._name(kind)
        node = self.onnx.helper.make_node(
            kind, list(inputs), [made], domain=domain, **settings
        )
        self.nodes.append(node)
        return made

    def constant(self, values: Array | IntArray | Sequence[int]) -> str:
        """A table of numbers: doubles, or whole numbers."""
        array = np.asarray(values)
        kind = np.int64 if array.dtype.kind in "iub" else np.float64
        name = self._name("table")
        plain = np.ascontiguousarray(array, dtype=kind)
        self.constants.append(self.onnx.numpy_helper.from_array(plain, name))
        return name

    def column(self, name: str, *, text: bool = False, whole: bool = False) -> str:
        """An input with a value per row."""
        types = self.onnx.TensorProto
        kind = types.STRING if text else types.INT64 if whole else types.DOUBLE
        made = self.onnx.helper.make_tensor_value_info(name, kind, ["rows"])
        self.inputs.append(made)
        return name

    def rows_of(self, table: Array, at: str) -> str:
        """The rows of a table that row numbers point to."""
        return self.op("Gather", self.constant(table), at, axis=0)

    def wide(self, value: str, axis: int = 1) -> str:
        """With one more axis."""
        return self.op("Unsqueeze", value, self.constant([axis]))

    def flat(self, value: str, axis: int = 1) -> str:
        """Without that axis, which has length one."""
        return self.op("Squeeze", value, self.constant([axis]))

    def beside(self, *values: str) -> str:
        """Columns next to each other."""
        if len(values) == 1:
            return values[0]
        return self.op("Concat", *values, axis=1)

    def times_rows(self, tables: str, X: str) -> str:
        """(rows, K) of (rows, K, columns) and (rows, columns)."""
        return self.flat(self.op("MatMul", tables, self.wide(X, 2)), 2)

    def model(self, outputs: Sequence[Any], notes: dict[str, str]) -> Any:
        """The graph as a checked model."""
        helper = self.onnx.helper
        graph = helper.make_graph(
            self.nodes, "persfl", self.inputs, outputs, self.constants
        )
        sets = [helper.make_opsetid("", OPSET), helper.make_opsetid(ML, ML_OPSET)]
        made = helper.make_model(
            graph, opset_imports=sets, producer_name="persfl", ir_version=8
        )
        helper.set_model_props(made, notes)
        self.onnx.checker.check_model(made)
        return made

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._count}"
