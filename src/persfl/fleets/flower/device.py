"""A device at home: its rows, its policy, its ledger, its model. It answers questions that come as bytes, with bytes.

    describe   who it is, how many rows, which columns; with leave, sums over its rows for shared units
    answer     as a peer: from each target's probe, a proposal
    score      as a target: the own loss of its model and of every proposal
    adopt      as a target: take what was chosen; its new probe
    blend      as both: many small questions at once (see `persfl.fleets.flower.blending`)

Whatever goes wrong inside becomes a short code: the text of an error may hold private values and stays here.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sklearn

from persfl.fleets.flower.blending import AS_TARGET, Home, digest_of_one, names_of
from persfl.fleets.flower.judging import judged
from persfl.fleets.flower.ledger import Entry, Ledger
from persfl.fleets.flower.policy import Policy
from persfl.fleets.flower.questions import MOST, Refused, adopted, adoptions_of, alone, digest_of, size_of, sums_of, whole_of
from persfl.fleets.flower.shelf import Kept, Shelf
from persfl.fleets.home import check_labels
from persfl.fleets.start import starting_model
from persfl.seeds import stream
from persfl.types import Data
from persfl.wire import Terms, WireError, model_from, model_to, nested, pack, probe_from, probe_to, unpack, within
from persfl.worth import split

KINDS = ("describe", "answer", "score", "adopt", "blend")


class Rows(NamedTuple):
    """A device's rows now, and what its columns are called."""

    columns: Sequence[str]
    data: Data


class Device:
    """`rows` is a `Rows`, or a function of the round to one (rows that keep arriving).

    >>> device = Device("ann", Rows(["x"], Data(np.ones((9, 1)), np.ones(9))))
    >>> head, _ = unpack(device.reply("describe", pack({"run": "r", "round": 0, "ask": 7})))
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
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.name, self.policy = name, policy or Policy()
        self.ledger, self.shelf = ledger or Ledger(), shelf or Shelf()
        self._rows = rows if callable(rows) else lambda _: rows
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
            return pack({"code": "ok", "device": self.name, "seconds": spent} | about | found, out)
        except Exception as error:
            code = self._no(error, kind, about)
        try:
            self.ledger.write([Entry(about["run"], about["round"], kind, "", "", code=code)])
        except Exception:
            self._log(f"the ledger could not be written\n{traceback.format_exc()}")
        return pack({"code": code, "device": self.name} | about)

    def _no(self, error: Exception, what: str, about: Mapping[str, Any]) -> str:
        """The code for what went wrong, while it is handled; its text stays in the log here."""
        if isinstance(error, Refused):
            return str(error)
        if isinstance(error, WireError):
            return "format"
        self._log(f"{what} in round {about['round']} failed\n{traceback.format_exc()}")
        return "failed"

    def _describe(self, head: Mapping[str, Any], arrays: Mapping[str, Any], about: Mapping[str, Any]) -> Any:
        now = self._rows(about["round"])
        found: dict[str, Any] = {"rows": now.data.rows, "columns": [str(name) for name in now.columns]}
        out: dict[str, Any] = {}
        if head.get("sums"):
            if not self.policy.sums:
                raise Refused("sums")
            terms, me = Terms.from_wire(head, arrays), whole_of(head, "me")
            data = self._learning(terms, me, about["round"])[0]
            if data.rows < self.policy.rows:
                raise Refused("rows")
            digest = self._counted("sums", head["terms"], about, me, now.data.rows, arrays)
            out = sums_of(data, arrays.get("about"))
            entry = Entry(about["run"], about["round"], "sums", "", digest, now.data.rows, size_of(out))
        else:
            entry = Entry(about["run"], about["round"], "describe", "", "", now.data.rows)
        self.ledger.write([entry])
        return found, out

    def _answer(self, head: Mapping[str, Any], arrays: Mapping[str, Any], about: Mapping[str, Any]) -> Any:
        terms, me = Terms.from_wire(head, arrays), whole_of(head, "me")
        names, targets = head.get("names"), arrays.get("targets")
        if not isinstance(names, list) or targets is None or targets.dtype != np.int64 or targets.shape != (len(names),):
            raise WireError("a question must say on whose behalf it is asked.")
        if len(names) > MOST or not all(isinstance(name, str) and len(name) <= 200 for name in names):
            raise WireError("a question must say on whose behalf it is asked.")
        data = self._rows(about["round"]).data
        learn = self._learning(terms, me, about["round"])[0]
        self._allow(terms, learn.rows)
        new = self._new(data.rows, about)
        learner, proposer = terms.learner(), terms.proposer()
        check_labels([learner], alone(learn))
        codes: list[str] = []
        out: dict[str, Any] = {}
        entries: list[Entry] = []
        spent: dict[str, int] = {}
        for i, (name, target) in enumerate(zip(names, targets.tolist(), strict=True)):
            asked = within(f"q{i}", arrays)
            which = (sorted(head["terms"].items()), about["round"], name, target, me, data.rows)
            digest = digest_of(which, asked, within("terms", arrays))
            code = self._limit(name, digest, spent)
            if code == "ok":
                try:
                    probe = probe_from(proposer, learner, asked, terms.features, terms.classes)
                    place = stream(terms.seed, "answer", about["round"], target, me)
                    with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
                        proposal = proposer.answer(learner, probe, learn, place)
                    out |= nested(f"p{i}", model_to(learner, proposal))
                except Exception as error:
                    code = self._no(error, "answer", about)
            codes.append(code)
            size = size_of(within(f"p{i}", out)) if code == "ok" else 0
            entries.append(Entry(about["run"], about["round"], "answer", name, digest, data.rows, size, code))
        self.ledger.write(entries)
        return {"codes": codes, "rows": data.rows, "new": new}, out

    def _score(self, head: Mapping[str, Any], arrays: Mapping[str, Any], about: Mapping[str, Any]) -> Any:
        terms, me, kept, learn, held = self._target(head, arrays, about)
        learner, proposer = terms.learner(), terms.proposer()
        probe = proposer.ask(learner, kept.model)
        count = whole_of(head, "count", most=MOST)
        losses, lengths = np.full(count, np.inf), np.full(count, np.nan)
        for i in range(count):
            try:
                proposal = model_from(learner, within(f"p{i}", arrays), terms.features, terms.classes)
                losses[i], lengths[i] = learner.loss(proposal, learn), proposer.length(learner, probe, proposal)
            except WireError:
                continue
        rows = learn.rows + held.rows
        told = {name: head.get(name) for name in ("count", "step", "judge", "adoptions")}
        digest = self._counted("score", (sorted(head["terms"].items()), told), about, me, rows, arrays)
        found = {"rows": rows, "new": self._new(rows, about)}
        out = {"own": np.array([float(learner.loss(kept.model, learn))]), "losses": losses, "lengths": lengths}
        if head.get("step") and hasattr(learner, "grad"):
            place = stream(terms.seed, "answer", about["round"], me, me)
            out |= nested("step", model_to(learner, proposer.answer(learner, probe, learn, place)))
        if head.get("judge"):
            out |= judged(terms, me, kept.model, learn, held)
        self.ledger.write([Entry(about["run"], about["round"], "score", self.name, digest, rows, size_of(out))])
        return found, out

    def _adopt(self, head: Mapping[str, Any], arrays: Mapping[str, Any], about: Mapping[str, Any]) -> Any:
        terms, me, kept, learn, held = self._target(head, arrays, about)
        learner, proposer = terms.learner(), terms.proposer()
        rows, digest, out = learn.rows + held.rows, "", {}
        if head.get("probe"):
            told = (sorted(head["terms"].items()), head.get("adoptions"))
            digest = self._counted("adopt", told, about, me, rows, arrays)
            out = nested("probe", probe_to(proposer, learner, proposer.ask(learner, kept.model)))
        self.ledger.write([Entry(about["run"], about["round"], "adopt", self.name, digest, rows, size_of(out))])
        return {"rows": rows, "after": kept.round}, out

    def _blend(self, head: Mapping[str, Any], arrays: Mapping[str, Any], about: Mapping[str, Any]) -> Any:
        terms, me, asks = Terms.from_wire(head, arrays), whole_of(head, "me"), head.get("asks")
        if not isinstance(asks, list) or len(asks) > MOST:
            raise WireError("questions must be a list.")
        learn, held = self._learning(terms, me, about["round"])
        self._allow(terms, learn.rows)
        check_labels([terms.learner()], alone(learn))
        home = Home(terms, me, learn, held, lambda more: self._allow(more, learn.rows), self.policy.sums, self.policy.target)
        rows, codes, spent = learn.rows + held.rows, [], dict[str, int]()
        out: dict[str, Any] = {}
        entries: list[Entry] = []
        for i, asked in enumerate(asks):
            inner, found, code = within(f"k{i}", arrays), dict[str, Any](), "ok"
            names, digests, limits = list[str](), list[str](), list[str]()
            try:
                names = [self.name] if isinstance(asked, dict) and asked.get("what") in AS_TARGET else names_of(asked)
                digests = [digest_of_one(head["terms"], asked, inner, j, name, me, rows) for j, name in enumerate(names)]
                limits = [self._limit(name, digest, spent) for name, digest in zip(names, digests, strict=True)]
                if "ok" not in limits:
                    raise Refused(limits[0])
                found = home.reply(asked, inner, [limit == "ok" for limit in limits])
                if "model" in found:
                    self.shelf.put(about["run"], Kept(about["round"] + 1, found["model"], terms))
            except Exception as error:
                code = self._no(error, "a question", about)
            codes.append(code)
            out |= nested(f"k{i}", found)
            what = str(asked.get("what"))[:20] if isinstance(asked, dict) else "blend"
            each = size_of(found) // max(limits.count("ok"), 1)
            entries += [
                Entry(about["run"], about["round"], what, name, digest, rows, each if said == "ok" else 0, said)
                for name, digest, said in zip(names, digests, limits if code == "ok" else [code] * len(names), strict=False)
            ]
        self.ledger.write(entries or [Entry(about["run"], about["round"], "blend", "", "", code="format")])
        return {"codes": codes, "rows": rows, "new": self._new(rows, about)}, out

    def _target(self, head: Mapping[str, Any], arrays: Mapping[str, Any], about: Mapping[str, Any]) -> Any:
        """This device as a target: its model after everything it was told to adopt."""
        if not self.policy.target:
            raise Refused("target")
        terms, me = Terms.from_wire(head, arrays), whole_of(head, "me")
        learn, held = self._learning(terms, me, about["round"])
        self._allow(terms, learn.rows)
        learner = terms.learner()
        check_labels([learner], alone(learn))
        kept = self.shelf.get(about["run"])
        before = kept
        if kept is None:
            kept = Kept(0, starting_model(learner, learn, stream(terms.seed, "start", me), terms.start), terms)
        for i, told in enumerate(adoptions_of(head)):
            if told["round"] < kept.round and not told["set"]:
                continue  # it was adopted before an interruption
            if told["round"] > kept.round and not told["set"]:
                raise Refused("state")
            pieces = [
                model_from(learner, within(f"a{i}.{k}", arrays), terms.features, terms.classes) for k in range(len(told["weights"]))
            ]
            model = adopted(learner, kept.model, pieces, told["weights"], told["stay"])
            if not told["set"]:
                model = self._after(terms, learner, model, learn, told["round"], me)
            kept = Kept(told["round"] + 1, model, terms)
        if kept is not before:
            self.shelf.put(about["run"], kept)
        return terms, me, kept, learn, held

    @staticmethod
    def _after(terms: Terms, learner: Any, model: Any, data: Data, r: int, me: int) -> Any:
        """What follows an adoption: running statistics, the own step."""
        if getattr(learner, "renews", False):
            model = learner.settled(model, data)
        own = terms.own_step()
        return model if own is None else own.answer(learner, own.ask(learner, model), data, stream(terms.seed, "local", r, me))

    def _new(self, rows: int, about: Mapping[str, Any]) -> int:
        """How many rows came since the round before."""
        before = self.ledger.rows(about["run"], about["round"])
        return 0 if before is None else max(rows - before, 0)

    def _allow(self, terms: Terms, rows: int) -> None:
        no = self.policy.refuses(terms, rows)
        if no is not None:
            raise Refused(no)

    def _counted(self, kind: str, told: Any, about: Mapping[str, Any], me: int, rows: int, arrays: Mapping[str, Any]) -> str:
        """The digest of a question about this device itself, if it is within the limits: what it tells of its rows counts, too."""
        digest = digest_of((kind, told, about["run"], about["round"], me, rows), arrays)
        code = self._limit("" if kind == "sums" else self.name, digest, {})
        if code != "ok":
            raise Refused(code)
        return digest

    def _limit(self, name: str, digest: str, spent: dict[str, int]) -> str:
        """Whether one more question of this target is within the limits; `spent` counts those of this message."""
        if self.ledger.known(digest):
            return "ok"
        own, total = self.ledger.counts(name)
        if own + spent.get(name, 0) >= self.policy.questions_per_target:
            return "questions_per_target"
        if total + sum(spent.values()) >= self.policy.questions:
            return "questions"
        spent[name] = spent.get(name, 0) + 1
        return "ok"

    def _learning(self, terms: Terms, me: int, r: int) -> tuple[Data, Data]:
        """Rows to learn from and rows held back, in the units of the run."""
        now = self._rows(r)
        place = {str(name): i for i, name in enumerate(now.columns)}
        if any(name not in place for name in terms.columns):
            raise Refused("columns")
        X = np.ascontiguousarray(now.data.X[:, [place[name] for name in terms.columns]])
        mine = alone(Data(X, now.data.y, now.data.weight))
        learn, held = (
            split(mine, terms.holdout, seed=terms.seed, classes=terms.classes, first=me) if terms.holdout else (mine, None)
        )
        empty = Data(np.empty((0, terms.features)), np.empty(0))
        return terms.inside(learn[0]), empty if held is None or not len(held.X) else terms.inside(held[0])
