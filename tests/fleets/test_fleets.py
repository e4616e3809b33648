import copy
import pickle
import warnings

import numpy as np
import pytest
from liars import Lying
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeRegressor

from persfl import (
    ArrayFleet,
    Best,
    BestOrStay,
    Choice,
    Estimator,
    GradientStep,
    Linear,
    LoopFleet,
    Nobody,
    PersflWarning,
    Refit,
    Tree,
    Uniform,
    personalize,
)
from persfl.errors import CannotMix, Diverged, InputError
from persfl.fleets import Guarded
from persfl.fleets.share import Share
from persfl.sources import clustered_regression

PUBLIC = np.random.default_rng(0).standard_normal((30, 3))


@pytest.fixture
def devices():
    return clustered_regression(n=12, rows=(4, 15), features=3, noise=0.1, seed=0)


def rounds_of(fleet, rounds=5, peers=4, adopter=None):
    return list(
        personalize(
            fleet, sampler=Uniform(peers), adopter=adopter or Best(), rounds=rounds
        )
    )


@pytest.mark.parametrize("compute", [None, "cpu"])
@pytest.mark.parametrize("fleet", [ArrayFleet, LoopFleet])
def test_models_that_are_set_are_copied_and_checked(devices, fleet, compute):
    more = {}
    if compute is not None:
        pytest.importorskip("torch")
        more = {"compute": compute} if fleet is ArrayFleet else {}
    running = fleet(devices, learner=Linear(), proposer=GradientStep(0.05), **more)
    models = np.arange(36.0).reshape(12, 3)
    running.models = models
    models[:] = 7.0
    np.testing.assert_array_equal(running.models, np.arange(36.0).reshape(12, 3))
    running.models = np.broadcast_to(np.ones(3), (12, 3))
    rounds_of(running)
    running.models = models.astype(np.float32)
    assert np.asarray(running.models).dtype == np.float64
    for bad in (models[:5], models[:, :2], np.where(models > 0, np.nan, 1.0)):
        with pytest.raises(InputError):
            running.models = bad
    assert (np.asarray(running.models) == 7.0).all()


@pytest.mark.parametrize("fleet", [ArrayFleet, LoopFleet])
def test_a_learner_per_target(devices, fleet):
    """The paper's first figure: one device linear, another a forest; a peer answers in the
    asker's family.
    """
    learners = [Estimator(Ridge(alpha=0.01)), Estimator(RandomForestRegressor(5))]
    running = fleet(devices, learner=learners, proposer=Refit(PUBLIC), targets=[0, 1])
    rounds_of(running)
    assert [type(model).__name__ for model in running.models] == [
        "Ridge",
        "RandomForestRegressor",
    ]


def test_start(devices):
    make = {
        "learner": Linear(intercept=True),
        "proposer": GradientStep(0.05),
        "targets": [2, 5],
    }
    for fleet in (ArrayFleet, LoopFleet):
        assert np.array_equal(fleet(devices, **make).models, np.zeros((2, 4)))
        assert np.array_equal(
            fleet(devices, start="zeros", **make).models, np.zeros((2, 4))
        )
        own = fleet(devices, start="own", **make).models
        assert np.allclose(own[1], Linear(intercept=True).fit(devices[5], None))
        given = fleet(devices, start=np.arange(4.0), **make).models
        assert np.array_equal(given, [np.arange(4.0)] * 2)
        each = fleet(devices, start=[np.arange(4.0), np.ones(4)], **make).models
        assert np.array_equal(each[1], np.ones(4))


def test_models_can_be_set(devices):
    for kind in (ArrayFleet, LoopFleet):
        fleet = kind(
            devices, learner=Linear(), proposer=GradientStep(0.05), targets=[2, 5]
        )
        fleet.models = [np.ones(3), np.zeros(3)]
        assert np.array_equal(fleet.models, [np.ones(3), np.zeros(3)])
        with pytest.raises(InputError, match="must be 3 finite numbers"):
            fleet.models = [np.ones(3), np.full(3, np.inf)]
    trees = ArrayFleet(devices, learner=Tree(2), proposer=Refit(PUBLIC), targets=[2])
    trees.models = [Tree(2).zeros(devices[0])]
    assert (
        Tree(2).predict(trees.models[0], devices[0].X).tolist()
        == [0.0] * devices[0].rows
    )


def test_start_of_estimators(devices):
    make = {
        "learner": Estimator(DecisionTreeRegressor(max_depth=2)),
        "proposer": Refit(PUBLIC),
        "targets": [0],
    }
    zero = LoopFleet(devices, start="zeros", **make)
    assert isinstance(zero.models[0], DummyRegressor)
    assert (zero.models[0].predict(devices[0].X) == 0).all()
    assert rounds_of(zero)[-1].loss < np.mean(devices[0].y ** 2)
    trained = DecisionTreeRegressor().fit(devices[0].X, devices[0].y)
    assert LoopFleet(devices, start=trained, **make).models[0] is trained
    with pytest.raises(
        InputError, match="a starting model must be a fitted estimator for 3 features"
    ):
        LoopFleet(devices, start=DecisionTreeRegressor(), **make)


def test_holding_out_scores_by_some_rows_and_trains_on_the_others(devices):
    fleet = LoopFleet(
        devices, learner=Linear(), proposer=GradientStep(0.05), holdout=0.3
    )
    for t in range(len(devices)):
        scoring, training = fleet.home.scoring[t], fleet.home.training[t]
        assert scoring.rows == max(1, round(0.3 * devices[t].rows))
        assert sorted([*scoring.y, *training.y]) == sorted(devices[t].y)
    other = LoopFleet(
        devices, learner=Linear(), proposer=GradientStep(0.05), holdout=0.3, seed=1
    )
    assert any(
        not np.array_equal(fleet.home.scoring[t].y, other.home.scoring[t].y)
        for t in range(len(devices))
    )


def test_results_do_not_depend_on_n_jobs(devices):
    forest = Estimator(RandomForestRegressor(3))
    runs = [
        rounds_of(
            LoopFleet(
                devices,
                learner=forest,
                proposer=Refit(PUBLIC),
                targets=[0, 1],
                n_jobs=jobs,
            ),
            rounds=2,
            peers=3,
        )
        for jobs in (1, 2)
    ]
    assert all(np.array_equal(a.losses, b.losses) for a, b in zip(*runs, strict=True))


class Sabotage(GradientStep):
    """Device 0's first feature is marked; that peer fails in the way `step_size` asks for."""

    def answer(self, learner, probe, data, stream):
        answer = super().answer(learner, probe, data, stream)
        if data.X[..., 0, 0] != 77.0:
            return answer
        kind = self.steps
        if kind == 1:
            raise RuntimeError("disk full")
        return {
            2: np.full_like(answer, np.nan),
            3: answer[:-1],
            4: np.full_like(answer, 1e300),
        }[kind]


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
def test_a_bad_peer_costs_its_own_answer_never_the_run(devices, kind):
    devices.X[devices.start[4], 0] = 77.0
    fleet = LoopFleet(
        devices, learner=Linear(), proposer=Sabotage(0.01, steps=kind), targets=[0, 1]
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        *_, last = rounds_of(fleet, rounds=10, peers=11)
    table = last.trust.table().set_index(["target", "peer"])
    assert (table.loc[(slice(None), 4), "answered"] == 0).all()
    assert (table.loc[(slice(None), 4), "asked"] == 10).all()
    assert (table.drop(index=4, level="peer")["answered"] == 10).all()
    said = [str(w.message) for w in caught if issubclass(w.category, PersflWarning)]
    assert len(said) == (kind in (1, 3))  # once, not once a round
    if kind == 1:
        assert said == ["device 4 gave no usable answer: RuntimeError: disk full"]


def test_an_unlucky_round_of_bad_peers_only_is_survived(devices):
    devices.X[devices.start[4], 0] = 77.0
    fleet = LoopFleet(
        devices, learner=Linear(), proposer=Sabotage(0.01, steps=2), targets=[0]
    )

    def ask(trust, r, seed):
        return np.array([[4]]) if r % 3 else np.array([[5]])

    rounds = list(personalize(fleet, sampler=ask, adopter=Best(), rounds=9))
    assert [int(round_.choice.stay[0]) for round_ in rounds] == [0, 1, 1] * 3


@pytest.mark.parametrize("fleet", [ArrayFleet, LoopFleet])
def test_a_local_step_that_diverges_is_named_and_undone(devices, fleet):
    running = fleet(
        devices,
        learner=Linear(),
        proposer=GradientStep(0.05),
        local=GradientStep(1e3),
        targets=[0],
    )
    with pytest.raises(
        Diverged, match="in the local step, step_size=1000 is too large: try 500"
    ):
        list(personalize(running, sampler=Nobody(), adopter=Best(), rounds=500))
    assert np.isfinite(Linear().loss(running.models[0], devices[0]))


def test_a_subclass_is_asked_itself_in_every_fleet(devices):
    class Clipped(GradientStep):
        def answer(self, learner, probe, data, stream):
            return probe + np.clip(
                super().answer(learner, probe, data, stream) - probe, -0.01, 0.01
            )

    runs = [
        rounds_of(kind(devices, learner=Linear(), proposer=Clipped(0.05)))
        for kind in (ArrayFleet, LoopFleet)
    ]
    assert max(round_.lengths.max() for round_ in runs[0]) < 0.02
    assert np.allclose(runs[0][-1].losses, runs[1][-1].losses)


def test_counts_and_rows_of_weight_zero_in_both_fleets():
    rng = np.random.default_rng(0)
    counts = [(rng.standard_normal((20, 2)), rng.poisson(8, 20)) for _ in range(5)]
    X = rng.standard_normal((8, 2))
    y, weight = np.exp(X.sum(axis=1)).round(), np.ones(8)
    X[3], weight[3] = 900.0, 0.0
    for rows, step in ((counts, 0.02), ([(X, y, weight)] * 4, 0.5)):
        learner = Linear("poisson", intercept=True)
        runs = [
            rounds_of(
                kind(rows, learner=learner, proposer=GradientStep(step), targets=[0]),
                rounds=60,
                peers=3,
            )
            for kind in (ArrayFleet, LoopFleet)
        ]
        assert np.allclose(runs[0][-1].losses, runs[1][-1].losses, rtol=1e-9)


def test_when_every_peer_fails_the_run_stops_and_says_why(devices):
    class Broken(GradientStep):
        def answer(self, learner, probe, data, stream):
            raise RuntimeError("disk full")

    fleet = LoopFleet(devices, learner=Linear(), proposer=Broken(0.05), targets=[0])
    with (
        pytest.warns(PersflWarning),
        pytest.raises(Diverged, match="failed with RuntimeError: disk full"),
    ):
        rounds_of(fleet)


def test_a_classifier_peer_with_one_class_is_no_obstacle():
    rng = np.random.default_rng(0)
    devices = [
        (rng.standard_normal((8, 3)), (rng.random(8) < 0.5) + 0.0) for _ in range(6)
    ]
    devices[3] = (devices[3][0], np.ones(8))
    fleet = LoopFleet(
        devices,
        learner=Estimator(LogisticRegression()),
        proposer=Refit(PUBLIC, soft=True),
        targets=[0],
    )
    assert np.isfinite(rounds_of(fleet, adopter=BestOrStay(), peers=5)[-1].losses).all()


@pytest.mark.parametrize("fleet", [ArrayFleet, LoopFleet])
@pytest.mark.parametrize("compiled", [True, False])
def test_nobody_is_written_as_minus_one(devices, fleet, compiled, uncompiled):
    if not compiled:
        uncompiled()
    running = fleet(
        devices, learner=Linear(), proposer=GradientStep(0.05), targets=[0, 1]
    )
    losses, lengths = running.probe(np.array([[3, -1], [4, 5]]), 0)
    assert np.isinf(losses[0, 2])
    assert np.isnan(lengths[0, 1])
    assert np.isfinite(losses[1]).all()
    before = np.array(running.models)
    running.adopt(
        Choice(np.array([[-1], [4]]), np.array([[0.0], [1.0]]), np.array([1.0, 0.0]))
    )
    assert np.array_equal(running.models[0], before[0])
    assert not np.array_equal(running.models[1], before[1])


def test_adopting_from_somebody_who_was_not_asked(devices):
    fleet = LoopFleet(
        devices, learner=Linear(), proposer=GradientStep(0.05), targets=[0]
    )
    fleet.probe(np.array([[3]]), 0)
    with pytest.raises(
        InputError, match="target 0 cannot adopt from device 5: it was not asked"
    ):
        fleet.adopt(Choice(np.array([[5]]), np.ones((1, 1)), np.zeros(1)))


@pytest.mark.parametrize(
    ("private", "public"), [(None, None), (1.0, 1.0), (1.0, 0.0), (2.0, 50.0)]
)
def test_refit_weighs_private_rows_against_public_points(devices, private, public):
    data, model = devices[0], np.array([1.0, -2.0, 3.0])
    proposer = Refit(
        PUBLIC, step_size=3.0, private_weight=private, public_weight=public
    )
    answer = proposer.answer(Linear(), proposer.ask(Linear(), model), data, None)
    own = 3.0 / data.rows if private is None else private
    each = 1.0 / len(PUBLIC) if public is None else public
    X, y = np.vstack([data.X, PUBLIC]), np.concatenate([data.y, PUBLIC @ model])
    weight = np.repeat([own, each], [data.rows, len(PUBLIC)])
    expected = np.linalg.lstsq(
        X * np.sqrt(weight)[:, None], y * np.sqrt(weight), rcond=None
    )[0]
    assert np.allclose(answer, expected)


# Baselines


def test_baselines_of_estimators_say_what_they_cannot(devices):
    from persfl import baselines

    parts = {
        "learner": Estimator(Ridge()),
        "proposer": Refit(PUBLIC),
        "targets": [0, 1],
        "seed": 3,
    }
    fleet = ArrayFleet(devices, **parts)
    assert (fleet.learner, fleet.proposer, fleet.local, fleet.seed) == (
        parts["learner"],
        parts["proposer"],
        None,
        3,
    )
    for run in (
        lambda: baselines.fedavg(fleet, rounds=1),
        lambda: baselines.finetuned(fleet, alone=1, rounds=2),
        lambda: baselines.finetuned(fleet, alone=1, rounds=1),
        lambda: baselines.ditto(fleet, pull=0.1, rounds=1),
        lambda: baselines.ifca(fleet, told=2, rounds=1),
        lambda: iter(fleet.scored(np.zeros((1, 3)))),
        lambda: iter(fleet.stepped(np.zeros((1, 3)), np.array([0]), None)),
    ):
        with pytest.raises(
            CannotMix, match="shared models must be vectors that can be averaged.*Ridge"
        ):
            next(run())
    with pytest.raises(InputError, match="needs the fleet's local step"):
        baselines.local(fleet, rounds=1)
    (round_,) = baselines.pooled(fleet, rounds=1)
    whole = Ridge().fit(devices.X, devices.y)
    expected = np.mean((whole.predict(devices[0].X) - devices[0].y) ** 2)
    assert np.isclose(round_.loss[0], expected)
    several = ArrayFleet(devices, **parts | {"learner": [Estimator(Ridge()), Tree(2)]})
    with pytest.raises(InputError, match="one learner for everybody"):
        next(baselines.pooled(several, rounds=1))


# The guard


def short(liars, share, step):
    """Steps that are `share` as long where these devices answer."""
    return Lying(lambda probe, honest: probe + share * (honest - probe), liars, step)


def guarded(share, *, fleet=ArrayFleet, own=True):
    """Nine peers of one kind, six of whom shorten their steps: 60 rounds with a guard, and the
    model without one.
    """
    devices = clustered_regression(n=10, clusters=1, rows=24, features=6, seed=4)
    proposer = short(devices.X[devices.start[4:-1], 0], share, GradientStep(0.05))
    parts = {"learner": Linear(), "proposer": proposer, "targets": [0]}
    plain, inside = fleet(devices, **parts), fleet(devices, **parts)
    used = Guarded(inside if own else Blind(inside))
    for each in (plain, used):
        rounds_of(each, rounds=60, peers=9)
    assert ((plain.models[0] - devices.true_weights[0]) ** 2).sum() < 0.01
    return used, plain.models[0]


class Blind:
    """A fleet that does not know the targets' own steps."""

    def __init__(self, fleet):
        self.n, self.targets, self._fleet = fleet.n, fleet.targets, fleet
        self.observe, self.probe, self.adopt = fleet.observe, fleet.probe, fleet.adopt

    models = property(lambda self: self._fleet.models)


@pytest.mark.parametrize("fleet", [ArrayFleet, LoopFleet])
@pytest.mark.parametrize("share", [0.0, 1e-9, 1e-4, 0.01, 0.05])
def test_a_majority_of_short_answers_does_not_make_honest_ones_long(share, fleet):
    used, plain = guarded(share, fleet=fleet)
    assert not used.jumps
    assert np.array_equal(used.models[0], plain)
    copying = {peer for peer, many in used.copies.items() if many == 60}
    assert copying == (set(range(4, 10)) if share <= 1e-4 else set())


@pytest.mark.parametrize("share", [0.0, 1e-9, 1e-4])
def test_copies_have_no_part_in_the_median_where_own_steps_are_unknown(share):
    used, plain = guarded(share, own=False)
    assert not used.jumps
    assert np.array_equal(used.models[0], plain)


def test_eight_copies_and_one_who_jumps():
    devices = clustered_regression(n=10, clusters=1, rows=24, features=6, seed=4)
    first = devices.X[devices.start[:-1], 0]
    jumps = short(first[9:], 50.0, GradientStep(0.05))
    fleet = ArrayFleet(
        devices, learner=Linear(), proposer=short(first[1:9], 0.0, jumps), targets=[0]
    )
    used = Guarded(fleet, growth=1e9)
    used.probe(np.arange(1, 10)[None], 0)
    assert [(jump.peer, jump.why) for jump in used.jumps] == [(9, "length")]


@pytest.mark.parametrize("fleet", [ArrayFleet, LoopFleet])
def test_own_lengths_are_those_of_asking_oneself(devices, fleet):
    for proposer in (GradientStep(0.05), GradientStep(0.05, steps=2, batch=3)):
        running = fleet(devices, learner=Linear(), proposer=proposer, targets=[3, 1])
        asked = running.probe(np.array([[3], [1]]), 7).lengths[:, 0]
        assert np.allclose(running.own_lengths(7), asked)
    trees = fleet(devices, learner=Tree(2), proposer=Refit(PUBLIC), targets=[0])
    assert np.isnan(trees.own_lengths(0)).all()


def test_a_guard_keeps_steps_only_where_its_fleet_does(devices):
    from persfl import kin

    fleet = ArrayFleet(
        devices, learner=Linear(), proposer=GradientStep(0.05), targets=[0]
    )
    rule = kin(4)
    with pytest.raises(InputError, match="needs a fleet that keeps steps"):
        personalize(
            Guarded(Blind(fleet)), sampler=rule.sampler, adopter=rule.adopter, rounds=1
        )
    used = Guarded(fleet)
    list(personalize(used, sampler=rule.sampler, adopter=rule.adopter, rounds=3))
    assert used.kept is not None


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))]
)
def test_a_guard_can_be_copied(devices, copied):
    used = Guarded(
        ArrayFleet(devices, learner=Linear(), proposer=GradientStep(0.05), targets=[0])
    )
    rounds_of(used)
    again = copied(used)
    assert again.reach == used.reach
    assert np.array_equal(again.models, used.models)
    with pytest.raises(AttributeError, match="nonsense"):
        again.nonsense  # noqa: B018


def test_some_devices_in_any_order(devices):
    from persfl.methods.blend.mixture import of_devices

    for which in ([3, 1], [1, 3], [5], [0, 11, 4, 2]):
        some = of_devices(devices, np.array(which))
        for place, i in enumerate(which):
            assert np.array_equal(some[place].X, devices[i].X)
            assert np.array_equal(some[place].y, devices[i].y)
            assert np.array_equal(some[place].weight, devices[i].weight)


def test_own_steps_of_those_who_share_models_may_run_away():
    devices = clustered_regression(n=4, clusters=1, rows=6, features=3, seed=0)
    step = GradientStep(1e300)
    fleet = ArrayFleet(devices, learner=Linear(), proposer=step)
    with pytest.raises(Diverged, match="no answer gives device"):
        Share(fleet, local=3).probe(np.array([[1], [2], [3], [0]]), 0)
