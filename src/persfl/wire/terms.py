"""The terms of a run: everything a device must know to answer, as plain numbers and names.

Every message carries them, so that a device needs no memory to answer. They name a model family;
they never carry code.

>>> terms = Terms(model="linear", columns=("age", "dose"), step_size=0.05)
>>> again = Terms.from_wire(*terms.to_wire())
>>> again.learner() == terms.learner(), again.features
(True, 2)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from persfl.checks import one_of, real, whole
from persfl.errors import InputError
from persfl.learners.named import NAMES, learner_named
from persfl.learners.storage.named_arrays import (
    LARGE,
    AnyArray,
    Arrays,
    prefixed,
    under,
)
from persfl.proposers.gradient import GradientStep
from persfl.proposers.refit import Refit
from persfl.types import Array, Data
from persfl.wire.codec import LARGEST, WireError, finite

COLUMNS = 10_000
POINTS = 100_000
# Units in which rows overflow, and steps in which weights vanish, would say which rows are large.
SMALLEST = 1e-100
# What a target's first model is: the usual one of its family if None; zeros; a fit to its rows; or
# that fit as the method "own" has it, shrunk as far as leaving rows out says.
STARTS = ("zeros", "own", "alone")
OF_CLASSES = ("logistic", "multinomial")  # losses of linear models
_SETTINGS = {
    "linear": {"loss", "intercept", "l2", "delta"},
    "mlp": {"hidden", "activation", "loss", "dtype", "l2", "seed"},
    "ridge": {"alpha", "C"},
    "tree": {"max_depth"},
    "forest": {"n_estimators", "max_depth"},
    "boosting": {"n_estimators", "max_depth", "learning_rate"},
    "network": {"make", "loss", "shape", "dtype", "l2", "seed"},
    "any": set(),
}
_ARRAYS = ("mean", "scale", "public")
_PLAIN = (bool, int, float, str, type(None), list)  # what a setting may be on the wire
_LEAST = {"label_scale": SMALLEST, "label_mean": -LARGE, "step_size": SMALLEST}


@dataclass(frozen=True, eq=False, kw_only=True)
class Terms:
    """`columns` are the features in their order. `public` points make it Algorithm 2, in the units
    of the run; None is Algorithm 1.

    A row enters as `(x - mean) / scale`, its label as `(y - label_mean) / label_scale`. `holdout`
    is the share of each device's rows that the run never sees, to judge by at its end.
    """

    model: str = "linear"
    columns: tuple[str, ...]
    classes: int = 0
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    step_size: float = 0.05
    steps: int = 1
    batch: int | None = None
    soft: bool = False
    seed: int = 0
    start: str | None = None
    local: float | None = None
    holdout: float = 0.0
    mean: Array | None = None
    scale: Array | None = None
    label_mean: float = 0.0
    label_scale: float = 1.0
    public: Array | None = None

    def __post_init__(self) -> None:
        one_of("model", self.model, NAMES)
        odd = sorted(set(self.settings) - _SETTINGS[self.model])
        if odd:
            known = ", ".join(sorted(_SETTINGS[self.model])) or "none"
            raise InputError(
                f"settings of model {self.model!r} are {known}. Got {odd[0]!r}."
            )
        names = self.columns
        once = 1 <= len(set(names)) == len(names) <= COLUMNS
        if not once or not all(isinstance(name, str) for name in names):
            raise InputError("columns must be at least one name, each once.")
        whole("classes", self.classes, least=0, most=1000)
        # A device tells which losses are made of moments by this: there are none of classes.
        if self.model == "linear" and self.classes and "loss" in self.settings:
            one_of("loss", self.settings["loss"], OF_CLASSES)
        real("step_size", self.step_size, above=0)
        whole("steps", self.steps, least=1, most=10_000)
        if self.batch is not None:
            whole("batch", self.batch, least=1)
        whole("seed", self.seed, least=0, most=2**63 - 1)
        if self.start is not None:
            one_of("start", self.start, STARTS)
        if self.local is not None:
            real("local", self.local, above=0)
        if real("holdout", self.holdout, least=0.0) >= 1:
            raise InputError(f"holdout must be a share below 1. Got {self.holdout}.")
        real("label_mean", self.label_mean)
        real("label_scale", self.label_scale, above=0)

    @property
    def features(self) -> int:
        return len(self.columns)

    def learner(self) -> Any:
        """The model family."""
        return learner_named(
            self.model,
            features=self.features,
            classes=self.classes,
            settings=self.settings,
        )

    def proposer(self) -> GradientStep | Refit:
        """What peers do when asked."""
        if self.public is None:
            return GradientStep(self.step_size, self.steps, self.batch)
        return Refit(self.public, step_size=self.step_size, soft=self.soft or None)

    def own_step(self) -> GradientStep | None:
        """What a target does once a round on its own rows, if anything."""
        return None if self.local is None else GradientStep(self.local)

    def inside(self, data: Data) -> Data:
        """Rows in the units of the run."""
        X = data.X
        y = data.y
        if self.mean is not None and self.scale is not None:
            X = np.ascontiguousarray((X - self.mean) / self.scale)
        if self.label_scale != 1 or self.label_mean != 0:
            y = (y - self.label_mean) / self.label_scale
        return Data(X, y, data.weight)

    def to_wire(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """A head and arrays for `pack`."""
        more = {"columns": list(self.columns), "settings": dict(self.settings)}
        head = vars(self) | more
        found = {name: head.pop(name) for name in _ARRAYS}
        arrays = {name: array for name, array in found.items() if array is not None}
        return {"terms": head}, prefixed("terms.", arrays)

    @staticmethod
    def from_wire(head: Mapping[str, Any], arrays: Arrays) -> Terms:
        """The inverse of `to_wire`, for what somebody else sent."""
        words = head.get("terms")
        known = {field.name for field in dataclasses.fields(Terms)}.difference(_ARRAYS)
        if not isinstance(words, dict) or set(words) != known:
            raise _foreign()
        settings = words["settings"]
        if not isinstance(words["columns"], list) or not isinstance(settings, dict):
            raise _foreign()
        if not all(isinstance(value, _PLAIN) for value in settings.values()):
            raise _foreign()
        more = _arrays_from(under("terms.", arrays), len(words["columns"]))
        classes = words["classes"]
        # chances count a point once per class
        room = more["public"].nbytes if "public" in more else 0
        if isinstance(classes, int) and room * classes > LARGEST:
            raise WireError("public points, once per class, must fit into a message.")
        for name, least in _LEAST.items():
            value = words[name]
            if not isinstance(value, (int, float)) or not least <= value <= LARGE:
                raise WireError(f"{name} must be a number of a sensible size.")
        try:
            return Terms(**words | {"columns": tuple(words["columns"])} | more)
        except (TypeError, ValueError):  # InputError is a ValueError
            raise WireError(
                "the terms of the run are outside what persfl knows."
            ) from None


def _arrays_from(arrays: Arrays, features: int) -> dict[str, Array]:
    """The arrays of the terms, in their shapes and with finite numbers."""
    found: dict[str, Array] = {}
    for name in ("mean", "scale"):
        if name in arrays:
            found[name] = finite(arrays[name], (features,))
    if "scale" in found and not (found["scale"] >= SMALLEST).all():
        raise WireError(f"scales must be at least {SMALLEST:g}.")
    if "public" in arrays:
        public = arrays["public"]
        points = min(len(public), POINTS) if public.ndim else 0
        found["public"] = finite(public, (points, features))
    return found


def _foreign() -> WireError:
    return WireError("the terms of the run are not in the wire format.")
