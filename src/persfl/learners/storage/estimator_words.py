"""An unfitted scikit-learn estimator as plain words: the name of its family and its settings.

Names are looked up in one list of families (`persfl.learners.plain_families.FAMILIES`). A name that
is not in it, wherever it came from, is never imported, called or made.

>>> from sklearn.linear_model import Ridge
>>> estimator_from(estimator_to(Ridge(alpha=2.0)))
Ridge(alpha=2.0)
>>> estimator_from({"name": "subprocess.Popen", "settings": {"args": "ls"}})
Traceback (most recent call last):
...
persfl.errors.InputError: there is no family of models 'subprocess.Popen'.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from persfl.errors import InputError
from persfl.learners.plain_families import FAMILIES, refuse_others

_PIPELINE = Pipeline.__name__
_NAMED = {family.__name__: family for family in (*FAMILIES, StandardScaler)}
_WHERE = "cannot be kept in a run folder"


def estimator_to(estimator: BaseEstimator) -> dict[str, Any]:
    """An estimator in plain words."""
    refuse_others(estimator, where=_WHERE)
    if isinstance(estimator, Pipeline):
        steps = [[name, _words(step)] for name, step in estimator.steps]
        return {"name": _PIPELINE, "steps": steps}
    return _words(estimator)


def _words(estimator: BaseEstimator) -> dict[str, Any]:
    name = type(estimator).__name__
    settings = {}
    for key, value in estimator.get_params(deep=False).items():
        if key == "random_state" and not isinstance(value, Integral):
            continue  # each fit gets its own named randomness
        settings[key] = _plain(value, f"{key} of {name}")
    return {"name": name, "settings": settings}


def _plain(value: object, where: str) -> Any:
    """The same in the types that JSON knows."""
    if isinstance(value, (np.ndarray, np.bool_)):
        value = value.tolist()
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item, where) for item in value]
    raise InputError(
        f"a run folder keeps numbers and texts as settings. Got {value!r} as {where}."
    )


def estimator_from(words: object) -> BaseEstimator:
    """The inverse of `estimator_to`, for words that somebody else may have written."""
    if isinstance(words, Mapping) and words.get("name") == _PIPELINE:
        made = _pipeline(words.get("steps"))
    else:
        made = _made(words)
    if isinstance(made, StandardScaler):
        raise InputError("a StandardScaler alone is no family of models.")
    refuse_others(made, where=_WHERE)
    return made


def _pipeline(steps: object) -> Pipeline:
    if not isinstance(steps, list) or len(steps) != 2:
        raise InputError("a Pipeline must have two steps.")
    named = [(name, _made(step)) for name, step in steps]
    if not all(isinstance(name, str) and name for name, _ in named):
        raise InputError("the steps of a Pipeline must have names.")
    return Pipeline(named)


def _made(words: object) -> BaseEstimator:
    if not isinstance(words, Mapping) or not isinstance(words.get("name"), str):
        raise InputError("a family of models must have a name.")
    family = _NAMED.get(words["name"])
    if family is None:
        raise InputError(f"there is no family of models {words['name'][:80]!r}.")
    settings = words.get("settings")
    if not isinstance(settings, Mapping) or not all(map(_is_plain, settings.values())):
        raise InputError(f"the settings of {words['name']} must be numbers or texts.")
    # A version of scikit-learn with other settings than the one that wrote them goes by its own.
    known = family().get_params(deep=False)
    return family(**{key: value for key, value in settings.items() if key in known})


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))
