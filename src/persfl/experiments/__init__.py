"""The addresses that the paper's figures had before they moved into `persfl.lab`; they work on."""

import sys

from persfl.lab import agreement
from persfl.lab.figure_runs import Result, run_spec
from persfl.lab.figure_specs import Series, Settings, Spec, load_spec
from persfl.lab.spec_files import spec_names

__all__ = [
    "Result",
    "Series",
    "Settings",
    "Spec",
    "load_spec",
    "run_spec",
    "spec_names",
]

# No file any more: `from persfl.experiments.agreement import verdicts` finds it here.
sys.modules[f"{__name__}.agreement"] = agreement
