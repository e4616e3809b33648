"""What a report says in sentences."""

from __future__ import annotations

from persfl.checks import many
from persfl.evaluation.intervals import Verdict, percent
from persfl.evaluation.verdicts import ARMS, Worth

PRIVACY = [
    "No raw rows leave a device: what travels are models, and answers computed from private rows.",
    (
        "That is not privacy by itself. Unprotected answers can determine the rows they come from:"
        " about as many gradient answers as there are features give away a linear device's second"
        " moments; one row and an intercept give that row away; leaves of a small tree carry"
        " private labels."
    ),
    (
        "This page itself shows every device's errors, and who helps whom. Share it only with"
        " people who may know that."
    ),
]


def question(devices: int, device: str, what: str) -> str:
    """The question that the page answers."""
    if devices == 1:
        return f"How well can the only device ({device}) predict {what}?"
    all_of_them = f"{many(devices, 'device')} ({device})"
    return f"Which of {all_of_them} help each other to predict {what}?"


def sentence(verdict: Verdict, rows: int) -> str:
    """What may be said of the whole fleet."""
    if verdict.says == "not measured":
        return "No rows were held back, so nothing was measured."
    ends = f"{percent(verdict.low)} to {percent(verdict.high)}"
    where = f"{many(rows, 'row')} of {many(verdict.devices, 'device')}"
    measured = f"measured on {where} that the models had not seen"
    if verdict.says == "helps":
        return (
            f"Asking peers removes about {percent(verdict.gain)} of a typical device's error"
            f" (95 % interval {ends}), {measured}."
        )
    of_the_gain = f"(95 % interval of the gain {ends}), {measured}."
    if verdict.says == "hurts":
        return (
            "Models from own rows alone do better: asking peers adds about"
            f" {percent(-verdict.gain)} to a typical device's error {of_the_gain}"
        )
    does = f"removes {percent(verdict.gain)} of"
    if verdict.gain < 0:
        does = f"adds {percent(-verdict.gain)} to"
    return (
        f"No clear difference between asking peers and own rows alone: asking {does} a typical"
        f" device's error, and that may be chance {of_the_gain}"
    )


def better_rivals(worth: Worth | None) -> list[str]:
    """Whoever does better than asking peers is named."""
    rivals = ("pooled", "centred", "tuned")
    arms = [] if worth is None else [arm for arm in rivals if arm in worth.arms]
    better = [ARMS[arm] for arm in arms if worth and worth.fleet(arm).says == "hurts"]
    what = "On these rows a simpler way does better than asking peers"
    return [f"{what}: {'; '.join(better)}."] if better else []
