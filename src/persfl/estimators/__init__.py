"""The front door for Python: `fit(X, y, devices=...)` and the rest of scikit-learn's rules."""

from persfl.estimators.classifier import PersonalizedClassifier
from persfl.estimators.regressor import PersonalizedRegressor

__all__ = ["PersonalizedClassifier", "PersonalizedRegressor"]
