"""A fitted model as the files of a run, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from persfl.encoding import Preparation
from persfl.errors import InputError
from persfl.fitting import FitSettings, Fitted, Labels, TableSchema, fitted_of
from persfl.fitting.families import learner_for, sized
from persfl.fitting.fitted import HasFitted
from persfl.fitting.ids import id_array
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
from persfl.methods import METHODS, Method, method_of
from persfl.runs.model_checks import (
    check_classes,
    check_words,
    counts_from,
    is_plain,
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
    method = method_of(model.method)
    _refuse_unlisted(method)
    for name, value in method.get_params().items():
        if name != "adopter":  # kept in words of its own
            _plain(name, value)
    # a learner's, or one itself
    base = _base(model.estimator)
    if isinstance(base, BaseEstimator):
        estimator_to(base)
    elif is_learner(base):
        learner_to(base)


def _refuse_unlisted(method: Method) -> None:
    """Stop where a folder could be written, and not be read: methods are found by their names."""
    if METHODS.get(method.name) is not type(method):
        kind = type(method).__name__
        raise InputError(
            f"a run folder keeps models of methods by their names, and {method.name!r} is not that"
            f" of {kind} in persfl.methods.METHODS. Put it there: METHODS[{kind}.name] = {kind}."
        )


def _base(learner: Any) -> Any:
    """The estimator of a learner that has one, or the learner itself."""
    return learner.estimator if isinstance(learner, Estimator) else learner


def keep_model(folder: Folder, model: Fitted | HasFitted) -> None:
    """Write the result of a fit, or a fitted estimator's."""
    fitted = fitted_of(model)
    words = _words_of(fitted)
    arrays = _numbers_of(fitted)
    pooled = fitted.pooled
    units = fitted.pooled_units
    models: Any = fitted.models
    if units is not None:
        words["pooled"] = units.kind
        arrays |= prefixed("pooled_units_", units_to(units))
    if isinstance(fitted.learner, Network):
        networks = {"models": models}
        if not isinstance(models, np.ndarray):
            parts, shares = mixtures_to(models)
            networks["models"] = np.asarray(parts)
            arrays |= shares
        if pooled is not None:
            networks["pooled"] = pooled
        folder.write("model.safetensors", networks_to(fitted.learner, networks))
    else:
        arrays |= models_to(models)
        if pooled is not None:
            arrays |= prefixed("pooled_", models_to([pooled]))
    folder.write_arrays("model.npz", arrays)
    worth = fitted.worth
    if worth is not None:
        folder.write_table("worth.parquet", worth.table.drop(columns="device"))
        words["worth"] = {"scale": worth.scale, "classes": worth.classes}
    folder.write_json("model.json", words)
    folder.finish()


def _numbers_of(fitted: Fitted) -> dict[str, Any]:
    """What a run knows beside its models, as arrays."""
    arrays = prefixed("units_", units_to(fitted.units))
    arrays |= prefixed("trust_", fitted.trust.to_arrays())
    arrays |= {
        "losses": fitted.losses,
        "rows": fitted.rows,
        "fallback": fitted.fallback,
    }
    return arrays


def _words_of(fitted: Fitted) -> dict[str, Any]:
    """What a result is, in plain words."""
    devices = fitted.devices.tolist()
    odd = [name for name in devices if not isinstance(name, (str, int, float, bool))]
    if odd:
        raise InputError(
            f"a run folder keeps devices whose ids are text or numbers. Got {odd[0]!r}: use"
            " str(...) of it."
        )
    _refuse_unlisted(fitted.method)
    schema = fitted.schema
    classes = fitted.schema.labels.classes
    words: dict[str, Any] = {
        "kind": "PersonalizedClassifier" if fitted.classes else "PersonalizedRegressor",
        "settings": _settings(fitted),
        "adopter": _adopter(fitted.method.get_params().get("adopter")),
        "method": fitted.ran,
        "devices": devices,
        "learner": learner_to(fitted.learner),
        "own_learner": fitted.learner != learner_for(None, fitted.classes),
        "units": fitted.units.kind,
        "step_size": fitted.step_size,
        "rounds": fitted.rounds,
        "notes": list(fitted.notes),
        "features": schema.features,
        "names": None if schema.names is None else list(schema.names),
        "preparation": None,
    }
    if classes is not None:
        check_classes(classes)
        words["classes"] = classes.tolist()
    if schema.preparation is not None:
        words["preparation"] = schema.preparation.to_words()
    return words


def save_model(
    model: Fitted | HasFitted,
    path: str | Path,
    *,
    device: str = "device",
    label: str = "y",
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
    schema = fitted_of(model).schema
    folder = Folder.create(
        Path(path),
        {
            "device": schema.device or device,
            "label": label,
            "features": schema.inputs,
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
    from persfl.estimators import estimator_of

    fitted, estimator = read_fitted(Folder.open(Path(path)), module=module)
    return estimator_of(fitted, estimator)


def read_fitted(folder: Folder, *, module: Any = None) -> tuple[Fitted, Any]:
    """The result that a finished run folder holds, and what its models were made of."""
    about = folder.read_json("model.json")
    arrays = folder.read_arrays("model.npz")
    with reading(folder.path / "model.json"):
        check_words(about)
        schema = _schema(about)
        settings = _settings_from(about)
        method = _method_from(about)
    kind = about["learner"]["kind"]
    if module is not None and kind != "network":
        raise InputError(
            f"module is for networks. This run's models are of the kind {kind!r}: leave it out."
        )
    if kind == "network":
        made = _read_networks(folder, schema, about, arrays, module)
    else:
        with reading(folder.path / "model.json"):
            learner = learner_from(about["learner"])
        with reading(folder.path / "model.npz"):
            made = _read_models(learner, schema, about, arrays)
    with reading(folder.path / "model.npz"):
        numbers = _read_numbers(schema, about, arrays, len(made["models"]))
    worth = None
    if "worth" in about:
        measured = folder.read_table("worth.parquet")
        with reading(folder.path / "worth.parquet"):
            worth = worth_from(measured, about)
    estimator = made.pop("estimator")
    fitted = Fitted(
        devices=id_array(about["devices"]),
        schema=schema,
        settings=settings,
        method=method,
        alone=about.get("method") == "own" and about["settings"].get("method") != "own",
        step_size=about["step_size"],
        rounds=about["rounds"],
        notes=tuple(about["notes"]),
        worth=worth,
        **made,
        **numbers,
    )
    return fitted, estimator


def _schema(about: Mapping[str, Any]) -> TableSchema:
    """What a run knew of its table."""
    classes = np.array(about["classes"]) if "classes" in about else None
    names = about["names"]
    device = about["settings"].get("device")
    if device is not None and device in (names or ()):
        raise InputError("the column of devices must be none of the features.")
    preparation = None
    if about["preparation"]:
        preparation = Preparation.from_words(about["preparation"])
        if {*preparation.numbers, *preparation.texts} != set(names or ()):
            raise InputError("the columns that are prepared must be the features.")
    return TableSchema(
        Labels(classes is None, classes),
        about["features"],
        tuple(names) if names else None,
        preparation,
        device,
        bool(about["settings"].get("impute", False)),
    )


def _settings_from(about: Mapping[str, Any]) -> FitSettings:
    """What a run was asked; older ones did not have every setting."""
    known = {field.name for field in dataclasses.fields(FitSettings)}
    given = {name: value for name, value in about["settings"].items() if name in known}
    return FitSettings(**given, seed=about["settings"].get("random_state", 0))


def _method_from(about: Mapping[str, Any]) -> Method:
    """The method of a run; those of older versions may not have named it."""
    given = about["settings"]
    ran = about.get("method", "paper")
    name = given.get("method", "auto")
    if name == "auto":
        name = "blend" if ran == "own" else ran
    method = method_of(name)
    known = method.get_params()
    settings = {name: value for name, value in given.items() if name in known}
    if "adopter" in known:
        settings["adopter"] = _adopter_from(about["adopter"])
    return method.set_params(**settings)


def _read_models(
    learner: Any,
    schema: TableSchema,
    about: Mapping[str, Any],
    arrays: Mapping[str, Any],
) -> dict[str, Any]:
    """The models of a run, and the one for all, if they are of its learner."""
    columns = len(schema.columns)
    classes = schema.labels.count
    models = models_from(arrays, features=columns, classes=classes)
    refuse_unfit(learner, models, columns)
    pooled = None
    if "pooled" in about:
        found = under("pooled_", arrays)
        if "pooled" in arrays:  # as format 1 had them
            found["models"] = arrays["pooled"][None]
        elif "tree_feature" in found and "tree_nodes" not in found:
            found["tree_nodes"] = np.array([len(found["tree_feature"])])
        one = models_from(found, features=columns, classes=classes)
        (pooled,) = one
        refuse_unfit(learner, one, columns)
    estimator = None
    if about["learner"]["kind"] != "linear" or about["own_learner"]:
        estimator = _base(learner)
    return {
        "learner": learner,
        "models": models,
        "pooled": pooled,
        "estimator": estimator,
    }


def _read_networks(
    folder: Folder,
    schema: TableSchema,
    about: Mapping[str, Any],
    arrays: Mapping[str, Any],
    module: Any,
) -> dict[str, Any]:
    content = folder.read("model.safetensors")
    described = {
        name: value for name, value in about["learner"].items() if name != "kind"
    }
    with reading(folder.path / "model.json"):
        check_network_size(described, len(content))
    if module is None:
        with reading(folder.path / "model.json"):
            learner = network_from(described)
    else:
        made: Any = sized(module, len(schema.columns), schema.labels.count)
        learner = network_from(described, made)
    with reading(folder.path / "model.safetensors"):
        networks = networks_from(learner.shapes, content)
        models: Any = networks["models"]
        if models.ndim != 2 or networks.get("pooled", np.empty(0)).ndim != 1:
            raise InputError("there must be a network for every device.")
        pooled = networks["pooled"] if "pooled" in about else None
    if "mix_sizes" in arrays:
        with reading(folder.path / "model.npz"):
            models = mixtures_from(list(models), arrays)
    return {
        "learner": learner,
        "models": models,
        "pooled": pooled,
        "estimator": _as_estimator(described, module, learner),
    }


def _read_numbers(
    schema: TableSchema,
    about: Mapping[str, Any],
    arrays: Mapping[str, Any],
    models: int,
) -> dict[str, Any]:
    """What a run knows beside its models."""
    devices = len(about["devices"])
    columns = len(schema.columns)
    if models != devices:
        raise InputError(
            f"the run's models are of {models} devices, where there are {devices}."
        )
    sizes = {"devices": devices, "columns": columns}
    pooled = None
    if "pooled" in about:
        pooled = units_from(about["pooled"], under("pooled_units_", arrays), **sizes)
    return {
        "units": units_from(about["units"], under("units_", arrays), **sizes),
        "pooled_units": pooled,
        "trust": trust_from(under("trust_", arrays), devices),
        "losses": losses_from(arrays["losses"], devices),
        "rows": counts_from(arrays["rows"], devices),
        "fallback": truths_from(arrays["fallback"], devices),
    }


def _adopter(adopter: Any) -> Any:
    """An adopter in plain words; those of the user's own are kept by name only."""
    if adopter is None:
        return None
    if type(adopter).__name__ in _ADOPTERS and dataclasses.is_dataclass(adopter):
        settings = dataclasses.asdict(adopter)  # type: ignore[arg-type]
        return {"kind": type(adopter).__name__} | settings
    return {"kind": repr(adopter)}


def _adopter_from(described: Any) -> Any:
    from persfl import adopters

    if described is None or described["kind"] not in _ADOPTERS:
        return None
    settings = {name: value for name, value in described.items() if name != "kind"}
    return getattr(adopters, described["kind"])(**settings)


def _settings(fitted: Fitted) -> dict[str, Any]:
    """What was asked, by name; points and adopters are kept elsewhere or not at all."""
    own = {
        field.name: getattr(fitted.settings, field.name)
        for field in dataclasses.fields(fitted.settings)
    }
    of_method = fitted.method.get_params()
    twice = sorted(own.keys() & of_method)
    if twice:
        raise InputError(
            f"a run folder cannot keep {twice[0]!r} of method {fitted.method.name!r}: fits have a"
            " setting of that name. Give it another."
        )
    asked = own | of_method
    for apart in ("seed", "public", "adopter"):
        asked.pop(apart, None)
    kept = {name: _plain(name, value) for name, value in asked.items()}
    return kept | {
        "device": fitted.schema.device,
        "impute": fitted.schema.impute,
        "method": fitted.method.name,
        "random_state": fitted.settings.seed,
    }


def _plain(name: str, value: Any) -> Any:
    """A setting as JSON has it; numbers of NumPy are what grids of settings hold."""
    found = value.item() if isinstance(value, np.generic) else value
    if not is_plain(found):
        raise InputError(
            f"a run folder keeps settings that are numbers or texts. Got {name}={value!r}."
        )
    return found


def _as_estimator(described: Mapping[str, Any], module: Any, learner: Any) -> Any:
    """What the user would hand in to train the same again."""
    if module is not None or described["mlp"] is None:
        return module
    return learner.make.func
