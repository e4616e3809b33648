"""What a command says of a device's protection: before anything leaves, and of what has left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from persfl.checks import some
from persfl.privacy import Accountant, answer_cost, true_positives
from persfl.privacy.choice import prefers_sums

if TYPE_CHECKING:
    from persfl.federation.ledger import Ledger
    from persfl.federation.privacy_settings import PrivacySettings

OFF = (
    "Protection is off: answers are exact, and can determine rows. [privacy] in node.toml turns it"
    " on (docs/privacy.md).\n"
)


def costs(
    settings: PrivacySettings, columns: Sequence[str], account: Accountant
) -> str:
    """What runs will cost a protected device, and what it will refuse."""
    noise = settings.noise_of_sums
    sums = answer_cost(noise)
    told = prefers_sums(len(columns), settings.rows, noise)
    absent = settings.lacking(columns)
    lines = [
        f"Protection is on: epsilon {settings.epsilon:g}, delta {settings.delta:g} for every row,"
        " against everybody else together,\nfor all that ever leaves this folder.",
        f"  Spent so far: epsilon {account.epsilon:.4g}. Left:"
        f" {account.answers(settings.noise)} noised answers.",
    ]
    if told and not absent:
        word = "costs" if account.fits(sums) else "does not fit any more; it would cost"
        lines.append(
            f"  A blend of linear regressions {word} {_share(sums, account)} of the budget, once"
            f" and for ever: sums over rows,\n    with noise {noise:.3g} times what one row can"
            " add. Units, steps and later runs follow from them."
        )
    elif told:
        lines.append(
            "  A blend of linear regressions, and shared units, will be refused: there is no range"
            f" of {some(list(absent))} in [privacy]."
        )
    else:
        lines.append(
            f"  A blend of linear regressions will be refused: sums of {len(columns)} columns"
            " drown in their noise, unless rows are public and many\n    (rows in [privacy])."
        )
    one = answer_cost(settings.noise)
    fits = account.answers(settings.noise)
    lines += [
        f"  A step or a loss of any other model costs {_share(one, account)} of the budget, with"
        f" noise {settings.noise:.3g} times what one row\n    can add. fedavg asks for one step a"
        f" round at most: {fits} rounds fit (--method fedavg --rounds {max(fits, 1)}).",
        "  Trees, forests, boosting, refits, several steps at a time and errors on rows held back"
        " will be refused.",
        "  However much anybody knows, telling whether a row is here with 1 % false alarms"
        f" succeeds at most {_most(settings):.1%} of the time.",
        "  Own rows refine this device's model at home, without noise.",
    ]
    return "\n".join(lines) + "\n"


def _share(cost: float, account: Accountant) -> str:
    return f"{cost / account.budget.whole:.0%}".replace("%", " %")


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
        "answers_left": account.answers(settings.noise),
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
        f" {told['answers_left']} noised answers are left."
    )
    if told["before"]:
        text += (
            f"\nCareful: {told['before']} answers left without protection, before it was on."
            " The promise does not cover them."
        )
    return text + "\n"
