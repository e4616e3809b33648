"""A fit as a value: `fit_fleet` makes a `Fitted` of rows, a model family and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from persfl import late_names

if TYPE_CHECKING:
    from persfl.fitting.arrivals import Arrivals, first_arrivals, more_arrivals
    from persfl.fitting.cells import Labels
    from persfl.fitting.families import learner_for
    from persfl.fitting.fit import fit_fleet, judge_fleet
    from persfl.fitting.fitted import Fitted, fitted_of
    from persfl.fitting.schema import TableSchema, learn_table
    from persfl.fitting.setup import FitSettings

__all__ = [
    "Arrivals",
    "FitSettings",
    "Fitted",
    "Labels",
    "TableSchema",
    "first_arrivals",
    "fit_fleet",
    "fitted_of",
    "judge_fleet",
    "learn_table",
    "learner_for",
    "more_arrivals",
]

__getattr__ = late_names(
    __name__,
    {
        "Arrivals": "arrivals",
        "first_arrivals": "arrivals",
        "more_arrivals": "arrivals",
        "Labels": "cells",
        "learner_for": "families",
        "fit_fleet": "fit",
        "judge_fleet": "fit",
        "Fitted": "fitted",
        "fitted_of": "fitted",
        "TableSchema": "schema",
        "learn_table": "schema",
        "FitSettings": "setup",
    },
)
