"""Learners by name: what `--model` means on the command line and between machines."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier

from persfl.checks import one_of
from persfl.errors import InputError
from persfl.learners.estimator import Estimator
from persfl.learners.linear import Linear
from persfl.learners.tree import Tree

NAMES = ("linear", "ridge", "tree", "forest", "boosting", "network")


def base(model: str, *, classes: bool, **settings: Any) -> Any:
    """The base estimator of a model's name; None for linear models, which are learners of their own.

    >>> base("tree", classes=False)
    Tree(max_depth=3)
    """
    if model == "tree":
        return DecisionTreeClassifier(**{"max_depth": 3} | settings) if classes else Tree(**{"max_depth": 3} | settings)
    if model == "forest":
        forest = RandomForestClassifier if classes else RandomForestRegressor
        return forest(**{"n_estimators": 30, "max_depth": 6} | settings)
    if model == "boosting":
        boosting = GradientBoostingClassifier if classes else GradientBoostingRegressor
        return boosting(**{"n_estimators": 30, "max_depth": 3} | settings)
    if model == "ridge":
        return LogisticRegression(**settings) if classes else Ridge(**settings)
    return None


def learner_named(model: str, *, classes: int = 0, settings: Mapping[str, Any] | None = None) -> Any:
    """A learner from its name, the number of classes (0: a regression) and its settings.

    >>> learner_named("linear")
    Linear(kind='squared', intercept=True, l2=0.0, delta=1.0, classes=1)
    """
    one_of("model", model, NAMES)
    given = dict(settings or {})
    try:
        if model == "linear":
            loss = "squared" if not classes else "logistic" if classes == 2 else "multinomial"
            loss = given.pop("loss", loss)
            more = {"classes": classes} if loss == "multinomial" else {}
            return Linear(loss, **{"intercept": True} | given | more)
        if model == "network":
            from persfl.learners.network import Network

            loss = "cross_entropy" if classes else "squared"
            shape = given.pop("shape", None)
            options: dict[str, Any] = {"loss": loss, "shape": shape and tuple(shape)} | given
            return Network(factory(str(options.pop("make", ""))), **options)
        found = base(model, classes=bool(classes), **given)
        return found if isinstance(found, Tree) else Estimator(found)
    except TypeError as error:
        raise InputError(f"these settings do not fit model {model!r}: {error}.") from None


def factory(name: str) -> Callable[[], Any]:
    """The function `module:function` of an installed package that makes a fresh torch module."""
    module, _, what = name.partition(":")
    if not module or not what.isidentifier():
        raise InputError(f"a network is named as 'module:function'. Got {name!r}.")
    try:
        return getattr(importlib.import_module(module), what)  # type: ignore[no-any-return]
    except (ImportError, AttributeError):
        raise InputError(f"there is no network {name!r} here. Install the package that has it.") from None
