"""What crossed a device's border, written before it crosses.

A SQLite file beside the device's rows, one line per question. It is also what limits are counted by, so it survives restarts; a
question that is put again word by word (a run that was interrupted) gets the same answer and does not count again.

>>> ledger = Ledger()
>>> ledger.write([Entry("run", 0, "answer", "ann", "d1", rows=10, bytes=160)])
>>> ledger.write([Entry("run", 0, "answer", "ann", "d1", rows=10, bytes=160)])
>>> ledger.counts("ann"), ledger.known("d1"), ledger.table()[0]["answered"]
((1, 1), True, 2)
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from persfl.errors import InputError

_SHAPE = """
CREATE TABLE IF NOT EXISTS entries (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, run TEXT NOT NULL, round INTEGER NOT NULL, kind TEXT NOT NULL,
    target TEXT NOT NULL, digest TEXT NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL, code TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS by_digest ON entries (digest);
CREATE INDEX IF NOT EXISTS by_target ON entries (target, kind, code);
"""


class Entry(NamedTuple):
    """One question: whose run and round, what kind, on whose behalf, what it was (a digest), and what left."""

    run: str
    round: int
    kind: str
    target: str
    digest: str
    rows: int = 0
    bytes: int = 0
    code: str = "ok"


class Ledger:
    """A ledger in a file, or in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self._base = sqlite3.connect(
            ":memory:" if path is None else path, timeout=30, isolation_level=None, check_same_thread=False
        )
        try:
            self._base.execute("PRAGMA synchronous = FULL")
            self._base.executescript(_SHAPE)
        except sqlite3.DatabaseError as error:
            raise InputError(f"the ledger {str(path)!r} could not be opened: {error}.") from None

    def write(self, entries: Sequence[Entry]) -> None:
        """All of these, or none; on the disk when this returns."""
        now = time.time()
        self._base.execute("BEGIN IMMEDIATE")
        try:
            self._base.executemany(
                "INSERT INTO entries (at, run, round, kind, target, digest, rows, bytes, code) VALUES (?,?,?,?,?,?,?,?,?)",
                [(now, *entry) for entry in entries],
            )
            self._base.execute("COMMIT")
        except BaseException:
            self._base.execute("ROLLBACK")
            raise

    def counts(self, target: str) -> tuple[int, int]:
        """How many different questions were answered: for this target, and in all."""
        ask = "SELECT COUNT(DISTINCT digest) FROM entries WHERE digest != '' AND code = 'ok'"
        own = self._base.execute(f"{ask} AND target = ?", (target,)).fetchone()[0]
        return int(own), int(self._base.execute(ask).fetchone()[0])

    def known(self, digest: str) -> bool:
        """Whether this very question was answered before."""
        found = self._base.execute("SELECT 1 FROM entries WHERE digest = ? AND code = 'ok' LIMIT 1", (digest,))
        return found.fetchone() is not None

    def rows(self, run: str, r: int) -> int | None:
        """How many rows this device had in the last round of a run before round `r`; None if it was not asked then."""
        found = self._base.execute(
            "SELECT rows FROM entries WHERE run = ? AND round < ? AND rows > 0 ORDER BY id DESC LIMIT 1", (run, r)
        ).fetchone()
        return None if found is None else int(found[0])

    def table(self) -> list[dict[str, Any]]:
        """Per asker and kind: questions, answered, refused or failed, bytes that left, first and last time."""
        found = self._base.execute(
            "SELECT target, kind, COUNT(*), COUNT(DISTINCT digest), SUM(code = 'ok'), SUM(code != 'ok'), SUM(bytes), MIN(at), "
            "MAX(at) FROM entries GROUP BY target, kind ORDER BY target, kind"
        )
        names = ("asker", "kind", "questions", "different", "answered", "refused", "bytes", "first", "last")
        return [dict(zip(names, row, strict=True)) for row in found]

    def refusals(self) -> list[dict[str, Any]]:
        """Why questions were not answered, and how often."""
        found = self._base.execute("SELECT code, COUNT(*) FROM entries WHERE code != 'ok' GROUP BY code ORDER BY code")
        return [{"code": code, "times": times} for code, times in found]

    def close(self) -> None:
        self._base.close()
