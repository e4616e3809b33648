"""What a device has at home: its rows, its policy, its ledger, its model; and what it computes
from them whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import sklearn

from persfl.federation.allowance import Allowance
from persfl.federation.inquiry import Inquiry
from persfl.federation.ledger import Entry, Ledger
from persfl.federation.messages import (
    Arrays,
    Refused,
    digest_of,
    numbers_of,
    size_of,
)
from persfl.federation.model_store import Shelf, StoredModel
from persfl.federation.moment_rows import Likenesses, by_moments
from persfl.federation.node_family import NodeFamily
from persfl.federation.policy import Policy
from persfl.federation.row_stock import Deal, Lot, Stock, Taken, alone
from persfl.federation.row_table import Rows
from persfl.federation.run_codec import RunCodec
from persfl.federation.tree_leaves import sheltered
from persfl.fleets.refusals import check_labels
from persfl.learners.any_family import ANY
from persfl.proposers import GradientStep
from persfl.seeds import Stream
from persfl.types import Array, Data, LabelCheck, Learner, Model, Probe
from persfl.wire.codec import WireError
from persfl.wire.terms import Terms


class DeviceHome:
    """`source` gives the rows of a round; `lot` decides which of them are held back, in which fold
    or batch; `family` is what it answers in where a run lets every device have its own.
    """

    def __init__(
        self,
        name: str,
        source: Callable[[int], Rows],
        policy: Policy,
        ledger: Ledger,
        shelf: Shelf,
        lot: Lot,
        family: NodeFamily,
    ) -> None:
        self.name = name
        self.source = source
        self.policy = policy
        self.ledger = ledger
        self.shelf = shelf
        self.lot = lot
        self.family = family
        self.likenesses = Likenesses()
        self._last: tuple[Data, int, Taken] | None = None

    # Rows

    @property
    def stock(self) -> Stock:
        """The rows that may be answered from."""
        return Stock(self.ledger, self.lot, self.policy.rows)

    def count(self, r: int) -> int:
        """How many rows there are."""
        return self.source(r).data.rows

    def deal(self, terms: Terms, r: int) -> Deal:
        """Rows to learn from and rows held back, in the units of the table.

        Labels that are not the classes of the run are refused, whatever is asked: what travels of
        a classifier names its classes, and they would leave as they are.
        """
        columns, taken = self._taken(r)
        place = {str(name): i for i, name in enumerate(columns)}
        if any(name not in place for name in terms.columns):
            raise Refused("columns")
        if taken.data.rows < self.policy.rows:
            raise Refused("rows")
        X = np.ascontiguousarray(
            taken.data.X[:, [place[name] for name in terms.columns]]
        )
        labels = taken.data.y
        # a split by classes would be one by values of the asker's choice
        if terms.classes and not np.isin(labels, np.arange(terms.classes)).all():
            raise Refused("labels")
        mine = replace(taken, data=Data(X, labels, taken.data.weight))
        deal = self.stock.deal(mine, terms.holdout, terms.classes)
        if deal.learn.rows < self.policy.rows:
            raise Refused("rows")
        self.stock.check(deal.place, deal.held_place)
        return deal

    def _taken(self, r: int) -> tuple[Sequence[str], Taken]:
        """The rows that may be answered from now; looked up again only when rows have changed."""
        now = self.source(r)
        least = self.policy.rows
        if (
            self._last is None
            or self._last[0] is not now.data
            or self._last[1] != least
        ):
            self._last = (now.data, least, self.stock.taken(now.columns, now.data))
        return now.columns, self._last[2]

    def dealt_for(self, question: Inquiry) -> Deal:
        """Rows for a question that the policy allows, with labels that its model can take."""
        terms = question.terms
        deal = self.deal(terms, question.round)
        rows = deal.learn.rows
        mine = self.family.terms(terms)
        if terms.model == ANY and terms.public is None:
            raise WireError("models of any family are told by what they say at points.")
        # its own family, and that models of others are shown to it
        no = self.policy.refuses(mine, rows) or self.policy.refuses(terms, rows)
        if no is not None:
            raise Refused(no)
        if by_moments(mine) and rows * (terms.features + 1) ** 2 > self.policy.work:
            raise Refused("work")  # for rows alike
        check_fit(question.codec, deal.learn)
        return deal

    def alike(self, data: Data) -> Data:
        """Rows that tell moments alone; the rows themselves where the owner allows single ones."""
        return self.likenesses.of(data) if self.policy.rows > 1 else data

    def inside(self, terms: Terms, data: Data) -> Data:
        """Rows in the units of the run, as questions may see them."""
        return terms.inside(self.alike(data) if by_moments(terms) else data)

    def batches(self, terms: Terms, deal: Deal) -> list[Data] | None:
        """The batches of gradient steps; None where steps take all rows."""
        if (
            terms.batch is None
            or terms.public is not None
            or terms.batch >= deal.learn.rows
        ):
            return None
        dealt = self.stock.batches(deal, terms.batch)
        return [self.inside(terms, deal.learn.take(batch)) for batch in dealt]

    # Answers

    def proposal(
        self,
        codec: RunCodec,
        probe: Probe,
        learn: Data,
        batches: Sequence[Data] | None,
        place: Stream,
    ) -> Model:
        """What this device proposes: leaves rest on enough rows, batches are always the same."""
        proposer = codec.proposer
        if batches is not None and isinstance(proposer, GradientStep):
            first = int(place.at("batch").uniform(1)[0] * len(batches))
            return steps_on(proposer, codec.learner, probe, batches, first)
        grower = self.grower(codec.terms, learn.rows)
        with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
            return proposer.answer(grower, probe, learn, place)

    def grower(self, terms: Terms, rows: int) -> Learner:
        """What grows models of so many private rows, each leaf on enough of them."""
        learner = self.family.learner(terms)
        fit_to_leave = sheltered(learner, rows, self.policy.rows_per_leaf)
        return self.family.grower(terms, fit_to_leave)

    def keep(self, run: str, stored: StoredModel) -> None:
        """Put the own model away: names of runs are the asker's, the disk is the owner's."""
        if not self.shelf.put(run, stored, most=self.policy.disk):
            raise Refused("disk")

    # The ledger

    def allowance(self, question: Inquiry) -> Allowance:
        """What is left of the owner's limits for this message."""
        return Allowance(self.policy, self.ledger, question.run)

    def telling(
        self,
        question: Inquiry,
        kind: str,
        name: str,
        about: tuple[object, ...],
        rows: int,
        out: Arrays,
    ) -> Entry:
        """The line for what this device tells of itself: it counts by its numbers, too."""
        said = (kind, about, question.run, question.round)
        digest = digest_of(said, question.arrays)
        allowance = self.allowance(question)
        many = numbers_of(out)
        must(allowance.question(name, digest))
        must(allowance.numbers(digest, many))
        left = {"rows": rows, "bytes": size_of(out), "numbers": many}
        return question.entry(kind, name, digest, **left)

    def news(self, question: Inquiry, rows: int) -> dict[str, int]:
        """How many rows there are, and how many of them came since the round before."""
        before = self.ledger.rows(question.run, question.round)
        return {"rows": rows, "new": 0 if before is None else max(rows - before, 0)}


def must(code: str) -> None:
    """Refuse what is not allowed."""
    if code != "ok":
        raise Refused(code)


def check_fit(codec: RunCodec, table: Data) -> None:
    """Stop where a loss cannot take the labels; by the table alone, whatever units are asked for.

    Counts and classes have no other units. In units of the asker's choice, whether labels fit would
    tell the least of them.
    """
    terms = codec.terms
    learner = codec.learner
    nothing = Data(np.zeros((1, terms.features)), np.array([-0.5]), np.ones(1))
    picky = isinstance(learner, LabelCheck) and learner.check_labels(nothing)
    if (picky or terms.classes) and (terms.label_mean, terms.label_scale) != (0, 1):
        raise WireError("labels that are counts or classes have no other units.")
    check_labels([learner], alone(table))


def steps_on(
    proposer: GradientStep,
    learner: Learner,
    model: Array,
    batches: Sequence[Data],
    first: int,
) -> Array:
    """Gradient steps on one batch after the other."""
    one = GradientStep(proposer.step_size)
    for step in range(proposer.steps):
        model = one.answer(learner, model, batches[(first + step) % len(batches)], None)
    return model
