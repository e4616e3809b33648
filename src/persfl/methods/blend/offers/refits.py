"""Blend for learners that only refit: trees, forests, boosting, any scikit-learn model.

The same scheme with what applies: own rows, one model for the other devices, that model refitted to
own rows (Algorithm 2's question to oneself), and what neighbours answer, with and without own rows.
Such models cannot be averaged, so a mix is a list of (share, model), and predictions are mixed.
Refitted models vary a lot, and the mean of several varies less than any one of them: so even mixes
of the offers that know own rows are judged beside them, and what shares they get are shared out
among their parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.learners.responses import respond
from persfl.methods.blend.budget import affordable, some_of
from persfl.methods.blend.evidence import LEAST, missed, shares
from persfl.methods.blend.folds import copies, fold_numbers, judged
from persfl.methods.blend.mixture import (
    BLOCKS,
    CLASS_FOLDS,
    FOLDS,
    GROUPS,
    Blended,
    dealt,
    of_devices,
)
from persfl.methods.blend.neighbours import Neighbours
from persfl.methods.blend.record import Heard
from persfl.methods.blend.vector_group import Part
from persfl.proposers import Refit
from persfl.seeds import stream
from persfl.traits import traits_of
from persfl.trust import Trust
from persfl.types import Array, Choice, Data, IntArray, Learner

STEPS = (1.0, 10.0)  # weight of own rows against the public points
# offers, as `_names` has them: all that know own rows; own and one refit of others'
EVENLY = ([0, 2, 3, 5, 6], [0, 3], [0, 6])
PEERS, ROUNDS, TOGETHER = 5, 3, 8


@dataclass(frozen=True, eq=False)
class One:
    """Of what neighbours answer, the answer of the one that has fitted best so far."""

    rule: Neighbours

    @property
    def sampler(self) -> Any:
        return self.rule.sampler

    def note(self, *seen: Any) -> Any:
        """As `Neighbours`."""
        return self.rule.note(*seen)

    def __call__(self, trust: Trust, peers: IntArray, losses: Array) -> Choice:
        found = self.rule(trust, peers, losses)
        if not found.peers.shape[1]:
            return found
        best = found.weights.argmax(axis=1)[:, None]
        who = np.take_along_axis(found.peers, best, axis=1)
        return Choice(
            who, (who >= 0).astype(np.float64), (who[:, 0] < 0).astype(np.float64)
        )


def blend_refits(
    rows: Devices,
    learner: Learner,
    public: Array,
    *,
    seed: int = 0,
    budget: int = 640,
    ordered: bool = False,
    classes: int = 0,
    n_jobs: int | None = 1,
) -> Blended:
    """A mix for every device: `models[i]` is a list of (share, model).

    >>> from persfl import Tree
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=9, clusters=1, rows=8, features=2, seed=0)
    >>> found = blend_refits(
    ...     devices, Tree(2), np.random.default_rng(0).normal(size=(20, 2))
    ... )
    >>> round(sum(share for share, _ in found.models[0]), 6)
    1.0
    """
    n, count = len(rows), BLOCKS if ordered else CLASS_FOLDS if classes else FOLDS
    fold = fold_numbers(rows, count, classes=classes, ordered=ordered, seed=seed)
    usable, group = judged(rows, fold, count), dealt(n, seed)
    soft = bool(classes) and traits_of(learner).loss == "log"
    heard, paid = Heard(n, not classes), Paid.by(n, count + 1, budget)
    names = tuple(_names()[k] for k in paid.offers)
    evenly = paid.evenly
    final: list[list[Any]] = [[] for _ in range(n)]
    lost = np.zeros((n, len(names) + len(evenly)))
    for h in range(group.max() + 1):
        mine, rest = np.flatnonzero(group == h), np.flatnonzero(group != h)
        others, own = of_devices(rows, rest), copies(rows, fold, mine, count)
        pooled = _pooled(learner, others, paid.fleet, seed, h)
        alone = [
            _alone(learner, own[c], stream(seed, "own", h, c)) for c in range(len(own))
        ]
        part = Part(
            learner,
            others,
            own,
            stream(seed, "blend", h).integer(),
            float(budget),
            count + 1,
            n_jobs=n_jobs,
        )
        noise = None if classes else np.full(len(own), 1e-12)
        many = min(paid.peers, len(others) // 2 or 1)
        rule = One(Neighbours(many, len(others), own.total, noise, share=1.0))
        start = alone if pooled is None else [pooled] * len(own)
        asked = part.neighbours(
            Refit(public, soft=soft), rule, start, ROUNDS if paid.peers else 1
        )
        heard.add("shared", asked.rounds, mine, rest, count + 1, 1.0)
        notes = asked.rounds[-1].trust.notes
        for c in range(len(own)):
            near = _together(
                learner,
                others,
                notes,
                c,
                asked.models[c],
                public,
                soft,
                part.seed,
                paid.together,
            )
            offers = _offers(
                learner,
                own[c],
                alone[c],
                pooled,
                near,
                public,
                soft,
                stream(seed, "own", h, c),
            )
            i, without = int(mine[c // (count + 1)]), c % (count + 1) - 1
            if without < 0:
                final[i] = offers
                continue
            at = (
                np.flatnonzero(fold[rows.start[i] : rows.start[i + 1]] == without)
                + rows.start[i]
            )
            said = (
                [respond(learner, model, rows.X[at], classes) for model in offers]
                if len(at)
                else []
            )
            said += (
                [np.mean([said[k] for k in some], axis=0) for some in evenly]
                if said
                else []
            )
            for column, response in enumerate(said):
                lost[i, column] += (
                    usable[at] * missed(response, rows.y[at], classes)
                ).sum()
    weight = np.bincount(rows.owner, weights=usable, minlength=n).astype(np.float64)
    mix = shares(
        lost / np.maximum(weight, 1e-12)[:, None], weight, relative=not classes
    )
    mix, even = mix[:, : len(names)], mix[:, len(names) :]
    for column, some in enumerate(evenly):
        mix[:, some] += even[:, column, None] / len(some)
    mix = np.where(mix >= LEAST, mix, 0.0)
    mix /= mix.sum(axis=1, keepdims=True)
    models = [
        [
            pair
            for s, m in zip(mix[i].tolist(), final[i], strict=True)
            if s > 0
            for pair in _pairs(s, m)
        ]
        for i in range(n)
    ]
    return Blended(models, names, mix, heard.rounds(mix, names))


class Paid(NamedTuple):
    """What a budget of refits pays: as much in every group, so that all devices are offered the
    same.
    """

    fleet: int  # devices whose rows make the model for the others; 0 for none
    peers: int  # that a copy asks in a round of the search
    together: int  # neighbours whose last answers are mixed

    @staticmethod
    def by(n: int, copies: int, budget: int) -> Paid:
        """Of `n` devices with so many copies each.

        The model for the others counts as an answer of each device whose rows it is made of; the
        targets of a group share that.

        >>> Paid.by(46, 6, 640), Paid.by(46, 6, 40)
        (Paid(fleet=41, peers=5, together=8), Paid(fleet=41, peers=0, together=0))
        """
        targets = n // min(GROUPS, n)  # of the smallest group
        known = n - targets
        fleet = affordable(budget, targets, known, 1.0)
        left = int((budget - fleet / targets) / copies)
        # the first round asks twice as many
        peers = min(PEERS, left // 2 // (ROUNDS + 1))
        return Paid(
            fleet, peers, min(TOGETHER, left - peers * (ROUNDS + 1)) if peers else 0
        )

    def fits(self, n: int, copies: int) -> int:
        """How many models are fitted for `n` devices, own ones too."""
        asked = self.peers * (ROUNDS + 1) + self.together
        own = 1 + len(STEPS) * (bool(self.fleet) + self.together)
        return n * copies * (asked + own) + min(GROUPS, n) * bool(self.fleet)

    @property
    def offers(self) -> list[int]:
        """Which of the offers there are, by their places among `_names`."""
        return [
            0,
            *([1, 2, 3] if self.fleet else []),
            *([4, 5, 6] if self.peers else []),
        ]

    @property
    def evenly(self) -> list[list[int]]:
        """The even mixes of those, by their places among `offers`."""
        there = self.offers
        mixes = [[there.index(k) for k in some if k in there] for some in EVENLY]
        return [
            some
            for place, some in enumerate(mixes)
            if len(some) > 1 and some not in mixes[:place]
        ]


def fits_to_come(
    n: int, budget: int, *, classes: bool = False, ordered: bool = False
) -> int:
    """How many models a blend of `n` devices fits at most, own ones too.

    >>> fits_to_come(46, 640), fits_to_come(46, 1)
    (12980, 836)
    """
    copies = 1 + (BLOCKS if ordered else CLASS_FOLDS if classes else FOLDS)
    return Paid.by(n, copies, budget).fits(n, copies)


def _pooled(learner: Learner, others: Devices, many: int, seed: int, h: int) -> Any:
    """One model for the other devices, of the rows of so many of them."""
    if not many:
        return None
    if many < len(others):
        others = of_devices(
            others, some_of(len(others), many, stream(seed, "asked", h))
        )
    return learner.fit(
        Data(others.X, others.y, others.weight), stream(seed, "pooled", h)
    )


def _alone(learner: Learner, data: Data, place: Any) -> Any:
    """The model of own rows."""
    return learner.fit(_weighty(data), place)


def _weighty(data: Data) -> Data:
    return data.take(np.flatnonzero(data.weight > 0))


def _pairs(share: float, model: Any) -> list[tuple[float, Any]]:
    """A mix of mixes is one mix."""
    return (
        [(share * part, one) for part, one in model]
        if isinstance(model, list)
        else [(share, model)]
    )


def _names() -> tuple[str, ...]:
    tuned = {
        kind: [f"shared {kind} {step:g}" for step in STEPS]
        for kind in ("pooled", "neighbours")
    }
    return (
        "shared own 0",
        "shared pooled 0",
        *tuned["pooled"],
        "shared neighbours 0",
        *tuned["neighbours"],
    )


def _together(
    learner: Learner,
    others: Devices,
    notes: Any,
    c: int,
    model: Any,
    public: Array,
    soft: bool,
    seed: int,
    many: int,
) -> Any:
    """What the neighbours that have fitted best answer in the end, mixed: several trees are
    better than one.
    """
    if not many:
        return None
    excess = np.where(
        notes["panel"][c] >= 0,
        notes["excess"][c] / np.maximum(notes["times"][c], 1e-9),
        np.inf,
    )
    proposer = Refit(public, soft=soft)
    probe = proposer.ask(learner, model)
    who = notes["panel"][c][np.argsort(excess, kind="stable")[:many]]
    answers = [
        proposer.answer(
            learner, probe, others[int(j)], stream(seed, "together", c, int(j))
        )
        for j in who.tolist()
        if j >= 0
    ]
    return [(1.0 / len(answers), answer) for answer in answers]


def _offers(
    learner: Learner,
    data: Data,
    alone: Any,
    pooled: Any,
    near: Any,
    public: Array,
    soft: bool,
    place: Any,
) -> list[Any]:
    """In the order of the names; what is None is not offered."""
    data = _weighty(data)
    found = [alone]
    for start in (pooled, near):
        if start is None:
            continue
        found.append(start)
        for step in STEPS:
            proposer = Refit(public, step_size=step, soft=soft)
            each = start if isinstance(start, list) else [(1.0, start)]
            mix = [
                (
                    share,
                    proposer.answer(learner, proposer.ask(learner, model), data, place),
                )
                for share, model in each
            ]
            found.append(mix if len(mix) > 1 else mix[0][1])
    return found
