"""About how long a device takes to answer blend's questions; never from what its rows say."""

from __future__ import annotations

from persfl.federation.policy import work_of, work_of_fit, work_of_walk
from persfl.methods.blend.folds import Folding
from persfl.methods.blend.offers import Descent, Offers, RefitOffers
from persfl.methods.blend.questions import (
    Falls,
    Fit,
    GradientSteps,
    JudgeOffers,
    Mix,
    OwnRows,
    Question,
    Slopes,
    Spread,
    Weigh,
)
from persfl.wire import Terms


def work_of_question(
    family: Offers, terms: Terms, question: Question, rows: int, names: int
) -> int:
    """About how many nanoseconds a question takes; never from what the rows say."""
    copies = 1 + Folding(terms.classes, getattr(question, "ordered", False)).count
    size = max(family.size, 1)
    once = rows * size  # a gradient
    fit = (rows + size) * size**2  # a system of equations
    if isinstance(family, RefitOffers):
        once = rows * (terms.features + 1) + work_of_walk(terms, rows)
        fit = work_of(terms, rows)
    steps = getattr(question, "steps", None) or 1
    if isinstance(question, Spread):
        return rows * (terms.features + 1) ** 2
    if isinstance(question, (GradientSteps, Slopes)):
        return names * steps * once
    if isinstance(question, Falls):
        return (steps + 2) * once
    if isinstance(question, OwnRows):
        shown = 0 if question.models is None else len(question.models)
        return copies * (1 + shown * steps) * once
    if isinstance(question, Weigh):
        alone_ = copies * fit if isinstance(family, RefitOffers) else 0
        return copies * question.many * once + alone_
    if isinstance(question, (JudgeOffers, Mix)):
        many = len(question.views) if isinstance(question, Mix) else 1
        last = work_of_fit(terms, rows) if isinstance(question, Mix) else 0
        return many * copies * _offers(family, once, fit) + last
    return (names if not isinstance(question, Fit) else 1) * fit


def _offers(family: Offers, once: int, fit: int) -> int:
    """What one copy's offers take."""
    if isinstance(family, RefitOffers):
        chosen = family.settings.refits
        return fit * (1 + len(chosen.own_weights) * (1 + chosen.together))
    if isinstance(family, Descent):
        steps = family.settings.descent
        return once * (max(steps.own_steps) + 6 * max(steps.tuning_steps))
    longest = max(family.settings.steps.own_steps)
    return len(family.names()) * longest * once
