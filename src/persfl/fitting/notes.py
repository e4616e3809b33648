"""Sentences about a fit: what a person should know before trusting it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from persfl.checks import percent, some, those
from persfl.errors import warn
from persfl.methods.blend.mixture import SORTS
from persfl.methods.blend_method import Blend
from persfl.methods.private.private_method import Private
from persfl.methods.protocol import Method
from persfl.privacy import true_positives
from persfl.rules.kin_rule import doubts, members
from persfl.training.state import State
from persfl.training.training_run import runaways
from persfl.traits import has_gradients

if TYPE_CHECKING:
    from persfl.devices import Devices
    from persfl.evaluation.row_order import RowOrder
    from persfl.fitting.fitted import Fitted
    from persfl.fitting.setup import Setup

NOTHING_HELD = (
    "No device has the four rows it takes to hold any back, so nothing could be judged. Where"
    " devices have four, the report says what personalizing is worth."
)
ONE_OF_A_CLASS = (
    "Most rows that could be held back are the only ones of their class at their device, and a"
    " model that has not seen it says nothing of one that has. So nothing was judged: two rows of"
    " a class would tell what personalizing is worth."
)
NOTHING_APART = (
    "No two devices have rows to learn from beside rows to hold back, by what was said of keys and"
    " time, so nothing could be judged."
)
OWN_IS_BETTER = (
    "On the rows held back, models from own rows alone do better than personalized ones. Use"
    " fallback=True (command line: --fallback) to keep those."
)
OWN_IS_SAFER = (
    "With this much protection joining is worse than staying alone: on the rows held back, models"
    " from own rows, which nobody else sees, do better. Stay alone, allow a larger epsilon, or use"
    " fallback=True (command line: --fallback)."
)
# a loss below this is none, however many times its start it is
NOTHING = 1e-6


ALONE = "There is one device, so there was nobody to ask."


def about(method: Method, why: str = "") -> str:
    """How models came about, and why by this method where somebody else chose it.

    >>> about(Blend())
    "Models are mixed from what own rows, the fleet and neighbours offer (method 'blend')."
    """
    since = f", since {why}" if why else ""
    return f"{method.about} (method {method.name!r}{since})."


def own_is_better(method: Method) -> str:
    """What to say where joining hurts."""
    return OWN_IS_SAFER if isinstance(method, Private) else OWN_IS_BETTER


def protected(method: Method) -> list[str]:
    """What was promised, and that this was a simulation of it."""
    if not isinstance(method, Private):
        return []
    most = percent(true_positives(method.budget.whole**0.5, 0.01), digits=1)
    said = [
        f"Everything that leaves a device is noised, within epsilon {method.epsilon:g} and delta"
        f" {method.delta:g} for each of its rows: with 1 % false alarms, whether a row is there is"
        f" told at most {most} of the time. Own rows refine models at home without noise. This is a"
        " simulation: all rows were in one place, and the rows that judge are not part of the"
        " promise.",
        "Of the simple ways beside it only own rows alone keep that promise: nothing of them"
        " leaves. All others are measured, and would be run, without protection.",
    ]
    if method.ranges == "table":
        said.append(
            "Ranges of columns were read off the table, as if owners had declared them. Protected"
            " devices must declare them (docs/privacy.md)."
        )
    return said


def warn_thin(setup: Setup, rows: Devices) -> None:
    """Devices with a single row, and columns that say nothing."""
    single = [rows.ids[i] for i in np.flatnonzero(rows.counts == 1).tolist()]
    if single:
        warn(
            f"{those(single, 'has', 'have')} a single row: too little to tell who helps."
        )
    same = [
        name
        for j, name in enumerate(setup.schema.columns)
        if (rows.X[:, j] == rows.X[0, j]).all()
    ]
    if same:
        that, it = ("that", "it") if len(same) == 1 else ("those", "them")
        warn(
            f"{those(same, 'has', 'have', thing='column')} the same value in every row, so nothing"
            f" can be learned from {that}. Leave {it} out."
        )


def warn_large(setup: Setup, rows: Devices) -> None:
    """Say in advance what a long blend will take, and how to have it shorter."""
    method = setup.method
    if not isinstance(method, Blend):
        return
    from persfl.methods.blend.cost import cost_of  # blends take long to load

    cost = cost_of(
        setup.learner,
        rows.counts,
        rows.features,
        budget=method.questions(),
        classes=setup.classes,
        ordered=setup.settings.ordered,
        runs=1 + setup.trials(rows),
    )
    if cost is not None and cost.large:
        warn(
            f"{len(rows):,} devices with {len(rows.y):,} rows and {rows.features:,} columns:"
            f" this fit takes about {cost} on one core. For less, drop columns, lower budget"
            f" (now method=Blend(budget={method.budget})), set holdout=0 or use method='paper'"
            " (command line: --drop, --set budget=..., --holdout 0, --method paper)."
        )


def halving(state: State, where: str) -> list[str]:
    """What became of the step size."""
    said = []
    if state.pace.unlike:
        said.append(
            f"In {where} losses grew with every step size: the peers' answers do not fit, they are"
            " too unlike."
        )
    if state.pace.halved:
        first = state.pace.halved[0]
        now = state.pace.step_size
        said.append(
            f"In {where} the step size {first:g} made losses grow; it was halved until they fell,"
            f" to {now:g}."
        )
    return said


def chosen_for_later(told: RowOrder, seen: RowOrder) -> list[str]:
    """That an order was seen of which nobody said anything."""
    if told.random == seen.random:
        return []
    return [
        "Rows seem to go on in time, so models were chosen for rows that come next. If the rows to"
        " be predicted lie among these, a fit of the table with its rows shuffled may do better."
    ]


def own_models(devices: int, alone: Sequence[object]) -> list[str]:
    """Which devices keep the model of their own rows."""
    if not alone:
        return []
    return [
        f"{len(alone)} of {devices} devices keep the model of their own rows, by the evidence"
        f" of the whole fleet: {some(alone, 20)}. What is shown of their helpers is what"
        " learning together would have brought."
    ]


def grown(fitted: Fitted) -> list[str]:
    """Devices whose loss has run away."""
    losses = fitted.losses
    n = len(fitted.devices)
    if not len(losses) or not has_gradients(fitted.learner):
        return []
    lost = runaways(losses[-1], losses[0]) & (losses[-1] > NOTHING)
    names = fitted.devices[lost].tolist()
    # most of a fleet cannot be unlike all others
    if not names or len(names) > n / 2:
        return []
    whose = "its" if len(names) == 1 else "their"
    return [
        f"The loss of {those(names, 'has', 'have')} grown many times over: {whose} rows are unlike"
        " all others'."
    ]


def mixed(fitted: Fitted) -> str:
    """What models are made of, in the mean."""
    if "mix" not in fitted.trust.notes:
        return ""
    own, fleet, near = (
        percent(share) for share in fitted.made_of()[list(SORTS)].mean()
    )
    by = (
        ", by how much each decides of it."
        if "offer_names" in fitted.trust.notes
        else ", by what its parts started from, before own rows refined them."
    )
    return (
        f" In the mean over devices a model is {own} own rows, {fleet} fleet and {near}"
        f" neighbours{by}"
    )


def kindred(fitted: Fitted) -> list[str]:
    """Who found kin, and which models are guesses; of those the user is warned too."""
    if "member" not in fitted.trust.notes:
        return []
    said = []
    known = members(fitted.trust)
    many = known.member.sum(axis=1)[known.right]
    names = fitted.devices.tolist()
    if len(many):
        said.append(
            f"{len(many)} of {len(names)} devices found kin: {many.min()} to {many.max()} others,"
            f" in the middle {np.median(many):g}. Such a device's model is made of its own rows and"
            " theirs, every device counting as much."
        )
    assert isinstance(fitted.models, np.ndarray)  # kin are members by steps
    size = fitted.models.shape[1]
    for doubt in doubts(fitted.trust, fitted.rows, size, names):
        text = doubt[0].upper() + doubt[1:]
        for guess, instead in _GUESSES.items():
            text = text.replace(guess, instead)
        said.append(text)
        warn(text)
    return said


_GUESSES = {
    "Its model is a guess": "It keeps the model of its own rows",
    "Their models are guesses": "They keep the models of their own rows",
}
