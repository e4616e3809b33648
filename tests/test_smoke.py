"""A little of everything a person uses, for `tools/minimum` and for other versions of Python:
`pytest -m smoke`.
"""

import importlib.util
from datetime import date

import numpy as np
import pandas as pd
import pytest

from persfl import PersonalizedClassifier, PersonalizedRegressor
from persfl.cli import main
from persfl.datasets import load_flights, load_housing
from persfl.errors import InputError
from persfl.methods import Paper
from persfl.runs import load_model, save_model

pytestmark = pytest.mark.smoke

MODELS = ("linear", "tree", "forest", "boosting", "mlp")
WORDS = ("--device", "city", "--label", "log_price")


@pytest.fixture
def prices():
    """Eight months of each of five cities, with a text column that has gaps."""
    table = load_housing().frame
    table = (
        table[table["city"] < "Bb"]
        .groupby("city")
        .sample(8, random_state=0)
        .reset_index(drop=True)
    )
    table["season"] = np.where(table["month"] < 7, "first", "second")
    table.loc[::5, "season"] = None
    table.loc[::7, "sales"] = np.nan
    return table


@pytest.fixture
def rows(prices, tmp_path):
    path = tmp_path / "rows.csv"
    prices.to_csv(path, index=False)
    return str(path)


def test_commands(rows, tmp_path, capsys):
    run, found = tmp_path / "run", tmp_path / "found.csv"
    assert (
        main(["fit", rows, *WORDS, "--impute", "--trials", "1", "--out", str(run)]) == 0
    )
    assert main(["predict", str(run), rows, "--out", str(found)]) == 0
    assert pd.read_csv(found)["prediction"].between(8, 16).all()
    assert main(["helpers", str(run), "--device", "Abilene"]) == 0
    assert main(["report", str(run)]) == 0
    assert (run / "report.html").stat().st_size > 10_000
    assert "own rows only" in capsys.readouterr().out


def test_compare(rows, capsys):
    words = ["--impute", "--methods", "own,pooled,fine-tuned,blend", "--seeds", "2"]
    assert main(["compare", rows, *WORDS, *words]) == 0
    assert "blend" in capsys.readouterr().out


@pytest.mark.parametrize("model", MODELS)
def test_named_models(model, rows, tmp_path):
    if model == "mlp" and not importlib.util.find_spec("torch"):
        pytest.skip("needs torch")
    out, budget = (
        tmp_path / "run",
        ["--method", "paper", "--rounds", "1", "--peers", "2"],
    )
    words = ["--model", model, *budget, "--impute", "--holdout", "0"]
    assert main(["fit", rows, *WORDS, *words, "--out", str(out)]) == 0
    assert main(["predict", str(out), rows, "--out", str(tmp_path / "found.csv")]) == 0


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA])
@pytest.mark.parametrize("kind", ["object", "string", "category"])
def test_categories_with_gaps(prices, kind, gap):
    season = prices.pop("season").astype(object)
    prices["season"] = season.where(season.notna(), gap).astype(kind)
    prices["sales"] = prices["sales"].fillna(1.0)
    X, y = prices.drop(columns="log_price"), prices["log_price"]
    model = PersonalizedRegressor(
        device="city", impute=True, method=Paper(rounds=5), holdout=0
    ).fit(X, y)
    assert [name for name in model.coefficients() if "=" in name] == [
        "season=first",
        "season=second",
    ]
    filled = X.assign(season=season.fillna("first"))
    np.testing.assert_array_equal(model.predict(X), model.predict(filled))
    with pytest.raises(InputError, match="8 values are missing"):
        PersonalizedRegressor(device="city").fit(X, y)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([None], "has no values at all"),
        ([1, "a"], "mixes numbers and texts"),
        ([np.int64(1), "a", None], "mixes numbers and texts"),
        ([[1], None], r"must hold numbers or texts. Got \[1\]"),
        ([1j, None], "must hold numbers or texts. Got 1j"),
        ([date(2026, 1, 1), None], "holds dates or times"),
    ],
)
def test_objects_that_are_neither(values, sentence):
    many = [values[i % len(values)] for i in range(12)]
    table = pd.DataFrame(
        {"who": list("abcdef") * 2, "x": pd.Series(many, dtype=object)}
    )
    with pytest.raises(InputError, match=sentence):
        PersonalizedRegressor(device="who", impute=True).fit(table, np.arange(12.0))


def test_round_trip(prices, tmp_path):
    known = prices.drop(columns="season").dropna()
    X, y, city = (
        known.drop(columns=["city", "log_price"]),
        known["log_price"],
        known["city"],
    )
    model = PersonalizedRegressor().fit(X, y, devices=city)
    again = load_model(
        save_model(model, tmp_path / "run", device="city", label="log_price")
    )
    np.testing.assert_array_equal(
        again.predict(X, devices=city), model.predict(X, devices=city)
    )
    pd.testing.assert_frame_equal(again.helpers_, model.helpers_)
    pd.testing.assert_frame_equal(again.made_of(), model.made_of())


def test_classes(tmp_path):
    flights = load_flights()
    some = flights.devices < "BN"
    X, y, where = flights.data[some], flights.target[some], flights.devices[some]
    model = PersonalizedClassifier(method=Paper(rounds=10), trials=1).fit(
        X, y, devices=where
    )
    again = load_model(save_model(model, tmp_path / "run"))
    chances = model.predict_proba(X, devices=where)
    np.testing.assert_array_equal(again.predict_proba(X, devices=where), chances)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert model.score(X, y, devices=where) > 0.5
