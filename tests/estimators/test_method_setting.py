"""Which method a fit goes by, and where it is said."""

import inspect
import json
import re
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold

from persfl import (
    Linear,
    PersonalizedClassifier,
    PersonalizedRegressor,
    TopK,
    Tree,
    cli,
)
from persfl.errors import InputError
from persfl.learners import MLP
from persfl.methods import METHODS, Blend, FedAvg, Kin, Own, Paper, method_of, setting
from persfl.report import info
from persfl.runs import load_model, save_model
from persfl.sources import clustered_regression


@pytest.fixture(scope="module")
def rows():
    devices = clustered_regression(
        n=10, clusters=2, rows=8, features=2, noise=0.2, seed=0
    )
    return devices.X, devices.y, devices.owner


def test_blend_is_the_default_and_no_setting_changes_that():
    for base in (None, Linear(), Tree(2), MLP((2,))):
        assert method_of(PersonalizedRegressor(base).method) == Blend()
    parameters = inspect.signature(PersonalizedRegressor).parameters.values()
    assert len(parameters) <= 21


def test_what_moved_into_methods_is_said_with_its_new_spelling(rows):
    X, y, who = rows
    for name, value in {
        "peers": 5,
        "rounds": 50,
        "step_size": 0.1,
        "adopter": TopK(2),
        "online_rounds": 3,
    }.items():
        says = f"PersonalizedRegressor(method=Paper({name}={value!r}))"
        with pytest.raises(InputError, match=re.escape(says)):
            PersonalizedRegressor(**{name: value})
        with pytest.raises(InputError, match=re.escape(says)):
            PersonalizedRegressor().set_params(**{name: value})
        model = eval(says, {"PersonalizedRegressor": PersonalizedRegressor} | METHOD)
        assert model.method.get_params()[name] == value
    with pytest.raises(InputError, match=r"Classifier\(method=Blend\(budget=9\)\)"):
        PersonalizedClassifier(budget=9)
    with pytest.raises(InputError, match=r"Paper\(rounds=5, peers=2\)"):
        PersonalizedRegressor(rounds=5, peers=2, budget=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'round'"):
        PersonalizedRegressor(round=5)
    with pytest.raises(InputError, match="method must be one of 'blend', 'paper'"):
        PersonalizedRegressor(method="auto").fit(X, y, devices=who)
    with pytest.raises(InputError, match=r"method such as Blend\(budget=300\)"):
        PersonalizedRegressor(method=Blend).fit(X, y, devices=who)


METHOD = {"Paper": Paper, "TopK": TopK}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"units": "raw"}, "blend goes by shared units. Got units='raw'"),
        ({"compute": "cpu"}, "computes on this processor"),
        ({"method": Blend(budget=0)}, "budget must be at least 1"),
        ({"method": Paper(peers=10)}, "peers must be at most 9"),
        ({"method": "ditto", "estimator": Tree(2)}, "ditto needs a model with gradi"),
    ],
)
def test_what_a_method_cannot_do_is_said_in_a_sentence(rows, settings, says):
    X, y, who = rows
    with pytest.raises(InputError, match=says):
        PersonalizedRegressor(holdout=0, **settings).fit(X, y, devices=who)


def test_settings_of_methods_are_reached_from_outside():
    model = PersonalizedRegressor(method=Blend(budget=300))
    assert model.get_params()["method__budget"] == 300
    assert clone(model).method == Blend(budget=300)
    assert clone(model).set_params(method__budget=20).method == Blend(budget=20)
    assert model.method == Blend(budget=300)
    named = PersonalizedRegressor(method="paper").set_params(method__rounds=5)
    assert named.method == Paper(rounds=5)
    both = PersonalizedRegressor().set_params(method="kin", method__rounds=5)
    assert both.method == Kin(rounds=5)
    with pytest.raises(InputError, match="Blend has no setting 'rounds'"):
        PersonalizedRegressor().set_params(method__rounds=5)


@pytest.mark.filterwarnings("ignore::persfl.PersflWarning")
@pytest.mark.parametrize(
    ("start", "grid"),
    [
        ("blend", {"method": ["own", Paper(rounds=3, peers=2)]}),
        ("fedavg", {"method__rounds": [2, 20]}),
        (Paper(peers=2), {"method__rounds": [2, 4]}),
    ],
)
def test_a_search_over_methods_and_their_settings(rows, start, grid):
    X, y, who = rows
    table = pd.DataFrame(X, columns=["a", "b"]).assign(who=who)
    model = PersonalizedRegressor(method=start, device="who", holdout=0)
    cv = KFold(2, shuffle=True, random_state=0)
    search = GridSearchCV(model, grid, cv=cv, error_score="raise").fit(table, y)
    (name, values) = next(iter(grid.items()))
    assert search.best_params_[name] in values
    assert len({*search.cv_results_["mean_test_score"]}) == 2


@pytest.mark.filterwarnings("ignore::persfl.PersflWarning")
@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_of_the_list_can_be_fitted_and_kept(rows, name, tmp_path):
    X, y, who = rows
    few = {"rounds": 3, "budget": 10}
    pytest.importorskip(METHODS[name]().needs().package or "numpy")
    has = METHODS[name]().get_params()
    method = method_of(name, **{k: v for k, v in few.items() if k in has})
    model = PersonalizedRegressor(method=method).fit(X, y, devices=who)
    assert model.method_ == name
    assert model.worth_.fleet().devices == 10
    assert {"device", "peer"} <= set(model.helpers_)
    shown = info(model)
    named = {key: value for key, value, _ in shown["settings"]}
    assert named["method"] == name
    assert set(has) <= set(named)
    again = load_model(save_model(model, tmp_path / "run"))
    assert method_of(again.method) == method
    assert info(again) == shown
    np.testing.assert_array_equal(
        again.predict(X, devices=who), model.predict(X, devices=who)
    )


@pytest.mark.parametrize(
    ("settings", "ran"),
    [
        ({}, "blend"),
        ({"method": Paper(rounds=3)}, "paper"),
        ({"method": Kin(rounds=5)}, "kin"),
    ],
)
@pytest.mark.filterwarnings("ignore::persfl.PersflWarning")
def test_a_fit_says_what_ran(rows, settings, ran, tmp_path):
    X, y, who = rows
    model = PersonalizedRegressor(**settings, holdout=0).fit(X, y, devices=who)
    assert model.method_ == ran
    assert f"(method '{ran}'" in model.notes_[0]
    shown = info(model)
    assert shown["method"] == model.notes_[0]
    assert shown["method"] not in shown["notes"]
    named = {name: value for name, value, _ in shown["settings"]}
    assert named["method"] == ran
    assert ("rounds" in named) == (ran != "blend")
    assert ("budget" in named) == (ran == "blend")
    again = load_model(save_model(model, tmp_path / "run"))
    assert (again.method, again.method_, again.notes_) == (
        model.method,
        ran,
        model.notes_,
    )
    assert info(again) == shown
    json.dumps(shown)


def test_alone_and_as_rows_arrive(rows):
    X, y, who = rows
    alone = PersonalizedRegressor().fit(X, y, devices=[0] * len(X))
    assert (alone.method_, alone.notes_) == (
        "own",
        ["There is one device, so there was nobody to ask."],
    )
    online = PersonalizedClassifier(method=Paper(online_rounds=2)).partial_fit(
        X, y > 0, devices=who
    )
    assert online.method_ == "paper"
    assert (
        PersonalizedRegressor(method=Blend(budget=10))
        .partial_fit(X, y, devices=who)
        .method_
        == "blend"
    )


def test_what_models_are_made_of_in_numbers(rows):
    X, y, who = rows
    model = PersonalizedRegressor(holdout=0).fit(X, y, devices=who)
    made = info(model)["made_of"]
    shares = np.array(made["shares"])
    assert made["names"] == ["own rows", "fleet", "neighbours"]
    np.testing.assert_allclose(shares, model.made_of()[["own", "fleet", "neighbours"]])
    helpers = model.helpers_.set_index(["device", "peer"])["share"]
    assert any(made["near"])
    for i, near in enumerate(made["near"]):
        assert [share for _, share in near] == sorted(
            (share for _, share in near), reverse=True
        )
        assert sum(share for _, share in near) <= shares[i, 2] + 1e-9
        for peer, share in near:
            assert share == pytest.approx(helpers[(i, peer)] * shares[i, 2])
    assert (model.helpers_["adopted"] <= model.helpers_["asked"] + 1e-9).all()
    # the one round of this rule: what is neighbours' in a model is all adopted from them
    adopted = model.helpers_.groupby("device")["adopted"].sum()
    assert adopted.max() == pytest.approx(model.n_rounds_)
    assert (
        info(
            PersonalizedRegressor(method=Paper(rounds=3), holdout=0).fit(
                X, y, devices=who
            )
        )["made_of"]
        is None
    )
    model.fallback_[4] = True
    assert model.made_of().loc[4, ["own", "fleet", "neighbours"]].tolist() == [
        1.0,
        0.0,
        0.0,
    ]
    assert info(model)["made_of"]["near"][4] == []


def test_kin_is_shown_by_name():
    devices = clustered_regression(
        n=24, clusters=2, rows=20, features=3, noise=0.1, seed=0
    )
    model = PersonalizedRegressor(method="kin", holdout=0).fit(
        devices.X, devices.y, devices=devices.owner
    )
    made = info(model)["made_of"]
    assert made["names"] == ["own rows", "kin"]
    found = model.made_of()
    assert found["found"].any()
    for i in np.flatnonzero(found["found"]):
        assert {devices.clusters[peer] for peer, _ in made["near"][i]} == {
            devices.clusters[i]
        }
        assert {round(share, 9) for _, share in made["near"][i]} == {
            round(1 / (1 + found["kin"][i]), 9)
        }


def test_the_command_line_goes_by_the_same_rule(rows, tmp_path, capsys):
    X, y, who = rows
    pd.DataFrame(X, columns=["a", "b"]).assign(who=who, y=y).to_csv(
        tmp_path / "t.csv", index=False
    )
    words = [
        "fit",
        str(tmp_path / "t.csv"),
        "--device",
        "who",
        "--label",
        "y",
        "--holdout",
        "0",
    ]
    for more, ran in (
        ([], "blend"),
        (["--method", "paper", "--rounds", "2"], "paper"),
        (["--method", "kin", "--set", "rounds=2", "--set", "peers=3"], "kin"),
        (["--method", "fedavg", "--set", "rounds=2"], "fedavg"),
        (["--rounds", "2"], None),
    ):
        out = tmp_path / f"run-{ran}"
        assert cli.main([*words, *more, "--out", str(out)]) == (0 if ran else 2)
        said = capsys.readouterr()
        if ran:
            assert f"(method '{ran}'" in said.out
            assert load_model(out).method_ == ran
        else:
            assert "rounds is a setting of method 'paper'" in said.err
            assert "--method paper" in said.err


@dataclass(frozen=True)
class Mine(Own):
    """A method of a person's own, with settings that no other has."""

    name: ClassVar[str] = "mine"
    weight: float = setting(0.5, "a number")
    words: object = setting("one", "a text")


@dataclass(frozen=True)
class Twice(Own):
    name: ClassVar[str] = "twice"
    units: str = setting("mine", "a name that fits have too")


def test_a_method_of_ones_own_is_kept_if_it_can_be_found_again(
    rows, tmp_path, monkeypatch
):
    X, y, who = rows
    model = PersonalizedRegressor(method=Mine(weight=0.1), holdout=0)
    model.fit(X, y, devices=who)
    # what could not be read again is not written
    with pytest.raises(InputError, match=r"METHODS\[Mine.name\] = Mine"):
        save_model(model, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with monkeypatch.context() as listed:
        listed.setitem(METHODS, Mine.name, Mine)
        again = load_model(save_model(model, tmp_path / "run"))
        assert again.method == Mine(weight=0.1)
        listed.setitem(METHODS, Twice.name, Twice)
        for method in (Mine(words=("a",)), Twice()):
            other = PersonalizedRegressor(method=method, holdout=0)
            other.fit(X, y, devices=who)
            with pytest.raises(InputError, match="a run folder"):
                save_model(other, tmp_path / "other")
            assert not (tmp_path / "other").exists()
    with pytest.raises(InputError, match="'mine', which is not in persfl.methods"):
        load_model(tmp_path / "run")
    named_alike = replace(model.fitted_, method=type("Other", (Own,), {})())
    with pytest.raises(InputError, match="'own' is not that of Other"):
        save_model(named_alike, tmp_path / "alike")


def test_settings_from_a_grid_of_numpy_are_kept(rows, tmp_path):
    X, y, who = rows
    method = FedAvg(rounds=np.int64(3), share=np.float32(0.5))
    model = PersonalizedRegressor(method=method, holdout=0, n_jobs=np.int64(1))
    again = load_model(save_model(model.fit(X, y, devices=who), tmp_path / "run"))
    assert again.method == FedAvg(rounds=3, share=0.5)
    assert type(again.method.rounds) is int
