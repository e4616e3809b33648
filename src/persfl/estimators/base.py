"""What the regressor and the classifier share: parameters, reading tables, publishing a fit."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from persfl.devices import Devices
from persfl.errors import InputError, NoDevicesWarning
from persfl.estimators.attributes import FromFit
from persfl.evaluation.verdicts import Worth
from persfl.fitting import (
    Arrivals,
    FitSettings,
    Fitted,
    Labels,
    TableSchema,
    first_arrivals,
    fit_fleet,
    judge_fleet,
    learn_table,
    learner_for,
    more_arrivals,
)
from persfl.fitting.judgement import Rivals
from persfl.fitting.schema import Ids, Table, Weights
from persfl.fitting.setup import Models
from persfl.fitting.warning import warn
from persfl.training import Keep
from persfl.traits import has_gradients
from persfl.trust import Trust
from persfl.types import Adopter, Array, IntArray, Learner, Model
from persfl.units import Units


class Personalized(BaseEstimator):  # type: ignore[misc]
    """A facade over `persfl.fitting`: it stores parameters, reads tables, shows what came out."""

    numeric: ClassVar[bool]
    """Whether labels are numbers; otherwise they are classes."""
    fitted_: Fitted
    _arrivals: Arrivals

    def __init__(
        self,
        estimator: object = None,
        *,
        device: str | None = None,
        method: str = "auto",
        peers: int | str = "auto",
        rounds: int | str = "auto",
        step_size: float | str = "auto",
        adopter: Adopter | None = None,
        units: str = "auto",
        public: Table | int | None = None,
        holdout: float = 0.25,
        trials: int | str = "auto",
        fallback: bool = False,
        unseen: str = "pooled",
        impute: bool = False,
        window: int | None = None,
        online_rounds: int = 10,
        compute: str | None = None,
        budget: int = 640,
        ordered: bool = False,
        n_jobs: int | None = 1,
        random_state: int | RandomState | None = 0,
    ) -> None:
        self.estimator = estimator
        self.device = device
        self.method = method
        self.peers = peers
        self.rounds = rounds
        self.step_size = step_size
        self.adopter = adopter
        self.units = units
        self.public = public
        self.holdout = holdout
        self.trials = trials
        self.fallback = fallback
        self.unseen = unseen
        self.impute = impute
        self.window = window
        self.online_rounds = online_rounds
        self.compute = compute
        self.budget = budget
        self.ordered = ordered
        self.n_jobs = n_jobs
        self.random_state = random_state

    # What a fit leaves: `fitted_`, and its parts under scikit-learn's names.

    devices_ = FromFit[NDArray[Any]]("devices")
    rows_ = FromFit[IntArray]("rows")
    method_ = FromFit[str]("method")
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
        """Who helps whom: device, peer, asked, adopted, share, reward mean and interval,
        verdict; most adopted first.
        """
        return self._result().helpers()

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

    # Fitting

    def fit(
        self,
        X: Table,
        y: ArrayLike,
        devices: Ids = None,
        sample_weight: Weights = None,
        keep: Keep | None = None,
    ) -> Self:
        """Learn a model for every device.

        `devices` says for each row whose it is (or `device` names the column of X that does);
        without either, all rows are one device's, this is a plain fit, and a warning says so.
        `keep` writes down every round, so that a fit that was cut can go on (`persfl.runs.Folder`).
        """
        self._warn_nobody_named(devices)
        for old in ("_arrivals", "fitted_"):
            self.__dict__.pop(old, None)
        self.fitted_ = fit_fleet(*self._asked(X, y, devices, sample_weight), keep=keep)
        return self

    def partial_fit(
        self,
        X: Table,
        y: ArrayLike,
        devices: Ids = None,
        sample_weight: Weights = None,
        classes: ArrayLike | None = None,
    ) -> Self:
        """New rows have arrived: every device keeps its last `window` rows (all, if None), and
        `online_rounds` rounds follow.

        Devices may join at any time. Units, categories and classes are those of the first call.
        Each call first predicts the new rows with the models as they are: `progress_` has the
        errors on rows not learned from yet.

        With method="blend" there are no rounds to go on with: each call blends anew what is kept,
        by `budget`, with folds that are blocks of time.
        """
        if self.method not in ("auto", "paper", "blend"):
            raise InputError(
                f"partial_fit goes by method='paper' or 'blend'. Got {self.method!r}, which needs"
                " rows that stay: use fit."
            )
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
            asked = trial._asked(X, y, devices, sample_weight, labels)
            arrivals = first_arrivals(*asked)
            self.__dict__.update(vars(trial))
        else:
            arrivals = self._more(X, y, devices, sample_weight)
        self._arrivals, self.fitted_ = arrivals, arrivals.fitted
        return self

    def _more(
        self, X: Table, y: ArrayLike, devices: Ids, sample_weight: Weights
    ) -> Arrivals:
        schema, known = self.fitted_.schema, self.fitted_.settings
        rows = schema.rows(self, X, y, devices, sample_weight)
        settings = replace(self._settings(known.seed), public=known.public)
        return more_arrivals(self._arrivals, rows, settings)

    def _asked(
        self,
        X: Table,
        y: ArrayLike,
        devices: Ids,
        sample_weight: Weights,
        labels: Labels | None = None,
    ) -> tuple[Devices, Learner, FitSettings, TableSchema]:
        """What `fit_fleet` takes: rows, model family, settings, table."""
        schema, rows = learn_table(
            self,
            X,
            y,
            devices,
            sample_weight,
            labels=labels or Labels(self.numeric),
            device=self.device,
            impute=self.impute,
        )
        seed, classes = _seed(self.random_state), schema.labels.count
        learner = learner_for(self.estimator, classes, rows.features, seed)
        settings = self._settings(seed)
        if not has_gradients(learner):
            settings = replace(settings, public=self._public(schema))
        return rows, learner, settings, schema

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

    def _responses(self, X: Table, devices: Ids) -> Array:
        """(rows,) values or (rows, classes) chances."""
        found = self._result()
        matrix, devices = found.schema.matrix(self, X, devices)
        return found.respond(matrix, devices, unseen=self.unseen)


def judge_table(
    model: Personalized,
    X: Table,
    y: ArrayLike,
    devices: Ids = None,
    sample_weight: Weights = None,
    *,
    keep: Keep | None = None,
    rivals: Rivals | None = None,
) -> Worth | None:
    """The trial of a fit with these settings: errors on rows held back, of `rivals` too.

    None where there is nobody to compare with.
    """
    asked = model._asked(X, y, devices, sample_weight)
    return judge_fleet(*asked, keep=keep, rivals=rivals)


def rows_by_device(
    model: Personalized,
    X: Table,
    y: ArrayLike,
    devices: Ids = None,
    sample_weight: Weights = None,
) -> tuple[Devices, int]:
    """A table as this estimator would read it, checked, and how many classes its labels have."""
    rows, _, _, schema = model._asked(X, y, devices, sample_weight)
    rows.check(quiet=True)
    return rows, schema.labels.count


def _seed(random_state: int | RandomState | None) -> int:
    whole = isinstance(random_state, (int, np.integer))
    if whole and not isinstance(random_state, bool):
        return int(random_state)  # type: ignore[arg-type]
    return int(check_random_state(random_state).randint(2**31 - 1))
