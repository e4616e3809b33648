"""The command that a report advises makes the models that it speaks of."""

import contextlib
import io
import shlex
from html import escape

import numpy as np
import pandas as pd
import pytest
import sklearn

from persfl import Linear, PersonalizedRegressor
from persfl.cli import main
from persfl.commands.option_tables import FIT
from persfl.commands.options import defaults
from persfl.evaluation.advice import METHODS_OF
from persfl.methods import Paper
from persfl.report.next_command import USUAL, next_command, next_line
from persfl.runs.model_reader import load_model
from persfl.runs.run_folder import Folder


@pytest.fixture(scope="module")
def alike(tmp_path_factory):
    """A run in which one model for all wins, since devices are all alike; and what it printed."""
    folder = tmp_path_factory.mktemp("alike")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 4))
    y = X.sum(axis=1) + rng.normal(size=160)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(
        who=np.repeat(np.arange(20), 8), y=y, extra=1.5 * y
    )
    rows = folder / "all alike.csv"
    frame.to_csv(rows, index=False)
    words = "--device who --label y --drop extra --seed 3 --method paper --rounds 2"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main(["fit", str(rows), *words.split(), "--out", str(folder / "run")])
    return folder, printed.getvalue()


def test_usual_values_are_those_of_the_command():
    usual = defaults(FIT)
    assert {name: usual[name] for name in USUAL} == USUAL


def test_the_advised_command_is_printed_and_on_the_page(alike):
    folder, out = alike
    assert "A simple way does better than personalizing: one model for all;" in out
    assert "one model for all (lowest)" in out
    line = next(line for line in out.splitlines() if line.startswith("  persfl fit"))
    assert line.strip() == next_command(
        Folder.open(folder / "run").spec, "pooled", str(folder / "run")
    )
    page = (folder / "run" / "report.html").read_text(encoding="utf-8")
    assert f'id="how"><code>{escape(line.strip())}</code>' in page


def test_no_command_of_a_foreign_run_runs_its_code(alike):
    spec = dict(Folder.open(alike[0] / "run").spec)
    assert next_command(spec, "pooled", "run")
    assert next_command(spec | {"model": "run/evil.py:make"}, "pooled", "run") == ""


@pytest.mark.parametrize("use", METHODS_OF)
def test_the_advised_command_makes_the_models_that_were_judged(alike, use):
    folder, _ = alike
    run = folder / "run"
    out = folder / use
    words = shlex.split(next_command(Folder.open(run).spec, use, str(run)))[1:]
    assert main([*words[:-1], str(out), "--no-report", "--force"]) == 0
    judged = load_model(run).worth_.error(use)
    made = load_model(out).worth_.error("personal")
    np.testing.assert_allclose(made, judged, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:On the rows held back")
@pytest.mark.parametrize("use", ["own", "centred"])
def test_in_python_a_line_makes_the_models_that_were_judged(use):
    draw = np.random.default_rng(0)
    who = np.repeat(np.arange(6), 8)
    X = draw.normal(size=(48, 2))
    y = draw.poisson(np.exp(1.0 + 0.2 * who + 0.3 * X[:, 0]))
    counts = Linear("poisson", intercept=True)
    model = PersonalizedRegressor(counts, method=Paper(rounds=1), random_state=0)
    judged = model.fit(X, y, devices=who).worth_.error(use)
    made = eval(next_line(use), {"sklearn": sklearn, "model": model})
    errors = made.fit(X, y, devices=who).worth_.error("personal")
    np.testing.assert_allclose(errors, judged, rtol=1e-12)


def test_where_no_command_can_say_it_there_is_none():
    spec = {"table": "t.csv", "device": "who", "label": "y", "features": ["a"]}
    assert next_command(spec, "own", "run").endswith("--method own --out run-own")
    assert next_command(spec | {"features": ["a,b"]}, "own", "run") == ""
    assert next_command(spec | {"federated": True}, "own", "run") == ""
    assert next_command({"device": "who", "label": "y"}, "own", "run") == ""
    odd = next_command(spec | {"table": "$(rm) '.csv"}, "own", "run")
    assert shlex.split(odd)[2] == "$(rm) '.csv"
