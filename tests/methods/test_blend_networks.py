"""Blend of networks: better than own ones where devices are alike, honest folds, short lists,
kept without code and checked.
"""

import importlib
from functools import partial

import numpy as np
import pandas as pd
import pytest

from persfl import (
    Best,
    GradientStep,
    PersonalizedClassifier,
    PersonalizedRegressor,
    Uniform,
    cli,
)
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.evaluation.rivals import own_fits
from persfl.evaluation.row_order import RowOrder
from persfl.learners import MLP, Network
from persfl.learners.responses import respond_each
from persfl.learners.storage.family_table import models_from, models_to
from persfl.methods import Blend
from persfl.methods.blend import blend, local_site
from persfl.methods.blend import blend_stage as run
from persfl.methods.blend.blend_settings import USUAL
from persfl.methods.blend.offers.descent import pace
from persfl.methods.blend.site_in_process import LocalBundle
from persfl.runs import Folder, load_model, save_model
from persfl.sources import clustered_regression
from persfl.training import Plan
from persfl.types import Data

pytest.importorskip("torch")
SMALL = MLP(hidden=(4,))


def network(features, outputs, loss="squared"):
    return Network(partial(SMALL, features, outputs), loss=loss)


def test_devices_that_are_alike_help_each_other(tmp_path):
    devices = clustered_regression(
        n=12, clusters=2, rows=8, features=3, noise=0.5, seed=1
    )
    model = PersonalizedRegressor(SMALL, method="blend", holdout=0).fit(
        devices.X, devices.y, devices=devices.owner
    )
    assert max(len(mix) for mix in model.models_) <= 4
    for mix in model.models_:
        assert abs(sum(share for share, _ in mix) - 1.0) < 1e-6
    fresh = np.random.default_rng(0).normal(size=(12 * 50, 3))
    who = np.repeat(np.arange(12), 50)
    truth = (fresh * devices.true_weights[who]).sum(axis=1)
    said = model.predict(fresh, devices=who)
    alone = own_fits(model.learner_, model.units_.inside(devices), 0)
    own = model.units_.outside(
        respond_each(model.learner_, alone, model.units_.features(fresh, who), who), who
    )
    assert ((said - truth) ** 2).mean() < 0.8 * ((own - truth) ** 2).mean()
    assert model.made_of()["neighbours"].mean() > 0.5
    again = load_model(save_model(model, tmp_path / "run"))
    np.testing.assert_array_equal(again.predict(fresh, devices=who), said)
    pd.testing.assert_frame_equal(again.made_of(), model.made_of())
    assert not list((tmp_path / "run").glob("*.skops"))


def test_what_judges_a_fold_has_not_seen_it(brief_descents):
    devices = clustered_regression(
        n=6, clusters=2, rows=8, features=2, noise=0.3, seed=0
    )
    rows, offered = [(each.X, each.y) for each in devices], []
    for change in (0.0, 5.0):
        y = devices[5].y.copy()
        y[:4] += change
        changed = Devices.of([*rows[:5], (devices[5].X, y)])
        site = local_site(changed, network(2, 1), ordered=True)
        group = site.alone(np.arange(5))
        ((starts, _),) = site.family.starts(LocalBundle(site, [group]))
        offered.append(group.judges.offers(starts))
    for key, before in enumerate(offered[0]):
        # without the first fold, whose labels have changed
        np.testing.assert_array_equal(before[1], offered[1][key][1])
    assert any(
        not np.array_equal(before[0], offered[1][key][0])
        for key, before in enumerate(offered[0])
    )


def test_classes_never_seen_are_left_alone(brief_descents):
    learner = network(2, 3, "cross_entropy")
    rng = np.random.default_rng(0)
    data, model = (
        Data(rng.normal(size=(6, 2)), np.array([0.0, 1.0] * 3)),
        rng.normal(size=learner.size()),
    )
    names = learner.named(learner.grad(model, data, seen=np.array([1.0, 1.0, 0.0])))
    assert (names["2.bias"][2] == 0).all()
    assert (names["2.bias"][:2] != 0).all()
    assert learner.named(learner.grad(model, data))["2.bias"][2] > 0
    X, y, who = (
        rng.normal(size=(24, 2)),
        np.r_[np.arange(12) % 2, np.arange(12) % 3],
        np.repeat([0, 1, 2], 8),
    )
    fitted = PersonalizedClassifier(SMALL, method=Blend(budget=40), holdout=0).fit(
        X, y, devices=who
    )
    np.testing.assert_allclose(
        fitted.predict_proba(X, devices=who).sum(axis=1), 1.0, atol=1e-6
    )
    again = PersonalizedClassifier(SMALL, method=Blend(budget=40), holdout=0).fit(
        X, y, devices=who
    )
    np.testing.assert_array_equal(
        fitted.predict_proba(X, devices=who), again.predict_proba(X, devices=who)
    )


def test_steps_that_would_run_away_are_shorter(brief_descents):
    rng = np.random.default_rng(0)
    learner = network(2, 1)
    tame, wild = (
        Devices.of(
            [(scale * rng.normal(size=(6, 2)), rng.normal(size=6)) for _ in range(5)]
        )
        for scale in (1.0, 30.0)
    )
    model = learner.init(tame[0], None)
    paces = [
        pace(
            local_site(rows, learner).alone(np.arange(4)),
            model,
            np.arange(4),
            USUAL.descent,
        )
        for rows in (wild, tame)
    ]
    assert paces[0] < paces[1]
    found = blend(wild, learner, budget=20)
    assert all(np.isfinite(part).all() for mix in found.models for _, part in mix)


class Voting:
    """A group whose devices say whether steps help."""

    look = None

    def __init__(self, *votes):
        self.votes = np.array(votes)
        self.asked = 0

    def ask(self, question, who):
        self.asked += 1
        return {"falls": self.votes}


@pytest.mark.parametrize(
    ("votes", "asked"),
    [
        ([0.0, 1.0, 1.0], 1),
        ([0.0, 1.0, np.nan, 1.0], 1),
        ([-1e9] + [1.0] * 8, 1),
        ([0.0, 1.0], 7),  # of two, who lies?
        ([0.0, 0.0, 1.0, 1.0, 1.0], 7),
        ([1e9, 0.0, 0.0, 0.0], 7),  # counts once
        ([0.0, np.nan, np.nan], 7),
        ([0.0] * 2 + [1.0] * 18, 1),
        ([0.0] * 3 + [1.0] * 17, 7),
    ],
)
def test_one_device_alone_does_not_slow_the_others(votes, asked):
    group = Voting(*votes)
    found = pace(group, np.zeros(1), np.arange(len(votes)), USUAL.descent)
    assert group.asked == asked
    assert found == (1.0 if asked == 1 else 0.25**7)


def test_a_stage_is_kept_and_resumed(tmp_path, monkeypatch, brief_descents):
    devices = clustered_regression(
        n=3, clusters=1, rows=6, features=2, noise=0.3, seed=0
    )
    plan = Plan(network(2, 1), GradientStep, 0.1, Uniform(1), Best(), rounds=1, seed=0)
    settings = {
        "budget": 20,
        "classes": 0,
        "order": RowOrder(),
        "keep": Folder.create(tmp_path / "run", {}, every=0),
    }
    whole = run(devices, plan, **settings)
    monkeypatch.setattr(
        importlib.import_module("persfl.methods.blend.offers_stage"), "blend_over", None
    )
    resumed = run(devices, plan, **settings | {"keep": Folder.open(tmp_path / "run")})
    assert resumed.r == whole.r > 0
    for before, after in zip(whole.models, resumed.models, strict=True):
        assert [share for share, _ in before] == [share for share, _ in after]
        np.testing.assert_array_equal(
            [part for _, part in before], [part for _, part in after]
        )


def test_from_the_command_line(tmp_path, capsys, brief_descents):
    devices = clustered_regression(
        n=3, clusters=1, rows=6, features=2, noise=0.3, seed=0
    )
    table = pd.DataFrame(devices.X, columns=list("ab")).assign(
        who=devices.owner, y=devices.y
    )
    table.to_csv(tmp_path / "t.csv", index=False)
    run_, said = str(tmp_path / "run"), str(tmp_path / "said.csv")
    fit = [
        "fit",
        str(tmp_path / "t.csv"),
        "--device",
        "who",
        "--label",
        "y",
        "--model",
        "mlp",
        "--method",
        "blend",
        "--holdout",
        "0",
    ]
    assert cli.main([*fit, "--out", run_]) == 0
    assert "neighbours" in capsys.readouterr().out
    assert cli.main(["predict", run_, str(tmp_path / "t.csv"), "--out", said]) == 0
    assert np.isfinite(pd.read_csv(said).iloc[:, -1]).all()


def test_mixes_that_are_none_are_refused():
    # the second device keeps its own model
    mixes = [[(0.25, np.zeros(3)), (0.75, np.ones(3))], np.full(3, 2.0)]
    arrays = models_to(mixes)
    back = models_from(arrays)
    assert [[share for share, _ in mix] for mix in back] == [[0.25, 0.75], [1.0]]
    np.testing.assert_array_equal(back[1][0][1], np.full(3, 2.0))
    for name, wrong, says in (
        ("mix_shares", np.array([0.5, 0.75, 1.0]), "sum to 1"),
        ("mix_shares", np.array([-0.5, 1.5, 1.0]), "at least 0"),
        ("mix_shares", np.array([np.nan, 0.75, 1.0]), "at least 0"),
        ("mix_sizes", np.array([1, 1]), "a share for every model"),
        ("mix_sizes", np.array([3, 0]), "a share for every model"),
        ("mix_sizes", np.array([2.0, 1.0]), "a share for every model"),
    ):
        with pytest.raises(InputError, match=says):
            models_from(arrays | {name: wrong})


def test_a_processor_that_is_not_there_is_named():
    devices = clustered_regression(n=3, clusters=1, rows=6, features=2, seed=0)
    with pytest.raises(InputError, match="compute='cuda:99' cannot be used here"):
        PersonalizedRegressor(SMALL, method="blend", compute="cuda:99").fit(
            devices.X, devices.y, devices=devices.owner
        )
