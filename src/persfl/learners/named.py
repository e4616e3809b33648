"""Learners by name: what `--model` means on the command line and between machines."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

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
from persfl.learners.any_family import ANY, AnyFamily
from persfl.learners.estimator import Estimator
from persfl.learners.linear import Linear
from persfl.learners.mlp import MLP
from persfl.learners.sklearn_api import check_settings
from persfl.learners.tree import Tree

if TYPE_CHECKING:
    from persfl.learners.network import Network

NAMES = ("linear", "mlp", "ridge", "tree", "forest", "boosting", "network", ANY)
WIDEST, DEEPEST = 4096, 8  # of a network that somebody else asks for
WEIGHTS = 2**23  # in all: a message holds no more
ESTIMATORS = 30  # trees of a forest or of boosting, where nothing is said


def base(model: str, *, classes: bool, **settings: Any) -> Any:
    """The base estimator of a model's name (for "mlp" what makes the module); None for linear
    models, learners of their own.

    >>> base("tree", classes=False)
    Tree(max_depth=3)
    """
    if model == "tree":
        tree = DecisionTreeClassifier if classes else Tree
        return tree(**{"max_depth": 3} | settings)
    if model == "forest":
        forest = RandomForestClassifier if classes else RandomForestRegressor
        return forest(**{"n_estimators": ESTIMATORS, "max_depth": 6} | settings)
    if model == "boosting":
        boosting = GradientBoostingClassifier if classes else GradientBoostingRegressor
        return boosting(**{"n_estimators": ESTIMATORS, "max_depth": 3} | settings)
    if model == "mlp":
        return mlp(settings)
    if model == "ridge":
        return LogisticRegression(**settings) if classes else Ridge(**settings)
    return None


def learner_named(
    model: str,
    *,
    features: int = 0,
    classes: int = 0,
    settings: Mapping[str, object] | None = None,
) -> Any:
    """A learner from its name, the numbers of features and classes (0: a regression) and its
    settings.

    >>> learner_named("linear")
    Linear(kind='squared', intercept=True, l2=0.0, delta=1.0, classes=1)
    """
    one_of("model", model, NAMES)
    given = dict(settings or {})
    try:
        if model == "linear":
            return _linear(classes, given)
        if model == "mlp":
            return _small_network(features, classes, given)
        if model == "network":
            return _network(classes, given)
        if model == ANY:
            return AnyFamily(classes)
        found = base(model, classes=bool(classes), **given)
        if isinstance(found, Tree):
            return found
        check_settings(found)
        return Estimator(found)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(
            f"these settings do not fit model {model!r}: {error}."
        ) from None


def _linear(classes: int, given: dict[str, Any]) -> Linear:
    usual = {0: "squared", 2: "logistic"}.get(classes, "multinomial")
    loss = given.pop("loss", usual)
    kinds = {"classes": classes} if loss == "multinomial" else {}
    return Linear(loss, **{"intercept": True} | given | kinds)


def _small_network(features: int, classes: int, given: dict[str, Any]) -> Network:
    from persfl.learners.network import Network

    net = mlp(given)
    widths = pairwise([features, *net.hidden, classes or 1])
    count = sum((here + 1) * there for here, there in widths)
    if count > WEIGHTS:
        raise InputError(
            f"a network between machines has at most {WEIGHTS} weights. Got {count}."
        )
    more = {name: value for name, value in given.items() if name not in _WIDTHS}
    options: dict[str, Any] = {"loss": _network_loss(classes)} | more
    return Network(partial(net, features, classes or 1), **options)


def _network(classes: int, given: dict[str, Any]) -> Network:
    from persfl.learners.network import Network

    shape = given.pop("shape", None)
    options: dict[str, Any] = {"loss": _network_loss(classes)} | given
    options["shape"] = shape and tuple(shape)
    return Network(factory(str(options.pop("make", ""))), **options)


def _network_loss(classes: int) -> str:
    return "cross_entropy" if classes else "squared"


_WIDTHS = ("hidden", "activation")


def mlp(settings: Mapping[str, Any]) -> MLP:
    """Persfl's own network; bounded, since the widths may be somebody else's wish.

    >>> mlp({"hidden": [16], "activation": "tanh"})
    MLP(hidden=(16,), activation='tanh')
    """
    made = MLP(**{name: settings[name] for name in _WIDTHS if name in settings})
    if len(made.hidden) > DEEPEST or any(width > WIDEST for width in made.hidden):
        raise InputError(
            f"a network between machines has at most {DEEPEST} layers of {WIDEST} units. Got"
            f" {made.hidden}."
        )
    return made


def factory(name: str) -> Callable[[], Any]:
    """The function `module:function` of an installed package that makes a fresh torch module."""
    module, _, what = name.partition(":")
    if not module or not what.isidentifier():
        raise InputError(f"a network is named as 'module:function'. Got {name!r}.")
    try:
        return getattr(importlib.import_module(module), what)  # type: ignore[no-any-return]
    except (ImportError, AttributeError):
        raise InputError(
            f"there is no network {name!r} here. Install the package that has it."
        ) from None
