"""Devices that pay for each answer: who they are, and whether a plan fits what they have left.

All of it is known before a run begins, from what devices say of their owners' settings; nothing
here hangs on rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from persfl.errors import InputError
from persfl.federation.letters import are_few
from persfl.federation.messages import Head
from persfl.federation.privacy_settings import is_range
from persfl.federation.rehearsal import questions_asked
from persfl.federation.run_plan import RunPlan
from persfl.federation.told_terms import tells_leaves, tells_sums
from persfl.methods import Blend, Kin, Own, Paper
from persfl.methods.shared_method import SteppedMethod
from persfl.traits import has_gradients
from persfl.types import Array
from persfl.wire.terms import Terms

FEW = 3  # peers that a loop is advised to ask, where each answer is paid for


def paying_in(terms: Terms, there: Mapping[str, Head]) -> dict[str, int]:
    """Protected devices that answer one by one, and not from sums that they tell once; and how
    many answers each has left.
    """
    free = tells_sums(terms)
    found: dict[str, int] = {}
    for name in sorted(there):
        left = answers_left(there[name])
        sums = left is not None and there[name]["privacy"].get("sums") is True
        if left is not None and not (free and sums):
            found[name] = left
    return found


def protected_in(there: Mapping[str, Head]) -> list[str]:
    """Devices whose owners have set a budget."""
    return [name for name in sorted(there) if answers_left(there[name]) is not None]


def answers_left(head: Head) -> int | None:
    """How many noised answers a protected device says it has left; None of one that is not."""
    told = head.get("privacy")
    answers = told.get("answers") if isinstance(told, dict) else None
    return answers if type(answers) is int and answers >= 0 else None


def without_unfit(
    plan: RunPlan, terms: Terms, ids: Sequence[str], there: Mapping[str, Head]
) -> dict[str, str]:
    """Devices that the others run without, and why: who pays for answers and cannot take part as
    this run is, or beside whom others cannot. Fewer than half end nobody else's run; where more
    are so, or the target at home, it stops before anything is told.
    """
    found: dict[str, str] = {}
    while True:
        rest = {name: there[name] for name in sorted(there) if name not in found}
        asked = [name for name in ids if name not in found]
        more = _unfit(plan, terms, asked, rest)
        if not more:
            return found
        found |= more
        if not are_few(found, there) or plan.home_id in found:
            raise InputError(f"{next(iter(found.values()))} Nothing was begun.")


def _unfit(
    plan: RunPlan, terms: Terms, ids: Sequence[str], there: Mapping[str, Head]
) -> dict[str, str]:
    """Who cannot take part beside the others, and why."""
    paying = paying_in(terms, there)
    if not paying:
        return {}
    some = f"device {next(iter(paying))!r} protects its rows"
    others = [name for name in there if name not in paying]
    few = are_few(paying, there)
    leaves = tells_leaves(terms) and isinstance(plan.personalization, Blend)
    if leaves and others and not few:
        more = "trees are learned by devices that all do, or all do not."
        return {name: f"{some} and device {name!r} does not: {more}" for name in others}
    why = _unprotected(plan, terms, there, paying)
    if not why and few and _in_many_steps(plan, terms):
        why = (
            "and a blend of these models asks for more steps than a budget pays for. Use --method"
            " fedavg with a few --rounds, which asks it, too."
        )
    if why:
        return {name: f"device {name!r} protects its rows, {why}" for name in paying}
    return _beyond_budgets(plan, terms, ids, paying)


def _in_many_steps(plan: RunPlan, terms: Terms) -> bool:
    """Whether devices that pay for each answer would turn a blend into one model for all."""
    return isinstance(plan.personalization, Blend) and has_gradients(terms.learner())


def _unprotected(
    plan: RunPlan, terms: Terms, there: Mapping[str, Head], paying: Mapping[str, int]
) -> str:
    """Why no noise protects the models of a run; "" where it does."""
    if terms.steps > 1:
        return "and answers one step at a time. Leave out --steps and --set local."
    if has_gradients(terms.learner()):
        return ""
    if not tells_leaves(terms):
        return f"and {_without_noise(terms)} Use --model tree, forest, linear or mlp."
    if not isinstance(plan.personalization, Blend):
        return (
            "and of trees it tells noised sums or class counts in leaves, which --method blend"
            " asks for."
        )
    if len(paying) < len(there):
        return "and others do not: trees are learned by devices that all do, or all do not."
    if ranges_in(terms, there, paying) is None:
        return "and random trees need ranges of all columns and the label in its [privacy]."
    return ""


def _without_noise(terms: Terms) -> str:
    """Why."""
    if terms.model != "boosting":
        return f"models of the kind {terms.model} are fitted without noise."
    return (
        f"questions of {terms.model} are chosen by looking at rows again and again, which no budget"
        " pays for."
    )


def _beyond_budgets(
    plan: RunPlan, terms: Terms, ids: Sequence[str], paying: Mapping[str, int]
) -> dict[str, str]:
    """Who has too few answers left."""
    if isinstance(plan.personalization, Own):
        return {}
    asked = dict(zip(ids, _asked(plan, terms, len(ids)), strict=True))
    return {
        name: (
            f"{plan.method} asks device {name!r} up to {asked[name]} questions, and it has"
            f" {left} noised answers left of its privacy budget: {_fitting(plan, left)}."
        )
        for name, left in paying.items()
        if asked[name] > left
    }


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
        peers = min(plan.peers, FEW)
        rounds = (left - 2 * (own - 1)) // (peers + own)
        if rounds > 0:
            return f"--peers {peers} --rounds {rounds} would fit, or --method blend"
    return "fewer --rounds would, or --method blend"


def telling_units(
    there: Mapping[str, Head], paying: Mapping[str, int]
) -> Mapping[str, Head]:
    """Who is asked for the sums that shared units are made of: those that do not pay for answers,
    where these are most. Theirs are exact, and a few that say they pay choose no ranges for all.

    >>> list(telling_units({"ann": {}, "bob": {}, "eve": {}}, {"eve": 20}))
    ['ann', 'bob']
    """
    if not are_few(paying, there):
        return there
    return {name: there[name] for name in there if name not in paying}


def ranges_in(
    terms: Terms, there: Mapping[str, Head], paying: Mapping[str, int]
) -> Array | None:
    """(columns and the label, 2) the ranges that most of these devices declared; None where a
    range is lacking. One device alone does not move them.
    """
    found = [_ranges_of(terms, there[name]) for name in paying if name in there]
    told = [pairs for pairs in found if pairs is not None]
    if not told:
        return None
    pairs = np.median(told, axis=0)
    return np.asarray(pairs) if (pairs[:, 0] < pairs[:, 1]).all() else None


def _ranges_of(terms: Terms, head: Head) -> Array | None:
    """What a device says, in the order of the run's columns."""
    told = head["privacy"].get("ranges")
    names = list(head["columns"])
    if not isinstance(told, list) or len(told) != len(names) + 1:
        return None
    place = {name: k for k, name in enumerate(names)}
    label = [0.0, max(terms.classes - 1.0, 1.0)] if terms.classes else told[-1]
    pairs = [*(told[place[name]] for name in terms.columns), label]
    good = all(is_range(pair) for pair in pairs)
    return np.array(pairs, dtype=np.float64) if good else None
