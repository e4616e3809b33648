"""Methods on equal terms: made-up devices, dealing, cells that are kept, standings, and the
commands.
"""

import importlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from persfl.cli import main
from persfl.devices import Devices, offsets
from persfl.errors import InputError
from persfl.evaluation.rivals import own_fits
from persfl.lab import comparison_tables, kept_cells
from persfl.lab.comparison_cells import Cell, equal_rounds, measurements
from persfl.lab.comparison_sets import DataSet, Table
from persfl.lab.comparison_specs import QUICK_DEVICES, load_comparison
from persfl.lab.counted_questions import AskingCost, CountedTask
from persfl.lab.kept_cells import read_cells, run_cells
from persfl.lab.line_up import NUMBERS_ONLY, line_up
from persfl.lab.row_splits import RowSplit, few_rows, held_back, next_rows
from persfl.lab.setting_choice import EqualTerms, candidates, choose, linear_learner
from persfl.lab.standings import (
    CHOSEN,
    by_set,
    interval,
    mean_regret,
    standings,
    with_equal_questions,
)
from persfl.learners import Linear
from persfl.learners.responses import respond_each
from persfl.methods import FedAvg, LocalTask, Mixed, Own, Paper, Pooled
from persfl.sources import (
    clustered_regression,
    read_archive,
    shifted_digits,
    varied_regression,
)
from persfl.units import Units

ROOT = Path(__file__).parents[2]
FAST = ("own", "pooled", "paper")
# which 20 rounds, or 12 rows of each device, do not lead far
SLOW = ("mocha", "clove", "fedfomo", "per-fedavg", "boosting", "all-for-one", "dac")
SOME = ("own", "pooled", "ditto", "blend", "dummies", "mixed", "boosting", "fedper")


def numbered(counts, classes=0):
    """Devices whose only feature is the number of the row."""
    many = int(np.sum(counts))
    y = np.arange(many) % classes if classes else np.arange(many)
    return Devices(
        np.arange(many, dtype=float)[:, None],
        y.astype(float),
        np.ones(many),
        offsets(counts),
        range(len(counts)),
    )


def made(errors):
    picked = {m: {"equal": next(iter(e.values()))} for m, e in errors.items()}
    return {
        "picked": picked,
        "set": "a",
        "seed": 0,
        "total": 1.0,
        "errors": errors,
        "seconds": {m: dict.fromkeys(e, 0.1) for m, e in errors.items()},
    }


# Made-up devices


def test_every_digit_is_dealt_once_and_changed_by_its_kind():
    images = load_digits().data
    plain = {tuple(image) for image in images}
    rotated = shifted_digits("rotated", 12, seed=3)
    assert len(rotated.X) == len(images)
    turned = [
        np.rot90(x.reshape(8, 8), -rotated.clusters[i]).ravel()
        for x, i in zip(rotated.X, rotated.owner, strict=True)
    ]
    assert sorted(map(tuple, turned)) == sorted(map(tuple, images))
    sensed = shifted_digits("feature-shifted", 12, seed=3)
    for i in (0, 1):
        shown = sensed[i].X if i == 0 else 16 - sensed[i].X
        assert {tuple(x) for x in shown} <= plain
    assert (sensed[2].X.reshape(-1, 8, 8)[:, 2] == 0).all()


def test_relabelled_kinds_disagree_about_four_digits():
    labels = {
        tuple(image): label
        for image, label in zip(load_digits().data, load_digits().target, strict=True)
    }
    devices = shifted_digits("relabelled", 8, seed=1)
    wrong = [
        {
            labels[tuple(x)]
            for x, y in zip(devices[i].X, devices[i].y, strict=True)
            if labels[tuple(x)] != y
        }
        for i in range(8)
    ]
    assert [len(some) for some in wrong] == [0, 4, 4, 4] * 2
    assert wrong[1] == wrong[5]


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: shifted_digits("label-shifted", 9, seed=seed),
        lambda seed: varied_regression(seed=seed),
    ],
)
def test_the_same_seed_makes_the_same_devices(make):
    one, again, other = make(1), make(1), make(2)
    assert (one.X == again.X).all()
    assert (one.y == again.y).all()
    assert one.X.shape != other.X.shape or (one.X != other.X).any()


def test_archives_are_checked(tmp_path):
    rows = {
        "X": np.ones((4, 2)),
        "y": np.array([0.5, 1, 2, 3]),
        "group": np.array([1, 0, 1, 0]),
    }
    np.savez(tmp_path / "a.npz", **rows)
    devices, classes = read_archive(tmp_path / "a.npz")
    assert (classes, devices.ids, devices.y.tolist()) == (0, [0, 1], [1, 3, 0.5, 2])
    np.savez(tmp_path / "b.npz", **rows | {"y": np.array([3, 3, 9, 3]), "task": "clf"})
    devices, classes = read_archive(tmp_path / "b.npz")
    assert (classes, devices.y.tolist()) == (2, [0, 0, 0, 1])
    wrong = {
        "y": np.ones(3),
        "group": np.array([{}], dtype=object),
        "X": np.full((4, 2), np.nan),
    }
    for key, value in wrong.items():
        np.savez(tmp_path / "c.npz", **rows | {key: value})
        with pytest.raises(InputError):
            read_archive(tmp_path / "c.npz")
    np.savez(tmp_path / "d.npz", X=rows["X"])
    (tmp_path / "e.npz").write_text("nothing of the kind")
    for name, said in {"d": "'y'", "e": "cannot be read", "f": "no file"}.items():
        with pytest.raises(InputError, match=said):
            read_archive(tmp_path / f"{name}.npz")


# Dealing


def test_rows_to_learn_from_and_to_judge_by_are_apart():
    devices = numbered([10, 7, 300, 30])
    learn, judge, *_ = few_rows(devices, 5, seed=0)
    assert learn.ids == judge.ids == [0, 2, 3]
    assert learn.counts.tolist() == [5, 5, 5]
    assert judge.counts.tolist() == [5, 200, 25]
    assert not set(learn.X.ravel()) & set(judge.X.ravel())
    for part in (learn, judge):
        assert (part.y == part.X.ravel()).all()
    other, *_ = few_rows(devices, 5, seed=1)
    assert (other.X != learn.X).any()
    with pytest.raises(InputError, match="at least two devices"):
        few_rows(devices, 40, seed=0)
    with pytest.raises(InputError, match="one row of every class"):
        few_rows(devices, 0, seed=0)


def test_one_row_of_every_class():
    learn, judge, *_ = few_rows(numbered([12, 8, 2], classes=4), 0, seed=0, classes=4)
    assert [sorted(learn[i].y) for i in range(2)] == [[0, 1, 2, 3]] * 2
    assert judge.counts.tolist() == [8, 4]
    learn, judge, *_ = held_back(
        numbered([12, 8, 2], classes=4), 0.25, seed=0, classes=4
    )
    assert (learn.ids, judge.counts.tolist()) == ([0, 1], [3, 2])


# Methods


@pytest.fixture(scope="module")
def tiny():
    rows = varied_regression(n=10, clusters=2, rows=20, features=2, seed=0)
    return Table("tiny", rows, 0, few=8)


@pytest.mark.parametrize("classes", [0, 3])
def test_every_method_learns_from_the_same_rows(classes):
    """Every one finds the one truth that all devices share, on a problem where own rows are too
    few for it.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10 * 40, 2))
    y = X @ [1.0, -1.0] + 0.5 * rng.normal(size=len(X))
    if classes:
        y = np.digitize(y, [0.0] if classes == 2 else [-0.8, 0.8]).astype(float)
    rows = Devices(X, y, np.ones(len(y)), offsets(np.full(10, 40)), range(10))
    # kin of classes is slow, and finds no group here
    methods = [name for name in line_up() if name != "kin" or not classes]
    if classes:  # some of each kind: all of them take long
        methods = [name for name in methods if name in SOME]
    found = measurements(
        Table("t", rows, classes, few=12).dealt(0), methods, rounds=15, budget=20
    )
    assert set(found["errors"]) == set(methods)
    guess = 1 - max(np.bincount(y.astype(int))) / len(y) if classes else 1.0
    for name, each in found["errors"].items():
        tried = found["picked"][name]["tried"]
        assert tried == {"blend": 1, "ditto": 4, "own": 4 if classes else 2}.get(
            name, tried
        )
        # a few rounds of some of them lead nowhere yet
        assert np.mean(each[CHOSEN]) < (1.1 if name in SLOW else 0.85) * guess, name
    assert found["rows"] == {"learn": 10 * 12, "judge": 10 * 28}


def test_errors_are_those_of_the_rows_to_judge_by(tiny):
    learn, judge, *_ = dealt = tiny.dealt(3)
    found = measurements(dealt, ["own"], seed=3)
    errors = found["errors"]["own"][CHOSEN]
    kind = found["picked"]["own"]["variant"]
    units = Units.of(learn, kind, labels=True)
    models = own_fits(Linear(intercept=True), units.inside(learn), 3)
    said = units.outside(
        respond_each(
            Linear(intercept=True),
            models,
            units.features(judge.X, judge.owner),
            judge.owner,
        ),
        judge.owner,
    )
    by_hand = [
        np.mean((said - judge.y)[judge.owner == i] ** 2) / learn.y.var()
        for i in range(len(judge))
    ]
    np.testing.assert_allclose(errors, by_hand, rtol=1e-6)


def test_steps_that_run_away_on_one_device_are_halved():
    rows = clustered_regression(n=12, clusters=1, rows=6, features=2, noise=0.1, seed=0)
    X = rows.X.copy()
    X[:6] *= 30  # own steps of the first device overshoot
    far = Devices(X, rows.y, rows.weight, rows.start, rows.ids)
    task = LocalTask(far, Linear(intercept=True))
    state = line_up()["ditto"]["pull 0.1"].set_params(rounds=30).run(task)
    assert np.abs(state.models).max() < 100
    assert state.pace.halved


# Settings that are chosen, questions that are counted


def test_settings_are_chosen_without_the_rows_that_judge(tiny):
    dealt = tiny.dealt(3)
    learner = linear_learner(0)
    some = candidates(line_up()["ditto"], classes=0)
    assert len(some) == 4
    found = choose(some, dealt, learner, EqualTerms(rounds=10, seed=3))
    other = Devices(
        dealt.judge.X, -dealt.judge.y, dealt.judge.weight, dealt.judge.start, range(10)
    )
    wrong = dealt._replace(judge=other)
    assert choose(some, wrong, learner, EqualTerms(rounds=10, seed=3)) == found
    assert found.tried == 4
    alone = choose(
        candidates(line_up()["blend"], classes=0), dealt, learner, EqualTerms()
    )
    assert (alone.tried, alone.candidate.variant) == (1, "both")


def test_questions_are_counted_as_a_federation_asks_them():
    rows = clustered_regression(n=10, clusters=1, rows=6, features=3, seed=0)
    cost = {}
    for method in (
        Own(),
        Pooled(),
        Mixed(),
        FedAvg(share=0.5, rounds=8),
        Paper(peers=3, rounds=4),
    ):
        task = CountedTask(rows, Linear(), 0)
        method.run(task)
        cost[method.name] = task.cost(method)
    assert cost["own"] == AskingCost(0.0, 0.0, 0.0, "nothing")
    assert cost["pooled"] == AskingCost(1.0, 2.0, 8 * 6 * 4 / 1000, "rows")
    assert cost["mixed"][::3] == (1.0, "sums")
    # half of the devices step from a vector of 3 numbers in every round
    assert cost["fedavg"] == AskingCost(4.0, 8.0, 4 * 2 * 3 * 8 / 1000, "answers")
    assert cost["paper"].questions == 12


def test_budgets_are_made_equal_by_rounds():
    assert equal_rounds(AskingCost(200.0, 400.0, 1.0, "answers"), 100, 100) == 50
    assert equal_rounds(AskingCost(1.0, 2.0, 1.0, "sums"), 100, 100) == 100
    rows = varied_regression(n=8, clusters=2, rows=20, features=2, seed=0)
    dealt = Table("t", rows, 0, few=8).dealt(0)
    how = {"rounds": 20, "questions": 20}
    found = measurements(dealt, ["fedavg", "paper", "pooled"], **how)["picked"]
    assert found["paper"]["questions"] > 100 > found["paper"]["equal_questions"]
    assert found["fedavg"]["questions"] < found["fedavg"]["equal_questions"]
    errors = measurements(dealt, ["pooled"], **how)["errors"]["pooled"][CHOSEN]
    assert found["pooled"]["equal"] == errors


def test_the_next_rows_judge():
    devices = numbered([40, 9, 30])
    learn, judge, _, order = next_rows(devices, 6, 4, 0.5)
    assert (learn.ids, order.ordered) == ([0, 2], True)
    for i in range(2):
        both = np.concatenate([learn[i].y, judge[i].y])
        np.testing.assert_array_equal(np.diff(both), 1.0)
    last = next_rows(devices, 6, 4, 0.999)
    assert last.judge.y.max() == 78
    spec = load_comparison("compare")
    ahead = {data.name: (data.few, data.ahead) for data in spec.sets if data.ahead}
    assert ahead == {"next 6 months": (24, 6), "next 12 months": (36, 12)}


def test_an_estimate_is_told_before_anything_is_done():
    spec = load_comparison("compare")
    assert "12 sets, 5 seeds" in spec.estimate(2)
    long, short = spec.estimate(1), spec.quick().estimate(2)
    assert "minutes on 1 core" in long
    assert " on 2 cores from nothing." in short
    assert {data.devices for data in spec.quick().sets} == {QUICK_DEVICES}
    few = spec.quick().sets[0].dealt(seed=1)
    assert len(few.learn) == QUICK_DEVICES


# Cells


def test_any_number_of_jobs_and_any_interruption_give_the_same(tiny, tmp_path):
    cells = [
        Cell(tiny, seed, ("own", "clustered", "fedavg", "paper"), rounds=10)
        for seed in (1, 2)
    ]
    path, told = tmp_path / "a.json", []
    alone = run_cells(cells[:1], path=path)
    both = run_cells(cells, path=path, done=lambda cell: told.append(cell["seed"]))
    assert told == [2]
    parallel = run_cells(cells, jobs=2)
    for one, other in zip(both, parallel, strict=True):
        assert one["errors"] == other["errors"]
    assert alone[0]["errors"] == both[0]["errors"]
    assert both[0]["errors"] != both[1]["errors"]
    assert (
        run_cells(
            cells, path=path, done=lambda cell: pytest.fail("nothing was left to do")
        )
        == both
    )


def test_what_was_cut_within_a_cell_goes_on_there(tiny, tmp_path, monkeypatch):
    cell = Cell(tiny, 1, ("own", "pooled", "fedavg"), rounds=5)
    path, begun, told = tmp_path / "a.json", [], []
    work = kept_cells.CellPart.work

    def cut(part):
        begun.append(part.method)
        if begun == ["own", "pooled", "fedavg"]:
            raise KeyboardInterrupt
        return work(part)

    monkeypatch.setattr(kept_cells.CellPart, "work", cut)
    # so that a file is written once, and at the end
    monkeypatch.setattr(kept_cells, "WRITING", 1e9)
    with pytest.raises(KeyboardInterrupt):
        run_cells([cell], path=path, done=told.append)
    assert list(read_cells(path)["cells"][0]["errors"]) == ["own", "pooled"]
    assert not told
    found = run_cells([cell], path=path, done=told.append)
    assert begun == ["own", "pooled", "fedavg", "fedavg"]
    assert told == found == read_cells(path)["cells"]
    at_once = run_cells([cell])[0]
    assert found[0]["errors"] == at_once["errors"]
    assert list(found[0]["errors"]) == list(cell.methods)


def test_results_of_other_code_or_settings_are_not_mixed(tiny, tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    run_cells([Cell(tiny, 1, FAST, rounds=3)], path=path)
    with pytest.raises(InputError, match="other rounds"):
        run_cells([Cell(tiny, 1, FAST, rounds=4)], path=path)
    monkeypatch.setattr(kept_cells, "code", lambda: "other")
    with pytest.raises(InputError, match="other code"):
        run_cells([Cell(tiny, 1, FAST, rounds=3)], path=path)
    for text in ("[]", "{", '{"cells": 3}'):
        path.write_text(text)
        with pytest.raises(InputError, match="results"):
            run_cells([Cell(tiny, 1, FAST, rounds=3)], path=path)


def test_other_rows_are_another_cell(tiny, tmp_path):
    path, told = tmp_path / "a.json", []
    for few in (8, 9):
        run_cells(
            [Cell(Table("tiny", tiny.devices, 0, few=few), 1, FAST, rounds=3)],
            path=path,
            done=lambda c: told.append(c["rows"]),
        )
    assert [rows["learn"] for rows in told] == [80, 90]


# Standings


def test_standings_by_hand():
    first = made(
        {
            "own": {"shared": [4.0, 4.0], "centred": [9.0, 9.0]},
            "pooled": {"shared": [2.0, 4.0]},
            "blend": {"both": [1.0, 4.0]},
        }
    )
    second = made(
        {
            "own": {"shared": [6.0, 2.0], "centred": [9.0, 9.0]},
            "pooled": {"shared": [2.0, 2.0]},
            "blend": {"both": [2.0, 1.0]},
        }
    )
    found = standings([first, second])
    assert (found["own"].variant, found["own"].error) == ("shared", 4.0)
    assert found["blend"].error == 2.0
    assert found["blend"].regret == pytest.approx(np.log(2.0 / 2.5))
    assert found["pooled"].regret == 0.0
    assert (found["pooled"].better, found["pooled"].worse) == (0.5, 0.0)
    d = np.mean([[2 / 3, 0.0], [0.0, 2 / 3]])
    assert found["pooled"].removed == pytest.approx(2 * d / (2 + d))
    # both seeds say the same
    assert found["pooled"].removed_low == pytest.approx(found["pooled"].removed_high)
    assert np.isnan(found["blend"].removed)
    swapped = standings([first, second], reference="pooled")
    assert swapped["pooled"].regret == pytest.approx(np.log(2.5 / 2.0))
    assert swapped["blend"].removed < 0


def test_intervals_cover_and_regrets_average():
    rng = np.random.default_rng(0)
    inside = [
        low <= 0 <= high
        for _, low, high in (interval(rng.normal(size=5)) for _ in range(2000))
    ]
    assert 0.93 < np.mean(inside) < 0.97
    cells = {
        name: [
            made({"own": {"shared": [a * u]}, "blend": {"both": [b * u]}})
            for u in (1.0, 3.0)
        ]
        for name, a, b in (("x", 2.0, 1.0), ("y", 1.0, 1.5))
    }
    middle, low, high = mean_regret(cells)
    assert middle == pytest.approx((np.log(0.5) + np.log(1.5)) / 2)
    assert low == pytest.approx(high)  # the seeds differ in level only
    text = comparison_tables.regret_table(cells).splitlines()
    assert text[0] == "| | x | y | mean regret |"
    assert text[2].startswith("| blend | **2.000** | 3.000 |")
    assert text[3].startswith("| own | 4.000 | **2.000** |")
    assert text[5] == "| *blend loses to* |  | own |  |"
    assert "**\N{MINUS SIGN}50 %" in comparison_tables.removed_table(cells)


def test_standings_with_equal_questions():
    cell = made({"own": {CHOSEN: [4.0]}, "blend": {CHOSEN: [2.0]}})
    cell["picked"]["own"]["equal"] = [1.0]
    assert standings([cell])["blend"].regret < 0
    assert standings(with_equal_questions([cell]))["blend"].regret > 0


def test_a_method_that_cannot_run_is_left_out_and_named(tiny):
    found = measurements(tiny.dealt(0), ["own", "clustered", "blend"], rounds=3)
    assert not found["failed"]
    one = DataSet(name="linear", few=3, devices=3)
    found = measurements(one.dealt(0), ["own", "clustered"], rounds=3)
    assert set(found["errors"]) == {"own"}
    said = comparison_tables.failures({"linear": [found]})
    assert said == "- linear, clustered: clusters must be at most 3 (3 devices). Got 4."


@pytest.mark.parametrize("name", ["mixed", "boosting"])
def test_settings_that_classes_do_not_have_are_not_tried_of_them(name):
    variants = line_up()[name]
    assert len(candidates(variants, classes=0)) == 4
    assert len(candidates(variants, classes=3)) == 2
    assert all(one in NUMBERS_ONLY for one in list(variants)[1:])


def test_nobody_errs():
    found = standings(
        [made({"own": {"shared": [0.0, 0.0]}, "blend": {"both": [0.0, 0.0]}})]
    )
    assert (found["blend"].regret, found["own"].removed) == (0.0, 0.0)


def test_results_go_into_the_page(tiny, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    script = importlib.import_module("draw_comparing")
    monkeypatch.setattr(script, "HERE", tmp_path)
    (tmp_path / "comparing.md").write_text((ROOT / "docs" / "comparing.md").read_text())
    cells = [
        Cell(Table(name, tiny.devices, 0, few=8), s, (*FAST, "blend"), 5, 20)
        for name in ("linear", "txhousing")
        for s in (7, 8)
    ]
    run_cells(cells[:2], path=tmp_path / "a.json")
    run_cells(cells[2:3], path=tmp_path / "b.json")  # elsewhere, and a seed is missing
    script.main([tmp_path / "a.json", tmp_path / "b.json"])
    text = (tmp_path / "comparing.md").read_text()
    assert "Seeds: txhousing 7, linear 7 to 8. A set with one seed has no" in text
    assert "Not measured yet" not in text
    regrets = (
        text.split("<!-- regrets -->")[1].split("<!-- end -->")[0].strip().splitlines()
    )
    assert regrets[0] == "| | txhousing | linear | mean regret |"
    assert len(regrets) == 2 + len(FAST) + 1 + 2
    assert (tmp_path / "comparing.png").stat().st_size > 1e4
    content = json.loads((tmp_path / "b.json").read_text())
    (tmp_path / "b.json").write_text(json.dumps(content | {"code": "other"}))
    with pytest.raises(SystemExit, match="results of other code"):
        script.main([tmp_path / "a.json", tmp_path / "b.json"])


# Commands


@pytest.fixture
def table(tmp_path):
    rows = varied_regression(n=8, clusters=2, rows=16, features=2, seed=0)
    frame = pd.DataFrame(rows.X, columns=["a", "b"]).assign(
        who=[f"d{i}" for i in rows.owner], y=rows.y
    )
    frame.assign(kind=np.where(frame["y"] > 0, "up", "down")).to_csv(
        tmp_path / "rows.csv", index=False
    )
    return tmp_path / "rows.csv"


def test_compare_over_seeds(table, tmp_path, capsys):
    words = [
        "compare",
        str(table),
        "--device",
        "who",
        "--label",
        "y",
        "--drop",
        "kind",
        "--methods",
        "own,pooled,blend",
    ]
    words += ["--seeds", "2", "--budget", "20", "--rounds", "5"]
    assert main([*words, "--out", str(tmp_path / "c.csv")]) == 0
    shown = capsys.readouterr().out
    assert (
        "8 devices, 96 rows to learn from and 32 others to judge by; 2 seeds" in shown
    )
    assert "removed by blend (95 % interval)" in shown
    found = pd.read_csv(tmp_path / "c.csv")
    assert found.columns.tolist() == ["seed", "device", "own", "pooled", "blend"]
    assert found["device"].tolist() == [f"d{i}" for i in range(8)] * 2
    assert (
        main(
            [
                *words,
                "--few",
                "6",
                "--reference",
                "own",
                "--out",
                str(tmp_path / "c.json"),
                "--json",
            ]
        )
        == 0
    )
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [one["method"] for one in last["methods"]] == ["own", "pooled", "blend"]
    assert last["methods"][0]["removed"] is None
    assert json.loads((tmp_path / "c.json").read_text())["cells"][0]["rows"] == {
        "learn": 48,
        "judge": 80,
    }


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ["--label", "y", "--drop", "kind", "--methods", "locl"],
            "method must be one of 'own'",
        ),
        (
            ["--label", "y", "--drop", "kind", "--seeds", "2", "--model", "tree"],
            "compare linear models",
        ),
        (["--label", "y", "--drop", "kind", "--few", "15"], "at least two devices"),
        (["--label", "kind", "--few", "-1"], "few must be at least 0"),
        (
            ["--label", "kind", "--seeds", "1", "--out", "x.txt"],
            "must end in .csv or .json",
        ),
    ],
)
def test_mistakes_get_a_sentence(table, words, answer, capsys):
    assert main(["compare", str(table), "--device", "who", *words]) == 2
    assert answer in capsys.readouterr().err


SPEC = """
title = "Mine"
seeds = 2
rounds = 4
budget = 20
methods = ["own", "pooled", "blend"]
[[set]]
name = "numbers"
file = "rows.csv"
device = "who"
label = "y"
features = ["a"]
squares = true
few = 6
[[set]]
name = "texts"
file = "rows.csv"
device = "who"
label = "kind"
features = ["a", "b"]
few = 6
[[set]]
name = "archive"
file = "rows.npz"
devices = 5
few = 6
"""


def test_a_spec_of_ones_own(table, tmp_path, capsys):
    (tmp_path / "mine.toml").write_text(SPEC)
    words = [
        "run",
        str(tmp_path / "mine.toml"),
        "--jobs",
        "1",
        "--seed",
        "40",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main([*words, "--data", str(tmp_path), "--numbers"]) == 0
    assert "left out: archive" in capsys.readouterr().out
    frame = pd.read_csv(table)
    np.savez(
        tmp_path / "rows.npz",
        X=frame[["a", "b"]],
        y=frame["y"],
        group=frame["who"].to_numpy(str),
    )
    assert main([*words, "--data", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "over 3 sets and 2 seeds from 40" in shown
    folder = tmp_path / "out" / "mine"
    results = json.loads((folder / "results.json").read_text())
    cells = by_set(results["cells"])
    assert sorted((cell["set"], cell["seed"]) for cell in results["cells"]) == [
        (name, seed) for name in ("archive", "numbers", "texts") for seed in (40, 41)
    ]
    assert (cells["texts"][0]["classes"], cells["numbers"][0]["classes"]) == (2, 0)
    assert [len(cell["devices"]) for cell in cells["archive"]] == [5, 5]
    assert cells["archive"][0]["devices"] != cells["archive"][1]["devices"]
    said = (folder / "page.md").read_text()
    assert said.startswith("# Mine")
    assert said.count("| archive |") == 4
    assert (folder / "figure.png").stat().st_size > 1e4
    assert (
        main(
            [
                *words,
                "--data",
                str(tmp_path),
                "--only",
                "archive",
                "--set",
                "methods=own,blend",
            ]
        )
        == 2
    )
    assert "other methods" in capsys.readouterr().err
    assert main([*words, "--only", "archive"]) == 2
    assert "--data" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "answer"),
    [
        ("rounds = 4", "round = 4", "unknown key 'round'. Known: about, budget"),
        ("rounds = 4", 'rounds = "4"', "rounds must be of type int"),
        ("seeds = 2", "seeds = 4000000000", "seeds must be at most 10000"),
        ("squares = true", "cubes = true", "unknown key 'cubes'"),
        ('file = "rows.npz"', 'file = "../rows.npz"', "in the folder of --data"),
        ('file = "rows.npz"', "", "name of a set without a file"),
        ('name = "texts"', 'name = "numbers"', "names of sets must differ"),
        ('"pooled"', '"poled"', "method must be one of"),
        ("few = 6", "rows = 6", "needs a name and few"),
        ('label = "kind"\n', "", "needs device and label"),
        ('label = "kind"', 'label = "knd"', "has no column 'knd'"),
    ],
)
def test_a_wrong_spec_gets_a_sentence(table, tmp_path, capsys, old, new, answer):
    (tmp_path / "mine.toml").write_text(SPEC.replace(old, new))
    words = [
        "--jobs",
        "1",
        "--runs",
        "1",
        "--data",
        str(tmp_path),
        "--out",
        str(tmp_path / "out"),
        "--numbers",
    ]
    assert main(["run", str(tmp_path / "mine.toml"), *words]) == 2
    assert answer in capsys.readouterr().err


def test_the_specs_sets_are_what_they_say():
    spec = load_comparison("compare")
    there, missing = spec.there(None)
    assert missing == ["chickweight", "household", "wisdm", "pb52"]
    assert set(spec.methods) <= set(line_up())
    for data in there.sets:
        learn, judge, classes, _ = data.dealt(0)
        assert len(learn) >= (30 if data.ahead else 40)
        numbers = ("txhousing", "linear", "next 6 months", "next 12 months")
        assert classes == (0 if data.name in numbers else 10)
        assert (learn.counts == data.few).all()
        assert (judge.counts >= 3).all()


def test_other_experiments_have_no_data_sets(capsys):
    assert main(["run", "fig5", "--only", "txhousing"]) == 2
    assert "--data and --only belong to specs that compare" in capsys.readouterr().err


def test_a_table_of_devices_can_be_dealt():
    dealt = Table("rows", numbered([8, 9]), 0, share=0.5).dealt(0)
    assert isinstance(dealt, RowSplit)
    assert DataSet(name="linear", few=3).settings["few"] == 3
    assert DataSet(name="x", few=1, file="x.csv").missing
    assert not Path("x.csv").exists()
