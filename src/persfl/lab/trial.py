"""One way to personalize beside its rivals: the same rows to learn from, the same rows held back.

Nothing is chosen by the rows held back. To what `persfl.evaluation` measures anyway (own rows, one
model for all in shared and in centred units, fine-tuned, personalized) this adds, for models that
take gradient steps, federated averaging, the same with own fine-tuning, and IFCA told 2 and 4
clusters.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from persfl.errors import InputError
from persfl.estimators.personalized import judge_table
from persfl.evaluation.verdicts import Worth
from persfl.lab.line_up import rivals


def compare(model: Any, X: Any, y: Any, devices: Any = None, **fit: Any) -> Worth:
    """Errors of all methods on held-out rows.

    `model` is an unfitted PersonalizedRegressor or PersonalizedClassifier with its settings.

    >>> import numpy as np
    >>> from persfl import PersonalizedRegressor
    >>> from persfl.methods import Paper
    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(
    ...     n=30, clusters=2, rows=10, features=5, noise=0.1, seed=0
    ... )
    >>> model = PersonalizedRegressor(method=Paper(rounds=50))
    >>> worth = compare(model, rows.X, rows.y, devices=np.repeat(np.arange(30), 10))
    >>> table = summary(worth)
    >>> table.index.tolist()[-4:]
    ['fedavg', 'fedavg+fine-tuning', 'ifca (2)', 'ifca (4)']
    >>> bool(table.loc["personalized", "error"] < table.loc["fedavg", "error"])
    True
    """
    if not model.holdout > 0:
        need = "comparing needs rows to judge by"
        raise InputError(f"{need}. Use holdout above 0, for example 0.25.")
    worth = judge_table(model, X, y, devices, rivals=rivals, **fit)
    if worth is None:
        need = "it takes at least two devices with four rows each"
        raise InputError(f"nothing could be compared: {need}.")
    return worth


def summary(worth: Worth) -> pd.DataFrame:
    """One row per method: mean and median error over devices.

    Beside it the personalized model's typical gain over the method, with its interval.
    """
    table = pd.DataFrame(worth.summary()).drop(columns="key")
    return table.rename(columns={"name": "method"}).set_index("method")
