"""Blend for networks, and for any other learner whose models are vectors that take gradient steps.

The same scheme with what applies, in shared units. Starting points are the module's own weights, one model for the other devices
("pooled"), the average over the nearest of them ("alike"), and what neighbours answer from there; from each, the device takes own
steps. All that a peer is asked for are gradient steps.

Models on the way from one start can be averaged: their mean predicts as well as the mean of their predictions does. Models from
different starts cannot. So a device's model is a list of (share, network), one per start at most, and predictions are mixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from persfl.blending.alike import seen_classes
from persfl.blending.descent import adam, nearest, pace, rows_of, together
from persfl.blending.evidence import missed, shares
from persfl.blending.folds import copies, fold_numbers, judged
from persfl.blending.heard import Heard
from persfl.blending.memory import Neighbours
from persfl.blending.offered import BLOCKS, CLASS_FOLDS, FOLDS, Blended, dealt, of_devices
from persfl.blending.part import Part
from persfl.blending.search import Asked
from persfl.devices import Devices
from persfl.predicting import respond_each
from persfl.proposers import GradientStep
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Array, Choice, Data, IntArray

RATE = 0.01  # of Adam, where the learner has none of its own
OWN, STEPS, SLOWER = (30, 150), (0, 10, 30, 100), 0.3  # own steps; those from another model are slower
POOLED, NEAR, FASTER = 100, 20, 3.0  # steps of averaged gradients; those of the nearest are questions, so few and fast
SHORTER, PEERS, ROUNDS, SHORT = 4, 10, 8, 5
WORSE = 4.0  # an answer that multiplies the own loss by more is put aside
ROOM = 2**26  # numbers of models and rows at a time


@dataclass(frozen=True, eq=False)
class Calm:
    """Neighbours; but answers that would multiply the own loss are nobody's, since steps of networks can run away.

    >>> rule = Calm(Neighbours(peers=2, known=3, rows=np.array([10.0]), noise=np.array([1.0])))
    >>> peers, losses = np.array([[0, 1]]), np.array([[1.0, 1e6, 7.0]])
    >>> trust = Trust(4, np.array([3]))
    >>> rule(trust.noted(rule.note(trust, 0, peers, losses, None)), peers, losses).stay.tolist()
    [1.0]
    """

    rule: Neighbours

    @property
    def sampler(self) -> Any:
        return self.rule.sampler

    def note(self, trust: Trust, r: int, peers: IntArray, losses: Array, kept: Any) -> dict[str, Any]:
        """As `Neighbours`."""
        return self.rule.note(trust, r, peers, _calm(losses), kept)

    def __call__(self, trust: Trust, peers: IntArray, losses: Array) -> Choice:
        return self.rule(trust, peers, _calm(losses))


def _calm(losses: Array) -> Array:
    return np.where(losses <= WORSE * losses[:, :1], losses, np.inf)


def blend_networks(
    rows: Devices, learner: Any, *, seed: int = 0, budget: int = 640, ordered: bool = False, classes: int = 0
) -> Blended:
    """A mix for every device: `models[i]` is a list of (share, model).

    >>> from functools import partial
    >>> from persfl.learners import MLP, Network
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=3, clusters=1, rows=8, features=2, seed=0)
    >>> found = blend_networks(devices, Network(partial(MLP((4,)), 2, 1), loss="squared"), budget=80)
    >>> len(found.models[0]) <= 4, round(sum(share for share, _ in found.models[0]), 6)
    (True, 1.0)
    """
    n, count = len(rows), BLOCKS if ordered else CLASS_FOLDS if classes else FOLDS
    fold = fold_numbers(rows, count, classes=classes, ordered=ordered, seed=seed)
    usable, group = judged(rows, fold, count), dealt(n, seed)
    heard = Heard(n, not classes)
    final: dict[tuple[str, int], Array] = {}
    lost: dict[tuple[str, int], Array] = {}
    for some in _bundles(learner, rows, group, count):
        mine = np.concatenate([np.flatnonzero(group == h) for h in some])
        parts = [
            Part(
                learner,
                of_devices(rows, np.flatnonzero(group != h)),
                copies(rows, fold, np.flatnonzero(group == h), count),
                stream(seed, "blend", h).integer(),
                max(1, budget * SHORTER // (count + 1)),
            )
            for h in some
        ]
        found, asked = offers(parts, classes)
        for h, one in zip(some, asked, strict=True):
            heard.add("shared", one.rounds, np.flatnonzero(group == h), np.flatnonzero(group != h), count + 1, 1.0)
        at = np.full(n, -1)
        at[mine] = np.arange(len(mine)) * (count + 1)
        here = at[rows.owner] >= 0
        judge = at[rows.owner[here]] + 1 + fold[here]
        for key, models in found.items():
            final.setdefault(key, np.empty((n, models.shape[1]), dtype=models.dtype))[mine] = models[:: count + 1]
            with np.errstate(all="ignore"):
                each = usable[here] * missed(respond_each(learner, models, rows.X[here], judge, classes), rows.y[here], classes)
            lost.setdefault(key, np.zeros(n))[mine] = np.bincount(rows.owner[here], weights=each, minlength=n)[mine]
    weight = np.bincount(rows.owner, weights=usable, minlength=n).astype(np.float64)
    mix = shares(np.stack(list(lost.values()), axis=1) / np.maximum(weight, 1e-12)[:, None], weight, relative=not classes)
    names = tuple(f"shared {kind} {steps}" for kind, steps in final)
    mixes = [_mixed({key: one[i] for key, one in final.items()}, mix[i].tolist()) for i in range(n)]
    return Blended(mixes, names, mix, heard.rounds(mix, names))


def offers(parts: list[Part], classes: int = 0) -> tuple[dict[tuple[str, int], Array], list[Asked]]:
    """(copies, size) per start and number of own steps, the groups one after the other; and what neighbours were asked.

    What needs nobody is computed for all groups at once: networks are many small calls otherwise.
    """
    learner, rate = parts[0].learner, getattr(parts[0].learner, "rate", RATE)
    own = Devices.joined([part.own for part in parts])
    data = own.gather(np.arange(len(own)))
    first = learner.init(data, stream(0, "start"))
    begin = np.cumsum([0, *(len(part.own) for part in parts)])
    one = together(learner, [part.others for part in parts], POOLED, rate, parts[0].seed)
    pooled = np.repeat(one, np.diff(begin), axis=0)
    near = [nearest(learner, part.others, part.own, (first[begin[h]], one[h]), part.seed) for h, part in enumerate(parts)]
    alike = _averaged(learner, parts, near, first, FASTER * rate)
    asked = []
    for h, part in enumerate(parts):
        step = pace(learner, part.others, one[h], SHORT, part.seed)
        asked.append(_asked(part, alike[begin[h] : begin[h + 1]], step))
    found = {("own", steps): models for steps, models in adam(learner, first, data, OWN, rate).items()}
    starts = {"pooled": pooled, "alike": alike, "neighbours": np.concatenate([each.models for each in asked])}
    thrice = Data(*(np.concatenate([getattr(data, name)] * len(starts)) for name in ("X", "y", "weight")))
    start = _at_home(learner, np.concatenate(list(starts.values())), thrice)
    ways = {"": adam(learner, start, thrice, STEPS, SLOWER * rate)}
    if classes and getattr(learner, "kind", "") == "cross_entropy":
        seen = seen_classes(thrice, classes)
        ways["-seen"] = adam(learner, start, thrice, STEPS[1:], SLOWER * rate, seen)
    for k, name in enumerate(starts):
        for way, marks in ways.items():
            found |= {(name + way, steps): models[k * len(own) : (k + 1) * len(own)] for steps, models in marks.items()}
    return {key: _at_home(learner, models, data) for key, models in found.items()}, asked


def _averaged(learner: Any, parts: list[Part], near: list[IntArray], start: Array, rate: float) -> Array:
    """(copies, size) from the module's start, step by step along the mean gradient of the nearest."""
    others = Devices.joined([part.others for part in parts])
    wide = min(each.shape[1] for each in near)  # groups may differ by a device
    shift = np.cumsum([0, *(len(part.others) for part in parts)])
    who = np.concatenate([each[:, :wide] + shift[h] for h, each in enumerate(near)])
    steps = max(1, min(NEAR, parts[0].asks // (2 * wide)))
    found = adam(learner, start, rows_of(others, who), (steps,), rate)[steps]
    return np.where(np.isfinite(found).all(axis=1, keepdims=True), found, start)


def _asked(part: Part, start: Array, step: float) -> Asked:
    """The ordinary search for neighbours, from the average over the nearest."""
    learner, own, known = part.learner, part.own, len(part.others)
    noise = None
    if not getattr(learner, "classifies", False):
        noise = learner.loss(start, own.gather(np.arange(len(own))))
    rule = Calm(Neighbours(max(1, min(PEERS, part.asks // 2 // (ROUNDS + 1), known // 2 or 1)), known, own.total, noise))
    return part.neighbours(GradientStep(step, steps=SHORT), rule, start, ROUNDS)


def _at_home(learner: Any, models: Array, data: Data) -> Array:
    """With running statistics of the device's own rows, where a module has any."""
    return np.asarray(learner.settled(models, data, momentum=1.0)) if getattr(learner, "renews", False) else models


def _bundles(learner: Any, rows: Devices, group: IntArray, count: int) -> list[list[int]]:
    """Groups to take together: as many as have room."""
    many, last = int(np.bincount(group).max()) * (count + 1), int(group.max())
    each = many * (30 * learner.size(rows.features) + 20 * int(rows.counts.max()) * rows.features) + 3 * rows.X.size
    step = max(1, ROOM // each)
    return [list(range(i, min(i + step, last + 1))) for i in range(0, last + 1, step)]


def _mixed(offered: dict[tuple[str, int], Array], mix: list[float]) -> list[tuple[float, Array]]:
    """Averaged along the way from each start, listed across starts."""
    ways: dict[str, list[tuple[float, Array]]] = {}
    for ((kind, _), model), share in zip(offered.items(), mix, strict=True):
        if share > 0:
            ways.setdefault(kind.removesuffix("-seen"), []).append((share, model))
    totals = {kind: sum(share for share, _ in way) for kind, way in ways.items()}
    return [
        (totals[kind], np.asarray(sum((share / totals[kind]) * model for share, model in way), dtype=way[0][1].dtype))
        for kind, way in ways.items()
    ]
