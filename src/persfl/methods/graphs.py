"""Who is near whom: a graph that somebody gives, or that of devices whose own models are alike."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from persfl.checks import some, whole
from persfl.errors import InputError
from persfl.types import Array, IntArray

NEAREST = "nearest"
LEARNED = "learned"  # from gradients, as CoBo learns it
Told = str | tuple[tuple[Any, ...], ...]


class Graph(NamedTuple):
    """Edges between devices: `pairs` (E, 2) of positions, the smaller first; `weight` (E,)."""

    n: int
    pairs: IntArray
    weight: Array

    def incidence(self) -> Any:
        """(E, n) sparse: a row times models is the difference over an edge."""
        edges = np.repeat(np.arange(len(self.pairs)), 2)
        signs = np.tile([1.0, -1.0], len(self.pairs))
        shape = (len(self.pairs), self.n)
        return csr_array((signs, (edges, self.pairs.ravel())), shape=shape)

    def laplacian(self) -> Array:
        """(n, n) the weighted graph Laplacian."""
        L = np.zeros((self.n, self.n))
        i, j = self.pairs.T
        L[i, j] = L[j, i] = -self.weight
        np.fill_diagonal(L, -L.sum(axis=1))
        return L


def graph_of(told: Told, ids: Sequence[Hashable]) -> Graph:
    """The graph of pairs such as ("ann", "bob") or ("ann", "bob", 0.5), as a tuple, as JSON, or as
    a CSV file with the columns device, peer and, if it has one, weight.

    >>> graph_of('[["ann", "bob"], ["bob", "cyn", 0.5]]', ["ann", "bob", "cyn"]).weight
    array([1. , 0.5])
    >>> graph_of((("ann", "dan"),), ["ann", "bob"])
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: the graph names 'dan', which is no device. Known: 'ann', 'bob'.
    """
    places = {name: i for i, name in enumerate(ids)}
    texts = {str(name): i for name, i in places.items()}
    edges: dict[tuple[int, int], float] = {}
    for entry in _entries(told):
        if not isinstance(entry, list | tuple) or len(entry) not in (2, 3):
            raise InputError(
                f"a graph is of pairs of devices, with a weight or without. Got {entry!r}."
            )
        ends = []
        for name in entry[:2]:
            place = places.get(name) if isinstance(name, Hashable) else None
            place = texts.get(str(name)) if place is None else place
            if place is None:
                raise InputError(
                    f"the graph names {name!r}, which is no device. Known: {some(ids)}."
                )
            ends.append(place)
        if ends[0] == ends[1]:
            raise InputError(
                f"the graph joins {entry[0]!r} with itself. Leave that out."
            )
        edges[min(ends), max(ends)] = _weight(entry)
    pairs = np.array(sorted(edges), dtype=np.int64).reshape(-1, 2)
    weight = np.array([edges[pair] for pair in sorted(edges)], dtype=np.float64)
    return Graph(len(ids), pairs, weight)


def _weight(entry: Sequence[Any]) -> float:
    try:
        value = float(entry[2]) if len(entry) == 3 else 1.0
    except (TypeError, ValueError):
        value = -1.0
    if not 0 < value < np.inf:
        named = f"{entry[0]!r} and {entry[1]!r}"
        raise InputError(
            f"weights of a graph must be numbers above 0. Got {entry[2]!r} for {named}."
        )
    return value


def _entries(told: Told) -> Iterable[Any]:
    if not isinstance(told, str):
        return told if isinstance(told, list | tuple) else [told]
    if told.lstrip().startswith("["):
        try:
            found = json.loads(told)
        except ValueError as error:
            raise InputError(
                f'graph must be JSON such as [["a", "b"]]: {error}.'
            ) from None
        return found if isinstance(found, list) else [found]
    path = Path(told)
    if not path.is_file():
        raise InputError(
            f"graph must be {NEAREST!r}, {LEARNED!r}, pairs of devices as JSON, or a CSV file of"
            f" them. Got {told!r}."
        )
    rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
    head = [cell.strip() for cell in rows[0]] if rows else []
    if head[:2] != ["device", "peer"] or head[2:] not in ([], ["weight"]):
        raise InputError(
            f"{told} must have the columns device, peer and, if there are some, weight."
        )
    return [row for row in rows[1:] if row]


def nearest(models: Array, neighbours: int) -> Graph:
    """Every device beside the few whose models are nearest to its own; all weights are 1.

    >>> nearest(np.array([[0.0], [0.1], [5.0], [5.2]]), 1).pairs.tolist()
    [[0, 1], [2, 3]]
    """
    n = len(models)
    most = min(whole("neighbours", neighbours, least=1), n - 1)
    square = (models**2).sum(axis=1)
    apart = square[:, None] + square - 2.0 * models @ models.T
    np.fill_diagonal(apart, np.inf)
    order = np.argsort(apart, axis=1, kind="stable")[:, :most]
    ends = np.stack([np.repeat(np.arange(n), most), order.ravel()], axis=1)
    pairs = np.unique(np.sort(ends, axis=1), axis=0).reshape(-1, 2)
    return Graph(n, pairs, np.ones(len(pairs)))


def weighted(weights: Array) -> Graph:
    """The graph of a symmetric matrix of weights; 0 is no edge.

    >>> weighted(np.array([[0.0, 0.5], [0.5, 0.0]])).weight.tolist()
    [0.5]
    """
    pairs = np.argwhere(np.triu(weights, 1) > 0)
    return Graph(len(weights), pairs, weights[pairs[:, 0], pairs[:, 1]])
