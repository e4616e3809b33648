"""Columns that look like time, and whether rows of equal keys hang together across devices."""

import numpy as np
import pandas as pd
import pytest

from persfl import Devices
from persfl.fitting.date_columns import (
    CLEARLY,
    date_columns,
    date_notes,
    hangs_together,
    pooled_leftovers,
)

DAYS = pd.date_range("2024-01-01", periods=12).strftime("%Y-%m-%d")


def rows_of(kind, seed, n=30, T=12):
    """Devices whose rows are one per day; what is left of their labels goes by the kind."""
    draw = np.random.default_rng(seed)
    day = np.tile(np.arange(T), n)
    left = draw.normal(size=(n, T))
    if kind == "own course":
        left = np.cumsum(left, axis=1)
    if kind == "own trend":
        left += draw.normal(size=(n, 1)) * np.arange(T)
    if kind == "one loud":
        left[0] *= 50
    if kind == "shock":
        left += draw.normal(size=T)
    if kind == "regions":
        left += 2 * draw.normal(size=(5, T))[np.arange(n) % 5]
    X = draw.normal(size=(n * T, 2))
    y = X @ [1.0, 2.0] + left.ravel()
    start = np.arange(n + 1) * T
    return Devices(X, y, np.ones(n * T), start, range(n)), day


@pytest.mark.parametrize("kind", ["nothing", "own course", "own trend", "one loud"])
def test_devices_that_know_nothing_of_each_other_do_not_hang_together(kind):
    found = []
    for seed in range(40):
        rows, day = rows_of(kind, seed)
        found.append(hangs_together(day, rows, pooled_leftovers(rows, 0)))
    assert np.mean(np.array(found) > CLEARLY) <= 0.025
    assert abs(np.mean(found)) < 1.0


@pytest.mark.parametrize("kind", ["shock", "regions"])
def test_shocks_of_a_day_are_found(kind):
    for seed in range(10):
        rows, day = rows_of(kind, seed, n=60)
        assert hangs_together(day, rows, pooled_leftovers(rows, 0)) > CLEARLY
        draw = np.random.default_rng(seed)
        other = np.concatenate([draw.permutation(12) for _ in range(60)])
        assert hangs_together(other, rows, pooled_leftovers(rows, 0)) < CLEARLY


def test_dates_with_names_of_months_look_like_time():
    rows, day = rows_of("nothing", 0, n=3)
    words = pd.to_datetime(pd.Series(DAYS)).dt.strftime("%b %d %Y")
    aside = pd.DataFrame({"when": words.to_numpy()[day], "kind": "Mark 2024"})
    found = date_columns(None, aside, rows, np.arange(len(day)))
    assert [(one.name, one.sure) for one in found] == [("when", True)]


def test_classes_hang_together_too():
    rows, day = rows_of("shock", 3)
    classes = Devices(
        rows.X,
        np.digitize(rows.y, [-1.0, 1.0]) + 0.0,
        rows.weight,
        rows.start,
        rows.ids,
    )
    assert hangs_together(day, classes, pooled_leftovers(classes, 3)) > CLEARLY
    calm, day = rows_of("nothing", 3)
    calm.y = np.digitize(calm.y, [-1.0, 1.0]) + 0.0
    assert hangs_together(day, calm, pooled_leftovers(calm, 3)) < CLEARLY


def found_in(values, rows, name="date"):
    frame = pd.DataFrame({name: values, "x": 1.0})
    return date_columns(frame, None, rows, np.arange(len(rows.y)))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("day", lambda day: DAYS[day]),
        ("whatever", lambda day: DAYS[day]),
        ("whatever", lambda day: pd.to_datetime(DAYS[day])),
        ("year", lambda day: 2000 + day),
        ("saleMonth", lambda day: day // 2),
    ],
)
def test_columns_that_look_like_time_are_noted(name, values):
    rows, day = rows_of("nothing", 0)
    (column,) = found_in(values(day), rows, name)
    assert column.sure
    (note,) = date_notes([column], rows, 0)
    assert f"set time={name!r}" in note
    assert f"--blocks {name}" in note


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("size", lambda day: day),  # rises, and is called something else
        ("hours", lambda day: 100 * day),  # several of them are how long, not when
        ("week_day", lambda day: day % 7),  # repeats within a device
        ("travel_time", lambda day: np.random.default_rng(0).integers(0, 5, len(day))),
        ("code", lambda day: [f"{10 + d}" for d in day]),
        ("version", lambda day: [f"a-{d}" for d in day]),
        ("date", lambda day: ["2024-01-01"] * len(day)),  # one moment
    ],
)
def test_other_columns_are_not(name, values):
    rows, day = rows_of("nothing", 0)
    assert date_notes(found_in(values(day), rows, name), rows, 0) == []


def test_rows_that_hang_together_are_told_of_first():
    rows, day = rows_of("shock", 1)
    (note,) = date_notes(found_in(2000 + day, rows, "year"), rows, 0)
    assert note.startswith("Rows with the same 'year' are off in the same direction")
    assert "Set blocks='year'" in note
    # in any order of the rows
    draw = np.random.default_rng(0)
    at = np.concatenate([i * 12 + draw.permutation(12) for i in range(30)])
    mixed = Devices(rows.X[at], rows.y[at], rows.weight, rows.start, rows.ids)
    (again,) = date_notes(found_in(2000 + day[at], mixed, "year"), mixed, 0)
    assert again == note
    calm, _ = rows_of("nothing", 1)
    assert date_notes(found_in(2000 + day[at], calm, "year"), calm, 0) == []


def test_a_day_of_the_month_is_no_time_by_itself():
    rows, day = rows_of("shock", 3, n=60)
    frame = pd.DataFrame({"year": 2024, "month": 5, "day": day + 1, "x": 1.0})
    found = date_columns(frame, None, rows, np.arange(len(rows.y)))
    note = date_notes(found, rows, 0)[0]
    assert "time='day'" not in note
    assert "one column of dates from 'year', 'month', 'day'" in note
    alone = date_columns(frame[["day", "x"]], None, rows, np.arange(len(rows.y)))
    assert "time='day'" in date_notes(alone, rows, 0)[0]
