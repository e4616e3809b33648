"""`PersonalizedRegressor` for numbers, `PersonalizedClassifier` for classes, and what else goes
through them: a result from elsewhere, a trial, a table.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score

from persfl.errors import InputError
from persfl.estimators.base import ASKED_FOR, Asked, Personalized
from persfl.estimators.dataset_fit import fitted_table, table_says
from persfl.fitting.fit import judge_fleet
from persfl.fitting.judging import Rivals
from persfl.methods import Method, method_of
from persfl.scale.dataset import ParquetDataset

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd

    from persfl.evaluation.verdicts import Worth
    from persfl.fitting.fitted import Fitted
    from persfl.fitting.schema import Ids, Table, Weights
    from persfl.scale.executor import Executor
    from persfl.tracking.callbacks import Listener
    from persfl.training.state import Keep
    from persfl.types import Array


class PersonalizedRegressor(RegressorMixin, Personalized):  # type: ignore[misc]
    """A regression model for every device, learned from own rows and from peers who really help.

    Parameters
    ----------
    estimator : what a model is. None: linear; peers answer by refits or gradient steps (Algorithm
        1). A scikit-learn regressor that takes sample weights: by refits on private rows plus
        public points (Algorithm 2). A `torch.nn.Module` for one row of the table, all devices
        starting from its weights, or a function of (features, outputs) that makes one, such as
        `persfl.learners.MLP()`: by gradient steps. Or a persfl learner, such as `Linear("huber",
        intercept=True)`.
    device : the column of X that says whose row it is, instead of `devices=` in every call.
    method : how models are made: a name, or a method of `persfl.methods` with its settings, such as
        `Blend(trees=False)` or `Paper(peers=5, rounds=50)`. "blend", the default: mix what own
        rows, the fleet and neighbours offer, by the evidence of rows hidden from the offers
        (docs/blend.md). "paper": Algorithm 1 or 2 as printed. "kin": find out who answers from the
        same truth, learn from all of those, then stop asking (docs/kin.md). "own", "pooled",
        "fine-tuned", "clustered", "fedavg", "fedavg+fine-tuning", "ditto", "ifca": what they are
        compared with. `persfl methods` lists all of them; `set_params(method__trees=False)` reaches
        their settings, and so does a grid search.
    units : "shared" (fleet mean and spread per column), "centred" (about each device's own means),
        "raw", or "auto": shared for models that take steps, raw for others. See `persfl.units` for
        what each reveals. Blend looks at shared and centred units itself.
    public : points for Algorithm 2: an array or table with X's columns, or how many to make up from
        the fleet's means and spreads.
    holdout : share of each device's rows held back in a trial run to answer "is it worth it?"
        (`worth_`); 0 skips it.
    trials : how many times to do that, with other rows held back; "auto" is until nearly every row
        was, where that takes a moment, else 1.
    fallback : keep a device's own model where the evidence of the whole fleet says that it is the
        better one.
    unseen : "pooled" predicts devices that were not there when fitting by one model for all, with a
        warning (`persfl.errors.UnseenWarning`); "error" refuses them.
    impute : fill missing values with each column's mean (texts: most frequent) instead of refusing
        them.
    window : for `partial_fit`: how many rows each device keeps; None is all of them.
    ordered : whether a device's rows come in the order of time. Then the latest are held back, and
        offers are judged by what came later.
    time : the column of the table (of `aside`, or of X, where it is then no feature) that says when
        each row was, or an array as long as the rows: numbers, or dates such as 2024-05-31. Rows
        are put in that order, `ordered` follows from it, and what is held back is held back at all
        devices from the same moment on.
    blocks : the column, or an array, whose equal entries are hidden together at all devices at
        once: dates whose rows hang together, batches, weeks.
    gap : how much before the rows held back is not learned from: in the units of `time` ("7D" where
        it holds dates), or in rows.
    horizon : how far ahead is judged, likewise; None is as far as there are rows.
    compute : where gradient steps are computed, as torch names it: "cuda" for a GPU, "cpu"; None is
        this processor, without torch where the models are linear. For networks, and for methods
        that ask a fleet round by round.
    precision : of networks' products on a GPU: "float32" is exact, "tf32" rounds what goes into
        them to 10 binary digits, "bf16" computes the module with 8.
    memory : how many GiB the devices of a network that are computed at once may take; None is a
        share of what is free.
    n_jobs : parallel processes for refits.
    random_state : the same number gives the same result; None draws one.

    Attributes
    ----------
    devices_ : ids, in the order of all that follows.
    models_ : one model per device, in the units of the run.
    fitted_ : all of this as one value, see `persfl.fitting.Fitted`.
    method_ : the name of the method that ran; "own" where there is one device.
    helpers_ : who helps whom, a DataFrame.
    worth_ : errors on rows held back, see `persfl.evaluation.verdicts.Worth`; None without any.
    notes_ : what a person should know about this fit, in sentences; the first says by which method.
    losses_ : (rounds, devices) own losses at the start of every round.
    fallback_ : which devices keep their own model.
    step_size_ : the step size in the end.
    n_rounds_ : how many rounds there were.
    rows_ : rows per device.
    units_, learner_, trust_ : the parts underneath.
    progress_ : errors before learning, of `partial_fit`.
    table_ : after a fit of a `ParquetDataset`, instead of all of these: the table of models, see
        `persfl.scale.model_table.ModelTable`.

    >>> from persfl.datasets import load_housing
    >>> housing = load_housing()
    >>> few = housing.frame.groupby("city").head(12)
    >>> model = PersonalizedRegressor(holdout=0).fit(
    ...     few[housing.feature_names], few["log_price"], devices=few["city"]
    ... )
    >>> (
    ...     model.method_,
    ...     model.predict(few[housing.feature_names][:2], devices=few["city"][:2])
    ...     .round(1)
    ...     .tolist(),
    ... )
    ('blend', [11.1, 11.1])
    >>> list(model.helpers_.columns)
    ['device', 'peer', 'asked', 'adopted', 'share', 'reward_mean', 'reward_low', 'reward_high',
    'alike', 'verdict']
    """

    numeric = True

    def fit(
        self,
        X: Table | ParquetDataset,
        y: ArrayLike | None = None,
        devices: Ids = None,
        sample_weight: Weights = None,
        keep: Keep | None = None,
        aside: pd.DataFrame | None = None,
        callbacks: Sequence[Listener] = (),
        engine: str | Executor = "processes",
        out: str | Path | None = None,
    ) -> Self:
        """Learn a model for every device, as `PersonalizedClassifier.fit`.

        X may also be a `persfl.scale.ParquetDataset`, a folder that is larger than memory maybe.
        Then `engine` computes with `n_jobs` workers, and models are a table in the folder `out`:
        `table_` answers from it, and so does `predict` (docs/scale.md).
        """
        self.__dict__.pop("table_", None)
        if isinstance(X, ParquetDataset):
            self.table_ = fitted_table(self, X, engine, out)
            return self
        if y is None:
            raise InputError("fit requires y to be passed, but the target y is None.")
        return super().fit(X, y, devices, sample_weight, keep, aside, callbacks)

    def predict(self, X: Table, devices: Ids = None) -> Array:
        """(rows,) each row's label by its own device's model."""
        if "table_" in vars(self):
            return table_says(self.table_, X, devices)
        return self._responses(X, devices)

    def score(
        self,
        X: Table,
        y: ArrayLike,
        devices: Ids = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """R squared over all rows."""
        predicted = self.predict(X, devices=devices)
        return float(r2_score(y, predicted, sample_weight=sample_weight))


class PersonalizedClassifier(ClassifierMixin, Personalized):  # type: ignore[misc]
    """A classifier for every device, learned from own rows and from peers who really help.

    Parameters and attributes are those of `PersonalizedRegressor`; the default model is logistic
    (two classes) or multinomial regression, and `classes_` are the labels in order. A device need
    not have rows of every class.

    >>> from persfl.datasets import load_flights
    >>> flights = load_flights()
    >>> X, y, where = flights.data, flights.target, flights.devices
    >>> from persfl.methods import Paper
    >>> model = PersonalizedClassifier(method=Paper(rounds=30), holdout=0)
    >>> model = model.fit(X, y, devices=where)
    >>> model.predict_proba(X[:1], devices=where[:1]).shape
    (1, 3)
    >>> bool(model.score(X, y, devices=where) > 0.6)
    True
    """

    numeric = False
    __metadata_request__predict_proba = ASKED_FOR

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, in order."""
        classes = self.fitted_.schema.labels.classes
        assert classes is not None  # a classifier's labels have some
        return classes

    def predict(self, X: Table, devices: Ids = None) -> NDArray[Any]:
        """(rows,) the likeliest class of each row by its own device's model."""
        chances = self._responses(X, devices)
        return np.asarray(self.classes_[chances.argmax(axis=1)])

    def predict_proba(self, X: Table, devices: Ids = None) -> Array:
        """(rows, classes) the chance of each class, in the order of `classes_`."""
        return self._responses(X, devices)

    def score(
        self,
        X: Table,
        y: ArrayLike,
        devices: Ids = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """The share of right labels over all rows."""
        predicted = self.predict(X, devices=devices)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))


def estimator_of(
    fitted: Fitted, estimator: object = None
) -> PersonalizedRegressor | PersonalizedClassifier:
    """The fitted estimator that shows this result; `estimator` is what its models were made of."""
    kind = PersonalizedClassifier if fitted.classes else PersonalizedRegressor
    apart = ("seed", "public")  # by another name; in the units of the run
    settings = {
        field.name: getattr(fitted.settings, field.name)
        for field in fields(fitted.settings)
        if field.name not in apart
    }
    schema = fitted.schema
    model = kind(
        estimator,
        device=schema.device,
        method=_named(fitted.method),
        impute=schema.impute,
        random_state=fitted.settings.seed,
        **settings,
    )
    model.fitted_ = fitted
    # scikit-learn's own names of the columns, by which it checks tables
    model.n_features_in_ = schema.features
    if schema.names is not None:
        model.feature_names_in_ = np.array(schema.names, dtype=object)
    return model


def _named(method: Method) -> str | Method:
    """A method by its name, where all its settings are the usual ones."""
    return method.name if method == method_of(method.name) else method


def judge_table(
    model: Personalized,
    X: Table,
    y: ArrayLike,
    devices: Ids = None,
    sample_weight: Weights = None,
    *,
    aside: pd.DataFrame | None = None,
    keep: Keep | None = None,
    rivals: Rivals | None = None,
) -> Worth | None:
    """The trial of a fit with these settings: errors on rows held back, of `rivals` too.

    None where there is nobody to compare with.
    """
    asked = model._asked(X, y, devices, sample_weight, aside=aside)
    return judge_fleet(*asked[:-1], keep=keep, rivals=rivals)


def rows_by_device(
    model: Personalized,
    X: Table,
    y: ArrayLike,
    devices: Ids = None,
    sample_weight: Weights = None,
    *,
    aside: pd.DataFrame | None = None,
) -> Asked:
    """A table as this estimator would read it, checked."""
    asked = model._asked(X, y, devices, sample_weight, aside=aside)
    asked.rows.check(quiet=True)
    return asked
