"""The headline of a report: personalized models against the best simple alternative, and what to do
about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from persfl.checks import many, percent
from persfl.evaluation.advice import METHODS_OF, Advice, advice
from persfl.evaluation.intervals import Verdict

if TYPE_CHECKING:
    from persfl.evaluation.verdicts import Worth

NOTHING = "No rows were held back, so nothing was measured."
ALIKE = 0.1  # a difference of errors that decides little
TO_COME = " for as many rows to come:"
EXPECTED = (
    "Errors are those of models without the rows held back. What personalizing removes is as"
    " expected once models learn from all rows, so it can differ from what the errors say."
)
# how a verdict ends whose mean and number of devices differ
_FOR_MOST = {
    "better for most": ", though most devices had less error",
    "worse for most": ", though most devices had more error",
}


class Words(NamedTuple):
    """How to speak of what was fitted."""

    doing: str
    removes: str
    it_removes: str
    models: str
    rival: str
    latest: str = ""  # which rows were held back
    to_come: str = ""  # what intervals are for


PERSONALIZED = Words(
    "personalizing",
    "Personalizing removes",
    "it removes",
    "the personalized models",
    "the best simple alternative",
)
# the method is a simple way itself
THESE = Words(
    "these models",
    "These models remove",
    "they remove",
    "these models",
    "the best other simple way",
)


class Headline(NamedTuple):
    """What was found against the best simple alternative, against own rows where that is another
    one, and what to do; `use` is the simple way to make models by, if there is one to try.
    """

    found: str
    alone: str
    advice: str
    says: str
    use: str = ""

    @property
    def sentences(self) -> list[str]:
        """All of it, for a page without a layout."""
        return [text for text in (self.found, self.alone, self.advice) if text]


def headline(worth: Worth | None) -> Headline:
    """What may be said of the whole fleet, and what follows from it.

    >>> import numpy as np
    >>> import pandas as pd
    >>> from persfl.evaluation.verdicts import Worth
    >>> error = np.linspace(0.8, 1.2, 20)
    >>> columns = {"base": 2 * error, "own": error, "personal": error * 0.6}
    >>> table = pd.DataFrame({f"error_{arm}": e for arm, e in columns.items()})
    >>> found = headline(Worth(table.assign(held=5), 1.0, 0))
    >>> found.found[:73]
    'Personalizing removes 40 % of the error of the best simple alternative, o'
    >>> found.advice
    'Use the personalized models.'
    """
    told = None if worth is None else advice(worth)
    if worth is None or told is None:
        return Headline(NOTHING, "", "", "not measured")
    rows = int(worth.table["held"].sum())
    words = THESE if told.itself else PERSONALIZED
    if worth.ahead:
        words = words._replace(latest="the latest ", to_come=TO_COME)
    found = _found(told, worth.name(told.best), rows, words)
    alone = ""
    if told.best == "own":
        found += heads_told(told.verdict)
    elif told.itself != "own":
        alone = _against_own(worth.fleet(), words)
    use = told.best if told.best in METHODS_OF and not _sure(told) else ""
    says = told.verdict.says if told.clear else "no clear difference"
    return Headline(found, alone, _advised(worth, told, words), says, use)


def expected_words(worth: Worth) -> str:
    """That gains are not those of the errors beside them; nothing where they are."""
    falls = worth.table.filter(like="fall_")
    return EXPECTED if np.isfinite(falls.to_numpy(dtype=np.float64)).any() else ""


def personalized_is(says: str | None) -> str:
    """A verdict against a rival as what the personalized models are beside it.

    >>> personalized_is("helps"), personalized_is("no clear difference")
    ('better', 'no clear difference')
    """
    return {"helps": "better", "hurts": "worse"}.get(says or "", says or "")


def lowest_arm(worth: Worth) -> str:
    """The arm with the lowest mean error; personalized models where they tie."""
    arms = sorted(worth.arms, key=lambda arm: arm != "personal")
    return min(arms, key=lambda arm: float(np.nanmean(worth.error(arm))))


def _sure(told: Advice) -> bool:
    """Whether the personalized models are the ones to use, and nothing else."""
    return not told.use or (told.clear and told.use == "personal")


def _found(told: Advice, name: str, rows: int, words: Words) -> str:
    """The verdict against the best simple alternative."""
    verdict = told.verdict
    where = f"{many(rows, 'row')} of {many(verdict.devices, 'device')}"
    measured = f"measured on {words.latest}{where} that the models had not seen"
    rival = f"{words.rival}, {name}"
    ends = interval_of(verdict, words.to_come)
    removed = f"{percent(verdict.gain)} of the error"
    most = _FOR_MOST.get(verdict.says.split(", ")[-1], "")
    if verdict.low > 0:
        return f"{words.removes} {removed} of {rival} ({ends}){most}, {measured}."
    less = f"its error is {percent(-verdict.gain)} lower"
    if told.clear:
        said = f"A simple way does better than {words.doing}: {name}"
        return f"{said}; {less} ({ends}), {measured}."
    said = f"No clear difference between {words.doing} and {rival}"
    if told.flawless:
        return (
            f"Nothing is left to remove: {words.doing} and {rival}, predict all but without error,"
            f" {measured}."
        )
    if percent(verdict.gain) == percent(0.0):
        return f"{said}: errors are alike ({ends}){most}, {measured}."
    change = less if verdict.gain < 0 else f"{words.it_removes} {removed}"
    luck = "chance" if verdict.high >= 0 else "the luck of the best of several"
    return f"{said}: {change}, and that may be {luck} ({ends}){most}, {measured}."


def _against_own(verdict: Verdict, words: Words) -> str:
    """The same against own rows alone."""
    if verdict.says == "not measured":
        return ""
    said = f"Against own rows alone {words.it_removes} {percent(verdict.gain)} of the error"
    if verdict.gain < 0:
        said = f"Models of own rows alone have {percent(-verdict.gain)} less error"
    ends = interval_of(verdict, words.to_come)
    return f"{said} ({ends}).{heads_told(verdict)}"


def interval_of(verdict: Verdict, to_come: str = "") -> str:
    """The interval of the gain, or of what the rival has less where that is what is told; and what
    it is for.

    >>> interval_of(Verdict(-0.2, -0.5, 0.1, "no clear difference", 9))
    '95 % interval −10 % to 50 %'
    """
    low, high = verdict.low, verdict.high
    if verdict.gain < 0:
        low, high = -high, -low
    return f"95 % interval{to_come} {percent(low)} to {percent(high)}"


def heads_told(verdict: Verdict) -> str:
    """How many devices had less error, and how many more; of the rows held back and no others: a
    device has few of them, and what it will have with all rows to learn from is another matter.
    """
    if not verdict.better >= 0:
        return ""
    shares = f"{percent(verdict.better)} of devices had less error than alone"
    return f" On those rows {shares}, {percent(verdict.worse)} more."


def _advised(worth: Worth, told: Advice, words: Words) -> str:
    """What to do."""
    name = worth.name(told.best)
    if told.flawless and not told.itself:
        return f"Use {name} instead: it is simpler, and has no error to speak of."
    if not told.use:
        base = worth.name("base")
        return (
            f"Collect more rows, or columns that say more: nothing here predicts clearly better"
            f" than {base}."
        )
    if told.use != "personal" and told.clear:
        return f"Use {name} instead."
    if told.use != "personal":
        why = f"it clearly beats {worth.name('base')}, and {words.models} do not"
        return f"Use {name} instead: {why}."
    if told.clear:
        return f"Use {words.models}."
    first, second = words.models, name  # the lower error comes first
    if told.verdict.gain < 0:
        first, second = second, first
    apart = max(-told.verdict.low, told.verdict.high)
    if apart <= ALIKE:
        most = f"by the interval their errors differ by {percent(apart)} at most"
        return f"Use {first} or {second}: {most}."
    return f"Use {first} or {second}: more rows would tell them apart."
