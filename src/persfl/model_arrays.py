"""Models of a fleet as named arrays, and back: what a run folder holds of them.

    models                                  vectors of one length: linear models, networks
    tree_nodes, tree_feature, ...           trees of persfl's own, one after the other
    plain_count, plain_base, ...            scikit-learn's models as plain arrays, likewise
    mix_sizes, mix_shares                   how many of these each device mixes, in what shares

Everything that is read is checked: no index leads out of its tree, every number is finite.

>>> arrays = models_to([[(0.5, np.zeros(2)), (0.5, np.ones(2))]])
>>> sorted(arrays), models_from(arrays)[0][1][1].tolist()
(['mix_shares', 'mix_sizes', 'models'], [1.0, 1.0])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from persfl.errors import InputError
from persfl.learners import Tree
from persfl.learners.plain import Plain, as_plain
from persfl.learners.tree import Grown
from persfl.types import Array
from persfl.wire.models import plain_from, plain_to
from persfl.wire.probes import within

_PARTS = (
    "link",
    "rate",
    "stride",
    "base",
    "labels",
    "slopes",
    "across",
    "mean",
    "scale",
    "fine",
    "nodes",
    *Grown._fields,
)
_DEEPEST = 10_000  # questions on the way down a tree
_MOST_CLASSES = 1_000_000
_ABSENT = -1


def models_to(models: Any) -> dict[str, Any]:
    """Models as named arrays."""
    if isinstance(models, np.ndarray):
        return {"models": models}
    if any(isinstance(model, list) for model in models):  # mixes of shares and models
        parts, shares = listed(models)
        return models_to(parts) | shares
    if all(isinstance(model, np.ndarray) for model in models):
        return {"models": np.stack(list(models))}
    if all(isinstance(model, Grown) for model in models):
        arrays = {"tree_nodes": np.array([len(model.feature) for model in models])}
        for name in Grown._fields:
            arrays[f"tree_{name}"] = np.concatenate(
                [getattr(model, name) for model in models]
            )
        return arrays
    return _plain_to([None if model is None else as_plain(model) for model in models])


def models_from(
    arrays: Mapping[str, Any],
    *,
    features: int | None = None,
    classes: int | None = None,
) -> Any:
    """The inverse of `models_to`, for arrays that somebody else may have written.

    Where the numbers of features and classes are not told, whoever uses the models must check.
    """
    if "mix_sizes" in arrays:
        rest = {name: array for name, array in arrays.items() if name != "mix_sizes"}
        return mixed(models_from(rest, features=features, classes=classes), arrays)
    if "models" in arrays:
        return _vectors(arrays["models"])
    if "plain_count" in arrays:
        return _plain_from(arrays, features, classes)
    if "plain" in arrays:  # as format 1 had it: an entry for every part of every model
        count = int(arrays["plain"])
        if not 0 <= count <= len(arrays):
            raise _damaged()
        parts = [within(f"plain_{i}", arrays) for i in range(count)]
        return [_one(part, features, classes) for part in parts]
    return _trees(arrays, features)


def _vectors(models: Any) -> Array:
    """Each finite, or all NaN where a device's model is not here."""
    if models.ndim != 2 or models.dtype not in (np.float64, np.float32):
        raise _damaged()
    known = np.isfinite(models).all(axis=1) | np.isnan(models).all(axis=1)
    if not known.all():
        raise InputError("models must hold finite numbers.")
    return np.asarray(models)


def _trees(arrays: Mapping[str, Any], features: int | None) -> list[Grown]:
    nodes = _counts(arrays["tree_nodes"], least=1)
    whole = [np.asarray(arrays[f"tree_{name}"]) for name in Grown._fields]
    if any(part.ndim != 1 or len(part) != nodes.sum() for part in whole):
        raise _damaged()
    if any(
        part.dtype.kind != ("f" if i in (1, 4) else "i") for i, part in enumerate(whole)
    ):
        raise _damaged()
    wide = int(whole[0].max(initial=0)) + 1 if features is None else features
    ends = np.cumsum(nodes)[:-1]
    found = [
        Grown(*parts) for parts in zip(*(np.split(p, ends) for p in whole), strict=True)
    ]
    for tree in found:
        if np.isnan(tree.value).all():  # of a federation: a model that stayed at home
            tree = tree._replace(value=np.zeros(len(tree.value)))
        Tree().check(tree, wide)
    return found


def _plain_to(models: Sequence[Plain | None]) -> dict[str, Any]:
    """Parts of all models one after the other; how long and how wide each model's part is."""
    told = [{} if model is None else plain_to(model, kept=True) for model in models]
    arrays: dict[str, Any] = {"plain_count": np.array(len(models))}
    for name in _PARTS:
        here = [parts[name] for parts in told if name in parts]
        if not here:
            continue
        rows = [len(parts[name]) if name in parts else _ABSENT for parts in told]
        width = [_second_axis(parts.get(name)) for parts in told]
        arrays[f"plain_{name}"] = np.concatenate([part.ravel() for part in here])
        arrays[f"plain_{name}_rows"] = np.array(rows)
        arrays[f"plain_{name}_width"] = np.array(width)
    return arrays


def _second_axis(part: Any) -> int:
    return 0 if part is None or part.ndim < 2 else int(part.shape[1])


def _plain_from(
    arrays: Mapping[str, Any],
    features: int | None,
    classes: int | None,
) -> list[Plain | None]:
    count = int(arrays["plain_count"])
    if not 0 <= count <= 1 + sum(len(array) for array in arrays.values() if array.ndim):
        raise _damaged()
    told: list[dict[str, Any]] = [{} for _ in range(count)]
    for name in _PARTS:
        if f"plain_{name}" not in arrays:
            continue
        rows = _counts(arrays[f"plain_{name}_rows"], least=_ABSENT)
        width = _counts(arrays[f"plain_{name}_width"], least=0)
        flat = arrays[f"plain_{name}"]
        if not len(rows) == len(width) == count or flat.ndim != 1:
            raise _damaged()
        if max(rows.max(initial=0), width.max(initial=0)) > len(flat):
            raise _damaged()
        sizes = np.maximum(rows, 0) * np.maximum(width, 1)
        if sizes.sum() != len(flat):
            raise _damaged()
        for i, part in enumerate(np.split(flat, np.cumsum(sizes)[:-1])):
            if rows[i] >= 0:
                told[i][name] = part.reshape(rows[i], width[i]) if width[i] else part
    return [_one(parts, features, classes) for parts in told]


def _one(
    parts: Mapping[str, Any], features: int | None, classes: int | None
) -> Plain | None:
    if not parts:
        return None  # of a federation: a model that stayed at home
    if any(
        part.dtype.kind == "f" and not np.isfinite(part).all()
        for part in parts.values()
    ):
        raise InputError("models must hold finite numbers.")
    if classes is None:
        classes = _MOST_CLASSES if "labels" in parts else 0
    if features is None:
        features = _width(parts)
    return plain_from(parts, features, classes, _DEEPEST, kept=True)


def _width(parts: Mapping[str, Any]) -> int:
    """How many features a plain model was made for, at least."""
    for name in ("mean", "slopes"):
        if name in parts:
            return int(parts[name].shape[-1])
    return int(parts["feature"].max(initial=0)) + 1


def listed(models: Any) -> tuple[list[Any], dict[str, Any]]:
    """The models of all mixes, one after the other; how many each device has, and their shares."""
    # A device may keep its own model.
    mixes = [model if isinstance(model, list) else [(1.0, model)] for model in models]
    shares = np.array([share for mix in mixes for share, _ in mix])
    sizes = np.array([len(mix) for mix in mixes])
    return [part for mix in mixes for _, part in mix], {
        "mix_sizes": sizes,
        "mix_shares": shares,
    }


def mixed(parts: Any, arrays: Mapping[str, Any]) -> list[Any]:
    """Mixes of shares and models from the models of all of them; shares must be shares."""
    sizes, shares = np.asarray(arrays["mix_sizes"]), np.asarray(arrays["mix_shares"])
    sound = (
        sizes.ndim == shares.ndim == 1
        and sizes.dtype.kind == "i"
        and shares.dtype.kind == "f"
    )
    if not sound or not len(sizes) or sizes.min() < 1 or sizes.max() > len(shares):
        raise _unmixed()
    if not sizes.sum() == len(shares) == len(parts):
        raise _unmixed()
    ends = np.cumsum(sizes)
    total = np.add.reduceat(shares, ends - sizes)
    if not (shares >= 0).all() or not np.allclose(total, 1.0):
        raise InputError("a device's shares in a mix must be at least 0 and sum to 1.")
    pairs = list(zip(shares.tolist(), parts, strict=True))
    spans = zip(ends.tolist(), sizes.tolist(), strict=True)
    return [pairs[end - size : end] for end, size in spans]


def _counts(values: Any, *, least: int) -> Any:
    if values.ndim != 1 or values.dtype.kind != "i" or (values < least).any():
        raise _damaged()
    return values


def _unmixed() -> InputError:
    return InputError(
        "mixes must have a share for every model, and a model for every device."
    )


def _damaged() -> InputError:
    return InputError("the run's models are damaged: their parts do not fit together.")
