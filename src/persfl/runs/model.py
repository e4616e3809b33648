"""A fitted model as the files of a run, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from persfl.errors import InputError
from persfl.formats import reading
from persfl.learners import Estimator, Network
from persfl.learners.storage import (
    check_network_size,
    learner_from,
    learner_to,
    mixtures_from,
    mixtures_to,
    models_from,
    models_to,
    network_from,
    networks_from,
    networks_to,
    prefixed,
    refuse_unfit,
    under,
)
from persfl.learners.storage.estimator_words import estimator_to
from persfl.runs.model_checks import (
    SETTINGS,
    check_words,
    counts_from,
    losses_from,
    trust_from,
    truths_from,
    units_from,
    units_to,
    worth_from,
)
from persfl.runs.run_folder import Folder
from persfl.traits import is_learner

_ADOPTERS = ("Best", "BestOrStay", "TopK", "Weighted")


def refuse_unkept(model: Any) -> None:
    """Stop where a run folder could not keep the models of an estimator, before any are fitted.

    >>> from persfl import PersonalizedRegressor
    >>> from sklearn.svm import SVR
    >>> refuse_unkept(PersonalizedRegressor(SVR()))
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: models of SVR cannot be kept in a run folder. ...
    """
    # a learner's, or one itself
    base = _base(model.estimator)
    if isinstance(base, BaseEstimator):
        estimator_to(base)
    elif is_learner(base):
        learner_to(base)


def _base(learner: Any) -> Any:
    """The estimator of a learner that has one, or the learner itself."""
    return learner.estimator if isinstance(learner, Estimator) else learner


def keep_model(folder: Folder, model: Any) -> None:
    """Write a fitted PersonalizedRegressor or PersonalizedClassifier."""
    words, arrays = _words_of(model), _numbers_of(model)
    pooled = model.pooled_ is not None
    units = prefixed("pooled_units_", units_to(model.pooled_units_)) if pooled else {}
    if isinstance(model.learner_, Network):
        networks = {"models": model.models_}
        if not isinstance(model.models_, np.ndarray):
            parts, shares = mixtures_to(model.models_)
            networks["models"] = np.asarray(parts)
            arrays |= shares
        if pooled:
            networks["pooled"] = model.pooled_
        folder.write("model.safetensors", networks_to(model.learner_, networks))
        arrays |= units
    else:
        arrays |= models_to(model.models_) | units
        if pooled:
            arrays |= prefixed("pooled_", models_to([model.pooled_]))
    folder.write_arrays("model.npz", arrays)
    if model.worth_ is not None:
        folder.write_table("worth.parquet", model.worth_.table.drop(columns="device"))
        words["worth"] = {"scale": model.worth_.scale, "classes": model.worth_.classes}
    folder.write_json("model.json", words)
    folder.finish()


def _numbers_of(model: Any) -> dict[str, Any]:
    """What a run knows beside its models, as arrays."""
    arrays = prefixed("units_", units_to(model.units_))
    arrays |= prefixed("trust_", model.trust_.to_arrays())
    arrays |= {
        "losses": model.losses_,
        "rows": model.rows_,
        "fallback": model.fallback_,
    }
    return arrays


def _words_of(model: Any) -> dict[str, Any]:
    """What a fitted model is, in plain words."""
    devices = model.devices_.tolist()
    odd = [name for name in devices if not isinstance(name, (str, int, float, bool))]
    if odd:
        raise InputError(
            f"a run folder keeps devices whose ids are text or numbers. Got {odd[0]!r}: use"
            " str(...) of it."
        )
    words: dict[str, Any] = {
        "kind": type(model).__name__,
        "settings": _settings(model),
        "adopter": _adopter(model.adopter),
        "method": model.method_,
        "devices": devices,
        "learner": learner_to(model.learner_),
        "own_learner": model.estimator is model.learner_,
        "units": model.units_.kind,
        "step_size": model.step_size_,
        "rounds": model.n_rounds_,
        "notes": model.notes_,
        "features": model.n_features_in_,
        "names": list(getattr(model, "feature_names_in_", [])) or None,
        "preparation": None,
    }
    if hasattr(model, "classes_"):
        words["classes"] = model.classes_.tolist()
    if model.preparation_ is not None:
        words["preparation"] = model.preparation_.to_words()
    if model.pooled_ is not None:
        words["pooled"] = model.pooled_units_.kind
    return words


def save_model(
    model: Any, path: str | Path, *, device: str = "device", label: str = "y"
) -> Path:
    """A fitted model as a run folder that `load_model` and the command line take (`device`,
    `label`: what these are called).

    >>> import tempfile
    >>> from persfl import PersonalizedRegressor
    >>> model = PersonalizedRegressor().fit(
    ...     [[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0], devices=["a"] * 3
    ... )
    >>> path = save_model(model, Path(tempfile.mkdtemp()) / "run")
    >>> load_model(path).predict([[3.0]]).round(1).tolist()
    [3.0]
    """
    folder = Folder.create(
        Path(path),
        {
            "device": device if model.device is None else model.device,
            "label": label,
            "features": model._inputs(),
            "groups": None,
            "separator": None,
            "decimal": ".",
        },
    )
    try:
        keep_model(folder, model)
    except BaseException:
        folder.discard()
        raise
    return folder.path


def load_model(path: str | Path, *, module: Any = None) -> Any:
    """The fitted model of a finished run folder.

    `module` is what networks of the user's own were made of (a module, or a function that makes
    one), whose code is not in the folder. Without it all can be shown, but nothing predicted.
    """
    folder = Folder.open(Path(path))
    about, arrays = folder.read_json("model.json"), folder.read_arrays("model.npz")
    with reading(folder.path / "model.json"):
        check_words(about)
        model = _blank(about)
    kind = about["learner"]["kind"]
    if module is not None and kind != "network":
        raise InputError(
            f"module is for networks. This run's models are of the kind {kind!r}: leave it out."
        )
    if kind == "network":
        _read_networks(folder, model, about, arrays, module)
    else:
        with reading(folder.path / "model.json"):
            model.learner_ = learner_from(about["learner"])
            if kind != "linear" or about["own_learner"]:
                model.estimator = _base(model.learner_)
        with reading(folder.path / "model.npz"):
            _read_models(model, about, arrays)
    with reading(folder.path / "model.npz"):
        _read_numbers(model, about, arrays)
    if "worth" in about:
        measured = folder.read_table("worth.parquet")
        with reading(folder.path / "worth.parquet"):
            model.worth_ = worth_from(measured, about)
    return model


def _blank(about: Mapping[str, Any]) -> Any:
    """The estimator of a run, with what its words say, and no models yet."""
    from persfl.encoding import Preparation
    from persfl.estimators import PersonalizedClassifier, PersonalizedRegressor
    from persfl.estimators.base import id_array

    kind = PersonalizedClassifier if "classes" in about else PersonalizedRegressor
    model = kind(None, adopter=_adopter_from(about["adopter"]), **about["settings"])
    model._seed = model.random_state
    if "classes" in about:
        model.classes_ = np.array(about["classes"])
    model.devices_ = id_array(about["devices"])
    model.n_features_in_ = about["features"]
    if about["names"]:
        model.feature_names_in_ = np.array(about["names"], dtype=object)
    model.step_size_, model.n_rounds_ = about["step_size"], about["rounds"]
    model.notes_, model.method_ = about["notes"], about.get("method", model.method)
    model.public_, model.pooled_, model.worth_ = None, None, None
    model.preparation_ = None
    if about["preparation"]:
        model.preparation_ = Preparation.from_words(about["preparation"])
        if {*model.preparation_.numbers, *model.preparation_.texts} != set(
            about["names"] or ()
        ):
            raise InputError("the columns that are prepared must be the features.")
    return model


def _columns(model: Any) -> int:
    """How many columns of numbers models see."""
    return (
        model.n_features_in_
        if model.preparation_ is None
        else len(model.preparation_.columns)
    )


def _read_models(
    model: Any, about: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """The models of a run, and the one for all, if they are of its learner."""
    columns, classes = _columns(model), len(about.get("classes", ()))
    model.models_ = models_from(arrays, features=columns, classes=classes)
    refuse_unfit(model.learner_, model.models_, columns)
    if "pooled" in about:
        pooled = under("pooled_", arrays)
        if "pooled" in arrays:  # as format 1 had them
            pooled["models"] = arrays["pooled"][None]
        elif "tree_feature" in pooled and "tree_nodes" not in pooled:
            pooled["tree_nodes"] = np.array([len(pooled["tree_feature"])])
        (model.pooled_,) = found = models_from(
            pooled, features=columns, classes=classes
        )
        refuse_unfit(model.learner_, found, columns)


def _read_networks(
    folder: Folder,
    model: Any,
    about: Mapping[str, Any],
    arrays: Mapping[str, Any],
    module: Any,
) -> None:
    content = folder.read("model.safetensors")
    described = {
        name: value for name, value in about["learner"].items() if name != "kind"
    }
    with reading(folder.path / "model.json"):
        check_network_size(described, len(content))
        made = _sized(module, _columns(model), len(about.get("classes", ())))
    if module is None:
        with reading(folder.path / "model.json"):
            model.learner_ = network_from(described)
    else:
        model.learner_ = network_from(described, made)
    model.estimator = _as_estimator(described, module, model.learner_)
    with reading(folder.path / "model.safetensors"):
        networks = networks_from(model.learner_.shapes, content)
        model.models_ = networks["models"]
        if model.models_.ndim != 2 or networks.get("pooled", np.empty(0)).ndim != 1:
            raise InputError("there must be a network for every device.")
        if "pooled" in about:
            model.pooled_ = networks["pooled"]
    if "mix_sizes" in arrays:
        with reading(folder.path / "model.npz"):
            model.models_ = mixtures_from(list(networks["models"]), arrays)


def _read_numbers(
    model: Any, about: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """What a run knows beside its models."""
    devices, columns = len(model.devices_), _columns(model)
    if len(model.models_) != devices:
        found = len(model.models_)
        raise InputError(
            f"the run's models are of {found} devices, where there are {devices}."
        )
    sizes = {"devices": devices, "columns": columns}
    model.units_ = units_from(about["units"], under("units_", arrays), **sizes)
    if "pooled" in about:
        pooled = under("pooled_units_", arrays)
        model.pooled_units_ = units_from(about["pooled"], pooled, **sizes)
    model.trust_ = trust_from(under("trust_", arrays), devices)
    model.losses_ = losses_from(arrays["losses"], devices)
    model.rows_ = counts_from(arrays["rows"], devices)
    model.fallback_ = truths_from(arrays["fallback"], devices)


def _adopter(adopter: Any) -> Any:
    """An adopter in plain words; those of the user's own are kept by name only."""
    if adopter is None:
        return None
    if type(adopter).__name__ in _ADOPTERS and dataclasses.is_dataclass(adopter):
        return {"kind": type(adopter).__name__} | dataclasses.asdict(adopter)  # type: ignore[arg-type]
    return {"kind": repr(adopter)}


def _adopter_from(described: Any) -> Any:
    from persfl import adopters

    if described is None or described["kind"] not in _ADOPTERS:
        return None
    settings = {name: value for name, value in described.items() if name != "kind"}
    return getattr(adopters, described["kind"])(**settings)


def _settings(model: Any) -> dict[str, Any]:
    return {name: getattr(model, name) for name in SETTINGS} | {
        "random_state": model._seed
    }


def _sized(module: Any, columns: int, classes: int) -> Any:
    """A function of (features, outputs), as the estimators take one, made a function of nothing."""
    from persfl.estimators.base import takes_sizes

    return partial(module, columns, classes or 1) if takes_sizes(module) else module


def _as_estimator(described: Mapping[str, Any], module: Any, learner: Any) -> Any:
    """What the user would hand in to train the same again."""
    if module is not None or described["mlp"] is None:
        return module
    return learner.make.func
