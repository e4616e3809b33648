"""Offers for learners that only refit: trees, forests, boosting, any scikit-learn model.

Own rows, one model for the other devices, that model refitted to own rows (Algorithm 2's question
to oneself), and what neighbours answer, with and without own rows. Such models cannot be averaged,
so a mix is a list of (share, model), and predictions are mixed. Refitted models vary a lot, and the
mean of several varies less than any one of them: so even mixes of the offers that know own rows are
judged beside them, and what shares they get are shared out among their parts.

Where rows may be in one place, the model for the others is fitted to their rows. Over a border it
is fitted to the public points, with what the devices' own models say there on average.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.learners.responses import respond
from persfl.methods.blend.blend_settings import USUAL, BlendSettings, RefitSettings
from persfl.methods.blend.budget import affordable, some_of
from persfl.methods.blend.evidence import LEAST, shares_by_loss
from persfl.methods.blend.fitted_rows import FittedPeers, FittedTargets
from persfl.methods.blend.fixed_point import tamed
from persfl.methods.blend.folds import TargetRows
from persfl.methods.blend.forms import Form
from persfl.methods.blend.mixture import placed
from persfl.methods.blend.model_forms import Mixes, Models
from persfl.methods.blend.neighbours import Neighbours
from persfl.methods.blend.question_base import Question
from persfl.methods.blend.questions import Fit, JudgeOffers, Mix, OwnRows, Refits, Weigh
from persfl.methods.blend.search import Search, neighbours, unpaid
from persfl.methods.blend.site import Bundle, Group, Starts
from persfl.methods.blend.views import ViewSettings
from persfl.proposers import Refit
from persfl.seeds import stream
from persfl.traits import traits_of
from persfl.types import Array, Data, IntArray, Learner, Model

# by their places among the names: all that know own rows; own and one refit of others'
EVENLY = ((0, 2, 3, 5, 6), (0, 3), (0, 6))
STARTS = {"pooled": (1, 2, 3), "neighbours": (4, 5, 6)}  # likewise


class RefitSpending(NamedTuple):
    """What a budget of refits pays: as much in every group, so that all devices are offered the
    same.
    """

    fleet: int  # devices whose rows make the model for the others; 0 for none
    peers: int  # that a copy asks in a round of the search
    together: int  # neighbours whose last answers are mixed

    @staticmethod
    def by(
        targets: int, known: int, copies: int, budget: float, chosen: RefitSettings
    ) -> RefitSpending:
        """Of so many targets with so many copies each, who know so many others.

        The model for the others counts as an answer of each device whose rows it is made of; the
        targets of a group share that.

        >>> RefitSpending.by(5, 41, 6, 640, RefitSettings())
        RefitSpending(fleet=41, peers=5, together=8)
        >>> RefitSpending.by(5, 41, 6, 40, RefitSettings())
        RefitSpending(fleet=41, peers=0, together=0)
        """
        fleet = affordable(budget, targets, known, 1.0)
        left = int((budget - fleet / targets) / copies)
        rounds = chosen.rounds + 1  # the first round asks twice as many
        peers = min(chosen.peers, left // 2 // rounds)
        together = min(chosen.together, left - peers * rounds) if peers else 0
        return RefitSpending(fleet, peers, together)


@dataclass(frozen=True, eq=False)
class RefitOffers:
    """See `persfl.methods.blend.offers.Offers`."""

    learner: Learner
    features: int
    public: Array
    classes: int = 0
    settings: BlendSettings = USUAL
    unit: ClassVar[int] = 1
    views: ClassVar[tuple[str, ...]] = ("shared",)
    questions: ClassVar[tuple[type[Question], ...]] = (
        Fit, Refits, OwnRows, Weigh, JudgeOffers, Mix,
    )  # fmt: skip
    hides: ClassVar[bool] = False
    extra: ClassVar[int] = len(EVENLY)

    @property
    def size(self) -> int:
        """Models are no vectors."""
        return 0

    @property
    def soft(self) -> bool:
        """Whether chances are sent instead of labels."""
        return bool(self.classes) and traits_of(self.learner).loss == "log"

    @property
    def proposer(self) -> Refit:
        """What carries a model to the public points."""
        return Refit(self.public, soft=self.soft)

    def path(self, view: str, number: int) -> tuple[Any, ...]:
        """Where a group's random numbers are drawn."""
        return ("blend", number)

    def names(self) -> list[str]:
        """What offers are called."""
        weights = ["0", *(f"{w:g}" for w in self.settings.refits.own_weights)]
        return ["own 0", *(f"{start} {w}" for start in STARTS for w in weights)]

    def evenly(self, there: Sequence[int]) -> dict[int, list[int]]:
        """The even mixes of those offers that there are, by the column of their losses."""
        mixes = [[k for k in some if k in there] for some in EVENLY]
        return {
            len(self.names()) + place: some
            for place, some in enumerate(mixes)
            if len(some) > 1 and some not in mixes[:place]
        }

    def start_forms(self) -> Mapping[str, Form]:
        """What `starts` holds."""
        most = self.settings.refits.together
        return {"pooled": Models(optional=True), "neighbours": Mixes(most)}

    def starts(self, bundle: Bundle) -> list[tuple[Starts, Search]]:
        """What offers are made from, asked of the peers."""
        return [self._starts(group) for group in bundle.groups]

    def _starts(self, group: Group) -> tuple[Starts, Search]:
        chosen = self.settings.refits
        plan = group.plan
        spend = RefitSpending.by(
            plan.fewest, plan.known, group.copies, plan.budget, chosen
        )
        pooled = self._pooled(group, spend.fleet)
        weight = group.own(OwnRows(look=group.look))["weight"]
        start = np.full(len(weight), None, dtype=object)
        start[:] = group.own_fits() if pooled is None else [pooled] * len(weight)
        # without a model to show, because no peer has told its own, nobody can be asked
        shown = any(model is not None for model in start)
        many = min(spend.peers, group.peers // 2 or 1) if shown else 0
        noise = None if self.classes else np.full(len(weight), 1e-12)
        rule = Neighbours(many, group.peers, weight, noise, share=1.0, single=True)
        fleet = group.fleet(self.proposer, start)
        found = neighbours(group, fleet, rule, chosen.rounds if many else 1)
        near = self._together(group, found, spend.together if many else 0)
        missing = {"pooled": pooled is None, "neighbours": near is None}
        starts = {"pooled": pooled, "neighbours": near}
        return starts, found._replace(missing=unpaid(missing))

    def _pooled(self, group: Group, many: int) -> Model | None:
        """One model for the other devices."""
        if not many:
            return None
        seed = group.plan.run_seed
        number = group.plan.number
        who = some_of(group.peers, many, stream(seed, "asked", number))
        found = group.pooled_fit(who)
        if found is not None:
            return found
        told = group.ask(Fit(look=group.look), who)["answers"]
        models = [model for model in told if model is not None]
        if not models:
            return None
        said = [
            respond(self.learner, each, self.public, self.classes) for each in models
        ]
        rows = _points(self.public, middle_of(np.stack(said)), self.classes)
        return self.learner.fit(rows, stream(seed, "pooled", number))

    def _together(self, group: Group, found: Search, many: int) -> Any:
        """What the neighbours that have fitted best answer in the end, mixed: several trees are
        better than one.
        """
        if not many:
            return None
        notes = found.rounds[-1].trust.notes
        proposer = self.proposer
        mean = notes["excess"] / np.maximum(notes["times"], 1e-9)
        excess = np.where(notes["panel"] >= 0, mean, np.inf)
        best = np.argsort(excess, axis=1, kind="stable")[:, :many]
        who = np.take_along_axis(notes["panel"], best, axis=1)
        whose = np.repeat(np.arange(len(who)), who.shape[1])
        probes = np.full(len(who), None, dtype=object)
        for c, model in enumerate(found.models):
            probes[c] = proposer.ask(self.learner, model)
        question = Refits(look=group.look, probes=probes[whose])
        answers = group.ask(question, who.ravel(), whose)["answers"]
        mixes = []
        for c, each in enumerate(answers.reshape(who.shape)):
            good = [model for model in each if model is not None] or [found.models[c]]
            mixes.append([(1.0 / len(good), model) for model in good])
        return mixes

    def peers(self, rows: Devices, look: ViewSettings, *how: Any) -> FittedPeers:
        """Devices that answer."""
        return FittedPeers(self, rows, *how)

    def targets(self, own: TargetRows, look: ViewSettings, *how: Any) -> FittedTargets:
        """Devices that judge."""
        return FittedTargets(self, own, *how)

    def shares(
        self, losses: Array, rows: Array, paid: Sequence[int], sure: float
    ) -> Array:
        """(devices, offers) by the evidence; even mixes are shared out among their parts."""
        evenly = self.evenly(paid)
        columns = [*paid, *evenly]
        known = np.ascontiguousarray(losses[:, columns])
        found = np.zeros(losses.shape)
        found[:, columns] = shares_by_loss(known, rows, relative=not self.classes)
        mix = found[:, : len(self.names())]
        for column, some in evenly.items():
            mix[:, some] += found[:, column, None] / len(some)
        mix = np.where(mix >= LEAST, mix, 0.0)
        return np.asarray(mix / mix.sum(axis=1, keepdims=True))

    def mixed(self, offers: Sequence[list[Model]], mix: Array) -> list[Any]:
        """Per target one list of (share, model): a mix of mixes is one mix."""
        return [
            _mixed(models, shares)
            for models, shares in zip(offers, mix.tolist(), strict=True)
        ]

    def models(self, n: int, parts: Sequence[tuple[IntArray, Any]]) -> list[Any]:
        """Each at its device's place; None for the others."""
        return placed(n, parts)


def _mixed(offers: Sequence[Model], mix: Sequence[float]) -> list[tuple[float, Model]]:
    found: list[tuple[float, Model]] = []
    for share, model in zip(mix, offers, strict=True):
        if share > 0:
            parts = model if isinstance(model, list) else [(1.0, model)]
            found += [(share * part, one) for part, one in parts]
    return found


def middle_of(said: Array) -> Array:
    """(points, ...) the mean of what models say (models, points, ...); one that is very far from
    the middle of all counts as if it were ten times as far from it as is usual.

    >>> middle_of(np.array([[1.0], [2.0], [3.0]])).tolist()
    [2.0]
    >>> middle_of(np.array([[1.0], [2.0], [3.0], [4.0], [9e14]])).tolist()
    [4.6]

    Between two there is no middle; the larger counts as ten times the other at most.

    >>> middle_of(np.array([[1.0], [9e14]])).tolist()
    [5.5]
    """
    flat = said.reshape(len(said), -1)
    if len(flat) == 2:
        return np.asarray(tamed(flat).mean(axis=0).reshape(said.shape[1:]))
    middle = np.median(flat, axis=0)
    away = flat - middle
    near = tamed(away)
    # as it is where nobody is far away: a sum in another order is another number
    mean = flat.mean(axis=0) if (near == away).all() else middle + near.mean(axis=0)
    return np.asarray(mean.reshape(said.shape[1:]))


def _points(public: Array, said: Array, classes: int) -> Data:
    """Public points with what models say there: a value each, or once per class by its chance."""
    if not classes:
        return Data(public.copy(), said)  # points that travelled cannot be written to
    labels = np.tile(np.arange(classes) + 0.0, len(public))
    return Data(np.repeat(public, classes, axis=0), labels, said.ravel())
