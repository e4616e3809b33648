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
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from persfl import __version__
from persfl.federation import device_peer, device_target
from persfl.federation.asked_device import AS_TARGET, AskedDevice, RowsAsked, names_of
from persfl.federation.column_sums import sums_of, zeros_and_ones
from persfl.federation.device_home import DeviceHome, must
from persfl.federation.inquiry import Inquiry
from persfl.federation.ledger import TELLING, Entry, Ledger
from persfl.federation.messages import (
    MOST,
    PROTOCOL,
    Content,
    Refused,
    numbers_of,
    parts_of,
    size_of,
)
from persfl.federation.model_store import Shelf, StoredModel
from persfl.federation.node_family import NodeFamily
from persfl.federation.policy import Policy
from persfl.federation.privacy_settings import PrivacySettings
from persfl.federation.private_desk import PrivateDesk
from persfl.federation.private_messages import PrivateMessages
from persfl.federation.row_stock import Lot
from persfl.federation.row_table import Rows
from persfl.federation.sums_device import SumsDevice
from persfl.federation.told_terms import tells_bends, tells_losses, tells_sums
from persfl.learners.any_family import ANY
from persfl.methods.blend.questions import KINDS as QUESTIONS
from persfl.wire.codec import WireError, nested, pack

KINDS = ("describe", "answer", "score", "adopt", "blend")


class Device(DeviceHome):
    """`rows` is a `Rows`, or a function of the round to one (rows that keep arriving).

    Which of them are held back, in which fold or batch, is decided by `lot`: by default the
    ledger's secret. Devices that are to give what a run in one process gives are told its seed and
    their position. With `privacy` everything that leaves is noised and paid for. `family` is what
    it answers in where a run lets every device have its own.

    >>> import numpy as np
    >>> from persfl import Data
    >>> from persfl.wire import unpack
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
        privacy: PrivacySettings | None = None,
        family: NodeFamily | None = None,
    ) -> None:
        book = ledger or Ledger()
        super().__init__(
            name,
            rows if callable(rows) else lambda _: rows,
            policy or Policy(),
            book,
            shelf or Shelf(),
            lot or Lot(book.secret),
            family or NodeFamily(),
        )
        self._log = log or (lambda _: None)
        self._kinds: dict[str, Callable[[Inquiry], Content]] = {
            "describe": self._describe,
            "answer": lambda question: device_peer.proposals(self, question, self._log),
            "score": lambda question: device_target.score(self, question),
            "adopt": lambda question: device_target.adopt(self, question),
            "blend": self._blend,
        }
        self._protected = privacy is not None
        if privacy is not None:  # nothing but what its desk lets through
            desk = PrivateDesk(self, privacy)
            self._kinds = PrivateMessages(desk, self._log).kinds()

    def reply(self, kind: str, body: object) -> bytes:
        """The answer to a message; never raises."""
        begin = time.perf_counter()
        try:
            question = Inquiry.read(kind, body)
        except WireError:
            return pack({"code": "format", "device": self.name})
        try:
            if kind not in self._kinds:
                raise Refused("kind")
            found, out = self._kinds[kind](question)
            spent = round(time.perf_counter() - begin, 6)
            if self._protected:
                spent = 0.0  # how long it took hangs on the rows
            told = {"code": "ok", "device": self.name, "seconds": spent}
            return pack(told | question.about | found, out)
        except Exception as error:
            code = self._code(error, kind, question)
        try:
            self.ledger.write([question.entry(kind, code=code)])
        except Exception:
            self._log(f"the ledger could not be written\n{traceback.format_exc()}")
        return pack({"code": code, "device": self.name} | question.about)

    def _code(self, error: Exception, what: str, question: Inquiry) -> str:
        return device_peer.code_of(error, what, question.round, self._log)

    def _describe(self, question: Inquiry) -> Content:
        now = self.source(question.round)
        rows = now.data.rows
        found: dict[str, Any] = {
            "rows": rows,
            "columns": [str(name) for name in now.columns],
            "target": self.policy.target,  # whether it wants a model of its own
            "family": self.family.model,
            "protocol": PROTOCOL,
            "version": __version__,
        }
        out: dict[str, NDArray[Any]] = {}
        entry = question.entry("describe", rows=rows)
        if question.head.get("sums"):
            out, mark = self._sums(question)
            about = (question.plain_terms, question.me, mark)
            entry = self.telling(question, "sums", "", about, rows, out)
        self.ledger.write([entry], self.policy)
        return found, out

    def _sums(self, question: Inquiry) -> tuple[dict[str, NDArray[Any]], str]:
        """Sums over rows, and which rows these were."""
        if not self.policy.sums:
            raise Refused("sums")
        terms = question.terms
        _ = question.me
        deal = self.deal(terms, question.round)
        if deal.learn.X.size * terms.features > self.policy.work:
            raise Refused("work")
        inside = terms.inside(self.alike(deal.learn))
        # In the units of the table: in others, these would be values of the asker's choice.
        out = sums_of(inside, question.arrays.get("about")) | zeros_and_ones(deal.learn)
        return out, deal.mark

    def _blend(self, question: Inquiry) -> Content:
        terms = question.terms
        me = question.me
        asks = question.head.get("asks")
        if terms.model == ANY:
            raise Refused("models")
        if not isinstance(asks, list) or len(asks) > MOST:
            raise WireError("questions must be a list.")
        deal = self.dealt_for(question)
        asked_rows = RowsAsked(terms, deal, self.stock, self.policy, self.likenesses)
        home = _asked_as(asked_rows)
        rows = self.count(question.round)
        parts = parts_of(question.arrays)
        said = question.digest(me, deal.mark)
        allowance = self.allowance(question)
        out: dict[str, NDArray[Any]] = {}
        codes: list[str] = []
        entries: list[Entry] = []
        for i, asked in enumerate(asks):
            inner = parts.get(f"k{i}", {})
            found = dict[str, Any]()
            code = "ok"
            names = list[str]()
            digests = list[str]()
            what = asked.get("what") if isinstance(asked, dict) else None
            # it stands in the ledger
            what = str(what) if what in QUESTIONS else "blend"
            try:
                names = [self.name] if what in AS_TARGET else names_of(asked)
                one = home.question(asked, inner, names)
                digests = home.digests(said, one, names)
                # All or nothing: half an answer would not be noticed.
                for name, digest in zip(names, digests, strict=True):
                    must(allowance.question(name, digest))
                must(allowance.work(home.work(one, len(names))))
                found, model = home.reply(one, len(names))
                if what in TELLING:
                    must(allowance.numbers(digests[0], numbers_of(found)))
                if model is not None:
                    stored = StoredModel(question.round + 1, model, terms)
                    self.keep(question.run, stored)
            except Exception as error:
                code = self._code(error, "a question", question)
                found = {}
            codes.append(code)
            out |= nested(f"k{i}", found)
            many = max(len(names), 1)
            whole = what in TELLING
            sizes = _shares(size_of(found), many, whole=whole)
            numbers = _shares(numbers_of(found), many, whole=whole)
            each = zip(names, digests, sizes, numbers, strict=False)
            for name, digest, size, count in each:
                left = {"rows": rows, "bytes": size, "code": code, "numbers": count}
                entries.append(question.entry(what, name, digest, **left))
        nothing = question.entry("blend", code="format")
        self.ledger.write(entries or [nothing], self.policy)
        return {"codes": codes, **self.news(question, rows)}, out


def _shares(total: int, names: int, *, whole: bool) -> list[int]:
    """What an answer to so many askers counts for each of them.

    What a device tells of itself is one answer, however many names stand beside the question: the
    first has all of it. Shared out, or under one name twice, it would count as less than was told.

    >>> _shares(7, 3, whole=False), _shares(7, 3, whole=True)
    ([2, 2, 2], [7, 0, 0])
    """
    if whole:
        return [total, *[0] * (names - 1)]
    return [total // names] * names


def _asked_as(rows: RowsAsked) -> AskedDevice:
    """How the models of a run are asked about."""
    if tells_sums(rows.terms):
        return SumsDevice(rows)
    # blend's many files, where they are needed
    if tells_bends(rows.terms):
        from persfl.federation.class_device import ClassDevice

        return ClassDevice(rows)
    if tells_losses(rows.terms):
        from persfl.federation.loss_device import LossDevice

        return LossDevice(rows)
    from persfl.federation.blend_device import BlendDevice

    return BlendDevice(rows)
