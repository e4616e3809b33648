"""Experiments as data: a spec says what to run, one runner runs it, and the result is compared with the authors' own curves."""

from persfl.experiments.runner import Result, run_spec
from persfl.experiments.spec import Series, Settings, Spec, load_spec, spec_names

__all__ = ["Result", "Series", "Settings", "Spec", "load_spec", "run_spec", "spec_names"]
