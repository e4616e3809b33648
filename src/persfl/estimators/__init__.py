"""The front door for Python: `fit(X, y, devices=...)` and the rest of scikit-learn's rules."""

from persfl.estimators.classifier import PersonalizedClassifier
from persfl.estimators.facade import estimator_of
from persfl.estimators.regressor import PersonalizedRegressor
from persfl.estimators.table_trials import judge_table, rows_by_device

__all__ = [
    "PersonalizedClassifier",
    "PersonalizedRegressor",
    "estimator_of",
    "judge_table",
    "rows_by_device",
]
