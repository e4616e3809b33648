import importlib
from pathlib import Path

import numpy as np
import pytest

from persfl import (
    ArrayFleet,
    BestOrStay,
    Devices,
    GradientStep,
    Linear,
    Uniform,
    datasets,
    personalize,
)
from persfl.datasets import load_flights, load_housing
from persfl.sources import from_table


def standardized(devices):
    devices.X = (devices.X - devices.X.mean(axis=0)) / devices.X.std(axis=0)
    return devices


def test_housing_in_the_loop():
    housing = load_housing()
    assert list(housing.frame.columns) == [
        "city",
        "year",
        "month",
        "sales",
        "listings",
        "inventory",
        "log_price",
    ]
    assert not housing.frame.isna().any().any()
    devices = standardized(from_table(housing.frame, device="city", label="log_price"))
    assert len(devices) == 46
    fleet = ArrayFleet(
        devices, learner=Linear(intercept=True), proposer=GradientStep(0.1)
    )
    *_, last = personalize(fleet, sampler=Uniform(10), adopter=BestOrStay(), rounds=100)
    assert np.median(last.loss) < 0.1


def test_flights_in_the_loop():
    flights = load_flights()
    assert list(flights.frame.columns) == [
        "destination",
        *flights.feature_names,
        "arrival",
    ]
    assert not flights.frame.isna().any().any()
    assert (flights.devices.value_counts() == 40).all()
    assert [
        flights.target_names[k] for k in np.unique(flights.target)
    ] == flights.target_names
    assert flights.frame.groupby("destination")["arrival"].nunique().min() == 3
    devices: Devices = standardized(
        from_table(flights.frame, device="destination", label="arrival")
    )
    learner = Linear("multinomial", classes=3, intercept=True)
    parts = {
        "learner": learner,
        "proposer": GradientStep(1.0),
        "targets": devices.ids[:3],
    }
    fleet = ArrayFleet(devices, **parts)
    *_, last = personalize(fleet, sampler=Uniform(10), adopter=BestOrStay(), rounds=150)
    right = [
        (learner.labels(m, devices[i].X) == devices[i].y).mean()
        for i, m in enumerate(fleet.models)
    ]
    assert np.mean(right) > 0.6
    assert (last.loss < np.log(3)).all()


def test_late_flights_left_late():
    flights = load_flights().frame
    behind = flights.groupby("arrival")["dep_delay"].median()
    assert behind[0] < 0 < 30 < behind[2]
    assert flights["weekday"].between(1, 7).all()
    assert flights["planned"].between(30, 700).all()


def test_what_is_gone_says_what_to_use():
    with pytest.raises(
        ImportError, match="use load_flights, a table with three classes"
    ):
        from persfl.datasets import load_vowels  # noqa: F401
    assert not hasattr(datasets, "load_consonants")


def test_licences_travel_with_the_tables():
    folder = Path(datasets.__file__).parent
    text = (folder / "LICENSES.md").read_text(encoding="utf-8")
    for table in folder.glob("*.csv"):
        assert f"| `{table.name}` | `" in text
        assert table.stat().st_size < 400_000
    assert "Permission is hereby granted" in text


def test_a_flight_becomes_a_row(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "tools")
    shown = importlib.import_module("bundle").shown
    day = {
        "year": "2013",
        "month": "6",
        "day": "30",
        "sched_dep_time": "2359",
        "sched_arr_time": "344",
    }
    row = day | {"dep_delay": "-3.0", "arr_delay": "15"}
    # over midnight, on a Sunday
    assert shown(row) == ("6", "7", "23", "225", "-3", "on time")
    assert [shown(row | {"arr_delay": d})[-1] for d in ("16", "-10", "-11")] == [
        "late",
        "on time",
        "early",
    ]
