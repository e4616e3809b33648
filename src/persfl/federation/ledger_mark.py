"""What a machine remembers of a ledger outside its folder: that it was begun here, and the answer
that was paid for last.

A ledger that comes with somebody else's folder says what that person chose. And one that comes back
from a backup lacks the last answer, as does a second copy of a folder: they have forgotten what was
spent since.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from persfl.files import read_whole, write_whole

_LONGEST = 200  # bytes of a digest


class LedgerMark:
    """What this machine knows of the ledger with this secret, which nobody else knows.

    >>> import tempfile
    >>> mark = LedgerMark(7, Path(tempfile.mkdtemp()))
    >>> mark.there
    False
    >>> mark.remember()
    >>> mark.there, mark.digest
    (True, '')
    >>> mark.remember("d1")
    >>> mark.digest
    'd1'
    """

    def __init__(self, secret: int, folder: Path | None = None) -> None:
        name = hashlib.sha256(f"ledger {secret}".encode()).hexdigest()[:32]
        where = folder or _state_folder()
        self._path = None if where is None else where / name

    @property
    def there(self) -> bool:
        """Whether this ledger was begun, or said to be the owner's, on this machine; so it is taken
        to be where the machine has no place to remember it.
        """
        return self._path is None or self._path.is_file() or not self._has_room()

    def _has_room(self) -> bool:
        """Whether anything can be remembered."""
        assert self._path is not None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            return False
        return os.access(self._path.parent, os.W_OK)

    @property
    def digest(self) -> str:
        """Which answer it paid for last; "" where none is remembered."""
        try:
            told = b"" if self._path is None else read_whole(self._path)
        except OSError:
            return ""
        return told[:_LONGEST].decode("ascii", "replace")

    def remember(self, digest: str = "") -> None:
        """From now on it is known here, and the last answer is this one; nothing where a machine
        has no place for it.
        """
        if self._path is None:
            return
        with contextlib.suppress(OSError):
            write_whole(self._path, digest.encode())


def _state_folder() -> Path | None:
    """Where programs keep what outlasts them, of this user."""
    told = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(told):  # another one is none: it would lie where one stands
        return Path(told) / "persfl" / "ledgers"
    try:
        return Path.home() / ".local" / "state" / "persfl" / "ledgers"
    except RuntimeError:  # a user without a home
        return None
