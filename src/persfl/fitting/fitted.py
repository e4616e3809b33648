"""The result of a fit, as a value."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from persfl.checks import many, some
from persfl.devices import Devices
from persfl.errors import InputError, UnseenWarning, warn
from persfl.evaluation.who_helps import helper_table
from persfl.fitting.cells import id_array, places
from persfl.fitting.linear_coefficients import coefficient_table
from persfl.fitting.model_shares import shares_of_models
from persfl.fitting.row_owners import refusal_of_strangers, refusal_of_unnamed
from persfl.learners.linear import Linear
from persfl.learners.responses import respond, respond_each, unknown, with_trees
from persfl.learners.shared_trees import BoostedModels
from persfl.learners.shrunk import shrunk
from persfl.methods.mixed.population import Population
from persfl.sources.table import device_codes

if TYPE_CHECKING:
    from persfl.evaluation.dependence import Contributions, Removal
    from persfl.evaluation.row_order import RowOrder
    from persfl.evaluation.verdicts import Worth
    from persfl.fitting.schema import Ids, TableSchema
    from persfl.fitting.setup import FitSettings, Models, Setup
    from persfl.methods import Method
    from persfl.training.state import State
    from persfl.trust import Trust
    from persfl.types import Array, IntArray, Learner, Model
    from persfl.units import Units


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model for every device, how it came about, and what is known of its worth.

    Run folders keep it, reports show it, and the estimators publish it: `devices` as `devices_`.
    """

    devices: NDArray[Any]
    """Ids, in the order of all that follows."""
    rows: IntArray
    """How many rows each device has."""
    schema: TableSchema
    """The table's columns and classes."""
    settings: FitSettings
    method: Method
    """The method that was asked for, with its settings."""
    learner: Learner
    units: Units
    """The units that models are in."""
    models: Models
    trust: Trust
    """What devices learned about each other."""
    losses: Array
    """(rounds, devices) own losses at the start of every round."""
    step_size: float
    """The step size in the end; NaN where nobody took a step."""
    rounds: int
    notes: tuple[str, ...] = ()
    """What a person should know about this fit; the first says by which method."""
    worth: Worth | None = None
    """Errors on rows held back; None without any."""
    fallback: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """Which devices keep the model of their own rows."""
    pooled: Model = None
    """One model for devices that were not there; None without."""
    pooled_units: Units | None = None
    depends: Removal | None = None
    """What errors rise by without the devices named for each, where a fit can afford to measure it;
    `removal` measures it of any.
    """
    public: Array | None = None
    """The public points of the run, in its units."""
    alone: bool = False
    """Whether there was one device, and so nobody to ask."""

    @property
    def classes(self) -> int:
        """How many classes there are; 0 for numbers."""
        return self.schema.labels.count

    @property
    def ran(self) -> str:
        """The name of the method that ran; "own" where there was nobody to ask."""
        return "own" if self.alone else self.method.name

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from persfl.fitting.fitted_view import fitted_html

        return fitted_html(self)

    def helpers(self) -> pd.DataFrame:
        """Who helps whom: device, peer, asked, adopted, share, reward mean and interval, whether
        it is alike, verdict; most adopted first.
        """
        return helper_table(self.trust, self.devices.tolist())

    def removal(
        self,
        rows: Devices,
        order: RowOrder | None = None,
        *,
        many: int = 10,
        targets: int = 12,
    ) -> Removal:
        """Errors without those named for a target, and without as many random ones: two refits a
        target. `rows` and `order` are those of the fit.
        """
        from persfl.fitting.removal import removal

        return removal(self, rows, order, many=many, targets=targets)

    def contributions(
        self, rows: Devices, order: RowOrder | None = None, *, refits: int = 60
    ) -> Contributions:
        """What others' errors rise by without a device: a refit each, of at most so many."""
        from persfl.fitting.contribution import contributions

        return contributions(self, rows, order, refits=refits)

    def made_of(self) -> pd.DataFrame:
        """What each device's model is made of, in shares.

        After method="blend": models that started from own rows alone, from the fleet, from
        neighbours (`helpers` names them). After method="kin" with steps: how many kin, own share
        and theirs, whether it is sure.
        """
        shares = shares_of_models(self.trust, self.fallback)
        return pd.DataFrame({"device": self.devices} | shares)

    def coefficients(self) -> pd.DataFrame:
        """Every device's coefficients in the table's own units (linear models in shared or raw
        units).
        """
        table = coefficient_table(self.learner, self.units, self.models)
        columns = [*self.schema.columns, "intercept"]
        return pd.DataFrame(table, index=self.devices, columns=columns)

    def adapt(self, rows: Devices) -> Model:
        """The model of a device that was not there, from its rows, without a new fit.

        Nobody else's model changes. With blend and linear models of numbers or counts it is
        what the fleet says of such rows; other linear models begin at the one for all.
        """
        learner = self.learner
        units = self.pooled_units
        population = self.population
        if population is not None and isinstance(learner, Linear):
            own = self.units.inside(rows)
            return population.newcomer(own.X, own.y, own.weight, learner)
        if (
            isinstance(learner, Linear)
            and units is not None
            and self.pooled is not None
        ):
            return shrunk(learner, units.inside(rows), self.pooled)[0]
        raise InputError(
            "a new device adapts to linear models (with unseen='pooled'). Fit again with its rows."
        )

    def newcomer(self, X: Array, model: Model = None) -> Array:
        """As `respond`, by the model of a device that was not there: one that `adapt` gave, or,
        without any, what the population says.
        """
        nobody = np.full(len(X), -1)
        population = self.population
        units = self.units if population is not None else self.pooled_units
        if units is None:
            raise InputError("this run has no model for newcomers.")
        model = self.newcomer_model() if model is None else model
        inside = units.features(X, nobody)
        found = respond(self.learner, model, inside, self.classes)
        if population is not None and isinstance(self.models, BoostedModels):
            found = with_trees(
                self.learner, self.models, found, inside, nobody, self.classes
            )
        return found if self.classes else units.outside(found, nobody)

    def newcomer_model(self) -> Model:
        """The model of a device that has not shown a row; None where this run has none."""
        population = self.population
        learner = self.learner
        if population is None or self.pooled is None or not isinstance(learner, Linear):
            return self.pooled
        none = self.units.inside(_no_rows(len(self.schema.columns)))
        return population.newcomer(none.X, none.y, none.weight, learner)

    @property
    def population(self) -> Population | None:
        """What the fleet says of a device that was not there, where blend or mixed found it."""
        if self.units.kind == "centred":  # about means that a newcomer does not have
            return None
        return Population.from_notes(self.trust.notes, len(self.schema.columns))

    def respond(self, X: Array, devices: Ids, *, unseen: str | None = None) -> Array:
        """(rows,) values or (rows, classes) chances, each row by its own device's model.

        Devices that were not there are predicted by one model for all, with a warning, or with
        `unseen="error"` refused; None goes by the settings of the fit.
        """
        unseen = self.settings.unseen if unseen is None else unseen
        owner = self._owners(devices, len(X))
        seen = owner >= 0
        if seen.all():
            return self.answers(X, owner)
        strangers = pd.unique(np.asarray(pd.Series(devices))[~seen]).tolist()
        units = self.pooled_units
        if unseen == "error" or self.pooled is None or units is None:
            raise refusal_of_strangers(strangers, self.devices.tolist(), unseen)
        warn(
            f"{many(int((~seen).sum()), 'row')} of {many(len(strangers), 'device')} that "
            f"{'was' if len(strangers) == 1 else 'were'} not there when fitting "
            f"({some(strangers)}): predicted by one model for all. unseen='error' refuses them.",
            UnseenWarning,
        )
        out = np.empty((len(X), self.classes) if self.classes else len(X))
        if seen.any():
            out[seen] = self.answers(X[seen], owner[seen])
        out[~seen] = self.newcomer(X[~seen])
        return out

    def answers(self, X: Array, owner: IntArray) -> Array:
        """As `respond`, each row by the model of its owner, a position in `devices`."""
        away = unknown(self.models)[owner]
        if away.any():
            names = self.devices[np.unique(owner[away])].tolist()
            raise InputError(
                f"the model of device {some(names)} stayed at home. Predict there."
            )
        inside = self.units.features(X, owner)
        found = respond_each(self.learner, self.models, inside, owner, self.classes)
        return found if self.classes else self.units.outside(found, owner)

    def places(self, ids: list[Hashable]) -> IntArray:
        """The positions of these ids in `devices`, -1 for those that were not there."""
        return places(self.devices.tolist(), ids)

    def _owners(self, devices: Ids, rows: int) -> IntArray:
        if devices is not None:
            codes, ids = device_codes(devices, rows)
            return np.asarray(self.places(ids)[codes])
        if len(self.devices) == 1:
            return np.zeros(rows, dtype=np.int64)
        raise refusal_of_unnamed(len(self.devices))


def _no_rows(features: int) -> Devices:
    """A device that has not shown a row."""
    nothing = np.zeros(0)
    return Devices(np.zeros((0, features)), nothing, nothing, np.array([0, 0]), [0])


class HasFitted(Protocol):
    """A fitted estimator."""

    fitted_: Fitted


def fitted_of(model: Fitted | HasFitted) -> Fitted:
    """The value behind a fitted estimator, or itself."""
    return model if isinstance(model, Fitted) else model.fitted_


def assembled(setup: Setup, rows: Devices, units: Units, state: State) -> Fitted:
    """What a run leaves, as a value."""
    n = len(rows)
    return Fitted(
        devices=id_array(rows.ids),
        rows=rows.counts.copy(),
        schema=setup.schema,
        settings=setup.settings,
        method=setup.method,
        learner=setup.learner,
        units=units,
        models=state.models,
        trust=state.trust,
        losses=np.stack(state.losses) if state.losses else np.empty((0, n)),
        step_size=state.pace.step_size,
        rounds=state.r,
        fallback=np.zeros(n, dtype=bool),
    )
