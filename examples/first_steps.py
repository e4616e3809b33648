"""One device among a hundred finds out who helps it: Algorithm 1, Algorithm 2 and the limits of
going alone.

python examples/first_steps.py
"""

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from persfl import (
    ArrayFleet,
    Best,
    Estimator,
    GradientStep,
    Linear,
    Refit,
    Uniform,
    personalize,
)
from persfl.sources import clustered_regression

devices = clustered_regression(
    n=100, clusters=2, rows=10, features=20, noise=0.1, seed=0
)
target = 0
truth = devices.true_weights[target]


def error(w: np.ndarray) -> float:
    """Squared distance from the weights that made the target's data."""
    return float(((w - truth) ** 2).sum())


print(
    f"{len(devices)} devices, {devices[target].rows} rows each, {devices.features} weights to"
    " learn."
)
print("Two kinds of devices, and nobody knows who is of which.")

alone = Linear().fit(devices[target], None)
everybody = Linear().fit(type(devices[0])(devices.X, devices.y), None)

fleet = ArrayFleet(
    devices, learner=Linear(), proposer=GradientStep(0.05), targets=[target], seed=0
)
for round_ in personalize(
    fleet, sampler=Uniform(20), adopter=Best(), rounds=500, seed=0
):
    if round_.r in (0, 10, 50, 100, 200, 499):
        print(
            f"  round {round_.r:3}: own loss {round_.loss[0]:10.5f}   error"
            f" {error(fleet.models[0]):10.5f}"
        )

print(
    f"error alone {error(alone):.3f}, everybody pooled {error(everybody):.3f}, personalized"
    f" {error(fleet.models[0]):.3f}"
)

trust = round_.trust.table().sort_values("adopted", ascending=False)
kin = devices.clusters[trust["peer"]] == devices.clusters[target]
print(
    f"{trust['adopted'][kin].sum() / trust['adopted'].sum():.1%} of the adopted answers came from"
    " devices of the target's own kind:"
)
print(trust.head(5).to_string(index=False))

rng = np.random.default_rng(0)
public, fresh = rng.standard_normal((100, 20)), rng.standard_normal((1000, 20))
trees = ArrayFleet(
    devices,
    learner=Estimator(DecisionTreeRegressor(max_depth=3)),
    proposer=Refit(public, private_weight=1, public_weight=1),
    targets=[target],
)
before = np.mean((trees.models[0].predict(fresh) - fresh @ truth) ** 2)
for _ in personalize(trees, sampler=Uniform(20), adopter=Best(), rounds=50, seed=0):
    pass
after = np.mean((trees.models[0].predict(fresh) - fresh @ truth) ** 2)
print(
    "the same with decision trees, which have no weights to share: error on fresh rows"
    f" {before:.1f} -> {after:.1f} in 50 rounds"
)
