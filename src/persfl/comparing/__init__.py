"""The addresses that comparisons had before they moved into `persfl.lab`; they keep working."""

import sys
from types import ModuleType

from persfl.lab.comparison_cells import Cell, measurements, read_cells, run_cells
from persfl.lab.comparison_sets import DataSet, Table
from persfl.lab.row_splits import RowSplit
from persfl.lab.standings import Standing, by_set, mean_regret, standings
from persfl.lab.trial import compare, summary

__all__ = ["compare", "summary"]

# Modules that are no files any more: `from persfl.comparing.cells import Cell` finds them here.
_MODULES: dict[str, dict[str, object]] = {
    "trial": {"compare": compare, "summary": summary},
    "sets": {"DataSet": DataSet, "Table": Table, "Dealt": RowSplit},
    "cells": {
        "Cell": Cell,
        "measured": measurements,
        "read_cells": read_cells,
        "run_cells": run_cells,
    },
    "standings": {
        "Standing": Standing,
        "by_set": by_set,
        "mean_regret": mean_regret,
        "standings": standings,
    },
}
for _name, _content in _MODULES.items():
    _module = ModuleType(f"{__name__}.{_name}", __doc__)
    vars(_module).update(_content)
    sys.modules[_module.__name__] = globals()[_name] = _module
