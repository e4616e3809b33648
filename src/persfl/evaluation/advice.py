"""What to do with what was measured: use the personalized models, a simpler way, or collect rows.

Everything hangs on the *best simple alternative*: of all rivals that were judged on the same rows,
the one that leaves personalizing the smallest gain. It was picked by the rows that judge it, which
favours it: whoever beats it has beaten the others, too, but to be called better itself, ranks this
uneven must be as many times less likely by chance as there are rivals to pick from.
"""

from __future__ import annotations

from typing import NamedTuple

from persfl.evaluation.intervals import CHANCE, Verdict
from persfl.evaluation.verdicts import ARMS, Worth

BASE = "base"
PERSONAL = "personal"
# the simple ways by name, with the units that they need: what `persfl fit` makes them by
METHODS_OF = {
    "own": ("own", "auto"),
    "pooled": ("pooled", "auto"),
    "centred": ("pooled", "centred"),
    "tuned": ("fine-tuned", "auto"),
}


class Advice(NamedTuple):
    """The best simple alternative and the verdict against it; which arm to use ("" where nothing
    predicts clearly better than the base rate), and whether the other would clearly be worse: if
    not, the two cannot be told apart.
    `itself` is the simple way that the method itself is, "" where models are personalized;
    `flawless` where neither has an error to speak of: then the simpler one is the one to use.
    """

    best: str
    verdict: Verdict
    use: str
    clear: bool
    itself: str = ""
    flawless: bool = False


def advice(worth: Worth) -> Advice | None:
    """What to do; None where nothing was measured that could say so.

    >>> import numpy as np
    >>> import pandas as pd
    >>> error = np.linspace(0.8, 1.2, 20)
    >>> columns = {"base": 2 * error, "own": error, "pooled": error / 2}
    >>> columns["personal"] = error * 0.6
    >>> table = pd.DataFrame({f"error_{arm}": e for arm, e in columns.items()})
    >>> found = advice(Worth(table, 1.0, 0))
    >>> found.best, found.use, found.clear
    ('pooled', 'pooled', True)
    """
    arms = [arm for arm in worth.arms if arm in ARMS and arm != PERSONAL]
    itself = next((arm for arm in arms if worth.is_personal(arm)), "")
    against = {arm: worth.fleet(arm) for arm in arms if arm != itself}
    known = {arm: said for arm, said in against.items() if said.devices > 1}
    if not known:
        return None
    best = min(known, key=lambda arm: known[arm].gain)
    verdict = known[best]
    picked = len(known) > 1
    beaten = verdict.high < 0 and not (picked and verdict.chance >= CHANCE / len(known))
    use = best if beaten else PERSONAL
    clear = verdict.low > 0 or beaten
    if not _predicts(worth, use):
        # the one may beat the base rate though the two cannot be told apart
        use = best if _predicts(worth, best) else ""
        clear = False
    flawless = worth.without_error(best) and worth.without_error(PERSONAL)
    if flawless:
        use, clear = (PERSONAL, True) if itself else (best, False)
    return Advice(best, verdict, use, clear, itself, flawless)


def _predicts(worth: Worth, arm: str) -> bool:
    """Whether an arm does clearly better than the base rate, where that was judged."""
    if arm == BASE:
        return False
    return BASE not in worth.arms or worth.fleet(BASE, of=arm).low > 0
