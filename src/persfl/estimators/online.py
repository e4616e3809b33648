"""Learning as rows arrive: `partial_fit`."""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from typing import Any

import numpy as np
import pandas as pd

from persfl.checks import whole
from persfl.devices import Devices
from persfl.errors import InputError, PersflWarning
from persfl.estimators.base import Personalized, id_array
from persfl.evaluation.rivals import own_fits
from persfl.fleets import ArrayFleet
from persfl.methods.blend import run as blended
from persfl.training import Pace, Plan, State, step_of, train
from persfl.trust import Trust
from persfl.types import Array
from persfl.units import Units


class Online(Personalized):
    """Adds `partial_fit` to what can be fitted."""

    _arrived: Devices

    @abstractmethod
    def _first_classes(self, y: Any, classes: Any) -> None:
        """Remember the classes that a first call names."""

    def partial_fit(
        self,
        X: Any,
        y: Any,
        devices: Any = None,
        sample_weight: Any = None,
        classes: Any = None,
    ) -> Any:
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
        if hasattr(self, "models_") and not hasattr(self, "_arrived"):
            warnings.warn(
                "partial_fit starts anew: this model was fitted at once (or loaded), and the rows"
                " it was fitted to are not kept.",
                PersflWarning,
                stacklevel=2,
            )
        if not hasattr(self, "_arrived"):
            self._warn_nobody_named(devices, stacklevel=3)
        trial = copy.copy(self)  # a call that fails must leave everything as it was
        trial._add(X, y, devices, sample_weight, classes)
        self.__dict__.update(trial.__dict__)
        return self

    def _add(
        self, X: Any, y: Any, devices: Any, sample_weight: Any, classes: Any
    ) -> None:
        first = not hasattr(self, "_arrived")
        if first:
            self._first_classes(y, classes)
            rows = self._learn_rows(
                X, y, devices, sample_weight, classes=getattr(self, "classes_", None)
            )
        else:
            rows = self._more_rows(X, y, devices, sample_weight)
            self.notes_ = list(self.notes_)
        rows.check(quiet=True)
        if first:
            self._check_settings(len(rows))
            self.learner_ = self._learner(rows.features)
            self._choose_method(2, online=True)
            self.worth_, self.progress_ = None, pd.DataFrame()
            if self.window is not None:
                rows = _joined(rows, None, self.window)
            self._arrived, joined, self.trust_ = (
                rows,
                rows,
                Trust(len(rows), np.arange(len(rows))),
            )
            self.n_rounds_, self.losses_ = 0, np.empty((0, len(rows)))
            self.units_ = Units.of(
                rows,
                "shared" if self._units() == "centred" else self._units(),
                labels=self._scaled,
            )
            self.public_ = self._public(rows, self.units_.kind)
            self.step_size_ = step_of(self.step_size, self.learner_, self.n_columns_)
            old = 0
        else:
            old = len(self.devices_)
            self._judge_progress(rows)
            joined = _joined(self._arrived, rows, self.window)
        self._arrived = joined
        self.devices_, self.rows_ = id_array(joined.ids), joined.counts.copy()
        self.fallback_ = np.zeros(len(joined), dtype=bool)
        inside = self.units_.inside(joined)
        self._pool(joined, self._units())
        if len(joined) == 1:
            self.models_ = own_fits(self.learner_, inside, self._seed)
            return
        plan = self._plan(
            joined,
            rounds=self.n_rounds_ + whole("online_rounds", self.online_rounds, least=0),
        )
        if self.method_ == "blend":
            self._blend_anew(inside, plan)
            return
        start = self._started(inside, plan, old)
        state = train(inside, plan, start=start)
        self.models_, self.trust_, self.step_size_, self.n_rounds_ = (
            state.models,
            state.trust,
            state.pace.step_size,
            state.r,
        )
        if state.pace.halved:
            self._note_halving(state, f"round {self.n_rounds_}")
        self.losses_ = np.stack(state.losses) if state.losses else self.losses_

    def _blend_anew(self, inside: Devices, plan: Plan) -> None:
        """Models of the rows that are kept now; rounds and losses are those of all calls so
        far, trust that of this one.
        """
        state = blended(
            inside,
            plan,
            budget=self.budget,
            ordered=True,
            classes=self._classes,
            public=self.public_,
        )
        self.models_, self.trust_ = state.models, state.trust
        self.losses_ = np.concatenate(
            [self._known_losses(len(inside)), np.stack(state.losses)]
        )
        self.n_rounds_ += state.r

    def _known_losses(self, n: int) -> Array:
        """(rounds, n) own losses so far; NaN for devices that were not there yet."""
        losses = np.full((len(self.losses_), n), np.nan)
        losses[:, : self.losses_.shape[1]] = self.losses_
        return losses

    def _started(self, inside: Devices, plan: Plan, old: int) -> State:
        """The state to go on from: known devices keep their models, new ones begin where
        everybody began.
        """
        step = self.step_size_ if np.isfinite(self.step_size_) else plan.step_size
        n = len(inside)
        begun = ArrayFleet(
            inside, learner=plan.learner, proposer=plan.proposer(step), seed=plan.seed
        ).models
        if old > 1:
            kept = list(self.models_)
            begun = (
                np.stack([*kept, *begun[old:]])
                if isinstance(begun, np.ndarray)
                else [*kept, *begun[old:]]
            )
        trust = self.trust_.widened(n) if old else Trust(n, np.arange(n))
        return State(
            self.n_rounds_, begun, trust, Pace(step), tuple(self._known_losses(n))
        )

    def _judge_progress(self, rows: Devices) -> None:
        """Test, then train: how the models so far predict rows they have not seen."""
        place = self._places(rows.ids)
        owner = place[rows.owner]
        seen = owner >= 0
        missed = float("nan")
        if seen.any():
            response = self._responses(rows.X[seen], owner[seen])
            y = rows.y[seen]
            missed = float(
                (response.argmax(axis=1) != y).mean()
                if self._classes
                else ((response - y) ** 2).mean()
            )
        new = {
            "rounds": self.n_rounds_,
            "rows": int(seen.sum()),
            "new_devices": int((place < 0).sum()),
            "error": missed,
        }
        self.progress_ = pd.concat(
            [self.progress_, pd.DataFrame([new])], ignore_index=True
        )


def _joined(old: Devices, new: Devices | None, window: int | None) -> Devices:
    """Old rows and new ones, each device's last `window`; devices that join stand behind those
    that were there.
    """
    place = {name: i for i, name in enumerate(old.ids)}
    parts: list[list[Any]] = [[old[i]] for i in range(len(old))]
    ids = list(old.ids)
    for i, name in enumerate([] if new is None else new.ids):
        if name not in place:
            place[name] = len(ids)
            ids.append(name)
            parts.append([])
        parts[place[name]].append(new[i])  # type: ignore[index]
    kept = []
    for pieces in parts:
        X, y, weight = (
            np.concatenate([getattr(piece, part) for piece in pieces])
            for part in ("X", "y", "weight")
        )
        last = slice(None) if window is None else slice(-window, None)
        kept.append((X[last], y[last], weight[last]))
    return Devices.of(kept, ids=ids, quiet=True)
