"""Protection on the command line: what is said before anything leaves, and after."""

import json

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pyarrow")

from persfl.cli import main
from persfl.commands.privacy_lines import costs, spent, spent_lines
from persfl.federation.budget_book import ProtectedAnswer
from persfl.federation.ledger import Entry, Ledger
from persfl.federation.privacy_settings import PrivacySettings
from persfl.privacy import Accountant, PrivacyBudget
from persfl.sources import clustered_regression

RANGES = {"a": [-4, 4], "b": [-4, 4]}
PRIVATE = PrivacySettings(epsilon=3.0, ranges=RANGES, label=(-9.0, 9.0))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("private")
    devices = clustered_regression(n=6, clusters=1, rows=12, features=2, seed=0)
    frame = pd.DataFrame(devices.X, columns=["a", "b"])
    frame = frame.assign(y=devices.y, who=np.repeat(list("uvwxyz"), 12))
    frame.to_csv(place / "rows.csv", index=False)
    words = ["fit", str(place / "rows.csv"), "--device", "who", "--label", "y"]
    more = ["--epsilon", "2", "--trials", "1", "--no-report"]
    assert main([*words, *more, "--out", str(place / "run")]) == 0
    return place


def test_epsilon_makes_a_private_run(run, capsys):
    from persfl.runs import load_model

    method = load_model(run / "run").fitted_.method
    assert (method.name, method.epsilon, method.base) == ("private", 2.0, "blend")


def test_leaks_shows_what_protection_leaves(run, capsys):
    words = ["leaks", str(run / "run"), "--table", str(run / "rows.csv"), "--json"]
    assert main(words) == 0
    found = {one["epsilon"]: one for one in json.loads(capsys.readouterr().out)}
    assert sorted(found) == [0.0, 1.0, 2.0, 3.0, 8.0]
    assert found[0.0]["found"] == 1.0
    assert found[0.0]["moments"] == 0.0
    assert 0.01 <= found[1.0]["worst"] < found[8.0]["worst"] < 1.0
    assert main(words[:-1]) == 0
    assert "rows found" in capsys.readouterr().out


def test_a_method_that_cannot_be_protected_is_named(run, capsys):
    words = ["fit", str(run / "rows.csv"), "--device", "who", "--label", "y"]
    code = main(
        [*words, "--method", "ditto", "--epsilon", "1", "--out", str(run / "x")]
    )
    assert code == 2
    assert "the method of a private run must be one of" in capsys.readouterr().err


def test_costs_are_said_before_anything_leaves():
    account = Accountant(PRIVATE.budget)
    text = costs(PRIVATE, ["a", "b"], account)
    assert "epsilon 3, delta 1e-05" in text
    assert "costs 90 % of the budget, once" in text
    assert "Left: 20 noised answers" in text
    assert "20 rounds fit" in text
    assert "Units of other models cost 10 % of the budget, once" in text
    late = account.after(0.5 * PRIVATE.budget.whole)
    assert "does not fit any more" in costs(PRIVATE, ["a", "b"], late)
    assert "no range of 'c'" in costs(PRIVATE, ["a", "b", "c"], account)
    assert "drown" in costs(PRIVATE, [f"x{k}" for k in range(30)], account)


def test_a_ledger_shows_noise_and_what_is_left():
    ledger = Ledger()
    assert "off" in spent_lines(spent(None, ledger))
    ledger.write([Entry("r", 0, "answer", "ann", "d1", numbers=3)])
    answer = ProtectedAnswer("r", "gradient", "ann", PRIVATE.noise)
    ledger.protected.pay("d2", answer, PRIVATE.budget, b"told")
    told = spent(PRIVATE, ledger)
    assert told["answers_left"] == 19
    assert told["answers"][0]["asker"] == "ann"
    assert told["answers"][0]["noise"] == PRIVATE.noise
    assert 0 < told["spent"] < 3
    text = spent_lines(told)
    assert "19 noised answers are left" in text
    assert "1 answers left without protection" in text
    assert "was on for 1 answers" in spent_lines(spent(None, ledger))


def test_a_smaller_budget_than_was_spent_is_spent():
    account = Accountant(PrivacyBudget(epsilon=1.0), PRIVATE.budget.whole)
    assert account.left == 0
    assert account.answers(1e6) == 0
    assert account.epsilon == pytest.approx(3.0)
