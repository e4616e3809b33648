"""A device's side of blend: small questions, many in one message, each answered from its own rows
alone.

spread   sums of squares about its own means (where the policy allows sums)
steps    as a peer: from each model, a few gradient steps
refit    as a peer: refits to its rows and public points, once for each set of labels
rough    as a peer: how noisy its rows are about its own refit
own      as a target: the weight of each copy's rows, what each copy answers, how noisy it is
weigh    as a target: losses of models on each copy's rows
offers   as a target: the evidence, a fold loss per offer
mix      as a target: its model, mixed by shares; with rows held back, what they say about it
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from persfl.devices import Devices
from persfl.federation.holdout import judged
from persfl.federation.messages import MOST, Refused, digest_of, whole_of
from persfl.federation.messages import Head as Told
from persfl.federation.moment_rows import Likenesses, by_moments
from persfl.federation.policy import Policy, work_of_fit
from persfl.federation.row_stock import Deal, Stock, alone
from persfl.methods.blend.linear_rows import Folding, Own, Peers, mixed, route, spreads
from persfl.methods.blend.offers.steps import STEPS
from persfl.methods.blend.views import VIEWS, Look
from persfl.proposers import GradientStep, Refit
from persfl.types import Array, Data, IntArray
from persfl.wire import Terms, WireError, within
from persfl.wire.models import finite

LONGEST = max(STEPS)
AS_PEER, AS_TARGET = (
    ("spread", "steps", "refit", "rough"),
    ("own", "weigh", "offers", "mix"),
)


@dataclasses.dataclass(frozen=True)
class Dealt(Folding):
    """Folds that were dealt at home."""

    folds: Any = None

    def of(self, rows: Devices, numbers: IntArray) -> IntArray:
        """Whatever the numbers of devices are: this is one."""
        return np.asarray(self.folds)


class Home:
    """One device's rows under the terms of a run, as blend asks about them."""

    def __init__(
        self,
        terms: Terms,
        deal: Deal,
        stock: Stock,
        policy: Policy,
        likenesses: Likenesses,
    ) -> None:
        self.terms, self.deal, self.stock, self.policy = terms, deal, stock, policy
        self._likenesses = likenesses
        self.learn = self._seen(np.zeros(deal.learn.rows))
        self._folds: dict[bool, Dealt] = {}
        self._dealt: dict[bool, Devices] = {}

    @property
    def rows(self) -> Devices:
        """As devices, of which there is one."""
        return alone(self.learn)

    def _seen(self, folds: Any) -> Data:
        """Rows in the units of the run; where moments are all that is told, each fold's moments."""
        rows = self.deal.learn
        if self.policy.rows > 1 and by_moments(self.terms):
            parts = [np.flatnonzero(folds == f) for f in np.unique(folds)]
            rows = self._likenesses.within(rows, parts)
        return self.terms.inside(rows)

    def reply(self, asked: Told, arrays: Told, many: int) -> dict[str, Any]:
        """The arrays of an answer, to a question on behalf of so many."""
        what = asked.get("what")
        if what not in AS_PEER + AS_TARGET:
            raise WireError("a question must be one that persfl knows.")
        if what in AS_TARGET and not self.policy.target:
            raise Refused("target")
        learner = self.terms.learner()
        if self.terms.model != "linear":
            raise Refused("models")
        return dict(getattr(self, f"_{what}")(learner, asked, arrays, many))

    def _spread(self, learner: Any, asked: Told, arrays: Told, many: int) -> Any:
        if not self.policy.sums:
            raise Refused("sums")
        rows = self.deal.learn  # whatever the loss, only moments of them are told
        rows = self._likenesses.of(rows) if self.policy.rows > 1 else rows
        found = spreads(alone(self.terms.inside(rows)), learner.kind == "squared")
        return {
            "weight": found.weight,
            "squares": found.squares[0],
            "label": found.label,
        }

    def _steps(self, learner: Any, asked: Told, arrays: Told, many: int) -> Any:
        models = finite(arrays.get("models"), (many, learner.size(self.terms.features)))
        proposer = self._step(asked)
        peers = Peers.seen(learner, self.rows, self._look(asked, arrays))
        return {
            "answers": peers.answers(proposer, np.zeros(many, dtype=np.int64), models)
        }

    def _refit(self, learner: Any, asked: Told, arrays: Told, many: int) -> Any:
        if learner.kind != "squared":
            raise WireError("refits are asked of models under squared loss.")
        d = self.terms.features
        points = finite(arrays.get("points"), (2 * d, d))
        labels = finite(arrays.get("labels"), (many, 2 * d))
        weight = asked.get("weight")
        if not isinstance(weight, float) or not 0 < weight <= 1e12:
            raise WireError("public points must have a weight.")
        proposer = Refit(points, private_weight=1.0, public_weight=weight)
        data = Peers.seen(learner, self.rows, self._look(asked, arrays)).rows[0]
        return {
            "answers": np.stack(
                [proposer.answer(learner, each, data, None) for each in labels]
            )
        }

    def _rough(self, learner: Any, asked: Told, arrays: Told, many: int) -> Any:
        peers = Peers.seen(learner, self.rows, self._look(asked, arrays))
        return {
            "noise": peers.rough(
                np.zeros(1, dtype=np.int64), *self._toward(learner, arrays)
            )
        }

    def _own(self, learner: Any, asked: Told, arrays: Told, many: int) -> Any:
        own = self._as_target(learner, asked, arrays).copies
        everyone, size = np.arange(len(own.rows)), learner.size(self.terms.features)
        out: dict[str, Any] = {"weight": own.rows.total}
        if "models" in arrays:
            models, proposer = arrays["models"], self._step(asked)
            models = finite(models, (min(len(models) if models.ndim else 0, 16), size))
            out["answers"] = np.stack(
                [
                    own.answers(proposer, everyone, np.tile(model, (len(everyone), 1)))
                    for model in models
                ]
            )
        if "mean" in arrays:
            out["noise"] = own.rough(everyone, *self._toward(learner, arrays))
        return out

    def _weigh(self, learner: Any, asked: Told, arrays: Told, many: int) -> Any:
        own = self._as_target(learner, asked, arrays)
        size, shown = (
            learner.size(self.terms.features),
            whole_of(asked, "many", most=MOST),
        )
        models = arrays.get("models")
        if (
            models is None
            or models.dtype != np.float64
            or models.shape != (len(own.copies.rows), shown, size)
        ):
            raise WireError("models to weigh must come for every copy.")
        # a model that is not finite has no finite loss
        return {"losses": own.losses(models)}

    def _offers(self, learner: Any, asked: Told, arrays: Told, many: int) -> Any:
        own = self._as_target(learner, asked, arrays)
        losses, weight = own.evidence(
            own.offers(self._starts(learner, len(own.copies.rows), arrays))
        )
        return {
            "losses": np.minimum(
                np.nan_to_num(losses[0], nan=1e100, posinf=1e100), 1e100
            ),
            "weight": weight,
        }

    def _mix(self, learner: Any, asked: Told, arrays: Told, many: int) -> Any:
        views = asked.get("views")
        if (
            not isinstance(views, list)
            or not views
            or any(view not in VIEWS for view in views)
        ):
            raise WireError("a mix must say of which views.")
        offers: list[Array] = []
        for i, view in enumerate(views):
            inner = within(f"v{i}", arrays)
            own = self._as_target(
                learner, {**asked, "view": view, "label": asked["labels"][i]}, inner
            )
            copies = len(own.copies.rows)
            offers += [
                models[:1]
                for models in own.offers(self._starts(learner, copies, inner)).values()
            ]
        shares = finite(arrays.get("shares"), (len(offers),))
        if not (shares >= 0).all() or not abs(float(shares.sum()) - 1) < 1e-6:
            raise WireError("shares must sum to 1.")
        model = mixed(offers, shares[None])[0]
        if not self.terms.holdout:
            return {"model": model}
        seed = self.stock.lot.seed
        rows, single = (self.deal.learn, self.deal.held), self.policy.rows <= 1
        return {"model": model} | judged(self.terms, model, *rows, seed, single=single)

    def _as_target(self, learner: Any, asked: Told, arrays: Told) -> Own:
        ordered, classes = asked.get("ordered") is True, self.terms.classes
        if ordered not in self._folds:
            count = Folding(classes, ordered).count
            folds = self.stock.folds(self.deal, count, classes=classes, ordered=ordered)
            self._folds[ordered] = Dealt(classes, ordered, folds=folds)
            self._dealt[ordered] = alone(self._seen(folds))
        look, nobody = self._look(asked, arrays), np.zeros(1, dtype=np.int64)
        return Own(learner, self._dealt[ordered], look, self._folds[ordered], nobody)

    def _look(self, asked: Told, arrays: Told) -> Look:
        view, label = asked.get("view"), asked.get("label")
        if view not in VIEWS or not isinstance(label, float) or not 0 < label < 1e100:
            raise WireError("a question must say in which view it is asked.")
        variance = finite(arrays.get("variance"), (self.terms.features,))
        if not (variance >= 0).all():
            raise WireError("variances must be at least 0.")
        return Look(str(view), variance, label)

    def _step(self, asked: Told) -> GradientStep:
        step, steps = asked.get("step"), whole_of(asked, "steps", most=10_000)
        if not isinstance(step, float) or not 0 < step < 1e6 or not steps:
            raise WireError("a step must have a length.")
        longer = dataclasses.replace(self.terms, steps=steps, step_size=step)
        no = self.policy.refuses(longer, self.learn.rows)
        if no is not None:
            raise Refused(no)
        return GradientStep(step, steps=steps)

    def _toward(self, learner: Any, arrays: Told) -> tuple[Array, Array]:
        if learner.kind != "squared":
            raise WireError("noise is asked of models under squared loss.")
        size = learner.size(self.terms.features)
        mean, strength = (
            finite(arrays.get("mean"), (size,)),
            finite(arrays.get("strength"), (size,)),
        )
        if not (strength > 0).all():
            raise WireError("strengths must be above 0.")
        return mean, strength

    def _starts(self, learner: Any, copies: int, arrays: Told) -> dict[str, Array]:
        wanted = route(learner).shapes(learner, self.terms.features, copies)
        found = {
            name: finite(arrays.get(name), shape) for name, shape in wanted.items()
        }
        if "spread" in found and not (
            (found["spread"] > 0).all() and found["noise"][0] > 0
        ):
            raise WireError("spreads must be above 0.")
        return found


def names_of(asked: Any) -> list[str]:
    """On whose behalf each model of a question is sent; "" is the run itself."""
    names = asked.get("names", [""]) if isinstance(asked, dict) else None
    if (
        not isinstance(names, list)
        or not 0 < len(names) <= MOST
        or not all(isinstance(n, str) and len(n) <= 200 for n in names)
    ):
        raise WireError("a question must say on whose behalf it is asked.")
    return names


def digests_of(said: Any, asked: Told, arrays: Told, names: Sequence[str]) -> list[str]:
    """One for each name: the same for the same question to the same rows, whenever and in whatever
    company it comes. What all of them share is read once, however many there are.
    """
    apart = {"models", "labels"} if "names" in asked else set[str]()
    own = {key: array for key, array in arrays.items() if key in apart}
    told = sorted((key, value) for key, value in asked.items() if key != "names")
    shared = {key: array for key, array in arrays.items() if key not in apart}
    same = digest_of(("blend", said, told), shared)
    return [
        digest_of((same, name), {key: array[i : i + 1] for key, array in own.items()})
        for i, name in enumerate(names)
    ]


def work_of_one(terms: Terms, asked: Told, arrays: Told, rows: int, names: int) -> int:
    """About how many nanoseconds a question takes; never from what the rows say."""
    learner, classes = terms.learner(), terms.classes
    size = learner.size(terms.features) if terms.model == "linear" else 1
    steps = whole_of(asked, "steps", most=10_000) if "steps" in asked else 1
    copies = Folding(classes, asked.get("ordered") is True).count + 1
    once, solved = rows * size, (rows + size) * size**2
    offers = len(route(learner).names(learner)) if terms.model == "linear" else 1
    each = solved if getattr(learner, "kind", "") == "squared" else LONGEST * once
    offered = copies * offers * each
    models, views = arrays.get("models", np.empty(0)), asked.get("views")
    shown = len(models) if models.ndim else 0
    many = whole_of(asked, "many", most=MOST) if "many" in asked else 1
    work = {
        "spread": rows * (terms.features + 1) ** 2,
        "steps": names * steps * once,
        "refit": names * (solved + 2 * terms.features * size**2),
        "rough": solved,
        "own": copies * (solved + shown * steps * once),
        "weigh": copies * many * once,
        "offers": offered,
        "mix": (len(views) if isinstance(views, list) else 1) * offered
        + work_of_fit(terms, rows),
    }
    return int(work.get(str(asked.get("what")), once))
