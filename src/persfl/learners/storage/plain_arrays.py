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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.learners.plain import LINKS, WIRE_LINKS, Plain
from persfl.learners.storage import tree_arrays
from persfl.learners.storage.named_arrays import (
    AnyArray,
    Arrays,
    check_arrays,
    check_finite,
    check_form,
    has_form,
    is_sensible,
    under,
)
from persfl.learners.tree import Grown

if TYPE_CHECKING:
    from persfl.types import Learner, Model

OLD_KEY = "plain"  # of format 1
NODES = 2_000_000  # of a model on the wire, at most
_ALWAYS = {"link", "rate", "stride", "base"}
_DISK = {"fine", "mean", "scale", "across"}
_FORMS = {
    "link": "i8 1",
    "rate": "f8 1",
    "stride": "i8 1",
    "base": "f8 K",
    "labels": "f8 L",
    "slopes": "f8 K F",
    "across": "i8 1",
    "mean": "f8 F",
    "scale": "f8 F",
    "fine": "i8 1",
    "nodes": "i8 T",
    **tree_arrays.FORMS,
}
_DISK_DEEPEST = 10_000  # questions on the way down a tree
_MOST_CLASSES = 1_000_000
_ROUNDING = 1e-9  # of a chance
_ABSENT = -1  # rows of a part that a model does not have


@dataclass(frozen=True)
class PlainModels:
    """scikit-learn's models: at most so many trees each, and so deep."""

    KEY: ClassVar[str] = "plain_count"
    most_trees: Callable[[Learner, int], int]
    deepest: Callable[[Learner], int]

    def holds(self, model: Model) -> bool:
        return not isinstance(model, (np.ndarray, Grown, list))

    def one_to(self, model: Model) -> dict[str, AnyArray]:
        from persfl.learners.plain_families import as_plain

        return plain_to(as_plain(model))

    def one_from(
        self, learner: Learner, arrays: Arrays, features: int, classes: int
    ) -> Plain:
        check_form(_count(arrays) <= self.most_trees(learner, classes))
        return plain_from(arrays, features, classes, self.deepest(learner))

    def many_to(self, models: Sequence[Model]) -> dict[str, AnyArray]:
        from persfl.learners.plain_families import as_plain

        known = [
            {} if model is None else plain_to(as_plain(model), disk=True)
            for model in models
        ]
        arrays: dict[str, AnyArray] = {self.KEY: np.array(len(models))}
        for name in _FORMS:
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
            check_arrays(0 <= count <= len(arrays))
            known = [under(f"plain_{i}.", arrays) for i in range(count)]
        else:
            count = int(arrays[self.KEY])
            room = sum(len(array) for array in arrays.values() if array.ndim)
            check_arrays(0 <= count <= 1 + room)
            known = [{} for _ in range(count)]
            for name in _FORMS:
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
        arrays |= tree_arrays.in_a_row(model.trees)
    return arrays


def plain_from(
    arrays: Arrays, features: int, classes: int, deep: int, *, disk: bool = False
) -> Plain:
    """The inverse of `plain_to`, for trees of at most this depth; on disk there are families that
    do not travel, forests of any size, and chances as they were written.
    """
    more = _DISK & set(arrays) if disk else set()
    body = {"slopes"} if "slopes" in arrays else {"nodes", *tree_arrays.FORMS}
    labelled = {"labels"} if classes else set()
    check_form(set(arrays) == _ALWAYS | body | more | labelled)
    forms = {name: _FORMS[name] for name in arrays}
    wide = "value" in arrays and arrays["value"].ndim == 2  # a value for every score
    if wide:
        forms["value"] = "f8 N K"
    check_form(has_form(arrays, forms, F=features))
    plain = _without_body(arrays, classes, LINKS if disk else WIRE_LINKS)
    scores = len(plain.base)
    if "slopes" in arrays:
        check_form("fine" not in more)
        slopes = arrays["slopes"]
        if "across" in more:
            slopes = np.asfortranarray(slopes)
        if plain.link == "chances" and not disk:
            check_form(not slopes.any())
            plain = replace(plain, base=_chances(plain.base[None])[0])
        return replace(plain, slopes=slopes)
    trees = _trees(arrays, features, deep, bounded=not disk)
    rate = float(arrays["rate"][0])
    stride = int(arrays["stride"][0])
    if wide:
        check_form(plain.link in ("value", "chances"))
        if plain.link == "chances" and not disk:
            trees = tuple(one._replace(value=_chances(one.value)) for one in trees)
    else:
        check_form(plain.link != "chances")
        check_form(stride == scores and len(trees) % scores == 0)
    return replace(plain, trees=trees, rate=rate, stride=stride, fine="fine" in more)


def _without_body(arrays: Arrays, classes: int, links: Sequence[str]) -> Plain:
    """What every model has: how rows enter, how its scores begin, and what they mean."""
    base = arrays["base"]
    labels = arrays.get("labels")
    link = int(arrays["link"][0])
    check_form(0 <= link < len(links) and 1 <= int(arrays["stride"][0]) <= len(base))
    check_form(_are_labelled(links[link], len(base), labels, classes))
    mean = arrays.get("mean")
    scale = arrays.get("scale")
    if mean is not None or scale is not None:
        check_form(mean is not None and is_sensible(mean))
        check_form(scale is not None and is_sensible(scale) and (scale > 0).all())
    return Plain(links[link], base, labels, mean=mean, scale=scale)


def _are_labelled(
    link: str, scores: int, labels: AnyArray | None, classes: int
) -> bool:
    """Whether scores and labels are as many as they must be, and labels are classes."""
    if labels is None:
        return link in ("value", "exp") and scores == 1
    known = (labels >= 0) & (labels < classes) & (labels == np.floor(labels))
    if not len(labels) or not known.all() or not (np.diff(labels) > 0).all():
        return False
    if link == "sigmoid" or (link == "margin" and scores == 1):
        return scores == 1 and len(labels) == 2
    return link not in ("value", "exp") and scores == len(labels)


def _chances(values: AnyArray) -> AnyArray:
    """(rows, classes) chances, if they are: whoever gives every class a chance of 1 is never wrong,
    and below 0 nothing can be learned from.
    """
    check_form((values >= -_ROUNDING).all() and (values <= 1 + _ROUNDING).all())
    check_form((np.abs(values.sum(axis=1) - 1.0) <= _ROUNDING * values.shape[1]).all())
    return np.clip(values, 0.0, 1.0)


def _trees(
    arrays: Arrays, features: int, deep: int, *, bounded: bool
) -> tuple[Grown, ...]:
    check_form(len(arrays["feature"]) <= NODES or not bounded)
    trees = tree_arrays.apart(arrays, features)
    for tree in trees:
        tree_arrays.check_depth(tree, deep)
    return tuple(trees)


def _count(arrays: Arrays) -> int:
    """How many trees are told."""
    return int(arrays["nodes"].size) if "nodes" in arrays else 0


# A fleet


def _size(part: AnyArray | None) -> tuple[int, int]:
    """Rows and width; width 0 is a part of one axis."""
    if part is None:
        return _ABSENT, 0
    return len(part), part.shape[1] if part.ndim > 1 else 0


def _pieces(arrays: Arrays, name: str, count: int) -> list[tuple[int, AnyArray]]:
    """A part of the models that have it, with their positions."""
    forms = {name: "fi N", f"{name}_rows": "i C", f"{name}_width": "i C"}
    check_arrays(has_form(arrays, forms, C=count))
    flat, rows, width = (arrays[part] for part in forms)
    check_arrays((rows >= _ABSENT).all() and (width >= 0).all())
    check_arrays((np.maximum(rows, width) <= len(flat)).all())
    sizes = np.maximum(rows, 0) * np.maximum(width, 1)
    check_arrays(sizes.sum() == len(flat))
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
