"""One fleet, four engines: each is chosen where it should be, keeps the contract, and can do
all that a fleet can.
"""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from persfl import (
    ArrayFleet,
    Best,
    Estimator,
    GradientStep,
    Linear,
    LoopFleet,
    Refit,
    TopK,
    Uniform,
    kin,
    personalize,
)
from persfl.baselines import ditto, fedavg, ifca
from persfl.compiled import kernels
from persfl.errors import CannotMix, InputError
from persfl.fleets import compiled_engine
from persfl.fleets.batched import Batched
from persfl.fleets.compiled_engine import Compiled
from persfl.fleets.pairwise import Pairwise
from persfl.seeds import stream
from persfl.sources import Replay, clustered_regression
from persfl.testing import check_fleet

STEP = GradientStep(0.05)
ROWS = clustered_regression(n=8, clusters=2, rows=(5, 9), features=3, noise=0.1, seed=1)


def batched(devices, **parts):
    """An ArrayFleet without compiled code: a subclass may do something else, so there is none
    for it.
    """

    class Mine(Linear):
        pass

    return ArrayFleet(devices, **(parts | {"learner": Mine()}))


def on_torch(devices, **parts):
    pytest.importorskip("torch")
    return ArrayFleet(devices, compute="cpu", **parts)


ENGINES = {
    "pairwise": LoopFleet,
    "batched": batched,
    "compiled": ArrayFleet,
    "torch": on_torch,
}


@pytest.fixture(params=ENGINES)
def make(request):
    if request.param == "compiled":
        pytest.importorskip("numba")
    return ENGINES[request.param]


def test_the_engine_is_chosen_by_the_parts():
    parts = {"learner": Linear(), "proposer": STEP}
    assert type(LoopFleet(ROWS, **parts).engine) is Pairwise
    assert type(batched(ROWS, **parts).engine) is Batched
    assert (
        type(
            ArrayFleet(
                ROWS, learner=Linear(), proposer=GradientStep(0.1, batch=2)
            ).engine
        )
        is Batched
    )
    trees = ArrayFleet(ROWS, learner=Estimator(Ridge()), proposer=Refit(np.eye(3)))
    assert type(trees.engine) is Pairwise


def test_the_fast_engines():
    pytest.importorskip("numba")
    assert type(ArrayFleet(ROWS, learner=Linear(), proposer=STEP).engine) is Compiled
    pytest.importorskip("torch")
    from persfl.fleets.torch_engine import Torch

    for wish in ({"compute": "cpu"}, {"dtype": "float32"}):
        assert (
            type(ArrayFleet(ROWS, learner=Linear(), proposer=STEP, **wish).engine)
            is Torch
        )


@pytest.mark.parametrize(
    "more", [{}, {"holdout": 0.25, "local": GradientStep(0.02)}], ids=["plain", "local"]
)
def test_every_engine_keeps_the_contract(make, more):
    check_fleet(
        make,
        learner=Linear(),
        proposer=STEP,
        adopter=TopK(2),
        devices=ROWS,
        rounds=10,
        peers=3,
        **more,
    )


def test_every_engine_remembers_steps(make):
    rule = kin(3)
    check_fleet(
        make,
        learner=Linear(),
        proposer=STEP,
        adopter=rule.adopter,
        sampler=rule.sampler,
        devices=ROWS,
        rounds=10,
        peers=3,
    )


def test_every_engine_remembers_steps_of_rows_that_arrive(make):
    rule, source = kin(3), Replay(ROWS, window=4)
    pair = []
    for fleet in (
        make(source, learner=Linear(), proposer=STEP),
        LoopFleet(source, learner=Linear(), proposer=STEP),
    ):
        pair.append(
            list(
                personalize(fleet, sampler=rule.sampler, adopter=rule.adopter, rounds=4)
            )
        )
    np.testing.assert_allclose(pair[0][-1].losses, pair[1][-1].losses, atol=1e-9)


def test_every_engine_has_all_that_a_fleet_has(make):
    fleet, plain = (
        kind(ROWS, learner=Linear(), proposer=STEP, seed=3)
        for kind in (make, LoopFleet)
    )
    assert isinstance(fleet.learner, Linear)
    assert (fleet.proposer, fleet.local, fleet.seed, fleet.kept) == (
        STEP,
        None,
        3,
        None,
    )
    np.testing.assert_allclose(fleet.own_lengths(0), plain.own_lengths(0))
    models = np.arange(6.0).reshape(2, 3)
    who, place = np.array([5, 1]), stream(0, "steps").at(np.array([5, 1]))
    np.testing.assert_allclose(
        fleet.stepped(models, who, place), plain.stepped(models, who, place)
    )
    np.testing.assert_allclose(fleet.scored(models, who), plain.scored(models, who))
    np.testing.assert_allclose(fleet.scored(models), plain.scored(models))


def test_steps_on_few_rows_are_those_of_every_engine(make):
    step = GradientStep(0.05, steps=2, batch=2)
    who, place = np.array([4, 0, 6]), stream(2, "steps").at(np.array([4, 0, 6]))
    moved = [
        kind(ROWS, learner=Linear(), proposer=step).stepped(np.ones((3, 3)), who, place)
        for kind in (make, LoopFleet)
    ]
    np.testing.assert_allclose(moved[0], moved[1], atol=1e-12)


def test_baselines_run_on_every_engine(make):
    for method in (
        lambda f: fedavg(f, rounds=4),
        lambda f: ditto(f, pull=0.1, rounds=4),
        lambda f: ifca(f, told=2, rounds=4),
    ):
        last = [
            list(method(kind(ROWS, learner=Linear(), proposer=STEP)))[-1].losses
            for kind in (make, ArrayFleet)
        ]
        np.testing.assert_allclose(last[0], last[1], atol=1e-9)


def test_models_that_are_no_vectors_say_why_they_cannot_be_shared():
    both = [Estimator(Ridge())] * len(ROWS)
    for learner in (Estimator(Ridge()), both):
        for kind in (LoopFleet, ArrayFleet):
            fleet = kind(ROWS, learner=learner, proposer=Refit(np.eye(3)))
            assert fleet.learner is learner
            for use in (
                lambda f: list(fedavg(f, rounds=1)),
                lambda f: f.scored(np.zeros((1, 3))),
                lambda f: f.stepped(np.zeros((8, 3)), None, stream(0).at(f.targets)),
            ):
                with pytest.raises(CannotMix, match="shared models must be vectors"):
                    use(fleet)


def test_rows_that_arrive_are_not_there_to_step_on(make):
    fleet = make(Replay(ROWS, window=3), learner=Linear(), proposer=STEP)
    with pytest.raises(InputError, match="once its first round has been observed"):
        _ = fleet.models
    fleet.observe(0)
    with pytest.raises(InputError, match="need rows that stay. Got a stream"):
        fleet.scored(np.zeros((1, 3)), np.array([0]))


def test_a_processor_is_named_by_compute():
    with pytest.raises(InputError, match=r"Write compute='cuda'\.$"):
        ArrayFleet(ROWS, learner=Linear(), proposer=STEP, device="cuda")
    with pytest.raises(
        InputError, match="compute='cuda' needs steps of Linear or Network"
    ):
        ArrayFleet(
            ROWS, learner=Estimator(Ridge()), proposer=Refit(np.eye(3)), compute="cuda"
        )


def test_a_network_waits_for_the_first_rows():
    nn = pytest.importorskip("torch.nn")
    from persfl.learners import Network
    from persfl.sources import Inbox

    inbox = Inbox(["a", "b"], window=5)
    fleet = ArrayFleet(
        inbox, learner=Network(lambda: nn.Linear(3, 1), loss="squared"), proposer=STEP
    )
    for name in "ab":
        inbox.push(name, ROWS[0].X, ROWS[0].y)
    assert (
        len(list(personalize(fleet, sampler=Uniform(1), adopter=Best(), rounds=1))) == 1
    )


@pytest.mark.skipif(kernels() is None, reason="needs numba")
def test_threads_of_the_kernels_change_no_bit(monkeypatch):
    """Several are used, and rounds are those of one."""
    devices = clustered_regression(n=300, clusters=3, rows=(4, 9), features=3, seed=1)
    code = kernels()
    who: set[int] = set()
    several = threading.Event()

    def counted(*arguments: object) -> object:
        who.add(threading.get_ident())
        if len(who) > 1:
            several.set()
        several.wait(
            30
        )  # for another thread: one may be through before the next begins
        return code.linear_pairs(*arguments)

    watched = SimpleNamespace(linear_pairs=counted)
    monkeypatch.setattr(compiled_engine, "kernels", lambda: watched)
    found = []
    for n_jobs in (1, 2, 4):
        who.clear()
        several.clear() if n_jobs > 1 else several.set()
        fleet = ArrayFleet(
            devices, learner=Linear(), proposer=GradientStep(0.05), n_jobs=n_jobs
        )
        sampler, adopter = Uniform(5), TopK(3)
        rounds = list(
            personalize(fleet, sampler=sampler, adopter=adopter, rounds=4, seed=2)
        )
        assert (len(who) > 1) == (n_jobs > 1)
        found.append([fleet.models, *(each.losses for each in rounds)])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)
    for n_jobs in (0, 10**6):
        with pytest.raises(InputError, match="n_jobs must be a number of .* threads"):
            ArrayFleet(
                devices, learner=Linear(), proposer=GradientStep(0.05), n_jobs=n_jobs
            )
