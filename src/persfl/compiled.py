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
    from persfl import _kernels

    if not _kernels.cached():
        log.warning("persfl compiles its kernels once for this machine; that takes some seconds and is kept for later runs.")
    _kernels.build()
    return _kernels
