"""Methods: one list, settings that scikit-learn reaches, needs that say where each can run."""

import importlib
import itertools
import json
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import clone

from persfl import Linear, PersonalizedRegressor, Tree
from persfl.cli import main
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.lab.comparison_cells import measurements
from persfl.lab.line_up import line_up
from persfl.lab.row_splits import RowSplit
from persfl.lab.trial import compare, summary
from persfl.methods import (
    IFCA,
    METHODS,
    Blend,
    Ditto,
    FedAvg,
    FedAvgFineTuned,
    Kin,
    LocalTask,
    Method,
    Online,
    Paper,
    cannot_run,
    method_of,
    settings_of,
)
from persfl.methods.listing import descriptions
from persfl.public_points import public_points
from persfl.runs import Folder
from persfl.sources import clustered_regression
from persfl.testing import check_method
from persfl.units import Units


@pytest.fixture(scope="module")
def rows():
    return clustered_regression(n=12, clusters=2, rows=8, features=3, noise=0.1, seed=0)


def test_the_list_has_every_method_once_under_its_name():
    assert list(METHODS) == [
        "blend",
        "paper",
        "kin",
        "own",
        "pooled",
        "fine-tuned",
        "clustered",
        "fedavg",
        "fedavg+fine-tuning",
        "ditto",
        "ifca",
        "dummies",
        "gtvmin",
        "fedprox",
        "per-fedavg",
        "apfl",
        "pfedme",
        "cfl",
        "werner",
        "fedem",
        "mr-mtl",
        "mocha",
        "pens",
        "dac",
        "fedfomo",
        "ucb",
        "thompson",
        "all-for-one",
        "clove",
        "pfedgraph",
        "cobo",
        "fedrelax",
        "fedper",
        "fedrep",
        "knn-per",
        "mixed",
        "boosting",
        "gpboost",
        "private",
    ]
    for name, kind in METHODS.items():
        assert isinstance(kind(), Method)
        assert method_of(name) == kind()


def test_a_method_is_a_value_that_scikit_learn_can_clone_and_set():
    one = Ditto(pull=0.5)
    assert clone(one) == one
    assert one.set_params(pull=1.0) == Ditto(pull=1.0)
    assert one.pull == 0.5  # a value does not change
    assert method_of(one, rounds=7) == Ditto(pull=0.5, rounds=7)
    assert hash(one) == hash(Ditto(pull=0.5))


def test_what_is_no_method_is_refused_in_a_sentence():
    with pytest.raises(InputError, match="method must be one of 'blend', 'paper'"):
        method_of("auto")
    for wrong in (Blend, 3, Linear()):
        with pytest.raises(InputError, match="method must be a name such as 'blend'"):
            method_of(wrong)
    with pytest.raises(InputError, match=r"Blend has no setting 'peers'. It has: bud"):
        method_of("blend", peers=3)
    with pytest.raises(InputError, match=r"Pooled has no setting 'peers'. It has none"):
        method_of("pooled", peers=3)
    with pytest.raises(
        InputError, match=r"Got 'finetuned'. Did you mean 'fine-tuned'\?"
    ):
        method_of("finetuned")


HERE = [name for name in METHODS if not METHODS[name]().needs().package]


@pytest.mark.parametrize("name", HERE)
def test_every_method_makes_a_model_per_device(name, rows):
    task = LocalTask(rows, Linear(), seed=1)
    quick = {"rounds": 20, "budget": 40}
    method = METHODS[name]()
    has = method.get_params()
    method = method.set_params(**{k: v for k, v in quick.items() if k in has})
    state = method.run(task)
    assert np.shape(state.models) == (12, 3)
    assert np.isfinite(state.models).all()
    assert state.trust.n == 12
    assert len(state.losses) == state.r


@pytest.mark.parametrize("name", HERE)
def test_a_method_that_cannot_take_trees_says_so_and_the_others_do(name, rows):
    method = METHODS[name]()
    task = LocalTask(rows, Tree(2), public=public_points(rows, 20, seed=0))
    why = cannot_run(method, task.learner)
    assert bool(why) == method.needs().gradients
    if why:
        assert why == f"{name} needs a model with gradients. Got Tree(max_depth=2)."
        return
    quick = {"rounds": 2, "budget": 5}
    has = method.get_params()
    method = method.set_params(**{k: v for k, v in quick.items() if k in has})
    assert len(method.run(task).models) == 12


def test_what_needs_no_rows_in_one_place_runs_over_a_federation():
    over = [name for name in METHODS if not cannot_run(method_of(name), federated=True)]
    assert over == [
        "blend",
        "paper",
        "kin",
        "own",
        "fedavg",
        "ditto",
        "ifca",
        "gtvmin",
        "fedprox",
        "per-fedavg",
        "apfl",
        "pfedme",
        "cfl",
        "werner",
        "mr-mtl",
        "mocha",
        "pens",
        "dac",
        "ucb",
        "thompson",
        "all-for-one",
        "clove",
        "pfedgraph",
        "cobo",
        "fedper",
        "fedrep",
        "mixed",
    ]
    assert cannot_run(method_of("pooled"), federated=True) == (
        "pooled needs all rows in one place, which no federation has."
    )
    assert cannot_run(method_of("own", shrink=0.1), federated=True) == (
        "own does not run over a federation. Devices there shrink as leaving own rows out says:"
        " leave shrink out."
    )
    assert cannot_run(FedAvgFineTuned(), federated=True) == (
        "fedavg+fine-tuning does not run over a federation. A federation does not ask devices to"
        " refit a common model to their rows."
    )


def test_every_method_names_its_source():
    for kind in METHODS.values():
        assert kind.source
        assert "\n" not in kind.source
    assert len(METHODS) >= 25


@pytest.mark.parametrize("name", ["clustered", "ifca", "clove"])
def test_more_clusters_than_devices_are_refused_in_a_sentence(name, rows):
    with pytest.raises(
        InputError, match=r"clusters must be at most 12 \(12 devices\). Go"
    ):
        method_of(name, clusters=13).run(LocalTask(rows, Linear()))


MAY_BE_EMPTY = {"pooled", "dummies", "mixed", "boosting"}  # what is common serves them


@pytest.mark.parametrize("name", HERE)
def test_a_device_without_rows_gets_what_is_common_or_a_sentence(name, rows):
    start = np.append(rows.start, rows.start[-1])
    more = Devices(rows.X, rows.y, rows.weight, start, range(13))
    task = LocalTask(more, Linear(intercept=True), seed=1)
    if name in MAY_BE_EMPTY:
        assert len(method_of(name).run(task).models) == 13
        return
    with pytest.raises(InputError, match="device 12 has no rows"):
        method_of(name).run(task)


LEARN_NOTHING = {"dummies", "mixed"}
ALONE = {
    "kin": "kin needs at least 2 devices",
    "mixed": "a mixed model needs at least 2 devices",
    "fedem": r"models must be at most 1 \(1 device\)",
    **dict.fromkeys(
        ("clustered", "ifca", "clove"), r"clusters must be at most 1 \(1 device\)"
    ),
}


@pytest.mark.parametrize("name", HERE)
def test_no_rows_at_all_are_refused_in_a_sentence(name):
    none = Devices(
        np.zeros((0, 2)), np.zeros(0), np.zeros(0), np.zeros(6, int), "abcde"
    )
    task = LocalTask(none, Linear(intercept=True))
    if name in LEARN_NOTHING:
        assert np.isfinite(method_of(name).run(task).models).all()
        return
    with pytest.raises(InputError, match="rows"):
        method_of(name).run(task)


@pytest.mark.parametrize("name", HERE)
def test_one_device_alone_trains_alone_or_is_refused_in_a_sentence(name, rows):
    one = Devices.of([rows[0]], quiet=True)
    method = method_of(name)
    has = method.get_params()
    method = method.set_params(**{"rounds": 3} if "rounds" in has else {})
    task = LocalTask(one, Linear(intercept=True))
    if name in ALONE:
        with pytest.raises(InputError, match=ALONE[name]):
            method.run(task)
    else:
        assert len(method.run(task).models) == 1


def test_settings_have_defaults_and_meanings():
    for kind in METHODS.values():
        for one in settings_of(kind()):
            assert one.value == one.default
            assert one.meaning
            assert "\n" not in one.meaning
    assert settings_of(IFCA(clusters=3))[0][:3] == ("clusters", 3, 2)


@pytest.mark.parametrize("method", [Paper(rounds=30, peers=4), Kin(rounds=40)])
def test_a_method_is_what_an_estimator_of_that_name_does(method, rows):
    model = PersonalizedRegressor(method=method, **OFF)
    model.fit(rows.X, rows.y, devices=rows.owner)
    units = Units.of(rows, "shared", labels=True)
    learner = Linear(intercept=True)
    state = method.run(LocalTask(units.inside(rows), learner))
    np.testing.assert_array_equal(model.models_, state.models)


OFF = {"holdout": 0.0}


def test_online_methods_go_on_from_a_state(rows):
    task = LocalTask(rows, Linear())
    for method in (Paper(rounds=5, online_rounds=3), Blend(budget=20)):
        assert isinstance(method, Online)
        state = method.run(task)
        more = method.go_on(task, state)
        assert more.r > state.r
        assert len(more.losses) == more.r
    assert not isinstance(Kin(), Online)


QUICK = {"rounds": 6, "budget": 8, "peers": 3, "local": 2}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_the_list_keeps_the_contract(name):
    method = METHODS[name]()
    pytest.importorskip(method.needs().package or "numpy")
    has = method.get_params()
    with parallel_config("threading"):  # processes of their own take long to start
        check_method(method.set_params(**{k: v for k, v in QUICK.items() if k in has}))


# A toy method: one file, here written into a folder, and one entry in the list.

TOY = '''
from dataclasses import dataclass
from typing import ClassVar

from persfl.evaluation.rivals import own_fits, pooled_fit
from persfl.methods import MethodSettings, Needs, at_once, setting


@dataclass(frozen=True)
class HalfAndHalf(MethodSettings):
    """Own rows and everybody's, half each."""

    name: ClassVar[str] = "half and half"
    about: ClassVar[str] = "The mean of own models and of one for everybody"

    own: float = setting(0.5, "the share of the own model")

    def needs(self):
        return Needs(gradients=True, together=True, leaves="All of its rows.")

    def run(self, task, *, stage="final", keep=None):
        mine = own_fits(task.learner, task.rows, task.seed)
        common = pooled_fit(task.learner, task.rows, task.seed)
        models = self.own * mine + (1 - self.own) * common
        return at_once(task, models, stage=stage, keep=keep)
'''


@pytest.fixture
def toy(tmp_path, monkeypatch):
    (tmp_path / "toy_method.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("toy_method").HalfAndHalf
    sys.modules.pop("toy_method", None)


def test_a_toy_method_is_one_file_and_appears_everywhere(toy, rows, monkeypatch):
    check_method(toy())
    monkeypatch.setitem(METHODS, toy.name, toy)
    assert method_of("half and half", own=0.25) == toy(own=0.25)
    assert "half and half" in line_up()
    found = measurements(RowSplit(rows, rows, 0), ["half and half", "own"])
    assert found["picked"]["half and half"]["tried"] == 2
    worth = compare(PersonalizedRegressor(), rows.X, rows.y, devices=rows.owner)
    assert "half and half" in summary(worth).index


def test_what_breaks_the_contract_is_told(toy):
    chance = itertools.count()

    @dataclass(frozen=True)
    class Lies(toy):
        def needs(self):
            return replace(super().needs(), together=False)

    @dataclass(frozen=True)
    class Forgets(toy):
        def run(self, task, *, stage="final", keep=None):
            state = super().run(task, stage=stage, keep=keep)
            return replace(state, models=state.models + next(chance))

    @dataclass(frozen=True)
    class Mute(toy):
        other: int = 3

    @dataclass(frozen=True)
    class Scribbles(toy):
        def run(self, task, *, stage="final", keep=None):
            task.rows.y[:] = 0
            return super().run(task, stage=stage, keep=keep)

    broken = {
        Lies: "run must not read task.rows",
        Forgets: "the same seed must give the same",
        Mute: "setting 'other' must have a meaning",
        Scribbles: "a method must not change rows",
    }
    for kind, promise in broken.items():
        with pytest.raises(AssertionError, match=promise):
            check_method(kind())


def test_the_command_lists_every_method(toy, monkeypatch, capsys):
    monkeypatch.setitem(METHODS, toy.name, toy)
    assert main(["methods"]) == 0
    text = capsys.readouterr().out
    for name, kind in METHODS.items():
        assert f"\n{name}\n" in f"\n{text}"
        assert kind.about.split()[0] in text
    assert "over a federation: no. pooled needs all rows in one place" in text
    assert main(["methods", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found] == list(METHODS)
    assert found == descriptions()
    assert all(one["details"] for one in found if one["name"] != toy.name)


def test_the_command_shows_the_settings_of_one(capsys):
    assert main(["methods", "blend"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["budget", "640"] in [line.split(maxsplit=2)[:2] for line in lines]
    assert main(["methods", "nobody"]) == 2
    assert "there is no method 'nobody'. There are: blend" in capsys.readouterr().err


class Cut(Exception):
    """A run ends here."""


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_run_that_was_cut_after_too_long_a_step_ends_the_same(tmp_path, attempt):
    rows = clustered_regression(n=6, clusters=2, rows=12, features=2, noise=0.1, seed=0)
    task = LocalTask(rows, Linear(), 0)
    method = FedAvg(rounds=3, step_size=2.0)
    whole = method.run(task)
    assert len(whole.pace.halved) == 2
    folder = Folder.create(tmp_path / "run", {})
    ends = []

    class Keep:
        last = folder.last

        def after(self, stage, plan, state, round_):
            folder.after(stage, plan, state, round_)
            ends.extend([state] if state.r == plan.rounds else [])
            if len(ends) == attempt:
                raise Cut

    with pytest.raises(Cut):
        method.run(task, keep=Keep())
    folder.close()
    again = method.run(task, keep=Folder.open(tmp_path / "run"))
    assert again.pace == whole.pace
    np.testing.assert_array_equal(again.models, whole.models)
