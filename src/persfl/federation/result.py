"""The result of a federated run, in the form a run in one process has, and what the
federation's own page shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from persfl.evaluation.verdicts import Worth
from persfl.federation.blend_run import Outcome
from persfl.federation.fleet import FlowerFleet
from persfl.federation.holdout import worth_of
from persfl.federation.letters import why
from persfl.federation.roster import WAYS
from persfl.federation.run_plan import RunPlan
from persfl.federation.wait_notices import unwilling_text
from persfl.fitting import FitSettings, Fitted, Labels, TableSchema
from persfl.fitting.ids import id_array
from persfl.fitting.method_choice import Method, said
from persfl.rules import doubts
from persfl.runs import Folder, keep_model
from persfl.training import State
from persfl.traits import has_gradients
from persfl.types import Array
from persfl.units import Units
from persfl.wire import Terms


def keep_result(
    folder: Folder,
    fleet: FlowerFleet | Outcome,
    terms: Terms,
    plan: RunPlan,
    state: State,
) -> None:
    """Tell every target its last adoption, have it judged, and write everything a finished run
    has.
    """
    told = fleet.judged() if terms.holdout else {}
    untold = fleet.finish()
    worth = worth_of(fleet.ids, told, terms.classes) if told else None
    notes = _notes(fleet, plan, untold, folder.spec.get("unwilling", []))
    if "member" in state.trust.notes:
        rows = [fleet.rows.get(fleet.ids[int(t)], 0) for t in fleet.targets]
        notes += doubts(state.trust, rows, _size(fleet), fleet.ids)
    folder.write_json("federation.json", federation_info(fleet, plan, state, notes))
    keep_model(folder, fitted(fleet, terms, plan, state, worth, notes))


def fitted(
    fleet: FlowerFleet | Outcome,
    terms: Terms,
    plan: RunPlan,
    state: State,
    worth: Worth | None,
    notes: list[str],
) -> Fitted:
    """The result that a run in one process would have given, as far as it is known here."""
    n, d = fleet.n, terms.features
    units: dict[str, Any] = {
        "units": "raw" if terms.mean is None else "shared",
        "step_size": terms.step_size,
    }
    how: dict[str, Any] = {
        "peers": min(plan.peers, n - 1),
        "rounds": plan.rounds,
        "method": plan.method,
    }
    if plan.method == "blend":
        units, how = (
            {},
            {"method": "blend", "budget": plan.budget, "ordered": plan.ordered},
        )
    settings = FitSettings(holdout=terms.holdout, seed=terms.seed, **units, **how)
    mean, scale = (
        (np.zeros(d), np.ones(d))
        if terms.mean is None or terms.scale is None
        else (terms.mean, terms.scale)
    )
    classes = np.arange(terms.classes) if terms.classes else None
    return Fitted(
        devices=id_array(fleet.ids),
        rows=np.array([fleet.rows.get(name, 0) for name in fleet.ids]),
        schema=TableSchema(Labels(classes is None, classes), d, tuple(terms.columns)),
        settings=settings,
        method=settings.method,
        learner=fleet.learner,
        units=Units(
            "raw" if terms.mean is None else "shared",
            mean,
            scale,
            terms.label_mean,
            terms.label_scale,
            np.zeros((n, d)),
            np.zeros(n),
        ),
        models=_models(fleet),
        trust=state.trust,
        losses=spread(np.array(state.losses), fleet.targets, n),
        step_size=terms.step_size,
        rounds=state.r,
        notes=tuple(notes),
        worth=worth,
        fallback=np.zeros(n, dtype=bool),
        public=terms.public,
    )


def spread(losses: Array, targets: Any, n: int) -> Array:
    """(rounds, n) losses, NaN for devices that are no targets and where a loss is not known."""
    wide = np.full((len(losses), n), np.nan)
    if len(losses):
        wide[:, targets] = np.where(np.isfinite(losses), losses, np.nan)
    return wide


def _size(fleet: FlowerFleet | Outcome) -> int:
    """How many numbers a model has; 0 where it is no vector."""
    learner = fleet.learner
    return learner.size(fleet.terms.features) if has_gradients(learner) else 0


def _models(fleet: FlowerFleet | Outcome) -> Any:
    known = dict(zip(fleet.targets.tolist(), list(fleet.models), strict=True))
    if has_gradients(fleet.learner):
        nothing = np.full(_size(fleet), np.nan)
        return np.stack(
            [nothing if known.get(i) is None else known[i] for i in range(fleet.n)]
        )
    if fleet.terms.model == "tree" and not fleet.terms.classes:
        from persfl.learners.tree import Grown

        leaf = np.array([-1])
        nothing_grown = Grown(leaf, np.zeros(1), leaf, leaf, np.full(1, np.nan))
        return [
            nothing_grown if known.get(i) is None else known[i] for i in range(fleet.n)
        ]
    return [known.get(i) for i in range(fleet.n)]


def _notes(
    fleet: FlowerFleet | Outcome,
    plan: RunPlan,
    untold: list[str],
    unwilling: Sequence[str],
) -> list[str]:
    notes = [said(Method(plan.method, plan.why))]
    guarded = sum(counts["guarded"] for counts in fleet.roster.counts.values())
    answered = sum(counts["answered"] for counts in fleet.roster.counts.values())
    if guarded:
        notes.append(
            f"{guarded:,} of {answered:,} answers did not fit the device that asked: its own loss"
            f" would have grown more than {plan.growth:g} times, or the step was more than"
            f" {plan.reach:g} times as long as usual. That is what answers from devices of"
            " another kind do; they were not adopted."
        )
    foldless = getattr(fleet, "foldless", [])
    if foldless:
        notes.append(
            f"{len(foldless)} of {len(fleet.targets)} targets have fewer than twice their owner's"
            " 'rows' to learn from, and so no folds: what is offered to them is judged by the"
            " evidence of others alone."
        )
    for name, code in sorted(fleet.roster.limits.items()):
        said_of = why(name, code)
        notes.append(
            f"{said_of[0].upper()}{said_of[1:]} What it did not answer is missing here."
        )
    peers_only = [name for name in fleet.ids if name in unwilling]
    if peers_only:
        notes.append(
            f"{unwilling_text(peers_only)} (target = false in node.toml) and answered as a peer"
            " only."
        )
    if untold:
        older = (
            "has no model of this run"
            if plan.method == "blend"
            else "keeps the model of an earlier round"
        )
        notes.append(
            f"{', '.join(untold)} could not be told what came out in the end and {older}."
        )
    coefficients = _size(fleet)
    few = [
        fleet.ids[int(t)]
        for t in fleet.targets
        if fleet.rows.get(fleet.ids[int(t)], 0) < 2 * coefficients
    ]
    if few:
        notes.append(
            f"{len(few)} of {len(fleet.targets)} targets have fewer than two rows per coefficient:"
            " their rows cannot see every direction in which an answer moves their model. Ask only"
            " peers that you trust."
        )
    return notes


def federation_info(
    fleet: FlowerFleet | Outcome,
    plan: RunPlan,
    state: State,
    notes: list[str],
) -> dict[str, Any]:
    """The plain numbers of the federation's page."""
    return {
        "devices": fleet.ids,
        "targets": [fleet.ids[int(t)] for t in fleet.targets],
        "home": sorted(fleet.home),
        "rows": {name: fleet.rows.get(name, 0) for name in fleet.ids},
        "rounds": state.r,
        "messages": fleet.post.messages,
        "model": fleet.terms.model,
        "algorithm": 1 if fleet.terms.public is None else 2,
        "method": plan.method,
        "sums": fleet.terms.mean is not None or fleet.terms.public is not None,
        "holdout": fleet.terms.holdout,
        "deadline": plan.deadline,
        "quorum": plan.quorum,
        "growth": plan.growth,
        "reach": plan.reach,
        "ways": WAYS,
        "counts": fleet.roster.table(),
        "notes": notes,
    }
