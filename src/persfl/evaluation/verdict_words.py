"""A verdict in words: what reports of one process and of shards say of it alike."""

from __future__ import annotations

from persfl.checks import many
from persfl.evaluation.intervals import Verdict, percent

NOTHING = "No rows were held back, so nothing was measured."
_STARTS = {
    "hurts": "Models from own rows alone do better",
    "better on average, worse for most": (
        "Personalizing is better on average and worse for most"
    ),
    "worse on average, better for most": (
        "Personalizing is worse on average and better for most"
    ),
}
_UNCLEAR = "No clear difference between personalizing and own rows alone"


def against_own_rows(verdict: Verdict, rows: int) -> str:
    """The verdict in a sentence.

    >>> told = Verdict(0.2, 0.1, 0.3, "helps", 50, 0.7, 0.3, 0.001)
    >>> against_own_rows(told, 400)[:67]
    "Personalizing removes 20 % of the fleet's error (95 % interval of t"
    """
    if verdict.says == "not measured":
        return NOTHING
    gain = verdict.gain
    change = (
        f"removes {percent(gain)} of"
        if gain >= 0
        else f"adds {percent(added(gain))} to"
    )
    if verdict.says == "helps":
        said = f"Personalizing {change} the fleet's error"
    else:
        said = f"{_STARTS.get(verdict.says, _UNCLEAR)}: it {change} the fleet's error"
    if verdict.says.startswith("no clear"):
        said += ", and that may be chance"
    said += f" (95 % interval of the gain {ends_of(verdict)})"
    return f"{said}, {measured_on(verdict, rows)}.{devices_better(verdict)}"


def ends_of(verdict: Verdict) -> str:
    """The interval of the gain."""
    return f"{percent(verdict.low)} to {percent(verdict.high)}"


def measured_on(verdict: Verdict, rows: int) -> str:
    """On how much it was measured."""
    where = f"{many(rows, 'row')} of {many(verdict.devices, 'device')}"
    return f"measured on {where} that the models had not seen"


def added(gain: float) -> float:
    """How much of the rival's error comes on top, at most all of it once more.

    >>> round(added(-0.5), 3), added(-1.0)
    (1.0, 1.0)
    """
    return min(-gain / (1.0 + gain), 1.0) if gain > -1 else 1.0


def devices_better(verdict: Verdict) -> str:
    """How many devices have less error, and how many more."""
    if not verdict.better >= 0:
        return ""
    shares = f"{percent(verdict.better)} of devices have less error than alone"
    return f" {shares}, {percent(verdict.worse)} more."
