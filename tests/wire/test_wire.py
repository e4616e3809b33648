"""What crosses a border: every family comes through unchanged, and nothing else comes through
at all.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

pytest.importorskip("safetensors")

from persfl import Data, Estimator, Linear, Tree
from persfl.errors import InputError
from persfl.fleets.flower import Device, Policy, Rows
from persfl.learners.named import learner_named
from persfl.learners.plain import Plain
from persfl.learners.plain_families import as_plain
from persfl.learners.tree import Grown
from persfl.seeds import stream
from persfl.wire import Terms, WireError, model_from, model_to, pack, unpack

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
Y = X @ [1.0, -2.0, 0.5, 0.0] + 0.1 * RNG.standard_normal(60)
TWO, THREE = (Y > 0) + 0.0, np.digitize(Y, [-1.0, 1.0]) + 0.0
NEW = RNG.standard_normal((500, 4))

REGRESSORS = [
    Ridge(),
    DecisionTreeRegressor(max_depth=5),
    RandomForestRegressor(7),
    ExtraTreesRegressor(5),
    GradientBoostingRegressor(n_estimators=20),
]
CLASSIFIERS = [
    LogisticRegression(),
    DecisionTreeClassifier(max_depth=4),
    RandomForestClassifier(7),
    GradientBoostingClassifier(n_estimators=10),
]


@pytest.mark.parametrize("estimator", REGRESSORS, ids=lambda e: type(e).__name__)
def test_regressors_travel(estimator):
    learner = Estimator(estimator)
    model = learner.fit(Data(X, Y), stream(0))
    head, arrays = unpack(pack({}, model_to(learner, model)))
    again = model_from(learner, arrays, features=4)
    np.testing.assert_allclose(
        again.predict(NEW), model.predict(NEW), rtol=1e-13, atol=1e-13
    )
    assert not hasattr(again, "predict_proba")
    assert head == {}


@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=lambda e: type(e).__name__)
def test_classifiers_travel(estimator, labels):
    learner = Estimator(estimator)
    model = learner.fit(Data(X, labels), stream(0))
    again = model_from(
        learner, unpack(pack({}, model_to(learner, model)))[1], features=4, classes=3
    )
    np.testing.assert_allclose(
        again.predict_proba(NEW), model.predict_proba(NEW), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
    np.testing.assert_array_equal(again.classes_, model.classes_)


def test_a_single_class_travels():
    model = DummyClassifier(strategy="prior").fit(X, np.full(60, 2.0))
    learner = Estimator(DecisionTreeClassifier())
    again = model_from(learner, model_to(learner, model), features=4, classes=3)
    assert again.predict(NEW).tolist() == [2.0] * 500


def test_rows_in_disguise_do_not_travel():
    with pytest.raises(InputError, match="cannot travel"):
        as_plain(KNeighborsRegressor().fit(X, Y))


def _tree():
    return Tree(max_depth=3).fit(Data(X, Y), stream(0))


@pytest.mark.parametrize(
    "forge",
    [
        lambda t: t._replace(left=np.zeros_like(t.left)),  # a circle
        lambda t: t._replace(right=np.where(t.right >= 0, t.right + 1000, t.right)),
        lambda t: t._replace(feature=np.where(t.feature >= 0, 99, -1)),
        lambda t: t._replace(value=np.where(t.value > 0, np.nan, t.value)),
        lambda t: t._replace(value=t.value * 1e300),
        lambda t: t._replace(threshold=t.threshold[:-1]),
        lambda t: t._replace(feature=t.feature.astype(np.float64)),
        lambda t: Grown(*(part[:0] for part in t)),
        lambda t: _chain(40),
    ],
)
def test_forged_trees_are_refused(forge):
    model_from(Tree(max_depth=3), model_to(Tree(max_depth=3), _tree()), features=4)
    with pytest.raises(WireError):
        model_from(
            Tree(max_depth=3), model_to(Tree(max_depth=3), forge(_tree())), features=4
        )


def _chain(depth):
    """A sound tree, but deeper than allowed."""
    n = 2 * depth + 1
    feature, left, right = np.full(n, -1), np.full(n, -1), np.full(n, -1)
    for i in range(depth):
        feature[2 * i], left[2 * i], right[2 * i] = 0, 2 * i + 1, 2 * i + 2
    return Grown(feature, np.zeros(n), left, right, np.zeros(n))


def test_forged_forests_are_refused():
    learner = Estimator(RandomForestRegressor(3))
    good = model_to(learner, learner.fit(Data(X, Y), stream(0)))
    model_from(learner, good, features=4)
    for name, value in {
        "nodes": good["nodes"] + 1,
        "left": good["left"][::-1].copy(),
        "feature": good["feature"] + 4,
        "base": np.zeros(2),
        "stride": np.array([0]),
        "link": np.array([17]),
        "rate": np.array([np.inf]),
        "value": np.zeros((len(good["value"]), 3)),
    }.items():
        with pytest.raises(WireError):
            model_from(learner, good | {name: value}, features=4)
    with pytest.raises(WireError):
        model_from(learner, good | {"more": np.zeros(1)}, features=4)
    with pytest.raises(WireError):
        model_from(learner, {k: v for k, v in good.items() if k != "left"}, features=4)


@pytest.mark.parametrize(
    "wrong",
    [
        np.ones(3),
        np.array([1.0, np.nan]),
        np.array([1.0, np.inf]),
        np.array([1.0, 1e16]),
        np.ones(2, dtype=np.float32),
        np.ones((2, 1)),
    ],
)
def test_wrong_vectors_are_refused(wrong):
    with pytest.raises(WireError):
        model_from(Linear(), {"vector": wrong}, features=2)


def _letter():
    terms = Terms(model="tree", columns=("a", "b", "c", "d"), public=NEW[:5], seed=3)
    head, arrays = terms.to_wire()
    arrays |= {f"q0.{k}": v for k, v in {"labels": np.zeros(5)}.items()} | {
        "targets": np.array([1])
    }
    return pack(
        {"run": "r", "round": 2, "ask": 7, "me": 0, "names": ["ann"]} | head, arrays
    )


def test_no_bytes_escape_the_one_error():
    """Random damage to real messages: read whole, or refused by WireError, never anything else."""
    rng = np.random.default_rng(1)
    learner = Estimator(GradientBoostingClassifier(n_estimators=3))
    models = pack({"a": 1}, model_to(learner, learner.fit(Data(X, THREE), stream(0))))
    read = 0
    for i in range(4000):
        body = bytearray(models if i % 2 else _letter())
        for _ in range(int(rng.integers(1, 6))):
            body[int(rng.integers(len(body)))] = int(rng.integers(256))
        if i % 5 == 0:
            body = body[: int(rng.integers(len(body)))]
        if i % 7 == 0:
            body += bytes(rng.integers(0, 256, int(rng.integers(1, 50))).tolist())
        try:
            head, arrays = unpack(bytes(body))
            if i % 2:
                model_from(learner, arrays, features=4, classes=3).predict(NEW[:3])
            else:
                Terms.from_wire(head, arrays)
            read += 1
        except WireError:
            pass
    assert 0 < read < 4000


def test_a_device_answers_anything():
    """Whatever comes, a device returns a readable reply and no text of an error."""
    device = Device(
        "ann", Rows(list("abcd"), Data(X, Y)), policy=Policy(rows=0, rows_per_leaf=0)
    )
    rng = np.random.default_rng(2)
    codes = set()
    for i in range(300):
        body = bytearray(_letter())
        for _ in range(i % 8):
            body[int(rng.integers(len(body)))] = int(rng.integers(256))
        head, _ = unpack(
            device.reply(
                ["answer", "score", "adopt", "describe", "run"][i % 5], bytes(body)
            )
        )
        codes.add(head["code"])
    assert "ok" in codes
    assert codes <= {
        "ok",
        "format",
        "failed",
        "kind",
        "columns",
        "state",
        "models",
        "steps",
        "trees",
        "rows",
    }
    for junk in (b"", b"x", None, "text", 17, b"\xff" * 100):
        assert unpack(device.reply("answer", junk))[0]["code"] == "format"


def test_sizes_are_checked_before_parsing():
    with pytest.raises(WireError, match="at most 1000 bytes"):
        unpack(pack({}, {"x": np.zeros(1000)}), most=1000)
    with pytest.raises(WireError):
        unpack((2**40).to_bytes(8, "little") + b"{}")


def test_only_our_version_is_read():
    from safetensors.numpy import save

    other = save({"head": np.frombuffer(b'{"format": 99}', dtype=np.uint8)})
    with pytest.raises(WireError, match="format 1"):
        unpack(other)


def test_terms_name_known_things_only():
    good, arrays = Terms(columns=("a",)).to_wire()
    for change in (
        {"model": "os.system"},
        {"columns": []},
        {"columns": ["a", "a"]},
        {"steps": 10**9},
        {"step_size": -1},
        {"seed": "x"},
        {"settings": {"make": "os:system"}},
        {"settings": {"l2": {}}},
        {"holdout": 2},
        {"classes": -1},
        {"label_scale": 0},
    ):
        with pytest.raises(WireError):
            Terms.from_wire({"terms": good["terms"] | change}, arrays)
    with pytest.raises(WireError):
        Terms.from_wire({"terms": good["terms"] | {"more": 1}}, arrays)
    with pytest.raises(WireError):
        Terms.from_wire(good, {"terms.scale": np.zeros(1), "terms.mean": np.zeros(1)})


def test_messages_are_the_same_bytes_as_before():
    """Nodes are upgraded one by one: the hashes are of what commit 2abd345 sent."""
    before = json.loads(
        (Path(__file__).parents[1] / "learners/storage_bytes.json").read_text()
    )
    terms = Terms(
        model="linear",
        columns=("age", "dose"),
        step_size=0.05,
        settings={"l2": 0.5},
        mean=np.ones(2),
        scale=np.full(2, 2.0),
        public=np.zeros((3, 2)),
    )
    assert hashlib.sha256(pack(*terms.to_wire())).hexdigest() == before["terms"]
    leaf = np.array([-1])
    forest = Plain(
        "chances",
        np.zeros(2),
        np.array([0.0, 2.0]),
        trees=(
            Grown(
                np.array([1, -1, 0, -1, -1]),
                np.array([0.5, 0.0, 1.25, 0.0, 0.0]),
                np.array([1, -1, 3, -1, -1]),
                np.array([2, -1, 4, -1, -1]),
                np.arange(10.0).reshape(5, 2),
            ),
            Grown(leaf, np.zeros(1), leaf, leaf, np.array([[0.25, 0.75]])),
        ),
    )
    learner = Estimator(RandomForestClassifier())
    body = pack({"round": 3}, model_to(learner, forest))
    assert hashlib.sha256(body).hexdigest() == before["packed message"]


@pytest.mark.parametrize("value", [1.0, -1.0, 1e14])
def test_chances_are_chances(value):
    """With a chance of 1 for every class a model is never wrong."""
    data = Data(np.arange(6.0)[:, None], np.array([0.0, 0, 1, 1, 2, 2]))
    for learner, part in (("forest", "value"), ("constant", "base")):
        made = learner_named("forest", classes=3, settings={"n_estimators": 2})
        rows = data if learner == "forest" else data.take(np.array([0, 1]))
        sent = model_to(made, made.fit(rows, stream(0)))
        assert np.isin(model_from(made, sent, 1, 3).predict(data.X), range(3)).all()
        lie = np.full_like(sent[part], value) + (learner == "constant")
        with pytest.raises(WireError, match="form of its family"):
            model_from(made, sent | {part: lie}, 1, 3)
