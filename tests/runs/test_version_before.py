"""Run folders that the version before wrote are read, and predict the same.

`version_before.zip` was made by commit 2abd345: fits of every family on 24 rows of three devices, a
run that was cut after three rounds, and what the models predicted.
"""

import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from persfl.runs import Folder, load_model

ARCHIVE = Path(__file__).parent / "version_before.zip"
NAMES = ("linear", "paper", "classes", "tree", "scaled", "forest", "mlp", "kinds")
ROWS = pd.DataFrame({"a": [0.13, 0.64, -0.54], "b": [-0.13, 0.1, 0.36], "kind": "z"})


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    place = tmp_path_factory.mktemp("before")
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(place)
    return place


@pytest.mark.parametrize("name", NAMES)
def test_models_of_the_version_before_predict_the_same(before, name):
    if name == "mlp":
        pytest.importorskip("torch")
    columns = ["a", "b", "kind"] if name == "kinds" else ["a", "b"]
    model = load_model(before / name)
    found = model.predict(ROWS[columns], devices=["p", "q", "r"])
    wanted = json.loads((before / "expected.json").read_text())[name]
    if isinstance(wanted[0], str):
        assert found.tolist() == wanted
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-8)


def test_a_run_of_the_version_before_is_where_it_was(before):
    folder = Folder.open(before / "cut")
    wanted = json.loads((before / "expected.json").read_text())["cut"]
    state = folder.last("final")
    assert [state.r, np.asarray(state.models).sum()] == pytest.approx(wanted[:2])
    assert len(folder.rounds()) == wanted[2]
    assert state.kept is not None
