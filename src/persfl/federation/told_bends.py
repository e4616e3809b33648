"""What devices tell in a blend of small models of classes: how it travels, and whether rows can be
behind it.

Nobody sees the rows. But what is summed over rows obeys laws. With W the weight of a device's rows
and s_i the sum of the squares of its column i: the slope of the log chance in column i is at most
the root of W s_i (Cauchy and Schwarz: no chance is missed by more than 1); and its curve has no
negative direction, and at most s_i / 4 on its diagonal. So a liar counts for no
more than its weight and squares, and those of ten usual devices are the most that anybody has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from persfl.learners.linear import Linear
from persfl.methods.blend.class_questions import (
    ClassBends,
    ClassFree,
    ClassMix,
    ClassNear,
    ClassPool,
)
from persfl.methods.blend.fixed_point import LONG, counted, middle_size
from persfl.methods.blend.forms import Form
from persfl.methods.blend.question_base import Question, reply_numbers
from persfl.methods.mixed.class_home import ClassHome
from persfl.methods.mixed.class_near import LIKELIEST
from persfl.methods.mixed.class_newton import Bend
from persfl.methods.mixed.class_offers import OWN, PULLS
from persfl.methods.mixed.hidden_rows import PARTS, folds_of
from persfl.methods.mixed.log_pool import PoolSums
from persfl.types import Array, IntArray
from persfl.wire.terms import Terms

ROUNDING = 1e-6  # of a share
FAR = 1e6  # no coefficient is larger, in shared units


class ToldColumns(NamedTuple):
    """What a device tells once: rows of each class, their weight, and squares of its columns."""

    counts: Array
    weight: float
    squares: Array


@dataclass(frozen=True, eq=False)
class BendsFamily:
    """Small linear models of classes, as `persfl.methods.blend.forms.ModelFamily`."""

    learner: Linear
    features: int
    classes: int
    views: ClassVar[tuple[str, ...]] = ()
    proposer: ClassVar[None] = None
    questions: ClassVar[tuple[type[Question], ...]] = (
        ClassBends,
        ClassFree,
        ClassNear,
        ClassPool,
        ClassMix,
    )

    @staticmethod
    def of(terms: Terms) -> BendsFamily:
        """Of a run."""
        return BendsFamily(terms.learner(), terms.features, max(terms.classes, 2))

    @property
    def level(self) -> bool:
        """Whether the last column is one of ones."""
        return self.learner.intercept

    @property
    def columns(self) -> int:
        """Of a model, that of ones as well."""
        return self.features + self.level

    @property
    def numbers(self) -> int:
        """Of a model: columns times classes."""
        return self.columns * self.classes

    def copies(self, ordered: bool) -> int:
        """All rows, and without each part that is hidden."""
        return 1 + len(folds_of(np.arange(PARTS), ordered=ordered))

    def names(self, near: bool) -> tuple[str, ...]:
        """What offers are called, in order."""
        level = ("level",) if self.level else ()
        own = (f"own {factor:g}" for factor in OWN)
        pulls = (f"pull {factor:g}" for factor in PULLS)
        close = ("near", "near, free") if near else ()
        return ("pooled", "even chances", *own, *level, *pulls, *close)

    def offers(self, near: bool) -> int:
        """How many there are."""
        return len(self.names(near))

    def start_forms(self) -> Mapping[str, Form]:
        """Nothing is offered to be judged at home but by its own questions."""
        return {}

    def models(self, flat: Array) -> Array:
        """Numbers along the last axis as columns and classes."""
        return flat.reshape(*flat.shape[:-1], self.columns, self.classes)

    def written(self, home: ClassHome, found: Bend) -> dict[str, Array]:
        """As arrays; `read` takes them back."""
        upper = np.triu_indices(self.numbers)
        return {
            "slope": found.slope,
            "curve": found.curve[:, *upper],
            "counts": home.counts,
            "weight": np.array([home.rows.weight.sum()]),
            "squares": home.squares,
        }

    def read_columns(self, told: Mapping[str, Any]) -> ToldColumns | None:
        """What is told once; None where no rows can be behind it."""
        counts = reply_numbers(told.get("counts"), (self.classes,))
        weight = float(reply_numbers(told.get("weight"), (1,))[0])
        squares = reply_numbers(told.get("squares"), (self.columns,))
        every = np.concatenate([counts, [weight], squares])
        if not np.isfinite(every).all() or (every < 0).any() or not weight > 0:
            return None
        if self.level and abs(squares[-1] - weight) > ROUNDING * weight:
            return None
        return ToldColumns(counts, weight, squares)

    def read(
        self, told: Mapping[str, Any], many: int, known: ToldColumns
    ) -> Bend | None:
        """Bends at so many models; None where no rows can be behind them."""
        upper = np.triu_indices(self.numbers)
        half = reply_numbers(told.get("curve"), (many, len(upper[0])))
        curve = np.zeros((many, self.numbers, self.numbers))
        curve[:, *upper] = half
        curve[:, *upper[::-1]] = half
        found = Bend(
            reply_numbers(told.get("slope"), (many, self.numbers)),
            curve,
        )
        return found if self._lawful(found, known) else None

    def _lawful(self, found: Bend, known: ToldColumns) -> bool:
        if not all(np.isfinite(each).all() for each in found):
            return False
        squares = np.repeat(known.squares, self.classes)
        room = ROUNDING * (1.0 + squares)
        diagonal = np.einsum("kii->ki", found.curve)
        steepest = np.sqrt(known.weight * squares)
        return bool(
            (np.abs(found.slope) <= steepest + room).all()
            and (diagonal <= squares / 4 + room).all()
            and np.linalg.eigvalsh(found.curve).min() >= -room.max()
        )

    def read_models(self, array: Any, copies: int) -> Array | None:
        """(copies, columns, classes) of a device; None where they are no models."""
        flat = reply_numbers(array, (copies, self.numbers), most=FAR)
        return self.models(flat) if np.isfinite(flat).all() else None

    def read_picked(
        self, told: Mapping[str, Any], copies: int, many: int
    ) -> tuple[IntArray, Array] | None:
        """Places among so many centres, and shares, (copies, some)."""
        shape = (copies, min(LIKELIEST, many))
        places = reply_numbers(told.get("places"), shape)
        share = reply_numbers(told.get("shares"), shape)
        whole = np.isin(places, np.arange(many)).all()
        if not whole or not (share >= 0).all():
            return None
        if (np.abs(share.sum(axis=1) - 1.0) > ROUNDING).any():
            return None
        return places.astype(np.int64), share

    def read_pool(
        self, told: Mapping[str, Any], offers: int
    ) -> tuple[float, PoolSums] | None:
        """The weight of hidden rows, and what they say."""
        upper = np.triu_indices(offers)
        half = reply_numbers(told.get("curve"), (len(upper[0]),))
        curve = np.zeros((offers, offers))
        curve[upper] = half
        curve[upper[::-1]] = half
        slope = reply_numbers(told.get("slope"), (offers,))
        weight = float(reply_numbers(told.get("weight"), (1,))[0])
        every = np.concatenate([[weight], slope, half])
        if not np.isfinite(every).all() or weight < 0:
            return None
        scale = 1.0 + float(np.abs(np.diag(curve)).max())
        if np.linalg.eigvalsh(curve).min() < -ROUNDING * scale:
            return None
        return weight, PoolSums(slope, curve)


def summed_bends(parts: Sequence[tuple[float, Bend]]) -> Bend:
    """Of devices that count for so much."""
    slope, curve = (
        np.sum([less * each[k] for less, each in parts], axis=0) for k in range(2)
    )
    return Bend(slope, curve)


def summed_pools(parts: Sequence[tuple[float, PoolSums]], offers: int) -> PoolSums:
    """Of devices that count for so much; nothing of nobody."""
    slope = np.zeros(offers)
    curve = np.zeros((offers, offers))
    for less, each in parts:
        slope = slope + less * each.slope
        curve = curve + less * each.curve
    return PoolSums(slope, curve)


def counting_bends(known: Mapping[int, ToldColumns]) -> dict[int, float]:
    """What the sums of each device are multiplied by: 1, or less for those that tell of more than
    ten usual devices have.
    """
    who = list(known)
    weight = np.array([known[i].weight for i in who])
    found = counted(weight) / weight
    if len(who) > 2:
        size = np.array([known[i].squares.sum() for i in who])
        found = np.minimum(found, _at_most(size))
    return dict(zip(who, found.tolist(), strict=True))


def counting_pools(told: Mapping[int, tuple[float, PoolSums]]) -> dict[int, float]:
    """The same for what hidden rows say of shares: nobody's say is that of more than ten usual
    devices, nor more than half of what all others say. With as much as all others one device
    decides, whatever they say.
    """
    who = list(told)
    if len(who) < 3:
        return dict.fromkeys(who, 1.0)
    # shares are 1 in all: what is said of all offers alike moves none
    slopes = [told[i][1].slope - told[i][1].slope.mean() for i in who]
    size = np.linalg.norm(slopes, axis=1)
    half = (size.sum() - size) / 2
    bend = np.array([np.trace(told[i][1].curve) for i in who])
    found = np.minimum(_at_most(size), _at_most(bend))
    found = np.minimum(found, half / np.maximum(np.maximum(size, half), 1e-300))
    return dict(zip(who, found.tolist(), strict=True))


def counted_classes(known: Mapping[int, ToldColumns]) -> Array:
    """(devices, classes) rows of each class, nobody with more than ten times the usual number."""
    counts = np.stack([each.counts for each in known.values()])
    return np.asarray(counts * _at_most(counts.sum(axis=1))[:, None])


def _at_most(size: Array) -> Array:
    """Ten times the middle one of those that are not 0 over each size; 1 for smaller ones.

    >>> _at_most(np.array([1.0, 2.0, 0.0, 40.0])).tolist()
    [1.0, 1.0, 1.0, 0.5]
    """
    some = size[size > 0]
    most = LONG * middle_size(some) if len(some) else 0.0
    return np.asarray(most / np.maximum(size, most)) if most > 0 else np.ones_like(size)
