"""A device as a target: it keeps a model, adopts what was chosen, and says how well models fit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from persfl.evaluation.rivals import own_fits
from persfl.federation.adoptions import adoption_from, adoption_heads
from persfl.federation.allowance import Allowance
from persfl.federation.device_home import DeviceHome, must
from persfl.federation.holdout import judged
from persfl.federation.inquiry import Inquiry
from persfl.federation.messages import (
    MOST,
    Content,
    Refused,
    digest_of,
    parts_of,
    whole_of,
)
from persfl.federation.model_store import StoredModel
from persfl.federation.policy import walk_down, work_of, work_of_fit
from persfl.federation.row_stock import Deal, alone
from persfl.federation.run_codec import RunCodec
from persfl.fleets.engine import starting_model
from persfl.learners.any_family import ANY, DEEPEST
from persfl.seeds import stream
from persfl.traits import has_gradients, has_statistics
from persfl.types import Data, Model
from persfl.wire.codec import WireError, nested

# what a target may be asked
_SCORED = ("count", "step", "length", "judge", "adoptions")


class TargetNow(NamedTuple):
    """A target after everything it was told to adopt."""

    stored: StoredModel
    deal: Deal
    learn: Data  # the rows to learn from, in the units of the run
    allowance: Allowance

    def mark(self, codec: RunCodec) -> str:
        """What an answer depends on beside the question: the model it has."""
        return digest_of(self.stored.round, codec.model_to(self.stored.model))


def adopt(home: DeviceHome, question: Inquiry) -> Content:
    """Take what was chosen; the new probe."""
    now = _now(home, question)
    codec = question.codec
    rows = home.count(question.round)
    out: dict[str, NDArray[Any]] = {}
    entry = question.entry("adopt", home.name, rows=rows)
    if question.head.get("probe"):
        probe = codec.probe_of(now.stored.model)
        out = nested("probe", codec.probe_to(probe))
        told = question.plain_terms, question.head.get("adoptions")
        about = (*told, question.me, now.deal.mark, now.mark(codec))
        entry = home.telling(question, "adopt", home.name, about, rows, out)
    home.ledger.write([entry], home.policy)
    return {"rows": rows, "after": now.stored.round}, out


def score(home: DeviceHome, question: Inquiry) -> Content:
    """The own loss of its model and of every proposal; on request its own step, and what rows held
    back say of its model.
    """
    now = _now(home, question)
    head = question.head
    codec = question.codec
    terms = question.terms
    learner = codec.learner
    learn = now.learn
    count = whole_of(head, "count", most=MOST)
    moves = codec.models_travel and bool(head.get("step") or head.get("length"))
    mine = home.family.terms(terms)
    work = (count + 1 + moves) * work_of(mine, learn.rows)
    must(now.allowance.work(work + _work_of_others(question, learn.rows)))
    if head.get("judge"):
        must(now.allowance.work(work_of_fit(mine, learn.rows)))
    out = _losses(question, now, count)
    rows = home.count(question.round)
    out["own"] = np.array([float(learner.loss(now.stored.model, learn))])
    if moves:
        out |= _own_step(home, question, now)
    if head.get("judge"):
        out |= judged(
            (terms, mine),
            now.stored.model,
            now.deal.learn,
            now.deal.held,
            home.lot.seed,
            single=home.policy.rows <= 1,
        )
    asked = {name: head.get(name) for name in _SCORED}
    about = (
        question.plain_terms,
        asked,
        question.me,
        now.deal.mark,
        now.mark(codec),
    )
    entry = home.telling(question, "score", home.name, about, rows, out)
    home.ledger.write([entry], home.policy)
    return home.news(question, rows), out


def _work_of_others(question: Inquiry, rows: int) -> int:
    """About how many nanoseconds rows take down trees that are not of this device's own family."""
    if question.terms.model != ANY:
        return 0
    told = (part for name, part in question.arrays.items() if name.endswith("nodes"))
    return sum(walk_down(int(nodes.size), DEEPEST, rows) for nodes in told)


def _losses(question: Inquiry, now: TargetNow, count: int) -> dict[str, NDArray[Any]]:
    """What proposals come to on own rows, and how far away they are."""
    codec = question.codec
    probe = codec.probe_of(now.stored.model)
    losses = np.full(count, np.inf)
    lengths = np.full(count, np.nan)
    parts = parts_of(question.arrays)
    for i in range(count):
        try:
            proposal = codec.model_from(parts.get(f"p{i}", {}))
        except WireError:
            continue
        losses[i] = codec.learner.loss(proposal, now.learn)
        lengths[i] = codec.proposer.length(codec.learner, probe, proposal)
    return {"losses": losses, "lengths": lengths}


def _own_step(
    home: DeviceHome, question: Inquiry, now: TargetNow
) -> dict[str, NDArray[Any]]:
    """Where own rows would take the model, or how far."""
    codec = question.codec
    out = dict[str, NDArray[Any]]()
    probe = codec.probe_of(now.stored.model)
    lot = home.lot
    place = stream(lot.seed, "answer", question.round, question.me, lot.number)
    batches = home.batches(codec.terms, now.deal)
    step = home.proposal(codec, probe, now.learn, batches, place)
    if question.head.get("step"):
        out = nested("step", codec.model_to(step))
    if question.head.get("length"):
        length = codec.proposer.length(codec.learner, probe, step)
        out["length"] = np.array([float(length)])
    return out


def _now(home: DeviceHome, question: Inquiry) -> TargetNow:
    """This device as a target: its model after everything it was told to adopt."""
    if not home.policy.target:
        raise Refused("target")
    codec = question.codec
    terms = question.terms
    _ = question.me  # a question without a position is none
    deal = home.dealt_for(question)
    learn = home.inside(terms, deal.learn)
    stored = before = home.shelf.get(question.run)
    heads = adoption_heads(question.head.get("adoptions", []))
    allowance = home.allowance(question)
    mine = home.family.terms(terms)
    work = len(heads) * work_of(mine, learn.rows)
    must(allowance.work(work + _work_of_others(question, learn.rows)))
    if stored is None:
        fits = terms.start in ("own", "alone") or not has_gradients(codec.learner)
        must(allowance.work(work_of_fit(mine, learn.rows) if fits else 0))
        own = home.inside(mine, deal.learn)
        stored = StoredModel(0, _first_model(home, codec, own), terms)
    parts = parts_of(question.arrays)
    for i, head in enumerate(heads):
        if head["round"] < stored.round and not head["set"]:
            continue  # it was adopted before an interruption
        if head["round"] > stored.round and not head["set"]:
            raise Refused("state")
        told = adoption_from(codec, head, parts.get(f"a{i}", {}))
        model = codec.mixed(stored.model, told.pieces, told.weights, told.stay)
        if not told.anew:
            model = _after(home, codec, model, learn, told.round)
        stored = StoredModel(told.round + 1, model, terms)
    if stored is not before:
        home.keep(question.run, stored)
    return TargetNow(stored, deal, learn, allowance)


def _first_model(home: DeviceHome, codec: RunCodec, learn: Data) -> Model:
    """The model that a target begins with."""
    start = codec.terms.start
    if start == "alone":
        if not has_gradients(codec.learner):
            raise WireError("only models that travel are fitted alone.")
        return own_fits(codec.learner, alone(learn), home.lot.seed)[0]
    # What this model says at public points will leave.
    grower = home.grower(codec.terms, learn.rows)
    return starting_model(grower, learn, home.lot.at("start"), start)


def _after(
    home: DeviceHome, codec: RunCodec, model: Model, data: Data, r: int
) -> Model:
    """What follows an adoption: running statistics, the own step."""
    learner = codec.learner
    own = codec.terms.own_step()
    if has_statistics(learner):
        model = learner.settled(model, data)
    if own is None:
        return model
    return own.answer(learner, own.ask(learner, model), data, home.lot.at("local", r))
