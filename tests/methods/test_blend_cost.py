"""What blend takes: few rows of many columns go by the rows, and what takes long is said in
advance.
"""

import warnings

import numpy as np
import pytest

from persfl import Linear, PersflWarning, PersonalizedRegressor, Tree
from persfl.devices import Devices
from persfl.methods import Blend
from persfl.methods.blend import blend, linear_rows
from persfl.methods.blend.cost import Cost, cost_of
from persfl.methods.blend.few_rows import thin
from persfl.methods.blend.linear_rows import LinearPeers
from persfl.methods.blend.offers import ridge
from persfl.methods.blend.ridge_refit import drawn, moments, noise_of
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


def test_answers_by_rows_are_those_by_columns():
    learner, rows = Linear(intercept=True), devices((3, 30, 9, 1, 12, 11), 10)
    assert thin(learner, rows.counts, 10).tolist() == [
        True,
        False,
        True,
        True,
        False,
        False,
    ]
    rng = np.random.default_rng(0)
    who, models = np.array([0, 3, 1, 2, 0, 4, 5, 2]), rng.normal(size=(8, 11))
    for strength in (rng.uniform(0.1, 3.0, 11), np.geomspace(1e-4, 1e3, 11)):
        peers = LinearPeers(learner, rows)
        answers, rough = (
            peers.pulled(who, models, strength),
            peers.noise(who, models[0], strength),
        )
        for k, i in enumerate(who.tolist()):
            gram, pull = moments(learner, rows[i])
            np.testing.assert_allclose(
                answers[k], drawn(gram, pull, models[k], strength), rtol=1e-8, atol=1e-8
            )
            noise = noise_of(
                learner, rows[i], drawn(gram, pull, models[0], strength), strength
            )
            np.testing.assert_allclose(rough[k], noise, rtol=1e-6)


def test_a_blend_by_rows_is_that_by_columns(monkeypatch):
    rows = devices((4, 5, 30, 1), 9)
    by_rows = blend(rows, Linear(intercept=True), budget=200)
    for module in (linear_rows, ridge):
        monkeypatch.setattr(
            module,
            "thin",
            lambda learner, counts, features: np.zeros(len(counts), dtype=bool),
        )
    by_columns = blend(rows, Linear(intercept=True), budget=200)
    np.testing.assert_allclose(by_rows.models, by_columns.models, atol=1e-8)
    np.testing.assert_allclose(by_rows.shares, by_columns.shares, atol=1e-8)


def test_no_matrix_is_as_wide_as_the_columns(monkeypatch):
    """300 columns, 6 rows: nothing of 300 x 300 is ever solved or inverted."""
    sizes = []
    for name in ("solve", "inv"):
        real = getattr(np.linalg, name)

        def seen(matrix, *more, real=real):
            sizes.append(np.shape(matrix)[-1])
            return real(matrix, *more)

        monkeypatch.setattr(np.linalg, name, seen)
    found = blend(devices((6, 6, 6), 300), Linear(intercept=True), budget=200)
    assert np.isfinite(found.models).all()
    assert 0 < max(sizes) <= 30  # thirty rounds are looked back at, see `settled`


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
    usual, wide, many, more = (
        cost_of(Linear(intercept=True), counts, features, budget=budget)
        for counts, features, budget in (
            (np.full(46, 10), 4, 640),
            (np.full(46, 100), 100_000, 640),
            (np.full(100_000, 1), 4, 640),
            (np.full(46, 10), 4, 64_000),
        )
    )
    assert not usual.large
    assert wide.large
    assert many.large
    assert usual.seconds < more.seconds < 100 * usual.seconds
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
