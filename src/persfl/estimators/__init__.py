"""The front door for Python: `fit(X, y, devices=...)` and the rest of scikit-learn's rules."""

from persfl.estimators.device_folds import DeviceKFold, LeaveDevicesOut
from persfl.estimators.personalized import (
    PersonalizedClassifier,
    PersonalizedRegressor,
    estimator_of,
    judge_table,
    rows_by_device,
)

__all__ = [
    "DeviceKFold",
    "LeaveDevicesOut",
    "PersonalizedClassifier",
    "PersonalizedRegressor",
    "estimator_of",
    "judge_table",
    "rows_by_device",
]
