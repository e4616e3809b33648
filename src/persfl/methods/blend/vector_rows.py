"""What devices compute for a blend of networks, from their own rows; many at once in one process,
one alone at home.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.devices import Devices
from persfl.methods.blend.adam import descended
from persfl.methods.blend.folds import TargetRows
from persfl.methods.blend.moves_alike import seen_classes
from persfl.methods.blend.question_base import Question
from persfl.methods.blend.questions import Falls, GradientSteps, OwnRows, Slopes, Weigh
from persfl.methods.blend.site import Starts
from persfl.proposers import GradientStep
from persfl.seeds import stream
from persfl.traits import has_statistics, traits_of
from persfl.types import Array, Data, Differentiable, IntArray

if TYPE_CHECKING:
    from persfl.methods.blend.offers.descent import Descent


class VectorPeers:
    """Devices that answer."""

    def __init__(self, learner: Differentiable, rows: Devices) -> None:
        self.learner = learner
        self.rows = rows

    def answer(self, question: Question, who: IntArray) -> dict[str, Array]:
        """What each of these says; the question has an entry for every one."""
        data = self.rows.gather(who)
        if isinstance(question, Slopes):
            return {"answers": gradients_at(self.learner, question.models, data)}
        if isinstance(question, GradientSteps):
            step = GradientStep(question.step, steps=question.steps)
            models = as_models(self.learner, question.models)
            return {"answers": step.answer(self.learner, models, data, None)}
        assert isinstance(question, Falls)
        model = as_models(self.learner, question.model)
        models = np.broadcast_to(model, (len(who), len(model)))
        step = GradientStep(question.step, steps=question.steps)
        after = step.answer(self.learner, models, data, None)
        fell = self.learner.loss(after, data) < self.learner.loss(models, data)
        return {"falls": np.asarray(fell, dtype=np.float64)}


class VectorTargets:
    """Devices that judge what they are offered."""

    def __init__(self, family: Descent, own: TargetRows) -> None:
        self.family = family
        self.learner = family.learner
        self.own = own

    def answer(self, question: Question) -> dict[str, Array]:
        """What every copy says."""
        rows = self.own.copies
        data = rows.gather(np.arange(len(rows)))
        if isinstance(question, Weigh):
            shown = as_models(self.learner, question.models)
            with np.errstate(all="ignore"):
                each = [
                    self.learner.loss(one, data) for one in np.moveaxis(shown, 1, 0)
                ]
            losses = np.stack(each, axis=1).astype(np.float64)
            return {"losses": np.where(np.isfinite(losses), losses, np.inf)}
        assert isinstance(question, OwnRows)
        found = {"weight": rows.total}
        if question.models is not None:
            wide = (len(rows), question.models.shape[1])
            each = [np.broadcast_to(model, wide) for model in question.models]
            said = [gradients_at(self.learner, models, data) for models in each]
            found["answers"] = np.stack(said)
        return found

    def offers(self, starts: Starts) -> list[Array]:
        """(copies, size) per offer."""
        return offers_of(self.family, [self.own.copies], [starts])[0]

    def judged(self, offers: Sequence[Array]) -> tuple[Array, Array]:
        """(targets, offers) the mean loss over rows, each by the copy that has not seen its fold;
        (targets,) the weight judged.
        """
        told = [self.own.losses(self.learner, models) for models in offers]
        return np.stack(told, axis=1), self.own.total(self.own.usable)

    def whole(self, offers: Sequence[Array]) -> list[Array]:
        """(targets, size) per offer: what is made of all rows."""
        return self.own.whole(offers)


def offers_of(
    family: Descent,
    own: Sequence[Devices],
    starts: Sequence[Starts],
    longest: int = 0,
    places: Sequence[int] = (0,),
) -> list[list[Array]]:
    """Per group (copies, size) for every offer.

    Groups are computed together: networks are many small calls otherwise. Which go together makes
    no difference: what is drawn belongs to the group, and all devices are padded to the rows of
    the `longest`.
    """
    learner = family.learner
    chosen = family.settings.descent
    rate = family.rate
    rows = Devices.joined(list(own))
    data = padded(rows.gather(np.arange(len(rows))), longest)
    ends = np.cumsum([len(each) for each in own]).tolist()
    spans = [slice(lo, hi) for lo, hi in zip([0, *ends], ends, strict=False)]
    first = np.concatenate(
        [
            learner.init(_at(data, span), stream(place, "start"))
            for span, place in zip(spans, places, strict=True)
        ]
    )
    names = list(starts[0])
    begin = [
        np.broadcast_to(each[name], (len(part), first.shape[1]))
        for name in names
        for each, part in zip(starts, own, strict=True)
    ]
    times = stacked_rows([data] * len(names))
    start = with_statistics(learner, as_models(learner, np.concatenate(begin)), times)
    alone = descended(learner, first, data, chosen.own_steps, rate)
    found = {f"own {steps}": models for steps, models in alone.items()}
    slower = chosen.slower * rate
    marks = chosen.tuning_steps
    ways = {"": descended(learner, start, times, marks, slower)}
    if family.classes and traits_of(learner).loss == "cross_entropy":
        seen = seen_classes(times, family.classes)
        ways["-seen"] = descended(learner, start, times, marks[1:], slower, seen)
    for k, name in enumerate(names):
        mine = slice(k * len(rows), (k + 1) * len(rows))
        for way, after in ways.items():
            for steps, models in after.items():
                found[f"{name}{way} {steps}"] = models[mine]
    settled = [with_statistics(learner, found[name], data) for name in family.names()]
    return [[models[span] for models in settled] for span in spans]


def as_models(learner: Differentiable, numbers: Array) -> Array:
    """As the learner has them: networks may have fewer digits."""
    return np.asarray(numbers, dtype=getattr(learner, "dtype", numbers.dtype))


def gradients_at(learner: Differentiable, models: Array, data: Data) -> Array:
    """Gradients, each at its model."""
    found = learner.grad(as_models(learner, models), data)
    return np.asarray(found, dtype=np.float64)


def with_statistics(learner: Differentiable, models: Array, data: Data) -> Array:
    """With running statistics of the device's own rows, where a module has any."""
    if not has_statistics(learner):
        return models
    return np.asarray(learner.settled(models, data, momentum=1.0))


def _at(data: Data, which: slice) -> Data:
    return Data(data.X[which], data.y[which], data.weight[which])


def stacked_rows(parts: Sequence[Data]) -> Data:
    """One after the other along the first axis."""
    return Data(
        np.concatenate([part.X for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate([part.weight for part in parts]),
    )


def rows_of(others: Devices, near: IntArray, longest: int, wide: int) -> Data:
    """(copies, rows, features) the rows whose gradients these peers' mean gradient is of; every
    peer counts as much.

    Every peer is padded to `longest` rows, and those that are missing to `wide` of them have none.
    """
    near = np.pad(near, ((0, 0), (0, wide - near.shape[1])), constant_values=-1)
    data = padded(others.gather(near), longest)
    each = data.weight.sum(axis=-1, keepdims=True)
    weight = data.weight / np.where(each > 0, each, 1.0)
    return Data(
        data.X.reshape(len(near), -1, others.features),
        data.y.reshape(len(near), -1),
        weight.reshape(len(near), -1),
    )


def padded(data: Data, rows: int) -> Data:
    """At least so many rows; those added weigh nothing.

    >>> padded(Data(np.ones((2, 1)), np.ones(2)), 3).weight.tolist()
    [1.0, 1.0, 0.0]
    """
    more = rows - data.rows
    if more <= 0:
        return data
    none: list[Any] = [(0, 0)] * (data.y.ndim - 1)
    X = np.pad(data.X, [*none, (0, more), (0, 0)])
    y = np.pad(data.y, [*none, (0, more)])
    return Data(X, y, np.pad(data.weight, [*none, (0, more)]))
