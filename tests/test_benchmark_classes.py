"""benchmarks/foreign_classes.py: what its rivals say are chances, and rows are split as it says."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    names = (
        "rivals",
        "tasks",
        "measuring",
        "foreign_tables",
        "class_rivals",
        "foreign_classes",
    )
    yield [importlib.import_module(name) for name in names][-1]
    for name in names:
        sys.modules.pop(name)


@pytest.fixture
def rows(bench):
    draw = np.random.default_rng(0)
    g = np.repeat(np.arange(8), 25)
    X = draw.normal(size=(200, 2))
    y = (X[:, 0] + 1.5 * (g % 2) + 0.3 * draw.normal(size=200) > 0.7).astype(int)
    y[X[:, 1] > 1.5] = 2
    return bench.Rows(X, y, g)


def test_rows_of_rare_classes_are_ranked(bench):
    y = np.repeat([0, 1], [95, 5])
    rare = np.where(y, 0.02, 0.01)  # never the likeliest class, yet above all others
    told = bench.ranked(np.stack([1 - rare, rare], axis=1), y)
    assert told == {"share": 0.05, "auc": 1.0, "precision": 1.0}
    assert bench.ranked(np.full((100, 2), 0.5), y)["auc"] == 0.5
    assert bench.ranked(np.full((100, 2), 0.5), np.repeat([0, 1], 50)) == {}
    # four rows of a class are none to rank; then it is asked of the next one
    assert bench.ranked(np.full((100, 3), 0.3), np.repeat([0, 2], [96, 4])) == {}


@pytest.mark.parametrize(
    "name",
    [
        "own logistic",
        "dummies",
        "mixed, levels",
        "boosting, device",
        "forest",
        "neighbours",
    ],
)
def test_rivals_say_chances_and_learn(bench, rows, name):
    away = bench.judged_at_random(rows, 0)
    learn, judge = rows.at(~away), rows.at(away)
    said = bench.RIVALS[name](learn, 3)(judge.X, judge.g)
    np.testing.assert_allclose(said.sum(axis=1), 1.0)
    rates = bench.RIVALS["fleet rates"](learn, 3)(judge.X, judge.g)
    assert bench.log_loss(said, judge.y) < 0.9 * bench.log_loss(rates, judge.y)


def test_shrunk_rates_are_the_fleets_where_devices_are_alike(bench):
    draw = np.random.default_rng(1)
    g = np.repeat(np.arange(30), 4)
    rows = bench.Rows(np.zeros((120, 0)), (draw.random(120) < 0.3).astype(int), g)
    said = bench.RIVALS["shrunk rates"](rows, 2)(rows.X, g)
    assert np.abs(said - sys.modules["class_rivals"].base(rows, 2)).max() < 0.1


def test_every_device_keeps_a_row_to_learn_from(bench, rows):
    some = rows.at(np.r_[0, 25:28, 50:200])
    for away in (bench.judged_at_random(some, 0), bench.judged_last(some)):
        assert set(some.g[~away]) == set(some.g)
    last = bench.judged_last(some)
    assert last[1:4].tolist() == [False, False, True]
    assert last[some.g == 7].tolist() == 18 * [False] + 7 * [True]


def test_halves_are_of_names_alone(bench):
    halves = {table.name: table.half for table in bench.TABLES}
    assert len(halves) == len(bench.TABLES)
    assert min(list(halves.values()).count(half) for half in set(halves.values())) > 15
