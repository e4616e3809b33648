"""What was told under protection, in the ledger's file: each answer as it left, and its cost.

A question is paid for once. Its answer is written down in the same transaction as its cost and is
on the disk before it leaves; put again, in whatever run, by whatever name, it gets the very bytes
it got before. So what is spent is never less than what left, and noise cannot be averaged away.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any, NamedTuple

from persfl.federation.ledger_file import PROTECTED, transaction
from persfl.federation.ledger_mark import LedgerMark
from persfl.federation.messages import Refused
from persfl.privacy import Accountant, PrivacyBudget, answer_cost


class ProtectedAnswer(NamedTuple):
    """One protected answer: of which run, what, for whom, with which noise multiplier."""

    run: str
    kind: str
    target: str
    noise: float


class BudgetBook:
    """The protected answers of a ledger; `mark` is what the machine remembers outside of it."""

    def __init__(
        self, base: sqlite3.Connection, mark: LedgerMark | None = None
    ) -> None:
        self._base = base
        self._mark = mark
        base.execute(PROTECTED)

    @property
    def outdated(self) -> bool:
        """Whether this is an older copy: it lacks the answer that was paid for last."""
        last = "" if self._mark is None else self._mark.digest
        return bool(last) and self.reply(last) is None

    def account(self, budget: PrivacyBudget) -> Accountant:
        """How much of a budget is spent; all of it, where a ledger has forgotten how much."""
        if self.outdated:
            return Accountant(budget, budget.whole)
        found = self._base.execute("SELECT TOTAL(cost) FROM protected").fetchone()
        return Accountant(budget, float(found[0]))

    def reply(self, digest: str) -> bytes | None:
        """The answer that a question got before."""
        query = "SELECT reply FROM protected WHERE digest = ?"
        found = self._base.execute(query, (digest,)).fetchone()
        return None if found is None else bytes(found[0])

    def told(self, kind: str) -> bool:
        """Whether an answer of this kind has left."""
        query = "SELECT 1 FROM protected WHERE kind = ? LIMIT 1"
        return self._base.execute(query, (kind,)).fetchone() is not None

    def pay(
        self, digest: str, told: ProtectedAnswer, budget: PrivacyBudget, reply: bytes
    ) -> bytes:
        """Spend, keep and give back the answer, all at once; on the disk when this returns.

        `Refused`, and nothing spent, where the budget does not reach. Where another process was
        faster with the same question, its answer is the one.
        """
        cost = answer_cost(told.noise)
        with transaction(self._base):
            before = self.reply(digest)
            if before is not None:
                return before
            if not self.account(budget).fits(cost):
                raise Refused("budget")
            line = (digest, time.time(), *told, cost, reply)
            self._base.execute(
                "INSERT INTO protected VALUES (?, ?, ?, ?, ?, ?, ?, ?)", line
            )
        if self._mark is not None:
            self._mark.remember(digest)
        return reply

    def table(self) -> list[dict[str, Any]]:
        """Who was answered what, with which noise, when."""
        columns = ("run", "asker", "kind", "noise", "cost", "at")
        query = "SELECT run, target, kind, noise, cost, at FROM protected ORDER BY at"
        return [
            dict(zip(columns, row, strict=True)) for row in self._base.execute(query)
        ]
