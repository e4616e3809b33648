"""Which method a fit goes by, and where it is said."""

import json

import numpy as np
import pandas as pd
import pytest

from persfl import (
    Linear,
    PersonalizedClassifier,
    PersonalizedRegressor,
    TopK,
    Tree,
    cli,
)
from persfl.errors import InputError
from persfl.fitting import FitSettings
from persfl.fitting.method_choice import METHODS, method_of
from persfl.learners import MLP
from persfl.report import info
from persfl.runs import load_model, save_model
from persfl.sources import clustered_regression


@pytest.fixture(scope="module")
def rows():
    devices = clustered_regression(
        n=10, clusters=2, rows=8, features=2, noise=0.2, seed=0
    )
    return devices.X, devices.y, devices.owner


def test_auto_is_blend_unless_the_loop_is_meant():
    for base in (None, Linear(), Tree(2), MLP((2,))):
        assert method_of(PersonalizedRegressor(base)).name == "blend"
        assert method_of(PersonalizedRegressor(base), online=True).name == "blend"
    for same in (
        {"units": "shared"},
        {"budget": 40},
        {"ordered": True},
        {"holdout": 0},
        {"fallback": True},
        {"public": 10},
    ):
        assert method_of(PersonalizedRegressor(**same)).name == "blend", same
    for loop in (
        {"peers": 5},
        {"rounds": 5},
        {"step_size": 0.1},
        {"adopter": TopK(2)},
        {"compute": "cpu"},
        {"units": "raw"},
    ):
        found = method_of(PersonalizedRegressor(**loop))
        assert found == ("paper", f"{next(iter(loop))} belongs to it")
        with pytest.raises(InputError, match=r"belongs to method='paper'.*Leave"):
            FitSettings(method="blend", **loop).check(3)
    assert (
        method_of(PersonalizedRegressor(rounds=5, peers=2, units="raw")).why
        == "peers, rounds and units belong to it"
    )
    assert method_of(PersonalizedRegressor(online_rounds=3), online=True) == (
        "paper",
        "online_rounds belongs to it",
    )
    assert method_of(PersonalizedRegressor(online_rounds=3)).name == "blend"
    assert [
        method_of(PersonalizedRegressor(method=name, rounds=5)).name
        for name in METHODS[1:]
    ] == [*METHODS[1:]]
    with pytest.raises(
        InputError, match="rounds belongs to method='paper', budget to 'blend'"
    ):
        method_of(PersonalizedRegressor(rounds=5, budget=40))
    with pytest.raises(
        InputError, match="method must be one of 'auto', 'blend', 'paper', 'kin'"
    ):
        method_of(PersonalizedRegressor(method="best"))


def test_the_docstring_names_what_auto_goes_by():
    """Every setting that makes "auto" another method is named there, and nothing else is said
    to.
    """
    text = " ".join(str(PersonalizedRegressor.__doc__).split())
    said = text.split('method : "auto": ')[1].split('"paper". `method_`')[0]
    changes = {
        "peers": 2,
        "rounds": 2,
        "step_size": 0.1,
        "adopter": TopK(2),
        "compute": "cpu",
        "units": "raw",
    }
    for name, value in changes.items():
        assert method_of(PersonalizedRegressor(**{name: value})).name == "paper"
        assert name in said
    assert "online_rounds" in said
    assert "network" not in said


@pytest.mark.parametrize(
    ("settings", "ran"),
    [({}, "blend"), ({"rounds": 3}, "paper"), ({"method": "kin", "rounds": 5}, "kin")],
)
@pytest.mark.filterwarnings("ignore::persfl.PersflWarning")
def test_a_fit_says_what_ran(rows, settings, ran, tmp_path):
    X, y, who = rows
    model = PersonalizedRegressor(**settings, holdout=0).fit(X, y, devices=who)
    assert model.method_ == ran
    assert f"(method '{ran}'" in model.notes_[0]
    assert ("since rounds belongs to it" in model.notes_[0]) == (ran == "paper")
    shown = info(model)
    assert shown["method"] == model.notes_[0]
    assert shown["method"] not in shown["notes"]
    named = {name: value for name, value, _ in shown["settings"]}
    assert named["method"] == (ran if "method" in settings else f"auto: {ran}")
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
    online = PersonalizedClassifier(online_rounds=2).partial_fit(X, y > 0, devices=who)
    assert online.method_ == "paper"
    assert "since online_rounds belongs to it" in online.notes_[0]
    assert (
        PersonalizedRegressor(budget=10).partial_fit(X, y, devices=who).method_
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
    assert (
        1
        < model.helpers_.groupby("device")["adopted"].sum().max()
        <= model.n_rounds_ + 1e-9
    )
    assert (
        info(PersonalizedRegressor(rounds=3, holdout=0).fit(X, y, devices=who))[
            "made_of"
        ]
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
        (["--rounds", "2"], "paper"),
        (["--method", "blend", "--rounds", "2"], None),
    ):
        out = tmp_path / f"run-{ran}"
        assert cli.main([*words, *more, "--out", str(out)]) == (0 if ran else 2)
        said = capsys.readouterr()
        if ran:
            assert f"(method '{ran}'" in said.out
            assert load_model(out).method_ == ran
        else:
            assert "rounds belongs to method='paper'" in said.err
