"""The families of learners, and how each becomes plain data: one table for disk and wire.

family       learner in words                    models as arrays
linear       its loss and settings               vectors
network      its parts, shapes and settings      vectors
tree         its depth                           trees
estimator    its name and settings               plain arrays
any          how many classes                    plain arrays

Devices that mix several models: the models one after the other, and each device's shares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from persfl.checks import whole
from persfl.errors import InputError
from persfl.learners.any_family import ANY, AnyFamily
from persfl.learners.estimator import Estimator
from persfl.learners.fleet_mix import FleetMix
from persfl.learners.linear import Linear
from persfl.learners.near_rows import NearRows
from persfl.learners.network import Network
from persfl.learners.shared_trees import BoostedModels
from persfl.learners.storage.bank_arrays import BANKS, banks_from, banks_to
from persfl.learners.storage.boosted_arrays import BOOSTED, boosted_from, boosted_to
from persfl.learners.storage.mix_arrays import SIZES, mixtures_from, mixtures_to
from persfl.learners.storage.named_arrays import AnyArray, Arrays
from persfl.learners.storage.near_arrays import NEAR, near_from, near_to
from persfl.learners.storage.network_files import network_from, network_words
from persfl.learners.storage.own_arrays import TreeModels, Vectors
from persfl.learners.storage.plain_arrays import OLD_KEY, PlainModels
from persfl.learners.storage.tree_limits import deepest, most_trees
from persfl.learners.tree import Tree
from persfl.traits import has_gradients

if TYPE_CHECKING:
    from persfl.types import Learner, Model, Models

Words = Mapping[str, Any]


class ModelCodec(Protocol):
    """Models of one form as named arrays, and back with every number checked."""

    def holds(self, model: Model) -> bool:
        """Whether a model has this form."""

    def one_to(self, model: Model) -> dict[str, AnyArray]:
        """One model, for the wire."""

    def one_from(
        self, learner: Learner, arrays: Arrays, features: int, classes: int
    ) -> Model:
        """The inverse."""

    def many_to(self, models: Sequence[Model]) -> dict[str, AnyArray]:
        """The models of a fleet, for a run folder."""

    def many_from(
        self, arrays: Arrays, features: int | None, classes: int | None
    ) -> Any:
        """The inverse; where a number is not told, whoever uses the models must check."""

    def fits(self, learner: Learner, model: Model, features: int) -> bool:
        """Whether a model of a run folder is one of this learner's."""


VECTORS = Vectors()
TREES = TreeModels()
PLAIN = PlainModels(most_trees, deepest)


@dataclass(frozen=True)
class Family:
    """How learners of one family and their models become plain data, and back."""

    kind: str
    learner: type
    models: ModelCodec
    describe: Callable[[Any], dict[str, Any]]
    rebuild: Callable[[Words], Any]


def _linear_words(learner: Linear) -> dict[str, Any]:
    return {
        "loss": learner.kind,
        "intercept": learner.intercept,
        "l2": learner.l2,
        "delta": learner.delta,
        "classes": learner.classes if learner.kind == "multinomial" else None,
    }


def _estimator_words(learner: Estimator) -> dict[str, Any]:
    from persfl.learners.storage.estimator_words import estimator_to

    return {"loss": learner.kind, "family": estimator_to(learner.estimator)}


def _estimator_learner(words: Words) -> Estimator:
    from persfl.learners.storage.estimator_words import estimator_from

    return Estimator(estimator_from(words["family"]), loss=words["loss"])


FAMILY_TABLE = (
    Family("linear", Linear, VECTORS, _linear_words, lambda words: Linear(**words)),
    Family(
        "tree",
        Tree,
        TREES,
        lambda learner: {"max_depth": learner.max_depth},
        lambda words: Tree(**words),
    ),
    Family("network", Network, VECTORS, network_words, network_from),
    Family("estimator", Estimator, PLAIN, _estimator_words, _estimator_learner),
    Family(
        ANY,
        AnyFamily,
        PLAIN,
        lambda learner: {"classes": learner.classes},
        lambda words: AnyFamily(whole("classes", words["classes"], least=0)),
    ),
)


# Learners


def learner_to(learner: Learner) -> dict[str, Any]:
    """A learner in plain words.

    >>> learner_to(Tree(max_depth=2))
    {'kind': 'tree', 'max_depth': 2}
    """
    for family in FAMILY_TABLE:
        if isinstance(learner, family.learner):
            return {"kind": family.kind} | family.describe(learner)
    raise InputError(
        "a run folder can keep linear models, trees, networks and scikit-learn estimators. Got"
        f" {learner!r}."
    )


def learner_from(words: Words) -> Any:
    """The inverse of `learner_to`, for words that somebody else may have written.

    >>> learner_from({"kind": "tree", "max_depth": 2})
    Tree(max_depth=2)
    """
    rest = {name: value for name, value in words.items() if name != "kind"}
    for family in FAMILY_TABLE:
        if family.kind == words["kind"]:
            return family.rebuild(rest)
    raise InputError(f"there are no models of the kind {words['kind'][:80]!r}.")


# One model


def codec_of(learner: Learner) -> ModelCodec:
    """How the models of a learner become arrays; for learners of the user's own, by what they
    can do.
    """
    for family in FAMILY_TABLE:
        if isinstance(learner, family.learner):
            return family.models
    return VECTORS if has_gradients(learner) else PLAIN


def model_to(learner: Learner, model: Model) -> dict[str, AnyArray]:
    """A model of this learner as arrays."""
    return codec_of(learner).one_to(model)


def read_model(
    learner: Learner, arrays: Arrays, features: int, classes: int = 0
) -> Model:
    """The inverse of `model_to`, for arrays that somebody else sent; sizes of numbers are left to
    the caller.
    """
    return codec_of(learner).one_from(learner, arrays, features, classes)


# The models of a fleet


def models_to(models: Models) -> dict[str, AnyArray]:
    """The models of a fleet as named arrays.

    >>> import numpy as np
    >>> arrays = models_to([[(0.5, np.zeros(2)), (0.5, np.ones(2))]])
    >>> sorted(arrays), models_from(arrays)[0][1][1].tolist()
    (['mix_shares', 'mix_sizes', 'models'], [1.0, 1.0])
    """
    if isinstance(models, BoostedModels):
        return models_to(models.vectors) | boosted_to(models)
    if isinstance(models, FleetMix):
        return banks_to(models, models_to)
    if isinstance(models, NearRows):
        return models_to(models.vectors) | near_to(models)
    each = list(models)
    if any(isinstance(model, list) for model in each):
        parts, shares = mixtures_to(each)
        return models_to(parts) | shares
    known: tuple[ModelCodec, ...] = (VECTORS, TREES)
    for codec in known:
        if all(map(codec.holds, each)):
            return codec.many_to(each)
    return PLAIN.many_to(each)


def models_from(
    arrays: Arrays, *, features: int | None = None, classes: int | None = None
) -> Any:
    """The inverse of `models_to`, for arrays that somebody else may have written.

    Where the numbers of features and classes are not told, whoever uses the models must check.
    """
    if BANKS in arrays:
        return banks_from(arrays, features, classes, _some_from)
    if SIZES in arrays:
        rest = {name: array for name, array in arrays.items() if name != SIZES}
        parts = models_from(rest, features=features, classes=classes)
        return mixtures_from(parts, arrays)
    if BOOSTED in arrays:
        return boosted_from(
            VECTORS.many_from(arrays, features, classes), arrays, features, classes
        )
    if NEAR in arrays:
        return near_from(VECTORS.many_from(arrays, features, classes), arrays, classes)
    codec: ModelCodec = TREES
    if VECTORS.KEY in arrays:
        codec = VECTORS
    elif PLAIN.KEY in arrays or OLD_KEY in arrays:
        codec = PLAIN
    return codec.many_from(arrays, features, classes)


def _some_from(arrays: Arrays, features: int, classes: int | None) -> list[Model]:
    """Models of trees or of scikit-learn that stand inside others' arrays."""
    codec: ModelCodec = PLAIN if PLAIN.KEY in arrays else TREES
    return list(codec.many_from(arrays, features, classes))


def refuse_unfit(learner: Learner, models: Sequence[Model], features: int) -> None:
    """Stop where models are of another family or size than the learner's."""
    codec = codec_of(learner)
    if not all(codec.fits(learner, part, features) for part in each_model(models)):
        raise InputError(
            "the models must be of the run's family, and of its number of columns."
        )


def each_model(models: Sequence[Model]) -> list[Model]:
    """All models, those inside mixes too."""
    if isinstance(models, FleetMix):
        return models.every
    return mixtures_to(models)[0]
