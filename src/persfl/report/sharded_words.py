"""What may be said of a fleet of which only the verdict against own rows alone was kept."""

from __future__ import annotations

from persfl.checks import many, percent
from persfl.evaluation.headline import NOTHING, heads_told, interval_of
from persfl.evaluation.intervals import Verdict

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
    "Personalizing removes 20 % of the fleet's error (95 % interval 10 %"
    """
    if verdict.says == "not measured":
        return NOTHING
    start = _STARTS.get(verdict.says, _UNCLEAR)
    if verdict.says == "helps":
        said = f"Personalizing removes {percent(verdict.gain)} of the fleet's error"
    elif verdict.gain < 0:
        said = f"{start}: alone the fleet's error is {percent(-verdict.gain)} lower"
    else:
        said = f"{start}: it removes {percent(verdict.gain)} of the fleet's error"
    if verdict.says.startswith("no clear"):
        said += ", and that may be chance"
    where = f"{many(rows, 'row')} of {many(verdict.devices, 'device')}"
    measured = f"measured on {where} that the models had not seen"
    return f"{said} ({interval_of(verdict)}), {measured}.{heads_told(verdict)}"
