"""Files that are whole or not there, in folders that somebody else may have made.

A folder from elsewhere may hold links. Reading, writing or removing through one would reach files
outside it, so nothing here follows a link, and only regular files are read. The folder itself may
be reached by a link: that name was the user's own choice.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from persfl.errors import InputError

LOCK = "lock"
_BESIDE = ".part"  # how a file is called until it is whole
_HERE = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a pipe under a file's name must not hold us
_TRIES, _PAUSE = 3, 0.02  # seconds between looks at a lock
_WAITS = 1_500  # looks at a file that another process writes: half a minute
# Windows cannot rename a file that is open
_HELD = importlib.util.find_spec("fcntl") is not None
_LONGEST = 100  # bytes in a lock
_LOCKED_BYTE = 2**30  # where Windows locks: far behind what a person reads in the file


def write_whole(path: Path, content: bytes | Callable[[Any], Any]) -> None:
    """All or nothing, also when the power goes: write beside it, flush, rename, flush the folder.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "note.txt"
    >>> write_whole(path, b"hello")
    >>> read_whole(path)
    b'hello'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + _BESIDE)
    file = _own_part(beside)
    try:
        if isinstance(content, bytes):
            file.write(content)
        else:
            content(file)
        file.flush()
        os.fsync(file.fileno())
        # renamed while it is held: nobody takes it for one that a killed run left
        if _HELD:
            os.replace(beside, path)
    finally:
        file.close()
    if not _HELD:
        os.replace(beside, path)
    if hasattr(os, "O_DIRECTORY"):
        place = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(place)
        finally:
            os.close(place)


def _own_part(beside: Path) -> IO[Any]:
    """A new file that this process alone writes; what a killed run left, or somebody planted,
    is never written through.
    """
    for _ in range(_WAITS):
        with contextlib.suppress(FileExistsError):
            handle = os.open(
                beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _HERE, 0o666
            )
            file = os.fdopen(handle, "wb")
            # Between making it and holding it somebody else may have taken it for a left one.
            if not _HELD or (_mine(file) and _is_at(file, beside)):
                return file
            file.close()
            continue
        if not _removed_if_left(beside):
            time.sleep(_PAUSE)
    raise OSError(
        f"another process keeps writing {str(beside)!r}. Wait until it is over."
    )


def _removed_if_left(beside: Path) -> bool:
    """Remove a file that nobody is writing."""
    try:
        if not _HELD or not stat.S_ISREG(beside.lstat().st_mode):
            beside.unlink(missing_ok=True)
            return True
        with _opened(beside, os.O_RDONLY | _NO_WAIT, "rb") as file:
            if not _mine(file):
                return False
            if _is_at(file, beside):
                beside.unlink()
    except FileNotFoundError:  # its writer was quicker
        pass
    return True


def _mine(file: IO[Any]) -> bool:
    """Whether nobody else holds this file; on disks that know no locks, nobody does."""
    try:
        return _locked_at_once(file)
    except OSError:
        return True


def read_whole(path: Path) -> bytes:
    """All of a regular file; a link or a pipe under its name is refused."""
    with _opened(path, os.O_RDONLY | _NO_WAIT, "rb") as file:
        return bytes(file.read())


def append(path: Path, text: str) -> None:
    """More text at the end of a regular file, on the disk when this returns."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NO_WAIT
    with _opened(path, flags, "a") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def appending(path: Path) -> IO[bytes]:
    """A regular file to write more to, such as another program's log."""
    return _opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NO_WAIT, "ab")


def _opened(path: Path, flags: int, mode: str) -> IO[Any]:
    try:
        handle = os.open(path, flags | _HERE, 0o666)
    except OSError as error:
        # a link; a pipe that nobody reads
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _strange(path) from None
        raise
    about = os.fstat(handle)
    # A file of two names may be one of somebody's own, elsewhere: it is read, but never written.
    shared = about.st_nlink > 1 and flags & (os.O_WRONLY | os.O_RDWR)
    if not stat.S_ISREG(about.st_mode) or shared:
        os.close(handle)
        raise _strange(path)
    return os.fdopen(handle, mode)


def fingerprint(path: Path) -> str:
    """The SHA-256 of a file, read piece by piece."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest()


def refuse_links(*folders: Path) -> None:
    """Stop where a folder holds anything but regular files and folders.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "rounds").symlink_to("/")
    >>> refuse_links(folder)
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: '.../rounds' is a link or a special file. ...
    """
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                plain = entry.is_file(follow_symlinks=False) or entry.is_dir(
                    follow_symlinks=False
                )
                if not plain:
                    raise _strange(Path(entry.path))


def remove_regular(path: Path) -> None:
    """Remove a file if it is there and is one: never a folder, never what a link stands for."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISREG(path.lstat().st_mode):
            path.unlink()


def _strange(path: Path) -> InputError:
    what = "Remove it: this folder must have plain files only."
    return InputError(f"{str(path)!r} is a link or a special file. {what}")


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
        self._file: IO[Any] | None = None

    def take(self) -> None:
        """Take it, or say who has it."""
        while True:
            file = _opened(self.folder / LOCK, os.O_RDWR | os.O_CREAT | _NO_WAIT, "r+b")
            if not _locked(file):
                who = _said_by(file)
                file.close()
                raise in_use(self.folder, who)
            # and was not removed by whoever had it before
            if _is_at(file, self.folder / LOCK):
                break
            file.close()
        if not _is_lock(file):
            file.close()
            raise InputError(
                f"{str(self.folder / LOCK)!r} is not a lock of persfl. Move it away."
            )
        file.truncate(0)
        file.write(
            f"process {os.getpid()} since {time.strftime('%Y-%m-%d %H:%M:%S')}".encode()
        )
        file.flush()
        self._file = file

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        """Give it back; the file goes while nobody else can have it."""
        if self._file is None:
            return
        # the folder may have been renamed; Windows keeps it
        with contextlib.suppress(OSError):
            if _is_at(self._file, self.folder / LOCK):
                (self.folder / LOCK).unlink()
        self._file.close()
        self._file = None


def in_use(folder: Path, who: str) -> InputError:
    """What a second run is told."""
    what = "Wait until it is over, or choose another folder."
    return InputError(f"another run is writing into {str(folder)!r}: {who}. {what}")


def holder(folder: Path) -> str | None:
    """Who is writing into a folder now."""
    try:
        file = _opened(folder / LOCK, os.O_RDWR | _NO_WAIT, "r+b")
    except FileNotFoundError:
        return None
    with file:
        return None if _locked(file) else _said_by(file)


@contextlib.contextmanager
def holding(folder: Path) -> Iterator[None]:
    """The right to write into a folder, for as long as this lasts."""
    lock = Lock(folder)
    lock.take()
    try:
        yield
    finally:
        lock.release()


def _locked(file: IO[Any]) -> bool:
    """Whether the lock was free; then it is ours until the file is closed."""
    for _ in range(_TRIES):
        if _locked_at_once(file):
            return True
        time.sleep(_PAUSE)  # somebody may only be looking whether it is free
    return False


def _locked_at_once(file: IO[Any]) -> bool:
    try:
        import fcntl
    except ImportError:
        return _locked_on_windows(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _locked_on_windows(file: IO[Any]) -> bool:
    import msvcrt

    file.seek(_LOCKED_BYTE)
    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError:
        return False
    finally:
        file.seek(0)
    return True


def _is_at(file: IO[Any], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except FileNotFoundError:
        return False


def _is_lock(file: IO[Any]) -> bool:
    """Whether a file is what a run leaves behind that was killed, and not somebody's own."""
    text = file.read(_LONGEST + 1)
    file.seek(0)
    return not text or (text.startswith(b"process ") and len(text) <= _LONGEST)


def _said_by(file: IO[Any]) -> str:
    """What the holder wrote; somebody else may have put anything there."""
    file.seek(0)
    text = file.read(_LONGEST).decode("ascii", "replace")
    return (
        text
        if text.startswith("process ") and text.isprintable()
        else "an unknown process"
    )
