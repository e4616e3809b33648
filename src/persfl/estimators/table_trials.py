"""What an estimator would do with a table, short of fitting it."""

from __future__ import annotations

from numpy.typing import ArrayLike

from persfl.devices import Devices
from persfl.estimators.base import Personalized
from persfl.evaluation.verdicts import Worth
from persfl.fitting import judge_fleet
from persfl.fitting.judgement import Rivals
from persfl.fitting.schema import Ids, Table, Weights
from persfl.training import Keep


def judge_table(
    model: Personalized,
    X: Table,
    y: ArrayLike,
    devices: Ids = None,
    sample_weight: Weights = None,
    *,
    keep: Keep | None = None,
    rivals: Rivals | None = None,
) -> Worth | None:
    """The trial of a fit with these settings: errors on rows held back, of `rivals` too.

    None where there is nobody to compare with.
    """
    asked = model._asked(X, y, devices, sample_weight)
    return judge_fleet(*asked, keep=keep, rivals=rivals)


def rows_by_device(
    model: Personalized,
    X: Table,
    y: ArrayLike,
    devices: Ids = None,
    sample_weight: Weights = None,
) -> tuple[Devices, int]:
    """A table as this estimator would read it, checked, and how many classes its labels have."""
    rows, *_, schema = model._asked(X, y, devices, sample_weight)
    rows.check(quiet=True)
    return rows, schema.labels.count
