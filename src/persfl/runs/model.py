"""A fitted model as the files of a run; `persfl.runs.model_reader` reads them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from persfl.errors import InputError
from persfl.fitting.families import learner_for
from persfl.fitting.fitted import Fitted, HasFitted, fitted_of
from persfl.learners.estimator import Estimator
from persfl.learners.near_rows import NearRows
from persfl.learners.network import Network
from persfl.learners.storage.family_table import learner_to, models_to
from persfl.learners.storage.mix_arrays import mixtures_to
from persfl.learners.storage.named_arrays import prefixed
from persfl.learners.storage.near_arrays import near_to
from persfl.learners.storage.network_files import networks_to
from persfl.learners.storage.units_arrays import units_to
from persfl.methods import METHODS, Method, method_of
from persfl.runs.model_checks import PARTS, check_classes, is_plain
from persfl.runs.moment_words import moments_to
from persfl.runs.removal_words import removal_to
from persfl.runs.run_folder import Folder
from persfl.traits import is_learner


def refuse_unkept(model: Any) -> None:
    """Stop where a run folder could not keep the models of an estimator, before any are fitted.

    >>> from persfl import PersonalizedRegressor
    >>> from sklearn.svm import SVR
    >>> refuse_unkept(PersonalizedRegressor(SVR()))
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: models of SVR cannot be kept in a run folder. ...
    """
    from sklearn.base import BaseEstimator

    from persfl.learners.storage.estimator_words import estimator_to

    method = method_of(model.method)
    _refuse_unlisted(method)
    for name, value in method.get_params().items():
        if name not in PARTS:  # kept in words of their own
            _plain(name, value)
    base = model.estimator
    if isinstance(base, Estimator):  # a learner around one
        base = base.estimator
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
        if isinstance(models, NearRows):
            networks["models"] = models.vectors
            arrays |= near_to(models)
        elif not isinstance(models, np.ndarray):
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
        if worth.moments is not None:
            words["worth"]["moments"] = moments_to(worth.moments)
    if fitted.depends is not None:
        words["removal"] = removal_to(fitted.depends)
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
        **_parts(fitted.method),
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
    >>> from persfl.runs import load_model
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


def _parts(method: Method) -> dict[str, Any]:
    """The adopter and the sampler in plain words; those of the user's own are kept by name only."""
    given = method.get_params()
    return {name: _part(given.get(name), known) for name, known in PARTS.items()}


def _part(part: Any, known: Collection[str]) -> Any:
    if part is None:
        return None
    if type(part).__name__ in known and dataclasses.is_dataclass(part):
        settings = dataclasses.asdict(part)  # type: ignore[arg-type]
        return {"kind": type(part).__name__} | settings
    return {"kind": repr(part)}


def _settings(fitted: Fitted) -> dict[str, Any]:
    """What was asked, by name; points and parts are kept elsewhere or not at all."""
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
    for apart in ("seed", "public", *PARTS):
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
