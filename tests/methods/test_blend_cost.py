"""What blend takes: what takes long is said in advance."""

import warnings

import numpy as np
import pytest

from persfl import Linear, PersflWarning, PersonalizedRegressor, Tree
from persfl.devices import Devices
from persfl.methods import Blend
from persfl.methods.blend.cost import Cost, cost_of
from persfl.sources import table


def devices(counts, features, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=features) / np.sqrt(features)
    rows = [rng.normal(size=(count, features)) for count in counts]
    weights = [rng.uniform(0.5, 2.0, count) for count in counts]
    return Devices.of(
        [
            (X, X @ truth + 0.1 * rng.normal(size=len(X)), w)
            for X, w in zip(rows, weights, strict=True)
        ],
        quiet=True,
    )


def test_what_takes_long_is_said_in_advance(monkeypatch):
    rows = devices((4,) * 6, 3)

    class Begun(Exception):
        pass

    def begin(*_, **__):
        raise Begun

    monkeypatch.setattr(Blend, "run", begin)
    much = Cost(2400.0, 12.0 * 2**30)
    monkeypatch.setattr("persfl.methods.blend.cost.cost_of", lambda *_, **__: much)
    model = PersonalizedRegressor()
    says = r"6 devices with 24 rows and 3 columns: .* about 40 minutes and 12 GiB .*drop columns"
    with pytest.warns(PersflWarning, match=says), pytest.raises(Begun):
        model.fit(rows.X, rows.y, devices=rows.owner)
    monkeypatch.setattr("persfl.methods.blend.cost.cost_of", cost_of)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PersflWarning)
        with pytest.raises(Begun):
            model.fit(rows.X, rows.y, devices=rows.owner)


def test_cost_grows_with_what_is_asked():
    usual, wide, many = (
        cost_of(Linear(intercept=True), counts, features)
        for counts, features in (
            (np.full(46, 10), 4),
            (np.full(46, 100), 100_000),
            (np.full(100_000, 1), 4),
        )
    )
    assert not usual.large
    assert wide.large
    assert many.large
    two = Linear("logistic", intercept=True)
    few, more = (
        cost_of(two, np.full(46, 10), 4, budget=budget) for budget in (640, 64_000)
    )
    assert few.seconds < more.seconds < 101 * few.seconds
    counts = Linear("poisson", intercept=True)
    assert cost_of(counts, np.full(46, 10), 4).seconds > 2 * usual.seconds
    classes = Linear("multinomial", classes=10, intercept=True)
    assert cost_of(classes, np.full(46, 10), 4, classes=10).seconds > usual.seconds
    assert cost_of(Tree(3), np.full(46, 10), 4) is None


def test_a_file_of_many_columns_is_announced(tmp_path, monkeypatch):
    path = tmp_path / "wide.csv"
    path.write_text("a,b,c\n1,2,3\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error", PersflWarning)
        assert table.read_frame(path).shape == (1, 3)
    monkeypatch.setattr("persfl.sources.csv_files.MANY_COLUMNS", 2)
    with pytest.warns(
        PersflWarning,
        match="'wide.csv' has 3 columns: .* seconds before learning begins",
    ):
        table.read_frame(path)
    path.write_text("a,b,a\n1,2,3\n")
    with pytest.raises(ValueError, match="'a' more than once"):
        table.read_frame(path)
