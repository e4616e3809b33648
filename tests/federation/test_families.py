"""A family of its own for every device: linear here, a forest there; real messages, no network."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from federated import OPEN, columns, names, plan

from persfl.cli import main
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.federation.conduct import conduct
from persfl.federation.device import Device
from persfl.federation.federation_folder import init
from persfl.federation.local_grid import LocalGrid
from persfl.federation.node_family import NodeFamily
from persfl.federation.node_folder import device_of, use_table
from persfl.federation.policy import Policy
from persfl.federation.row_stock import Lot
from persfl.federation.row_table import Rows
from persfl.federation.run_plan import RunPlan
from persfl.learners.any_family import AnyFamily, family_name, told_plainly
from persfl.learners.linear import Linear
from persfl.learners.plain import Plain
from persfl.report.federation_page import federation_page
from persfl.runs import load_model
from persfl.seeds import stream
from persfl.types import Data
from persfl.wire import WireError, model_from, pack, unpack
from persfl.wire.models import model_to
from persfl.wire.terms import Terms

NAMED = ("linear", "tree", {"model": "forest", "n_estimators": 3})


def steps_and_lines(n=6, rows=40, seed=3):
    """Devices 0, 3, 6 are lines, the others steps: what suits whom is no secret."""
    draws = np.random.default_rng(seed)
    found = []
    for i in range(n):
        X = draws.normal(size=(rows, 2))
        truth = 3 * X[:, 0] - X[:, 1] if i % 3 == 0 else 4.0 * (X[:, 0] > 0)
        found.append(Data(X, truth + 0.1 * draws.normal(size=rows)))
    return Devices.of(found)


def nodes(devices, families, policy=OPEN):
    return {
        name: Device(
            name,
            Rows(columns(devices), devices[i]),
            policy=policy,
            lot=Lot(5, i),
            family=NodeFamily.of(families[i % len(families)]),
        )
        for i, name in enumerate(names(len(devices)))
    }


def said_by(model, X, who):
    table = pd.DataFrame(X, columns=["x0", "x1"])
    return model.predict(table, devices=np.array(names(6))[who])


def ran(out, homes, **changes):
    usual = {"model": "any", "method": "paper", "rounds": 3, "peers": 5}
    path = plan(out, homes, **usual | changes)
    conduct(LocalGrid(homes), path)
    return load_model(out), json.loads((out / "federation.json").read_text())


def test_three_families_meet_and_targets_adopt_what_predicts_best(tmp_path):
    devices = steps_and_lines()
    homes = nodes(devices, NAMED)
    model, info = ran(tmp_path / "run", homes)
    assert [one["named"] for one in info["families"].values()] == [
        "linear",
        "tree",
        "forest",
    ] * 2
    ended = [one["ended"] for one in info["families"].values()]
    # lines end linear, steps do not, whatever they named
    assert ended[::3] == ["linear"] * 2
    assert set(ended[1::3] + ended[2::3]) <= {"tree", "forest"}
    note = next(note for note in model.notes_ if "Families" in note)
    assert "d00 linear (linear)" in note
    fresh = steps_and_lines(seed=4)
    said = said_by(model, fresh.X, fresh.owner)
    missed = np.bincount(fresh.owner, (said - fresh.y) ** 2) / 40
    assert missed.max() < 0.5
    page = federation_page(info)
    assert "family that its node names" in page


def test_a_family_that_does_not_suit_is_left(tmp_path):
    devices = steps_and_lines()
    homes = nodes(devices, ("tree", "linear", NAMED[2]))
    _, info = ran(tmp_path / "run", homes)
    ended = [one["ended"] for one in info["families"].values()]
    assert "linear" not in ended[1::3]  # steps that named linear


def test_classes_of_three_families(tmp_path):
    devices = steps_and_lines()
    labels = (devices.y > 0.5).astype(float)
    devices = Devices.of(
        [Data(devices[i].X, labels[devices.owner == i]) for i in range(6)]
    )
    homes = nodes(
        devices, ("linear", NAMED[2], {"model": "boosting", "n_estimators": 3})
    )
    model, info = ran(tmp_path / "run", homes, classes=2, rounds=1)
    assert {one["ended"] for one in info["families"].values()} <= {
        "linear",
        "forest",
        "boosting",
        "constant",
    }
    assert np.mean(said_by(model, devices.X, devices.owner) == labels) > 0.8


def test_the_same_run_twice_is_the_same(tmp_path):
    devices = steps_and_lines(n=4)
    kept = []
    for where in ("a", "b"):
        homes = nodes(devices, NAMED)
        kept.append(ran(tmp_path / where, homes, rounds=2)[0])
    X = np.zeros((4, 2)) + np.arange(4)[:, None]
    np.testing.assert_array_equal(*(said_by(one, X, np.arange(4)) for one in kept))


def question(kind, terms, **arrays):
    head, more = terms.to_wire()
    about = {"run": "r", "round": 0, "ask": 1, "me": 0, "names": ["b"], "count": 0}
    if kind == "answer":
        arrays = {"targets": np.array([1]), "q0.labels": np.zeros(20)}
    return pack(head | about | {"probe": True}, more | arrays)


TERMS = Terms(model="any", columns=("x0", "x1"), public=np.zeros((20, 2)))


@pytest.mark.parametrize("family", ["linear", "tree", "forest", "boosting", "ridge"])
def test_leaves_rest_on_enough_rows_and_linear_answers_on_moments(family):
    devices = steps_and_lines(n=1, rows=40)
    home = nodes(devices, [family], Policy(rows=5, rows_per_leaf=12))["d00"]
    head, arrays = unpack(home.reply("answer", question("answer", TERMS)))
    assert head["codes"] == ["ok"]
    part = {name[3:]: array for name, array in arrays.items()}
    model = model_from(AnyFamily(), part, 2)
    assert family_name(model) == family.replace("ridge", "linear")
    for tree in model.trees:
        leaves = tree.feature < 0
        assert leaves.sum() <= 40 // 12 + 1  # and one for the public points


def test_an_owner_allows_models_of_others_and_its_own_family():
    devices = steps_and_lines(n=1)
    for models in (("linear", "any"), ("forest",)):
        policy = Policy(rows=5, models=models)
        home = nodes(devices, ["forest"], policy)["d00"]
        head, _ = unpack(home.reply("answer", question("answer", TERMS)))
        assert head["code"] == "models"


@pytest.mark.parametrize(
    ("kind", "terms", "code"),
    [
        ("answer", replace(TERMS, public=None), "format"),
        ("adopt", replace(TERMS, public=None), "format"),
        ("blend", TERMS, "models"),
    ],
)
def test_what_such_a_run_never_asks_is_refused(kind, terms, code):
    home = nodes(steps_and_lines(n=1), ["linear"], Policy(rows=5))["d00"]
    head, _ = unpack(home.reply(kind, question(kind, terms)))
    assert head["code"] == code


def absurd(change):
    model = AnyFamily(grower=Linear(intercept=True)).fit(
        Data(np.eye(3)[:, :2], np.arange(3.0)), stream(0)
    )
    return model_to(AnyFamily(), model) | change


@pytest.mark.parametrize(
    "change",
    [
        {"slopes": np.full((1, 2), np.nan)},
        {"slopes": np.zeros((1, 3))},
        {"base": np.full(1, 1e300)},
        {"link": np.array([7])},
        {"labels": np.array([0.0, 1.0])},
        {"nodes": np.ones(501, dtype=np.int64)},
    ],
)
def test_models_of_others_are_looked_at_before_they_are_used(change):
    with pytest.raises(WireError):
        model_from(AnyFamily(), absurd(change), 2)


def test_too_many_or_too_deep_trees_are_none():
    def told(trees, deep):
        many = np.full(trees, 2 * deep + 1)
        chain = [*np.array([[0, -1]] * deep).ravel().tolist(), -1]
        place = np.arange(2 * deep + 1)
        left = np.where(np.array(chain) >= 0, place + 1, -1)
        right = np.where(np.array(chain) >= 0, place + 2, -1)
        nodes = {"feature": chain, "left": left, "right": right}
        arrays = {
            k: np.tile(np.array(v, dtype=np.int64), trees) for k, v in nodes.items()
        }
        size = trees * (2 * deep + 1)
        arrays |= {"threshold": np.zeros(size), "value": np.zeros((size, 1))}
        base = model_to(
            AnyFamily(), Plain("value", np.zeros(1), slopes=np.zeros((1, 2)))
        )
        base.pop("slopes")
        return base | arrays | {"nodes": many}

    assert family_name(model_from(AnyFamily(), told(2, 30), 2)) == "forest"
    for trees, deep in ((501, 1), (1, 31)):
        with pytest.raises(WireError):
            model_from(AnyFamily(), told(trees, deep), 2)


def test_a_peer_that_lies_costs_its_own_answers(tmp_path):
    devices = steps_and_lines()
    homes = nodes(devices, NAMED)

    class Liar:
        def reply(self, kind, body):
            head, arrays = unpack(honest.reply(kind, body))
            if kind == "answer":
                arrays = {name: _nonsense(array) for name, array in arrays.items()}
            return pack(head, arrays)

    honest = homes["d04"]
    homes["d04"] = Liar()
    _, info = ran(tmp_path / "run", homes, rounds=1)
    counts = {row["device"]: row for row in info["counts"]}
    assert counts["d04"]["answered"] == 0
    assert counts["d04"]["format"] > 0


def _nonsense(array):
    return array * np.nan if array.dtype.kind == "f" else array


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ("network", "family must be one of"),
        (7, "a node names its family as in"),
        ({"max_depth": 3}, "a node names its family as in"),
        ({"model": "forest", "loss": "huber"}, "loss is not a family's to choose"),
        ({"model": "forest", "depth": 3}, "settings of model 'forest' are"),
        ({"model": "forest", "n_estimators": 501}, "at most 500 trees of depth 30"),
        ({"model": "tree", "max_depth": 31}, "30"),
    ],
)
def test_families_that_are_none(told, says):
    with pytest.raises(InputError, match=says):
        NodeFamily.of(told)


def test_plans_of_any_family():
    with pytest.raises(InputError, match="--method paper or kin"):
        RunPlan(out="run", devices=("a", "b"), model="any", method="blend")
    with pytest.raises(InputError, match="--family is for runs with --model any"):
        RunPlan(out="run", devices=("a", "b"), family="tree")
    asked = RunPlan(out="run", devices=("a", "b"))
    before = {
        name: value for name, value in asked.to_plain().items() if name != "family"
    }
    assert asked.difference(before) == ""


def test_a_node_names_its_family_in_its_file(tmp_path, capsys):
    fed = init(tmp_path / "fed", ["ann", "bob"], port=19443, inner=19444)
    file = fed.path / "ann" / "node.toml"
    assert 'family = "linear"' in file.read_text()
    file.write_text(
        file.read_text().replace('"linear"  #', '{model = "forest", max_depth = 2}  #')
    )
    rows = tmp_path / "rows.csv"
    rows.write_text("a,y\n" + "\n".join(f"{i},{2 * i}" for i in range(30)))
    use_table(fed.path / "ann", rows, label="y", drop=[], weight=None)
    assert device_of(fed.path / "ann").family.settings == {"max_depth": 2}
    words = ["node", "--config", str(fed.path / "ann"), "--data", str(rows)]
    assert main([*words, "--label", "y", "--check"]) == 0
    assert "any (forest)" in capsys.readouterr().out


def test_linear_models_of_classes_are_told_plainly():
    several = Linear("multinomial", classes=3, intercept=True)
    rows = Data(np.arange(6.0)[:, None], np.arange(6.0) // 2)
    model = several.fit(rows, stream(0))
    plain = told_plainly(several, model)
    chances, labels = several.chances(model, rows.X)
    np.testing.assert_allclose(plain.predict_proba(rows.X), chances)
    np.testing.assert_array_equal(plain.classes_, labels)
