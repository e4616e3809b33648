"""A node predicts with the model that it keeps at home, and trusts nothing in its folder."""

import os

import numpy as np
import pandas as pd
import pytest

from persfl.cli import main
from persfl.federation.federation_folder import init
from persfl.federation.model_store import Shelf, StoredModel
from persfl.seeds import stream
from persfl.types import Data
from persfl.wire.codec import pack
from persfl.wire.terms import Terms

TERMS = {
    "columns": ("dose", "age"),
    "mean": np.array([1.0, 40.0]),
    "scale": np.array([2.0, 10.0]),
}


@pytest.fixture
def node(tmp_path):
    return init(tmp_path / "fed", ["north"]).path / "north"


def kept(node, terms, model):
    Shelf(node / "models").put("run", StoredModel(3, model, terms))


def predicted(node, table, tmp_path, *more):
    path, out = tmp_path / "new.csv", tmp_path / "out.csv"
    table.to_csv(path, index=False)
    status = main(["predict", str(node), str(path), "--out", str(out), *more])
    return pd.read_csv(out) if status == 0 else status


def test_rows_are_predicted_in_the_labels_own_units(node, tmp_path):
    terms = Terms(**TERMS, label_mean=100.0, label_scale=5.0)
    kept(node, terms, np.array([2.0, -1.0, 0.5]))
    table = pd.DataFrame({"who": ["a", "b"], "age": [50.0, 40.0], "dose": [3.0, 1.0]})
    found = predicted(node, table, tmp_path)
    assert list(found.columns) == ["row", "who", "age", "dose", "prediction"]
    assert found["prediction"].tolist() == [100 + 5 * 1.5, 100 + 5 * 0.5]
    only = predicted(node, table, tmp_path, "--only")
    assert list(only.columns) == ["row", "prediction"]


def test_classes_have_chances_and_gaps_the_means_of_the_run(node, tmp_path):
    kept(node, Terms(**TERMS, classes=2), np.array([1.0, 0.0, 0.0]))
    table = pd.DataFrame({"dose": [5.0, None], "age": [1.0, 2.0]})
    assert predicted(node, table, tmp_path) == 2
    found = predicted(node, table, tmp_path, "--impute")
    assert found["prediction"].tolist() == [1, 0]
    assert found["chance_1"].tolist() == [pytest.approx(1 / (1 + np.exp(-2))), 0.5]


def test_a_mix_of_trees_is_predicted_as_it_stands(node, tmp_path):
    terms = Terms(model="forest", columns=("a",), settings={"n_estimators": 2})
    learner = terms.learner()
    X = np.arange(8.0)[:, None]
    model = learner.fit(Data(X, X[:, 0] ** 2), stream(0, "forest"))
    kept(node, terms, [(0.25, model), (0.75, model)])
    found = predicted(node, pd.DataFrame({"a": X[:, 0]}), tmp_path)
    np.testing.assert_allclose(found["prediction"], learner.predict(model, X))


def test_what_is_missing_is_said(node, tmp_path, capsys):
    table = pd.DataFrame({"dose": [1.0]})
    assert predicted(node, table, tmp_path) == 2
    assert "no model here yet. Take part in a run" in capsys.readouterr().err
    kept(node, Terms(**TERMS), np.zeros(3))
    assert predicted(node, table, tmp_path) == 2
    assert "'new.csv' has no column 'age'" in capsys.readouterr().err


def test_a_folder_cannot_choose_what_is_imported(node, tmp_path, capsys):
    made = "antigravity:fly_to_the_moon"
    terms = Terms(model="network", columns=("a",), settings={"make": made})
    folder = node / "models"
    folder.mkdir()
    (folder / "0.model").write_bytes(pack(terms.to_wire()[0] | {"round": 1}, {}))
    table = pd.DataFrame({"a": [1.0]})
    assert predicted(node, table, tmp_path) == 2
    assert f"If you trust that function, name it: --module {made}" in (
        capsys.readouterr().err
    )


def test_forged_models_end_in_a_sentence(node, tmp_path, capsys):
    kept(node, Terms(**TERMS), np.zeros(3))
    path = next((node / "models").iterdir())
    whole = path.read_bytes()
    table = pd.DataFrame({"dose": [1.0], "age": [2.0]})
    for body in (b"", whole[:-9], whole.replace(b'"round"', b'"rotten"')):
        path.write_bytes(body)
        assert predicted(node, table, tmp_path) == 2
        assert "does not hold what persfl writes there" in capsys.readouterr().err
    path.unlink()
    os.symlink(tmp_path / "new.csv", path)
    assert predicted(node, table, tmp_path) == 2
    assert "link" in capsys.readouterr().err
