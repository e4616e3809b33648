"""Models as named arrays, checked by family when they come back.

    vector learners (linear, networks)      vector
    Tree                                    feature, threshold, left, right, value
    Estimator                               base, labels, slopes, or the nodes of many trees one
    after the other

>>> from persfl import Linear
>>> sent = model_to(Linear(), np.array([1.0, 2.0]))
>>> model_from(Linear(), sent, features=2).tolist()
[1.0, 2.0]
>>> model_from(Linear(), {"vector": np.array([1.0, np.nan])}, features=2)
Traceback (most recent call last):
...
persfl.wire.codec.WireError: a model must hold finite numbers of a sensible size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from persfl.errors import InputError
from persfl.learners import Tree
from persfl.learners.plain import LINKS, WIRE_LINKS, Plain, as_plain
from persfl.learners.tree import Grown
from persfl.traits import has_gradients
from persfl.types import Array, Learner
from persfl.wire.codec import WireError

LARGE = 1e15  # a number beyond this is absurd in any units
TREES, NODES, DEEPEST = 5_000, 2_000_000, 1_000
_PLAIN = {"link", "rate", "stride", "base"}


def model_to(learner: Learner, model: Any) -> dict[str, Any]:
    """A model of this learner as arrays."""
    if has_gradients(learner):
        return {"vector": np.asarray(model)}
    if isinstance(learner, Tree):
        return {name: np.asarray(getattr(model, name)) for name in Grown._fields}
    return plain_to(as_plain(model))


def plain_to(sent: Plain, *, kept: bool = False) -> dict[str, Any]:
    """A plain model as arrays; `kept` for a run folder, with what it takes to be the same bits."""
    arrays: dict[str, Any] = {
        "link": np.array([LINKS.index(sent.link)]),
        "rate": np.array([sent.rate]),
        "stride": np.array([sent.stride]),
        "base": sent.base,
    }
    if sent.labels is not None:
        arrays["labels"] = sent.labels
    if sent.slopes is not None:
        arrays["slopes"] = sent.slopes
        # sums are added up by where numbers lie
        if kept and not sent.slopes.flags.c_contiguous:
            arrays["across"] = np.array([1])
    if sent.mean is not None and sent.scale is not None:
        arrays |= {"mean": sent.mean, "scale": sent.scale}
    if sent.fine:
        arrays["fine"] = np.array([1])
    if sent.trees:
        arrays["nodes"] = np.array([tree.feature.size for tree in sent.trees])
        for name in Grown._fields:
            arrays[name] = np.concatenate([getattr(tree, name) for tree in sent.trees])
    return arrays


def model_from(
    learner: Learner, arrays: Mapping[str, Any], features: int, classes: int = 0
) -> Any:
    """The inverse of `model_to`, for arrays that somebody else sent."""
    for array in arrays.values():
        # also where they are NaN
        if array.dtype.kind == "f" and not (np.abs(array) <= LARGE).all():
            raise WireError("a model must hold finite numbers of a sensible size.")
    try:
        if has_gradients(learner):
            _named(arrays, {"vector"})
            vector = arrays["vector"]
            if vector.dtype != np.dtype(getattr(learner, "dtype", "float64")):
                raise _odd()
            return learner.check(vector, features)
        if isinstance(learner, Tree):
            _named(arrays, set(Grown._fields))
            tree = learner.check(_grown(arrays), features)
            if _depth(tree) > learner.max_depth:
                raise _odd()
            return tree
        deepest = getattr(getattr(learner, "estimator", None), "max_depth", None)
        return plain_from(
            arrays, features, classes, DEEPEST if deepest is None else int(deepest)
        )
    except (InputError, KeyError, ValueError, TypeError, IndexError) as error:
        if isinstance(error, WireError):
            raise
        raise _odd() from None


def plain_from(
    arrays: Mapping[str, Any],
    features: int,
    classes: int,
    deepest: int = DEEPEST,
    *,
    kept: bool = False,
) -> Plain:
    """The inverse of `plain_to`, for trees of at most this depth: a chain would take long to walk.

    `kept`: from a run folder, which has families that do not travel and forests of any size.
    """
    more = {
        name for name in ("fine", "mean", "scale", "across") if kept and name in arrays
    }
    kinds = {"slopes"} if "slopes" in arrays else {"nodes", *Grown._fields}
    _named(arrays, _PLAIN | kinds | more | ({"labels"} if classes else set()))
    link, stride, rate = (arrays[name] for name in ("link", "stride", "rate"))
    whole = link.dtype == stride.dtype == np.int64 and rate.dtype == np.float64
    if not whole or not link.shape == stride.shape == rate.shape == (1,):
        raise _odd()
    base, labels = arrays["base"], arrays.get("labels")
    known = LINKS if kept else WIRE_LINKS
    if base.dtype != np.float64 or base.ndim != 1 or not 0 <= int(link[0]) < len(known):
        raise _odd()
    if not 1 <= int(stride[0]) <= len(base):
        raise _odd()
    name, scores = known[int(link[0])], len(base)
    if not _labelled(name, scores, labels, classes):
        raise _odd()
    mean, scale = (
        _scaler(arrays, features) if more & {"mean", "scale"} else (None, None)
    )
    if "slopes" in arrays:
        slopes = arrays["slopes"]
        if (
            slopes.dtype != np.float64
            or slopes.shape != (scores, features)
            or "fine" in more
        ):
            raise _odd()
        if "across" in more:
            slopes = np.asfortranarray(slopes)
        return Plain(name, base, labels, slopes, mean=mean, scale=scale)
    trees = _trees(arrays, features, deepest, bounded=not kept)
    wide = trees[0].value.ndim == 2
    if wide and (trees[0].value.shape[1] != scores or name not in ("value", "chances")):
        raise _odd()
    if not wide and (
        int(stride[0]) != scores or len(trees) % scores or name == "chances"
    ):
        raise _odd()
    return Plain(
        name,
        base,
        labels,
        rate=float(rate[0]),
        trees=trees,
        stride=int(stride[0]),
        fine="fine" in more,
        mean=mean,
        scale=scale,
    )


def _labelled(link: str, scores: int, labels: Any, classes: int) -> bool:
    """Whether scores and labels are as many as they must be, and labels are classes."""
    if labels is None:
        return link in ("value", "exp") and scores == 1
    if labels.dtype != np.float64 or labels.ndim != 1 or not len(labels):
        return False
    if not np.isin(labels, np.arange(classes)).all() or not (np.diff(labels) > 0).all():
        return False
    if link == "sigmoid" or (link == "margin" and scores == 1):
        return scores == 1 and len(labels) == 2
    return link not in ("value", "exp") and scores == len(labels)


def _scaler(arrays: Mapping[str, Any], features: int) -> tuple[Array, Array]:
    mean, scale = (
        finite(arrays["mean"], (features,)),
        finite(arrays["scale"], (features,)),
    )
    if not (scale > 0).all():
        raise _odd()
    return mean, scale


def _trees(
    arrays: Mapping[str, Any],
    features: int,
    deepest: int,
    *,
    bounded: bool,
) -> tuple[Grown, ...]:
    nodes, whole = arrays["nodes"], _grown(arrays)
    count = len(whole.feature)
    if nodes.dtype != np.int64 or nodes.ndim != 1 or not len(nodes):
        raise _odd()
    if bounded and (len(nodes) > TREES or count > NODES):
        raise _odd()
    if (
        (nodes < 1).any()
        or (nodes > count).any()
        or nodes.sum() != count
        or any(len(part) != count for part in whole)
    ):
        raise _odd()
    if whole.value.ndim not in (1, 2):
        raise _odd()
    ends = np.cumsum(nodes)[:-1]
    judge, found = Tree(), []
    for parts in zip(*(np.split(part, ends) for part in whole), strict=True):
        tree = Grown(*parts)
        # values may have several columns
        judge.check(tree._replace(value=np.zeros(len(tree.feature))), features)
        if len(tree.feature) > 2 * deepest + 1 and _depth(tree) > deepest:
            raise _odd()
        found.append(tree)
    return tuple(found)


def _grown(arrays: Mapping[str, Any]) -> Grown:
    tree = Grown(*(arrays[name] for name in Grown._fields))
    wanted = {"threshold": np.float64, "value": np.float64}
    if any(
        part.dtype != wanted.get(name, np.int64)
        for name, part in tree._asdict().items()
    ):
        raise _odd()
    if any(part.ndim != 1 for name, part in tree._asdict().items() if name != "value"):
        raise _odd()
    return tree


def _depth(tree: Grown) -> int:
    """How many questions the longest way down has; parents come before children."""
    depth = np.zeros(len(tree.feature), dtype=np.int64)
    for i in np.flatnonzero(tree.feature >= 0).tolist():
        depth[tree.left[i]] = depth[tree.right[i]] = depth[i] + 1
    return int(depth.max())


def _named(arrays: Mapping[str, Any], wanted: set[str]) -> None:
    if set(arrays) != wanted:
        raise _odd()


def _odd() -> WireError:
    return WireError("a model does not have the form of its family.")


def finite(array: Any, shape: tuple[int, ...]) -> Array:
    """An array of finite float64 numbers of this shape, or a WireError."""
    if (
        array is None
        or array.dtype != np.float64
        or array.shape != shape
        or not (np.abs(array) <= LARGE).all()
    ):
        raise WireError(
            "numbers must be finite, of a sensible size, and as many as were asked for."
        )
    return np.asarray(array)
