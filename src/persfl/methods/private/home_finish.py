"""The last step of a private run, at home: what came from outside is weighed by own rows.

Own rows need no noise where nobody else sees them. From outside come a model for all and models of
others (a bank), of which own rows choose those that fit. Offers are the model of own rows, each of
the two from outside, and own rows shrunk toward it; own rows that were left out say how much of
each to take (`persfl.methods.mixed.stacking`), and before they have said much, half is own.
What comes from outside must not be made of own rows: those that were left out would be in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.rivals import own_fits, tuned_fits
from persfl.learners.linear import Linear
from persfl.learners.shrunk import pulled_toward, shrunk, strength_for
from persfl.methods.mixed.stacking import shares_of
from persfl.proposers.gradient import GradientStep
from persfl.seeds import stream
from persfl.training.state import rounds_for, step_of
from persfl.traits import has_gradients
from persfl.types import Array, Data, Differentiable, IntArray, Learner

FOLDS = 10
# standard errors by which a mix must do better than own rows alone: where noise may be most of
# what was told, and elsewhere
CLEARLY = 2.0
PLAINLY = 1.0


class Outside(NamedTuple):
    """What a device is told: `common` (devices, size) a model for each that others' rows led to,
    and `bank` (models, size) models of everybody, of which that at a device's own place is not
    used; none where there is no bank. `doubt`: by how many standard errors a mix must do better
    than own rows alone.
    """

    common: Array
    bank: Array | None = None
    doubt: float = CLEARLY


def finished_at_home(
    learner: Learner, rows: Devices, told: Outside, seed: int
) -> Array:
    """(devices, size) each device's model, from its own rows and what it is told.

    Every device does this for itself: nothing here goes from one to another.

    >>> from persfl import Linear
    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=3, rows=4, features=2, noise=0.1, seed=0)
    >>> finished_at_home(Linear(), rows, Outside(np.zeros((3, 2))), seed=0).shape
    (3, 2)
    """
    if isinstance(learner, Linear):
        return _linear(learner, rows, told, seed)
    assert has_gradients(learner)
    return _network(learner, rows, told.common, seed)


def _linear(learner: Linear, rows: Devices, told: Outside, seed: int) -> Array:
    """Linear models are mixed: a mean of models says about the mean of what they say."""
    n = len(rows)
    fold = _folds(rows, seed)
    hidden = np.zeros(len(fold), dtype=bool)
    shrink = _Shrinking.of(learner, rows, told)
    missed = _missed(learner, rows, shrink.offers(rows))
    for k in range(FOLDS):
        hide = fold == k
        left = np.bincount(rows.owner, rows.weight * ~hide, minlength=n)
        hide &= left[rows.owner] > 0  # whoever has no other row hides none
        if hide.any():
            learn = _weighed(rows, rows.weight * ~hide)
            found = _missed(learner, rows, shrink.offers(learn))
            missed[hide] = found[hide]
            hidden |= hide
    offers = shrink.offers(rows)
    models = np.empty_like(told.common)
    for i in range(n):
        mine = slice(rows.start[i], rows.start[i + 1])
        weight = rows.weight[mine] * hidden[mine]
        models[i] = _shares(missed[mine], weight, told.doubt) @ offers[:, i]
    return models


def _shares(missed: Array, weight: Array, doubt: float) -> Array:
    """(offers,) how much to take of each; own rows alone (the first) unless left-out rows say
    that a mix does better, and by so many standard errors.
    """
    own = np.zeros(missed.shape[1])
    own[0] = 1.0
    count = float(weight.sum())
    if (weight > 0).sum() < 2:
        return own
    crossed = np.einsum("r,roc,rpc->op", weight, missed, missed)
    found = shares_of(crossed, count, 0)
    mixed = np.einsum("o,roc->rc", found, missed)
    gain = (missed[:, 0] ** 2 - mixed**2).sum(axis=1)
    mean = float(weight @ gain) / count
    spread = float(weight @ (gain - mean) ** 2) / count
    sure = mean > doubt * np.sqrt(spread / max((weight > 0).sum() - 1, 1))
    return found if sure else own


def _folds(rows: Devices, seed: int) -> IntArray:
    """(rows,) which rows are left out together: with few rows one at a time."""
    luck = stream(seed, "left out").at(np.arange(len(rows.y))).uniform()
    order = np.lexsort((luck, rows.owner))
    within = np.arange(len(order)) - rows.start[rows.owner]
    found = np.empty(len(order), dtype=np.int64)
    found[order] = within % FOLDS
    return found


class _Shrinking(NamedTuple):
    """How each device shrinks: of other losses than squared by strengths that its own rows chose,
    one toward zero and one toward the model for all.
    """

    learner: Linear
    told: Outside
    strengths: Array

    @staticmethod
    def of(learner: Linear, rows: Devices, told: Outside) -> _Shrinking:
        """By these rows, each device for itself."""
        if learner.kind == "squared":
            return _Shrinking(learner, told, np.zeros((2, len(rows))))
        common = told.common[0]
        each = [
            [strength_for(learner, _one(rows, i), anchor) for i in range(len(rows))]
            for anchor in (np.zeros_like(common), common)
        ]
        return _Shrinking(learner, told, np.array(each))

    def offers(self, rows: Devices) -> Array:
        """(offers, devices, size) own rows, models from outside, and between."""
        common = self.told.common
        anchors = [common]
        if self.told.bank is not None:
            anchors.append(_likeliest(self.learner, rows, self.told.bank))
        found = [self._shrunk(rows, np.zeros_like(common), self.strengths[0])]
        for anchor in anchors:
            found += [anchor, self._shrunk(rows, anchor, self.strengths[1])]
        return np.stack(found)

    def _shrunk(self, rows: Devices, anchor: Array, strength: Array) -> Array:
        """Own rows shrunk toward a model of each device's own."""
        learner = self.learner
        if learner.kind == "squared":
            said = learner.scores(anchor[rows.owner], rows.X[:, None])[:, 0]
            rest = Devices(rows.X, rows.y - said, rows.weight, rows.start, rows.ids)
            return anchor + shrunk(learner, rest)
        # steps lead to one model for all
        data = rows.gather(np.arange(len(rows)))
        return pulled_toward(learner, data, anchor[0], strength)


def _likeliest(learner: Linear, rows: Devices, bank: Array) -> Array:
    """(devices, size) the mean of others' models, each as likely as own rows make it."""
    found = []
    for i in range(len(rows)):
        data = rows[i]
        losses = np.asarray(learner.loss(bank, _repeated(data, len(bank))))
        if len(bank) > 1 and len(rows) == len(bank):
            losses[i] = np.inf
        least = float(losses.min())
        count = float(data.weight.sum())
        # of squared loss the noise is what the best leaves; others are likelihoods themselves
        unit = 2.0 * max(least, 1e-300) if learner.kind == "squared" else 1.0
        chance = np.exp(-count * np.minimum((losses - least) / unit, 700.0))
        found.append(chance @ bank / chance.sum())
    return np.stack(found)


def _repeated(data: Data, times: int) -> Data:
    """The same rows so many times, without copies."""
    parts = (data.X, data.y, data.weight)
    wide = (np.broadcast_to(each, (times, *each.shape)) for each in parts)
    return Data(*wide)


def _missed(learner: Linear, rows: Devices, offers: Array) -> Array:
    """(rows, offers, outputs) what offers leave of labels."""
    said = [
        learner.predict(models[rows.owner], rows.X[:, None])[:, 0] for models in offers
    ]
    found = np.stack(said, axis=1)
    if learner.kind != "multinomial":
        with np.errstate(over="ignore"):
            return np.clip(found - rows.y[:, None], -1e6, 1e6)[..., None]
    truth = rows.y[:, None, None] == np.arange(learner.classes)
    return np.asarray(found - truth)


def _network(learner: Differentiable, rows: Devices, common: Array, seed: int) -> Array:
    """Networks cannot be mixed: of own fit, the model for all and that refined, the one that
    left-out rows like best; a tie is for own rows.
    """
    n = len(rows)
    part = _folds(rows, seed) % 2
    found = []
    for i in range(n):
        mine = _one(rows, i)
        half = part[rows.start[i] : rows.start[i + 1]] == 0
        losses = np.zeros(3)
        for hide in (half, ~half):
            if hide.all() or not hide.any():
                continue
            learn = _weighed(mine, mine.weight * ~hide)
            judge = Data(mine.X, mine.y, mine.weight * hide)
            offers = _tuned(learner, learn, common[i], seed)
            losses += [float(learner.loss(model, judge)) for model in offers]
        best = int(np.argmin(np.nan_to_num(losses, nan=np.inf)))
        found.append(_tuned(learner, mine, common[i], seed)[best])
    return np.stack(found)


def _tuned(
    learner: Differentiable, rows: Devices, common: Array, seed: int
) -> Sequence[Array]:
    step = step_of("auto", learner, rows.features)
    steps = GradientStep(step, steps=rounds_for("auto", learner))
    own = np.asarray(own_fits(learner, rows, seed)[0])
    tuned = np.asarray(tuned_fits(learner, rows, common, None, steps, seed)[0])
    return [own, common, tuned]


def _weighed(rows: Devices, weight: Array) -> Devices:
    return Devices(rows.X, rows.y, weight, rows.start, rows.ids)


def _one(rows: Devices, i: int) -> Devices:
    """One device alone."""
    data = rows[i]
    start = np.array([0, data.rows])
    return Devices(data.X, data.y, data.weight, start, [rows.ids[i]])
