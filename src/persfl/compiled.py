"""Compiled kernels, if numba is there.

numba is the extra `fast`. Without it everything works, only slower. The first use on a machine compiles for some seconds, says so
on the logger `persfl`, and keeps the result on disk beside the package (or in NUMBA_CACHE_DIR), so that later processes load it.
Set PERSFL_COMPILED=0 to do without.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from functools import cache
from typing import Any

log = logging.getLogger("persfl")


@cache
def kernels() -> Any | None:
    """The module of compiled kernels, or None where numba is absent or switched off.

    >>> kernels() is None or callable(kernels().distinct)
    True
    """
    if os.environ.get("PERSFL_COMPILED", "1") == "0" or importlib.util.find_spec("numba") is None:
        return None
    try:
        from persfl import _kernels
    except RuntimeError as error:  # numba found no folder that it may write compiled code to
        log.warning("persfl runs without compiled kernels: %s. Set NUMBA_CACHE_DIR to a writable folder.", error)
        return None
    if not _kernels.cached():
        log.warning("persfl compiles its kernels once for this machine; that takes some seconds and is kept for later runs.")
    _kernels.build()
    return _kernels
