"""scikit-learn's models as plain arrays: `persfl.learners.plain.Plain` with names.

    link, rate, stride, base        what a score means, and where it begins
    labels                          of classifiers
    slopes                          linear models; `across` where they lay by columns
    nodes, feature, ...             the trees, one after the other
    mean, scale, fine               on disk only: families that do not travel

A whole fleet on disk has each part of all models one after the other, and says how long and how
wide each model's is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from persfl.learners.plain import LINKS, WIRE_LINKS, Plain
from persfl.learners.plain_families import as_plain
from persfl.learners.storage.named_arrays import (
    AnyArray,
    Arrays,
    check_finite,
    check_form,
    check_names,
    check_parts,
    is_counts,
    is_sensible,
    under,
)
from persfl.learners.storage.tree_arrays import (
    apart,
    deepest,
    depth,
    in_a_row,
    whole_tree,
)
from persfl.learners.tree import Grown

if TYPE_CHECKING:
    from persfl.types import Learner, Model

OLD_KEY = "plain"  # of format 1
TREES, NODES = 5_000, 2_000_000  # of a model on the wire, at most
_ALWAYS = {"link", "rate", "stride", "base"}
_DISK = {"fine", "mean", "scale", "across"}
_ORDER = "link rate stride base labels slopes across mean scale fine nodes"
_PARTS = (*_ORDER.split(), *Grown._fields)
_DISK_DEEPEST = 10_000  # questions on the way down a tree
_MOST_CLASSES = 1_000_000
_ABSENT = -1  # rows of a part that a model does not have


class PlainModels:
    """scikit-learn's models."""

    KEY = "plain_count"

    def holds(self, model: Model) -> bool:
        return not isinstance(model, (np.ndarray, Grown, list))

    def one_to(self, model: Model) -> dict[str, AnyArray]:
        return plain_to(as_plain(model))

    def one_from(
        self, learner: Learner, arrays: Arrays, features: int, classes: int
    ) -> Plain:
        return plain_from(arrays, features, classes, deepest(learner))

    def many_to(self, models: Sequence[Model]) -> dict[str, AnyArray]:
        known = [
            {} if model is None else plain_to(as_plain(model), disk=True)
            for model in models
        ]
        arrays: dict[str, AnyArray] = {self.KEY: np.array(len(models))}
        for name in _PARTS:
            parts = [model.get(name) for model in known]
            here = [part.ravel() for part in parts if part is not None]
            if here:
                sizes = np.array([_size(part) for part in parts])
                arrays[f"plain_{name}"] = np.concatenate(here)
                arrays[f"plain_{name}_rows"] = sizes[:, 0].copy()
                arrays[f"plain_{name}_width"] = sizes[:, 1].copy()
        return arrays

    def many_from(
        self, arrays: Arrays, features: int | None, classes: int | None
    ) -> list[Plain | None]:
        """Each sound and finite; None where a device's model is not here."""
        if (
            self.KEY not in arrays
        ):  # as format 1 had it: an entry for every part of every model
            count = int(arrays[OLD_KEY])
            check_parts(0 <= count <= len(arrays))
            known = [under(f"plain_{i}.", arrays) for i in range(count)]
        else:
            count = int(arrays[self.KEY])
            room = sum(len(array) for array in arrays.values() if array.ndim)
            check_parts(0 <= count <= 1 + room)
            known = [{} for _ in range(count)]
            for name in _PARTS:
                if f"plain_{name}" in arrays:
                    for i, part in _pieces(arrays, f"plain_{name}", count):
                        known[i][name] = part
        return [_one(parts, features, classes) for parts in known]

    def fits(self, learner: Learner, model: Model, features: int) -> bool:
        return model is None or isinstance(model, Plain)


# One model


def plain_to(model: Plain, *, disk: bool = False) -> dict[str, AnyArray]:
    """A model as arrays; on disk with what it takes to be the same bits."""
    arrays: dict[str, AnyArray] = {
        "link": np.array([LINKS.index(model.link)]),
        "rate": np.array([model.rate]),
        "stride": np.array([model.stride]),
        "base": model.base,
    }
    if model.labels is not None:
        arrays["labels"] = model.labels
    if model.slopes is not None:
        arrays["slopes"] = model.slopes
        # sums are added up by where numbers lie
        if disk and not model.slopes.flags.c_contiguous:
            arrays["across"] = np.array([1])
    if model.mean is not None and model.scale is not None:
        arrays |= {"mean": model.mean, "scale": model.scale}
    if model.fine:
        arrays["fine"] = np.array([1])
    if model.trees:
        arrays |= in_a_row(model.trees)
    return arrays


def plain_from(
    arrays: Arrays, features: int, classes: int, deep: int, *, disk: bool = False
) -> Plain:
    """The inverse of `plain_to`, for trees of at most this depth; on disk there are families that
    do not travel, and forests of any size.
    """
    more = _DISK & set(arrays) if disk else set()
    form = {"slopes"} if "slopes" in arrays else {"nodes", *Grown._fields}
    check_names(arrays, _ALWAYS | form | more | ({"labels"} if classes else set()))
    plain = _without_form(arrays, classes, LINKS if disk else WIRE_LINKS)
    if more & {"mean", "scale"}:
        mean, scale = arrays["mean"], arrays["scale"]
        for part in (mean, scale):
            check_form(part.dtype == np.float64 and part.shape == (features,))
            check_form(is_sensible(part))
        check_form((scale > 0).all())
        plain = replace(plain, mean=mean, scale=scale)
    if "slopes" not in arrays:
        trees = _trees(arrays, features, deep, bounded=not disk)
        return _with_trees(replace(plain, trees=trees, fine="fine" in more))
    slopes = arrays["slopes"]
    check_form(slopes.dtype == np.float64 and "fine" not in more)
    check_form(slopes.shape == (len(plain.base), features))
    if "across" in more:
        slopes = np.asfortranarray(slopes)
    return replace(plain, slopes=slopes, rate=1.0, stride=1)


def _without_form(arrays: Arrays, classes: int, links: Sequence[str]) -> Plain:
    """What every model has: how its scores begin, and what they mean."""
    link, stride, rate = (arrays[name] for name in ("link", "stride", "rate"))
    check_form(link.dtype == stride.dtype == np.int64 and rate.dtype == np.float64)
    check_form(link.shape == stride.shape == rate.shape == (1,))
    base, labels = arrays["base"], arrays.get("labels")
    check_form(base.dtype == np.float64 and base.ndim == 1)
    check_form(0 <= int(link[0]) < len(links) and 1 <= int(stride[0]) <= len(base))
    name = links[int(link[0])]
    check_form(_labelled(name, len(base), labels, classes))
    return Plain(name, base, labels, rate=float(rate[0]), stride=int(stride[0]))


def _labelled(link: str, scores: int, labels: AnyArray | None, classes: int) -> bool:
    """Whether scores and labels are as many as they must be, and labels are classes."""
    if labels is None:
        return link in ("value", "exp") and scores == 1
    if labels.dtype != np.float64 or labels.ndim != 1 or not len(labels):
        return False
    known = (labels >= 0) & (labels < classes) & (labels == np.floor(labels))
    if not known.all() or not (np.diff(labels) > 0).all():
        return False
    if link == "sigmoid" or (link == "margin" and scores == 1):
        return scores == 1 and len(labels) == 2
    return link not in ("value", "exp") and scores == len(labels)


def _trees(
    arrays: Arrays, features: int, deep: int, *, bounded: bool
) -> tuple[Grown, ...]:
    nodes, whole = arrays["nodes"], whole_tree(arrays)
    check_form(nodes.dtype == np.int64 and nodes.ndim == 1)
    check_form(not bounded or (len(nodes) <= TREES and len(whole.feature) <= NODES))
    check_form(whole.value.ndim in (1, 2))
    trees = apart(whole, nodes, features)
    for tree in trees:
        # a tree of so few nodes cannot be deeper
        check_form(len(tree.feature) <= 2 * deep + 1 or depth(tree) <= deep)
    return tuple(trees)


def _with_trees(plain: Plain) -> Plain:
    """The model, if its trees have a value for every score, or one for the score in turn."""
    first, scores = plain.trees[0].value, len(plain.base)
    if first.ndim == 2:
        check_form(first.shape[1] == scores and plain.link in ("value", "chances"))
    else:
        check_form(plain.stride == scores and len(plain.trees) % scores == 0)
        check_form(plain.link != "chances")
    return plain


# A fleet


def _size(part: AnyArray | None) -> tuple[int, int]:
    """Rows and width; width 0 is a part of one axis."""
    if part is None:
        return _ABSENT, 0
    return len(part), part.shape[1] if part.ndim > 1 else 0


def _pieces(arrays: Arrays, name: str, count: int) -> list[tuple[int, AnyArray]]:
    """A part of the models that have it, with their positions."""
    flat, rows, width = (arrays[name + end] for end in ("", "_rows", "_width"))
    check_parts(is_counts(rows, least=_ABSENT) and is_counts(width, least=0))
    check_parts(len(rows) == len(width) == count and flat.ndim == 1)
    check_parts(max(rows.max(initial=0), width.max(initial=0)) <= len(flat))
    sizes = np.maximum(rows, 0) * np.maximum(width, 1)
    check_parts(sizes.sum() == len(flat))
    pieces = np.split(flat, np.cumsum(sizes)[:-1])
    return [
        (i, piece.reshape(rows[i], width[i]) if width[i] else piece)
        for i, piece in enumerate(pieces)
        if rows[i] >= 0
    ]


def _one(parts: Arrays, features: int | None, classes: int | None) -> Plain | None:
    if not parts:
        return None  # of a federation: a model that stayed at home
    for part in parts.values():
        check_finite(part.dtype.kind != "f" or np.isfinite(part).all())
    if classes is None:
        classes = _MOST_CLASSES if "labels" in parts else 0
    if features is None:
        features = _width(parts)
    return plain_from(parts, features, classes, _DISK_DEEPEST, disk=True)


def _width(parts: Arrays) -> int:
    """How many features a model was made for, at least."""
    for name in ("mean", "slopes"):
        if name in parts:
            return int(parts[name].shape[-1])
    return int(parts["feature"].max(initial=0)) + 1
