"""Blend's budget: every answer of another device is paid from it; with little, own rows remain."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from persfl import GradientStep, Linear, PersonalizedRegressor, Tree
from persfl.devices import Devices
from persfl.learners import MLP, Network
from persfl.methods import Blend
from persfl.methods.blend import (
    blend,
    blend_over,
    local_site,
    sorts,
)
from persfl.methods.blend.blend_settings import USUAL
from persfl.methods.blend.offers import descent
from persfl.methods.blend.site_in_process import LocalGroup
from persfl.sources import clustered_regression

pytest.importorskip("torch")
BUDGETS = (1, 40, 640)
STEPS = 0.25  # what an answer by gradient steps costs; a refit costs 1


def marked(n, rows=6, classes=0):
    """Devices whose first feature is their own number: a row tells whose it is."""
    devices = clustered_regression(
        n=n, clusters=1, rows=rows, features=3, noise=0.3, seed=0
    )
    devices.X[:, 0] = devices.owner
    y = (devices.y > 0) + 0.0 if classes else devices.y
    return Devices(devices.X, y, devices.weight, devices.start, devices.ids)


def whose(data):
    """The devices behind the rows of each entry of a batch."""
    marks = data.X[..., 0].reshape(-1, data.X.shape[-2])
    weighs = np.broadcast_to(data.weight, data.X.shape[:-1]).reshape(marks.shape) > 0
    return [
        set(entry[there].tolist()) for entry, there in zip(marks, weighs, strict=True)
    ]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize(("loss", "classes"), [("huber", 0), ("logistic", 2)])
@pytest.mark.parametrize("n", [5, 18])
def test_linear_models_keep_the_budget(n, loss, classes, budget):
    learner = Linear(loss, intercept=True)
    site = local_site(marked(n, classes=classes), learner, classes=classes)
    asked, groups, made = [], [], site.group

    def counting(plan):
        group = made(plan)
        real = group.ask

        def ask(question, who, whose=None):
            asked.append(question.cost * (who >= 0).sum())
            return real(question, who, whose)

        group.ask = ask
        groups.append(group)
        return group

    site.group = counting
    found = blend_over(site, budget=budget)
    paid = sum(group.budget.spent / group.budget.unit for group in groups)
    assert paid == pytest.approx(sum(asked))
    assert sum(asked) <= n * budget
    assert sum(asked) > 0.5 * n * budget or budget < 640 or n < 18
    known_by_asking(found, sum(asked))


def known_by_asking(found, asked):
    """Nothing is said to come from others that nobody was asked for."""
    own, fleet, neighbours = sorts(found.names, found.shares).sum(axis=0)
    assert own + fleet + neighbours == pytest.approx(len(found.shares))
    if not asked:
        assert fleet + neighbours == 0
    if not sum((round_.peers >= 0).sum() for round_ in found.rounds):
        assert not any(
            "neighbours" in name
            for name, share in zip(found.names, found.shares.T, strict=True)
            if share.any()
        )


def begins(own, monkeypatch):
    """Whenever a group begins, `own` are its targets."""
    real = LocalGroup.__init__

    def begin(self, site, plan):
        own.clear()
        own.update(plan.mine.tolist())
        real(self, site, plan)

    monkeypatch.setattr(LocalGroup, "__init__", begin)


def shorter(monkeypatch, **less):
    """The same with fewer steps."""
    fewer = replace(USUAL, descent=replace(USUAL.descent, **less))
    monkeypatch.setattr("persfl.methods.blend.blend_settings.USUAL", fewer)


@pytest.mark.parametrize("budget", BUDGETS)
def test_refits_keep_the_budget(budget, monkeypatch):
    devices = marked(10)
    asked, own = [], set()
    real_fit = Tree.fit
    begins(own, monkeypatch)

    def fit(self, data, place):
        asked.extend(whose for whose in whose_rows(data) if whose not in own)
        return real_fit(self, data, place)

    def whose_rows(data):
        return {mark for mark in data.X[data.weight > 0][:, 0].tolist() if mark >= 0}

    monkeypatch.setattr(Tree, "fit", fit)
    public = np.random.default_rng(0).normal(size=(10, 3))
    public[:, 0] = -1.0
    found = blend(devices, Tree(2), public, budget=budget)
    assert len(asked) <= 10 * budget
    assert len(asked) > 10 * 100 or budget < 640
    known_by_asking(found, len(asked))


@pytest.mark.parametrize(("n", "budget"), [(3, 1), (3, 40), (3, 640), (12, 40)])
def test_networks_keep_the_budget(n, budget, monkeypatch):
    devices = marked(n)
    asked, own = [], set()
    real = {
        "grad": Network.grad,
        "answer": GradientStep.answer,
        "descended": Network.descended,
        "search": descent.neighbours,
    }
    quiet = []

    def count(data):
        asked.append(STEPS * sum(len(entry - own) for entry in whose(data)))

    def grad(self, model, data, **more):
        if not quiet:
            count(data)
        return real["grad"](self, model, data, **more)

    def descended(self, models, data, marks, *more):  # a question a step
        for _ in range(max(marks)):
            count(data)
        return real["descended"](self, models, data, marks, *more)

    def answer(self, learner, probe, data, place):  # of several steps: one question
        count(data)
        quiet.append(1)
        found = real["answer"](self, learner, probe, data, place)
        quiet.pop()
        return found

    def search(*given):
        quiet.append(1)
        found = real["search"](*given)
        quiet.pop()
        asked.append(STEPS * sum((round_.peers >= 0).sum() for round_ in found.rounds))
        return found

    begins(own, monkeypatch)
    monkeypatch.setattr(Network, "grad", grad)
    monkeypatch.setattr(Network, "descended", descended)
    monkeypatch.setattr(GradientStep, "answer", answer)
    monkeypatch.setattr(descent, "neighbours", search)
    # one group at a time; own steps are free
    shorter(monkeypatch, room=1, own_steps=(2,), tuning_steps=(0, 2))
    found = blend(
        devices, Network(partial(MLP((2,)), 3, 1), loss="squared"), budget=budget
    )
    assert sum(asked) <= n * budget
    assert sum(asked) > 0.1 * n * budget or budget < 640
    known_by_asking(found, sum(asked))


def test_a_budget_of_one_leaves_own_rows(monkeypatch):
    estimator = MLP((2,))
    shorter(monkeypatch, own_steps=(2, 5))
    devices = clustered_regression(
        n=4, clusters=1, rows=6, features=2, noise=0.1, seed=0
    )
    model = PersonalizedRegressor(estimator, method=Blend(budget=1), holdout=0)
    model.fit(devices.X, devices.y, devices=devices.owner)
    np.testing.assert_allclose(model.made_of()["own"], 1.0)
    assert model.helpers_["asked"].sum() == 0
    assert np.isfinite(model.predict(devices.X, devices=devices.owner)).all()
    model = PersonalizedRegressor(estimator, method=Blend(budget=1), window=4)
    model.partial_fit(devices.X, devices.y, devices=devices.owner)
    model.partial_fit(devices.X, devices.y, devices=devices.owner)
    assert np.isfinite(model.predict(devices.X, devices=devices.owner)).all()


def test_bundles_make_no_difference(monkeypatch):
    whole = clustered_regression(
        n=27, clusters=2, rows=8, features=3, noise=0.3, seed=0
    )
    devices = Devices.of(
        [(each.X[: 3 + i % 5], each.y[: 3 + i % 5]) for i, each in enumerate(whole)]
    )
    less = {
        "own_steps": (5,),
        "tuning_steps": (0, 5),
        "pool_steps": 10,
        "rounds": 2,
        "near_steps": 5,
    }
    learner = Network(partial(MLP((4,)), 3, 1), loss="squared")
    found = []
    for room in (2**26, 1):
        shorter(monkeypatch, room=room, **less)
        found.append(blend(devices, learner, budget=60))
    assert found[0].names == found[1].names
    assert any("neighbours" in name for name in found[0].names)
    np.testing.assert_array_equal(found[0].shares, found[1].shares)
    for mix, same in zip(found[0].models, found[1].models, strict=True):
        np.testing.assert_array_equal(
            [model for _, model in mix], [model for _, model in same]
        )
