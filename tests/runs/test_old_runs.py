"""Run folders that the version before methods were parts has written are read as they were meant.

`old_runs` was made by the commit 2abd345, whose estimators had `rounds`, `peers`, ... as
parameters of their own; `told.json` is what its estimators said.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from persfl import TopK
from persfl.methods import Blend, Kin, Paper
from persfl.report import info
from persfl.runs import load_model

FOLDER = Path(__file__).parent / "old_runs"
TOLD = json.loads((FOLDER / "told.json").read_text())
METHODS = {
    "blend": Blend(budget=40),
    "paper": Paper(rounds=5, peers=3, step_size=0.05, adopter=TopK(2)),
    "kin": Kin(rounds=20),
    "tree": Paper(rounds=2, peers=2),
    "classes": Blend(budget=8),
}


@pytest.mark.parametrize("name", list(METHODS))
def test_a_run_of_the_version_before(name):
    pytest.importorskip("pyarrow")
    table = pd.read_csv(FOLDER / "rows.csv")[:12]
    model, told = load_model(FOLDER / name), TOLD[name]
    assert model.method == METHODS[name]
    assert (model.method_, model.n_rounds_) == (told["method"], told["rounds"])
    assert (len(model.notes_), len(model.helpers_)) == (told["notes"], told["helpers"])
    if model.device is not None:
        found = model.predict(table[["a", "b", "kind", "who"]])
    else:
        answer = model.predict_proba if name == "classes" else model.predict
        found = answer(table[["a", "b", "kind"]], devices=table["who"])
    np.testing.assert_allclose(found, told["predictions"], rtol=1e-12)
    json.dumps(info(model))


def test_what_was_set_is_set_again():
    blend, paper, kin = (
        load_model(FOLDER / name) for name in ("blend", "paper", "kin")
    )
    assert (blend.device, paper.fallback) == ("who", True)
    assert (kin.holdout, kin.unseen) == (0, "error")
    assert load_model(FOLDER / "classes").ordered is True
