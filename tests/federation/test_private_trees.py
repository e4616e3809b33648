"""Trees over a federation of protected devices: random questions, noised leaves."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr")

from federated import names, plan

from persfl import Data
from persfl.errors import InputError
from persfl.federation.conduct import conduct
from persfl.federation.leaves_site import _bounded
from persfl.federation.local_grid import LocalGrid
from persfl.federation.privacy_settings import PrivacySettings
from persfl.federation.private_messages import HOME
from persfl.federation.told_leaves import LeavesFamily
from persfl.fleets.flower import Device, Policy, Rows
from persfl.runs import load_model
from persfl.wire import Terms, nested, pack, unpack

RANGES = {"x0": [-4, 4], "x1": [-4, 4]}
PRIVATE = PrivacySettings(epsilon=8.0, ranges=RANGES, label=(-8.0, 8.0))
TREES = Terms(model="tree", columns=("x0", "x1"), settings={"max_depth": 2})


def fleet(rows=30, n=3, settings=PRIVATE):
    rng = np.random.default_rng(1)
    homes = {}
    for name in names(n):
        X = rng.normal(size=(rows, 2))
        data = Data(X, 5.0 * np.sign(X[:, 0]) + rng.normal(size=rows))
        homes[name] = Device(name, Rows(["x0", "x1"], data), privacy=settings)
    return homes


def ask(device, asks, arrays=None, terms=TREES):
    told, more = terms.to_wire()
    head = {"run": "r", "round": 0, "ask": 7, "me": 0, **told, "asks": asks}
    return unpack(device.reply("blend", pack(head, more | (arrays or {}))))


def kinds(home):
    return [line["kind"] for line in home.ledger.protected.table()]


def test_a_forest_of_noised_leaves_is_refined_at_home(tmp_path):
    homes = fleet()
    asked = {"method": "blend", "model": "tree", "deadline": 9.0}
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **asked))
    fitted = load_model(tmp_path / "run").fitted_
    assert fitted.notes[0].startswith("One forest for all: 8 trees")
    assert "earlier rule" not in " ".join(fitted.notes)
    assert fitted.units.label_scale == 8.0  # the range is all that units are made of
    for home in homes.values():
        assert kinds(home) == ["leaves"]
        kept = home.shelf.get(f"{HOME}r1")
        mix = kept.model if isinstance(kept.model, list) else [(1.0, kept.model)]
        inside = kept.terms.inside(home.source(0).data)
        learner = kept.terms.learner()
        said = sum(share * learner.predict(tree, inside.X) for share, tree in mix)
        assert np.mean((said - inside.y) ** 2) < 0.5 * np.var(inside.y)


def class_fleet(n=3, rows=60):
    rng = np.random.default_rng(2)
    homes = {}
    for name in names(n):
        X = rng.normal(size=(rows, 2))
        y = np.where(X[:, 0] > 0.5, 2, X[:, 1] > 0) + 0.0
        homes[name] = Device(name, Rows(["x0", "x1"], Data(X, y)), privacy=PRIVATE)
    return homes


@pytest.mark.parametrize("model", ["tree", "forest"])
def test_class_counts_in_leaves_are_a_forest_for_all(tmp_path, model):
    homes = class_fleet()
    asked = {"method": "blend", "model": model, "classes": 3, "deadline": 9.0}
    small = {"max_depth": 3} | ({"n_estimators": 4} if model == "forest" else {})
    run = tmp_path / "run"
    conduct(LocalGrid(homes), plan(run, homes, settings=small, **asked))
    fitted = load_model(run).fitted_
    assert fitted.units.label_scale == 1.0  # classes keep their numbers
    fresh = np.random.default_rng(3).normal(size=(300, 2))
    truth = np.where(fresh[:, 0] > 0.5, 2, fresh[:, 1] > 0)
    for home in homes.values():
        assert kinds(home) == ["leaves"]
        kept = home.shelf.get(f"{HOME}r1")
        mix = kept.model if isinstance(kept.model, list) else [(1.0, kept.model)]
        learner = kept.terms.learner()
        inside = kept.terms.inside(Data(fresh, truth)).X
        said = np.zeros((300, 3))
        for share, tree in mix:
            chances, known = learner.chances(tree, inside)
            said[:, known.astype(int)] += share * chances
        assert np.allclose(said.sum(axis=1), 1.0)
        assert (said.argmax(axis=1) == truth).mean() > 0.6


def test_a_forest_of_numbers_is_told_in_leaves_too(tmp_path):
    homes = fleet()
    asked = {"method": "blend", "model": "forest", "settings": {"n_estimators": 3}}
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, deadline=9.0, **asked))
    assert all(kinds(home) == ["leaves"] for home in homes.values())
    assert all(home.shelf.get(f"{HOME}r1") is not None for home in homes.values())


def test_leaves_are_told_once_and_other_trees_do_not_fit():
    home = fleet(n=1)["d00"]
    first = ask(home, [{"what": "leaves"}])[1]["k0.leaves"]
    again = ask(home, [{"what": "leaves"}], terms=replace(TREES, holdout=0.5))
    assert (again[1]["k0.leaves"] == first).all()
    for other in (replace(TREES, seed=9), replace(TREES, label_mean=0.5)):
        assert ask(home, [{"what": "leaves"}], terms=other)[0]["codes"] == ["budget"]
    assert kinds(home) == ["leaves"]


def test_what_trees_refuse_does_not_hang_on_rows():
    told = []
    for data in (Data(np.zeros((1, 2)), np.array([np.nan])), None):
        home = fleet(n=1)["d00"]
        if data is not None:
            home = Device("d00", Rows(["x0", "x1"], data), privacy=PRIVATE)
        boosted = Terms(model="boosting", columns=("x0", "x1"))
        others = {"k0.model": np.zeros(LeavesFamily(TREES).size)}
        heads = [
            ask(home, [{"what": "leaves"}])[0],
            ask(home, [{"what": "take"}], others)[0],
            ask(home, [{"what": "take"}], nested("k0", {"model": np.zeros(3)}))[0],
            ask(home, [{"what": "parts", "ordered": False}])[0],
            ask(home, [{"what": "leaves"}], terms=boosted)[0],
        ]
        told.append(heads)
    assert told[0] == told[1]
    codes = [head.get("codes", [head["code"]])[0] for head in told[0]]
    assert codes == ["ok", "ok", "format", "format", "privacy"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"model": "boosting"}, "questions of boosting are chosen by looking at rows"),
        ({"model": "boosting", "classes": 2}, "questions of boosting are chosen"),
        ({"model": "ridge"}, "models of the kind ridge are fitted without noise"),
        ({"model": "forest", "method": "paper"}, "--method blend asks for"),
        ({"model": "tree", "method": "paper"}, "--method blend asks for"),
    ],
)
def test_what_cannot_be_protected_is_said_before_anything_is_told(
    tmp_path, asked, said
):
    homes = fleet(9)
    with pytest.raises(InputError, match=said):
        conduct(
            LocalGrid(homes),
            plan(tmp_path / "run", homes, **{"method": "blend", **asked}),
        )
    assert all(kinds(home) == [] for home in homes.values())


def test_trees_are_for_devices_that_all_protect_their_rows(tmp_path):
    """One that does not, or says so, is left out; two of four stop the run in words."""
    bare = fleet(9, 4, None)
    asked = {"method": "blend", "model": "tree", "deadline": 9.0}
    homes = fleet(9, 4) | {"d03": bare["d03"]}
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **asked))
    fitted = load_model(tmp_path / "run").fitted_
    said = "Device 'd00' protects its rows and device 'd03' does not: trees are learned"
    assert len(fitted.models) == 3
    assert [note for note in fitted.notes if note.startswith(said)]
    homes |= {"d02": bare["d02"]}
    with pytest.raises(InputError, match="'d02' does not: trees are learned by"):
        conduct(LocalGrid(homes), plan(tmp_path / "half", homes, **asked))


def test_an_owner_who_tells_no_sums_tells_no_leaves():
    home = fleet(n=1)["d00"]
    mute = Device("d", home.source, privacy=PRIVATE, policy=Policy(sums=False))
    assert ask(mute, [{"what": "leaves"}])[0]["codes"] == ["sums"]


def test_whether_there_was_room_for_a_refined_model_does_not_show():
    """How large it is hangs on rows: whether a tree of these or a forest does better."""
    said = []
    home = fleet(n=1)["d00"]
    for disk in (1, 10**6):
        log = []
        device = Device(
            "d",
            home.source,
            privacy=PRIVATE,
            policy=Policy(disk=disk),
            log=log.append,
        )
        others = {"k0.model": np.zeros(LeavesFamily(TREES).size)}
        head, _ = ask(device, [{"what": "take"}], others)
        said.append(head)
        kept = device.shelf.get(f"{HOME}r")
        assert (kept is None) == (disk == 1) == bool(log)
    assert said[0] == said[1]
    assert said[0]["codes"] == ["ok"]
    # nor in whether there is room for a model that others led to
    room = device.shelf._others(f"{HOME}other")
    assert room > 0
    assert device.shelf._others("other") == 0


def test_trees_that_rows_may_grow_deeper_are_told_of_to_a_depth_of_six():
    deep = replace(TREES, settings={"max_depth": 9})
    assert LeavesFamily(deep).trees.leaves == 64
    any_depth = Terms(model="forest", columns=("x0",), settings={"max_depth": None})
    assert LeavesFamily(any_depth).trees.leaves == 64


def test_one_device_alone_decides_no_leaf():
    told = np.ones((4, 2, 8))
    told[3] = 1e12
    length = np.linalg.norm(_bounded(told), axis=(1, 2))
    assert length.max() <= length[:3].sum() + 1e-9
