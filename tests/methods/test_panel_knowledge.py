"""A fleet larger than its panel: everybody's model from own rows and what the panel learned."""

from __future__ import annotations

import numpy as np
import pytest

from persfl import Linear, PersonalizedRegressor
from persfl.devices import Devices
from persfl.evaluation.row_order import RowOrder
from persfl.evaluation.split import taken
from persfl.learners.shared_trees import BoostedModels
from persfl.methods import Blend
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.latest_rows import LatestRows
from persfl.methods.mixed.linear_rule import linear_blend
from persfl.methods.mixed.panel_draw import Panel
from persfl.methods.mixed.panel_rule import learned_from_panel
from persfl.sources import clustered_regression


@pytest.fixture(scope="module")
def fleet():
    return clustered_regression(
        n=150, clusters=3, rows=10, features=3, noise=0.5, seed=1
    )


def sums_inside(known, rows):
    given = known.axes.inside(rows.X), rows.y, rows.weight, rows.start
    return DeviceSums.of(*given), LatestRows.of(*given)


def test_devices_of_the_panel_have_about_the_models_of_the_rule(fleet):
    """Told what it knows itself, a panel ends where the rule ended."""
    known = learned_from_panel(fleet, level=True, seed=0, trees=False)
    told = known.told(*sums_inside(known, fleet), np.arange(150), 100)
    found = linear_blend(fleet, level=True, seed=0, trees=False)
    away = np.sqrt(((told.models - found.models) ** 2).mean())
    assert away < 0.02 * found.models.std()
    np.testing.assert_allclose(known.shares, found.shares)
    np.testing.assert_allclose(told.made_of, found.made_of, atol=0.05)
    np.testing.assert_allclose(told.made_of.sum(axis=1), 1.0)


@pytest.fixture(scope="module")
def wandering():
    """Levels that walk: forty devices of fifteen rows."""
    draw = np.random.default_rng(5)
    X = draw.normal(size=(40, 15, 2))
    level = draw.normal(size=(40, 15)).cumsum(axis=1)
    y = X @ [1.0, -1.0] + level + 0.2 * draw.normal(size=(40, 15))
    return Devices.of(list(zip(X, y, strict=True)), quiet=True)


def test_a_panel_tells_models_that_go_on_from_the_latest_row(wandering):
    order = RowOrder(ordered=True)
    how = {"level": True, "seed": 0, "trees": False, "order": order}
    known = learned_from_panel(wandering, **how)
    assert known.going_on.sum() > 0.5
    told = known.told(*sums_inside(known, wandering), np.arange(40), 5)
    found = linear_blend(wandering, **how)
    np.testing.assert_allclose(known.shares, found.shares)
    assert np.abs(told.models - found.models).mean() < 0.02 * found.models.std()
    np.testing.assert_allclose(told.made_of, found.made_of, atol=0.05)


def test_outsiders_are_nearly_as_good_as_in_a_rule_of_all(fleet):
    panel = Panel.drawn(150, 0, 90)
    which = np.isin(np.arange(150), panel.devices)
    some = taken(fleet, which)
    known = learned_from_panel(some, level=True, seed=0, trees=False)
    told = known.told(*sums_inside(known, fleet), panel.place_of(np.arange(150)), 10)
    found = linear_blend(fleet, level=True, seed=0, trees=False)
    truth = fleet.true_weights[~which]
    error = ((told.models[~which, 1:] - truth) ** 2).mean()
    assert error < 1.15 * ((found.models[~which, 1:] - truth) ** 2).mean()
    # the centres that are named are of the same kind
    kinds = fleet.clusters
    likely = kinds[panel.centres[told.at[:, 0]]] == kinds
    assert likely.mean() > 0.95


def test_a_model_hangs_on_own_rows_and_the_panel_alone(fleet):
    known = learned_from_panel(fleet, level=True, seed=0, trees=False)
    sums, latest = sums_inside(known, fleet)
    nobody = np.full(150, -1)
    together = known.told(sums, latest, nobody, 5)
    one = np.array([70])
    mine = DeviceSums(*(part[one] for part in sums))
    alone = known.told(mine, latest.at(one), nobody[:1], 5)
    np.testing.assert_allclose(alone.models[0], together.models[70], atol=1e-12)
    assert alone.at[0].tolist() == together.at[70].tolist()


def test_who_is_in_the_panel_goes_by_the_seed():
    panel = Panel.drawn(10_000, 7, 300)
    assert len(np.unique(panel.devices)) == 300
    assert set(panel.centres) <= set(panel.devices)
    other = Panel.drawn(10_000, 8, 300)
    assert len(np.intersect1d(panel.devices, other.devices)) < 60


def test_a_fit_of_a_larger_fleet_predicts_and_names_helpers(fleet):
    model = PersonalizedRegressor(method=Blend(panel=60), holdout=0)
    model.fit(fleet.X, fleet.y, devices=fleet.owner)
    assert model.fitted_.models.shape == (150, 4)
    helpers = model.helpers_
    assert set(helpers["peer"]) <= set(Panel.drawn(150, 0, 60).centres.tolist())
    assert (helpers["peer"] != helpers["device"]).all()
    with pytest.warns(UserWarning, match="not there when fitting"):
        assert np.isfinite(model.predict(fleet.X[:2], devices=[200, 0])).all()


def test_trees_of_a_panel_serve_everybody():
    luck = np.random.default_rng(0)
    X = luck.uniform(-2, 2, size=(600, 2))
    owner = np.repeat(np.arange(60), 10)
    y = np.sin(3 * X[:, 0]) * 3 + 0.1 * luck.normal(size=600)
    model = PersonalizedRegressor(method=Blend(panel=30), holdout=0)
    model.fit(X, y, devices=owner)
    assert isinstance(model.fitted_.models, BoostedModels)
    linear = PersonalizedRegressor(method=Blend(panel=30, trees=False), holdout=0)
    linear.fit(X, y, devices=owner)
    left = [
        ((each.predict(X, devices=owner) - y) ** 2).mean() for each in (model, linear)
    ]
    assert left[0] < 0.5 * left[1]


def test_the_size_of_a_panel_is_checked(fleet):
    model = PersonalizedRegressor(Linear(), method=Blend(panel=1))
    with pytest.raises(ValueError, match="panel must be at least 2"):
        model.fit(fleet.X, fleet.y, devices=fleet.owner)
