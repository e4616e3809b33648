"""Shared units of a federation: one device that lies in its sums does not choose them for all."""

import numpy as np
import pytest

pytest.importorskip("flwr")

from federated import at_home, plan

from persfl import Data
from persfl.federation.column_sums import Totals, sums_of, zeros_and_ones
from persfl.federation.conduct import conduct
from persfl.federation.local_grid import LocalGrid
from persfl.sources import clustered_regression
from persfl.wire import Terms, pack, unpack

DEVICES = clustered_regression(n=4, clusters=1, rows=24, features=2, noise=0.2, seed=4)
PAYS = {"answers": 20, "sums": False, "ranges": [[1e14, 1e14 + 1]] * 3}


class Liar:
    """A device that tells other sums, and other words, of itself."""

    def __init__(self, inner, head, once=False, **told):
        self.inner = inner
        self.once = once
        self.head = head
        self.told = told

    def reply(self, kind, body):
        head, arrays = unpack(self.inner.reply(kind, body))
        if kind == "describe":
            head |= self.head
        told = self.told if "sums" in arrays else {}
        if told and self.once:
            self.told = {}
        for name, value in told.items():
            wide = 1 if name in ("weight", "noise") else 3
            arrays[name] = np.full(wide, float(value))
        return pack(head, arrays)


def named(replies):
    return {f"d{i:02d}": told for i, told in enumerate(replies)}


def units(out, head=None, **told):
    """The terms of a run with one that tells this; what three others alone would have."""
    homes = at_home(DEVICES)
    if head is not None or told:
        homes["d02"] = Liar(homes["d02"], head or {}, **told)
    asked = {"method": "paper", "rounds": 1, "units": "shared", "holdout": 0.0}
    conduct(LocalGrid(homes), plan(out, homes, **asked))
    return Terms.from_wire(*unpack((out / "terms.wire").read_bytes()))


@pytest.mark.parametrize(
    "told",
    [
        {"squares": 1e300},
        {"squares": 1e40},
        {"sums": 1e15},
        {"weight": 1e-300},
        {"weight": -72.0, "noise": 1.0},
        {"head": {"privacy": PAYS}},
    ],
    ids=str,
)
def test_what_can_be_no_sums_is_not_counted(tmp_path, told):
    found = units(tmp_path / "run", **told)
    three = np.concatenate([DEVICES[i].X for i in (0, 1, 3)])
    np.testing.assert_allclose(found.mean, three.mean(axis=0))
    np.testing.assert_allclose(found.scale, three.std(axis=0))


@pytest.mark.parametrize(
    "told",
    [{"weight": 1e15}, {"sums": 1e9, "squares": 1e18}, {"sums": 0, "squares": 1e28}],
    ids=str,
)
def test_one_device_alone_does_not_choose_units(tmp_path, told):
    found = units(tmp_path / "run", **told)
    usual = np.concatenate([DEVICES[i].X for i in range(4)]).std(axis=0)
    assert (np.abs(found.mean) < 20 * usual).all()
    assert (found.scale < 20 * usual).all()
    assert (found.scale > usual / 10).all()


def _told(rows, about):
    return {
        "weight": np.array([9.0]),
        "sums": (rows - about).sum(axis=0),
        "squares": ((rows - about) ** 2).sum(axis=0),
        "binary": np.zeros(2, dtype=np.int64),
    }


@pytest.mark.parametrize("liars", [1, 2])
def test_few_of_five_do_not_choose_units(liars):
    """Columns became 93 times as wide, and losses of a blend of classes nine times those of own
    rows.
    """
    rng = np.random.default_rng(0)
    every = [_told(rng.normal(size=(9, 2)), 0.0) for _ in range(5)]
    for told in every[5 - liars :]:
        for name, times in (("weight", 1e6), ("sums", 1e6), ("squares", 1e18)):
            told[name] = told[name] * times
    assert (Totals(named(every), 2).spread < 30).all()


def test_devices_that_differ_by_fifty_have_the_units_of_all_their_rows():
    """As sales of houses do, between 46 cities."""
    rng = np.random.default_rng(0)
    wide = [k * rng.normal(size=(9, 2)) + k for k in (*[1.0, 2.0, 3.0] * 15, 50.0)]
    every = np.concatenate(wide)
    mean = Totals(named(_told(rows, 0.0) for rows in wide), 2).mean
    np.testing.assert_allclose(mean, every.mean(axis=0))
    about = named(_told(rows, mean) for rows in wide)
    np.testing.assert_allclose(Totals(about, 2).spread, every.std(axis=0))


def test_noised_sums_of_one_device_do_not_choose_units_either():
    honest = {
        "weight": np.array([40.0]),
        "sums": np.array([10.0]),
        "squares": np.array([20.0]),
        "binary": np.zeros(1, dtype=np.int64),
        "noise": np.array([2.0]),
    }
    lie = {"weight": np.array([-1e15]), "sums": np.array([1e15])}
    every = named([honest] * 3 + [honest | lie])
    told, deviation = Totals(every, 1, noised=True).within(np.ones(1))
    assert np.abs(told).max() <= 13 * 40.0
    assert deviation == 4.0


@pytest.mark.parametrize(
    ("method", "told", "said"),
    [
        ("paper", {"sums": 0, "squares": 1e28}, 1),
        ("fedavg", {"sums": 1e9, "squares": 1e18}, 1),
        ("paper", {"sums": 1e9, "squares": 1e18, "once": True}, 1),
        ("blend", {"sums": 0, "squares": 1e28}, 0),
        ("paper", {}, 0),
    ],
)
def test_the_one_device_that_slows_all_others_is_named(tmp_path, method, told, said):
    homes = at_home(DEVICES)
    homes["d02"] = Liar(homes["d02"], {}, **told)
    asked = {"method": method, "rounds": 1, "units": "shared", "holdout": 0.0}
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **asked))
    diary = (tmp_path / "run" / "progress.jsonl").read_text()
    assert diary.count("shared units are mostly those of device 'd02'") == said


def test_whoever_moves_the_label_is_named_unless_labels_have_their_own_units():
    fair = sums_of(DEVICES[0], None) | zeros_and_ones(DEVICES[0])
    far = fair | {"sums": fair["sums"] * [1, 1, 0], "squares": fair["squares"].copy()}
    far["squares"][2] = 1e9
    told = Totals(named([fair, fair, fair, far]), 3)
    assert told.farthest()[:2] == ("d03", 2)
    assert told.farthest(labels=False).times < 3


def test_nobody_is_named_for_a_column_that_the_others_have_nothing_in():
    rare = np.array([[1.0, 2.0]] * 9)
    rows = [Data(rare * (i == 3), np.arange(9.0)) for i in range(12)]
    told = named([sums_of(one, None) | zeros_and_ones(one) for one in rows])
    assert Totals(told, 3).farthest().times < 3
