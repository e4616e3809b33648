"""Every part keeps the promises that `persfl.testing` spells out, and the checks notice parts
that do not.
"""

import numpy as np
import pytest
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingRegressor,
)
from sklearn.linear_model import Lasso, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from persfl import (
    ArrayFleet,
    Best,
    BestOrStay,
    Choice,
    Estimator,
    GradientStep,
    Linear,
    LoopFleet,
    Nobody,
    Refit,
    SameCluster,
    TopK,
    Tree,
    Uniform,
    Weighted,
    personalize,
)
from persfl.sources import clustered_regression
from persfl.testing import (
    check_adopter,
    check_fleet,
    check_learner,
    check_proposer,
    check_sampler,
)

PUBLIC = np.random.default_rng(3).standard_normal((20, 3))
LINEAR = {
    "squared": Linear(),
    "squared, intercept, l2": Linear(intercept=True, l2=0.1),
    "absolute": Linear("absolute", intercept=True),
    "huber": Linear("huber", delta=0.5),
    "logistic": Linear("logistic", intercept=True, l2=0.01),
    "poisson": Linear("poisson", intercept=True),
    "multinomial": Linear("multinomial", classes=3, intercept=True, l2=0.01),
}
ESTIMATORS = {
    "ridge": Estimator(Ridge()),
    "svr": Estimator(SVR()),
    "grown tree": Tree(3),
    "tree": Estimator(DecisionTreeRegressor(max_depth=3)),
    "tree, absolute": Estimator(DecisionTreeRegressor(max_depth=3), loss="absolute"),
    "extra trees": Estimator(ExtraTreesRegressor(5)),
    "boosting": Estimator(GradientBoostingRegressor(n_estimators=5)),
    "pipeline": Estimator(
        make_pipeline(StandardScaler(), DecisionTreeRegressor(max_depth=2))
    ),
    "grid search": Estimator(GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=2)),
    "voting": Estimator(
        VotingRegressor([("a", Ridge()), ("b", DecisionTreeRegressor(max_depth=2))])
    ),
    "tree with a generator": Estimator(
        DecisionTreeRegressor(
            max_depth=2, max_features=1, random_state=np.random.RandomState(0)
        )
    ),
    "lasso": Estimator(Lasso(alpha=0.01)),
    "tree classifier": Estimator(DecisionTreeClassifier(max_depth=2)),
    "forest classifier, error": Estimator(RandomForestClassifier(5), loss="error"),
    "logistic": Estimator(LogisticRegression()),
    "hist boosting": Estimator(HistGradientBoostingClassifier(max_iter=3)),
}


@pytest.mark.parametrize(
    "learner", [pytest.param(v, id=k) for k, v in {**LINEAR, **ESTIMATORS}.items()]
)
def test_learners(learner):
    check_learner(learner)


@pytest.mark.parametrize("learner", [pytest.param(v, id=k) for k, v in LINEAR.items()])
@pytest.mark.parametrize(
    "proposer",
    [
        GradientStep(0.05),
        GradientStep(0.05, steps=3),
        GradientStep(0.05, steps=2, batch=4),
        Refit(PUBLIC),
    ],
    ids=repr,
)
def test_proposers_on_vectors(proposer, learner):
    check_proposer(proposer, learner)


@pytest.mark.parametrize(
    "learner", [pytest.param(v, id=k) for k, v in ESTIMATORS.items()]
)
def test_proposers_on_estimators(learner):
    check_proposer(Refit(PUBLIC, private_weight=1, public_weight=1), learner)


@pytest.mark.parametrize(
    "learner",
    [LINEAR["logistic"], LINEAR["multinomial"], ESTIMATORS["tree classifier"]],
)
def test_soft_labels(learner):
    check_proposer(Refit(PUBLIC, soft=True), learner)


@pytest.mark.parametrize(
    "sampler",
    [Uniform(1), Uniform(7), Uniform(29), SameCluster(np.arange(30) % 3, 4), Nobody()],
    ids=str,
)
def test_samplers(sampler):
    check_sampler(sampler)


@pytest.mark.parametrize(
    "adopter",
    [Best(), BestOrStay(), TopK(3), TopK(99), Weighted(), Weighted(10.0)],
    ids=repr,
)
def test_adopters(adopter):
    check_adopter(adopter)


def test_parts_may_round_and_use_their_arrays_again():
    buffers = {}

    def turns(trust, r, seed):
        found = buffers.setdefault(
            len(trust.targets), np.empty((len(trust.targets), 1), dtype=np.int64)
        )
        found[:, 0] = (trust.targets + 1 + r) % trust.n
        return found

    def soft(trust, peers, losses):
        weights = np.where(np.isfinite(losses[:, 1:]), np.exp(-losses[:, 1:]), 0.0)
        total = weights.sum(axis=1, keepdims=True)
        weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
        return Choice(
            np.where(weights > 0, peers, -1), weights, 1 - weights.sum(axis=1)
        )

    check_sampler(turns)
    check_adopter(soft)
    check_fleet(
        ArrayFleet, learner=Linear(), proposer=GradientStep(0.05), adopter=soft, peers=7
    )


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    "settings",
    [
        {"learner": Linear(), "proposer": GradientStep(0.05), "adopter": Best()},
        {
            "learner": Linear(intercept=True, l2=0.01),
            "proposer": GradientStep(0.05, steps=3),
            "adopter": TopK(3),
        },
        {
            "learner": Linear("huber"),
            "proposer": GradientStep(0.05, batch=3),
            "adopter": Weighted(0.1),
        },
        {
            "learner": Linear("absolute"),
            "proposer": GradientStep(0.01),
            "adopter": BestOrStay(),
            "start": "own",
        },
        {
            "learner": Linear(),
            "proposer": Refit(PUBLIC),
            "adopter": Best(),
            "targets": [3, 1],
        },
        {
            "learner": Linear(),
            "proposer": GradientStep(0.05),
            "adopter": Best(),
            "holdout": 0.4,
            "local": GradientStep(0.02, batch=2),
        },
    ],
    ids=lambda s: (
        f"{s['learner'].kind}-{type(s['proposer']).__name__}-{type(s['adopter']).__name__}"
    ),
)
def test_array_fleet_is_loop_fleet(settings, compiled, uncompiled):
    if not compiled:
        uncompiled()
    check_fleet(ArrayFleet, **settings)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_trees_in_either_fleet(n_jobs):
    tree = Estimator(DecisionTreeRegressor(max_depth=3, max_features=1))
    check_fleet(
        lambda devices, **kw: ArrayFleet(devices, n_jobs=n_jobs, **kw),
        learner=tree,
        proposer=Refit(PUBLIC),
        adopter=Best(),
        rounds=2,
        peers=3,
    )


def test_logistic_fleets_agree():
    devices = clustered_regression(n=12, rows=(4, 15), features=3, seed=1)
    devices.y = (devices.y > 0) + 0.0
    check_fleet(
        ArrayFleet,
        learner=Linear("logistic"),
        proposer=GradientStep(0.5),
        adopter=Best(),
        devices=devices,
    )
    multinomial = Linear("multinomial", classes=2, intercept=True)
    check_fleet(
        ArrayFleet,
        learner=multinomial,
        proposer=GradientStep(0.5),
        adopter=TopK(2),
        devices=devices,
    )


def test_fleets_agree_down_to_the_floor_of_rounding():
    devices = clustered_regression(n=12, clusters=2, rows=(4, 15), features=3, seed=1)
    step = GradientStep(0.2)
    check_fleet(
        ArrayFleet,
        learner=Linear(),
        proposer=step,
        adopter=Best(),
        devices=devices,
        rounds=100,
        peers=8,
    )
    fleet = ArrayFleet(devices, learner=Linear(), proposer=step, seed=5)
    *_, last = personalize(
        fleet, sampler=Uniform(8), adopter=Best(), rounds=100, seed=9
    )
    assert last.loss.max() < 1e-25  # rounds enough to get there


def test_many_targets_in_chunks(monkeypatch, uncompiled):
    uncompiled()
    monkeypatch.setattr("persfl.fleets.batched.CHUNK", 3000)
    check_fleet(
        ArrayFleet,
        learner=Linear(),
        proposer=GradientStep(0.05, batch=3),
        adopter=TopK(2),
        start="own",
    )


class TestChecksNotice:
    """A check that cannot fail is worth nothing."""

    def test_wrong_gradient(self):
        class Wrong(Linear):
            def grad(self, model, data):
                return 2 * super().grad(model, data)

        with pytest.raises(AssertionError, match="gradient"):
            check_learner(Wrong())

    def test_weights_ignored(self):
        class Wrong(Linear):
            def loss(self, model, data):
                return super().loss(model, type(data)(data.X, data.y))

        with pytest.raises(AssertionError, match="weight 0"):
            check_learner(Wrong())

    def test_random_answer(self):
        class Wrong(GradientStep):
            def answer(self, learner, probe, data, stream):
                return probe + np.random.default_rng().standard_normal(probe.shape)

        with pytest.raises(AssertionError, match="same question"):
            check_proposer(Wrong(0.1), Linear())

    def test_sampler_that_asks_itself(self):
        with pytest.raises(AssertionError, match="itself"):
            check_sampler(lambda trust, r, seed: trust.targets[:, None].copy())

    def test_adopter_of_unusable_answers(self):
        def first(trust, peers, losses):
            return Choice(
                peers[:, :1],
                np.ones((len(peers), min(1, peers.shape[1]))),
                np.zeros(len(peers)),
            )

        with pytest.raises(AssertionError, match="usable"):
            check_adopter(first)

    def test_adopter_that_the_loop_refuses(self):
        with pytest.raises(
            AssertionError, match=r"must return a Choice.*array of shape \(6, 5\)"
        ):
            check_adopter(lambda trust, peers, losses: losses[:, 1:])

        def too_much(trust, peers, losses):
            usable = np.isfinite(losses[:, 1:])
            return Choice(
                np.where(usable, peers, -1), usable + 0.0, 1.0 - usable.sum(axis=1)
            )

        with pytest.raises(
            AssertionError, match="sum of 1 and a least share of -4 for target 0"
        ):
            check_adopter(too_much)

    def test_fleet_with_another_step(self):
        def wrong(devices, *, proposer, **kw):
            return LoopFleet(devices, proposer=GradientStep(0.051), **kw)

        with pytest.raises(AssertionError, match="losses must be those of LoopFleet"):
            check_fleet(
                wrong, learner=Linear(), proposer=GradientStep(0.05), adopter=Best()
            )
