"""Modules of which a part is frozen: what does not move is one and the same for all devices, and
what the module makes of a row before anything moves is computed once.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, fx, nn

_ROWS = 1024  # that pass through a frozen body at a time


def frozen_names(module: nn.Module) -> set[str]:
    """Frozen parameters, and the buffers of layers that have no others: a normalisation whose
    parameters are frozen keeps its statistics.
    """
    found: set[str] = set()
    for path, part in module.named_modules():
        own = dict(part.named_parameters(recurse=False))
        still = {name for name, value in own.items() if not value.requires_grad}
        if own and len(still) == len(own):
            still |= {name for name, _ in part.named_buffers(recurse=False)}
        found |= {f"{path}.{name}" if path else name for name in still}
    return found


@dataclass(frozen=True, eq=False)
class FrozenBody:
    """A module cut in two: what its frozen part makes of rows, and the rest."""

    body: fx.GraphModule
    head: nn.Module
    places: dict[tuple[torch.device, torch.dtype], nn.Module] = field(
        default_factory=dict
    )

    def features(self, X: Tensor) -> Tensor:
        """(rows, features) what the frozen part makes of rows, some at a time."""
        place = X.device, X.dtype
        if place not in self.places:
            self.places[place] = copy.deepcopy(self.body).to(*place)
        body = self.places[place]
        with torch.no_grad():
            parts = [_flat(body(part)) for part in _some(X, _ROWS)]
        return torch.cat(parts)


class Head(nn.Module):
    """What follows a frozen body; takes its features in one row."""

    def __init__(self, rest: fx.GraphModule, shapes: list[tuple[int, ...]]) -> None:
        super().__init__()
        self.shapes = shapes
        self.rest = rest

    def forward(self, X: Tensor) -> Tensor:
        parts = []
        at = 0
        for shape in self.shapes:
            size = math.prod(shape)
            parts.append(X[:, at : at + size].reshape(-1, *shape))
            at += size
        said: Tensor = self.rest(*parts)
        return said


def frozen_body(module: nn.Module, moving: set[str], rows: Tensor) -> FrozenBody | None:
    """The module cut where the first part moves; None where nothing is before that, or where it
    cannot be cut. `moving` are the names of what is a device's own; `rows` are two, to try.
    """
    try:
        graph = _Leaves(moving).trace(module)
        border = _border(graph, moving)
        if not border:
            return None
        body = fx.GraphModule(module, _before(graph, border))
        rest = fx.GraphModule(module, _after(graph, border))
        return _tried(module, body, rest, rows)
    except Exception:  # a module that cannot be cut runs as a whole
        return None


def _tried(
    module: nn.Module, body: fx.GraphModule, rest: fx.GraphModule, rows: Tensor
) -> FrozenBody | None:
    """The parts, if they say of two rows what the module says, and of each alone the same."""
    with torch.no_grad():
        both = body(rows)
        if any(value.shape[:1] != rows.shape[:1] for value in both):
            return None
        found = FrozenBody(body, Head(rest, [tuple(v.shape[1:]) for v in both]))
        alone = torch.cat([found.features(row) for row in _some(rows, 1)])
        said = found.head(found.features(rows))
        same = torch.allclose(alone, _flat(both), rtol=1e-3, atol=1e-5)
        same = same and torch.allclose(said, module(rows), rtol=1e-3, atol=1e-5)
    return found if same else None


class _Leaves(fx.Tracer):
    """Looks into what holds something that moves, and into nothing else."""

    def __init__(self, moving: set[str]) -> None:
        super().__init__()
        self.moving = moving

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        path = module_qualified_name
        below = any(name.startswith(f"{path}.") for name in self.moving)
        plain = isinstance(m, (nn.Conv2d, nn.Linear))
        return plain or not below or super().is_leaf_module(m, path)


def _border(graph: fx.Graph, moving: set[str]) -> list[fx.Node]:
    """What stands still and is used by what moves; empty where that is only the row itself."""
    moved: set[fx.Node] = set()
    for node in graph.nodes:
        own = node.op == "get_attr" and str(node.target) in moving
        if node.op == "call_module":
            own = any(name.startswith(f"{node.target}.") for name in moving)
        if own or node.op == "output" or moved & set(node.all_input_nodes):
            moved.add(node)
    used: Iterable[fx.Node] = (user for node in moved for user in node.all_input_nodes)
    border = set(used) - moved
    if all(node.op == "placeholder" for node in border):
        return []
    return [node for node in graph.nodes if node in border]


def _before(graph: fx.Graph, border: list[fx.Node]) -> fx.Graph:
    """From rows to the values at the border."""
    needed = set(border)
    for node in reversed(graph.nodes):
        if node in needed:
            needed |= set(node.all_input_nodes)
    new = fx.Graph()
    known: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node in needed or node.op == "placeholder":
            known[node] = new.node_copy(node, known.__getitem__)
    new.output(tuple(known[node] for node in border))
    return new


def _after(graph: fx.Graph, border: list[fx.Node]) -> fx.Graph:
    """From the values at the border to what the module says."""
    needed: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or (node in needed and node not in border):
            needed |= {node, *node.all_input_nodes}
    new = fx.Graph()
    known = {node: new.placeholder(f"border_{k}") for k, node in enumerate(border)}
    for node in graph.nodes:
        if node in needed and node not in known:
            known[node] = new.node_copy(node, known.__getitem__)
    return new


def _some(X: Tensor, size: int) -> list[Tensor]:
    """Rows, so many at a time; at least one part, if an empty one."""
    return [X[i : i + size] for i in range(0, max(1, len(X)), size)]


def _flat(found: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([value.flatten(1) for value in found], dim=1)
