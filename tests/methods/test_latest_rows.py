"""Offers that go on from a device's latest row, where rows are told to be in the order of time."""

from __future__ import annotations

import numpy as np
import pytest

from persfl.devices import Devices
from persfl.evaluation.row_order import RowOrder
from persfl.methods.mixed.latest_rows import GOING_ON, LatestRows
from persfl.methods.mixed.linear_rule import linear_blend
from persfl.types import Array


def walking(size: float, seed: int = 0) -> tuple[Devices, Array, Array]:
    """Thirty devices of twenty rows whose levels walk by steps of this size; the next row of
    each.
    """
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(30, 21, 2))
    level = draw.normal(size=(30, 1)) + size * draw.normal(size=(30, 21)).cumsum(axis=1)
    y = X @ [1.0, -1.0] + level + 0.2 * draw.normal(size=(30, 21))
    past = list(zip(X[:, :20], y[:, :20], strict=True))
    return Devices.of(past, quiet=True), X[:, 20], y[:, 20]


def error(rows: Devices, X: Array, y: Array, order: RowOrder) -> float:
    """Of the next rows."""
    found = linear_blend(rows, level=True, seed=0, order=order, trees=False)
    said = found.models[:, 0] + (found.models[:, 1:] * X).sum(axis=1)
    return float(((said - y) ** 2).mean())


def test_levels_that_walk_are_followed_and_others_are_not() -> None:
    told, guessed = RowOrder(ordered=True), RowOrder(ordered=True, found=True)
    follows = [error(*walking(0.7, k), told) for k in range(3)]
    stays = [error(*walking(0.7, k), guessed) for k in range(3)]
    assert sum(follows) < 0.5 * sum(stays)
    follows = [error(*walking(0.0, k), told) for k in range(3)]
    stays = [error(*walking(0.0, k), guessed) for k in range(3)]
    assert sum(follows) < 1.1 * sum(stays)


@pytest.mark.parametrize("order", [None, RowOrder(ordered=True, found=True)])
def test_nothing_goes_on_where_nobody_told_of_time(order: RowOrder | None) -> None:
    rows, _, _ = walking(0.7)
    names = linear_blend(rows, level=True, seed=0, order=order, trees=False).names
    assert not any(name.endswith(GOING_ON) for name in names)


def test_without_a_level_nothing_can_go_on() -> None:
    rows, _, _ = walking(0.7)
    order = RowOrder(ordered=True)
    found = linear_blend(rows, level=False, seed=0, order=order, trees=False)
    assert found.names == ("pooled", "diagonal", "near")


def test_what_a_model_is_made_of_adds_up_and_a_newcomer_has_all_shares() -> None:
    rows, _, _ = walking(0.7)
    order = RowOrder(ordered=True)
    found = linear_blend(rows, level=True, seed=0, order=order, trees=False)
    assert found.shares[5:].sum() > 0.5
    np.testing.assert_allclose(found.made_of.sum(axis=1), 1.0)
    assert (found.made_of >= 0).all()
    assert found.population.shares.sum() == pytest.approx(1.0)


def test_a_latest_row_that_does_not_count_is_none() -> None:
    start = np.array([0, 3, 5])
    Z, y = np.ones((5, 1)), np.arange(5.0)
    found = LatestRows.of(Z, y, np.array([1.0, 1, 0, 0, 0]), start)
    assert found.label.tolist() == [1.0, 0.0]
    models = np.full((1, 2, 1), 7.0)
    assert found.moved(models).ravel().tolist() == [1.0, 7.0]
