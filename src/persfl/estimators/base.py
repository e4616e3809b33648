"""What the regressor and the classifier share: parameters, reading tables, publishing a fit."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from persfl.devices import Devices
from persfl.errors import InputError, NoDevicesWarning, warn
from persfl.estimators.lost_devices import refuse_lost_devices
from persfl.estimators.parameters import FromFit, names_methods, refuse_moved
from persfl.evaluation.row_order import RowOrder
from persfl.evaluation.verdicts import Worth
from persfl.fitting.arrivals import Arrivals, first_arrivals, more_arrivals, online
from persfl.fitting.cells import Labels, one_each, row_weights
from persfl.fitting.date_columns import DateColumn
from persfl.fitting.families import learner_for
from persfl.fitting.fit import fit_fleet
from persfl.fitting.row_columns import Key, OrderWords, Span
from persfl.fitting.schema import Ids, Table, TableSchema, Weights, learn_table
from persfl.fitting.setup import FitSettings, Models
from persfl.methods import Method, method_of
from persfl.tracking.callbacks import Listener, Told
from persfl.training.state import Forget
from persfl.traits import has_gradients
from persfl.trust import Trust
from persfl.types import Array, IntArray, Learner, Model
from persfl.units import Units

if TYPE_CHECKING:
    from persfl.evaluation.dependence import Contributions, Removal
    from persfl.fitting.fitted import Fitted
    from persfl.training.state import Keep


# what an estimator wants of scikit-learn's metadata routing unless the user says otherwise
ASKED_FOR = {"devices": True}


class Asked(NamedTuple):
    """What `fit_fleet` takes: rows, method, model family, settings, table, what repeats in the
    rows, and columns that look like it.
    """

    rows: Devices
    method: Method
    learner: Learner
    settings: FitSettings
    schema: TableSchema
    order: RowOrder
    dates: Sequence[DateColumn]


class Personalized(BaseEstimator):  # type: ignore[misc]
    """A facade over `persfl.fitting`: it stores parameters, reads tables, shows what came out."""

    # with scikit-learn's metadata routing, `devices` goes wherever it is handed in
    __metadata_request__fit = ASKED_FOR
    __metadata_request__partial_fit = ASKED_FOR
    __metadata_request__predict = ASKED_FOR
    __metadata_request__score = ASKED_FOR

    numeric: ClassVar[bool]
    """Whether labels are numbers; otherwise they are classes."""
    fitted_: Fitted
    _arrivals: Arrivals

    @names_methods
    def __init__(
        self,
        estimator: object = None,
        *,
        device: str | None = None,
        method: str | Method = "blend",
        units: str = "auto",
        public: Table | int | None = None,
        holdout: float = 0.25,
        trials: int | str = "auto",
        fallback: bool = False,
        unseen: str = "pooled",
        impute: bool = False,
        window: int | None = None,
        ordered: bool = False,
        blocks: Key = None,
        time: Key = None,
        gap: Span = None,
        horizon: Span = None,
        compute: str | None = None,
        precision: str = "float32",
        memory: float | None = None,
        n_jobs: int | None = 1,
        random_state: int | RandomState | None = 0,
    ) -> None:
        self.estimator = estimator
        self.device = device
        self.method = method
        self.units = units
        self.public = public
        self.holdout = holdout
        self.trials = trials
        self.fallback = fallback
        self.unseen = unseen
        self.impute = impute
        self.window = window
        self.ordered = ordered
        self.blocks = blocks
        self.time = time
        self.gap = gap
        self.horizon = horizon
        self.compute = compute
        self.precision = precision
        self.memory = memory
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_clone__(self) -> Self:
        """As scikit-learn clones. It does so before the folds of a search, which may lose
        `devices` later on: then is the time to say it.
        """
        refuse_lost_devices()
        found: Self = super().__sklearn_clone__()
        return found

    def set_params(self, **params: object) -> Self:
        """Change parameters; `method__budget=300` changes a setting of the method.

        A method is a value, so another one takes its place.
        """
        refuse_moved(type(self).__name__, params)
        inside = {k: v for k, v in params.items() if k.startswith("method__")}
        super().set_params(**{k: v for k, v in params.items() if k not in inside})
        if inside:
            named = {k.removeprefix("method__"): v for k, v in inside.items()}
            self.method = method_of(self.method, **named)
        return self

    # What a fit leaves: `fitted_`, and its parts under scikit-learn's names.

    devices_ = FromFit[NDArray[Any]]("devices")
    rows_ = FromFit[IntArray]("rows")
    method_ = FromFit[str]("ran")
    learner_ = FromFit[Learner]("learner")
    units_ = FromFit[Units]("units")
    models_ = FromFit[Models]("models")
    trust_ = FromFit[Trust]("trust")
    losses_ = FromFit[Array]("losses")
    step_size_ = FromFit[float]("step_size")
    n_rounds_ = FromFit[int]("rounds")
    worth_ = FromFit[Worth | None]("worth")
    fallback_ = FromFit[NDArray[np.bool_]]("fallback")
    pooled_ = FromFit[Model]("pooled")
    public_ = FromFit[Array | None]("public")

    @property
    def notes_(self) -> list[str]:
        """What a person should know about this fit, in sentences."""
        return list(self.fitted_.notes)

    @property
    def n_columns_(self) -> int:
        """How many numbers a row has once categories are encoded."""
        return len(self.fitted_.units.mean)

    @property
    def progress_(self) -> pd.DataFrame:
        """Errors before learning, of `partial_fit`."""
        return self._arrivals.progress

    @property
    def helpers_(self) -> pd.DataFrame:
        """Who helps whom, most adopted first: device, peer, asked, adopted, share, reward mean and
        interval; `alike`, the chance that the peer is like the device; the verdict.
        """
        return self._result().helpers()

    def removal(
        self,
        X: Table,
        y: ArrayLike,
        devices: Ids = None,
        sample_weight: Weights = None,
        *,
        many: int = 10,
        targets: int = 12,
        aside: pd.DataFrame | None = None,
    ) -> Removal:
        """Does a device's model depend on its helpers? The fleet of these rows, those of the fit,
        is fitted again without the `many` devices named for a target and without as many random
        ones, for a sample of `targets`: what errors on unseen rows rise by. `aside` as for `fit`.
        """
        found = self._result()
        rows, order = self._rows_again(X, y, devices, sample_weight, aside)
        return found.removal(rows, order, many=many, targets=targets)

    def contributions(
        self,
        X: Table,
        y: ArrayLike,
        devices: Ids = None,
        sample_weight: Weights = None,
        *,
        refits: int = 60,
        aside: pd.DataFrame | None = None,
    ) -> Contributions:
        """Who helps the others most? The fleet of these rows, those of the fit, is fitted again
        without each device in turn (`refits` at most): what the others' errors on unseen rows rise
        by. `aside` as for `fit`.
        """
        found = self._result()
        rows, order = self._rows_again(X, y, devices, sample_weight, aside)
        return found.contributions(rows, order, refits=refits)

    def _rows_again(
        self,
        X: Table,
        y: ArrayLike,
        devices: Ids,
        sample_weight: Weights,
        aside: pd.DataFrame | None,
    ) -> tuple[Devices, RowOrder]:
        """Rows as the fit read them, and what was said of their order."""
        schema = self.fitted_.schema
        return schema.rows(self, X, y, devices, sample_weight, self._words(), aside)

    def made_of(self) -> pd.DataFrame:
        """What each device's model is made of, in shares.

        After method="blend": models that started from own rows alone, from the fleet, from
        neighbours (`helpers_` names them). After method="kin" with steps: how many kin, own share
        and theirs, whether it is sure.
        """
        return self._result().made_of()

    def coefficients(self) -> pd.DataFrame:
        """Every device's coefficients in the table's own units (linear models in shared or raw
        units).
        """
        return self._result().coefficients()

    def _html_repr(self) -> str:
        """What a notebook shows: scikit-learn's diagram, and below it what a fit came to."""
        found = "" if "fitted_" not in vars(self) else self.fitted_._repr_html_()
        return f"{super()._html_repr()}{found}"

    # Fitting

    def fit(
        self,
        X: Table,
        y: ArrayLike,
        devices: Ids = None,
        sample_weight: Weights = None,
        keep: Keep | None = None,
        aside: pd.DataFrame | None = None,
        callbacks: Sequence[Listener] = (),
    ) -> Self:
        """Learn a model for every device.

        `devices` says for each row whose it is, or names the column of X that does (`device` names
        it for all calls); without either, all rows are one device's, this is a plain fit, and a
        warning says so.
        `keep` writes down every round, so that a fit that was cut can go on (`persfl.runs.Folder`).
        `aside` are columns of the same rows that are no features: `blocks` and `time` may name
        them, and dates are looked for in them.
        `callbacks` are told every round and the end: objects of `persfl.tracking.Callback`, such as
        `TensorBoard("curves")`, or functions of a `Round`.
        """
        self._warn_nobody_named(devices)
        told = Told(keep or Forget(), callbacks)
        for old in ("_arrivals", "fitted_"):
            self.__dict__.pop(old, None)
        asked = self._asked(X, y, devices, sample_weight, aside=aside)
        self.fitted_ = fit_fleet(*asked, keep=told)
        told.done(self.fitted_)
        return self

    def partial_fit(
        self,
        X: Table,
        y: ArrayLike,
        devices: Ids = None,
        sample_weight: Weights = None,
        classes: ArrayLike | None = None,
        aside: pd.DataFrame | None = None,
    ) -> Self:
        """New rows have arrived: every device keeps its last `window` rows (all, if None), and
        the method goes on with them.

        Devices may join at any time. Units, categories and classes are those of the first call.
        Each call first predicts the new rows with the models as they are: `progress_` has the
        errors on rows not learned from yet.

        With `Paper(online_rounds=10)` so many rounds follow. With "blend" there are no rounds to
        go on with: each call blends anew what is kept, with folds that are blocks of time.
        """
        online(method_of(self.method))  # or it is refused before anything is read
        first = "_arrivals" not in vars(self)
        if first and "fitted_" in vars(self):
            warn(
                "partial_fit starts anew: this model was fitted at once (or loaded), and the rows"
                " it was fitted to are not kept."
            )
        if first:
            self._warn_nobody_named(devices)
            trial = copy.copy(self)  # a call that fails leaves everything as it was
            labels = self._first_labels(classes)
            asked = trial._asked(X, y, devices, sample_weight, labels, aside)
            arrivals = first_arrivals(*asked)
            self.__dict__.update(vars(trial))
        else:
            arrivals = self._more(X, y, devices, sample_weight, aside)
        self._arrivals = arrivals
        self.fitted_ = arrivals.fitted
        return self

    def _more(
        self,
        X: Table,
        y: ArrayLike,
        devices: Ids,
        sample_weight: Weights,
        aside: pd.DataFrame | None,
    ) -> Arrivals:
        known = self.fitted_.settings
        rows, order = self._rows_again(X, y, devices, sample_weight, aside)
        settings = replace(self._settings(known.seed), public=known.public)
        method = method_of(self.method)
        return more_arrivals(self._arrivals, rows, method, settings, order)

    def _asked(
        self,
        X: Table,
        y: ArrayLike,
        devices: Ids,
        sample_weight: Weights,
        labels: Labels | None = None,
        aside: pd.DataFrame | None = None,
    ) -> Asked:
        """What `fit_fleet` takes."""
        method = method_of(self.method)
        schema, rows, order, dates = learn_table(
            self,
            X,
            y,
            devices,
            sample_weight,
            labels=labels or Labels(self.numeric),
            device=self.device,
            impute=self.impute,
            words=self._words(),
            aside=aside,
        )
        seed = drawn_seed(self.random_state)
        classes = schema.labels.count
        learner = learner_for(self.estimator, classes, rows.features, seed)
        settings = self._settings(seed)
        if not has_gradients(learner):
            settings = replace(settings, public=self._public(schema))
        return Asked(rows, method, learner, settings, schema, order, dates)

    def _words(self) -> OrderWords:
        """What is said of the order of rows."""
        return OrderWords(self.ordered, self.blocks, self.time, self.gap, self.horizon)

    def _public(self, schema: TableSchema) -> Array | int | None:
        """Public points as numbers in the table's own units, or how many to make up."""
        if self.public is None or isinstance(self.public, int):
            return self.public
        if isinstance(self.public, np.integer):
            return int(self.public)
        return schema.numbers(self, self.public)

    def _settings(self, seed: int) -> FitSettings:
        given = self.get_params(deep=False)
        known = {field.name for field in fields(FitSettings)} - {"public"}
        named = {name: value for name, value in given.items() if name in known}
        # what rows are handed in with is no setting; it is in what was learned of their order
        for key in ("blocks", "time"):
            named[key] = named[key] if isinstance(named[key], str) else None
        named["ordered"] = bool(self.ordered) or self.time is not None
        return FitSettings(**named, seed=seed)

    def _first_labels(self, classes: ArrayLike | None) -> Labels:
        """What labels are, where a first call names the classes."""
        if classes is not None and self.numeric:
            raise InputError("classes are for a classifier. Leave them out.")
        found = None if classes is None else np.unique(classes)
        return Labels(self.numeric, found)

    def _warn_nobody_named(self, devices: Ids) -> None:
        """Forgetting whose rows these are would otherwise look like success."""
        if devices is None and self.device is None:
            warn(
                "nobody said whose rows these are, so all of them count as one device's and nobody "
                "is asked. Hand in devices=..., or name the column that says it: device=....",
                NoDevicesWarning,
            )

    # Predicting

    def _result(self) -> Fitted:
        check_is_fitted(self, "fitted_")
        return self.fitted_

    def adapt(self, X: Table, y: ArrayLike, sample_weight: Weights = None) -> Adapted:
        """A model for one device that was not there when fitting, from a handful of its rows and
        without a new fit.

        >>> from persfl import PersonalizedRegressor
        >>> from persfl.datasets import load_housing
        >>> housing = load_housing()
        >>> few = housing.frame.groupby("city").head(12)
        >>> there = few["city"] != "Waco"
        >>> model = PersonalizedRegressor(holdout=0, random_state=0)
        >>> X, y = few[housing.feature_names], few["log_price"]
        >>> model = model.fit(X[there], y[there], devices=few["city"][there])
        >>> waco = model.adapt(X[~there][:4], y[~there][:4])
        >>> bool(abs(waco.predict(X[~there][4:]) - y[~there][4:]).mean() < 0.1)
        True
        """
        found = self._result()
        matrix = found.schema.numbers(self, _without(X, self.device))
        labels = found.schema.labels
        codes = labels.codes(one_each(labels.usable(y), matrix))
        weight = row_weights(sample_weight, len(matrix))
        rows = Devices(matrix, codes, weight, np.array([0, len(codes)]), [0])
        return Adapted(self, found.adapt(rows))

    def _responses(self, X: Table, devices: Ids) -> Array:
        """(rows,) values or (rows, classes) chances."""
        found = self._result()
        matrix, devices = found.schema.matrix(self, X, devices)
        return found.respond(matrix, devices, unseen=self.unseen)


class Adapted:
    """The model of a device that was not there when fitting (`adapt`)."""

    def __init__(self, fleet: Personalized, model: Model) -> None:
        self.fleet = fleet
        self.model = model

    def _responses(self, X: Table) -> Array:
        fitted = self.fleet.fitted_
        table = _without(X, self.fleet.device)
        return fitted.newcomer(fitted.schema.numbers(self.fleet, table), self.model)

    def predict(self, X: Table) -> NDArray[Any]:
        """(rows,) labels."""
        found = self._responses(X)
        classes = self.fleet.fitted_.schema.labels.classes
        return found if classes is None else classes[found.argmax(axis=1)]

    def predict_proba(self, X: Table) -> Array:
        """(rows, classes) chances, of a classifier."""
        if self.fleet.numeric:
            raise InputError("a regressor has no chances. Use predict.")
        return self._responses(X)


def _without(X: Table, device: str | None) -> Table:
    """A table without the column that says whose rows these are, if it has one."""
    if isinstance(X, pd.DataFrame) and device in X.columns:
        return X.drop(columns=device)
    return X


def drawn_seed(random_state: int | RandomState | None) -> int:
    """The seed that scikit-learn's `random_state` stands for."""
    whole = isinstance(random_state, (int, np.integer))
    if whole and not isinstance(random_state, bool):
        return int(random_state)  # type: ignore[arg-type]
    return int(check_random_state(random_state).randint(2**31 - 1))
