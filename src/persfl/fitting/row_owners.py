"""What to say of rows whose devices are not named, or have no model."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from persfl.checks import some, those
from persfl.errors import InputError


def refusal_of_unnamed(models: int) -> InputError:
    """Of rows of nobody knows whom."""
    return InputError(
        f"there are {models} models. Say whose rows these are: predict(X,"
        " devices=...). If you did, a pipeline or a scorer of scikit-learn left it out:"
        " keep the column in X and name it instead (device=...), or write"
        " sklearn.set_config(enable_metadata_routing=True) first."
    )


def refusal_of_strangers(
    strangers: Sequence[Hashable], known: Sequence[Hashable], unseen: str
) -> InputError:
    """Of devices that were not there; `unseen` is what the fit was asked to do with those."""
    how = "leave those rows out: this run has no model for newcomers"
    if unseen == "error":
        asked = "fit with unseen='pooled' (command line: --unseen pooled)"
        how = f"{asked}: one model for all newcomers"
    return InputError(
        f"{those(strangers, 'was', 'were')} not there when fitting. Known: {some(known)}. Fit again"
        f" with their rows, or {how}."
    )
