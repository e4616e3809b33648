"""The compiled kernels on disk.

What is kept is machine code, and damaged machine code can end a process. So its digests are kept
beside it, and a cache that does not match them, or that numba cannot read, is made anew. Digests
keep nobody out who can write both: a cache in a folder that others may write to is not used.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
import sys
from pathlib import Path
from types import ModuleType

from persfl.errors import elsewhere
from persfl.files import fingerprint, read_whole, remove_regular, write_whole

log = logging.getLogger("persfl")
# numba keeps a cache for each
_VERSION = f"py{sys.version_info.major}{sys.version_info.minor}"
_DIGESTS = f"_kernels.{_VERSION}.json"


def ready_kernels() -> ModuleType | None:
    """The kernels from the cache, or compiled now; None where numba finds no place for them."""
    try:
        _kernels = _imported()
    # numba found no folder that it may write compiled code to
    except RuntimeError as error:
        log.warning(
            "persfl runs without compiled kernels: %s. Set NUMBA_CACHE_DIR to a writable folder.",
            error,
        )
        return None
    here = _kernels.place()
    if not _ours(here):
        log.warning(
            "persfl compiles its kernels in every process, which takes some seconds: others may"
            " write to %s, and what is kept there would run. Set NUMBA_CACHE_DIR to a folder of"
            " your own.",
            here,
        )
        _kernels.forget_cache()
        _kernels.build()
        return _kernels
    if not _sound(here):
        _remove(here, _kernels)
    if not _kernels.cached():
        log.warning(
            "persfl compiles its kernels once for this machine; that takes some seconds and is kept"
            " for later runs."
        )
    try:
        _kernels.build()
    except Exception as error:  # unpickling what is damaged may raise anything
        why = type(error).__name__
        log.warning(
            "persfl compiles its kernels anew: %s holds damaged ones (%s).", here, why
        )
        _remove(here, _kernels)
        _kernels.build()
    _seal(here)
    return _kernels


def _imported() -> ModuleType:
    """The kernels, whatever numba is told by the folder that one stands in: a cache that is named
    there would run.
    """
    with elsewhere():
        import persfl._kernels as _kernels
    from numba.core import config

    # it is read again wherever something is compiled
    vars(config)["_config_fname"] = os.devnull
    return _kernels


def _files(here: Path) -> list[Path]:
    """The files of the cache."""
    found = here.glob(f"_kernels.*.{_VERSION}.*")
    return sorted(path for path in found if path.suffix in (".nbi", ".nbc"))


def _digests(here: Path) -> dict[str, str]:
    return {path.name: fingerprint(path) for path in _files(here)}


def _ours(here: Path) -> bool:
    """Whether nobody can have put code there but this user, root and whoever owns the package.

    Beside the package it is as safe as the package's own code.
    """
    package = Path(__file__).resolve().parent
    if "geteuid" not in vars(os) or here.resolve().is_relative_to(package):
        return True
    if not closed_to_others(here):
        return False
    users, groups = _trusted()
    for path in (*_files(here), here / _DIGESTS):
        if not (path.is_symlink() or path.exists()):
            continue
        about = path.lstat()
        plain = stat.S_ISREG(about.st_mode) and about.st_uid in users
        if not plain or _open_to_others(about, groups):
            return False
    return True


def closed_to_others(folder: Path) -> bool:
    """Whether nobody else can put anything into a folder that is there.

    Every folder on the way counts: whoever may rename one of them can put another in its place.
    """
    if "geteuid" not in vars(os):
        return True
    users, groups = _trusted()
    folder = folder.resolve()
    for place in (folder, *folder.parents):
        about = place.stat()
        # as /tmp: only owners rename
        guarded = place != folder and about.st_mode & stat.S_ISVTX
        if about.st_uid not in users or (
            _open_to_others(about, groups) and not guarded
        ):
            return False
    return True


def _trusted() -> tuple[set[int], set[int]]:
    """Users and groups: this one, root, and those of the package."""
    owner = Path(__file__).resolve().parent.stat()
    return {0, os.geteuid(), owner.st_uid}, {0, os.getegid(), owner.st_gid}


def _open_to_others(about: os.stat_result, groups: set[int]) -> bool:
    """Whether anybody may write there, or a group that is not this user's own."""
    by_group = about.st_mode & stat.S_IWGRP and about.st_gid not in groups
    return bool(about.st_mode & stat.S_IWOTH or by_group)


def _sound(here: Path) -> bool:
    """Whether the cache is as it was left; one of an earlier version has no digests, and passes."""
    try:
        known = json.loads(read_whole(here / _DIGESTS))
        found = _digests(here)
        return all(found.get(name, digest) == digest for name, digest in known.items())
    except FileNotFoundError:
        return True
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def _seal(here: Path) -> None:
    """Keep the digests of the cache, where they are not what is kept already."""
    # a folder that may only be read, or that others clear now
    with contextlib.suppress(OSError):
        found = json.dumps(_digests(here), indent=1).encode()
        where = here / _DIGESTS
        if not where.is_file() or where.read_bytes() != found:
            write_whole(where, found)


def _remove(here: Path, kernels: ModuleType) -> None:
    """Remove the cache; where that is not allowed, do without it."""
    try:
        for path in [*_files(here), here / _DIGESTS]:
            if path.is_dir():
                raise IsADirectoryError(path)
            remove_regular(path)
    except OSError:
        kernels.forget_cache()
