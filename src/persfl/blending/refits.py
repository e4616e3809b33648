"""Blend for learners that only refit: trees, forests, boosting, any scikit-learn model.

The same scheme with what applies: own rows, one model for the other devices, that model refitted to own rows (Algorithm 2's
question to oneself), and what neighbours answer, with and without own rows. Such models cannot be averaged, so a mix is a list of
(share, model), and predictions are mixed. Refitted models vary a lot, and the mean of several varies less than any one of them: so
even mixes of the offers that know own rows are judged beside them, and what shares they get are shared out among their parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from persfl.blending.evidence import LEAST, missed, shares
from persfl.blending.folds import copies, fold_numbers, judged
from persfl.blending.heard import Heard
from persfl.blending.memory import Neighbours
from persfl.blending.offered import BLOCKS, CLASS_FOLDS, FOLDS, Blended, dealt, of_devices
from persfl.blending.part import Part
from persfl.devices import Devices
from persfl.predicting import respond
from persfl.proposers import Refit
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Array, Choice, Data, IntArray

STEPS = (1.0, 10.0)  # weight of own rows against the public points
EVENLY = ([0, 2, 3, 5, 6], [0, 3], [0, 6])  # offers, as `_names` has them: all that know own rows; own and one refit of others'
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
        best = found.weights.argmax(axis=1)[:, None]
        who = np.take_along_axis(found.peers, best, axis=1)
        return Choice(who, (who >= 0).astype(np.float64), (who[:, 0] < 0).astype(np.float64))


def blend_refits(
    rows: Devices,
    learner: Any,
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
    >>> found = blend_refits(devices, Tree(2), np.random.default_rng(0).normal(size=(20, 2)))
    >>> round(sum(share for share, _ in found.models[0]), 6)
    1.0
    """
    n, count = len(rows), BLOCKS if ordered else CLASS_FOLDS if classes else FOLDS
    fold = fold_numbers(rows, count, classes=classes, ordered=ordered, seed=seed)
    usable, group = judged(rows, fold, count), dealt(n, seed)
    soft = bool(classes) and getattr(learner, "kind", "") == "log"
    heard, names = Heard(n, not classes), _names()
    final: list[list[Any]] = [[] for _ in range(n)]
    lost = np.zeros((n, len(names) + len(EVENLY)))
    for h in range(group.max() + 1):
        mine, rest = np.flatnonzero(group == h), np.flatnonzero(group != h)
        others, own = of_devices(rows, rest), copies(rows, fold, mine, count)
        pooled = learner.fit(Data(others.X, others.y, others.weight), stream(seed, "pooled", h))
        part = Part(learner, others, own, stream(seed, "blend", h).integer(), budget // (count + 1), n_jobs=n_jobs)
        many = max(1, min(PEERS, part.asks // (ROUNDS + 1), len(others) // 2 or 1))
        noise = None if classes else np.full(len(own), 1e-12)
        rule = One(Neighbours(many, len(others), own.total, noise, share=1.0))
        asked = part.neighbours(Refit(public, soft=soft), rule, [pooled] * len(own), ROUNDS)
        heard.add("shared", asked.rounds, mine, rest, count + 1, 1.0)
        notes = asked.rounds[-1].trust.notes
        for c in range(len(own)):
            near = _together(learner, others, notes, c, asked.models[c], public, soft, part.seed)
            offers = _offers(learner, own[c], pooled, near, public, soft, stream(seed, "own", h, c))
            i, without = int(mine[c // (count + 1)]), c % (count + 1) - 1
            if without < 0:
                final[i] = offers
                continue
            at = np.flatnonzero(fold[rows.start[i] : rows.start[i + 1]] == without) + rows.start[i]
            said = [respond(learner, model, rows.X[at], classes) for model in offers] if len(at) else []
            said += [np.mean([said[k] for k in some], axis=0) for some in EVENLY] if said else []
            for column, response in enumerate(said):
                lost[i, column] += (usable[at] * missed(response, rows.y[at], classes)).sum()
    weight = np.bincount(rows.owner, weights=usable, minlength=n).astype(np.float64)
    mix = shares(lost / np.maximum(weight, 1e-12)[:, None], weight, relative=not classes)
    mix, even = mix[:, : len(names)], mix[:, len(names) :]
    for column, some in enumerate(EVENLY):
        mix[:, some] += even[:, column, None] / len(some)
    mix = np.where(mix >= LEAST, mix, 0.0)
    mix /= mix.sum(axis=1, keepdims=True)
    models = [[pair for s, m in zip(mix[i].tolist(), final[i], strict=True) if s > 0 for pair in _pairs(s, m)] for i in range(n)]
    return Blended(models, names, mix, heard.rounds(mix, names))


def _pairs(share: float, model: Any) -> list[tuple[float, Any]]:
    """A mix of mixes is one mix."""
    return [(share * part, one) for part, one in model] if isinstance(model, list) else [(share, model)]


def _names() -> tuple[str, ...]:
    tuned = {kind: [f"shared {kind} {step:g}" for step in STEPS] for kind in ("pooled", "neighbours")}
    return ("shared own 0", "shared pooled 0", *tuned["pooled"], "shared neighbours 0", *tuned["neighbours"])


def _together(learner: Any, others: Devices, notes: Any, c: int, model: Any, public: Array, soft: bool, seed: int) -> Any:
    """What the neighbours that have fitted best answer in the end, mixed: several trees are better than one."""
    excess = np.where(notes["panel"][c] >= 0, notes["excess"][c] / np.maximum(notes["times"][c], 1e-9), np.inf)
    proposer = Refit(public, soft=soft)
    probe = proposer.ask(learner, model)
    who = notes["panel"][c][np.argsort(excess, kind="stable")[:TOGETHER]]
    answers = [proposer.answer(learner, probe, others[int(j)], stream(seed, "together", c, int(j))) for j in who.tolist() if j >= 0]
    return [(1.0 / len(answers), answer) for answer in answers]


def _offers(learner: Any, data: Data, pooled: Any, near: Any, public: Array, soft: bool, place: Any) -> list[Any]:
    """In the order of the names."""
    data = data.take(np.flatnonzero(data.weight > 0))
    found = [learner.fit(data, place), pooled]
    for start in (pooled, near):
        if start is near:
            found.append(near)
        for step in STEPS:
            proposer = Refit(public, step_size=step, soft=soft)
            each = start if isinstance(start, list) else [(1.0, start)]
            mix = [(share, proposer.answer(learner, proposer.ask(learner, model), data, place)) for share, model in each]
            found.append(mix if len(mix) > 1 else mix[0][1])
    return found
