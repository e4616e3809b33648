"""Is it worth it? What `persfl.evaluation` measures, by the names it has always had."""

from persfl.checks import percent
from persfl.evaluation.intervals import Verdict, relative, verdict
from persfl.evaluation.rivals import own_fits, pooled_fit, tuned_fits
from persfl.evaluation.split import split
from persfl.evaluation.trials import Trial as Tried
from persfl.evaluation.trials import run_trial as tried
from persfl.evaluation.trials import worth_of_trials as measured
from persfl.evaluation.verdicts import ARMS, HELPS, TOO_FEW, Worth

__all__ = [
    "ARMS",
    "HELPS",
    "TOO_FEW",
    "Tried",
    "Verdict",
    "Worth",
    "measured",
    "own_fits",
    "percent",
    "pooled_fit",
    "relative",
    "split",
    "tried",
    "tuned_fits",
    "verdict",
]
