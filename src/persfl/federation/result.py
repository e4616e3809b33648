"""The result of a federated run, in the form a run in one process has, and what the
federation's own page shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from persfl.evaluation.verdicts import Worth
from persfl.federation.blend_outcome import Outcome
from persfl.federation.category_levels import Levels, preparation_of
from persfl.federation.device_words import without
from persfl.federation.holdout import worth_of
from persfl.federation.letters import capital
from persfl.federation.roster import WAYS
from persfl.federation.run_notes import (
    families_note,
    families_of,
    model_size,
    notes_of,
    once_note,
)
from persfl.federation.run_plan import RunPlan
from persfl.federation.told_terms import tells_sums
from persfl.fitting.cells import Labels, id_array
from persfl.fitting.fitted import Fitted
from persfl.fitting.schema import TableSchema
from persfl.fitting.setup import FitSettings
from persfl.learners.any_family import ANY
from persfl.learners.tree import Grown
from persfl.methods import Blend, Method, Mixed
from persfl.methods.shared_method import SharedMethod
from persfl.rules.kin_rule import doubts
from persfl.runs.model import keep_model
from persfl.runs.run_folder import Folder
from persfl.training.state import State, peers_asked
from persfl.traits import has_gradients
from persfl.types import Array, IntArray, Model
from persfl.units import Units
from persfl.wire.terms import Terms

if TYPE_CHECKING:
    from persfl.federation.fleet import FlowerFleet


def keep_result(
    folder: Folder,
    fleet: FlowerFleet | Outcome,
    terms: Terms,
    plan: RunPlan,
    state: State,
    about: str = "",
) -> None:
    """Tell every target its last adoption, have it judged, and write everything a finished run
    has.
    """
    told = fleet.judged()
    untold = fleet.finish()
    worth = worth_of(fleet.ids, told, terms.classes) if told else None
    unwilling = folder.spec.get("unwilling", [])
    notes = notes_of(fleet, plan, untold, unwilling, about)
    for name, reason in sorted(folder.spec.get("left_out", {}).items()):
        notes.append(f"{capital(str(reason))} {without(name)}")
    if not isinstance(fleet, Outcome):
        notes += once_note(fleet, state.losses, terms.step_size)
    named = folder.spec.get("families", {})
    families = families_of(fleet, named) if terms.model == ANY else {}
    notes += [families_note(families)] if families else []
    if "member" in state.trust.notes:
        rows = [fleet.rows.get(fleet.ids[int(t)], 0) for t in fleet.targets]
        notes += doubts(state.trust, rows, model_size(fleet), fleet.ids)
    info = federation_info(fleet, plan, state, notes) | {"families": families}
    folder.write_json("federation.json", info)
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
    return Fitted(
        devices=id_array(fleet.ids),
        rows=np.array([fleet.rows.get(name, 0) for name in fleet.ids]),
        schema=schema_of(terms, plan.levels),
        settings=_settings(terms, plan),
        method=_method(terms, plan, fleet.n),
        learner=fleet.learner,
        units=units_of(terms, fleet.n),
        models=_models(fleet),
        trust=state.trust,
        losses=_losses(np.array(state.losses), fleet.targets, fleet.n),
        step_size=terms.step_size,
        rounds=state.r,
        notes=tuple(notes),
        worth=worth,
        fallback=np.zeros(fleet.n, dtype=bool),
        public=terms.public,
    )


def _method(terms: Terms, plan: RunPlan, n: int) -> Method:
    """The method, with what its settings came to."""
    method = plan.personalization
    told: dict[str, Any] = {"step_size": terms.step_size}
    if "peers" in method.get_params():
        told["peers"] = min(peers_asked(plan.setting("peers"), n), n - 1)
    has = method.get_params()
    return method.set_params(**{name: told[name] for name in told if name in has})


def _settings(terms: Terms, plan: RunPlan) -> FitSettings:
    """The settings that a fit in one process would have had."""
    kind = _kind(terms)
    return FitSettings(
        units=kind if kind in plan.personalization.needs().units else "auto",
        holdout=terms.holdout,
        ordered=plan.ordered,
        seed=terms.seed,
    )


def _kind(terms: Terms) -> str:
    return "raw" if terms.mean is None else "shared"


def schema_of(terms: Terms, levels: Levels) -> TableSchema:
    """The table that a run's models are for; `levels` are those of its categories."""
    classes = np.arange(terms.classes) if terms.classes else None
    labels = Labels(classes is None, classes)
    preparation = preparation_of(terms.columns, levels)
    if preparation is None:
        return TableSchema(labels, terms.features, tuple(terms.columns))
    names = (*preparation.numbers, *preparation.texts)
    return TableSchema(labels, len(names), names, preparation)


def units_of(terms: Terms, n: int) -> Units:
    """The units of the run; no device has its own."""
    d = terms.features
    mean = np.zeros(d) if terms.mean is None else terms.mean
    scale = np.ones(d) if terms.scale is None else terms.scale
    label = terms.label_mean, terms.label_scale
    return Units(_kind(terms), mean, scale, *label, np.zeros((n, d)), np.zeros(n))


def _losses(losses: Array, targets: IntArray, n: int) -> Array:
    """(rounds, n) losses, NaN for devices that are no targets and where a loss is not known."""
    wide = np.full((len(losses), n), np.nan)
    if len(losses):
        wide[:, targets] = np.where(np.isfinite(losses), losses, np.nan)
    return wide


def _models(fleet: FlowerFleet | Outcome) -> NDArray[Any] | list[Model]:
    """A model for every device; where none is known, one that answers NaN, or nothing."""
    known = dict(zip(fleet.targets.tolist(), list(fleet.models), strict=True))
    nothing: Model = None
    if has_gradients(fleet.learner):
        nothing = np.full(model_size(fleet), np.nan)
    elif fleet.terms.model == "tree" and not fleet.terms.classes:
        leaf = np.array([-1])
        nothing = Grown(leaf, np.zeros(1), leaf, leaf, np.full(1, np.nan))
    found: list[Model] = [known.get(i) for i in range(fleet.n)]
    found = [nothing if model is None else model for model in found]
    mixes = any(isinstance(model, list) for model in found)
    vectors = has_gradients(fleet.learner) and not mixes
    return np.stack(found) if vectors else found


def federation_info(
    fleet: FlowerFleet | Outcome, plan: RunPlan, state: State, notes: list[str]
) -> dict[str, Any]:
    """The plain numbers of the federation's page."""
    terms = fleet.terms
    return {
        "devices": fleet.ids,
        "targets": [fleet.ids[int(t)] for t in fleet.targets],
        "home": sorted(fleet.home),
        "rows": {name: fleet.rows.get(name, 0) for name in fleet.ids},
        "rounds": state.r,
        "messages": fleet.post.messages,
        "model": terms.model,
        "algorithm": 1 if terms.public is None else 2,
        "method": plan.method,
        "common": isinstance(plan.personalization, SharedMethod),
        "from_sums": isinstance(plan.personalization, Blend | Mixed)
        and tells_sums(terms),
        "sums": terms.mean is not None or terms.public is not None,
        "holdout": terms.holdout,
        "deadline": plan.deadline,
        "quorum": plan.quorum,
        "growth": plan.growth,
        "reach": plan.reach,
        "ways": WAYS,
        "counts": fleet.roster.table(),
        "notes": notes,
    }
