"""Fitting a model for every device, and predicting with it.

Fitting is two runs of one method (`persfl.estimators.method` says which). The *trial* holds back a
share of every device's rows (`holdout`), and its models are compared on them with simple rivals:
that is `worth_`. The *final* run uses all rows and gives the models that predict. Nothing is chosen
by the rows held back, except, with `fallback=True`, where to keep a device's own model.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from abc import abstractmethod
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from persfl.adopters import Best
from persfl.checks import many, one_of, real, some, those, whole
from persfl.devices import Devices
from persfl.errors import InputError, NoDevicesWarning, PersflWarning, UnseenWarning
from persfl.estimators.method import METHODS, Method, loop_settings, method_of, said
from persfl.estimators.rows import WithRows
from persfl.evaluation.rivals import own_fits, pooled_fit
from persfl.evaluation.split import split
from persfl.evaluation.trials import run_trial, worth_of_trials
from persfl.evaluation.verdicts import Worth
from persfl.evaluation.who_helps import helper_table
from persfl.learners import Estimator, Linear
from persfl.learners.responses import respond, respond_each, unknown
from persfl.methods.blend import SORTS, sorts
from persfl.methods.blend import run as blended
from persfl.methods.blend.cost import cost_of
from persfl.proposers import GradientStep, Refit
from persfl.public_points import public_points
from persfl.rules import doubts, kin, members
from persfl.sources.table import device_codes
from persfl.training import (
    KIN_ROUNDS,
    REFIT_ROUNDS,
    STEP_ROUNDS,
    Keep,
    Plan,
    State,
    peers_asked,
    peers_of,
    runaways,
    step_of,
    train,
)
from persfl.traits import has_gradients, is_learner, traits_of
from persfl.trust import Trust
from persfl.types import Array, IntArray
from persfl.units import KINDS, Units

CHEAP = 3e7  # numbers touched by a run that may be repeated without being noticed
NOTHING = 1e-6  # a loss below this is none, however many times its start it is
# made-up public points, where a base estimator needs some and none are handed in
POINTS = 100


class Personalized(WithRows):
    """What the regressor and the classifier share."""

    models_: Any
    worth_: Worth | None

    @property
    def _classes(self) -> int:
        """How many classes there are; 0 for a regression."""
        return 0

    @abstractmethod
    def _linear(self) -> Linear:
        """The default model family."""

    @property
    def _scaled(self) -> bool:
        """Whether labels have units: classes have none, and counts lose their meaning in any
        but their own.
        """
        return not self._classes and traits_of(self.learner_).task != "counts"

    def __init__(
        self,
        estimator: Any = None,
        *,
        device: str | None = None,
        method: str = "auto",
        peers: int | str = "auto",
        rounds: int | str = "auto",
        step_size: float | str = "auto",
        adopter: Any = None,
        units: str = "auto",
        public: Any = None,
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
        random_state: Any = 0,
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

    def fit(
        self, X: Any, y: Any, devices: Any = None, sample_weight: Any = None
    ) -> Any:
        """Learn a model for every device.

        `devices` says for each row whose it is (or `device` names the column of X that does);
        without either, all rows are one device's, this is a plain fit, and a warning says so.
        """
        self._warn_nobody_named(devices, stacklevel=3)
        return self._fit(X, y, devices, sample_weight)

    def _fit(
        self,
        X: Any,
        y: Any,
        devices: Any = None,
        sample_weight: Any = None,
        keep: Keep | None = None,
        rivals: Any = None,
        final: bool = True,
    ) -> Any:
        for old in ("_arrived", "progress_"):  # what partial_fit left
            self.__dict__.pop(old, None)
        rows = self._learn_rows(X, y, devices, sample_weight)
        rows.check(quiet=True)
        if len(rows) > 1:
            self._warn_thin(rows)
        self._check_settings(len(rows))
        self.learner_ = self._learner(rows.features)
        self.devices_ = id_array(rows.ids)
        self.rows_ = rows.counts.copy()
        self._choose_method(len(rows))
        kind = self._units()
        self.worth_ = None
        self.fallback_ = np.zeros(len(rows), dtype=bool)
        if len(rows) == 1:
            self._alone(rows, kind)
            return self
        if self.method_ == "blend":
            self._warn_large(rows)
        if self.holdout > 0:
            self._trial(rows, kind, keep, rivals)
        elif self.fallback:
            raise InputError(
                "fallback=True needs rows to judge by. Use holdout above 0, for example 0.25."
            )
        if not final:
            return self
        self._judge()
        self.units_ = Units.of(rows, kind, labels=self._scaled)
        inside = self.units_.inside(rows)
        self.public_ = self._public(rows, kind)
        state = self._learned(inside, "final", keep)
        self._settle(state)
        self._doubt()
        self.models_ = self._sure(state, inside)
        if self.fallback_.any():
            own = own_fits(self.learner_, inside, self._seed)
            if isinstance(self.models_, np.ndarray):
                self.models_ = np.where(self.fallback_[:, None], own, self.models_)
            else:
                self.models_ = [
                    o if alone else m
                    for o, m, alone in zip(
                        own, self.models_, self.fallback_, strict=True
                    )
                ]
        self._pool(rows, kind)
        return self

    def _warn_nobody_named(self, devices: Any, stacklevel: int) -> None:
        """Forgetting whose rows these are would otherwise look like success."""
        if devices is None and self.device is None:
            warnings.warn(
                "nobody said whose rows these are, so all of them count as one device's and nobody "
                "is asked. Hand in devices=..., or name the column that says it: device=....",
                NoDevicesWarning,
                stacklevel=stacklevel,
            )

    def _warn_thin(self, rows: Devices) -> None:
        """Warn about what a person would want to know before trusting the result."""
        single = np.flatnonzero(rows.counts == 1)
        if len(single):
            warnings.warn(
                f"{those([rows.ids[i] for i in single.tolist()], 'has', 'have')} a single row: too"
                " little to score answers by.",
                PersflWarning,
                stacklevel=4,
            )
        names = self._column_names()
        same = [
            names[j]
            for j in range(rows.features)
            if (rows.X[:, j] == rows.X[0, j]).all()
        ]
        if same:
            warnings.warn(
                f"{those(same, 'has', 'have', thing='column')} the same value in every row, "
                "so nothing can be learned from that. Leave it out.",
                PersflWarning,
                stacklevel=4,
            )

    def _warn_large(self, rows: Devices) -> None:
        """Say in advance what a long fit will take, and how to have it shorter."""
        cost = cost_of(
            self.learner_,
            rows.counts,
            rows.features,
            budget=self.budget,
            classes=self._classes,
            ordered=self.ordered,
            runs=1 + (self._trials(rows) if self.holdout > 0 else 0),
        )
        if cost is not None and cost.large:
            warnings.warn(
                f"{len(rows):,} devices with {len(rows.y):,} rows and {rows.features:,} columns:"
                f" this fit takes about {cost} on one core. For less, drop columns, lower budget"
                f" (now {self.budget:,}), set holdout=0 or use method='paper' (command line:"
                " --drop, --budget, --holdout 0, --method paper).",
                PersflWarning,
                stacklevel=4,
            )

    def _alone(self, rows: Devices, kind: str) -> None:
        """One device: nobody to ask."""
        self.units_ = Units.of(rows, kind, labels=self._scaled)
        self.public_ = None
        inside = self.units_.inside(rows)
        self.models_ = own_fits(self.learner_, inside, self._seed)
        self.trust_ = Trust(1, np.arange(1))
        self.losses_ = np.empty((0, 1))
        self.step_size_, self.n_rounds_ = float("nan"), 0
        self._pool(rows, kind)

    def _trial(self, rows: Devices, kind: str, keep: Keep | None, rivals: Any) -> None:
        """Runs that hold rows back, to compare with rivals on them; `rivals` makes more of them
        (see `persfl.lab`).
        """
        done = []
        for part in range(self._trials(rows)):
            learn, held = split(
                rows,
                self.holdout,
                seed=self._seed,
                part=part,
                classes=self._classes,
                ordered=self.ordered,
            )
            if not len(held.X):
                break
            units = Units.of(learn, kind, labels=self._scaled)
            self.public_ = self._public(learn, kind)
            inside = units.inside(learn)
            state = self._learned(inside, f"trial-{part}", keep)
            if part == 0:
                self._note_halving(state, "the trial run")
            done.append(
                run_trial(
                    learn,
                    held,
                    learner=self.learner_,
                    units=units,
                    models=self._sure(state, inside),
                    classes=self._classes,
                    public=self.public_,
                    steps=(
                        GradientStep(state.pace.step_size, steps=self._rounds("paper"))
                        if has_gradients(self.learner_)
                        else None
                    ),
                    seed=self._seed,
                    more=(
                        rivals(
                            inside,
                            self.learner_,
                            state.pace.step_size,
                            self._rounds("paper"),
                            self._seed,
                        )
                        if rivals
                        else None
                    ),
                )
            )
        if not done:
            self.notes_.append(
                "No device has the four rows it takes to hold any back, so nothing could be judged."
            )
            if self.fallback:
                raise InputError(
                    "fallback=True needs devices with at least four rows, and no device has as"
                    " many. Leave it out."
                )
            return
        self.worth_ = worth_of_trials(done, self._classes)

    def _judge(self) -> None:
        """What follows from the trial."""
        if self.worth_ is None:
            return
        if self.fallback:
            self.fallback_ = self.worth_.better_alone()
            if self.fallback_.any():
                alone = self.devices_[self.fallback_].tolist()
                self.notes_.append(
                    f"{len(alone)} of {len(self.devices_)} devices keep the model of their own"
                    f" rows, by the evidence of the whole fleet: {some(alone, 20)}. What is shown"
                    " of their helpers is what asking would have brought."
                )
        elif self.worth_.fleet().says == "hurts":
            advice = (
                "On the rows held back, models from own rows alone do better than personalized"
                " ones. Use fallback=True (command line: --fallback) to keep those."
            )
            self.notes_.append(advice)
            warnings.warn(advice, PersflWarning, stacklevel=4)

    def _choose_method(self, n: int, online: bool = False) -> None:
        """Settle `method_`; the first of the notes says which it is."""
        method = method_of(self, online=online) if n > 1 else Method("own")
        self.method_ = method.name
        self.notes_: list[str] = [said(method)]

    def _learned(self, inside: Devices, stage: str, keep: Keep | None) -> State:
        """The run that the method asks for."""
        plan = self._plan(inside)
        if self.method_ != "blend":
            return train(inside, plan, stage=stage, keep=keep)
        return blended(
            inside,
            plan,
            budget=self.budget,
            ordered=self.ordered,
            classes=self._classes,
            public=self.public_,
            stage=stage,
            keep=keep,
        )

    def _trials(self, rows: Devices) -> int:
        """How many trial runs: as many as hold back every row once, where that is cheap."""
        # of ordered rows only the latest can be held back
        most = 1 if self.ordered else max(1, round(1 / self.holdout))
        if self.trials != "auto":
            return whole(
                "trials",
                self.trials,
                least=1,
                most=most,
                why="ordered rows" if self.ordered else f"holdout={self.holdout:g}",
            )
        if not isinstance(self.learner_, Linear):
            return 1
        asked = (
            self.budget
            if self.method_ == "blend"
            else peers_asked("auto", len(rows)) * self._rounds()
        )
        return most if rows.X.size * self.learner_.classes * asked <= CHEAP else 1

    def _rounds(self, method: str | None = None) -> int:
        if self.rounds != "auto":
            return int(self.rounds)
        if not has_gradients(self.learner_):
            return REFIT_ROUNDS
        return KIN_ROUNDS if (method or self.method_) == "kin" else STEP_ROUNDS

    def _settle(self, state: State) -> None:
        self.models_, self.trust_, self.step_size_ = (
            state.models,
            state.trust,
            state.pace.step_size,
        )
        self.losses_ = (
            np.stack(state.losses)
            if state.losses
            else np.empty((0, len(self.devices_)))
        )
        self.n_rounds_ = state.r
        self._note_halving(state, "the final run")
        if len(self.losses_) and has_gradients(self.learner_):
            grown = runaways(self.losses_[-1], self.losses_[0]) & (
                self.losses_[-1] > NOTHING
            )
            lost = self.devices_[grown].tolist()
            # most of a fleet cannot be unlike all others
            if lost and len(lost) <= len(self.devices_) / 2:
                self.notes_.append(
                    f"The loss of {those(lost, 'has', 'have')} grown many times over: "
                    f"{'its' if len(lost) == 1 else 'their'} rows are unlike all others'."
                )

    def _doubt(self) -> None:
        """Say how models came about, where kin was looked for, and which of them are guesses."""
        if "mix" in self.trust_.notes:
            own, fleet, near = (
                f"{share:.0%}".replace("%", " %")
                for share in self.made_of()[list(SORTS)].mean()
            )
            self.notes_[0] += (
                f" In the mean over devices a model is {own} own rows, {fleet} fleet and {near}"
                " neighbours, by what its parts started from, before own rows refined them."
            )
        if "member" not in self.trust_.notes:
            return
        known = members(self.trust_)
        many = known.member.sum(axis=1)[known.right]
        if len(many):
            self.notes_.append(
                f"{len(many)} of {len(self.devices_)} devices found kin: {many.min()} to"
                f" {many.max()} others, in the middle {np.median(many):g}. Such a device's model is"
                " made of its own rows and theirs, every device counting as much."
            )
        size = self.models_.shape[1]
        for doubt in doubts(self.trust_, self.rows_, size, self.devices_.tolist()):
            said = doubt[0].upper() + doubt[1:]
            said = said.replace(
                "Its model is a guess", "It keeps the model of its own rows"
            )
            said = said.replace(
                "Their models are guesses", "They keep the models of their own rows"
            )
            self.notes_.append(said)
            warnings.warn(said, PersflWarning, stacklevel=5)

    def _sure(self, state: State, inside: Devices) -> Any:
        """The models of a run; where kin was looked for and not found, those of own rows."""
        if "member" not in state.trust.notes:
            return state.models
        found = members(state.trust).right
        return (
            state.models
            if found.all()
            else np.where(
                found[:, None],
                state.models,
                own_fits(self.learner_, inside, self._seed),
            )
        )

    def made_of(self) -> pd.DataFrame:
        """What each device's model is made of, in shares.

        After method="blend": models that started from own rows alone, from the fleet, from
        neighbours (`helpers_` names them). After method="kin" with steps: how many kin, own share
        and theirs, whether it is sure.
        """
        check_is_fitted(self, "models_")
        if "mix" in self.trust_.notes:
            parts = np.where(
                self.fallback_[:, None],
                [1.0, 0.0, 0.0],
                sorts(self.trust_.notes["mix_names"], self.trust_.notes["mix"]),
            )
            return pd.DataFrame(
                {"device": self.devices_}
                | {name: parts[:, k] for k, name in enumerate(SORTS)}
            )
        if "member" not in self.trust_.notes:
            raise InputError(
                "what a model is made of is known after method='blend', and after method='kin' with"
                " models that take steps. See helpers_ instead."
            )
        known = members(self.trust_)
        many = known.member.sum(axis=1)
        own = np.where(known.right & ~self.fallback_, 1.0 / (1 + many), 1.0)
        return pd.DataFrame(
            {
                "device": self.devices_,
                "kin": many,
                "own": own,
                "others": 1 - own,
                "found": known.right,
            }
        )

    def _note_halving(self, state: State, where: str) -> None:
        if state.pace.unlike:
            self.notes_.append(
                f"In {where} losses grew with every step size: the peers' answers do not fit, they"
                " are too unlike."
            )
        if state.pace.halved:
            first, now = state.pace.halved[0], state.pace.step_size
            self.notes_.append(
                f"In {where} the step size {first:g} made losses grow; it was halved until they"
                f" fell, to {now:g}."
            )

    def _pool(self, rows: Devices, kind: str) -> None:
        """One model for devices that were not there; it sees all rows, as a yardstick or by
        averaging steps.
        """
        self.pooled_ = None
        if self.unseen == "pooled":
            self.pooled_units_ = Units.of(
                rows, "shared" if kind == "centred" else kind, labels=self._scaled
            )
            self.pooled_ = pooled_fit(
                self.learner_, self.pooled_units_.inside(rows), self._seed
            )

    def _check_settings(self, n: int) -> None:
        if self.rounds != "auto":
            whole("rounds", self.rounds, least=1)
        one_of("units", self.units, ["auto", *KINDS])
        one_of("unseen", self.unseen, ["pooled", "error"])
        one_of("method", self.method, METHODS)
        if self.method not in ("auto", "paper") and self.adopter is not None:
            raise InputError(
                f"adopter belongs to method='paper'; method={self.method!r} brings its own. Leave"
                " one of them out."
            )
        if self.method in ("auto", "blend"):
            whole("budget", self.budget, least=1)
        foreign = loop_settings(self) if self.method == "blend" else []
        if foreign:
            raise InputError(
                f"{foreign[0]} belongs to method='paper' and 'kin'; method='blend' goes by budget."
                " Leave it out."
            )
        if real("holdout", self.holdout, least=0.0) >= 1:
            raise InputError(f"holdout must be a share below 1. Got {self.holdout}.")
        if self.window is not None:
            whole("window", self.window, least=1)
        if n > 1:
            peers_of(self.peers, n)
        if self.adopter is not None and (
            isinstance(self.adopter, type) or not callable(self.adopter)
        ):
            raise InputError(
                f"adopter must be a part such as TopK(4), or a function. Got {self.adopter!r}."
            )

    def _plan(self, rows: Devices, rounds: int | None = None) -> Plan:
        learner, public, classes = self.learner_, self.public_, self._classes
        n, features = len(rows), rows.features

        def proposer(step: float) -> Any:
            if has_gradients(learner):
                return GradientStep(step)
            assert public is not None  # made above for every learner without gradients
            return Refit(
                public,
                step_size=step,
                soft=bool(classes) and traits_of(learner).loss == "log",
            )

        sampler, adopter = (
            peers_of(self.peers, n),
            Best() if self.adopter is None else self.adopter,
        )
        if self.method_ == "kin":
            rule = kin(peers_asked(self.peers, n), steps=has_gradients(learner))
            sampler, adopter = rule.sampler, rule.adopter
        return Plan(
            learner,
            proposer,
            step_of(self.step_size, learner, features),
            sampler,
            adopter,
            self._rounds() if rounds is None else rounds,
            self._seed,
            self.n_jobs,
            self.compute,
        )

    def _units(self) -> str:
        if self.units != "auto":
            return self.units
        return "shared" if has_gradients(self.learner_) else "raw"

    def _public(self, rows: Devices, kind: str) -> Array | None:
        """Public points in the units of the run; None where the learner takes steps instead."""
        if has_gradients(self.learner_):
            return None
        if self.public is None or isinstance(self.public, (int, np.integer)):
            count = (
                POINTS if self.public is None else whole("public", self.public, least=1)
            )
            groups = self.preparation_.categories if self.preparation_ else []
            if kind == "centred":
                rows = Units.of(rows, "centred", labels=False).inside(rows)
                return public_points(rows, count, seed=self._seed)
            points = public_points(rows, count, seed=self._seed, categories=groups)
        else:
            points, _ = (
                self._matrix(self.public, None)
                if self.device is None
                else (self._public_table(), None)
            )
        if kind == "raw":
            return points
        shared = Units.of(rows, "shared", labels=False)
        return np.asarray(
            (points - shared.mean) / Units.of(rows, kind, labels=False).scale
        )

    def _public_table(self) -> Array:
        """Public points of a table that, unlike X, has no device column."""
        if self.preparation_ is not None:
            return self.preparation_(self.public)
        return np.asarray(
            validate_data(self, self.public, dtype=np.float64, reset=False)
        )

    def _learner(self, features: int) -> Any:
        base = self.estimator
        if base is None:
            return self._linear()
        if is_learner(base):
            kind = traits_of(base).loss
            if (traits_of(base).task == "classes") != bool(
                self._classes
            ) and kind != "own":
                want = "classes" if self._classes else "numbers"
                raise InputError(
                    f"{type(self).__name__} needs a learner with a loss for {want}. Got {base!r}."
                )
            if kind == "own" and self._classes:
                raise InputError(
                    "a loss of your own has no chances of classes: use loss='cross_entropy'. Got"
                    f" {base!r}."
                )
            return self._fitting(base, features) if kind == "cross_entropy" else base
        if not isinstance(base, type) and any(
            kind.__module__ == "torch.nn.modules.module" for kind in type(base).__mro__
        ):
            return self._network(partial(copy.deepcopy, base), features)
        if isinstance(base, BaseEstimator):
            learner = Estimator(base)
            if (learner.kind in ("log", "error")) != bool(self._classes):
                want = "classifier" if self._classes else "regressor"
                raise InputError(
                    f"{type(self).__name__} needs a {want} as its estimator. Got"
                    f" {type(base).__name__}."
                )
            return learner
        if callable(base) and not (
            isinstance(base, type) and issubclass(base, BaseEstimator)
        ):
            return self._network(
                partial(base, features, self._classes or 1)
                if takes_sizes(base)
                else base,
                features,
            )
        raise InputError(
            "estimator must be None (linear), a scikit-learn estimator, a torch module, a function"
            " of (features, outputs) that makes one, such as MLP(), or a persfl learner such as"
            f" Linear('huber'). Got {base!r}."
        )

    def _network(self, make: Any, features: int) -> Any:
        from persfl.learners import Network

        learner = Network(
            make, loss="cross_entropy" if self._classes else "squared", seed=self._seed
        )
        return self._fitting(learner, features)

    def _fitting(self, learner: Any, features: int) -> Any:
        """The network, if it has an output for every class or number."""
        width, wanted = learner.width_of_output(features), self._classes or 1
        if width != wanted:
            what = f"{wanted} classes" if self._classes else "a number"
            raise InputError(
                f"the module must give {wanted} output{'s' * (wanted > 1)} a row, for {what}. It"
                f" gives {width}."
            )
        return learner

    @property
    def helpers_(self) -> pd.DataFrame:
        """Who helps whom: device, peer, asked, adopted, share, reward mean and interval,
        verdict; most adopted first.
        """
        check_is_fitted(self, "models_")
        return helper_table(self.trust_, self.devices_.tolist())

    def coefficients(self) -> pd.DataFrame:
        """Every device's coefficients in the table's own units (linear models in shared or raw
        units).
        """
        check_is_fitted(self, "models_")
        if (
            not isinstance(self.learner_, Linear)
            or self.learner_.classes > 1
            or self.units_.kind == "centred"
        ):
            raise InputError(
                "coefficients exist for linear models with one score, in shared or raw units."
            )
        d, units = self.n_columns_, self.units_
        W = self.models_[:, :d] * units.label_scale / units.scale
        constant = self.models_[:, d] if self.learner_.intercept else np.zeros(len(W))
        constant = constant * units.label_scale + units.label_mean - W @ units.mean
        names = self._column_names()
        return pd.DataFrame(
            np.column_stack([W, constant]),
            index=self.devices_,
            columns=[*names, "intercept"],
        )

    @property
    def n_columns_(self) -> int:
        """How many numbers a row has once categories are encoded."""
        return len(self.units_.mean)

    def _column_names(self) -> list[str]:
        """What the numbers of a row are called once categories are encoded."""
        return (
            self._inputs() if self.preparation_ is None else self.preparation_.columns
        )

    def _inputs(self) -> list[str]:
        """What the columns of a table to predict are called."""
        names = list(
            getattr(
                self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)]
            )
        )
        return [str(name) for name in names]

    def _answers(self, X: Any, devices: Any) -> Array:
        check_is_fitted(self, "models_")
        matrix, devices = self._matrix(X, devices)
        owner = self._owners(devices, len(matrix))
        seen = owner >= 0
        if seen.all():
            return self._responses(matrix, owner)
        strangers = pd.unique(np.asarray(pd.Series(devices))[~seen]).tolist()
        if self.unseen == "error" or self.pooled_ is None:
            raise self._strange(strangers)
        warnings.warn(
            f"{many(int((~seen).sum()), 'row')} of {many(len(strangers), 'device')} that "
            f"{'was' if len(strangers) == 1 else 'were'} not there when fitting "
            f"({some(strangers)}): predicted by one model for all. unseen='error' refuses them.",
            UnseenWarning,
            stacklevel=3,
        )
        out = np.empty((len(matrix), self._classes) if self._classes else len(matrix))
        if seen.any():
            out[seen] = self._responses(matrix[seen], owner[seen])
        nobody = np.zeros(int((~seen).sum()), dtype=np.int64)
        units = self.pooled_units_
        found = respond(
            self.learner_,
            self.pooled_,
            units.features(matrix[~seen], nobody),
            self._classes,
        )
        out[~seen] = found if self._classes else units.outside(found, nobody)
        return out

    def _strange(self, strangers: list[Any]) -> InputError:
        """What to say of devices that have no model."""
        known = some(self.devices_.tolist())
        what = (
            f"{those(strangers, 'was', 'were')} not there when fitting. Known: {known}."
        )
        if self.unseen == "error":
            how = (
                "fit with unseen='pooled' (command line: --unseen pooled): one model for all"
                " newcomers"
            )
        else:
            how = "leave those rows out: this run has no model for newcomers"
        return InputError(f"{what} Fit again with their rows, or {how}.")

    def _responses(self, matrix: Array, owner: IntArray) -> Array:
        away = unknown(self.models_)
        if away[owner].any():
            raise InputError(
                f"the model of device {some(self.devices_[np.unique(owner[away[owner]])].tolist())}"
                " stayed at home. Predict there."
            )
        found = respond_each(
            self.learner_,
            self.models_,
            self.units_.features(matrix, owner),
            owner,
            self._classes,
        )
        return found if self._classes else self.units_.outside(found, owner)

    def _owners(self, devices: Any, rows: int) -> IntArray:
        """(rows,) positions in `devices_`, -1 for devices that were not there."""
        if devices is None:
            if len(self.devices_) == 1:
                return np.zeros(rows, dtype=np.int64)
            raise InputError(
                f"there are {len(self.devices_)} models. Say whose rows these are: predict(X,"
                " devices=...). If you did, a pipeline or a scorer of scikit-learn left it out:"
                " name the column instead (device=...), or switch on its metadata routing and use"
                " set_score_request(devices=True)."
            )
        codes, ids = device_codes(devices, rows)
        return np.asarray(self._places(ids)[codes])

    def _places(self, ids: Any) -> IntArray:
        """The positions of these ids in `devices_`, -1 for those that were not there."""
        known = {name: i for i, name in enumerate(self.devices_.tolist())}
        refuse_lookalikes(known, ids)
        return np.array([known.get(name, -1) for name in ids], dtype=np.int64)


def takes_sizes(make: Any) -> bool:
    """Whether this makes a module for so many features and outputs, or always the same one."""
    if not callable(make) or (
        hasattr(make, "parameters") and not isinstance(make, type)
    ):
        return False
    try:
        wanted = [
            p
            for p in inspect.signature(make).parameters.values()
            if p.default is p.empty and p.kind in (0, 1)
        ]
    except (TypeError, ValueError):
        return False
    return len(wanted) == 2


def refuse_lookalikes(known: dict[Any, int], ids: Any) -> None:
    """Stop where a device seems new only because its id is of another kind: 7 and '7'."""
    strangers = [name for name in ids if name not in known]
    if strangers:
        same = {str(name): name for name in known}
        twin = next((name for name in strangers if str(name) in same), None)
        if twin is not None:
            raise InputError(
                f"device {twin!r} is known as {same[str(twin)]!r}: the same id, but a"
                f" {type(twin).__name__} where a {type(same[str(twin)]).__name__} was used before."
                " Give ids of one kind."
            )


def id_array(ids: Any) -> Any:
    """Ids as an array; of objects where they are not all numbers or all texts."""
    ids = list(ids)
    plain = (
        np.array(ids)
        if len({type(name) for name in ids}) == 1 and not isinstance(ids[0], tuple)
        else None
    )
    if plain is not None and plain.ndim == 1 and plain.tolist() == ids:
        return plain
    kept = np.empty(len(ids), dtype=object)
    kept[:] = ids
    return kept
