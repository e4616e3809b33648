"""benchmarks/foreign_numbers.py: which rows are judged, what the rule is told, what is printed."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    names = ("rivals", "tasks", "measuring", "foreign_tables", "foreign_numbers")
    yield [importlib.import_module(name) for name in names][-1]
    for name in names:
        sys.modules.pop(name)


@pytest.fixture
def panel(bench, monkeypatch):
    """Ten firms, whose sales of twelve years rise."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "firm": np.repeat(list("abcdefghij"), 12),
            "year": np.tile(np.arange(12), 10),
            "staff": draw.normal(size=120),
            "copy": 0.0,
        }
    )
    frame["sales"] = frame["year"] + frame["staff"] + 0.1 * draw.normal(size=120)
    frame["copy"] = frame["sales"]
    read = lambda name: frame.sample(frac=1.0, random_state=0)  # noqa: E731
    monkeypatch.setattr(sys.modules["foreign_tables"], "read", read)
    return bench.NumberTable(
        "some/firms", "firm", "sales", time="year", only=("staff",)
    )


def test_features_are_those_named_and_the_time_comes_in_order(bench, panel):
    rows, when = bench.rows_of(panel, 0)
    assert rows.X.shape == (120, 2)
    assert all(np.diff(when[rows.g == i]).min() > 0 for i in range(10))
    assert np.array_equal(rows.X[:, 0], when)


@pytest.mark.parametrize(("told", "moves"), [("ordered", True), ("column", False)])
def test_a_column_told_as_the_time_is_no_feature(bench, panel, told, moves):
    rows, when = bench.rows_of(panel, 0)
    order = np.argsort(rows.g, kind="stable")
    learn = bench.Rows(rows.X[order], rows.y[order], rows.g[order])
    said = bench.blend(learn, 0, told, when[order])
    now, later = np.zeros((1, 2)), np.array([[40.0, 0.0]])
    at = np.zeros(1, dtype=int)
    assert (abs(said(later, at) - said(now, at)) > 1).item() is moves


def test_few_rows_are_learned_from_and_all_others_judged(bench):
    draw = np.random.default_rng(0)
    g = np.repeat(np.arange(9), [3, 9, 20, 8, 7, 30, 12, 9, 6])
    rows = bench.Rows(draw.normal(size=(len(g), 1)), g + 0.0, g)
    some = bench.few_rows(rows, 0)
    away = bench.judged_but_few(some, 0)
    assert np.bincount(some.g[~away]).tolist() == [6] * 6
    assert set(some.g[away]) == set(range(6))
    assert set(some.y).isdisjoint({0.0, 8.0})


def test_tables_are_dealt_once_and_known_ones_are_for_development(bench):
    every = [*bench.IN_TIME, *bench.AT_RANDOM]
    assert len({table.name for table in every}) == len(every)
    assert all(table.half == "development" for table in every if table.seen)
    judging = [table for table in every if table.half == "judging"]
    assert len(every) / 3 < len(judging) < len(every) / 2 + 5


def test_a_line_is_against_the_best_in_hindsight(bench):
    table = bench.AT_RANDOM[0]
    jobs = [bench.Job(table, "random", seed, "rivals") for seed in (0, 1)]
    parts = {"rivals": "", "rule": ""}
    kept = bench.Kept(None, parts)
    for job, error in zip(jobs, (1.0, 3.0), strict=True):
        others = dict.fromkeys(bench.USED, 4.0) | {"dummies": error}
        kept.add("rivals", job.key, others)
        kept.add("rule", job.key, {"rule": 2 * error})
    line = bench.Line(table.name, jobs, "", kept)
    assert line.best == "dummies"
    assert line.against() == pytest.approx(np.log(2))
    assert line.against("own ridge", "own mean") == pytest.approx(0.0)
    text = "\n".join(bench.section_text("random", [line]))
    assert "mean regret +0.693" in text
    assert "best of all on 0" in text
