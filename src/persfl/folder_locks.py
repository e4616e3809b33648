"""The right to write into a folder: one process at a time.

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> with holding(folder):
...     (holder(folder) or "").startswith("process ")
True
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from persfl.errors import InputError
from persfl.files import NO_WAIT, PAUSE, is_at, locked_at_once, open_regular

LOCK = "lock"
_PROCESS = re.compile(r"process ([0-9]{1,10}) since ")
_TRIES = 3
_LONGEST = 100  # bytes in a lock


class Lock:
    """The right to write into a folder; it ends with the process, however that ends.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> lock = Lock(folder)
    >>> lock.take()
    >>> Lock(folder).take()
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: another run is writing into ...
    >>> lock.release()
    >>> holder(folder) is None
    True
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: IO[bytes] | None = None

    def take(self) -> None:
        """Take it, or say who has it."""
        while True:
            file = open_regular(
                self.folder / LOCK, os.O_RDWR | os.O_CREAT | NO_WAIT, "r+b"
            )
            if not _locked(file):
                who = _said_by(file)
                file.close()
                raise in_use(self.folder, who)
            # and was not removed by whoever had it before
            if is_at(file, self.folder / LOCK):
                break
            file.close()
        if not _is_lock(file):
            file.close()
            raise InputError(
                f"{str(self.folder / LOCK)!r} is not a lock of persfl. Move it away."
            )
        self._file = file
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        try:
            file.truncate(0)
            file.write(f"process {os.getpid()} since {since}".encode())
            file.flush()
        except BaseException:  # a full disk: what could not be written is not left
            self.release()
            raise

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        """Give it back; the file goes while nobody else can have it."""
        if self._file is None:
            return
        # the folder may have been renamed; Windows keeps it
        with contextlib.suppress(OSError):
            if is_at(self._file, self.folder / LOCK):
                (self.folder / LOCK).unlink()
        with contextlib.suppress(OSError):  # closing writes what a full disk refused
            self._file.close()
        self._file = None


def in_use(folder: Path, who: str) -> InputError:
    """What a second run is told."""
    what = "Wait until it is over, or choose another folder."
    return InputError(f"another run is writing into {str(folder)!r}: {who}. {what}")


def holder(folder: Path) -> str | None:
    """Who is writing into a folder now."""
    try:
        file = open_regular(folder / LOCK, os.O_RDWR | NO_WAIT, "r+b")
    except FileNotFoundError:
        return None
    with file:
        return None if _locked(file) else _said_by(file)


def holding_process(folder: Path) -> int | None:
    """The number of the process that is writing into a folder now.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with holding(folder):
    ...     holding_process(folder) == os.getpid()
    True
    >>> holding_process(folder) is None
    True
    """
    told = _PROCESS.match(holder(folder) or "")
    return None if told is None else int(told[1])


@contextlib.contextmanager
def holding(folder: Path) -> Iterator[None]:
    """The right to write into a folder, for as long as this lasts."""
    lock = Lock(folder)
    lock.take()
    try:
        yield
    finally:
        lock.release()


def _locked(file: IO[bytes]) -> bool:
    """Whether the lock was free; then it is ours until the file is closed."""
    for _ in range(_TRIES):
        if locked_at_once(file):
            return True
        time.sleep(PAUSE)  # somebody may only be looking whether it is free
    return False


def _is_lock(file: IO[bytes]) -> bool:
    """Whether a file is what a run leaves behind that was killed, and not somebody's own."""
    text = file.read(_LONGEST + 1)
    file.seek(0)
    return not text or (text.startswith(b"process ") and len(text) <= _LONGEST)


def _said_by(file: IO[bytes]) -> str:
    """What the holder wrote; somebody else may have put anything there."""
    file.seek(0)
    text = file.read(_LONGEST).decode("ascii", "replace")
    ours = text.startswith("process ") and text.isprintable()
    return text if ours else "an unknown process"


def refuse_held(path: Path) -> None:
    """Stop where another run is writing into this folder."""
    who = holder(path) if path.is_dir() else None
    if who is not None:
        raise in_use(path, who)
