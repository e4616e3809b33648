"""The SQLite file of a ledger: its tables, and those of earlier versions brought up to date."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from persfl.errors import InputError
from persfl.files import NO_WAIT, open_regular

VERSION = 4
_NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")  # how such a journal ends
SEEN = 10_000  # rounds of which it is known how many rows there were
_HERE = getattr(os, "O_NOFOLLOW", 0)

_SHAPE = """
CREATE TABLE IF NOT EXISTS entries (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, run TEXT NOT NULL, round INTEGER NOT NULL,
    kind TEXT NOT NULL, target TEXT NOT NULL, digest TEXT NOT NULL, rows INTEGER NOT NULL,
    bytes INTEGER NOT NULL, code TEXT NOT NULL, numbers INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS others (
    target TEXT NOT NULL, kind TEXT NOT NULL, code TEXT NOT NULL, times INTEGER NOT NULL,
    bytes INTEGER NOT NULL, numbers INTEGER NOT NULL, first REAL NOT NULL, last REAL NOT NULL,
    PRIMARY KEY (target, kind, code)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen (
    id INTEGER PRIMARY KEY, run TEXT NOT NULL, round INTEGER NOT NULL, rows INTEGER NOT NULL,
    UNIQUE (run, round));
CREATE INDEX IF NOT EXISTS seen_last ON seen (run, id);
CREATE TABLE IF NOT EXISTS answered (digest TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS of_target (
    run TEXT NOT NULL, target TEXT NOT NULL, questions INTEGER NOT NULL,
    PRIMARY KEY (run, target)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS of_run (
    run TEXT PRIMARY KEY, questions INTEGER NOT NULL, numbers INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ever (
    one INTEGER PRIMARY KEY, questions INTEGER NOT NULL, numbers INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS secret (one INTEGER PRIMARY KEY, seed INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS stock (number INTEGER PRIMARY KEY, ids BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS known_by (one INTEGER PRIMARY KEY, columns TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS pieces (one INTEGER PRIMARY KEY, labels BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS row_sets (digest TEXT PRIMARY KEY) WITHOUT ROWID;
"""
PROTECTED = """
CREATE TABLE IF NOT EXISTS protected (
    digest TEXT PRIMARY KEY, at REAL NOT NULL, run TEXT NOT NULL, kind TEXT NOT NULL,
    target TEXT NOT NULL, noise REAL NOT NULL, cost REAL NOT NULL, reply BLOB NOT NULL)"""
_WORDS = re.compile(r"\w+|[^\w\s]")
# and of indices of earlier versions
_OURS = set(_WORDS.findall(_SHAPE + PROTECTED)) | {"by_digest", "by_target", "by_run"}
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
_FIRST = """
SELECT run, target, MIN(id) FROM entries WHERE digest != '' AND code = 'ok' GROUP BY digest"""
# A ledger that counted by looking at all its lines: its counts, once.
_COUNTED = f"""
INSERT OR IGNORE INTO answered
    SELECT DISTINCT digest FROM entries WHERE digest != '' AND code = 'ok';
INSERT INTO of_target SELECT run, target, COUNT(*) FROM ({_FIRST}) GROUP BY run, target;
INSERT INTO of_run SELECT run, SUM(questions), 0 FROM of_target GROUP BY run;
INSERT INTO ever SELECT 1, COALESCE(SUM(questions), 0), 0 FROM of_run;
"""
# One that had a line for everything: its lines stay, and say how many rows there were.
_LOOKED = f"""
DROP INDEX IF EXISTS by_run;
INSERT OR REPLACE INTO seen (run, round, rows) SELECT run, round, rows FROM (
    SELECT id, run, round, rows FROM entries WHERE rows > 0 ORDER BY id DESC LIMIT {SEEN})
    ORDER BY id;
"""


def ledger_file(
    path: Path | None, begun: Callable[[int], None] | None = None
) -> sqlite3.Connection:
    """The file of a ledger, or one in memory, with all that is absent made; `begun` is told the
    secret of one that was not there, before anything can be counted by it.
    """
    if path is not None:
        _refuse_journal(path)
        _own(path)
    how: Any = {"timeout": 30, "isolation_level": None, "check_same_thread": False}
    with contextlib.ExitStack() as undone:
        try:
            base: sqlite3.Connection = sqlite3.connect(path or ":memory:", **how)
            undone.callback(base.close)
            base.text_factory = lambda told: told.decode(errors="replace")
            base.execute("PRAGMA synchronous = FULL")
            _bring_up(base, path, begun)
            _refuse_absent(base, path)
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"the ledger {str(path)!r} could not be opened: {error}."
            ) from None
        undone.pop_all()
    return base


@contextlib.contextmanager
def transaction(base: sqlite3.Connection) -> Iterator[None]:
    """All of it, or nothing; on the disk in the end."""
    base.execute("BEGIN IMMEDIATE")
    try:
        yield
        base.execute("COMMIT")
    except BaseException:
        base.execute("ROLLBACK")
        raise


def _bring_up(
    base: sqlite3.Connection, path: Path | None, begun: Callable[[int], None] | None
) -> None:
    """Make what is absent; a ledger of an earlier version is counted once."""
    told = base.execute("SELECT type, sql FROM sqlite_master").fetchall()
    if any(kind not in ("table", "index") or not _ours(sql) for kind, sql in told):
        what = (
            "It holds statements of somebody else's, which would change what is counted"
        )
        raise InputError(f"the ledger {str(path)!r} is none of persfl. {what}.")
    found = _version(base)
    if found > VERSION:
        raise InputError(
            f"the ledger {str(path)!r} is of a newer persfl. Update persfl here."
        )
    if found == VERSION:
        return
    with transaction(base):
        if _version(base) == VERSION:
            return  # somebody else was faster
        new = not base.execute("SELECT 1 FROM sqlite_master").fetchone()
        old = "SELECT 1 FROM sqlite_master WHERE name = 'entries'"
        if found < 2 and base.execute(old).fetchone():
            base.execute(
                "ALTER TABLE entries ADD COLUMN numbers INTEGER NOT NULL DEFAULT 0"
            )
            base.execute("DROP INDEX IF EXISTS by_digest")
            base.execute("DROP INDEX IF EXISTS by_target")
        statements = _SHAPE + (_COUNTED if found < 2 else "")
        statements += _LOOKED if found < 3 else ""
        for statement in statements.split(";"):
            base.execute(statement)
        seed = secrets.randbelow(2**63)
        base.execute("INSERT OR IGNORE INTO secret VALUES (1, ?)", (seed,))
        base.execute(f"PRAGMA user_version = {VERSION}")
        if new and begun:
            begun(seed)


def _ours(statement: str | None) -> bool:
    """Whether a table or an index is made of the words of ours: others could compute something,
    without end or with all of the memory, wherever a column is read.
    """
    return set(_WORDS.findall(str(statement or ""))) <= _OURS


def _refuse_absent(base: sqlite3.Connection, path: Path | None) -> None:
    """Stop where a table or a column is gone: what it counted would begin anew."""
    with contextlib.closing(sqlite3.connect(":memory:")) as whole:
        whole.executescript(_SHAPE)
        names = [row[0] for row in whole.execute(_TABLES)]
        lacking = [
            name for name in names if _columns(whole, name) - _columns(base, name)
        ]
    if lacking:
        raise InputError(
            f"the ledger {str(path)!r} lacks what persfl keeps in {lacking[0]!r}. Bring it back"
            " from a copy; without it, limits would begin anew."
        )


def _columns(base: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in base.execute(f"PRAGMA table_info({table})")}


def _version(base: sqlite3.Connection) -> int:
    return int(base.execute("PRAGMA user_version").fetchone()[0])


def _refuse_journal(path: Path) -> None:
    """Stop where somebody planted a journal: SQLite removes the file that it names at its end,
    wherever that is. Only a change of several files at once has such a name, and none here is one.
    """
    journal = path.with_name(path.name + "-journal")
    if not journal.is_file():
        return
    with open_regular(journal, os.O_RDONLY | NO_WAIT, "rb") as file:
        file.seek(max(journal.stat().st_size - len(_NAMES_ANOTHER), 0))
        if file.read() == _NAMES_ANOTHER:
            raise InputError(
                f"{str(journal)!r} is none of persfl: it names a file of its maker's choice. Remove"
                " it."
            )


def _own(path: Path) -> None:
    """A file that its owner alone can read: whoever has the secret knows which rows are where."""
    with contextlib.suppress(OSError):  # whoever may not open it is told so by SQLite
        handle = os.open(path, os.O_RDWR | os.O_CREAT | _HERE, 0o600)
        os.close(handle)
        path.chmod(0o600)
