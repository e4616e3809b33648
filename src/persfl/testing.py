"""Contract checks: what every learner, proposer, sampler, adopter and fleet must do. Run them on
your own parts.

>>> from persfl import Best, Linear, Uniform
>>> check_learner(Linear())
>>> check_sampler(Uniform(3))
>>> check_adopter(Best())

A check passes silently or raises an AssertionError that says which promise was broken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from persfl.devices import Devices
from persfl.errors import InputError
from persfl.fleets.loop_fleet import LoopFleet
from persfl.loop import checked_choice, personalize
from persfl.methods.contract import check_method as check_method
from persfl.samplers import Nobody, Uniform
from persfl.seeds import stream
from persfl.sources import clustered_regression
from persfl.traits import can_keep, has_gradients, keeps_steps, traits_of
from persfl.trust import Trust
from persfl.types import (
    Adopter,
    Choice,
    Data,
    Differentiable,
    Fleet,
    Learner,
    Proposer,
    Round,
    Sampler,
)


def check_learner(learner: Learner, data: Data | None = None) -> None:
    """A model family: deterministic, indifferent to padding, and (if it has gradients) with
    leading axes and right slopes.
    """
    data = _rows(learner) if data is None else data
    place = stream(0, "check")
    first, again = learner.init(data, place), learner.init(data, place)
    _expect(
        _same(learner.predict(first, data.X), learner.predict(again, data.X)),
        "init must depend on data and stream only",
    )
    _expect(
        np.isfinite(learner.loss(first, data)),
        "the loss of the starting model must be finite",
    )
    fitted = learner.fit(data, place)
    _expect(
        _same(
            learner.predict(fitted, data.X),
            learner.predict(learner.fit(data, place), data.X),
        ),
        "fit must be deterministic",
    )
    _expect(
        learner.loss(fitted, data) <= learner.loss(first, data) + 1e-9,
        "fit must not be worse than init on its own rows",
    )
    labels = learner.labels(fitted, data.X)
    _expect(
        np.shape(labels) == (data.rows,) and np.isfinite(labels).all(),
        "labels must be one finite number per row",
    )

    padded = _padded(data)
    _expect(
        np.isclose(learner.loss(fitted, data), learner.loss(fitted, padded)),
        "rows of weight 0 must not change the loss",
    )
    refitted = learner.fit(padded, place)
    _expect(
        np.isclose(
            learner.loss(refitted, data),
            learner.loss(fitted, data),
            rtol=1e-4,
            atol=1e-9,
        ),
        "rows of weight 0 must not change the fit",
    )

    features = data.X.shape[1]
    _expect(
        np.isclose(
            learner.loss(learner.check(fitted, features), data),
            learner.loss(fitted, data),
        ),
        "check must accept its own models",
    )
    for wrong in ("a model?", np.full(3, np.nan)):
        try:
            learner.check(wrong, features)
        except InputError:
            continue
        raise AssertionError(f"check must refuse {wrong!r} with an InputError")
    if has_gradients(learner):
        _check_vectors(learner, data, fitted)


def _check_vectors(learner: Differentiable, data: Data, fitted: Any) -> None:
    rng = np.random.default_rng(0)
    moves = (
        np.asarray(learner.moves)
        if hasattr(learner, "moves")
        else np.ones(np.shape(fitted), dtype=bool)
    )
    model = np.where(moves, 0.3 * rng.standard_normal(np.shape(fitted)) + 0.01, fitted)
    slope = learner.grad(model, data)
    _expect(not slope[~moves].any(), "what does not move must have no slope")
    for direction in rng.standard_normal((3, *np.shape(model))) * moves:
        ahead, behind = (
            learner.loss(model + sign * 1e-6 * direction, data) for sign in (1, -1)
        )
        _expect(
            np.isclose(
                (ahead - behind) / 2e-6, (slope * direction).sum(), rtol=1e-3, atol=1e-5
            ),
            "grad must be the gradient of loss",
        )
    _expect(
        np.allclose(slope, learner.grad(model, _padded(data))),
        "rows of weight 0 must not change the gradient",
    )
    models = np.stack([model, 2 * model])
    both = Data(
        *(np.stack([part, part[::-1]]) for part in (data.X, data.y, data.weight))
    )
    for method in (learner.loss, learner.grad):
        one_by_one = [
            method(models[i], Data(both.X[i], both.y[i], both.weight[i]))
            for i in range(2)
        ]
        _expect(
            np.allclose(method(models, both), one_by_one),
            "leading axes must give what one by one gives",
        )
    _expect(
        np.allclose(learner.mix(models, np.array([0.25, 0.75])), 1.75 * model),
        "mix must be the weighted mean",
    )


def check_proposer(
    proposer: Proposer, learner: Learner, data: Data | None = None
) -> None:
    """A question and its answer: deterministic, without side effects, one model of the asker's
    family.
    """
    data = _rows(learner) if data is None else data
    place = stream(0, "check", 1)
    model = learner.fit(data, place)
    before = learner.predict(model, data.X).copy()
    probe = proposer.ask(learner, model)
    proposal, again = (proposer.answer(learner, probe, data, place) for _ in range(2))
    _expect(
        _same(learner.predict(proposal, data.X), learner.predict(again, data.X)),
        "the same question must get the same answer",
    )
    _expect(
        _same(before, learner.predict(model, data.X)),
        "answering must not change the asker's model",
    )
    _expect(
        np.isfinite(learner.loss(proposal, data)),
        "an answer must have a finite loss on ordinary rows",
    )
    length = proposer.length(learner, probe, proposal)
    _expect(np.isnan(length) or length >= 0, "a length must be at least 0, or NaN")
    _expect(
        isinstance(proposer.advice(), str) and proposer.advice() != "",
        "advice must say what to change",
    )
    if not has_gradients(learner):
        return
    two = np.stack([model, 0.5 * model])
    both = Data(
        *(np.stack([part, part[::-1]]) for part in (data.X, data.y, data.weight))
    )
    places = stream(0, "check").at(np.arange(2))
    together = proposer.answer(learner, proposer.ask(learner, two), both, places)
    for i in range(2):
        alone = proposer.answer(
            learner,
            proposer.ask(learner, two[i]),
            Data(both.X[i], both.y[i], both.weight[i]),
            stream(0, "check", i),
        )
        _expect(
            np.allclose(together[i], alone, rtol=1e-6, atol=1e-8),
            "leading axes must give what one by one gives",
        )


def check_sampler(sampler: Sampler, *, n: int = 30) -> None:
    """Whom to ask: different devices, never oneself, a function of seed, round and target alone."""
    everyone = Trust(n, np.arange(n))
    for r in range(5):
        peers = np.array(sampler(everyone, r, 7))  # a sampler may use its array again
        _expect(
            peers.dtype == np.int64 and peers.ndim == 2 and len(peers) == n,
            "peers must be (T, S) of int64",
        )
        _expect(
            ((peers >= -1) & (peers < n)).all(),
            "peers must be device indices, or -1 for nobody",
        )
        _expect(
            not (peers == np.arange(n)[:, None]).any(),
            "a target must never be asked by itself",
        )
        _expect(
            all(
                len(set(row)) == len(row) for row in (p[p >= 0].tolist() for p in peers)
            ),
            "peers of a target must differ",
        )
        _expect(
            _same(peers, sampler(everyone, r, 7)),
            "the same seed and round must give the same peers",
        )
        few = sampler(Trust(n, np.array([3, n - 1])), r, 7)
        _expect(
            _same(few, peers[[3, n - 1]]),
            "whom a target asks must not depend on the other targets",
        )


def check_adopter(adopter: Adopter) -> None:
    """Which answers to take: weights that sum to 1, only usable answers, staying where there
    are none.
    """
    n, T, S = 30, 6, 5
    rng = np.random.default_rng(0)
    trust = Trust(n, np.arange(T))
    peers = np.stack([rng.choice(np.arange(T, n), S, replace=False) for _ in range(T)])
    losses = rng.uniform(0.5, 1.5, (T, S + 1))
    losses[1, 1:] = np.inf
    losses[2, 3] = np.inf
    losses[3] = losses[3, 0]
    losses[4] *= 1e-30
    choice = _choice_of(adopter, trust, peers, losses)
    for t in range(T):
        usable = set(peers[t][np.isfinite(losses[t, 1:])].tolist())
        taken = set(choice.peers[t][choice.weights[t] > 0].tolist())
        _expect(taken <= usable, "only usable answers may be adopted")
    _expect(choice.stay[1] == 1, "a target without usable answers must stay")
    again = _choice_of(adopter, trust, peers, losses)
    _expect(
        _same(choice.peers, again.peers) and _same(choice.weights, again.weights),
        "the same losses must give the same choice",
    )
    nobody = _choice_of(adopter, trust, peers[:, :0], losses[:, :1])
    _expect((nobody.stay == 1).all(), "a target that asked nobody must stay")


def _choice_of(adopter: Adopter, trust: Trust, peers: Any, losses: Any) -> Choice:
    """What the loop would make of an adopter's choice; what the loop refuses is a broken
    promise.
    """
    try:
        return checked_choice(
            adopter(trust, peers, losses),
            peers,
            trust.targets,
            trust.n,
            keeps_steps(adopter),
        )
    except InputError as error:
        raise AssertionError(f"broken promise: {error}") from error


def check_fleet(
    make: Callable[..., Fleet],
    *,
    learner: Learner,
    proposer: Proposer,
    adopter: Adopter,
    devices: Devices | None = None,
    rounds: int = 30,
    peers: int = 5,
    sampler: Sampler | None = None,
    **options: Any,
) -> None:
    """A fleet: LoopFleet's rounds, to 1e-9; probing changes no model; a run cut in two equals a
    whole one.

    `sampler` is `Uniform(peers)` unless the adopter belongs to another.
    """
    devices = (
        clustered_regression(
            n=12, clusters=2, rows=(4, 15), features=3, noise=0.1, seed=1
        )
        if devices is None
        else devices
    )
    parts = {"learner": learner, "proposer": proposer, "seed": 5, **options}

    def run(fleet: Fleet, **more: Any) -> list[Round]:
        return list(
            personalize(
                fleet,
                sampler=sampler or Uniform(peers),
                adopter=adopter,
                seed=9,
                **({"rounds": rounds} | more),
            )
        )

    fleet, reference = make(devices, **parts), LoopFleet(devices, **parts)
    _expect(
        fleet.n == len(devices) and _same(fleet.targets, reference.targets),
        "a fleet must know its devices and targets",
    )
    scale = 0.0
    for ours, theirs in zip(run(fleet), run(reference), strict=True):
        _expect(
            _same(ours.peers, theirs.peers),
            f"round {ours.r}: peers must be those of LoopFleet",
        )
        _expect(
            np.allclose(ours.losses, theirs.losses, rtol=1e-9, atol=1e-9),
            f"round {ours.r}: losses must be those of LoopFleet",
        )
        _expect(
            np.allclose(
                ours.lengths, theirs.lengths, rtol=1e-9, atol=1e-9, equal_nan=True
            ),
            f"round {ours.r}: lengths must be those of LoopFleet",
        )
        scale = max(
            scale,
            float(
                np.nanmax(np.where(np.isfinite(theirs.losses), theirs.losses, np.nan))
            ),
        )
        _expect(
            _same_choice(ours, theirs, scale),
            f"round {ours.r}: choices must be those of LoopFleet",
        )

    probed = make(devices, **parts)
    probed.observe(0)
    question = Uniform(peers)(Trust.blank(probed), 0, 9)
    twice = [probed.probe(question, 0).losses for _ in range(2)]
    _expect(_same(twice[0], twice[1]), "probing must not change anything")

    cut = rounds // 2
    begun = make(devices, **parts)
    half = run(begun, rounds=cut)
    trust = Trust.from_arrays(half[-1].trust.to_arrays())
    resumed = make(devices, **(parts | {"start": list(begun.models)}))
    if can_keep(begun) and can_keep(resumed) and begun.kept is not None:
        resumed.kept = {name: np.array(value) for name, value in begun.kept.items()}
    rest = run(resumed, first=cut, trust=trust)
    whole = run(make(devices, **parts))
    _expect(
        all(_same(a.losses, b.losses) for a, b in zip(half + rest, whole, strict=True)),
        "a run cut in two must equal a whole one",
    )
    _expect(
        rest[-1].trust.table().equals(whole[-1].trust.table()),
        "trust must not depend on interruptions",
    )

    alone = make(devices, **parts)
    before = [np.array(alone.probe(question, 0).losses[:, 0])]
    for round_ in personalize(
        alone, sampler=Nobody(), adopter=adopter, rounds=2, seed=0
    ):
        before.append(round_.losses[:, 0])
    if options.get("local") is None:
        _expect(
            np.allclose(before[0], before[-1], rtol=1e-12),
            "a fleet that asks nobody must keep its models",
        )


def _same_choice(ours: Round, theirs: Round, scale: float) -> bool:
    """Equal choices; where they differ, the answers must be so good that only rounding can tell
    them apart.
    """
    differ = (ours.choice.peers != theirs.choice.peers).any(axis=1)
    best = np.where(
        np.isfinite(theirs.losses[:, 1:]), theirs.losses[:, 1:], np.inf
    ).min(axis=1, initial=np.inf)
    return bool((best[differ] <= 1e-20 * scale).all())


def _rows(learner: Learner) -> Data:
    """Rows that fit a learner: numbers, or labels where it is a classifier."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    score = X @ np.array([1.0, -0.5, 0.25]) + 0.3 * rng.standard_normal(40)
    kind = traits_of(learner).loss
    labels = {
        "logistic": (score > 0) + 0.0,
        "log": (score > 0) + 0.0,
        "error": (score > 0) + 0.0,
        "multinomial": np.clip(
            np.floor(score + 1.5), 0, getattr(learner, "classes", 3) - 1
        ),
        "poisson": np.floor(np.exp(score)),
    }
    return Data(X, labels.get(kind, score), rng.uniform(0.5, 1.5, 40))


def _padded(data: Data) -> Data:
    return Data(
        np.vstack([data.X, data.X[:2] + 5.0]),
        np.append(data.y, data.y[:2]),
        np.append(data.weight, [0.0, 0.0]),
    )


def _same(a: Any, b: Any) -> bool:
    return np.array_equal(np.asarray(a), np.asarray(b))


def _expect(held: Any, promise: str) -> None:
    if not held:
        raise AssertionError(f"broken promise: {promise}")
