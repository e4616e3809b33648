"""Blends of models other than the squared rule's: what is hidden is hidden from everybody."""

import numpy as np

from persfl import Linear
from persfl.evaluation.row_order import RowOrder, hidden_folds
from persfl.methods.blend.algorithm import blend_over
from persfl.methods.blend.offers_stage import hidden_sites, local_site
from persfl.sources import clustered_regression

ROWS = clustered_regression(n=6, rows=8, features=2, seed=0)
DAY = np.tile(np.arange(8), 6)
HUBER = Linear("huber", intercept=True)


def test_neither_who_is_asked_nor_who_judges_has_learned_from_it():
    folds = hidden_folds(ROWS, RowOrder(blocks=DAY), 4, seed=0)
    assert len(folds) == 4
    for fold, (there, site) in zip(
        folds, hidden_sites(ROWS, HUBER, None, folds), strict=True
    ):
        assert there.tolist() == list(range(6))
        group = site.alone(np.arange(3))
        mine = fold.judge.reshape(6, 8)
        assert (group.others.weight.reshape(3, 8)[mine[:3]] == 0).all()
        assert (group.others.weight.reshape(3, 8)[~mine[:3]] == 1).all()
        whole, without = group.rows.copies.weight.reshape(3, 2, 8).swapaxes(0, 1)
        assert (whole == 1).all()
        np.testing.assert_array_equal(without, ~mine[3:])
        np.testing.assert_array_equal(group.rows.usable.reshape(3, 8), mine[3:])


def test_every_key_is_judged_once_and_shares_add_up():
    folds = hidden_folds(ROWS, RowOrder(blocks=DAY), 4, seed=0)
    assert (sum(fold.judge.astype(int) for fold in folds) == 1).all()
    site = local_site(ROWS, HUBER, judges=False)
    hidden = hidden_sites(ROWS, HUBER, None, folds)
    found = blend_over(site, budget=8, hidden=hidden)
    np.testing.assert_allclose(found.shares.sum(axis=1), 1.0)
    assert np.isfinite(found.models).all()
