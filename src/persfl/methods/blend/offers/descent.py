"""Blend for networks, and for any other learner whose models are vectors that take gradient steps.

The same scheme with what applies, in shared units. Starting points are the module's own weights,
one model for the other devices ("pooled"), the average over the nearest of them ("alike"), and what
neighbours answer from there; from each, the device takes own steps. All that a peer is asked for
are gradient steps.

Models on the way from one start can be averaged: their mean predicts as well as the mean of their
predictions does. Models from different starts cannot. So a device's model is a list of (share,
network), one per start at most, and predictions are mixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.learners.responses import respond_each
from persfl.methods.blend.adam import (
    LONGEST,
    PACES,
    adam,
    nearest,
    pace,
    padded,
    rows_of,
    together,
)
from persfl.methods.blend.budget import ASKED, SHORTER, affordable, some_of
from persfl.methods.blend.evidence import missed, shares
from persfl.methods.blend.folds import copies, fold_numbers, judged
from persfl.methods.blend.likeness import NEAREST, seen_classes
from persfl.methods.blend.mixture import (
    BLOCKS,
    CLASS_FOLDS,
    FOLDS,
    Blended,
    dealt,
    of_devices,
)
from persfl.methods.blend.neighbours import Neighbours
from persfl.methods.blend.record import Heard
from persfl.methods.blend.search import Asked, unpaid
from persfl.methods.blend.vector_group import Part
from persfl.proposers import GradientStep
from persfl.seeds import stream
from persfl.traits import has_statistics, traits_of
from persfl.trust import Trust
from persfl.types import Array, Choice, Data, Differentiable, IntArray

RATE = 0.01  # of Adam, where the learner has none of its own
# own steps; those from another model are slower
OWN, STEPS, SLOWER = (30, 150), (0, 10, 30, 100), 0.3
# steps of averaged gradients; those of the nearest are questions, so few and fast
POOLED, NEAR, FASTER = 100, 20, 3.0
PEERS, ROUNDS, SHORT = 10, 8, 5
PACED = 100  # devices at most that show how long steps may be
WORSE = 4.0  # an answer that multiplies the own loss by more is put aside
ROOM = 2**26  # numbers of models and rows at a time


@dataclass(frozen=True, eq=False)
class Calm:
    """Neighbours; but answers that would multiply the own loss are nobody's, since steps of
    networks can run away.

    >>> rule = Calm(
    ...     Neighbours(peers=2, known=3, rows=np.array([10.0]), noise=np.array([1.0]))
    ... )
    >>> peers, losses = np.array([[0, 1]]), np.array([[1.0, 1e6, 7.0]])
    >>> trust = Trust(4, np.array([3]))
    >>> rule(
    ...     trust.noted(rule.note(trust, 0, peers, losses, None)), peers, losses
    ... ).stay.tolist()
    [1.0]
    """

    rule: Neighbours

    @property
    def sampler(self) -> Any:
        return self.rule.sampler

    def note(
        self, trust: Trust, r: int, peers: IntArray, losses: Array, kept: Any
    ) -> dict[str, Any]:
        """As `Neighbours`."""
        return self.rule.note(trust, r, peers, _calm(losses), kept)

    def __call__(self, trust: Trust, peers: IntArray, losses: Array) -> Choice:
        return self.rule(trust, peers, _calm(losses))


def _calm(losses: Array) -> Array:
    return np.where(losses <= WORSE * losses[:, :1], losses, np.inf)


def blend_networks(
    rows: Devices,
    learner: Differentiable,
    *,
    seed: int = 0,
    budget: int = 640,
    ordered: bool = False,
    classes: int = 0,
) -> Blended:
    """A mix for every device: `models[i]` is a list of (share, model).

    >>> from functools import partial
    >>> from persfl.learners import MLP, Network
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=3, clusters=1, rows=8, features=2, seed=0)
    >>> found = blend_networks(
    ...     devices, Network(partial(MLP((4,)), 2, 1), loss="squared"), budget=80
    ... )
    >>> len(found.models[0]) <= 4, round(sum(share for share, _ in found.models[0]), 6)
    (True, 1.0)
    """
    n, count = len(rows), BLOCKS if ordered else CLASS_FOLDS if classes else FOLDS
    fold = fold_numbers(rows, count, classes=classes, ordered=ordered, seed=seed)
    usable, group = judged(rows, fold, count), dealt(n, seed)
    heard = Heard(n, not classes)
    final: dict[tuple[str, int], Array] = {}
    lost: dict[tuple[str, int], Array] = {}
    missing: set[str] = set()
    longest = int(rows.counts.max())
    for some in _bundles(learner, rows, group, count):
        mine = np.concatenate([np.flatnonzero(group == h) for h in some])
        parts = [
            Part(
                learner,
                of_devices(rows, np.flatnonzero(group != h)),
                copies(rows, fold, np.flatnonzero(group == h), count),
                stream(seed, "blend", h).integer(),
                float(budget * SHORTER),
                copies=count + 1,
            )
            for h in some
        ]
        found, asked = offers(parts, classes, longest)
        for h, one in zip(some, asked, strict=True):
            missing |= one.missing
            heard.add(
                "shared",
                one.rounds,
                np.flatnonzero(group == h),
                np.flatnonzero(group != h),
                count + 1,
                1.0,
            )
        at = np.full(n, -1)
        at[mine] = np.arange(len(mine)) * (count + 1)
        for key, models in found.items():
            final.setdefault(key, np.empty((n, models.shape[1]), dtype=models.dtype))[
                mine
            ] = models[:: count + 1]
            for h in some:
                here = np.flatnonzero(group[rows.owner] == h)
                judge = at[rows.owner[here]] + 1 + fold[here]
                with np.errstate(all="ignore"):
                    said = respond_each(learner, models, rows.X[here], judge, classes)
                    each = usable[here] * missed(said, rows.y[here], classes)
                sums = np.bincount(rows.owner[here], weights=each, minlength=n)
                lost.setdefault(key, np.zeros(n))[group == h] = sums[group == h]
    weight = np.bincount(rows.owner, weights=usable, minlength=n).astype(np.float64)
    paid = [key for key in lost if key[0].removesuffix("-seen") not in missing]
    told = (
        np.stack([lost[key] for key in paid], axis=1)
        / np.maximum(weight, 1e-12)[:, None]
    )
    mix = shares(told, weight, relative=not classes)
    names = tuple(f"shared {kind} {steps}" for kind, steps in paid)
    mixes = [
        _mixed({key: final[key][i] for key in paid}, mix[i].tolist()) for i in range(n)
    ]
    return Blended(mixes, names, mix, heard.rounds(mix, names))


class Paid(NamedTuple):
    """What a group's budget pays; all its questions are about gradient steps."""

    fleet: int  # devices that tell what the fleet is like
    peers: int  # that a copy asks in a round of the search
    near: int  # questions of a copy to the nearest

    @staticmethod
    def by(part: Part) -> Paid:
        """Every target bears its part of the averaged gradients; its copies share what is left."""
        known = len(part.others)
        # with two gradients that tell who is alike, and how long steps may be
        each = POOLED + 2 + PACES
        fleet = affordable(part.budget, part.targets, min(known, ASKED), each)
        if not fleet:
            return Paid(0, 0, 0)
        left = int((part.budget - each * fleet / part.targets) / part.copies)
        # the first round asks twice as many
        peers = min(PEERS, left // 2 // (ROUNDS + 1), known // 2 or 1)
        return Paid(fleet, peers, left - peers * (ROUNDS + 1))


def offers(
    parts: list[Part], classes: int = 0, longest: int = 0
) -> tuple[dict[tuple[str, int], Array], list[Asked]]:
    """(copies, size) per start and number of own steps, the groups one after the other; and what
    neighbours were asked.

    What needs nobody is computed for all groups at once: networks are many small calls otherwise.
    Which groups are taken together makes no difference: what is drawn belongs to the group, and all
    devices are padded to the rows of the `longest`.
    """
    learner, rate = parts[0].learner, getattr(parts[0].learner, "rate", RATE)
    own = Devices.joined([part.own for part in parts])
    data = padded(own.gather(np.arange(len(own))), longest)
    spans = _spans(parts)
    begun = [
        learner.init(_at(data, span), stream(part.seed, "start"))
        for part, span in zip(parts, spans, strict=True)
    ]
    first = np.concatenate(begun)
    starts, asked = _starts(parts, first, rate, longest)
    found = {
        ("own", steps): models
        for steps, models in adam(learner, first, data, OWN, rate).items()
    }
    thrice = Data(
        *(
            np.concatenate([getattr(data, name)] * len(starts))
            for name in ("X", "y", "weight")
        )
    )
    start = _at_home(learner, np.concatenate(list(starts.values())), thrice)
    ways = {"": adam(learner, start, thrice, STEPS, SLOWER * rate)}
    if classes and traits_of(learner).loss == "cross_entropy":
        seen = seen_classes(thrice, classes)
        ways["-seen"] = adam(learner, start, thrice, STEPS[1:], SLOWER * rate, seen)
    for k, name in enumerate(starts):
        for way, marks in ways.items():
            found |= {
                (name + way, steps): models[k * len(own) : (k + 1) * len(own)]
                for steps, models in marks.items()
            }
    return {
        key: _at_home(learner, models, data) for key, models in found.items()
    }, asked


def _starts(
    parts: list[Part], first: Array, rate: float, longest: int
) -> tuple[dict[str, Array], list[Asked]]:
    """(copies, size) per start, asked of the others; the module's own weights where it is not
    paid.
    """
    learner, spans = parts[0].learner, _spans(parts)
    paid = [Paid.by(part) for part in parts]
    pooled, alike = first.copy(), first.copy()
    steps = [0] * len(parts)
    paces = [LONGEST] * len(parts)
    near: dict[int, IntArray] = {}
    for h in [h for h, each in enumerate(paid) if each.fleet]:
        part, many = parts[h], paid[h].fleet
        some = of_devices(part.others, _drawn(part, many, "together"))
        model = together(learner, some, POOLED, rate, part.seed)
        pooled[spans[h]] = model
        near[h] = nearest(
            learner,
            part.others,
            part.own,
            (first[spans[h]][0], model),
            _drawn(part, many, "alike"),
        )
        steps[h] = min(NEAR, paid[h].near // near[h].shape[1])
        paces[h] = pace(
            learner, part.others, model, SHORT, _drawn(part, many, "pace")[:PACED]
        )
    for count in sorted(set(steps) - {0}):
        these = [h for h in near if steps[h] == count]
        at = np.concatenate([np.arange(len(first))[spans[h]] for h in these])
        rows = [rows_of(parts[h].others, near[h], longest, NEAREST) for h in these]
        alike[at] = _averaged(learner, rows, first[at], count, FASTER * rate)
    asked = []
    for h, part in enumerate(parts):
        search = _asked(part, paid[h].peers, alike[spans[h]], paces[h])
        missing = {
            "pooled": not paid[h].fleet,
            "alike": not steps[h],
            "neighbours": not paid[h].peers,
        }
        asked.append(search._replace(missing=unpaid(missing)))
    return {
        "pooled": pooled,
        "alike": alike,
        "neighbours": np.concatenate([each.models for each in asked]),
    }, asked


def _drawn(part: Part, many: int, what: str) -> IntArray:
    return some_of(len(part.others), many, stream(part.seed, what))


def _spans(parts: list[Part]) -> list[slice]:
    """Where each group's copies stand."""
    ends = np.cumsum([len(part.own) for part in parts]).tolist()
    return [slice(lo, hi) for lo, hi in zip([0, *ends], ends, strict=False)]


def _at(data: Data, which: slice) -> Data:
    return Data(data.X[which], data.y[which], data.weight[which])


def _averaged(
    learner: Differentiable, rows: list[Data], start: Array, steps: int, rate: float
) -> Array:
    """(copies, size) step by step along the mean gradient of the nearest, whose rows these are."""
    data = Data(
        *(
            np.concatenate([getattr(each, name) for each in rows])
            for name in ("X", "y", "weight")
        )
    )
    found = adam(learner, start, data, (steps,), rate)[steps]
    return np.where(np.isfinite(found).all(axis=1, keepdims=True), found, start)


def _asked(part: Part, peers: int, start: Array, step: float) -> Asked:
    """The ordinary search for neighbours, from the average over the nearest."""
    learner, own, known = part.learner, part.own, len(part.others)
    noise = None
    if not traits_of(learner).chances:
        noise = learner.loss(start, own.gather(np.arange(len(own))))
    rule = Calm(Neighbours(peers, known, own.total, noise))
    return part.neighbours(
        GradientStep(step, steps=SHORT), rule, start, ROUNDS if peers else 1
    )


def _at_home(learner: Differentiable, models: Array, data: Data) -> Array:
    """With running statistics of the device's own rows, where a module has any."""
    return (
        np.asarray(learner.settled(models, data, momentum=1.0))
        if has_statistics(learner)
        else models
    )


def _bundles(
    learner: Differentiable, rows: Devices, group: IntArray, count: int
) -> list[list[int]]:
    """Groups to take together: as many as have room."""
    many, last = int(np.bincount(group).max()) * (count + 1), int(group.max())
    each = (
        many
        * (
            30 * learner.size(rows.features)
            + 20 * int(rows.counts.max()) * rows.features
        )
        + 3 * rows.X.size
    )
    step = max(1, ROOM // each)
    return [list(range(i, min(i + step, last + 1))) for i in range(0, last + 1, step)]


def _mixed(
    offered: dict[tuple[str, int], Array], mix: list[float]
) -> list[tuple[float, Array]]:
    """Averaged along the way from each start, listed across starts."""
    ways: dict[str, list[tuple[float, Array]]] = {}
    for ((kind, _), model), share in zip(offered.items(), mix, strict=True):
        if share > 0:
            ways.setdefault(kind.removesuffix("-seen"), []).append((share, model))
    totals = {kind: sum(share for share, _ in way) for kind, way in ways.items()}
    return [
        (
            totals[kind],
            np.asarray(
                sum((share / totals[kind]) * model for share, model in way),
                dtype=way[0][1].dtype,
            ),
        )
        for kind, way in ways.items()
    ]
