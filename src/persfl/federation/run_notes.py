"""What a person should know about a federated run, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from persfl.checks import many, some
from persfl.federation.blend_outcome import Outcome
from persfl.federation.letters import capital, why
from persfl.federation.run_plan import RunPlan
from persfl.federation.told_terms import tells_sums
from persfl.federation.wait_notices import unwilling_text
from persfl.learners.any_family import family_name
from persfl.methods import Blend, Mixed
from persfl.methods.shared_method import have_grown_for_several
from persfl.traits import has_gradients
from persfl.types import Array

if TYPE_CHECKING:
    from persfl.federation.fleet import FlowerFleet


def model_size(fleet: FlowerFleet | Outcome) -> int:
    """How many numbers a model has; 0 where it is no vector."""
    learner = fleet.learner
    return learner.size(fleet.terms.features) if has_gradients(learner) else 0


def once_note(fleet: FlowerFleet, losses: Sequence[Array], step: float) -> list[str]:
    """What a run that does not begin anew should say of its step."""
    paying = sorted(fleet.target_side.paying)
    if not paying:
        return []
    text = (
        f"{len(paying)} of {many(fleet.n, 'device')} pay for each answer from a privacy budget"
        f" ({some(paying)}): they were not asked for losses that nothing hangs on, and the run did"
        f" not begin anew with a shorter step than {step:g}."
    )
    if losses and have_grown_for_several(losses[0], losses[-1]):
        text += (
            " Losses of the others grew, so it was too long: begin again with"
            f" --step-size {step / 2:g}, which protected devices pay for again."
        )
    return [text]


def notes_of(
    fleet: FlowerFleet | Outcome,
    plan: RunPlan,
    untold: Sequence[str],
    unwilling: Sequence[str],
    about: str = "",
) -> list[str]:
    """The notes of a run; the first says by which method, in the method's own words or these."""
    method = plan.personalization
    targets = len(fleet.targets)
    notes = [f"{about or method.about} (method {plan.method!r})."]
    counts = fleet.roster.counts.values()
    guarded = sum(count["guarded"] for count in counts)
    if guarded:
        notes.append(
            f"{guarded:,} of {sum(count['answered'] for count in counts):,} answers did not fit the"
            " device that asked: its own loss would have grown more than"
            f" {plan.growth:g} times, or the step was more than {plan.reach:g} times as long as"
            " usual. That is what answers from devices of another kind do; they were not adopted."
        )
    foldless = fleet.foldless if isinstance(fleet, Outcome) else ()
    if foldless:
        by = "the evidence of others alone"
        if tells_sums(fleet.terms):
            by = "the rows that it was learned from, less what that flatters it by"
        notes.append(
            f"{len(foldless)} of {targets} targets have fewer than twice their owner's 'rows' to"
            f" learn from, and so no folds: what is offered to them is judged by {by}."
        )
    notes += fleet.notes if isinstance(fleet, Outcome) else []
    for name, code in sorted(fleet.roster.limits.items()):
        notes.append(
            f"{capital(why(name, code))} What it did not answer is missing here."
        )
    peers_only = [name for name in fleet.ids if name in unwilling]
    if peers_only:
        notes.append(
            f"{unwilling_text(peers_only)} (target = false in node.toml) and answered as a peer"
            " only."
        )
    if untold:
        older = "keeps the model of an earlier round"
        if isinstance(method, Blend | Mixed):
            older = "has no model of this run"
        notes.append(
            f"{', '.join(untold)} could not be told what came out in the end and {older}."
        )
    least = 2 * model_size(fleet)
    # none: how many there are is not told
    few = [t for t in fleet.targets if 0 < fleet.rows.get(fleet.ids[int(t)], 0) < least]
    if few:
        notes.append(
            f"{len(few)} of {targets} targets have fewer than two rows per coefficient: their rows"
            " cannot see every direction in which an answer moves their model. Ask only peers that"
            " you trust."
        )
    return notes


def families_of(
    fleet: FlowerFleet | Outcome, named: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Per target the family that its node names, and the one of the model it ended with.

    A target that adopted nothing still has the model of its own family, which stayed there.
    """
    found = {}
    for t, model in zip(fleet.targets.tolist(), fleet.models, strict=True):
        name = fleet.ids[t]
        own = named.get(name, "unknown")
        found[name] = {
            "named": own,
            "ended": own if model is None else family_name(model),
        }
    return found


_NAMED = 12  # devices that a note names one by one


def families_note(families: Mapping[str, Mapping[str, str]]) -> str:
    """Which family each device ended with, in a sentence; of many devices how many.

    >>> families_note({"ann": {"named": "linear", "ended": "forest"}})
    'Families that devices ended with (in brackets what they named): ann forest (linear).'
    """
    if len(families) <= _NAMED:
        each = (
            f"{name} {one['ended']} ({one['named']})" for name, one in families.items()
        )
        return (
            "Families that devices ended with (in brackets what they named):"
            f" {', '.join(each)}."
        )
    ended = Counter(one["ended"] for one in families.values())
    kept = sum(one["ended"] == one["named"] for one in families.values())
    counts = ", ".join(f"{name} {count}" for name, count in ended.most_common())
    return (
        f"Families that devices ended with: {counts}. {kept} of {len(families)} ended with the one"
        " that they named; federation.html has each."
    )
