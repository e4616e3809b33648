"""Whether models depend on those named, and who is missed most: plain numbers for the report."""

from __future__ import annotations

from typing import Any

from persfl.evaluation.dependence import Contributions
from persfl.fitting.fitted import Fitted

SHOWN = 20  # devices in the chart of who is missed most


def depends_info(fitted: Fitted) -> dict[str, Any] | None:
    """What refits without named devices have told; None where nobody measured it."""
    found = fitted.depends
    if found is None:
        return None
    rises = {"named": found.named, "random": found.random}
    return {
        "sentence": found.sentence,
        "matters": found.matters,
        "device": found.of_one,
        "many": found.many,
        "refits": found.refits,
        **{name: list(map(float, rise)) for name, rise in rises.items()},
    }


def missed_info(found: Contributions) -> dict[str, Any]:
    """Who helps the others most."""
    table = found.table.head(SHOWN)
    columns = ("rise", "low", "high")
    return {
        "sentence": found.sentence,
        "devices": [str(name) for name in table["device"]],
        "missed": [bool(yes) for yes in table["missed"]],
        **{name: [float(value) for value in table[name]] for name in columns},
    }
