"""Protection on the command line: what is said before anything leaves, and after."""

import json
import re

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pyarrow")

from persfl import Data
from persfl.cli import main
from persfl.commands.leak_lines import leak_lines
from persfl.commands.privacy_lines import costs, spent, spent_lines
from persfl.errors import InputError
from persfl.federation.budget_book import ProtectedAnswer
from persfl.federation.ledger import Entry, Ledger
from persfl.federation.privacy_settings import PrivacySettings
from persfl.privacy import Accountant, PrivacyBudget
from persfl.runs.leak_words import SHARES, leaks_from
from persfl.runs.run_folder import Folder
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
    assert 0.0 == found[0.0]["row"] < found[8.0]["row"]
    assert main(words[:-1]) == 0
    assert "rows found" in capsys.readouterr().out
    folder = Folder.open(run / "run")
    assert [
        one["epsilon"] for one in folder.read_json("leaks.json")["budgets"]
    ] == list(found)
    assert folder.strangers() == []


def test_leaks_stand_in_the_report(run, capsys):
    folder = run / "run"
    page = folder / "report.html"
    words = ["leaks", str(folder), "--table", str(run / "rows.csv"), "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["report", str(folder)]) == 0
    told = re.search(r'"leaks":(\{.*?\]\})', page.read_text())[1]
    assert json.loads(told) == {"delta": 1e-5, "budgets": found}
    kept = folder / "leaks.json"
    whole = kept.read_text()
    kept.write_text(whole.replace("1.0", "7.0"))
    assert main(["report", str(folder)]) == 2  # not what the index says
    kept.write_text(whole)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"found": 1.5}, "from 0 to 1"),
        ({"found": "all"}, "numbers"),
        ({"epsilon": None}, "numbers"),
        ({"more": 1.0}, "must be by_model"),
        ({"worst": True}, "numbers"),
    ],
)
def test_leaks_of_a_foreign_folder_are_checked(change, says):
    one = dict.fromkeys(("epsilon", "moments", "row", *SHARES), 0.5)
    assert leaks_from({"delta": 0.1, "budgets": [one]})["budgets"] == [one]
    with pytest.raises(InputError, match=says):
        leaks_from({"delta": 0.1, "budgets": [one | change]})
    for words in ([], {"delta": 0.1}, {"delta": 0.1, "budgets": []}):
        with pytest.raises(InputError):
            leaks_from(words)


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
    assert "; 19 noised answers left." in text
    assert "1 answers left without protection" in text
    assert "was on for 1 answers" in spent_lines(spent(None, ledger))


def test_a_smaller_budget_than_was_spent_is_spent():
    account = Accountant(PrivacyBudget(epsilon=1.0), PRIVATE.budget.whole)
    assert account.left == 0
    assert account.answers(1e6) == 0
    assert account.epsilon == pytest.approx(3.0)


ROWS = np.random.default_rng(0).normal(size=(30, 4))


def test_a_check_says_what_is_known_now_and_what_attacks_find():
    data = Data(ROWS[:, :3], ROWS @ [1.0, 2.0, 3.0, 0.1])
    ledger = Ledger()
    text = leak_lines(data, ledger, None)
    assert "Now: nothing has left" in text
    assert "5 answers of a linear regression determine its sums" in text
    assert "With epsilon" not in text
    for k in range(2):
        ledger.write([Entry("r", 0, "answer", "ann", f"d{k}", numbers=4)])
    text = leak_lines(data, ledger, None)
    assert "2 different answers left" in text
    assert "8 of 14 sums" in text
    ledger.write([Entry("r", 0, "parts", "ann", "d9", numbers=90)])
    assert "determine all 14 sums" in leak_lines(data, ledger, None)


@pytest.mark.parametrize("kind", ["bends", "places", "sums", "weigh"])
def test_a_check_forgets_no_kind_of_answer(kind):
    """After a blend of classes it said that nothing had left."""
    ledger = Ledger()
    ledger.write([Entry("r", 0, kind, "ann", "d", numbers=1200)])
    text = leak_lines(Data(ROWS[:, :3], ROWS[:, 3]), ledger, None)
    assert "nothing has left" not in text
    assert "1 different answer left. 1,200 numbers that rows may have" in text
    ledger.write([Entry("r", 0, "answer", "ann", "d1", numbers=4)])
    text = leak_lines(Data(ROWS[:, :3], ROWS[:, 3]), ledger, None)
    assert "If 1 of them were steps" in text


def test_a_check_says_that_a_rare_level_tells_its_row():
    """Sums of products with a column that is 1 in one row are that row, and its label."""
    rare = (np.arange(30) == 17) + 0.0
    X = np.column_stack([ROWS[:, :2], rare])
    sums = X.T @ np.column_stack([X, ROWS[:, 3]])
    assert np.allclose(sums[2], [*X[17], ROWS[17, 3]])
    lone = "1 row can be read off the sums of one answer"
    assert lone in leak_lines(Data(X, ROWS[:, 3]), Ledger(), None)
    X[18, 2] = 1.0
    assert lone not in leak_lines(Data(X, ROWS[:, 3]), Ledger(), None)


def test_a_check_of_a_protected_device_attacks_what_it_would_tell():
    data = Data(ROWS[:, :3], ROWS @ [1.0, 2.0, 3.0, 0.1])
    ledger = Ledger()
    assert "With epsilon 3, all of it spent" in leak_lines(data, ledger, PRIVATE)
    answer = ProtectedAnswer("r", "sums", "", PRIVATE.noise_of_sums)
    ledger.protected.pay("d", answer, PRIVATE.budget, b"told")
    assert "Now: Answers have noise: with 1 % false alarms" in leak_lines(
        data, ledger, PRIVATE
    )
    few = leak_lines(data.take(np.arange(2)), ledger, PRIVATE)
    assert "Too few rows to attack" in few
