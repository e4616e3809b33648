"""From what a user calls an estimator to a learner: linear, scikit-learn, torch or our own."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from persfl.errors import InputError
from persfl.learners.estimator import Estimator
from persfl.learners.linear import Linear
from persfl.learners.network import Network
from persfl.traits import is_learner, traits_of

if TYPE_CHECKING:
    from persfl.types import Learner


def learner_for(
    estimator: object, classes: int = 0, features: int = 1, seed: int = 0
) -> Learner:
    """The model family for so many features and classes (0: numbers).

    >>> learner_for(None).kind, learner_for(None, classes=2).kind
    ('squared', 'logistic')
    """
    from sklearn.base import BaseEstimator

    if estimator is None:
        return _linear(classes)
    if is_learner(estimator):
        return _own(estimator, classes, features)
    if _is_module(estimator):
        return _network(partial(copy.deepcopy, estimator), classes, features, seed)
    if isinstance(estimator, BaseEstimator):
        learner = Estimator(estimator)
        if (learner.kind in ("log", "error")) != bool(classes):
            want = "classifier" if classes else "regressor"
            raise InputError(
                f"{_front(classes)} needs a {want} as its estimator. Got"
                f" {type(estimator).__name__}."
            )
        return learner
    if callable(estimator) and not _is_class_of_estimators(estimator):
        return _network(sized(estimator, features, classes), classes, features, seed)
    raise InputError(
        "estimator must be None (linear), a scikit-learn estimator, a torch module, a function"
        " of (features, outputs) that makes one, such as MLP(), or a persfl learner such as"
        f" Linear('huber'). Got {estimator!r}."
    )


def _front(classes: int) -> str:
    """Whom the user has called."""
    return "PersonalizedClassifier" if classes else "PersonalizedRegressor"


def _linear(classes: int) -> Linear:
    if not classes:
        return Linear("squared", intercept=True)
    if classes == 2:
        return Linear("logistic", intercept=True)
    return Linear("multinomial", classes=classes, intercept=True)


def _own(learner: Learner, classes: int, features: int) -> Learner:
    """A learner that was handed in, if its loss suits the labels."""
    traits = traits_of(learner)
    if (traits.task == "classes") != bool(classes) and traits.loss != "own":
        want = "classes" if classes else "numbers"
        raise InputError(
            f"{_front(classes)} needs a learner with a loss for {want}. Got {learner!r}."
        )
    if traits.loss == "own" and classes:
        raise InputError(
            "a loss of your own has no chances of classes: use loss='cross_entropy'. Got"
            f" {learner!r}."
        )
    if isinstance(learner, Network) and traits.loss == "cross_entropy":
        return _fitting(learner, classes, features)
    return learner


def _network(
    make: Callable[[], object], classes: int, features: int, seed: int
) -> Network:
    loss = "cross_entropy" if classes else "squared"
    return _fitting(Network(make, loss=loss, seed=seed), classes, features)


def _fitting(learner: Network, classes: int, features: int) -> Network:
    """The network, if it has an output for every class or number."""
    width = learner.width_of_output(features)
    wanted = classes or 1
    if width != wanted:
        what = f"{wanted} classes" if classes else "a number"
        raise InputError(
            f"the module must give {wanted} output{'s' * (wanted > 1)} a row, for {what}. It"
            f" gives {width}."
        )
    return learner


def _is_module(estimator: object) -> bool:
    """Whether this is a torch module, without importing torch to find out."""
    return not isinstance(estimator, type) and any(
        kind.__module__ == "torch.nn.modules.module" for kind in type(estimator).__mro__
    )


def _is_class_of_estimators(estimator: object) -> bool:
    from sklearn.base import BaseEstimator

    return isinstance(estimator, type) and issubclass(estimator, BaseEstimator)


def sized(
    make: Callable[..., object], features: int, classes: int
) -> Callable[[], object]:
    """A function of (features, outputs) that makes a module, made a function of nothing."""
    return partial(make, features, classes or 1) if takes_sizes(make) else make


def takes_sizes(make: object) -> bool:
    """Whether this makes a module for so many features and outputs, or always the same one.

    >>> takes_sizes(lambda features, outputs: None), takes_sizes(lambda: None)
    (True, False)
    """
    if not callable(make) or _is_module(make):
        return False
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return False
    places = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    return (
        len([p for p in parameters if p.default is p.empty and p.kind in places]) == 2
    )
