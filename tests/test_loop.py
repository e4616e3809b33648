import numpy as np
import pytest

from persfl import (
    ArrayFleet,
    Best,
    Choice,
    GradientStep,
    Linear,
    LoopFleet,
    Nobody,
    TopK,
    Trust,
    Uniform,
    Weighted,
    personalize,
)
from persfl.errors import Diverged, InputError
from persfl.sources import clustered_regression


@pytest.fixture
def devices():
    return clustered_regression(n=20, rows=(4, 15), features=5, noise=0.1, seed=0)


def run(fleet, **more):
    return list(
        personalize(
            fleet,
            **(
                {"sampler": Uniform(5), "adopter": Best(), "rounds": 20, "seed": 0}
                | more
            ),
        )
    )


def make(devices, **more):
    return ArrayFleet(
        devices, **({"learner": Linear(), "proposer": GradientStep(0.05)} | more)
    )


def test_it_is_a_generator_that_can_be_stopped(devices):
    fleet = make(devices)
    seen = []
    for round_ in personalize(fleet, sampler=Uniform(5), adopter=Best(), rounds=1000):
        seen.append(round_.r)
        if round_.r == 3:
            break
    assert seen == [0, 1, 2, 3]


def test_a_round_is_a_record_of_what_happened(devices):
    first, *_, last = run(make(devices, targets=[4, 2]))
    assert first.peers.shape == (2, 5)
    assert first.losses.shape == (2, 6)
    assert first.lengths.shape == (2, 5)
    assert (first.loss == first.losses[:, 0]).all()
    table = last.trust.table()
    assert table["asked"].sum() == 2 * 5 * 20
    assert table["adopted"].sum() == 2 * 20
    assert set(table["target"]) == {4, 2}
    assert table.groupby("target")["share"].sum().round(9).eq(1).all()


def test_a_target_gets_the_same_model_alone_and_among_others(devices):
    alone, among = make(devices, targets=[7]), make(devices)
    run(alone)
    run(among)
    assert np.allclose(alone.models[0], among.models[7], rtol=1e-12)


def test_the_seed_decides(devices):
    fleets = [make(devices) for _ in range(3)]
    runs = [
        run(fleet, seed=seed) for fleet, seed in zip(fleets, (1, 1, 2), strict=True)
    ]
    assert (fleets[0].models == fleets[1].models).all()
    assert (runs[0][0].peers != runs[2][0].peers).any()


@pytest.mark.parametrize("adopter", [Best(), TopK(3), Weighted(0.1)])
@pytest.mark.parametrize("cut", [1, 7, 19])
def test_going_on_after_an_interruption_changes_nothing(
    devices, adopter, cut, tmp_path
):
    whole = make(devices)
    expected = run(whole, adopter=adopter)
    begun = make(devices)
    last = run(begun, adopter=adopter, rounds=cut)[-1]
    np.savez(tmp_path / "checkpoint.npz", models=begun.models, **last.trust.to_arrays())
    saved = dict(np.load(tmp_path / "checkpoint.npz"))
    resumed = make(devices, start=saved.pop("models"))
    rest = run(resumed, adopter=adopter, first=cut, trust=Trust.from_arrays(saved))
    assert (resumed.models == whole.models).all()
    assert rest[-1].trust.table().equals(expected[-1].trust.table())


@pytest.mark.parametrize("fleet", [ArrayFleet, LoopFleet])
def test_a_step_size_that_overflows_stops_with_advice_and_keeps_the_models(
    devices, fleet
):
    running = fleet(devices, learner=Linear(), proposer=GradientStep(50.0), targets=[3])
    with pytest.raises(
        Diverged, match=r"round \d+: .*device 3 .*step_size=50 is too large: try 25"
    ) as caught:
        run(running, rounds=1000)
    assert caught.value.round > 10
    assert caught.value.device == 3
    assert np.isfinite(running.models[0]).all()


def test_training_alone_is_asking_nobody_plus_a_local_step(devices):
    fleet = make(devices, targets=[0], local=GradientStep(0.05))
    rounds = run(fleet, sampler=Nobody(), rounds=500)
    own = Linear().fit(devices[0], None)
    assert rounds[-1].loss[0] < rounds[0].loss[0]
    assert (
        abs(Linear().loss(fleet.models[0], devices[0]) - Linear().loss(own, devices[0]))
        < 1e-3
    )
    assert len(rounds[-1].trust.table()) == 0


def test_parts_of_other_kinds_of_numbers_are_welcome(devices):
    def few(trust, r, seed):
        return np.asfortranarray(Uniform(5)(trust, r, seed).astype(np.int32))

    def first(trust, peers, losses):
        return (
            peers[:, :1].astype(np.int32),
            np.ones((len(peers), 1), dtype=bool),
            np.zeros(len(peers), dtype=np.float32),
        )

    runs = [
        run(
            kind(devices, learner=Linear(), proposer=GradientStep(0.05)),
            sampler=few,
            adopter=first,
        )
        for kind in (ArrayFleet, LoopFleet)
    ]
    assert np.allclose(runs[0][-1].losses, runs[1][-1].losses)
    assert runs[0][-1].trust.table().shape == runs[1][-1].trust.table().shape


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"rounds": -1}, "rounds must be at least 0. Got -1."),
        ({"rounds": 2.5}, "rounds must be a whole number. Got 2.5."),
        ({"seed": "x"}, "seed must be a whole number"),
        ({"sampler": Uniform(20)}, r"peers must be at most 19 \(20 devices\). Got 20."),
        ({"sampler": Uniform(0)}, "peers must be at least 1. Got 0."),
        (
            {"trust": Trust(21, np.arange(21))},
            "trust must be about this fleet's 20 devices",
        ),
        (
            {"sampler": lambda trust, r, seed: np.full((20, 2), 99)},
            "peers must be device indices below 20",
        ),
        (
            {"sampler": lambda trust, r, seed: np.full((20, 2), -2)},
            "peers must be device indices below 20, or -1 for nobody. Got -2",
        ),
        (
            {"sampler": lambda trust, r, seed: np.zeros((20, 2), int)},
            "must never name the target itself",
        ),
        (
            {"sampler": lambda trust, r, seed: np.zeros((3, 2))},
            r"a sampler must return whole numbers of shape \(20, S\). Got float64",
        ),
        (
            {
                "adopter": lambda trust, peers, losses: (
                    peers[:, :1],
                    np.full((20, 1), np.nan),
                    np.zeros(20),
                )
            },
            "sum to 1 for every target",
        ),
        (
            {"adopter": lambda trust, peers, losses: None},
            r"an adopter must return a Choice\(peers, weights, stay\). Got None.",
        ),
        ({"trust": {}}, "trust must be the Trust of an earlier round. Got dict."),
        ({"sampler": Uniform}, r"sampler must be a part such as Uniform\(20\)"),
        (
            {"adopter": lambda trust, peers, losses: (peers, peers * 0.1, np.ones(20))},
            "at least 0 and sum to 1 for every target",
        ),
        (
            {
                "adopter": lambda trust, peers, losses: (
                    peers[:, :1] * 0 + 3,
                    np.ones((20, 1)),
                    np.zeros(20),
                )
            },
            "only to peers that were",
        ),
        (
            {"adopter": lambda trust, peers, losses: (peers, np.ones(3), np.zeros(20))},
            "an adopter must return peers and weights of shape",
        ),
    ],
)
@pytest.mark.parametrize("fleet", [ArrayFleet, LoopFleet])
def test_wrong_settings_get_one_sentence(devices, fleet, wrong, sentence):
    with pytest.raises(InputError, match=sentence):
        run(fleet(devices, learner=Linear(), proposer=GradientStep(0.05)), **wrong)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_sampler_may_use_its_array_again(devices, compiled, uncompiled):
    if not compiled:
        uncompiled()
    buffer, used = np.empty((1, 1), dtype=np.int64), np.empty((1, 1), dtype=np.int64)
    weights, stay = np.ones((1, 1)), np.zeros(1)

    def turns(trust, r, seed):
        buffer[0, 0] = 1 + r % 3
        return buffer

    def take(trust, peers, losses):
        used[:] = peers
        return Choice(used, weights, stay)

    rounds = run(make(devices, targets=[0]), sampler=turns, adopter=take, rounds=6)
    assert [int(round_.peers[0, 0]) for round_ in rounds] == [1, 2, 3, 1, 2, 3]
    assert [int(round_.choice.peers[0, 0]) for round_ in rounds] == [1, 2, 3, 1, 2, 3]
    table = rounds[-1].trust.table()
    assert table["asked"].tolist() == [2, 2, 2]
    assert table["adopted"].tolist() == [2, 2, 2]


@pytest.mark.parametrize("fleet", [ArrayFleet, LoopFleet])
def test_shares_below_zero_by_rounding_are_zero(devices, fleet):
    def soft(trust, peers, losses):
        weights = np.exp(-losses[:, 1:])
        weights /= weights.sum(axis=1, keepdims=True)
        return Choice(peers, weights, np.full(len(peers), -2.2e-16))

    rounds = run(
        fleet(devices, learner=Linear(), proposer=GradientStep(0.05)), adopter=soft
    )
    assert all((round_.choice.stay == 0).all() for round_ in rounds)
    assert rounds[-1].loss.max() < rounds[0].loss.max()


def test_a_wrong_share_is_told_with_its_target(devices):
    def wrong(trust, peers, losses):
        weights = np.ones((len(peers), 1))
        weights[1] = 1.25
        return Choice(peers[:, :1], weights, 1.0 - weights[:, 0])

    fleet = make(devices, targets=[4, 7])
    with pytest.raises(
        InputError, match=r"Got a sum of 1 and a least share of -0.25 for target 7\."
    ):
        run(fleet, adopter=wrong)
    with pytest.raises(
        InputError,
        match=r"Choice\(peers, weights, stay\). Got an array of shape \(2, 5\).",
    ):
        run(fleet, adopter=lambda trust, peers, losses: losses[:, 1:])
