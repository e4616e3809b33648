"""What crossed a device's border, written before it crosses.

A SQLite file beside the device's rows, one line per question that was answered with something new.
It is also what limits are counted by, so it survives restarts; a question that is put again word by
word (a run that was interrupted) gets the same answer and does not count again. Whatever is not
limited (repeated and refused questions, those that are answered with nothing) is counted, not
written down one by one: nobody may fill a disk by asking. And it holds what only the device knows:
the secret by which its rows are dealt, and which rows it has answered from together.

>>> ledger = Ledger()
>>> ledger.write([Entry("run", 0, "answer", "ann", "d1", rows=10, bytes=160)])
>>> ledger.write([Entry("run", 0, "answer", "ann", "d1", rows=10, bytes=160)])
>>> (
...     ledger.counts("run", "ann").target,
...     ledger.known("d1"),
...     ledger.table()[0]["answered"],
... )
(1, True, 2)
"""

from __future__ import annotations

import hashlib
import json
import time
import weakref
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from persfl.federation.budget_book import BudgetBook
from persfl.federation.ledger_file import SEEN, ledger_file, transaction
from persfl.federation.ledger_mark import LedgerMark
from persfl.federation.messages import Refused
from persfl.federation.policy import Policy
from persfl.federation.row_pieces import Mask, cut
from persfl.formats import reading
from persfl.types import IntArray

NOISED = "noised "  # before the digest of an answer that was paid for
ASKERS = 1_000  # kinds of askers, questions and codes that are counted apart
# What a device tells of itself: its numbers are counted one by one.
TELLING = (
    "sums",
    "spread",
    "weight",
    "parts",
    "draw",
    "falls",
    "score",
    "adopt",
    "own",
    "weigh",
    "offers",
    "mix",
    "take",
    "bends",
    "free",
    "near",
    "pool",
    "pooled mix",
    "places",
    "shares",
    "take and look",
)

_KNOWN = "SELECT 1 FROM others WHERE target = ? AND kind = ? AND code = ?"
_OR_ADD = "ON CONFLICT DO UPDATE SET questions = questions + excluded.questions"
_ALL = """
SELECT target, kind, code, COUNT(*) AS times, COUNT(DISTINCT NULLIF(digest, '')) AS new,
    SUM(bytes) AS bytes, SUM(numbers) AS numbers, MIN(at) AS first, MAX(at) AS last
    FROM entries GROUP BY 1, 2, 3
UNION ALL SELECT target, kind, code, times, 0, bytes, numbers, first, last FROM others"""


class Entry(NamedTuple):
    """One question: whose run and round, what kind, for whom, what it was (a digest), what left."""

    run: str
    round: int
    kind: str
    target: str
    digest: str
    rows: int = 0
    bytes: int = 0
    code: str = "ok"
    numbers: int = 0


class Counts(NamedTuple):
    """Different questions answered: to a target in a run, in the run, ever; and numbers told."""

    target: int
    run: int
    ever: int
    numbers: int
    numbers_ever: int


class Ledger:
    """A ledger in a file, or in memory; `marked` if the machine remembers outside the file that it
    was begun here, and its last protected answer.
    """

    def __init__(self, path: Path | None = None, *, marked: bool = False) -> None:
        self._base = ledger_file(path, begun=_remember if marked else None)
        with reading(path or Path("the ledger")):
            secret = self.secret
        self.mark = LedgerMark(secret) if marked else None
        self.protected = BudgetBook(self._base, self.mark)
        # from Python 3.13 on, one left open is warned about
        weakref.finalize(self, self._base.close)

    def _one(self, query: str, *given: str | int) -> Any:
        """The first line that a query gives, or None."""
        return self._base.execute(query, given).fetchone()

    @property
    def foreign(self) -> bool:
        """Whether it was begun elsewhere, as far as this machine remembers."""
        return self.mark is not None and not self.mark.there

    def take_over(self) -> None:
        """The owner says that it is theirs, from another machine."""
        if self.mark is not None and not self.mark.there:
            self.mark.remember()

    @property
    def secret(self) -> int:
        """A number that never leaves: rows are dealt by it."""
        return int(self._one("SELECT seed FROM secret")[0])

    # Questions

    def write(self, entries: Sequence[Entry], policy: Policy | None = None) -> None:
        """All of these, or none; on the disk when this returns.

        None, and `Refused`, where the policy's limits would be passed: another process may have
        answered since they were looked at.
        """
        with transaction(self._base):
            told = [entry for entry in entries if entry.digest and entry.code == "ok"]
            new = [entry for entry in told if self._first(entry.digest)]
            self._add(new)
            self._hold(new, policy)
            self._line(new)
            self._count(Counter(entries) - Counter(new))
            self._look(entries)

    def _hold(self, new: Sequence[Entry], policy: Policy | None) -> None:
        """Refuse what is beyond the limits, now that it is counted."""
        if policy is None:
            return
        for run, target in {(entry.run, entry.target) for entry in new}:
            found = self.counts(run, target)
            over = {
                "questions_per_target": found.target > policy.questions_per_target,
                "questions": found.run > policy.questions,
                "questions_ever": found.ever > policy.questions_ever,
                "numbers": found.numbers > policy.numbers,
                "numbers_ever": found.numbers_ever > policy.numbers_ever,
            }
            for code in (code for code, much in over.items() if much):
                raise Refused(code)

    def _line(self, new: Sequence[Entry]) -> None:
        """Questions that were answered for the first time: their limits bound the lines."""
        now = time.time()
        self._base.executemany(
            "INSERT INTO entries (at, run, round, kind, target, digest, rows, bytes, code, numbers)"
            " VALUES (?,?,?,?,?,?,?,?,?,?)",
            [(now, *entry) for entry in new],
        )

    def _count(self, others: Counter[Entry]) -> None:
        """Everything else, by asker, kind and code; names beyond the most are nobody's."""
        now = time.time()
        found = Counter[tuple[str, str, str]]()
        bytes_ = Counter[tuple[str, str, str]]()
        numbers = Counter[tuple[str, str, str]]()
        room = (
            ASKERS - int(self._one("SELECT COUNT(*) FROM others")[0]) if others else 0
        )
        for entry, times in others.items():
            key = entry.target, entry.kind, entry.code
            if key not in found and not self._one(_KNOWN, *key):
                key = key if room > 0 else ("", *key[1:])
                room -= 1
            found[key] += times
            bytes_[key] += times * entry.bytes
            numbers[key] += times * entry.numbers
        self._base.executemany(
            "INSERT INTO others VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
            "times = times + excluded.times, bytes = bytes + excluded.bytes, "
            "numbers = numbers + excluded.numbers, last = excluded.last",
            [
                (*key, many, bytes_[key], numbers[key], now, now)
                for key, many in found.items()
            ],
        )

    def _look(self, entries: Sequence[Entry]) -> None:
        """Note how many rows there were, in the rounds that were asked about last."""
        rounds = {
            (entry.run, entry.round): entry.rows for entry in entries if entry.rows > 0
        }
        self._base.executemany(
            "INSERT OR REPLACE INTO seen (run, round, rows) VALUES (?, ?, ?)",
            [(*key, rows) for key, rows in rounds.items()],
        )
        last = "(SELECT MAX(id) FROM seen)"
        self._base.execute(f"DELETE FROM seen WHERE id <= {last} - {SEEN}")

    def _first(self, digest: str) -> bool:
        """Note a question as answered; whether it was the first time."""
        done = self._base.execute(
            "INSERT OR IGNORE INTO answered VALUES (?)", (digest,)
        )
        return bool(done.rowcount == 1)

    def _add(self, new: Sequence[Entry]) -> None:
        """Count questions that were answered for the first time."""
        targets = Counter[tuple[str, str]]()
        runs = Counter[str]()
        numbers = Counter[str]()
        for entry in new:
            targets[entry.run, entry.target] += 1
            runs[entry.run] += 1
            numbers[entry.run] += entry.numbers if entry.kind in TELLING else 0
        self._base.executemany(
            f"INSERT INTO of_target VALUES (?, ?, ?) {_OR_ADD}",
            [(*key, many) for key, many in targets.items()],
        )
        self._base.executemany(
            "INSERT INTO of_run VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET "
            "questions = questions + excluded.questions, numbers = numbers + excluded.numbers",
            [(run, many, numbers[run]) for run, many in runs.items()],
        )
        more = len(new), sum(numbers.values())
        self._base.execute(
            "UPDATE ever SET questions = questions + ?, numbers = numbers + ?", more
        )

    def counts(self, run: str, target: str) -> Counts:
        """What was answered; looked up, however long the ledger is."""
        where = "of_target WHERE run = ? AND target = ?"
        own = self._one(f"SELECT questions FROM {where}", run, target) or (0,)
        here = self._one(
            "SELECT questions, numbers FROM of_run WHERE run = ?", run
        ) or (0, 0)
        ever = self._one("SELECT questions, numbers FROM ever WHERE one = 1")
        return Counts(own[0], here[0], ever[0], here[1], ever[1])

    def known(self, digest: str) -> bool:
        """Whether this very question was answered before."""
        return self._one("SELECT 1 FROM answered WHERE digest = ?", digest) is not None

    def rows(self, run: str, r: int) -> int | None:
        """How many rows it had when it was asked last before round `r` of a run, if it was."""
        found = self._one(
            "SELECT rows FROM seen WHERE run = ? AND round < ? ORDER BY id DESC LIMIT 1",
            run,
            r,
        )
        return None if found is None else int(found[0])

    # Rows

    def stock(self) -> list[IntArray]:
        """The marks of the rows that this device answers from, in the groups in which they came."""
        found = self._base.execute("SELECT ids FROM stock ORDER BY number")
        return [np.frombuffer(ids, dtype=np.int64) for (ids,) in found]

    def columns(self) -> list[str] | None:
        """The columns that rows are known again by; None before there are any."""
        found = self._one("SELECT columns FROM known_by")
        return None if found is None else [str(name) for name in json.loads(found[0])]

    def know_by(
        self, columns: Sequence[str], before: IntArray, after: IntArray
    ) -> None:
        """From now on rows are known by these columns, and those that had the marks `before` have
        `after`.
        """
        order = np.argsort(before)
        with transaction(self._base):
            for number, ids in enumerate(self.stock(), start=1):
                at = np.searchsorted(before, ids, sorter=order)
                at = order[np.minimum(at, len(before) - 1)] if len(before) else at
                same = before[at] == ids if len(before) else np.zeros(len(ids), bool)
                new = ids.copy()
                new[same] = after[at[same]]
                given = (new.tobytes(), number)
                self._base.execute("UPDATE stock SET ids = ? WHERE number = ?", given)
            names = json.dumps(sorted(columns))
            self._base.execute(
                "INSERT OR REPLACE INTO known_by VALUES (1, ?)", (names,)
            )

    def admit(self, ids: IntArray) -> None:
        """A new group of rows; rows that another process was faster with stay where they are."""
        with transaction(self._base):
            known = self.stock()
            if known and np.isin(ids, np.concatenate(known)).any():
                return
            self._base.execute("INSERT INTO stock (ids) VALUES (?)", (ids.tobytes(),))

    def answers_from(self, chosen: Mask, least: int) -> bool:
        """Whether it may answer from these rows (a mask over its stock); if so, that is noted.

        Sets of rows cut the stock into pieces; sums over the sets give sums over the pieces. So no
        piece may get smaller than `least`, and rows that were not answered from before must come at
        least so many at a time.

        >>> ledger, everyone = Ledger(), np.ones(8, dtype=bool)
        >>> (
        ...     ledger.answers_from(everyone, 3),
        ...     ledger.answers_from(everyone & (np.arange(8) > 0), 3),
        ... )
        (True, False)
        >>> (
        ...     ledger.answers_from(np.arange(8) < 5, 3),
        ...     ledger.answers_from(np.arange(8) >= 5, 3),
        ... )
        (True, True)
        """
        digest = hashlib.sha256(np.packbits(chosen).tobytes().rstrip(b"\0")).hexdigest()
        if self._one("SELECT 1 FROM row_sets WHERE digest = ?", digest):
            return True
        with transaction(self._base):
            kept = self._one("SELECT labels FROM pieces")
            before = (
                np.frombuffer(kept[0], dtype=np.int32)
                if kept
                else np.empty(0, dtype=np.int32)
            )
            size = max(len(before), len(chosen))
            labels = np.pad(before, (0, size - len(before)))
            wide = np.pad(np.asarray(chosen, dtype=bool), (0, size - len(chosen)))
            after = cut(labels, wide, least)
            if after is None:
                return False
            self._base.execute(
                "INSERT OR REPLACE INTO pieces VALUES (1, ?)", (after.tobytes(),)
            )
            self._base.execute("INSERT OR IGNORE INTO row_sets VALUES (?)", (digest,))
        return True

    # For the owner

    def table(self) -> list[dict[str, Any]]:
        """Per asker and kind: questions, different ones answered, what left, first and last
        time.
        """
        columns = {
            "asker": "target",
            "kind": "kind",
            "questions": "SUM(times)",
            "different": "SUM(new)",
            "answered": "SUM(times * (code = 'ok'))",
            "refused": "SUM(times * (code != 'ok'))",
            "bytes": "SUM(bytes)",
            "numbers": "SUM(numbers)",
            "first": "MIN(first)",
            "last": "MAX(last)",
        }
        query = f"SELECT {', '.join(columns.values())} FROM ({_ALL}) GROUP BY 1, 2 ORDER BY 1, 2"
        return [
            dict(zip(columns, row, strict=True)) for row in self._base.execute(query)
        ]

    def refusals(self) -> list[dict[str, Any]]:
        """Why questions were not answered, and how often."""
        which = "WHERE code != 'ok' GROUP BY code ORDER BY code"
        found = self._base.execute(f"SELECT code, SUM(times) FROM ({_ALL}) {which}")
        return [{"code": code, "times": times} for code, times in found]

    def unprotected(self) -> int:
        """Answers that left without noise, before anything was protected or while that was off:
        what is promised does not cover them.
        """
        query = "SELECT COUNT(*) FROM entries WHERE numbers > 0 AND digest NOT LIKE ?"
        return int(self._one(query, f"{NOISED}%")[0])

    def close(self) -> None:
        self._base.close()


def _remember(secret: int) -> None:
    """A ledger with this secret begins on this machine."""
    LedgerMark(secret).remember()
