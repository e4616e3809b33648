"""`persfl export`: files that other tools read, or one sentence."""

from dataclasses import replace

import joblib
import numpy as np
import pytest
from fitted_runs import fit, rows

from persfl.cli import main
from persfl.evaluation.error_table import error_lines
from persfl.report.model_card import model_card
from persfl.runs import load_model


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    assert fit(folder, rows()) == 0
    return folder / "run"


def test_a_graph_of_the_fleet_and_of_one_device(run, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    out = tmp_path / "fleet.onnx"
    assert main(["export", str(run), "--onnx", str(out)]) == 0
    new = rows(seed=1)
    given = {"device": new["who"].to_numpy(dtype=object)}
    given |= {name: new[name].to_numpy() for name in "ab"}
    (found,) = runtime.InferenceSession(str(out)).run(None, given)
    said = load_model(run).predict(new[["a", "b"]], devices=new["who"])
    np.testing.assert_allclose(found, said, atol=1e-9)
    assert main(["export", str(run), "--onnx", str(out), "--device", "d1"]) == 0
    own = new["who"] == "d1"
    given = {name: new.loc[own, name].to_numpy() for name in "ab"}
    (found,) = runtime.InferenceSession(str(out)).run(None, given)
    np.testing.assert_allclose(found, said[own], atol=1e-9)
    assert b"d2" not in out.read_bytes()


def test_a_plain_estimator(run, tmp_path):
    out = tmp_path / "one.joblib"
    assert main(["export", str(run), "--sklearn", str(out), "--device", "d1"]) == 0
    new = rows(seed=1).query("who == 'd1'")
    said = load_model(run).predict(new[["a", "b"]], devices=new["who"])
    np.testing.assert_allclose(joblib.load(out).predict(new[["a", "b"]]), said)


def test_a_card_says_what_it_is_about(run, tmp_path):
    out = tmp_path / "card.md"
    assert main(["export", str(run), "--card", str(out)]) == 0
    card = out.read_text()
    assert card.startswith("# Models of `y`, one for each of 6 devices")
    for words in ("`who`", "36 in all", "`a`, `b`", "Method: paper", "## Privacy"):
        assert words in card
    worth = load_model(run).worth_
    for row in error_lines(worth.summary()):
        assert "| " + " | ".join(row) + " |" in card
    assert (
        "Errors are the mean squared error as a share of the label's variance." in card
    )
    assert (
        "learned without 25 % of the rows; these models learned from all rows." in card
    )


def test_names_in_a_card_are_no_markup(run):
    """A device's name in a note was a picture from elsewhere, one in a column a heading."""
    fitted = load_model(run).fitted_
    odd = "![x](http://a.example/x.png)<img src=y>`\r\r# b"
    notes = (*fitted.notes, f"Device {odd} is away.")
    card = model_card(replace(fitted, notes=notes), {"device": odd, "label": odd})
    assert "\r" not in card
    assert card.count("`") % 2 == 1  # that of the note is escaped
    note = card[card.index("Device !") :]
    assert note.startswith("Device !\\[x](http://a.example/x.png)\\<img src=y>")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say what to make: --onnx FILE"),
        (["--sklearn", "x.joblib"], "Say which: --device ID"),
        (["--onnx", "x.txt"], "--onnx must end in .onnx"),
        (["--sklearn", "x.joblib", "--device", "no"], "there is no device 'no'"),
    ],
)
def test_what_cannot_be_exported_is_said(run, capsys, words, said):
    assert main(["export", str(run), *words]) == 2
    assert said in capsys.readouterr().err
