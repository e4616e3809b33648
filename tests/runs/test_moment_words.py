"""What rows held back share, in a run's folder."""

import numpy as np
import pytest

from persfl import PersonalizedRegressor
from persfl.errors import InputError
from persfl.runs import load_model, save_model
from persfl.runs.moment_words import moments_from
from persfl.sources import clustered_regression

ARMS = ["own", "personal"]
GOOD = {"own": [0.5, 1.5], "personal": [0.25, 1]}


def test_a_run_remembers_what_its_intervals_are_for(tmp_path):
    rows = clustered_regression(n=8, rows=12, features=2, noise=0.5, seed=0)
    model = PersonalizedRegressor(method="fine-tuned", ordered=True, random_state=0)
    model.fit(rows.X, rows.y, devices=rows.owner)
    again = load_model(save_model(model, tmp_path / "run")).worth_
    assert again.ahead
    assert again.fleet() == model.worth_.fleet()
    assert len(again.moments.errors["own"]) == 3
    np.testing.assert_allclose(
        again.moments.errors["own"].sum(), again.error("own").mean() * again.scale
    )


@pytest.mark.parametrize(
    "forged",
    [
        [],
        {"errors": GOOD},
        {"ahead": 1, "errors": GOOD},
        {"ahead": True, "errors": {"own": [1.0]}},
        {"ahead": True, "errors": GOOD | {"other": [0.5, 1.5]}},
        {"ahead": True, "errors": GOOD | {"own": [1.0]}},
        {"ahead": True, "errors": GOOD | {"own": [1.0, -1.0]}},
        {"ahead": True, "errors": GOOD | {"own": [1.0, float("nan")]}},
        {"ahead": True, "errors": GOOD | {"own": [1.0, 10**400]}},
        {"ahead": True, "errors": GOOD | {"own": [1.0, True]}},
        {"ahead": True, "errors": {arm: [1.0] * 13 for arm in ARMS}},
        {"ahead": True, "errors": {arm: [] for arm in ARMS}},
    ],
)
def test_forged_moments_are_refused(forged):
    assert moments_from({"ahead": True, "errors": GOOD}, ARMS).ahead
    with pytest.raises(InputError, match="moments"):
        moments_from(forged, ARMS)
