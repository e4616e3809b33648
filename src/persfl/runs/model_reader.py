"""The files of a run as a fitted model: the inverse of `persfl.runs.model`, for files that somebody
else may have written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from persfl import adopters, samplers
from persfl.encoding import Preparation
from persfl.errors import InputError
from persfl.fitting.cells import Labels, id_array
from persfl.fitting.families import sized
from persfl.fitting.fitted import Fitted
from persfl.fitting.row_columns import beside_of
from persfl.fitting.schema import TableSchema
from persfl.fitting.setup import FitSettings
from persfl.formats import reading
from persfl.learners.estimator import Estimator
from persfl.learners.near_rows import NearRows
from persfl.learners.storage.family_table import (
    learner_from,
    models_from,
    refuse_unfit,
)
from persfl.learners.storage.mix_arrays import mixtures_from
from persfl.learners.storage.named_arrays import under
from persfl.learners.storage.near_arrays import NEAR, near_from
from persfl.learners.storage.network_files import (
    check_network_size,
    network_from,
    networks_from,
)
from persfl.learners.storage.units_arrays import units_from
from persfl.methods import Method, method_of
from persfl.runs.model_checks import (
    PARTS,
    check_words,
    counts_from,
    losses_from,
    trust_from,
    truths_from,
    worth_from,
)
from persfl.runs.removal_words import removal_from
from persfl.runs.run_folder import Folder


def load_model(path: str | Path, *, module: Any = None) -> Any:
    """The fitted model of a finished run folder.

    `module` is what networks of the user's own were made of (a module, or a function that makes
    one), whose code is not in the folder. Without it all can be shown, but nothing predicted.
    """
    from persfl.estimators.personalized import estimator_of

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
    depends = None
    if "removal" in about:
        with reading(folder.path / "model.json"):
            depends = removal_from(about["removal"])
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
        depends=depends,
        **made,
        **numbers,
    )
    return fitted, estimator


def _schema(about: Mapping[str, Any]) -> TableSchema:
    """What a run knew of its table."""
    classes = np.array(about["classes"]) if "classes" in about else None
    names = about["names"]
    if names is not None and not names:
        raise InputError("a run must have at least one feature.")
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
        beside_of([about["settings"].get(key) for key in ("blocks", "time")], names),
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
    for part in PARTS:
        if part in known:
            settings[part] = _part_from(about.get(part), part)
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
    if isinstance(models, NearRows):
        models.check(learner, columns)
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
        estimator = learner.estimator if isinstance(learner, Estimator) else learner
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
    if NEAR in arrays:
        with reading(folder.path / "model.npz"):
            models = near_from(models, arrays, schema.labels.count)
            models.check(learner, len(schema.columns))
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


def _part_from(described: Any, part: str) -> Any:
    """An adopter or a sampler of persfl's; None for one that a folder has by name only."""
    if described is None or described["kind"] not in PARTS[part]:
        return None
    settings = {name: value for name, value in described.items() if name != "kind"}
    home = adopters if part == "adopter" else samplers
    return getattr(home, described["kind"])(**settings)


def _as_estimator(described: Mapping[str, Any], module: Any, learner: Any) -> Any:
    """What the user would hand in to train the same again."""
    if module is not None or described["mlp"] is None:
        return module
    return learner.make.func
