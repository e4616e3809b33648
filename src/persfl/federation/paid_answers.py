"""Devices that pay for each answer: who they are, and whether a plan fits what they have left.

All of it is known before a run begins, from what devices say of their owners' settings; nothing
here hangs on rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from persfl.errors import InputError
from persfl.federation.messages import Head
from persfl.federation.rehearsal import questions_asked
from persfl.federation.run_plan import RunPlan
from persfl.federation.sums_device import tells_sums
from persfl.methods import Blend, Kin, Own, Paper
from persfl.methods.shared_method import SteppedMethod
from persfl.traits import has_gradients
from persfl.wire.terms import Terms


def paying_in(terms: Terms, there: Mapping[str, Head]) -> list[str]:
    """Protected devices that answer one by one, and not from sums that they tell once."""
    free = tells_sums(terms)
    return [
        name
        for name in sorted(there)
        if answers_left(there[name]) is not None
        and not (free and there[name]["privacy"].get("sums") is True)
    ]


def answers_left(head: Head) -> int | None:
    """How many noised answers a protected device says it has left; None of one that is not."""
    told = head.get("privacy")
    answers = told.get("answers") if isinstance(told, dict) else None
    return answers if type(answers) is int and answers >= 0 else None


def refuse_beyond_budgets(
    plan: RunPlan,
    terms: Terms,
    ids: Sequence[str],
    there: Mapping[str, Head],
    paying: Sequence[str],
) -> None:
    """Stop before anything is told where devices have too few answers left."""
    if not paying or isinstance(plan.personalization, Own):
        return
    asked = dict(zip(ids, _asked(plan, terms, len(ids)), strict=True))
    for name in paying:
        left = answers_left(there[name])
        if left is not None and asked[name] > left:
            raise InputError(
                f"{plan.method} asks device {name!r} up to {asked[name]} questions, and it has"
                f" {left} noised answers left of its privacy budget: {_fitting(plan, left)}."
                " Nothing was begun."
            )


def _asked(plan: RunPlan, terms: Terms, n: int) -> list[int]:
    """How many questions that are paid for go to each device, at most or in the mean."""
    method = plan.personalization
    rounds = plan.rounds
    if isinstance(method, Kin):  # own steps, too, and where they begin
        return [rounds * (plan.peers + 2) + 2] * n
    if isinstance(method, Paper):
        return [rounds * (plan.peers + 1)] * n
    learner = terms.learner()
    if isinstance(method, SteppedMethod) and has_gradients(learner):
        found = questions_asked(method, learner, n, terms.features, plan.seed)
        return [int(count) for count in found]
    return [1] * n


def _fitting(plan: RunPlan, left: int) -> str:
    """What would fit instead."""
    method = plan.personalization
    if not left:
        return "nothing fits"
    if isinstance(method, Blend):
        return f"{left} would fit"
    if isinstance(method, Kin | Paper):
        own = 2 if isinstance(method, Kin) else 1
        rounds = (left - 2 * (own - 1)) // (plan.peers + own)
        if rounds > 0:
            return f"--rounds {rounds} would fit, or --method blend"
    return "fewer --rounds would, or --method blend"
