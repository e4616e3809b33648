"""Predictions for new rows: joined again, left out, or refused in a sentence."""

import numpy as np
import pytest
from fitted_runs import fit, predicted, rows


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("front")
    assert fit(folder, rows()) == 0
    return folder / "run"


def test_predictions_can_be_joined(run, tmp_path):
    new = rows(seed=1).sample(frac=1.0, random_state=0)
    found = predicted(run, new, tmp_path, "--only")
    assert list(found.columns) == ["row", "who", "prediction"]
    assert found["row"].tolist() == list(range(1, len(new) + 1))
    assert found["who"].tolist() == new["who"].tolist()
    kept = predicted(run, new, tmp_path, "--keep", "y,a")
    assert list(kept.columns) == ["row", "who", "y", "a", "prediction"]
    np.testing.assert_allclose(kept["y"], new["y"])
    usual = predicted(run, new[["a", "who", "y", "b"]], tmp_path)
    assert list(usual.columns) == ["row", "a", "who", "y", "b", "prediction"]
    np.testing.assert_array_equal(usual["prediction"], found["prediction"])
    assert predicted(run, new, tmp_path, "--keep", "z") == 2
    assert predicted(run, new, tmp_path, "--keep", "a", "--only") == 2


def test_names_that_are_taken_are_not_written_over(tmp_path):
    table = rows().rename(columns={"a": "row", "b": "prediction"})
    assert fit(tmp_path, table) == 0
    found = predicted(tmp_path / "run", table, tmp_path)
    assert list(found.columns) == [
        "row_2",
        "who",
        "row",
        "prediction",
        "y",
        "prediction_2",
    ]
    np.testing.assert_allclose(found["row"], table["row"])


def test_new_devices_get_the_model_for_all(run, tmp_path, capsys):
    new = rows(seed=1).assign(who=lambda t: t["who"].replace("d0", "stranger"))
    found = predicted(run, new, tmp_path)
    assert found["prediction"].notna().all()
    assert (
        "6 rows of 1 device not there when fitting ('stranger')"
        in capsys.readouterr().err
    )
    skipped = predicted(run, new, tmp_path, "--unseen", "skip")
    assert skipped["prediction"].isna().sum() == 6
    assert (
        "6 rows without a prediction: devices that were not there when fitting"
        in capsys.readouterr().err
    )
    known = new["who"].to_numpy() != "stranger"
    np.testing.assert_allclose(skipped["prediction"][known], found["prediction"][known])
    assert predicted(run, new, tmp_path, "--unseen", "error") == 2
    assert (
        "--unseen skip, or predict them by one model for all: --unseen pooled"
        in capsys.readouterr().err
    )


def test_a_run_without_a_model_for_newcomers_says_what_can_be_done(tmp_path, capsys):
    assert fit(tmp_path, rows(), "--unseen", "error") == 0
    new = rows().assign(who="stranger")
    assert predicted(tmp_path / "run", new, tmp_path) == 2
    assert "--unseen skip, or fit again with their rows" in capsys.readouterr().err
    assert predicted(tmp_path / "run", new, tmp_path, "--unseen", "pooled") == 2
    assert (
        "no model for newcomers. Leave them without a prediction: --unseen skip"
        in capsys.readouterr().err
    )
    assert (
        predicted(tmp_path / "run", new, tmp_path, "--unseen", "skip")["prediction"]
        .isna()
        .all()
    )


def test_missing_values_can_be_left_without_a_prediction(run, tmp_path, capsys):
    new = rows(seed=1)
    whole = predicted(run, new, tmp_path)
    new.loc[2, "a"], new.loc[4, "b"], new.loc[7, "who"] = np.nan, np.inf, None
    for gone in (new.assign(b=rows(seed=1)["b"]), new.assign(a=rows(seed=1)["a"])):
        assert predicted(run, gone.fillna({"who": "d1"}), tmp_path) == 2
    assert predicted(run, rows().assign(a=np.nan), tmp_path) == 2
    assert "--missing skip" in capsys.readouterr().err
    found = predicted(run, new, tmp_path, "--missing", "skip")
    assert found.index[found["prediction"].isna()].tolist() == [2, 4, 7]
    rest = found["prediction"].notna()
    np.testing.assert_allclose(found["prediction"][rest], whole["prediction"][rest])
    assert (
        "3 rows without a prediction: values missing or infinite."
        in capsys.readouterr().err
    )


def test_a_run_that_imputes_fills_them_in(tmp_path):
    table = rows()
    table.loc[3, "a"] = np.nan
    assert fit(tmp_path, table, "--impute") == 0
    assert predicted(tmp_path / "run", table, tmp_path)["prediction"].notna().all()


def test_gaps_are_filled_with_means_of_the_fit_on_request(run, tmp_path, capsys):
    new = rows(seed=1)
    means = new.assign(a=rows()["a"].mean())
    gone = new.assign(a=np.nan)
    assert predicted(run, gone, tmp_path) == 2
    assert "--impute, of fit or of predict" in capsys.readouterr().err
    found = predicted(run, gone, tmp_path, "--impute")
    np.testing.assert_allclose(
        found["prediction"], predicted(run, means, tmp_path)["prediction"]
    )
    assert found["a"].isna().all()  # the table's own columns stay as they are
    gone.loc[2, "who"] = None
    skip = ("--impute", "--missing", "skip")
    assert predicted(run, gone, tmp_path, *skip)["prediction"].isna().sum() == 1


def test_gaps_in_categories_get_the_most_frequent_one(tmp_path):
    table = rows().assign(kind=["x", "y", "y"] * 12)
    assert fit(tmp_path, table) == 0
    run = tmp_path / "run"
    found = predicted(run, table.assign(kind=None), tmp_path, "--impute")
    usual = predicted(run, table.assign(kind="y"), tmp_path)
    np.testing.assert_array_equal(found["prediction"], usual["prediction"])


def test_a_run_without_means_says_how_to_get_them(tmp_path, capsys):
    raw = ("--units", "raw", "--unseen", "error")
    assert fit(tmp_path, rows(), *raw) == 0
    gone = rows().assign(a=np.nan)
    assert predicted(tmp_path / "run", gone, tmp_path, "--impute") == 2
    assert "no column means to fill gaps with. Fit again" in capsys.readouterr().err


def test_chances_of_classes_where_rows_are_left_out(tmp_path, capsys):
    table = rows().assign(y=lambda t: np.where(t["y"] > 5, "hi", "lo"))
    assert fit(tmp_path, table) == 0
    table.loc[1, "a"] = np.nan
    skip = ("--missing", "skip", "--only")
    found = predicted(tmp_path / "run", table, tmp_path, *skip)
    assert list(found.columns) == ["row", "who", "prediction", "chance_hi", "chance_lo"]
    assert found.isna().sum().tolist() == [0, 0, 1, 1, 1]
