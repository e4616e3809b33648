"""Kin: found where it is, in every fleet, with liars, on features of any scale; exact after
interruptions; says when it fails.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from liars import Lying
from sklearn.tree import DecisionTreeRegressor

from persfl import (
    ArrayFleet,
    Choice,
    Estimator,
    GradientStep,
    Linear,
    LoopFleet,
    PersflError,
    PersflWarning,
    PersonalizedClassifier,
    PersonalizedRegressor,
    Refit,
    Tree,
    Trust,
    kin,
    personalize,
)
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.fleets.kept_steps import Steps
from persfl.methods import Kin
from persfl.rules import doubts, finished, members
from persfl.rules.kin_notes import KinNotes
from persfl.rules.kin_rule import doubtful
from persfl.runs import load_model, save_model
from persfl.sources import clustered_regression
from persfl.testing import check_adopter, check_fleet, check_sampler
from persfl.training import Plan, State, train


def world(k=2, n=40, rows=10, features=8, noise=0.1, seed=0, mapped=None):
    """Clusters of linear devices, with features that may be mapped by a matrix."""
    devices = clustered_regression(
        n=n, clusters=k, rows=rows, features=features, noise=noise, seed=seed
    )
    if mapped is not None:
        off = devices.y - (devices.X * devices.true_weights[devices.owner]).sum(axis=1)
        devices.X = np.ascontiguousarray(devices.X @ mapped)
        devices.y = (devices.X * devices.true_weights[devices.owner]).sum(axis=1) + off
    return devices


def limit(devices, target=0, without=()):
    """The squared error of least squares on all rows of the target's cluster."""
    honest = [
        j
        for j in np.flatnonzero(devices.clusters == devices.clusters[target])
        if j not in without
    ]
    rows = np.isin(devices.owner, honest)
    best = np.linalg.lstsq(devices.X[rows], devices.y[rows], rcond=None)[0]
    return ((best - devices.true_weights[target]) ** 2).sum()


def ran(fleet, rule, rounds=400, seed=0, **more):
    for round_ in personalize(
        fleet,
        sampler=rule.sampler,
        adopter=rule.adopter,
        rounds=rounds,
        seed=seed,
        **more,
    ):
        if finished(round_.trust):
            break
    return round_


def group(trust, target=0):
    known = members(trust)
    return set(known.panel[target][known.member[target]].tolist())


# Contracts


@pytest.mark.parametrize("steps", [True, False])
def test_the_parts_keep_their_promises(steps):
    rule = kin(5, steps=steps)
    check_sampler(rule.sampler)
    check_adopter(rule.adopter)


@pytest.mark.parametrize(
    "settings",
    [
        {"learner": Linear(), "proposer": GradientStep(0.05)},
        {
            "learner": Linear(intercept=True, l2=0.01),
            "proposer": GradientStep(0.05, steps=2),
        },
        {"learner": Linear("huber"), "proposer": GradientStep(0.05, batch=3)},
        {
            "learner": Linear(),
            "proposer": GradientStep(0.05),
            "targets": [3, 1],
            "holdout": 0.3,
            "local": GradientStep(0.01),
        },
        {"learner": Linear(), "proposer": GradientStep(0.05), "start": "own"},
    ],
    ids=[
        "kernel",
        "several steps",
        "minibatches",
        "holdout and local step",
        "own start",
    ],
)
def test_every_fleet_gives_the_same_rounds(settings):
    rule = kin(5)
    check_fleet(
        ArrayFleet, **settings, sampler=rule.sampler, adopter=rule.adopter, rounds=60
    )


def test_losses_alone_in_every_fleet():
    rule, public = (
        kin(5, steps=False),
        np.random.default_rng(0).standard_normal((20, 3)),
    )
    check_fleet(
        ArrayFleet,
        learner=Linear(),
        proposer=GradientStep(0.05),
        sampler=rule.sampler,
        adopter=rule.adopter,
    )
    check_fleet(
        ArrayFleet,
        learner=Tree(2),
        proposer=Refit(public),
        sampler=rule.sampler,
        adopter=rule.adopter,
        rounds=8,
    )


def test_tensors_give_the_same_rounds():
    pytest.importorskip("torch")
    rule = kin(5)
    check_fleet(
        lambda *args, **more: ArrayFleet(*args, compute="cpu", **more),
        learner=Linear("squared", intercept=True),
        proposer=GradientStep(0.05),
        sampler=rule.sampler,
        adopter=rule.adopter,
        rounds=60,
    )


def test_labels_and_networks():
    pytest.importorskip("torch")
    from torch import nn

    from persfl.learners import Network

    rng = np.random.default_rng(0)
    truth = np.array([[3.0, -2.0, 1.0], [-3.0, 2.0, 1.0]])
    data = []
    for i in range(30):
        X = rng.standard_normal((60, 3))
        data.append((X, (rng.random(60) < 1 / (1 + np.exp(-X @ truth[i % 2]))) + 0.0))
    for learner in (
        Linear("logistic", intercept=True),
        Network(
            lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
            dtype="float64",
        ),
    ):
        fleet = ArrayFleet(
            data, learner=learner, proposer=GradientStep(1.0), targets=[0]
        )
        last = ran(fleet, kin(10), rounds=120)
        found = group(last.trust)
        assert len(found) >= 7, learner
        assert all(j % 2 == 0 for j in found), learner


# Results


@pytest.mark.parametrize("fleet", [LoopFleet, ArrayFleet])
def test_it_finds_all_kin_and_reaches_the_limit(fleet):
    devices = world()
    running = fleet(devices, learner=Linear(), proposer=GradientStep(0.05), targets=[0])
    last = ran(running, kin(10))
    assert group(last.trust) == set(
        np.flatnonzero(devices.clusters == devices.clusters[0]).tolist()
    ) - {0}
    assert ((running.models[0] - devices.true_weights[0]) ** 2).sum() < 1.1 * limit(
        devices
    )


def test_every_device_at_once():
    devices = world(k=4, n=60)
    fleet = ArrayFleet(devices, learner=Linear(), proposer=GradientStep(0.05))
    last = ran(fleet, kin(15))
    found = members(last.trust)
    same = devices.clusters[found.panel] == devices.clusters[:, None]
    assert (same == found.member)[found.right].all()
    assert found.right.mean() > 0.9


def test_a_question_is_asked_only_while_it_matters():
    devices = world()
    fleet = ArrayFleet(
        devices, learner=Linear(), proposer=GradientStep(0.05), targets=[0]
    )
    rule = kin(10)
    rounds = list(
        personalize(fleet, sampler=rule.sampler, adopter=rule.adopter, rounds=300)
    )
    asked = np.array([(round_.peers >= 0).sum() for round_ in rounds])
    assert asked[:4].tolist() == [10, 10, 10, 9]  # everyone once
    assert asked[-1] == 0
    assert (rounds[-1].choice.stay == 1).all()
    assert asked.sum() < 1500
    assert finished(rounds[-1].trust)


@pytest.mark.parametrize(
    "lie",
    [
        lambda probe, honest: 2 * probe - honest,
        lambda probe, honest: probe - 10 * (honest - probe),
        lambda probe, honest: np.full_like(honest, np.nan),
        lambda probe, honest: np.full_like(honest, 1e200),
        lambda probe, honest: probe + 0 * honest,
        lambda probe, honest: probe + np.sign(honest - probe),
    ],
    ids=[
        "flipped",
        "flipped and long",
        "not a number",
        "endless",
        "copies",
        "made coarse",
    ],
)
@pytest.mark.filterwarnings("ignore:device .* gave no usable answer")
def test_liars_cost_their_own_answers_only(lie):
    devices = world(n=50)
    liars = [*range(3, 50, 3)]
    proposer = Lying(lie, devices.X[devices.start[:-1][liars], 0], GradientStep(0.05))
    fleet = ArrayFleet(devices, learner=Linear(), proposer=proposer, targets=[0])
    last = ran(fleet, kin(15))
    honest = set(np.flatnonzero(devices.clusters == devices.clusters[0]).tolist()) - {
        0,
        *liars,
    }
    assert group(last.trust) == honest
    assert ((fleet.models[0] - devices.true_weights[0]) ** 2).sum() < 1.1 * limit(
        devices, without=liars
    )


def sly(how, wrong):
    """Lies of those who plan: honest in part, or at first."""

    def late(probe, honest, then):
        return np.where(np.abs(probe).sum(axis=-1, keepdims=True) == 0, honest, then)

    return {
        "creep": lambda probe, honest: honest + 0.05 * (wrong - honest),
        "slower": lambda probe, honest: honest + 0.01 * (wrong - honest),
        "decoy": lambda probe, honest: probe + 0.1 * (wrong - probe),
        "near copies": lambda probe, honest: probe + 1e-9 * (honest - probe),
        "later copies": lambda probe, honest: late(probe, honest, probe),
        "long": lambda probe, honest: probe + 100 * (honest - probe),
    }[how]


@pytest.mark.parametrize(
    "how", ["creep", "slower", "decoy", "near copies", "later copies", "long"]
)
def test_patient_liars_cost_little(how):
    """Six of 20 devices, three or four of them in each target's own cluster, lie a little."""
    ratios = []
    for seed in (50, 54):
        devices = world(n=20, rows=24, features=6, seed=seed)
        rng = np.random.default_rng(1000 + seed)
        liars = rng.permutation(20)[:6]
        wrong = 2 * rng.standard_normal(6)
        target = int(next(i for i in range(19, -1, -1) if i not in liars))
        first = devices.X[devices.start[:-1][liars], 0]
        proposer = Lying(sly(how, wrong), first, GradientStep(0.05))
        fleet = ArrayFleet(
            devices, learner=Linear(), proposer=proposer, targets=[target], seed=seed
        )
        last = ran(fleet, kin(9), seed=seed)
        assert not group(last.trust) & set(liars.tolist())
        error = ((fleet.models[0] - devices.true_weights[target]) ** 2).sum()
        ratios.append(error / limit(devices, target, without=liars))
    assert max(ratios) < 1.2


def test_steps_as_short_as_noise_pull_no_further_than_own_rows_err():
    devices = world(n=20, rows=24, features=6, seed=50)
    rng = np.random.default_rng(1050)
    liars = rng.permutation(20)[:6]
    wrong = 2 * rng.standard_normal(6)

    def lie(probe, honest):
        return honest + 0.002 * (wrong - honest)

    first = devices.X[devices.start[:-1][liars], 0]
    honest = sorted(set(range(20)) - set(liars.tolist()))
    fleet = ArrayFleet(
        devices,
        learner=Linear(),
        proposer=Lying(lie, first, GradientStep(0.05)),
        targets=honest,
    )
    ran(fleet, kin(9))
    own = [Linear().fit(devices[i], None) for i in honest]
    truth = devices.true_weights[honest]
    pulled, alone = (
        ((models - truth) ** 2).sum(axis=1).mean() for models in (fleet.models, own)
    )
    assert pulled < alone


def test_a_false_first_step_counts_as_twice_the_median():
    rng = np.random.default_rng(0)
    who, start, own = np.arange(1, 61)[None], np.zeros((1, 5)), np.ones((1, 5))
    first, later = rng.standard_normal((2, 1, 60, 5))
    first, later = (
        part / np.sqrt((part**2).sum(axis=2, keepdims=True)) for part in (first, later)
    )
    shrinks = []
    for boast in (1.0, 1e6):
        steps = Steps(targets=np.array([0]), start=start)
        said = first.copy()
        said[0, 7] *= boast
        steps.keep(who, start, said, own)
        shrinks.append(steps.keep(who, start, later, own).shrink[0])
    assert -np.log(4.0) - 0.7 < shrinks[1][7] - shrinks[0][7] < -np.log(4.0) + 0.7
    others = np.arange(60) != 7
    # and nobody else's lengths are bent by it
    assert np.abs(shrinks[1] - shrinks[0])[others].max() < 0.7


@pytest.mark.parametrize("kind", ["badly scaled", "correlated", "turned"])
def test_features_of_any_scale(kind):
    rng = np.random.default_rng(0)
    mapped = {
        "badly scaled": np.diag(np.logspace(-0.7, 0.7, 6)),
        "correlated": 0.4 * np.eye(6) + 0.4,
        "turned": np.linalg.qr(rng.standard_normal((6, 6)))[0]
        @ np.diag(np.linspace(0.3, 1.5, 6)),
    }[kind]
    devices = world(k=3, n=60, features=6, mapped=mapped)
    fleet = ArrayFleet(
        devices, learner=Linear(), proposer=GradientStep(0.01), targets=[0]
    )
    last = ran(fleet, kin(15), rounds=1500)
    assert group(last.trust) == set(
        np.flatnonzero(devices.clusters == devices.clusters[0]).tolist()
    ) - {0}


def test_shrinking_is_the_same_in_any_units(monkeypatch):
    """But for the ridge, which keeps directions that nobody took from counting without end."""
    monkeypatch.setattr("persfl.fleets.step_metric.RIDGE", 1e-9)
    for module in ("kept_steps", "step_metric"):
        monkeypatch.setattr(f"persfl.fleets.{module}.LONGEST", 50.0)
    rng = np.random.default_rng(1)
    first, later, own = (
        rng.standard_normal((1, 40, 4)),
        rng.standard_normal((1, 40, 4)),
        rng.standard_normal((1, 4)),
    )
    who, start, shrinks = np.arange(1, 41)[None], np.zeros((1, 4)), []
    for units in (
        np.eye(4),
        np.diag([1.0, 2.0, 10.0, 100.0]),
        rng.standard_normal((4, 4)),
    ):
        steps = Steps(targets=np.array([0]), start=start)
        steps.keep(who, start, first @ units, own @ units)
        shrinks.append(steps.keep(who, start, later @ units, own @ units).shrink)
    assert np.ptp(shrinks[0]) > 1
    assert np.allclose(shrinks[0], shrinks[1], atol=1e-4)
    assert np.allclose(shrinks[0], shrinks[2], atol=1e-4)


def test_a_step_too_long_is_shortened_by_the_rule():
    devices = world(k=2, rows=60, features=4)
    # stable alone, not four times as long
    fleet = ArrayFleet(
        devices, learner=Linear(), proposer=GradientStep(0.6), targets=[0]
    )
    last = ran(fleet, kin(10))
    assert members(last.trust).careful[0] > 0
    assert ((fleet.models[0] - devices.true_weights[0]) ** 2).sum() < 1.1 * limit(
        devices
    )


def test_few_kin_and_few_rows_are_doubted():
    devices = world(k=20, n=100, features=20, noise=1.0)
    fleet = ArrayFleet(
        devices,
        learner=Linear(),
        proposer=GradientStep(0.05),
        targets=list(range(0, 100, 10)),
    )
    last = ran(fleet, kin(20))
    wrong = ((fleet.models - devices.true_weights[fleet.targets]) ** 2).sum(axis=1) > 30
    lost, thin = doubtful(last.trust, np.full(10, 10), 20)
    assert wrong.sum() > 4
    assert (lost | thin)[wrong].mean() > 0.75
    said = doubts(last.trust, np.full(10, 10), 20)
    assert ["found no group" in text for text in said].count(True) == lost.any()
    assert ["fewer than 4 rows per coefficient" in text for text in said].count(
        True
    ) == thin.any()


def test_losses_alone_beat_the_paper_where_clusters_are_many():
    from persfl import Best, Uniform

    errors = []
    for rule in ((Uniform(10), Best()), None):
        sampler, adopter = rule or (
            kin(10, steps=False).sampler,
            kin(10, steps=False).adopter,
        )
        each = []
        for seed in range(3):
            devices = world(k=6, n=60, features=10, seed=seed)
            fleet = ArrayFleet(
                devices, learner=Linear(), proposer=GradientStep(0.05), targets=[0]
            )
            list(
                personalize(
                    fleet, sampler=sampler, adopter=adopter, rounds=200, seed=seed
                )
            )
            each.append(((fleet.models[0] - devices.true_weights[0]) ** 2).sum())
        errors.append(np.median(each))
    assert errors[1] < errors[0] / 10


# Memory


@pytest.mark.parametrize("cut", [1, 3, 9, 30, 70])
def test_going_on_is_exact(cut, tmp_path):
    devices, rule = world(k=3, n=30), kin(8)
    parts = {"learner": Linear(), "proposer": GradientStep(0.05), "targets": [0, 7]}
    loop = {"sampler": rule.sampler, "adopter": rule.adopter, "seed": 3}
    whole = ArrayFleet(devices, **parts)
    all_rounds = list(personalize(whole, rounds=100, **loop))

    begun = ArrayFleet(devices, **parts)
    *_, last = personalize(begun, rounds=cut, **loop)
    kept = {f"kept_{name}": value for name, value in begun.kept.items()}
    np.savez(tmp_path / "c.npz", models=begun.models, **kept, **last.trust.to_arrays())
    with np.load(tmp_path / "c.npz") as file:
        saved = dict(file)
    resumed = ArrayFleet(devices, start=saved.pop("models"), **parts)
    resumed.kept = {
        name.removeprefix("kept_"): saved.pop(name)
        for name in list(saved)
        if name.startswith("kept_")
    }
    rest = list(
        personalize(
            resumed, rounds=100, first=cut, trust=Trust.from_arrays(saved), **loop
        )
    )
    assert np.array_equal(resumed.models, whole.models)
    for ours, theirs in zip(rest, all_rounds[cut:], strict=True):
        assert np.array_equal(ours.peers, theirs.peers)
        assert np.array_equal(ours.losses, theirs.losses)
    assert rest[-1].trust.table().equals(all_rounds[-1].trust.table())
    for name, value in all_rounds[-1].trust.notes.items():
        assert np.array_equal(value, rest[-1].trust.notes[name], equal_nan=True), name


def test_a_checkpoint_does_not_change_under_the_next_round():
    devices, rule = world(n=20), kin(8)
    fleet = ArrayFleet(devices, learner=Linear(), proposer=GradientStep(0.05))
    rounds = personalize(fleet, sampler=rule.sampler, adopter=rule.adopter, rounds=20)
    for _ in range(10):
        round_ = next(rounds)
    kept, notes = fleet.kept, round_.trust.notes
    before = [
        {name: np.array(value) for name, value in part.items()}
        for part in (kept, notes)
    ]
    next(rounds)
    for part, was in zip((kept, notes), before, strict=True):
        for name, value in part.items():
            assert np.array_equal(value, was[name], equal_nan=True), name


def test_a_fleet_can_be_used_with_one_rule_after_another():
    from persfl import Best, Uniform

    devices, rule = world(n=20), kin(8)
    parts = {"learner": Linear(), "proposer": GradientStep(0.05), "targets": [0]}
    for fleet in (ArrayFleet, LoopFleet):
        used = fleet(devices, **parts)
        list(personalize(used, sampler=rule.sampler, adopter=rule.adopter, rounds=12))
        fresh = fleet(
            devices, start=[np.array(model) for model in used.models], **parts
        )
        for each in (used, fresh):
            list(personalize(each, sampler=Uniform(5), adopter=Best(), rounds=3))
            list(
                personalize(each, sampler=rule.sampler, adopter=rule.adopter, rounds=12)
            )
        assert np.array_equal(used.models, fresh.models)


def test_training_that_is_cut_goes_on_exactly():
    class Cut(Exception):
        pass

    class Keeper:
        def __init__(self, at):
            self.at, self.state = at, None

        def last(self, stage):
            return self.state

        def after(self, stage, plan, state, round_):
            if round_ is not None and state.r == self.at:
                self.state, self.at = state, -1
                raise Cut

    devices, rule = world(n=25), kin(8)
    plan = Plan(Linear(), GradientStep, 0.05, rule.sampler, rule.adopter, 400, 0)
    whole = train(devices, plan)
    assert whole.r < 400
    for at in (2, 20, whole.r):
        keeper = Keeper(at)
        with pytest.raises(Cut):
            train(devices, plan, keep=keeper)
        again = train(devices, plan, keep=keeper)
        assert isinstance(again, State)
        assert again.r == whole.r
        assert np.array_equal(again.models, whole.models)
        assert np.array_equal(again.losses, whole.losses)


def test_a_target_may_know_only_some_of_many():
    devices = world(k=2, n=300, rows=8, features=4)
    fleet = ArrayFleet(
        devices, learner=Linear(), proposer=GradientStep(0.05), targets=[5]
    )
    last = ran(fleet, kin(10, among=40))
    found = members(last.trust)
    assert found.panel.shape == (1, 40)
    assert (devices.clusters[found.panel[found.member]] == devices.clusters[5]).all()
    assert fleet.kept["last"].shape == (1, 40, 4)


# Mistakes


def test_mistakes_are_answered_in_a_sentence():
    devices = world(n=10)
    rule = kin(5)
    trees = LoopFleet(
        devices,
        learner=Estimator(DecisionTreeRegressor()),
        proposer=Refit(np.zeros((3, 8))),
        targets=[0],
    )
    with pytest.raises(
        PersflError, match=r"need models that are vectors.*kin\(peers, steps=False\)"
    ):
        next(personalize(trees, sampler=rule.sampler, adopter=rule.adopter, rounds=1))
    fleet = ArrayFleet(devices, learner=Linear(), proposer=GradientStep(0.05))
    with pytest.raises(
        PersflError, match=r"peers must be at most 9 \(10 devices\). Got 20"
    ):
        next(
            personalize(
                fleet, sampler=kin(20).sampler, adopter=kin(20).adopter, rounds=1
            )
        )

    class Bare:
        n, targets, models = 10, np.array([0]), None

    with pytest.raises(PersflError, match="needs a fleet that keeps steps"):
        personalize(Bare(), sampler=rule.sampler, adopter=rule.adopter, rounds=1)
    fleet = ArrayFleet(devices, learner=Linear(), proposer=GradientStep(0.05))
    *_, last = personalize(fleet, sampler=rule.sampler, adopter=rule.adopter, rounds=4)
    fresh = ArrayFleet(devices, learner=Linear(), proposer=GradientStep(0.05))
    with pytest.raises(PersflError, match=r"set fleet.kept to what it was"):
        personalize(
            fresh,
            sampler=rule.sampler,
            adopter=rule.adopter,
            rounds=9,
            first=4,
            trust=last.trust,
        )
    with pytest.raises(PersflError, match="no notes of kin"):
        members(Trust(3, np.array([0])))
    other = kin(5, steps=False)
    with pytest.raises(PersflError, match="notes of another rule"):
        next(
            personalize(
                fleet,
                sampler=other.sampler,
                adopter=other.adopter,
                rounds=9,
                first=4,
                trust=last.trust,
            )
        )


def test_kept_steps_from_elsewhere_are_checked():
    devices, rule = world(n=10), kin(5)
    fleet = ArrayFleet(devices, learner=Linear(), proposer=GradientStep(0.05))
    list(personalize(fleet, sampler=rule.sampler, adopter=rule.adopter, rounds=4))
    good = fleet.kept
    fleet.kept = good
    for bad, said in (
        ({"first": good["first"]}, "must hold the arrays"),
        (good | {"last": good["last"][:, :, :3]}, "of another run"),
        (good | {"first": np.full_like(good["first"], np.nan)}, "damaged"),
    ):
        with pytest.raises(PersflError, match=said):
            fleet.kept = bad
    with pytest.raises(PersflError, match="it never answered"):
        Steps(targets=np.array([0]), start=np.zeros((1, 2))).moved_by(
            np.zeros((1, 2)), Choice(np.array([[3]]), np.ones((1, 1)), np.zeros(1))
        )


# The front door


def table(devices: Devices) -> Any:
    return devices.X, devices.y, devices.owner


def test_estimators_take_it(tmp_path):
    devices = world(k=3, n=45, features=6)
    X, y, owner = table(devices)
    model = PersonalizedRegressor(method="kin", holdout=0).fit(X, y, devices=owner)
    W = model.coefficients().to_numpy()[:, :6]
    paper = (
        PersonalizedRegressor(method="paper", holdout=0)
        .fit(X, y, devices=owner)
        .coefficients()
        .to_numpy()[:, :6]
    )
    assert (
        np.median(((W - devices.true_weights) ** 2).sum(axis=1))
        < np.median(((paper - devices.true_weights) ** 2).sum(axis=1)) / 2
    )
    helps = model.helpers_[model.helpers_["verdict"] == "helps"]
    assert (devices.clusters[helps["device"]] == devices.clusters[helps["peer"]]).all()
    assert len(helps) > 400
    made = model.made_of()
    assert np.allclose(made["own"] + made["others"], 1)
    assert (made["kin"][made["found"]] == 14).all()
    assert any("devices found kin: 14 to 14 others" in note for note in model.notes_)

    again = load_model(save_model(model, tmp_path / "run"))
    assert np.array_equal(
        again.predict(X, devices=owner), model.predict(X, devices=owner)
    )
    assert again.method == "kin"
    assert again.made_of().equals(made)
    assert again.helpers_.equals(model.helpers_)


def test_devices_without_kin_keep_their_own_model_and_it_is_said():
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(12), 6)
    X = rng.standard_normal((72, 5))
    # everyone is different
    y = (X * rng.standard_normal((12, 5))[owner]).sum(
        axis=1
    ) + 0.5 * rng.standard_normal(72)
    with pytest.warns(
        PersflWarning, match="found no group that (it fits|they fit) into.*own rows"
    ):
        model = PersonalizedRegressor(method=Kin(rounds=100), holdout=0).fit(
            X, y, devices=owner
        )
    lost = ~model.made_of()["found"].to_numpy()
    assert lost.any()
    from persfl.evaluation.rivals import own_fits

    inside = model.units_.inside(
        Devices(X, y, np.ones(72), np.arange(0, 73, 6), list(range(12)))
    )
    assert np.array_equal(
        model.models_[lost], own_fits(model.learner_, inside, 0)[lost]
    )


def test_classes_and_trees():
    devices = world(k=2, n=24, rows=40, features=3, noise=0.1)
    X, y, owner = table(devices)
    classifier = PersonalizedClassifier(method="kin", holdout=0).fit(
        X, y > 0, devices=owner
    )
    assert classifier.score(X, y > 0, devices=owner) > 0.9
    trees = PersonalizedRegressor(Tree(3), method=Kin(rounds=6), holdout=0).fit(
        X, y, devices=owner
    )
    assert np.isfinite(trees.predict(X, devices=owner)).all()
    with pytest.raises(PersflError, match="See helpers_ instead"):
        trees.made_of()
    assert len(trees.helpers_)


def test_settings_that_do_not_go_together():
    X, y, owner = table(world(n=6, rows=5, features=2))
    with pytest.raises(PersflError, match="Kin has no setting 'adopter'"):
        PersonalizedRegressor(method="kin").set_params(method__adopter=None)
    with pytest.raises(PersflError, match="method must be one of"):
        PersonalizedRegressor(method="kind").fit(X, y, devices=owner)
    with pytest.raises(
        PersflError, match="partial_fit goes by method='blend' or 'paper'"
    ):
        PersonalizedRegressor(method="kin").partial_fit(X, y, devices=owner)


def test_a_run_folder_killed_and_resumed_is_the_same(tmp_path):
    import pandas as pd

    from persfl.cli import main

    devices = world(k=2, n=16, rows=8, features=3)
    frame = pd.DataFrame(devices.X, columns=list("abc")).assign(
        y=devices.y, who=[f"d{i}" for i in devices.owner]
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    command = [
        "fit",
        str(tmp_path / "t.csv"),
        "--device",
        "who",
        "--label",
        "y",
        "--method",
        "kin",
        "--no-report",
        "--trials",
        "1",
    ]
    assert main([*command, "--out", str(tmp_path / "whole")]) == 0
    whole = load_model(tmp_path / "whole")
    assert whole.method == "kin"

    from persfl import runs

    class Killed(BaseException):
        pass

    for kill in (5, 40):
        count, real = [0], runs.Folder.after

        def after(self, stage, plan, state, round_, count=count, real=real, kill=kill):
            real(self, stage, plan, state, round_)
            count[0] += 1
            if count[0] == kill:
                raise Killed

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PERSFL_SAVE_SECONDS", "0")
            patch.setattr(runs.Folder, "after", after)
            with pytest.raises(Killed):
                main([*command, "--out", str(tmp_path / f"cut{kill}")])
        assert main([*command, "--out", str(tmp_path / f"cut{kill}"), "--resume"]) == 0
        again = load_model(tmp_path / f"cut{kill}")
        assert np.array_equal(again.models_, whole.models_)
        assert again.n_rounds_ == whole.n_rounds_
        assert again.helpers_.equals(whole.helpers_)


def test_the_rule_is_a_value():
    assert kin(20) == kin(20)
    assert replace(kin(20).adopter, few=3) != kin(20).adopter


def test_from_its_own_fit_a_target_finds_nobody_and_says_so():
    devices = world(rows=5)
    fleet = ArrayFleet(
        devices, learner=Linear(), proposer=GradientStep(0.05), targets=[0], start="own"
    )
    last = ran(fleet, kin(10), rounds=80)
    assert not group(last.trust)
    assert "found no group" in doubts(last.trust, [5], 8)[0]


def test_notes_of_another_kind_are_a_sentence():
    """A run folder of somebody else's ended `persfl fit --resume` in a traceback."""
    notes = KinNotes.blank(2).notes()
    for odd in (np.full((2, 0), np.nan), np.zeros(2, dtype=bool)):
        with pytest.raises(InputError, match="'member' is no such array"):
            KinNotes.of(notes | {"member": odd}, 2)
