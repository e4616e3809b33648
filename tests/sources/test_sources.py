import threading

import numpy as np
import pandas as pd
import pytest

from persfl import (
    ArrayFleet,
    Best,
    Data,
    Devices,
    GradientStep,
    Linear,
    LoopFleet,
    PersflWarning,
    Uniform,
    personalize,
)
from persfl.errors import InputError, NotReady
from persfl.sources import (
    Fresh,
    Inbox,
    Replay,
    Switch,
    clustered_regression,
    clustered_stream,
    from_table,
    read_table,
)


def test_the_papers_generator():
    devices = clustered_regression(
        n=100, clusters=2, rows=10, features=20, noise=0.0, seed=0
    )
    assert len(devices) == 100
    assert devices[0].X.shape == (10, 20)
    assert (np.bincount(devices.clusters) == 50).all()
    assert devices.true_weights.shape == (100, 20)
    assert (devices.true_weights[0] == devices.true_weights[49]).all()
    assert (devices.true_weights[0] != devices.true_weights[50]).all()
    assert np.abs(devices.true_weights).max() <= 5
    assert all(
        np.allclose(d.y, d.X @ w)
        for d, w in zip(devices, devices.true_weights, strict=True)
    )
    assert (clustered_regression(seed=0).y == clustered_regression(seed=0).y).all()
    assert (clustered_regression(seed=0).y != clustered_regression(seed=1).y).all()


def test_unequal_rows_noise_and_deviation():
    devices = clustered_regression(
        n=300, clusters=3, rows=(4, 15), features=5, noise=0.5, deviation=0.2, seed=3
    )
    assert devices.counts.min() == 4
    assert devices.counts.max() == 15
    residual = np.concatenate(
        [d.y - d.X @ w for d, w in zip(devices, devices.true_weights, strict=True)]
    )
    assert 0.45 < residual.std() < 0.55
    within = devices.true_weights[devices.clusters == 1].std(axis=0)
    assert ((within > 0.15) & (within < 0.25)).all()


def test_a_table_with_a_device_column(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "who": rng.permutation(np.repeat(["c", "a", "b"], [3, 2, 4])),
            "x1": rng.random(9),
            "x2": np.arange(9),
        }
    )
    table["y"] = table["x1"] * 2
    table["w"] = 1.5
    devices = from_table(table, device="who", label="y", weight="w")
    assert devices.ids == ["a", "b", "c"]
    assert devices.columns == ["x1", "x2"]
    assert devices.counts.tolist() == [2, 4, 3]
    rows = table[table["who"] == "b"]
    assert np.array_equal(devices[1].X, rows[["x1", "x2"]].to_numpy())
    assert np.array_equal(devices[devices.index("b")].y, rows["y"])
    assert (devices.weight == 1.5).all()
    table.to_csv(tmp_path / "rows.csv", index=False)
    table.to_parquet(tmp_path / "rows.parquet")
    for name in ("rows.csv", "rows.parquet"):
        again = read_table(tmp_path / name, device="who", label="y", weight="w")
        assert np.allclose(again.X, devices.X)
        assert again.ids == devices.ids


def test_padding_has_weight_zero():
    devices = clustered_regression(n=5, rows=(2, 6), features=2, seed=0)
    batch = devices.gather(np.array([[0, -1], [3, 4]]))
    assert batch.X.shape[:2] == (2, 2)
    assert (
        batch.weight.sum(axis=-1)
        == [[devices.counts[0], 0], [devices.counts[3], devices.counts[4]]]
    ).all()


def test_sum_of_weights_with_empty_devices():
    devices = Devices.of(
        [
            (np.empty((0, 1)), []),
            ([[1.0], [2.0]], [1.0, 2.0], [0.5, 0.25]),
            (np.empty((0, 1)), []),
        ],
        empty=True,
    )
    assert devices.total.tolist() == [0.0, 0.75, 0.0]


@pytest.mark.parametrize("fleet", [ArrayFleet, LoopFleet])
def test_fresh_batches_touch_only_those_asked(fleet):
    drawn = []

    def draw(device, place):
        drawn.append(device)
        return Data(place.uniform(4, 2), place.uniform(4))

    source = Fresh(1000, draw, seed=0)
    running = fleet(source, learner=Linear(), proposer=GradientStep(0.05), targets=[7])
    with pytest.raises(
        InputError, match="has models once its first round has been observed"
    ):
        _ = running.models
    list(personalize(running, sampler=Uniform(3), adopter=Best(), rounds=4))
    assert len(set(drawn)) <= 1 + 3 * 4


def test_both_fleets_agree_on_streams():
    for source in (
        clustered_stream(n=20, features=4, seed=0),
        Replay(clustered_regression(n=20, rows=30, features=4), window=9, every=2),
    ):
        runs = [
            list(
                personalize(
                    kind(
                        source,
                        learner=Linear(),
                        proposer=GradientStep(0.05),
                        targets=[0, 3],
                        holdout=0.3,
                        local=GradientStep(0.01),
                    ),
                    sampler=Uniform(5),
                    adopter=Best(),
                    rounds=15,
                )
            )
            for kind in (ArrayFleet, LoopFleet)
        ]
        for a, b in zip(*runs, strict=True):
            assert np.allclose(a.losses, b.losses, rtol=1e-9)
            assert np.array_equal(a.choice.peers, b.choice.peers)


def test_a_window_ends_when_rows_do():
    source = Replay(clustered_regression(n=4, rows=10, features=2), window=5, every=3)
    fleet = LoopFleet(source, learner=Linear(), proposer=GradientStep(0.05))
    with pytest.raises(
        NotReady,
        match="round 3 needs 3 new rows, and no device has that many left after 3 rounds",
    ):
        list(personalize(fleet, sampler=Uniform(2), adopter=Best(), rounds=10))
    with pytest.raises(InputError, match="every must be at most 10"):
        Replay(clustered_regression(n=4, rows=10), window=5, every=11)


def test_a_held_out_row_stays_held_out_as_the_window_moves():
    devices = clustered_regression(n=3, rows=60, features=2, seed=1)
    fleet = LoopFleet(
        Replay(devices, window=20, every=1),
        learner=Linear(),
        proposer=GradientStep(0.05),
        targets=[0],
        holdout=0.5,
    )
    trained, scored = set(), set()
    for r in range(20, 60):
        fleet.observe(r)
        trained |= set(fleet.home.training[0].y.tolist())
        scored |= set(fleet.home.scoring[0].y.tolist())
    assert not trained & scored
    assert trained
    assert scored


@pytest.mark.parametrize("fleet", [ArrayFleet, LoopFleet])
def test_a_stream_must_keep_its_features_and_labels(fleet):
    narrow, wide = (clustered_regression(n=6, rows=8, features=d) for d in (2, 40))
    running = fleet(
        Switch(narrow, wide, at=3),
        learner=Linear(),
        proposer=GradientStep(0.05),
        targets=[0, 1],
    )
    with pytest.raises(
        InputError,
        match="round 3: device 0 and others have 40 features, where there were 2 before",
    ):
        list(personalize(running, sampler=Uniform(2), adopter=Best(), rounds=10))
    yes, no = (clustered_regression(n=6, rows=8, features=2) for _ in range(2))
    yes.y = (yes.y > 0) + 0.0
    running = fleet(
        Switch(yes, no, at=3),
        learner=Linear("logistic"),
        proposer=GradientStep(0.05),
        targets=[0],
    )
    with pytest.raises(
        InputError,
        match="labels of device . do not fit: loss='logistic' takes labels 0 and 1",
    ):
        list(personalize(running, sampler=Uniform(2), adopter=Best(), rounds=10))


@pytest.mark.parametrize("fleet", [ArrayFleet, LoopFleet])
@pytest.mark.parametrize("trouble", ["nan", "narrow", "none", "raises", "label"])
def test_a_peer_with_bad_rows_costs_its_own_answer(fleet, trouble):
    def draw(device, place):
        X, y = place.uniform(5, 2), (place.at("y").uniform(5) > 0.5) + 0.0
        if device == 4:
            if trouble == "raises":
                raise RuntimeError("sensor")
            X = {"nan": X * np.nan, "narrow": X[:, :1]}.get(trouble, X)
            return (
                None
                if trouble == "none"
                else Data(X, y + 7 if trouble == "label" else y)
            )
        return Data(X, y)

    running = fleet(
        Fresh(6, draw),
        learner=Linear("logistic"),
        proposer=GradientStep(0.5),
        targets=[0],
    )
    with pytest.warns(PersflWarning, match="device 4 gave no usable rows") as caught:
        *_, last = personalize(running, sampler=Uniform(5), adopter=Best(), rounds=4)
    assert len(caught) == 1
    answered = last.trust.table().set_index("peer")["answered"].to_dict()
    assert answered == {1: 4, 2: 4, 3: 4, 4: 0, 5: 4}


def test_plain_functions_are_sources_too():
    devices = clustered_regression(n=6, rows=8, features=2)
    source = Switch(lambda r: list(devices), lambda r: list(devices), at=2)
    assert list(source.ids) == list(range(6))
    fleet = LoopFleet(
        lambda r: list(devices),
        learner=Linear(),
        proposer=GradientStep(0.05),
        targets=[0],
    )
    assert (
        len(list(personalize(fleet, sampler=Uniform(2), adopter=Best(), rounds=3))) == 3
    )


def test_drift_needs_the_same_devices():
    with pytest.raises(InputError, match="same devices"):
        Switch(clustered_regression(n=4), clustered_regression(n=5), at=3)


class TestInbox:
    def push(self, inbox, name, rows=2, seed=0):
        rng = np.random.default_rng(seed)
        inbox.push(name, rng.standard_normal((rows, 2)), rng.standard_normal(rows))

    def test_a_round_waits_for_enough_rows(self):
        inbox = Inbox(["a", "b", "c"], window=4, need=2)
        fleet = ArrayFleet(
            inbox, learner=Linear(), proposer=GradientStep(0.05), targets=["a"]
        )
        rounds = personalize(fleet, sampler=Uniform(2), adopter=Best(), rounds=5)
        self.push(inbox, "a")
        with pytest.raises(
            NotReady,
            match=r"round 0 needs 2 new rows on 100 % of the devices; missing: 'b', 'c'",
        ):
            next(rounds)
        self.push(inbox, "b")
        self.push(inbox, "c", rows=1)
        assert not inbox.ready()
        self.push(inbox, "c", rows=1)
        rounds = personalize(
            fleet, sampler=Uniform(2), adopter=Best(), rounds=5, first=0
        )
        assert next(rounds).r == 0
        assert not inbox.ready()

    def test_the_window_slides(self):
        inbox = Inbox(["a"], window=3)
        inbox.push("a", [[1.0], [2.0]], [1.0, 2.0])
        inbox.push("a", [[3.0], [4.0]], [3.0, 4.0])
        assert inbox(0)[0].y.tolist() == [2.0, 3.0, 4.0]

    def test_devices_without_rows_give_no_answer(self):
        for kind in (ArrayFleet, LoopFleet):
            inbox = Inbox(["a", "b", "c"], window=4, share=0.6)
            self.push(inbox, "a")
            self.push(inbox, "b")
            fleet = kind(
                inbox, learner=Linear(), proposer=GradientStep(0.05), targets=["a"]
            )
            round_ = next(
                personalize(fleet, sampler=Uniform(2), adopter=Best(), rounds=1)
            )
            asked = round_.trust.table().set_index("peer")
            assert asked["answered"].to_dict() == {1: 1, 2: 0}

    def test_rows_pushed_by_another_thread_wake_a_waiting_round(self):
        inbox = Inbox(["a", "b"], window=4, wait=30)
        fleet = LoopFleet(
            inbox, learner=Linear(), proposer=GradientStep(0.05), targets=["a"]
        )
        self.push(inbox, "a")
        pusher = threading.Timer(0.2, self.push, (inbox, "b"))
        pusher.start()
        assert (
            next(personalize(fleet, sampler=Uniform(1), adopter=Best(), rounds=1)).r
            == 0
        )
        pusher.join()

    def test_wrong_pushes(self):
        inbox = Inbox(["a", "b"], window=4)
        self.push(inbox, "a")
        with pytest.raises(InputError, match="there is no device 'z'"):
            self.push(inbox, "z")
        with pytest.raises(
            InputError,
            match="device 'b' must send 2 features, as the others do. Got 1.",
        ):
            inbox.push("b", [[1.0]], [1.0])
        with pytest.raises(InputError, match="missing value"):
            inbox.push("b", [[np.nan, 1.0]], [1.0])
        inbox.share = 0.5
        fleet = LoopFleet(
            inbox, learner=Linear(), proposer=GradientStep(0.05), targets=["b"]
        )
        rounds = personalize(fleet, sampler=Uniform(1), adopter=Best(), rounds=1)
        with pytest.raises(
            NotReady, match="target 'b' has no rows in round 0. Go on once it has some."
        ):
            next(rounds)
        self.push(inbox, "b")
        # nothing was used up by the refusal
        assert (
            next(personalize(fleet, sampler=Uniform(1), adopter=Best(), rounds=1)).r
            == 0
        )

    def test_a_target_whose_peers_are_all_empty_stays(self):
        for kind in (ArrayFleet, LoopFleet):
            inbox = Inbox(["a", "b", "c"], window=4, share=0.3)
            self.push(inbox, "a")
            fleet = kind(
                inbox, learner=Linear(), proposer=GradientStep(0.05), targets=["a"]
            )
            round_ = next(
                personalize(fleet, sampler=Uniform(2), adopter=Best(), rounds=1)
            )
            assert round_.choice.stay.tolist() == [1.0]
