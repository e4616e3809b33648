"""The only place that reaches inside scikit-learn; its canary is in
`tests/estimators/test_personalized.py`.

An estimator's settings are checked by its `fit`. Between machines fits skip that check, because it
would be made for every answer, so it is made once, before the first. scikit-learn has no public
function for it.
"""

from __future__ import annotations

from sklearn.base import BaseEstimator


def check_settings(estimator: BaseEstimator) -> None:
    """Raise a ValueError or TypeError where an estimator's settings are of no use.

    >>> from sklearn.tree import DecisionTreeRegressor
    >>> check_settings(DecisionTreeRegressor(max_depth=3))
    >>> check_settings(DecisionTreeRegressor(max_depth=-3))
    Traceback (most recent call last):
    ...
    sklearn.utils._param_validation.InvalidParameterError: The 'max_depth' parameter ...
    """
    estimator._validate_params()
