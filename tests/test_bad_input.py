"""Everything a person can get wrong is answered with one sentence that says what, where and
what to do.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from persfl import (
    ArrayFleet,
    Devices,
    Estimator,
    GradientStep,
    Linear,
    LoopFleet,
    PersflWarning,
    Refit,
    SameCluster,
    TopK,
    Trust,
    Uniform,
    personalize,
)
from persfl.errors import CannotMix, InputError, MissingExtra, need
from persfl.sources import clustered_regression, from_table, read_table

FRAME = pd.DataFrame({"x": [1.0, 2.0], "z": [3.0, 5.0]})
GOOD = ([[1.0, 2.0], [3.0, 5.0]], [1.0, 2.0])


def spoiled(value, column=1):
    X = np.array(GOOD[0])
    X[1, column] = value
    return X, GOOD[1]


@pytest.mark.parametrize(
    ("devices", "sentence"),
    [
        (
            {"a": GOOD, "b": spoiled(np.nan)},
            r"device 'b' has a missing value \(NaN\) in column 1, row 1 \(1 such values in all\)",
        ),
        (
            {"a": GOOD, "b": spoiled(np.inf, 0)},
            "device 'b' has an infinite value in column 0, row 1",
        ),
        (
            {"a": GOOD, "b": (GOOD[0], [1.0, np.nan])},
            r"device 'b' has a missing value \(NaN\) in y, row 1",
        ),
        (
            {"a": GOOD, "b": (np.empty((0, 2)), [])},
            "device 'b' has no rows. Give it at least one, or leave it out.",
        ),
        (
            {"a": GOOD, "b": ([["x", 1.0]], [1.0])},
            "X of device 'b' must hold numbers. Got text: 'x'.",
        ),
        (
            {"a": GOOD, "b": ([[1.0, 2.0]], ["high"])},
            "y of device 'b' must hold numbers. Got text: 'high'.",
        ),
        (
            {"a": GOOD, "b": ([[1.0], [2.0]], [1.0, 2.0])},
            "device 'a' has 2 and device 'b' has 1",
        ),
        (
            {"a": GOOD, "b": ([1.0, 2.0], [1.0, 2.0])},
            r"X of device 'b' must have rows and columns \(2 axes\). Got shape \(2,\).",
        ),
        (
            {"a": GOOD, "b": (GOOD[0], [1.0])},
            "device 'b' must have one label and weight per row. Got 2 rows, 1 labels",
        ),
        ({"a": GOOD, "b": (*GOOD, [1.0, -1.0])}, "device 'b' has a negative weight"),
        ({"a": GOOD, "b": (*GOOD, [0.0, 0.0])}, "device 'b' has only rows of weight 0"),
        (
            {"a": GOOD, "b": ([[1.0, 2.0], [3.0]], [1.0, 2.0])},
            "X of device 'b' must hold numbers in a rectangle",
        ),
        (
            {"a": (FRAME, [1.0, 2.0]), "b": (FRAME[["x"]], [1.0, 2.0])},
            "device 'b' differs in 'z'",
        ),
        (
            {"a": (FRAME.assign(x=["u", "v"]), [1.0, 2.0])},
            "column 'x' of device 'a' must hold numbers",
        ),
        (
            {"a": (FRAME.assign(z=np.nan), [1.0, 2.0])},
            r"device 'a' has a missing value \(NaN\) in column 'z', row 0",
        ),
        (FRAME, r"a table becomes devices by persfl.sources.from_table"),
        ({"a": 5}, r"device 'a' must be \(X, y\), \(X, y, weight\) or Data. Got int."),
        ([], "a fleet needs at least one device. Got none."),
        ("rows.csv", "devices must be a list of"),
    ],
)
def test_devices(devices, sentence):
    with pytest.raises(InputError, match=sentence):
        Devices.of(devices)


def test_duplicate_ids():
    with pytest.raises(InputError, match="device ids must differ. Got 'a' twice."):
        Devices.of([GOOD, GOOD], ids=["a", "a"])
    with pytest.raises(
        InputError, match="ids must name each of the 2 devices. Got 1 ids."
    ):
        Devices.of([GOOD, GOOD], ids=["a"])


def test_thin_data_is_warned_about():
    with pytest.warns(PersflWarning, match="device 'b' has a single row"):
        Devices.of({"a": GOOD, "b": ([[9.0, 8.0]], [1.0])})
    with pytest.warns(
        PersflWarning,
        match="column 0 has the same value in every row of every device. Drop it",
    ):
        Devices.of(
            [
                ([[1.0, 2.0], [1.0, 3.0]], [1.0, 2.0]),
                ([[1.0, 4.0], [1.0, 5.0]], [1.0, 2.0]),
            ]
        )


def fleet(**more):
    devices = clustered_regression(n=5, rows=4, features=2, seed=0)
    return ArrayFleet(
        devices, **({"learner": Linear(), "proposer": GradientStep(0.05)} | more)
    )


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"targets": ["x"]}, "there is no device 'x'. Known: 0, 1, 2 and 2 more."),
        ({"targets": []}, "targets must be a list of at least one device id"),
        ({"targets": [1, 1]}, "targets must differ"),
        ({"targets": [[0]]}, "targets must be device ids"),
        ({"local": "x"}, r"local must be GradientStep"),
        ({"start": "random"}, "start must be None, 'zeros', 'own', a model, or a list"),
        ({"start": np.zeros(3)}, "must be 2 finite numbers"),
        ({"start": np.full(2, np.nan)}, "must be 2 finite numbers"),
        (
            {"start": [np.zeros(2)]},
            r"start must hold one model per target \(5\). Got 1.",
        ),
        ({"holdout": 1.0}, "holdout must be a share below 1"),
        (
            {"learner": Ridge()},
            r"learner must be a persfl learner. Got Ridge\(\). Wrap it: Estimator\(Ridge\(\)\).",
        ),
        ({"proposer": 0.05}, r"proposer must be GradientStep\(...\), Refit\(...\)"),
        (
            {"proposer": Refit(np.eye(3))},
            "public points must have the devices' 2 features. Got 3.",
        ),
        (
            {"learner": [Linear()]},
            r"learner must be one learner or one per target \(5\). Got 1.",
        ),
        (
            {"learner": Linear("logistic")},
            "labels of device 0 do not fit: loss='logistic' takes labels 0 and 1",
        ),
        (
            {"learner": Linear("multinomial", classes=3)},
            "labels of device 0 do not fit: .*takes whole labels from 0 to 2",
        ),
    ],
)
def test_fleets(wrong, sentence):
    with pytest.raises(InputError, match=sentence):
        fleet(**wrong)


def test_too_few_rows_to_hold_out():
    with (
        pytest.warns(PersflWarning),
        pytest.raises(
            InputError,
            match="holdout needs at least 2 rows of each target. Device 'b' has 1.",
        ),
    ):
        LoopFleet(
            {"a": GOOD, "b": ([[1.0, 2.0]], [1.0])},
            learner=Linear(),
            proposer=GradientStep(0.1),
            holdout=0.5,
        )


def test_labels_of_peers_are_checked_too():
    rng = np.random.default_rng(0)
    rows = [
        (
            rng.standard_normal((8, 2)),
            rng.integers(0, 2, 8) if i == 0 else np.full(8, 3),
        )
        for i in range(4)
    ]
    with pytest.raises(InputError, match="labels of device 1 do not fit"):
        ArrayFleet(
            rows,
            learner=Linear("logistic"),
            proposer=GradientStep(0.05),
            targets=[0],
            holdout=0.3,
        )


def test_a_target_that_cannot_start_from_its_own_rows():
    """A single class is no obstacle: that is then the answer. Too few rows for the estimator's
    own folds are one.
    """
    rng = np.random.default_rng(0)
    rows = [(rng.standard_normal((8, 2)), np.ones(8)) for i in range(3)]
    fleet = LoopFleet(
        rows, learner=Estimator(LogisticRegression()), proposer=Refit(np.eye(2))
    )
    assert all(model.predict([[0.0, 0.0]]) == 1 for model in fleet.models)
    folds = Estimator(GridSearchCV(Ridge(), {"alpha": [1.0]}, cv=9))
    with pytest.raises(
        InputError,
        match="device 0 cannot start from its own rows: .*Hand in a model with start=",
    ):
        LoopFleet(rows, learner=folds, proposer=Refit(np.eye(2)))


def test_columns_in_another_order_are_put_right():
    devices = Devices.of(
        {"a": (FRAME, [1.0, 2.0]), "b": (FRAME[["z", "x"]], [1.0, 2.0])}
    )
    assert np.array_equal(devices[0].X, devices[1].X)
    assert devices.columns == ["x", "z"]


def test_ids_may_be_arrays():
    assert Devices.of([GOOD, GOOD], ids=np.array(["a", "b"])).index("b") == 1
    assert Devices.of([GOOD, GOOD], ids=pd.Index([7, 9])).index(9) == 1


def test_gradients_of_trees():
    trees = fleet(learner=Estimator(DecisionTreeRegressor()))
    with pytest.raises(
        InputError,
        match="GradientStep needs a learner with gradients, such as Linear.*use Refit",
    ):
        next(personalize(trees, sampler=Uniform(2), adopter=TopK(2), rounds=1))


def test_averaging_trees():
    trees = fleet(
        learner=Estimator(DecisionTreeRegressor(max_depth=2)), proposer=Refit(np.eye(2))
    )
    with pytest.raises(
        CannotMix,
        match=r"DecisionTreeRegressor cannot be averaged. Use an adopter of one answer: Best\(\)",
    ):
        next(personalize(trees, sampler=Uniform(2), adopter=TopK(2), rounds=1))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: Linear("hinge"),
            (
                "loss must be one of 'squared', 'absolute', 'huber', 'logistic', 'poisson',"
                " 'multinomial'. Got 'hinge'."
            ),
        ),
        (lambda: Linear("multinomial"), "classes must be given for loss='multinomial'"),
        (lambda: Linear(l2=-1), "l2 must be at least 0. Got -1."),
        (lambda: Linear("huber", delta=0), "delta must be greater than 0. Got 0."),
        (lambda: GradientStep(0), "step_size must be greater than 0. Got 0."),
        (lambda: GradientStep("big"), "step_size must be a finite number. Got 'big'."),
        (lambda: GradientStep(0.1, steps=0), "steps must be at least 1. Got 0."),
        (
            lambda: GradientStep(0.1, batch=2.5),
            "batch must be a whole number. Got 2.5.",
        ),
        (
            lambda: Refit([[np.nan]]),
            "public must hold at least one point and finite numbers only",
        ),
        (
            lambda: Refit([[1.0]], private_weight=0),
            "private_weight must be greater than 0. Got 0.",
        ),
        (
            lambda: Estimator(KNeighborsRegressor()),
            "KNeighborsRegressor does not take sample_weight.*for example RandomForestRegressor",
        ),
        (
            lambda: Estimator(KMeans()),
            "estimator must be a scikit-learn regressor or classifier. Got KMeans.",
        ),
        (
            lambda: Estimator(DecisionTreeRegressor(), loss="log"),
            "loss must be one of 'squared', 'absolute'. Got 'log'.",
        ),
        (
            lambda: Estimator(LinearSVC(), loss="log"),
            "LinearSVC has no predict_proba, which loss='log' needs. Use loss='error'.",
        ),
        (
            lambda: fleet(learner=Estimator(DecisionTreeClassifier()), start="zeros"),
            "start='zeros' has no meaning for a classifier",
        ),
        (
            lambda: SameCluster([0, 0, 1])(Trust(4, np.arange(4)), 0, 0),
            "labels must name a cluster for each of the 4 devices. Got 3",
        ),
        (
            lambda: SameCluster([0, 0, 1, 1], 2)(Trust(4, np.arange(4)), 0, 0),
            "a target has 1 others in its cluster",
        ),
        (
            lambda: clustered_regression(n=5, clusters=9),
            r"clusters must be at most 5 \(5 devices\). Got 9.",
        ),
        (
            lambda: clustered_regression(n=2, labels=[0, 7]),
            "labels must give each of 2 devices a cluster from 0 to 1",
        ),
        (lambda: clustered_regression(rows=(5, 2)), "rows must be at least 5. Got 2."),
    ],
)
def test_parts(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()


TABLE = pd.DataFrame(
    {
        "who": ["a", "a", "b", "b"],
        "x": [1.0, 2.0, 3.0, 5.0],
        "sex": ["m", "f", "m", "f"],
        "y": [1.0, 2.0, 3.0, 4.0],
    }
)


@pytest.mark.parametrize(
    ("change", "options", "sentence"),
    [
        ({}, {}, "column 'sex' must hold numbers. Got .* such as 'm': encode it"),
        (
            {},
            {"features": ["x", "z"]},
            "the table has no column 'z'. Its columns: 'who', 'x', 'sex', 'y'.",
        ),
        (
            {},
            {"features": ["x"], "device": "patient"},
            "the table has no column 'patient'",
        ),
        (
            {"x": [1.0, np.nan, 3.0, np.nan]},
            {"features": ["x"]},
            r"device 'a' has a missing value \(NaN\) in column 'x', row 1 \(2 such",
        ),
        (
            {"who": ["a", None, "b", "b"]},
            {"features": ["x"]},
            "column 'who' must say whose row it is; 1 rows leave it empty",
        ),
        ({}, {"features": []}, "the table has no feature columns"),
        (
            {},
            {"features": ["x", "y"]},
            "must be two columns, and neither of them a feature",
        ),
        ({}, {"features": ["x"], "label": "who"}, "must be two columns"),
        ({"x": [1j, 2j, 3j, 4j]}, {"features": ["x"]}, "column 'x' must hold numbers"),
        (
            {"who": [["a"], ["a"], ["b"], ["b"]]},
            {"features": ["x"]},
            "column 'who' must hold plain ids",
        ),
    ],
)
def test_tables(change, options, sentence):
    with pytest.raises(InputError, match=sentence):
        from_table(
            TABLE.assign(**change), **({"device": "who", "label": "y"} | options)
        )


def test_files(tmp_path):
    with pytest.raises(InputError, match="there is no file"):
        read_table(tmp_path / "none.csv", device="who", label="y")
    (tmp_path / "rows.xls").write_text("x")
    with pytest.raises(
        InputError,
        match=r"'rows.xls' must end in .csv, .tsv, .csv.gz or .parquet. Got '.xls'. Save the sheet",
    ):
        read_table(tmp_path / "rows.xls", device="who", label="y")
    (tmp_path / "rows.parquet").write_text("not parquet")
    with pytest.raises(InputError, match=r"'rows.parquet' could not be read"):
        read_table(tmp_path / "rows.parquet", device="who", label="y")


def test_an_absent_extra_says_which_line_to_type():
    with pytest.raises(
        MissingExtra,
        match=r"drawing needs the package 'nosuchpackage'.*pip install 'persfl\[report\]'",
    ):
        need("nosuchpackage.deep", extra="report", why="drawing")
