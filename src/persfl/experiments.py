"""The paper's figures as specs and runs; they live in `persfl.lab`."""

from persfl.lab.agreement import verdicts
from persfl.lab.figure_runs import Result, run_spec
from persfl.lab.figure_settings import Settings
from persfl.lab.figure_specs import Series, Spec, load_spec
from persfl.lab.spec_files import spec_names

__all__ = [
    "Result",
    "Series",
    "Settings",
    "Spec",
    "load_spec",
    "run_spec",
    "spec_names",
    "verdicts",
]
