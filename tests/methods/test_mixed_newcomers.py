"""What a mixed model says of devices that were not there."""

import numpy as np
import pytest

from persfl import Linear, PersonalizedRegressor
from persfl.errors import UnseenWarning
from persfl.methods import LocalTask, Mixed
from persfl.methods.mixed.reml import mixed_fit
from persfl.runs import load_model, save_model
from persfl.sources import clustered_regression

ROWS = clustered_regression(
    n=12, clusters=1, rows=9, features=2, deviation=0.6, noise=0.3, seed=5
)


def fitted(effects, units="raw"):
    model = PersonalizedRegressor(
        method=Mixed(effects), units=units, holdout=0, unseen="pooled"
    )
    return model.fit(ROWS.X, ROWS.y, devices=ROWS.owner)


@pytest.mark.parametrize("effects", ["diagonal", "full", "intercept"])
def test_unseen_devices_get_the_common_effects(effects, tmp_path):
    common = mixed_fit(Linear(intercept=True), ROWS, effects).common
    want = ROWS.X[:4] @ common[:2] + common[2]
    model = fitted(effects)
    again = load_model(save_model(model, tmp_path / "run"))
    for one in (model, again):
        with pytest.warns(UnseenWarning):
            said = one.predict(ROWS.X[:4], devices=["new"] * 4)
        np.testing.assert_allclose(said, want, rtol=1e-9)


def test_some_rows_of_a_newcomer_are_shrunk_as_those_of_others():
    """A device handed in anew has what it would have had with the same variances."""
    found = mixed_fit(Linear(intercept=True), ROWS, "full")
    model = fitted("full")
    newcomer = model.adapt(ROWS[3].X, ROWS[3].y)
    want = ROWS.X @ found.models[3, :2] + found.models[3, 2]
    np.testing.assert_allclose(newcomer.predict(ROWS.X), want, rtol=1e-6, atol=1e-8)


def test_centred_units_have_one_model_for_all():
    assert fitted("diagonal", "centred").fitted_.population is None


def test_classes_have_no_population():
    y = (ROWS.y > 0).astype(float)
    rows = type(ROWS).of([(ROWS[i].X, y[ROWS.owner == i]) for i in range(len(ROWS))])
    task = LocalTask(rows, Linear("logistic", intercept=True), seed=0, classes=2)
    assert not Mixed().run(task).trust.notes
