"""Networks: the contracts, both fleets, tensors on a CPU (and on a GPU where there is one),
modules that cannot be mapped.
"""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")
from sklearn.base import clone
from sklearn.tree import DecisionTreeRegressor
from torch import nn

from persfl import (
    ArrayFleet,
    Best,
    Data,
    Devices,
    GradientStep,
    Linear,
    LoopFleet,
    Nobody,
    PersflWarning,
    PersonalizedClassifier,
    PersonalizedRegressor,
    Refit,
    TopK,
    Tree,
    Uniform,
    personalize,
)
from persfl.cli import main
from persfl.errors import InputError, NotReady
from persfl.evaluation.rivals import pooled_fit, tuned_fits
from persfl.fleets import torch_engine, torch_runtime
from persfl.learners import MLP, Network
from persfl.learners.storage.network_files import networks_from, networks_to
from persfl.methods import Paper
from persfl.runs import Folder, load_model, save_model
from persfl.sources import Inbox, Replay, clustered_regression
from persfl.testing import check_fleet, check_learner, check_proposer

torch.set_num_threads(1)


def mlp():
    return nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


def cnn_norm():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(16, 3),
    )


NETWORKS = {
    "mlp": Network(mlp, dtype="float64", epochs=20),
    "cnn": Network(cnn, dtype="float64", shape=(1, 4, 4), epochs=20),
    "cnn with BatchNorm and dropout": Network(
        cnn_norm, dtype="float64", shape=(1, 4, 4), epochs=20, l2=0.001
    ),
}


def _run(fleet, *, peers, rounds):
    return list(
        personalize(fleet, sampler=Uniform(peers), adopter=TopK(2), rounds=rounds)
    )


def images(n=6, seed=0):
    """Devices of unequal size with 4 x 4 images in three classes."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        m = int(rng.integers(4, 9))
        X = rng.standard_normal((m, 16))
        rows.append((X, (X[:, 0] > 0) + (X[:, 5] > 0.5) + 0.0))
    return Devices.of(rows, quiet=True)


@pytest.mark.parametrize("name", NETWORKS)
def test_contracts(name):
    data = images()[0]
    check_learner(NETWORKS[name], data)
    for proposer in (GradientStep(0.1), GradientStep(0.1, steps=2, batch=3)):
        check_proposer(proposer, NETWORKS[name], data)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("batch", [None, 3])
def test_both_fleets_agree(name, batch):
    devices, parts = (
        images(),
        {
            "learner": NETWORKS[name],
            "proposer": GradientStep(0.1, steps=1 + bool(batch), batch=batch),
        },
    )
    loop, array = (make(devices, seed=3, **parts) for make in (LoopFleet, ArrayFleet))
    assert isinstance(array.engine, torch_engine.Torch)
    for adopter in (Best(),) if batch else (TopK(2),):
        pair = [
            personalize(fleet, sampler=Uniform(3), adopter=adopter, rounds=8, seed=4)
            for fleet in (loop, array)
        ]
        for slow, fast in zip(*pair, strict=True):
            np.testing.assert_array_equal(fast.peers, slow.peers)
            np.testing.assert_allclose(fast.losses, slow.losses, atol=1e-8)
            np.testing.assert_allclose(fast.lengths, slow.lengths, atol=1e-8)
            np.testing.assert_array_equal(fast.choice.peers, slow.choice.peers)
    np.testing.assert_allclose(array.models, np.stack(loop.models), atol=1e-8)


def test_the_fleet_contract():
    learner = Network(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)),
        loss="squared",
        dtype="float64",
    )
    check_fleet(
        ArrayFleet,
        learner=learner,
        proposer=GradientStep(0.05),
        adopter=Best(),
        rounds=10,
    )


@pytest.mark.parametrize(
    "learner",
    [
        Linear(intercept=True, l2=0.1),
        Linear("absolute"),
        Linear("huber", delta=0.5),
        Linear("logistic", intercept=True),
        Linear("poisson"),
        Linear("multinomial", classes=3, intercept=True, l2=0.01),
    ],
    ids=lambda learner: learner.kind,
)
def test_linear_learners_on_tensors(learner):
    rows = clustered_regression(
        n=12, clusters=2, rows=(4, 15), features=3, noise=0.1, seed=1
    )
    y = {
        "logistic": (rows.y > 0) + 0.0,
        "poisson": np.digitize(rows.y, [-1, 1]) + 0.0,
    }.get(learner.kind, rows.y)
    y = np.digitize(rows.y, [-1, 1]) + 0.0 if learner.kind == "multinomial" else y
    devices = Devices(rows.X, y, rows.weight, rows.start, rows.ids)
    for proposer in (GradientStep(0.05), GradientStep(0.05, steps=2, batch=3)):
        runs = [
            _run(
                make(devices, learner=learner, proposer=proposer, seed=1, **more),
                peers=4,
                rounds=20,
            )
            for make, more in ((LoopFleet, {}), (ArrayFleet, {"compute": "cpu"}))
        ]
        for slow, fast in zip(*runs, strict=True):
            np.testing.assert_allclose(fast.losses, slow.losses, atol=1e-10)
            np.testing.assert_array_equal(fast.choice.peers, slow.choice.peers)


def test_it_learns_and_can_be_taken_out():
    """Two kinds of devices label by opposite rules; a network per device finds out who helps."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(20):
        X = rng.standard_normal((20, 2))
        rows.append((X, ((X[:, 0] * X[:, 1] > 0) ^ (i % 2)) + 0.0))
    learner = Network(
        lambda: nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)), seed=1
    )
    fleet = ArrayFleet(rows, learner=learner, proposer=GradientStep(1.0, steps=2))
    known = _run(fleet, peers=8, rounds=150)[-1].trust.table()
    same = known["target"] % 2 == known["peer"] % 2
    assert known["adopted"][same].sum() > 4 * known["adopted"][~same].sum()
    X = rng.standard_normal((500, 2))
    right = [
        (
            learner.labels(fleet.models[i], X) == ((X[:, 0] * X[:, 1] > 0) ^ (i % 2))
        ).mean()
        for i in range(20)
    ]
    assert np.mean(right) > 0.85
    module = learner.module(fleet.models[3])
    with torch.no_grad():
        found = module(torch.tensor(X, dtype=torch.float32)).argmax(dim=1).numpy()
    np.testing.assert_array_equal(found, learner.labels(fleet.models[3], X))
    named = learner.named(fleet.models[3])
    assert list(named) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    np.testing.assert_array_equal(learner.check(named, 2), fleet.models[3])


def test_running_statistics_belong_to_the_target():
    learner, devices = NETWORKS["cnn with BatchNorm and dropout"], images()
    fleet = ArrayFleet(
        devices, learner=learner, proposer=GradientStep(0.1), targets=[2]
    )
    moves = learner.moves
    before = fleet.models[0].copy()
    answer = GradientStep(0.1).answer(learner, before, devices[4], None)
    np.testing.assert_array_equal(answer[~moves], before[~moves])
    assert (answer[moves] != before[moves]).any()
    for _ in personalize(fleet, sampler=Uniform(3), adopter=Best(), rounds=1):
        pass
    renewed = learner.settled(fleet.models[0], devices[2], momentum=0.0)
    np.testing.assert_array_equal(renewed[~moves], fleet.models[0][~moves])
    assert (fleet.models[0][~moves] != before[~moves]).any()


def test_streams_and_resuming():
    devices = images(seed=3)
    source = Replay(devices, window=4)
    learner = NETWORKS["mlp"]
    whole = ArrayFleet(source, learner=learner, proposer=GradientStep(0.1), seed=1)
    rounds = list(personalize(whole, sampler=Uniform(2), adopter=Best(), rounds=4))
    begun = ArrayFleet(source, learner=learner, proposer=GradientStep(0.1), seed=1)
    half = list(personalize(begun, sampler=Uniform(2), adopter=Best(), rounds=2))
    rest = ArrayFleet(
        source,
        learner=learner,
        proposer=GradientStep(0.1),
        seed=1,
        start=list(begun.models),
    )
    again = list(
        personalize(
            rest,
            sampler=Uniform(2),
            adopter=Best(),
            rounds=4,
            first=2,
            trust=half[-1].trust,
        )
    )
    np.testing.assert_array_equal(again[-1].losses, rounds[-1].losses)
    np.testing.assert_array_equal(rest.models, whole.models)


def test_a_module_through_the_front_door():
    rows = clustered_regression(
        n=10, clusters=2, rows=12, features=3, noise=0.1, seed=1
    )
    who, module = (
        np.repeat(np.arange(10), 12),
        nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)),
    )
    before = [value.clone() for value in module.parameters()]
    model = PersonalizedRegressor(module, method=Paper(step_size=0.1, rounds=60)).fit(
        rows.X, rows.y, devices=who
    )
    assert model.score(rows.X, rows.y, devices=who) > 0.8
    assert model.worth_.error("personal").mean() < model.worth_.error("pooled").mean()
    assert all(
        torch.equal(left, right)
        for left, right in zip(before, module.parameters(), strict=True)
    )
    again = clone(model).fit(rows.X, rows.y, devices=who)
    np.testing.assert_array_equal(again.models_, model.models_)
    online = PersonalizedRegressor(module, method=Paper(step_size=0.1, online_rounds=5))
    for half in (slice(0, None, 2), slice(1, None, 2)):
        online.partial_fit(rows.X[half], rows.y[half], devices=who[half])
    assert np.isfinite(online.predict(rows.X, devices=who)).all()


class Bent(nn.Module):
    """A class of the user's own that is made for so many features and outputs."""

    def __init__(self, features, outputs):
        super().__init__()
        self.inner, self.last = nn.Linear(features, 4), nn.Linear(4, outputs)

    def forward(self, X):
        return self.last(self.inner(X).abs())


class Stubborn(nn.Module):
    """Looks at its rows to decide what to do, which no batched computation can."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 3)

    def forward(self, x):
        return self.inner(x) if float(x.sum()) >= 0 else self.inner(x) * 1.0


def test_a_module_that_cannot_be_mapped_is_asked_pair_by_pair():
    learner = Network(Stubborn, dtype="float64")
    with pytest.warns(PersflWarning, match="one by one") as said:
        fleet = ArrayFleet(
            images(), learner=learner, proposer=GradientStep(0.1), seed=1
        )
    assert len(said) == 1
    loop = LoopFleet(images(), learner=learner, proposer=GradientStep(0.1), seed=1)
    pair = [
        list(personalize(f, sampler=Uniform(2), adopter=Best(), rounds=3))
        for f in (fleet, loop)
    ]
    np.testing.assert_allclose(pair[0][-1].losses, pair[1][-1].losses, atol=1e-10)


@pytest.fixture
def scarce(monkeypatch):
    """A function that lets memory run out from then on wherever more than two targets are taken
    at a time.
    """
    true = torch_engine.Torch.run

    def run(self, key, function, *inputs):
        if inputs[0].shape[0] > 2:
            raise torch.cuda.OutOfMemoryError("made up")
        return true(self, key, function, *inputs)

    return lambda: monkeypatch.setattr(torch_engine.Torch, "run", run)


def test_out_of_memory_halves_the_chunk(scarce):
    devices, learner = images(), NETWORKS["mlp"]
    plain = ArrayFleet(devices, learner=learner, proposer=GradientStep(0.1))
    expected = list(personalize(plain, sampler=Uniform(3), adopter=TopK(2), rounds=3))
    scarce()
    fleet = ArrayFleet(devices, learner=learner, proposer=GradientStep(0.1))
    with pytest.warns(PersflWarning, match="ran out of memory"):
        found = list(personalize(fleet, sampler=Uniform(3), adopter=TopK(2), rounds=3))
    np.testing.assert_allclose(found[-1].losses, expected[-1].losses, atol=1e-12)


def test_chunks_change_nothing(monkeypatch):
    devices, learner = images(n=9), NETWORKS["cnn"]
    runs = []
    for limit in (torch_runtime.CPU_BYTES, 1):
        monkeypatch.setattr(torch_runtime, "CPU_BYTES", limit)
        fleet = ArrayFleet(devices, learner=learner, proposer=GradientStep(0.1))
        runs.append(
            list(personalize(fleet, sampler=Uniform(3), adopter=Best(), rounds=5))[-1]
        )
    np.testing.assert_allclose(runs[0].losses, runs[1].losses, atol=1e-12)


def test_memory_is_reckoned_by_the_largest_rows_that_take_part(monkeypatch):
    """Peers' rows, not the few that targets score by; and those of now, not of an earlier round."""
    seen = []
    true = torch_engine.pair_bytes

    def taken(engine, longest):
        seen.append((longest, true(engine, longest)))
        return seen[-1][1]

    monkeypatch.setattr(torch_engine, "pair_bytes", taken)
    rng = np.random.default_rng(0)
    rows = [
        (rng.standard_normal((m, 3)), rng.standard_normal(m)) for m in (4, 4, 40, 4)
    ]
    parts = {
        "learner": Linear(),
        "proposer": GradientStep(0.1),
        "targets": [0],
        "compute": "cpu",
    }
    fleet = ArrayFleet(rows, holdout=0.5, **parts)
    fleet.probe(np.array([[1, 2]]), 0)
    assert [longest for longest, _ in seen] == [40]

    def growing(r):
        X, y = rows[2]
        return [Data(X[: 4 * (r + 1)], y[: 4 * (r + 1)])] * 4

    growing.ids = list("abcd")
    seen.clear()
    stream = ArrayFleet(growing, **parts | {"targets": ["a"]})
    _run(stream, peers=2, rounds=3)
    assert sorted({longest for longest, _ in seen}) == [4, 8, 12]
    each = [found for _, found in sorted(seen)]
    assert each == sorted(each)
    assert each[0] < each[-1]


def test_a_network_on_an_inbox():
    inbox = Inbox(["a", "b"], window=5)
    learner = Network(lambda: nn.Linear(2, 1), loss="squared", dtype="float64")
    fleet = ArrayFleet(inbox, learner=learner, proposer=GradientStep(0.05))
    with pytest.raises(InputError, match="has models once its first round"):
        _ = fleet.models
    with pytest.raises(NotReady):
        _run(fleet, peers=1, rounds=1)
    for name in ("a", "b"):
        inbox.push(name, [[1.0, 2.0], [0.0, 1.0]], [1.0, 2.0])
    last = _run(fleet, peers=1, rounds=1)[-1]
    assert np.isfinite(last.losses).all()
    assert fleet.models.shape == (2, 3)


def test_own_losses_and_regression():
    quantile = Network(
        lambda: nn.Linear(2, 1),
        loss=lambda z, y: torch.maximum(0.9 * (y - z[:, 0]), 0.1 * (z[:, 0] - y)),
        dtype="float64",
    )
    data = Data(
        np.random.default_rng(0).standard_normal((50, 2)),
        np.random.default_rng(1).standard_normal(50),
    )
    check_learner(quantile, data)
    for loss in ("squared", "absolute"):
        check_learner(
            Network(lambda: nn.Linear(2, 1), loss=loss, dtype="float64", epochs=50),
            data,
        )
    yes = Data(data.X, (data.y > 0) + 0.0)
    binary = Network(
        lambda: nn.Linear(2, 1), loss="logistic", dtype="float64", epochs=50
    )
    check_learner(binary, yes)
    chances, labels = binary.chances(binary.fit(yes, None), yes.X)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert labels.tolist() == [0.0, 1.0]


def test_mistakes_get_a_sentence():
    with pytest.raises(InputError, match="function that makes a fresh module"):
        Network(nn.Linear(2, 1))
    with pytest.raises(InputError, match="must return a torch.nn.Module"):
        Network(lambda: 3)
    with pytest.raises(InputError, match="no parameters"):
        Network(nn.Flatten)
    with pytest.raises(InputError, match="loss"):
        Network(mlp, loss="hinge")
    with pytest.raises(InputError, match="dtype"):
        Network(mlp, dtype="float16")
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="does not take rows of 2 features"):
        ArrayFleet(
            [(rng.normal(size=(3, 2)), np.zeros(3))] * 3,
            learner=Network(mlp),
            proposer=GradientStep(0.1),
        )
    with pytest.raises(
        InputError, match="device 0 do not fit: loss='cross_entropy' takes whole labels"
    ):
        ArrayFleet(
            [(rng.normal(size=(3, 16)), np.full(3, 0.5))] * 3,
            learner=Network(mlp),
            proposer=GradientStep(0.1),
        )
    with pytest.raises(InputError, match="cannot be used here"):
        ArrayFleet(
            images(),
            learner=Network(mlp),
            proposer=GradientStep(0.1),
            compute="no such thing",
        )
    with pytest.raises(InputError, match="named arrays must hold"):
        NETWORKS["mlp"].flat({"a": 1})
    with pytest.raises(InputError, match="finite numbers"):
        NETWORKS["mlp"].check(np.zeros(3), 16)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_gpu_and_cpu_choose_alike():
    rows = clustered_regression(
        n=50, clusters=2, rows=10, features=20, noise=0.1, seed=1
    )
    runs = [
        list(
            personalize(
                ArrayFleet(
                    rows, learner=Linear(), proposer=GradientStep(0.05), compute=compute
                ),
                sampler=Uniform(10),
                adopter=Best(),
                rounds=30,
            )
        )
        for compute in ("cpu", "cuda")
    ]
    for here, there in zip(*runs, strict=True):
        np.testing.assert_array_equal(here.choice.peers, there.choice.peers)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, learner in NETWORKS.items():
            pair = [
                _run(
                    ArrayFleet(
                        images(),
                        learner=learner,
                        proposer=GradientStep(0.1),
                        compute=compute,
                    ),
                    peers=3,
                    rounds=10,
                )
                for compute in ("cpu", "cuda")
            ]
            np.testing.assert_allclose(
                pair[0][-1].losses, pair[1][-1].losses, atol=1e-8, err_msg=name
            )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_gpu_runs_resume_and_outlive_scarce_memory(scarce):
    learner, devices = NETWORKS["mlp"], images()

    def fleet(**more):
        return ArrayFleet(
            devices, learner=learner, proposer=GradientStep(0.1), compute="cuda", **more
        )

    whole, begun = fleet(), fleet()
    expected = _run(whole, peers=3, rounds=10)
    half = list(personalize(begun, sampler=Uniform(3), adopter=TopK(2), rounds=5))
    rest = fleet(start=list(begun.models))
    again = list(
        personalize(
            rest,
            sampler=Uniform(3),
            adopter=TopK(2),
            rounds=10,
            first=5,
            trust=half[-1].trust,
        )
    )
    np.testing.assert_array_equal(again[-1].losses, expected[-1].losses)
    scarce()
    with pytest.warns(PersflWarning, match="ran out of memory"):
        found = _run(fleet(), peers=3, rounds=10)
    np.testing.assert_allclose(found[-1].losses, expected[-1].losses, atol=1e-12)


PUBLIC = np.random.default_rng(5).standard_normal((6, 16))
REFITS = {
    "soft": Refit(PUBLIC, step_size=2.0),
    "labels": Refit(PUBLIC, steps=2, soft=False),
    "weights": Refit(PUBLIC, steps=3, rate=0.2, private_weight=0.5, public_weight=0.1),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("refit", REFITS)
def test_refits_of_networks(name, refit):
    learner, proposer, devices = NETWORKS[name], REFITS[refit], images()
    check_proposer(proposer, learner, devices[0])
    loop, array = (
        make(devices, learner=learner, proposer=proposer, seed=3)
        for make in (LoopFleet, ArrayFleet)
    )
    assert isinstance(array.engine, torch_engine.Torch)
    for slow, fast in zip(
        *(_run(fleet, peers=3, rounds=4) for fleet in (loop, array)), strict=True
    ):
        np.testing.assert_allclose(fast.losses, slow.losses, atol=1e-8)
        np.testing.assert_allclose(fast.lengths, slow.lengths, atol=1e-8)
        np.testing.assert_array_equal(fast.choice.peers, slow.choice.peers)
    np.testing.assert_allclose(array.models, np.stack(loop.models), atol=1e-8)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_refits_of_one_output(loss):
    rows = clustered_regression(n=8, clusters=2, rows=(4, 9), features=3, seed=0)
    devices = Devices(
        rows.X,
        (rows.y > 0) + 0.0 if loss == "logistic" else rows.y,
        rows.weight,
        rows.start,
        rows.ids,
    )
    learner = Network(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)),
        loss=loss,
        dtype="float64",
    )
    parts = {"learner": learner, "proposer": Refit(PUBLIC[:, :3]), "seed": 1}
    runs = [
        _run(make(devices, **parts), peers=3, rounds=5)
        for make in (LoopFleet, ArrayFleet)
    ]
    for slow, fast in zip(*runs, strict=True):
        np.testing.assert_allclose(fast.losses, slow.losses, atol=1e-10)


def test_proximal_steps_near_the_fit_and_stay_where_nothing_pulls():
    """Many proximal steps of a linear model reach its refit; with chances, private rows of
    weight ~0 leave a network in place.
    """
    rows = clustered_regression(n=2, clusters=1, rows=9, features=3, seed=0)
    learner, model = Linear(intercept=True), np.array([1.0, -1.0, 0.5, 0.2])
    fit, near = Refit(PUBLIC[:, :3]), Refit(PUBLIC[:, :3], steps=3000, rate=0.1)
    exact = fit.answer(learner, fit.ask(learner, model), rows[0], None)
    np.testing.assert_allclose(
        near.answer(learner, near.ask(learner, model), rows[0], None), exact, atol=1e-6
    )
    network, data = NETWORKS["mlp"], images()[0]
    start = network.init(data, None)
    still, pulled = Refit(PUBLIC, steps=5, private_weight=1e-12), Refit(PUBLIC, steps=5)
    assert still.length(network, start, still.answer(network, start, data, None)) < 1e-9
    assert (
        pulled.length(network, start, pulled.answer(network, start, data, None)) > 1e-3
    )
    # Held back: five proximal steps move less than five free ones of the same pull.
    free = GradientStep(0.1, steps=5).answer(network, start, data, None)
    held = Refit(PUBLIC, steps=5, public_weight=10.0, private_weight=1.0 / data.rows)
    assert held.length(
        network, start, held.answer(network, start, data, None)
    ) < np.sqrt(((free - start) ** 2).sum())


def test_refit_with_steps_needs_gradients():
    with pytest.raises(
        InputError, match="Refit takes steps with learners that have gradients"
    ):
        Refit(PUBLIC, steps=2).ask(Tree(2), None)
    with pytest.raises(
        InputError, match="compute='cuda' needs steps of Linear or Network"
    ):
        ArrayFleet(
            images(),
            learner=NETWORKS["mlp"],
            proposer=Refit(PUBLIC, steps=0),
            compute="cuda",
        )


# The front door


def table(n=12, rows=12, seed=0):
    """Two kinds of devices whose labels bend in opposite directions."""
    rng = np.random.default_rng(seed)
    X, who = (
        rng.standard_normal((n * rows, 3)),
        np.repeat([f"d{i:02d}" for i in range(n)], rows),
    )
    kind = np.repeat(np.arange(n) % 2, rows)
    return X, np.where(kind == 1, 1.0, -1.0) * np.abs(X[:, 0]) + 0.1 * X[:, 1], who


@pytest.mark.filterwarnings("ignore::persfl.errors.UnseenWarning")
def test_networks_are_kept_and_loaded(tmp_path):
    X, y, who = table()
    for k, (base, given) in enumerate(
        ((MLP((6,), "tanh"), None), (Bent, Bent), (nn.Sequential(nn.Linear(3, 1)),) * 2)
    ):
        model = PersonalizedRegressor(
            base,
            method=Paper(rounds=5, peers=4),
            unseen="pooled",
            holdout=0,
            random_state=3,
        ).fit(X, y, devices=who)
        path = save_model(model, tmp_path / str(k))
        assert "model.safetensors" in {file.name for file in path.iterdir()}
        again = load_model(path, module=given)
        np.testing.assert_array_equal(
            again.predict(X, devices=who), model.predict(X, devices=who)
        )
        np.testing.assert_array_equal(
            again.predict(X[:2], devices=["new", "new"]),
            model.predict(X[:2], devices=["new", "new"]),
        )
        if given is None:
            assert again.estimator == base
            continue
        blind = load_model(path)
        assert blind.helpers_.equals(model.helpers_)
        with pytest.raises(
            InputError,
            match="predicting needs the module these networks were trained with",
        ):
            blind.predict(X, devices=who)
        with pytest.raises(
            InputError,
            match="the module is not the one these models were trained with: it differs in",
        ):
            load_model(path, module=lambda: nn.Linear(3, 2))


def test_a_forged_file_of_networks_is_refused(tmp_path):
    learner = Network(mlp)
    good = {"models": np.zeros((2, learner.size()), dtype=np.float32)}
    content = networks_to(learner, good)
    np.testing.assert_array_equal(
        networks_from(learner.shapes, content)["models"], good["models"]
    )
    with pytest.raises(InputError, match="not in the safetensors format"):
        networks_from(learner.shapes, b"\x80\x04nonsense")
    odd = good["models"].copy()
    odd[1] = np.nan  # a device without a model
    assert np.isnan(
        networks_from(learner.shapes, networks_to(learner, {"models": odd}))["models"][
            1
        ]
    ).all()
    odd[1, 3:] = 0.0
    with pytest.raises(InputError, match="finite numbers"):
        networks_from(learner.shapes, networks_to(learner, {"models": odd}))
    with pytest.raises(InputError, match=r"models/.* is missing or has another shape"):
        networks_from(Network(lambda: nn.Linear(16, 3)).shapes, content)


def test_the_command_line_takes_networks(tmp_path, capsys):
    X, y, who = table()
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y, who=who)
    frame.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\ndef make(features, outputs):\n    return"
        " nn.Sequential(nn.Linear(features, 4), nn.Tanh(), nn.Linear(4, outputs))\n"
    )
    common = [
        "--device",
        "who",
        "--label",
        "y",
        "--method",
        "paper",
        "--rounds",
        "4",
        "--peers",
        "3",
        "--no-report",
    ]
    for name, model, more in (
        ("mlp", "mlp", []),
        ("own", f"{tmp_path}/net.py", ["--module", f"{tmp_path}/net.py:make"]),
    ):
        run = str(tmp_path / name)
        assert (
            main(
                [
                    "fit",
                    str(tmp_path / "t.csv"),
                    *common,
                    "--model",
                    model,
                    "--out",
                    run,
                ]
            )
            == 0
        )
        assert (
            main(
                [
                    "predict",
                    run,
                    str(tmp_path / "t.csv"),
                    "--out",
                    str(tmp_path / f"{name}.csv"),
                    *more,
                ]
            )
            == 0
        )
        assert len(pd.read_csv(tmp_path / f"{name}.csv")) == len(frame)
        assert main(["helpers", run]) == 0
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "own"), str(tmp_path / "t.csv")]) == 2
    assert "--module FILE.py:NAME" in capsys.readouterr().err
    for model, says in (
        ("net.py:nope", "has no 'nope'. It defines 'make'"),
        ("absent.py", "is not a Python file"),
        ("broken.py", "cannot be run: ZeroDivisionError"),
        ("two.py", "the module must give 1 output a row, for a number. It gives 2."),
        ("narrow.py", "the module does not take rows of 3 features"),
    ):
        (tmp_path / "broken.py").write_text("1 / 0\n")
        (tmp_path / "two.py").write_text(
            "from torch import nn\nmake = lambda: nn.Linear(3, 2)\n"
        )
        (tmp_path / "narrow.py").write_text(
            "from torch import nn\nmake = lambda: nn.Linear(2, 1)\n"
        )
        assert (
            main(
                [
                    "fit",
                    str(tmp_path / "t.csv"),
                    *common,
                    "--model",
                    f"{tmp_path}/{model}",
                    "--out",
                    str(tmp_path / "x"),
                ]
            )
            == 2
        )
        assert says in capsys.readouterr().err
        assert not (tmp_path / "x").exists()


def test_an_interrupted_run_of_networks_goes_on_exactly(tmp_path):
    X, y, who = table()
    settings = {"method": Paper(rounds=8, peers=3), "holdout": 0, "random_state": 1}
    whole = PersonalizedRegressor(MLP((5,)), **settings).fit(X, y, devices=who)

    class Cut(Folder):
        def after(self, stage, plan, state, round_):
            super().after(stage, plan, state, round_)
            if state.r == 5:
                raise KeyboardInterrupt

    folder = Folder.create(tmp_path / "run", {}, every=0)
    with pytest.raises(KeyboardInterrupt):
        PersonalizedRegressor(MLP((5,)), **settings).fit(
            X, y, who, keep=Cut(folder.path, folder.index, every=0)
        )
    again = PersonalizedRegressor(MLP((5,)), **settings).fit(
        X, y, who, keep=Folder.open(folder.path)
    )
    np.testing.assert_array_equal(again.models_, whole.models_)


def test_fine_tuning_of_networks_is_no_straw_man():
    """Steps that would run away are shortened: no device ends above its loss under the pooled
    model.
    """
    rows = clustered_regression(n=6, clusters=2, rows=8, features=3, seed=0)
    learner = Network(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)),
        loss="squared",
        dtype="float64",
    )
    pooled = pooled_fit(learner, rows)
    tuned = tuned_fits(learner, rows, pooled, None, GradientStep(5.0, steps=50))
    for i in range(len(rows)):
        assert learner.loss(tuned[i], rows[i]) <= learner.loss(pooled, rows[i])
    assert (tuned != pooled).any()


def test_frozen_parameters_stay():
    def make():
        module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        module[0].weight.requires_grad_(False)
        return module

    devices = clustered_regression(n=6, clusters=2, rows=8, features=3, seed=0)
    learner, models = Network(make, loss="squared", dtype="float64"), []
    for kind in (LoopFleet, ArrayFleet):
        fleet = kind(devices, learner=learner, proposer=GradientStep(0.05, steps=2))
        start = np.array(fleet.models)
        assert "0.weight" not in learner.shapes
        before = learner.module(start[0])[0].weight
        for _ in personalize(fleet, sampler=Uniform(3), adopter=TopK(2), rounds=3):
            pass
        models.append(np.array(fleet.models))
        after = learner.module(models[-1][0])[0].weight
        assert after.tolist() == before.tolist()
        assert (
            learner.named(models[-1])["0.bias"] != learner.named(start)["0.bias"]
        ).any()
    np.testing.assert_allclose(*models, atol=1e-9)


def test_running_statistics_are_renewed_also_where_nobody_is_asked():
    devices = clustered_regression(n=4, clusters=2, rows=8, features=3, seed=0)
    learner = Network(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)),
        loss="squared",
        dtype="float64",
    )
    models = []
    for kind in (LoopFleet, ArrayFleet):
        fleet = kind(
            devices,
            learner=learner,
            proposer=GradientStep(0.05),
            local=GradientStep(0.05),
        )
        for _ in personalize(fleet, sampler=Nobody(), adopter=TopK(2), rounds=3):
            pass
        models.append(np.array(fleet.models))
    np.testing.assert_allclose(*models, atol=1e-9)


def test_a_module_handed_in_is_left_alone_and_can_be_pickled(tmp_path):
    X, devices = (
        np.random.default_rng(0).standard_normal((24, 3)),
        np.repeat(np.arange(4), 6),
    )
    mine = nn.Linear(3, 1).double()
    weight = mine.weight.detach().clone()
    model = PersonalizedRegressor(mine, method=Paper(rounds=2), holdout=0).fit(
        X, X[:, 0], devices=devices
    )
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        again.predict(X, devices=devices), model.predict(X, devices=devices)
    )
    loaded = load_model(save_model(model, tmp_path / "run"), module=mine)
    first, second = (loaded.learner_.module(loaded.models_[i]) for i in (0, 1))
    assert first is not second
    assert mine.training
    assert torch.equal(mine.weight, weight)


def test_outputs_must_fit_classes_and_labels():
    X, y, devices = (
        np.random.default_rng(0).standard_normal((12, 3)),
        np.arange(12) % 3,
        np.repeat(np.arange(2), 6),
    )
    for outputs in (2, 4):
        with pytest.raises(InputError, match="must give 3 outputs"):
            PersonalizedClassifier(
                Network(lambda n=outputs: nn.Linear(3, n)), holdout=0
            ).fit(X, y, devices=devices)
    with pytest.raises(InputError, match="no chances of classes"):
        PersonalizedClassifier(
            Network(lambda: nn.Linear(3, 3), loss=lambda z, y: z[:, 0]), holdout=0
        ).fit(X, y, devices=devices)
    rows = [(X[:6], y[:6] + 0.0)] * 3
    for kind in (LoopFleet, ArrayFleet):
        for loss, sentence in (
            ("cross_entropy", "from 0 to 1"),
            ("squared", "one output"),
        ):
            with pytest.raises(InputError, match=sentence):
                kind(
                    rows,
                    learner=Network(lambda: nn.Linear(3, 2), loss=loss),
                    proposer=GradientStep(0.1),
                )
        with pytest.raises(InputError, match="does not take rows of 3 features"):
            kind(
                rows,
                learner=Network(lambda: nn.Linear(4, 1), loss="squared"),
                proposer=GradientStep(0.1),
            )
        fleet = kind(
            rows,
            learner=Network(lambda: nn.Linear(3, 1), loss="squared"),
            proposer=Refit(X[:2], soft=True),
        )
        with pytest.raises(InputError, match="soft=True"):
            next(personalize(fleet, sampler=Uniform(1), adopter=Best(), rounds=1))
    with pytest.raises(InputError, match="leave it out"):
        PersonalizedRegressor(
            DecisionTreeRegressor(), method="paper", compute="cuda", holdout=0
        ).fit(X, y, devices=devices)


FILE = """
from __future__ import annotations
from dataclasses import dataclass
from torch import nn
from beside import width

@dataclass
class Sizes:
    width: int = width

def good(features, outputs): return nn.Linear(features, outputs)
def wide(features, outputs, width): return nn.Linear(features, outputs)
def lazy(features, outputs): return nn.LazyLinear(outputs)

class Odd(nn.Linear):
    def forward(self, x):
        if len(x) > 2:
            raise KeyError("rows")
        return super().forward(x)
"""


def test_a_bad_file_costs_no_run(tmp_path, capsys):
    X = np.random.default_rng(0).standard_normal((24, 2))
    frame = pd.DataFrame(
        {"who": np.repeat(list("abcd"), 6), "a": X[:, 0], "b": X[:, 1], "y": X[:, 0]}
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "net.py").write_text(FILE)
    (tmp_path / "beside.py").write_text("width = 3")
    (tmp_path / "ends.py").write_text("raise SystemExit(3)")
    out = tmp_path / "run"
    command = [
        "fit",
        f"{tmp_path}/t.csv",
        "--device",
        "who",
        "--label",
        "y",
        "--method",
        "paper",
        "--rounds",
        "2",
        "--holdout",
        "0",
        "--no-report",
    ]
    command += ["--out", str(out), "--model"]
    assert main([*command, f"{tmp_path}/net.py:good"]) == 0
    before = (out / "run.json").read_bytes()
    for name, sentence in (
        ("net.py:wide", "could not be made"),
        ("net.py:lazy", "lazy"),
        ("ends.py", "cannot be run"),
    ):
        assert main([*command, f"{tmp_path}/{name}", "--force"]) == 2
        assert sentence in capsys.readouterr().err
        assert (out / "run.json").read_bytes() == before
    # the user's own mistake, and nothing is lost
    assert main([*command, f"{tmp_path}/net.py:Odd", "--force"]) == 70
    assert "net.py:Odd" in capsys.readouterr().err
    assert (out / "run.json").read_bytes() == before
