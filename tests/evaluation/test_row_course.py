"""Rows that go on from one to the next, though nobody said so."""

import itertools

import numpy as np
import pytest

from persfl import Devices, PersonalizedRegressor
from persfl.evaluation.row_course import (
    CLEARLY,
    LONG,
    _side_by_side,
    course_of,
    found_order,
    goes_on,
    pooled_leftovers,
)
from persfl.evaluation.row_order import RowOrder
from persfl.methods import Blend
from persfl.methods.mixed.hidden_evidence import HiddenEvidence


def fleet(kind: str, seed: int, n: int = 40, rows: int = 12) -> Devices:
    """Devices with own slopes; what else is in their labels goes by the kind."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(n, rows, 3))
    slopes = 1.0 + 0.5 * draw.normal(size=(n, 1, 3))
    if kind == "slopes wander":
        slopes = slopes + 0.4 * draw.normal(size=(n, rows, 3)).cumsum(axis=1)
    y = (X * slopes).sum(axis=2) + 0.3 * draw.standard_t(3, size=(n, rows))
    if kind == "levels wander":
        y += 0.5 * draw.normal(size=(n, rows)).cumsum(axis=1)
    if kind == "one date after the other":
        y += draw.normal(size=rows)
    return Devices.of(list(zip(X, y, strict=True)), quiet=True)


def test_the_mean_and_variance_over_all_orders_are_exact() -> None:
    asked = np.random.default_rng(0).exponential(size=(5, 2))
    every = [
        _side_by_side(asked[list(order)]) for order in itertools.permutations(range(5))
    ]
    found = np.array([each[0] for each in every])
    assert found.mean() == pytest.approx(every[0][1], abs=1e-12)
    assert found.var() == pytest.approx(every[0][2], abs=1e-12)


def test_rows_in_no_order_are_rarely_said_to_have_one() -> None:
    found = np.array([course_of(fleet("nothing", seed)) for seed in range(60)])
    assert (found > CLEARLY).sum() <= 1
    assert (np.abs(found[:, :2].mean(axis=0)) < 0.5).all()
    assert (np.abs(found[:, :2].std(axis=0) - 1.0) < 0.4).all()


@pytest.mark.parametrize(
    ("kind", "many", "clock"),
    [
        ("levels wander", 12, False),
        ("slopes wander", 30, False),
        ("one date after the other", 12, True),
    ],
)
def test_an_order_is_found_and_lost_by_shuffling(
    kind: str, many: int, clock: bool
) -> None:
    for seed in range(5):
        rows = fleet(kind, seed, rows=many)
        order = found_order(rows, RowOrder())
        assert order.ordered
        assert (order.time is not None) == clock
        draw = np.random.default_rng(seed)
        luck = np.lexsort((draw.random(len(rows.y)), rows.owner))
        mixed = Devices(rows.X[luck], rows.y[luck], rows.weight, rows.start, rows.ids)
        assert not found_order(mixed, RowOrder()).ordered


def test_what_was_said_is_kept_and_short_pasts_are_none() -> None:
    rows = fleet("levels wander", 0)
    blocks = RowOrder(blocks=np.arange(len(rows.y)))
    assert found_order(rows, blocks) is blocks
    assert not found_order(fleet("levels wander", 0, rows=LONG - 1), RowOrder()).ordered


def test_a_table_sorted_by_a_column_is_in_no_order_of_time() -> None:
    """A curve along a dose goes on from row to row, and rows between may be to be predicted."""
    draw = np.random.default_rng(0)
    dose = np.sort(draw.uniform(0, 3, size=(20, 12)), axis=1)
    y = np.sin(3 * dose) + 0.1 * draw.normal(size=(20, 12))
    X = np.stack([dose, draw.normal(size=(20, 12))], axis=2)
    X[0, [3, 4]] = X[0, [4, 3]]  # one device is not quite sorted
    rows = Devices.of(list(zip(X, y, strict=True)), quiet=True)
    assert course_of(rows).own > CLEARLY
    assert not found_order(rows, RowOrder()).ordered
    unseen = Devices(rows.X[:, 1:], rows.y, rows.weight, rows.start, rows.ids)
    assert found_order(unseen, RowOrder()).ordered


def test_rows_that_do_not_count_are_not_looked_at() -> None:
    rows = fleet("levels wander", 0)
    left = rows.y.copy()
    weight = np.ones(len(left))
    weight[3::12] = 0.0
    some = Devices(rows.X, rows.y, weight, rows.start, rows.ids)
    before = goes_on(rows.X, left, some)
    left[3::12] = 1e6
    assert goes_on(rows.X, left, some) == before


def test_a_fit_says_what_to_set() -> None:
    rows = fleet("levels wander", 1, n=15)
    fit = PersonalizedRegressor(holdout=0, random_state=0).fit
    noted = fit(rows.X, rows.y, devices=rows.owner).notes_
    assert any("Rows that follow each other" in note for note in noted)
    calm = fleet("nothing", 1, n=15)
    noted = fit(calm.X, calm.y, devices=calm.owner).notes_
    assert not any("ordered=True" in note for note in noted)


def test_trials_choose_by_the_order_that_all_rows_show(monkeypatch) -> None:
    rows = fleet("one date after the other", 1, n=25, rows=LONG + 1)
    seen = {}
    run = Blend.run

    def watched(self, task, *, stage="final", keep=None):
        seen[stage] = self.seen_order(task).ordered
        return run(self, task, stage=stage, keep=keep)

    monkeypatch.setattr(Blend, "run", watched)
    model = PersonalizedRegressor(method=Blend(trees=False), random_state=0)
    model.fit(rows.X, rows.y, devices=rows.owner)
    assert {"trial-0", "trial-other-rows", "final"} <= set(seen)
    assert all(seen.values())  # though a trial has too few rows to look
    assert any("rows shuffled may do better" in note for note in model.notes_)


def test_rows_of_one_date_count_once() -> None:
    draw = np.random.default_rng(0)
    keys = np.tile(np.arange(10), 50)
    alone = draw.normal(size=(500, 1))
    shared = draw.normal(size=10)[keys][:, None]
    rows = np.arange(500)
    one = np.ones(500)
    told = HiddenEvidence(0 * rows, rows, 0 * rows, one, one, alone)
    assert told.once_a_key(keys, 0).weight.sum() > 200
    told = HiddenEvidence(0 * rows, rows, 0 * rows, one, one, 0.1 * alone + shared)
    assert told.once_a_key(keys, 0).weight.sum() < 20


def test_many_columns_are_looked_at_by_rows() -> None:
    rows = fleet("levels wander", 0, n=3, rows=8)
    wide = np.random.default_rng(0).normal(size=(len(rows.y), 40))
    many = Devices(wide, rows.y, rows.weight, rows.start, rows.ids)
    left = pooled_leftovers(many, 0)[:, 0]
    Z = wide - wide.mean(axis=0)
    Z = np.column_stack([Z / Z.std(axis=0), np.ones(len(Z))])
    gram = Z.T @ Z + 1e-6 * len(Z) * np.eye(41)
    told = rows.y - Z @ np.linalg.solve(gram, Z.T @ rows.y)
    np.testing.assert_allclose(left, told, atol=1e-6)
    asked = np.random.default_rng(1).normal(size=(6, 4))
    turned = np.linalg.qr(np.random.default_rng(2).normal(size=(9, 9)))[0][:4]
    np.testing.assert_allclose(_side_by_side(asked @ turned), _side_by_side(asked))
