"""An estimator around a result that came from elsewhere: a run folder, or a federation."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from persfl.estimators.classifier import PersonalizedClassifier
from persfl.estimators.regressor import PersonalizedRegressor
from persfl.fitting import Fitted
from persfl.methods import Method, method_of


def estimator_of(
    fitted: Fitted, estimator: object = None
) -> PersonalizedRegressor | PersonalizedClassifier:
    """The fitted estimator that shows this result; `estimator` is what its models were made of."""
    kind = PersonalizedClassifier if fitted.classes else PersonalizedRegressor
    apart = ("seed", "public")  # by another name; in the units of the run
    settings = {
        field.name: getattr(fitted.settings, field.name)
        for field in fields(fitted.settings)
        if field.name not in apart
    }
    schema = fitted.schema
    model = kind(
        estimator,
        device=schema.device,
        method=_named(fitted.method),
        impute=schema.impute,
        random_state=fitted.settings.seed,
        **settings,
    )
    model.fitted_ = fitted
    # scikit-learn's own names of the columns, by which it checks tables
    model.n_features_in_ = schema.features
    if schema.names is not None:
        model.feature_names_in_ = np.array(schema.names, dtype=object)
    return model


def _named(method: Method) -> str | Method:
    """A method by its name, where all its settings are the usual ones."""
    return method.name if method == method_of(method.name) else method
