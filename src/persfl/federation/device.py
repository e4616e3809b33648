"""A device at home: its rows, its policy, its ledger, its model. It answers questions that come as
bytes, with bytes.

    describe   who it is, how many rows, which columns; with leave, sums over its rows for shared
    units answer     as a peer: from each target's probe, a proposal
    score      as a target: the own loss of its model and of every proposal
    adopt      as a target: take what was chosen; its new probe
    blend      as both: many small questions at once (see `persfl.federation.blend_device`)

Whatever goes wrong inside becomes a short code: the text of an error may hold private values and
stays here.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import sklearn

from persfl.federation.allowance import Allowance
from persfl.federation.blend_device import (
    AS_PEER,
    AS_TARGET,
    Home,
    digests_of,
    names_of,
    work_of_one,
)
from persfl.federation.holdout import judged
from persfl.federation.ledger import TELLING, Entry, Ledger
from persfl.federation.model_store import Kept, Shelf
from persfl.federation.moment_rows import Likenesses, by_moments
from persfl.federation.policy import Policy, work_of, work_of_fit
from persfl.federation.questions import (
    MOST,
    Refused,
    Told,
    adopted,
    adoptions_of,
    check_fit,
    digest_of,
    numbers_of,
    parts_of,
    size_of,
    sums_of,
    whole_of,
    zeros_and_ones,
)
from persfl.federation.row_stock import Deal, Lot, Stock, Taken
from persfl.federation.row_table import Rows
from persfl.federation.tree_leaves import sheltered
from persfl.fleets.engine import starting_model
from persfl.proposers import GradientStep
from persfl.seeds import Stream, stream
from persfl.types import Array, Data
from persfl.wire import (
    LARGEST,
    Terms,
    WireError,
    model_from,
    model_to,
    nested,
    pack,
    probe_from,
    probe_to,
    sends_model,
    unpack,
    within,
)

# what a target may be asked
_SCORED = ("count", "step", "length", "judge", "adoptions")
KINDS = ("describe", "answer", "score", "adopt", "blend")


class Device:
    """`rows` is a `Rows`, or a function of the round to one (rows that keep arriving).

    Which of them are held back, in which fold or batch, is decided by `lot`: by default the
    ledger's secret. Devices that are to give what a run in one process gives are told its seed and
    their position.

    >>> device = Device("ann", Rows(["x"], Data(np.ones((9, 1)), np.ones(9))))
    >>> head, _ = unpack(
    ...     device.reply("describe", pack({"run": "r", "round": 0, "ask": 7}))
    ... )
    >>> head["code"], head["device"], head["rows"], head["columns"]
    ('ok', 'ann', 9, ['x'])
    """

    def __init__(
        self,
        name: str,
        rows: Rows | Callable[[int], Rows],
        *,
        policy: Policy | None = None,
        ledger: Ledger | None = None,
        shelf: Shelf | None = None,
        lot: Lot | None = None,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.name, self.policy = name, policy or Policy()
        self.ledger, self.shelf = ledger or Ledger(), shelf or Shelf()
        self.lot = lot or Lot(self.ledger.secret)
        self._rows = rows if callable(rows) else lambda _: rows
        self._last: tuple[Any, int, Taken] | None = None
        self._likenesses = Likenesses()
        self._log = log or (lambda _: None)

    def reply(self, kind: str, body: Any) -> bytes:
        """The answer to a message; never raises."""
        begin = time.perf_counter()
        head: dict[str, Any] = {}
        try:
            head, arrays = unpack(body)
            about: dict[str, Any] = {
                "run": str(head.get("run", ""))[:200],
                "round": whole_of(head, "round"),
                "ask": whole_of(head, "ask"),
                "kind": kind,
            }
        except WireError:
            return pack({"code": "format", "device": self.name})
        try:
            if kind not in KINDS:
                raise Refused("kind")
            found, out = getattr(self, f"_{kind}")(head, arrays, about)
            spent = round(time.perf_counter() - begin, 6)
            return pack(
                {"code": "ok", "device": self.name, "seconds": spent} | about | found,
                out,
            )
        except Exception as error:
            code = self._no(error, kind, about)
        try:
            self.ledger.write(
                [Entry(about["run"], about["round"], kind, "", "", code=code)]
            )
        except Exception:
            self._log(f"the ledger could not be written\n{traceback.format_exc()}")
        return pack({"code": code, "device": self.name} | about)

    def _no(self, error: Exception, what: str, about: Told) -> str:
        """The code for what went wrong, while it is handled; its text stays in the log here."""
        if isinstance(error, Refused):
            return str(error)
        if isinstance(error, WireError):
            return "format"
        self._log(f"{what} in round {about['round']} failed\n{traceback.format_exc()}")
        return "failed"

    def _describe(self, head: Told, arrays: Told, about: Told) -> Any:
        now = self._rows(about["round"])
        found: dict[str, Any] = {
            "rows": now.data.rows,
            "columns": [str(name) for name in now.columns],
        }
        found["target"] = self.policy.target  # whether it wants a model of its own
        out: dict[str, Any] = {}
        entry = Entry(about["run"], about["round"], "describe", "", "", now.data.rows)
        if head.get("sums"):
            if not self.policy.sums:
                raise Refused("sums")
            terms, me = Terms.from_wire(head, arrays), whole_of(head, "me")
            deal = self._deal(terms, about["round"])
            if deal.learn.rows < self.policy.rows:
                raise Refused("rows")
            _must(
                "work"
                if deal.learn.X.size * terms.features > self.policy.work
                else "ok"
            )
            seen, about_ = terms.inside(self._alike(deal.learn)), arrays.get("about")
            # In the units of the table: in others, these would be values of the asker's choice.
            out = sums_of(seen, about_) | zeros_and_ones(deal.learn)
            said = (sorted(head["terms"].items()), me, deal.mark)
            entry = self._told("sums", "", said, arrays, about, now.data.rows, out)
        self.ledger.write([entry], self.policy)
        return found, out

    def _answer(self, head: Told, arrays: Told, about: Told) -> Any:
        terms, me = Terms.from_wire(head, arrays), whole_of(head, "me")
        names, targets = head.get("names"), arrays.get("targets")
        if (
            not isinstance(names, list)
            or targets is None
            or targets.dtype != np.int64
            or targets.shape != (len(names),)
        ):
            raise WireError("a question must say on whose behalf it is asked.")
        if len(names) > MOST or not all(
            isinstance(name, str) and len(name) <= 200 for name in names
        ):
            raise WireError("a question must say on whose behalf it is asked.")
        rows = self._rows(about["round"]).data.rows
        deal = self._deal(terms, about["round"])
        self._allow(terms, deal.learn.rows)
        learn = self._seen(terms, deal.learn)
        learner, proposer = terms.learner(), terms.proposer()
        check_fit(terms, deal.learn)
        batches = self._batches(terms, deal)
        told = (sorted(head["terms"].items()), about["round"], me, deal.mark)
        said = digest_of(told, within("terms", arrays))
        asked, allowance = (
            parts_of(arrays),
            Allowance(self.policy, self.ledger, about["run"]),
        )
        work, size = work_of(terms, learn.rows), 0
        codes: list[str] = []
        out: dict[str, Any] = {}
        entries: list[Entry] = []
        for i, (name, target) in enumerate(zip(names, targets.tolist(), strict=True)):
            probed = asked.get(f"q{i}", {})
            digest = digest_of((said, name, target), probed)
            code, given = allowance.question(name, digest), dict[str, Any]()
            if code == "ok":
                code = allowance.work(work)
            if code == "ok":
                try:
                    probe = probe_from(
                        proposer, learner, probed, terms.features, terms.classes
                    )
                    place = stream(
                        self.lot.seed, "answer", about["round"], target, self.lot.number
                    )
                    given = model_to(
                        learner, self._proposal(terms, probe, learn, batches, place)
                    )
                    size += size_of(given)
                    if size > LARGEST:  # what cannot travel is not collected either
                        raise Refused("work")
                    out |= nested(f"p{i}", given)
                except Exception as error:
                    code, given = self._no(error, "answer", about), {}
            codes.append(code)
            left = size_of(given), code, numbers_of(given)
            entries.append(
                Entry(about["run"], about["round"], "answer", name, digest, rows, *left)
            )
        self.ledger.write(entries, self.policy)
        return {"codes": codes, "rows": rows, "new": self._new(rows, about)}, out

    def _proposal(
        self,
        terms: Terms,
        probe: Any,
        learn: Data,
        batches: Sequence[Data] | None,
        place: Stream,
    ) -> Any:
        """What this device proposes: leaves rest on enough rows, batches are always the same."""
        learner, proposer = terms.learner(), terms.proposer()
        if batches is None:
            grower = sheltered(learner, learn.rows, self.policy.rows_per_leaf)
            with sklearn.config_context(
                assume_finite=True, skip_parameter_validation=True
            ):
                return proposer.answer(grower, probe, learn, place)
        first = int(place.at("batch").uniform(1)[0] * len(batches))
        return stepped(proposer, learner, probe, batches, first)

    def _score(self, head: Told, arrays: Told, about: Told) -> Any:
        terms, me, kept, deal, allowance = self._target(head, arrays, about)
        learn = self._seen(terms, deal.learn)
        learner, proposer = terms.learner(), terms.proposer()
        probe = proposer.ask(learner, kept.model)
        count = whole_of(head, "count", most=MOST)
        moves = sends_model(proposer, learner) and bool(
            head.get("step") or head.get("length")
        )
        _must(allowance.work((count + 1 + moves) * work_of(terms, learn.rows)))
        _must(
            allowance.work(work_of_fit(terms, learn.rows) if head.get("judge") else 0)
        )
        losses, lengths, shown = (
            np.full(count, np.inf),
            np.full(count, np.nan),
            parts_of(arrays),
        )
        for i in range(count):
            try:
                proposal = model_from(
                    learner, shown.get(f"p{i}", {}), terms.features, terms.classes
                )
                losses[i], lengths[i] = (
                    learner.loss(proposal, learn),
                    proposer.length(learner, probe, proposal),
                )
            except WireError:
                continue
        rows = self._rows(about["round"]).data.rows
        out = {
            "own": np.array([float(learner.loss(kept.model, learn))]),
            "losses": losses,
            "lengths": lengths,
        }
        if moves:
            place = stream(self.lot.seed, "answer", about["round"], me, self.lot.number)
            batches = self._batches(terms, deal)
            step = self._proposal(terms, probe, learn, batches, place)
            if head.get("step"):
                out |= nested("step", model_to(learner, step))
            if head.get("length"):
                out["length"] = np.array([float(proposer.length(learner, probe, step))])
        if head.get("judge"):
            both = deal.learn, deal.held
            single = self.policy.rows <= 1
            out |= judged(terms, kept.model, *both, self.lot.seed, single=single)
        told = {name: head.get(name) for name in _SCORED}
        said = (
            sorted(head["terms"].items()),
            told,
            me,
            deal.mark,
            _state(learner, kept),
        )
        entry = self._told("score", self.name, said, arrays, about, rows, out)
        self.ledger.write([entry], self.policy)
        return {"rows": rows, "new": self._new(rows, about)}, out

    def _adopt(self, head: Told, arrays: Told, about: Told) -> Any:
        terms, me, kept, deal, _ = self._target(head, arrays, about)
        learner, proposer = terms.learner(), terms.proposer()
        rows, out = self._rows(about["round"]).data.rows, dict[str, Any]()
        entry = Entry(about["run"], about["round"], "adopt", self.name, "", rows)
        if head.get("probe"):
            out = nested(
                "probe", probe_to(proposer, learner, proposer.ask(learner, kept.model))
            )
            told = sorted(head["terms"].items()), head.get("adoptions")
            said = (*told, me, deal.mark, _state(learner, kept))
            entry = self._told("adopt", self.name, said, arrays, about, rows, out)
        self.ledger.write([entry], self.policy)
        return {"rows": rows, "after": kept.round}, out

    def _blend(self, head: Told, arrays: Told, about: Told) -> Any:
        terms, me, asks = (
            Terms.from_wire(head, arrays),
            whole_of(head, "me"),
            head.get("asks"),
        )
        if not isinstance(asks, list) or len(asks) > MOST:
            raise WireError("questions must be a list.")
        deal = self._deal(terms, about["round"])
        self._allow(terms, deal.learn.rows)
        check_fit(terms, deal.learn)
        home = Home(terms, deal, self._stock(), self.policy, self._likenesses)
        rows, parts = self._rows(about["round"]).data.rows, parts_of(arrays)
        told = (sorted(head["terms"].items()), me, deal.mark)
        said = digest_of(told, within("terms", arrays))
        allowance = Allowance(self.policy, self.ledger, about["run"])
        out: dict[str, Any] = {}
        codes: list[str] = []
        entries: list[Entry] = []
        for i, asked in enumerate(asks):
            inner, found, code = parts.get(f"k{i}", {}), dict[str, Any](), "ok"
            names, digests = list[str](), list[str]()
            what = asked.get("what") if isinstance(asked, dict) else None
            # it stands in the ledger
            what = what if what in AS_PEER + AS_TARGET else "blend"
            try:
                names = [self.name] if what in AS_TARGET else names_of(asked)
                digests = digests_of(said, asked, inner, names)
                # All or nothing: half an answer would not be noticed.
                for name, digest in zip(names, digests, strict=True):
                    _must(allowance.question(name, digest))
                _must(
                    allowance.work(
                        work_of_one(terms, asked, inner, deal.learn.rows, len(names))
                    )
                )
                found = home.reply(asked, inner, len(names))
                if what in TELLING:
                    _must(allowance.numbers(digests[0], numbers_of(found)))
                if "model" in found:
                    self._keep(
                        about["run"], Kept(about["round"] + 1, found["model"], terms)
                    )
            except Exception as error:
                code, found = self._no(error, "a question", about), {}
            codes.append(code)
            out |= nested(f"k{i}", found)
            many = max(len(names), 1)
            left = size_of(found) // many, code, numbers_of(found) // many
            entries += [
                Entry(about["run"], about["round"], what, name, digest, rows, *left)
                for name, digest in zip(names, digests, strict=False)
            ]
        nothing = Entry(about["run"], about["round"], "blend", "", "", code="format")
        self.ledger.write(entries or [nothing], self.policy)
        return {"codes": codes, "rows": rows, "new": self._new(rows, about)}, out

    def _target(self, head: Told, arrays: Told, about: Told) -> Any:
        """This device as a target: its model after everything it was told to adopt."""
        if not self.policy.target:
            raise Refused("target")
        terms, me = Terms.from_wire(head, arrays), whole_of(head, "me")
        deal = self._deal(terms, about["round"])
        self._allow(terms, deal.learn.rows)
        learn = self._seen(terms, deal.learn)
        learner = terms.learner()
        check_fit(terms, deal.learn)
        kept, told_to = self.shelf.get(about["run"]), adoptions_of(head)
        before = kept
        allowance = Allowance(self.policy, self.ledger, about["run"])
        _must(allowance.work(len(told_to) * work_of(terms, learn.rows)))
        if kept is None:
            fits = terms.start == "own" or not hasattr(learner, "grad")
            _must(allowance.work(work_of_fit(terms, learn.rows) if fits else 0))
            # What this model says at public points will leave.
            grower = sheltered(learner, learn.rows, self.policy.rows_per_leaf)
            kept = Kept(
                0,
                starting_model(grower, learn, self.lot.at("start"), terms.start),
                terms,
            )
        parts = parts_of(arrays)
        for i, told in enumerate(told_to):
            if told["round"] < kept.round and not told["set"]:
                continue  # it was adopted before an interruption
            if told["round"] > kept.round and not told["set"]:
                raise Refused("state")
            mine = parts_of(parts.get(f"a{i}", {}))
            pieces = [
                model_from(learner, mine.get(str(k), {}), terms.features, terms.classes)
                for k in range(len(told["weights"]))
            ]
            model = adopted(learner, kept.model, pieces, told["weights"], told["stay"])
            if not told["set"]:
                model = self._after(terms, learner, model, learn, told["round"])
            kept = Kept(told["round"] + 1, model, terms)
        if kept is not before:
            self._keep(about["run"], kept)
        return terms, me, kept, deal, allowance

    def _keep(self, run: str, kept: Kept) -> None:
        """Put the own model away: names of runs are the asker's, the disk is the owner's."""
        if not self.shelf.put(run, kept, most=self.policy.disk):
            raise Refused("disk")

    def _after(self, terms: Terms, learner: Any, model: Any, data: Data, r: int) -> Any:
        """What follows an adoption: running statistics, the own step."""
        if getattr(learner, "renews", False):
            model = learner.settled(model, data)
        own = terms.own_step()
        return (
            model
            if own is None
            else own.answer(
                learner, own.ask(learner, model), data, self.lot.at("local", r)
            )
        )

    def _new(self, rows: int, about: Told) -> int:
        """How many rows came since the round before."""
        before = self.ledger.rows(about["run"], about["round"])
        return 0 if before is None else max(rows - before, 0)

    def _allow(self, terms: Terms, rows: int) -> None:
        no = self.policy.refuses(terms, rows)
        if no is not None:
            raise Refused(no)
        if by_moments(terms) and rows * (terms.features + 1) ** 2 > self.policy.work:
            raise Refused("work")  # for rows alike

    def _told(
        self,
        kind: str,
        name: str,
        said: Any,
        arrays: Told,
        about: Told,
        rows: int,
        out: Told,
    ) -> Entry:
        """The line for what this device tells of itself: it counts by its numbers, too."""
        digest = digest_of((kind, said, about["run"], about["round"]), arrays)
        allowance, many = (
            Allowance(self.policy, self.ledger, about["run"]),
            numbers_of(out),
        )
        _must(allowance.question(name, digest))
        _must(allowance.numbers(digest, many))
        where = about["run"], about["round"]
        return Entry(*where, kind, name, digest, rows, size_of(out), numbers=many)

    def _stock(self) -> Stock:
        return Stock(self.ledger, self.lot, self.policy.rows)

    def _taken(self, r: int) -> tuple[Sequence[str], Taken]:
        """The rows that may be answered from now; looked up again only when rows have changed."""
        now = self._rows(r)
        if (
            self._last is None
            or self._last[0] is not now.data
            or self._last[1] != self.policy.rows
        ):
            self._last = (
                now.data,
                self.policy.rows,
                self._stock().taken(now.columns, now.data),
            )
        return now.columns, self._last[2]

    def _deal(self, terms: Terms, r: int) -> Deal:
        """Rows to learn from and rows held back, in the units of the table."""
        columns, taken = self._taken(r)
        place = {str(name): i for i, name in enumerate(columns)}
        if any(name not in place for name in terms.columns):
            raise Refused("columns")
        if taken.data.rows < self.policy.rows:
            raise Refused("rows")
        X = np.ascontiguousarray(
            taken.data.X[:, [place[name] for name in terms.columns]]
        )
        mine = replace(taken, data=Data(X, taken.data.y, taken.data.weight))
        deal = self._stock().deal(mine, terms.holdout, terms.classes)
        if deal.learn.rows < self.policy.rows:
            raise Refused("rows")
        self._stock().check(deal.place, deal.held_place)
        return deal

    def _alike(self, data: Data) -> Data:
        """Rows that tell moments alone; the rows themselves where the owner allows single ones."""
        return self._likenesses.of(data) if self.policy.rows > 1 else data

    def _seen(self, terms: Terms, data: Data) -> Data:
        """Rows in the units of the run, as questions may see them."""
        return terms.inside(self._alike(data) if by_moments(terms) else data)

    def _batches(self, terms: Terms, deal: Deal) -> list[Data] | None:
        """The batches of gradient steps; None where steps take all rows."""
        if (
            terms.batch is None
            or terms.public is not None
            or terms.batch >= deal.learn.rows
        ):
            return None
        dealt = self._stock().batches(deal, terms.batch)
        return [self._seen(terms, deal.learn.take(batch)) for batch in dealt]


def _state(learner: Any, kept: Kept) -> str:
    """What a target's answer depends on beside the question: the model it has."""
    return digest_of(kept.round, model_to(learner, kept.model))


def _must(code: str) -> None:
    """Refuse what is not allowed."""
    if code != "ok":
        raise Refused(code)


def stepped(
    proposer: GradientStep,
    learner: Any,
    model: Array,
    batches: Sequence[Data],
    first: int,
) -> Array:
    """Gradient steps on one batch after the other."""
    one = GradientStep(proposer.step_size)
    for step in range(proposer.steps):
        model = one.answer(learner, model, batches[(first + step) % len(batches)], None)
    return model
