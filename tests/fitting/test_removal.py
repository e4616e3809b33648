"""Taking helpers out: named ones matter where there are kinds, and it is said where none do."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from persfl import PersonalizedRegressor
from persfl.cli import main
from persfl.errors import InputError
from persfl.evaluation.dependence import Removal, Rise
from persfl.evaluation.few_false import few_false
from persfl.evaluation.row_order import RowOrder
from persfl.fitting.quick_removal import _rises, quick_removal
from persfl.fitting.setup import FitSettings, Setup
from persfl.methods import Blend
from persfl.report import info
from persfl.runs import load_model, save_model
from persfl.runs.removal_words import removal_from
from persfl.sources import clustered_regression


@pytest.fixture(scope="module")
def kinds():
    """Three devices of each of eight kinds: the other two are all that helps."""
    return clustered_regression(
        n=24, clusters=8, rows=10, features=6, noise=0.3, seed=0
    )


@pytest.fixture(scope="module")
def model(kinds):
    found = PersonalizedRegressor(method=Blend(trees=False), holdout=0)
    return found.fit(kinds.X, kinds.y, devices=kinds.owner)


def test_named_helpers_matter_more_than_random_ones(kinds, model):
    found = model.removal(kinds.X, kinds.y, kinds.owner, many=2, targets=6)
    assert found.many == 2
    assert found.refits == 13
    assert list(found.table) == ["device", "all", "named", "random"]
    assert found.named.rise > 0.5 + max(found.random.rise, 0.0)


def test_where_the_named_matter_it_is_said_by_how_much():
    rises = Rise(0.17, 0.12, 0.22), Rise(0.01, -0.02, 0.04), Rise(0.16, 0.1, 0.2)
    found = Removal(*rises, 10, 25, 12)
    assert found.sentence.startswith(
        "Without the 10 devices that seem most like each, errors rise by 17 % (12 % to 22 %);"
    )


def test_the_same_seed_takes_out_the_same(kinds, model):
    rows = kinds.X, kinds.y, kinds.owner
    first, again = (model.removal(*rows, many=2, targets=2) for _ in range(2))
    assert first.sentence == again.sentence


def test_large_rises_are_factors():
    assert str(Rise(9.5, 0.5, 19.0)) == "a factor of 10.5 (1.5 to 20.0)"
    assert str(Rise(0.5, 0.1, 1.0)) == "50 % (10 % to 100 %)"


def test_where_nobody_matters_more_it_is_said():
    rise = Rise(0.01, -0.02, 0.04)
    found = Removal(rise, rise, Rise(0.0, -0.03, 0.03), 10, 25, 12)
    said = "The 10 devices that seem most like each matter little more than any other 10, if at all"
    assert found.sentence.startswith(said)
    assert "where others help, it is the fleet as a whole" in found.sentence
    wide = found._replace(difference=Rise(0.08, -0.07, 0.31))
    assert "cannot be told" in wide.sentence
    # clear, and too little for anybody to see
    hair = found._replace(difference=Rise(0.002, 0.001, 0.003))
    assert hair.sentence.startswith(said)


def test_errors_that_fall_without_the_named_are_said_to_fall():
    fall = Rise(-0.07, -0.12, -0.02)
    found = Removal(fall, Rise(0.0, -0.05, 0.01), fall, 10, 11, 51)
    assert "Without them errors fall by 7 % (2 % to 12 %)" in found.sentence
    assert "without random ones they change by 0 % (" in found.sentence


def test_it_takes_out_by_the_clock_of_the_fit():
    rows = clustered_regression(n=12, clusters=2, rows=8, features=2, seed=0)
    frame = pd.DataFrame(rows.X, columns=["a", "b"])
    frame = frame.assign(y=rows.y, who=rows.owner, when=np.arange(len(rows.y)) % 8)
    mixed = frame.sample(frac=1.0, random_state=0)
    told = []
    for table in (frame, mixed):
        model = PersonalizedRegressor(method=Blend(trees=False), time="when")
        asked = table[["a", "b", "when"]], table["y"], table["who"]
        model.fit(*asked)
        told += [model.removal(*asked, many=2, targets=2)]
        told += [model.contributions(*asked, refits=2)]
    pd.testing.assert_frame_equal(told[0].table, told[2].table)
    pd.testing.assert_frame_equal(told[1].table, told[3].table)


def test_it_takes_devices_and_rows(kinds, model):
    few = kinds.owner < 3
    small = PersonalizedRegressor(holdout=0).fit(
        kinds.X[few], kinds.y[few], devices=kinds.owner[few]
    )
    with pytest.raises(InputError, match="at least 4 devices"):
        small.removal(kinds.X[few], kinds.y[few], kinds.owner[few])


def test_the_command_takes_the_table(kinds, model, tmp_path, capsys):
    frame = pd.DataFrame(kinds.X, columns=list("abcdef"))
    frame = frame.assign(who=kinds.owner, y=kinds.y)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    fitted = PersonalizedRegressor(method=Blend(trees=False), holdout=0)
    fitted.fit(frame[list("abcdef")], frame["y"], devices=frame["who"])
    run = str(save_model(fitted, tmp_path / "run", device="who"))
    assert main(["helpers", run, "--prove"]) != 0
    assert "--table" in capsys.readouterr().err
    words = ["helpers", run, "--prove", "--table", str(tmp_path / "rows.csv")]
    assert main([*words, "--targets", "3", "--without", "2"]) == 0
    said = capsys.readouterr().out
    assert "errors rise by" in said
    assert "7 fits." in said
    words = ["helpers", run, "--contributions", "--table", str(tmp_path / "rows.csv")]
    assert main([*words, "--refits", "2"]) == 0
    assert "2 of 24 devices" in capsys.readouterr().out
    assert main(["report", run]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert '"missed":{"sentence"' in page
    kept = tmp_path / "run" / "contributions.json"
    kept.write_text(kept.read_text().replace("rises", "risen"))
    assert main(["report", run]) != 0


def test_a_few_refits_tell_what_named_devices_are_worth(tmp_path):
    some = clustered_regression(
        n=24, clusters=3, rows=10, features=5, noise=0.1, seed=0
    )
    model = PersonalizedRegressor(method=Blend(trees=False), holdout=0)
    fitted = model.fit(some.X, some.y, devices=some.owner).fitted_
    setup = Setup(fitted.learner, FitSettings(), fitted.schema, Blend())
    found = quick_removal(setup, some, RowOrder(), RowOrder())
    assert found.many == 7
    assert found.matters
    assert found.named.rise > 0.5 + found.random.rise
    assert list(found.table) == ["device", "all", "gone", "without"]
    assert fitted.depends is None  # a fit without trees cannot afford it
    fitted = replace(fitted, depends=found)
    run = save_model(fitted, tmp_path / "run")
    assert load_model(run).fitted_.depends == found._replace(table=None)
    assert info(fitted)["depends"]["sentence"] == found.sentence


def test_a_fit_with_trees_asks(kinds, monkeypatch):
    monkeypatch.setattr("persfl.fitting.quick_removal.REFITS", 2)
    model = PersonalizedRegressor(trials=1).fit(kinds.X, kinds.y, devices=kinds.owner)
    assert model.fitted_.depends.refits == 3


def test_who_is_missed_most(kinds, model):
    found = model.contributions(kinds.X, kinds.y, kinds.owner, refits=3)
    assert (found.refits, found.devices, len(found.table)) == (4, 24, 3)
    assert found.table["rise"].is_monotonic_decreasing
    assert "3 of 24 devices were left out in turn" in found.sentence.lower()
    nobody = found._replace(table=found.table.assign(missed=False))
    assert nobody.sentence.startswith("Nobody is clearly missed")
    one = found._replace(table=found.table.assign(missed=[False, True, False]))
    assert f"missed by the others, {one.table['device'][1]} most" in one.sentence


def test_luck_is_not_said_to_be_missed():
    assert not few_false(np.linspace(0.02, 0.98, 46)).any()
    few = np.append(np.full(5, 0.001), np.linspace(0.3, 0.98, 41))
    assert few_false(few).sum() == 5


@pytest.mark.parametrize(
    "words",
    [
        {"else": 1},
        {"named": [0.3, 0.0, 0.2]},
        {"named": [0.1, 0.0]},
        {"many": 0},
        {"targets": True},
    ],
)
def test_forged_rises_are_refused(words):
    rise = [0.1, 0.0, 0.2]
    good = dict.fromkeys(("named", "random", "difference"), rise)
    good |= {"many": 10, "refits": 21, "targets": 46}
    assert removal_from(good).targets == 46
    with pytest.raises(InputError):
        removal_from(good | words)


def test_levels_of_devices_and_refits_are_no_evidence():
    """Errors that rise with the refit or the device alone say nothing of names."""
    random = np.random.default_rng(0)
    overlap = random.random((12, 40))
    levels = random.normal(size=(12, 1)) + random.normal(size=(1, 40))
    _, _, nothing = _rises(levels, overlap, 0.2)
    assert abs(nothing.rise) < 1e-9
    named, strangers, beyond = _rises(0.3 * overlap, overlap, 0.2)
    assert np.log1p([named.rise, strangers.rise]) == pytest.approx([0.3, 0.06])
    assert np.log1p(beyond.rise) == pytest.approx(0.24)
