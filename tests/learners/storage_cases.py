"""Learners and models of every family, whose numbers are the same on every machine.

What they become on disk and on the wire is hashed in `storage_bytes.json`, which the code of
commit 2abd345 wrote, before families had one codec. A hash that changes is a run folder that an
older persfl no longer reads, or a node that no longer understands its coordinator.
"""

from functools import partial

import numpy as np
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import (
    LogisticRegression,
    Perceptron,
    PoissonRegressor,
    Ridge,
)
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from persfl import Estimator, Linear, Tree
from persfl.learners import MLP, Network
from persfl.learners.plain import Plain
from persfl.learners.tree import Grown

X = np.arange(16.0).reshape(8, 2) / 4
Y = np.array([0.0, 0.0, 1.0, 1.0, 4.0, 4.0, 8.0, 8.0])
CLASSES = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0])

SMALL = Grown(
    np.array([1, -1, 0, -1, -1]),
    np.array([0.5, 0.0, 1.25, 0.0, 0.0]),
    np.array([1, -1, 3, -1, -1]),
    np.array([2, -1, 4, -1, -1]),
    np.array([0.0, 1.0, 0.0, -2.0, 3.5]),
)
LEAF = Grown(np.array([-1]), np.zeros(1), np.array([-1]), np.array([-1]), np.ones(1))
ABSENT = LEAF._replace(value=np.full(1, np.nan))


def given(model, **numbers):
    """A fitted model with these numbers: what fits compute differs between machines."""
    for name, value in numbers.items():
        setattr(model, name, value)
    return model


def line(kind, slopes, level, **more):
    return given(
        kind, coef_=np.array(slopes), intercept_=level, n_features_in_=2, **more
    )


RIDGE = line(Ridge(), [0.5, -2.0], 0.25)
COUNTS = line(PoissonRegressor(), [0.5, -2.0], 0.25)
SIDES = line(
    Perceptron(), [[0.5, -2.0]], np.array([1.0]), classes_=np.array([0.0, 1.0])
)
TWO = line(
    LogisticRegression(), [[1.0, 2.0]], np.array([0.5]), classes_=np.array([0.0, 1.0])
)
THREE = line(
    LogisticRegression(),
    np.arange(6.0).reshape(2, 3).T,
    np.zeros(3),
    classes_=np.array([0.0, 1.0, 2.0]),
)
SCALED = Pipeline(
    [
        (
            "scale",
            given(
                StandardScaler(),
                mean_=np.array([1.0, 2.0]),
                scale_=np.array([0.5, 4.0]),
                n_features_in_=2,
            ),
        ),
        ("line", RIDGE),
    ]
)
TREE = DecisionTreeRegressor(max_depth=3, random_state=0).fit(X, Y)
CLASSIFIER = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, CLASSES)
BOOSTED = GradientBoostingRegressor(
    n_estimators=2, learning_rate=0.5, max_depth=1, random_state=0
).fit(X, Y)
FOREST = Plain(
    "chances",
    np.zeros(2),
    np.array([0.0, 2.0]),
    trees=(
        SMALL._replace(value=np.arange(10.0).reshape(5, 2)),
        LEAF._replace(value=np.array([[0.25, 0.75]])),
    ),
)
FINE = Plain("exp", np.array([0.5]), trees=(SMALL, LEAF), fine=True)
SEVERAL = Plain(
    "softmax",
    np.array([0.0, 1.0, 2.0]),
    np.array([0.0, 1.0, 2.0]),
    rate=0.25,
    trees=(SMALL, LEAF, SMALL),
    stride=3,
)
CASES = {
    "ridge": (Estimator(Ridge()), RIDGE),
    "two": (Estimator(LogisticRegression()), TWO),
    "three": (Estimator(LogisticRegression()), THREE),
    "scaled": (Estimator(SCALED), SCALED),
    "counts": (Estimator(PoissonRegressor()), COUNTS),
    "sides": (Estimator(Perceptron()), SIDES),
    "sklearn tree": (Estimator(DecisionTreeRegressor()), TREE),
    "sklearn classifier": (Estimator(DecisionTreeClassifier()), CLASSIFIER),
    "boosted": (Estimator(GradientBoostingRegressor()), BOOSTED),
    "forest": (Estimator(RandomForestClassifier()), FOREST),
    "fine": (Estimator(HistGradientBoostingRegressor()), FINE),
    "several": (Estimator(GradientBoostingRegressor()), SEVERAL),
    "tree": (Tree(max_depth=2), SMALL),
    "linear": (Linear("huber", delta=2.0), np.array([1.0, -0.5, 0.125])),
    "multinomial": (Linear("multinomial", classes=3), np.arange(9.0)),
}
FLEETS = {
    "vectors": np.arange(12.0).reshape(4, 3),
    "float32": np.arange(12.0, dtype=np.float32).reshape(4, 3),
    "list of vectors": [np.zeros(2), np.ones(2)],
    "mixes of vectors": [[(0.5, np.zeros(2)), (0.5, np.ones(2))], np.full(2, 3.0)],
    "trees": [SMALL, LEAF, ABSENT],
    "mixes of trees": [[(0.25, SMALL), (0.75, LEAF)], LEAF],
    "lines": [RIDGE, None, SCALED],
    "classes": [TWO, THREE, CLASSIFIER, FOREST, SEVERAL, SIDES],
    "mixes of forests": [[(0.5, TREE), (0.5, BOOSTED)], FINE],
}


def network():
    return Network(partial(MLP((2,), "tanh"), 3, 1), loss="squared", l2=0.5, epochs=3)
