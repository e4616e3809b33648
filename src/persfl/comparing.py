"""Comparing methods; it lives in `persfl.lab`."""

from persfl.lab.comparison_cells import Cell, measurements
from persfl.lab.comparison_sets import DataSet, Table
from persfl.lab.kept_cells import read_cells, run_cells
from persfl.lab.row_splits import RowSplit
from persfl.lab.standings import Standing, by_set, mean_regret, standings
from persfl.lab.trial import compare, summary

__all__ = [
    "Cell",
    "DataSet",
    "RowSplit",
    "Standing",
    "Table",
    "by_set",
    "compare",
    "mean_regret",
    "measurements",
    "read_cells",
    "run_cells",
    "standings",
    "summary",
]
