"""What a command says of a device's protection: before anything leaves, and of what has left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from persfl.checks import many, percent, some
from persfl.privacy import PLANNED, Accountant, answer_cost, true_positives
from persfl.privacy.choice import prefers_sums

if TYPE_CHECKING:
    from persfl.federation.ledger import Ledger
    from persfl.federation.privacy_settings import PrivacySettings

OFF = (
    "Protection is off: answers are exact, and can determine rows. [privacy] in node.toml turns it"
    " on (docs/privacy.md).\n"
)
OUTDATED = (
    "Careful: this ledger lacks the answer that this machine paid for last. It is an older copy, or"
    " another copy of the\nfolder, and has forgotten what was spent since: all of the budget counts"
    " as spent. Put the newest ledger.sqlite back."
)

FOREIGN = (
    "Careful: this ledger was not begun on this machine, so no node starts with it. If it is your"
    " own: persfl node --moved."
)


def costs(
    settings: PrivacySettings,
    columns: Sequence[str],
    account: Accountant,
    *,
    units: bool = False,
) -> str:
    """What runs will cost a protected device, and what it will refuse; `units` are paid for."""
    left = settings.answers_left(account, units=units)
    lines = [
        f"Protection is on: epsilon {settings.epsilon:g}, delta {settings.delta:g} for every row,"
        " against everybody else together,\nfor all that ever leaves this folder.",
        f"  Spent so far: epsilon {account.epsilon:.4g}. Left: {left} noised answers, and units.",
        _cost_of_sums(settings, columns, account),
        *_cost_of_steps(settings, columns, account, left),
        "  Trees and forests cost as much as sums: sums or class counts in the leaves of random"
        " trees, once for the same trees.",
        "  Boosting, refits, several steps at a time and errors on rows held back will be refused.",
        "  However much anybody knows, telling whether a row is here with 1 % false alarms"
        f" succeeds at most {percent(_most(settings), digits=1)} of the time.",
        "  Own rows refine this device's model at home, without noise.",
    ]
    return "\n".join(lines) + "\n"


def _cost_of_sums(
    settings: PrivacySettings, columns: Sequence[str], account: Accountant
) -> str:
    """What a linear regression costs."""
    noise = settings.noise_of_sums
    sums = answer_cost(noise)
    if not prefers_sums(len(columns), settings.rows, noise):
        return (
            f"  Linear regressions go by steps as other models do: sums of {len(columns)} columns"
            " would drown in their noise,\n    unless rows are public and many (rows in [privacy])."
        )
    absent = settings.lacking(columns)
    if absent:
        return (
            "  Linear regressions go by steps as other models do: sums need the range of"
            f" {some(list(absent))} in [privacy]."
        )
    word = "costs" if account.fits(sums) else "does not fit any more; it would cost"
    return (
        f"  A linear regression {word} {_share(sums, account)} of the budget, once and for ever:"
        f" sums over rows, with noise {noise:.3g}\n    times what one row can add. Units, steps and"
        " later runs follow from them."
    )


def _cost_of_steps(
    settings: PrivacySettings, columns: Sequence[str], account: Accountant, left: int
) -> list[str]:
    """What other models cost."""
    one = answer_cost(settings.noise)
    absent = settings.lacking(columns, classes=2)
    shared = (
        f"cost {_share(answer_cost(settings.noise_of_units), account)} of the budget, once"
        if not absent
        else f"will be refused (--units raw): there is no range of {some(list(absent))}"
    )
    return [
        f"  Units of other models {shared}. A step or a loss costs {_share(one, account)}, with"
        f" noise {settings.noise:.3g} times\n    what one row can add: a blend takes"
        f" {min(left, PLANNED)} steps, --method fedavg one a round at most ({left} rounds fit).",
    ]


def _share(cost: float, account: Accountant) -> str:
    return f"{100.0 * cost / account.budget.whole:.3g} %"


def _most(settings: PrivacySettings) -> float:
    return true_positives(settings.budget.whole**0.5, 0.01)


def spent(settings: PrivacySettings | None, ledger: Ledger) -> dict[str, Any] | None:
    """What has been spent, as plain data; None where nothing was ever protected."""
    lines = ledger.protected.table()
    if settings is None:
        return {"on": False, "answers": lines} if lines else None
    account = ledger.protected.account(settings.budget)
    return {
        "on": True,
        "epsilon": settings.epsilon,
        "delta": settings.delta,
        "spent": account.epsilon,
        "answers_left": settings.answers_left(
            account, units=ledger.protected.told("units")
        ),
        "before": ledger.unprotected(),
        "answers": lines,
    }


def spent_lines(told: dict[str, Any] | None) -> str:
    """The same in words."""
    if told is None:
        return OFF
    if not told["on"]:
        return (
            f"Protection is off, and was on for {len(told['answers'])} answers: what left since is"
            " exact.\n"
        )
    text = (
        f"Epsilon {told['spent']:.4g} of {told['epsilon']:g} is spent (delta {told['delta']:g});"
        f" {many(told['answers_left'], 'noised answer')} left."
    )
    if told["before"]:
        text += (
            f"\nCareful: {told['before']} answers left without protection, before it was on or"
            " while it was off. The promise does not cover them."
        )
    return text + "\n"
