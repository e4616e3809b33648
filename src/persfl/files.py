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
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from persfl.errors import InputError

# how a file is called until it is whole: by an ending that nobody else gives, for one that a killed
# run left is removed
UNFINISHED = ".persfl-part"
# Flags of opening that not every system has.
_FLAGS = vars(os)
_HERE: int = _FLAGS.get("O_NOFOLLOW", 0)  # a link under a file's name is refused
_HERE |= _FLAGS.get("O_CLOEXEC", 0) | _FLAGS.get("O_BINARY", 0)
NO_WAIT: int = _FLAGS.get("O_NONBLOCK", 0)  # a pipe there must not hold us
_FOLDER: int | None = _FLAGS.get("O_DIRECTORY")
PAUSE = 0.02  # seconds between looks at a lock
_WAITS = 1_500  # looks at a file that another process writes: half a minute
# Windows cannot rename a file that is open
_HELD = importlib.util.find_spec("fcntl") is not None
_LOCKED_BYTE = 2**30  # where Windows locks: far behind what a person reads in the file


def write_whole(path: Path, content: bytes | Callable[[IO[bytes]], object]) -> None:
    """All or nothing, also when the power goes: write beside it, flush, rename, flush the folder.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "note.txt"
    >>> write_whole(path, b"hello")
    >>> read_whole(path)
    b'hello'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + UNFINISHED)
    file = _own_part(beside)
    try:
        if isinstance(content, bytes):
            file.write(content)
        else:
            content(file)
        file.flush()
        os.fsync(file.fileno())
        if not _HELD:
            file.close()
        # renamed while it is held: nobody takes it for one that a killed run left
        os.replace(beside, path)
    except BaseException as error:
        _remove_part(file, beside)
        # a full disk does not say where
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = str(path)
        raise
    finally:
        file.close()
    if _FOLDER is not None:
        place = os.open(path.parent, os.O_RDONLY | _FOLDER)
        try:
            os.fsync(place)
        finally:
            os.close(place)


def _remove_part(file: IO[bytes], beside: Path) -> None:
    """Leave nothing beside a file that could not be written."""
    mine = file.closed or is_at(file, beside)
    if not _HELD:
        file.close()  # Windows removes no file that is open
    with contextlib.suppress(OSError):
        if mine:
            beside.unlink()


def _own_part(beside: Path) -> IO[bytes]:
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
            if not _HELD or (_mine(file) and is_at(file, beside)):
                return file
            file.close()
            continue
        if not _removed_if_left(beside):
            time.sleep(PAUSE)
    raise OSError(
        f"another process keeps writing {str(beside)!r}. Wait until it is over."
    )


def _removed_if_left(beside: Path) -> bool:
    """Remove a file that nobody is writing."""
    try:
        if not _HELD or not stat.S_ISREG(beside.lstat().st_mode):
            beside.unlink(missing_ok=True)
            return True
        with open_regular(beside, os.O_RDONLY | NO_WAIT, "rb") as file:
            if not _mine(file):
                return False
            if is_at(file, beside):
                beside.unlink()
    except FileNotFoundError:  # its writer was quicker
        pass
    return True


def _mine(file: IO[bytes]) -> bool:
    """Whether nobody else holds this file; on disks that know no locks, nobody does."""
    try:
        return locked_at_once(file)
    except OSError:
        return True


def read_whole(path: Path) -> bytes:
    """All of a regular file; a link or a pipe under its name is refused."""
    with open_regular(path, os.O_RDONLY | NO_WAIT, "rb") as file:
        return bytes(file.read())


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """What a TOML file says; `what` is how it is called where it cannot be read.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "node.toml"
    >>> _ = path.write_text("rows = " + 5_000 * "9")
    >>> read_toml(path, "the policy")
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: the policy could not be read: Exceeds the limit ...
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    # numbers of thousands of digits and texts that are none are values of no kind
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{what} could not be read: {error}.") from None


def append(path: Path, text: str) -> None:
    """More text at the end of a regular file, on the disk when this returns."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | NO_WAIT
    with open_regular(path, flags, "ab") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def appending(path: Path) -> IO[bytes]:
    """A regular file to write more to, such as another program's log."""
    return open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | NO_WAIT, "ab")


def open_regular(path: Path, flags: int, mode: str) -> IO[bytes]:
    """A regular file to read or write bytes; a link, a pipe or a shared file is refused."""
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


def remove_empty(folder: Path) -> None:
    """Remove a folder if it is empty."""
    with contextlib.suppress(OSError):
        folder.rmdir()


def _strange(path: Path) -> InputError:
    what = "Remove it: this folder must have plain files only."
    return InputError(f"{str(path)!r} is a link or a special file. {what}")


def locked_at_once(file: IO[bytes]) -> bool:
    """Whether the lock was free; then it is ours until the file is closed."""
    try:
        import fcntl
    except ImportError:
        return _locked_on_windows(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _locked_on_windows(file: IO[bytes]) -> bool:
    import msvcrt

    file.seek(_LOCKED_BYTE)
    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError:
        return False
    finally:
        file.seek(0)
    return True


def is_at(file: IO[bytes], path: Path) -> bool:
    """Whether a name still stands for this file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except FileNotFoundError:
        return False
