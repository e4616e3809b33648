"""Compiled kernels, if numba is there.

numba is the extra `fast`. Without it everything works, only slower. The first use on a machine
compiles for some seconds, says so on the logger `persfl`, and keeps the result on disk beside the
package (or in NUMBA_CACHE_DIR), so that later processes load it. Set PERSFL_COMPILED=0 to do
without.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from functools import cache
from typing import Any

_door = threading.Lock()


@cache
def kernels() -> Any | None:
    """The module of compiled kernels, or None where numba is absent or switched off.

    >>> kernels() is None or callable(kernels().distinct)
    True
    """
    wanted = os.environ.get("PERSFL_COMPILED", "1") != "0"
    if not wanted or importlib.util.find_spec("numba") is None:
        return None
    from persfl.kernel_cache import ready_kernels  # needs numba

    with (
        _door
    ):  # of two threads one would compile what the other has just finished with
        return ready_kernels()


def kernels_for(work: int) -> Any | None:
    """As `kernels`, where so many small steps repay loading numba, or it is loaded already.

    Whoever asks does the same without them, to the last bit.
    """
    loaded = kernels.cache_info().currsize > 0
    return kernels() if loaded or work > _LITTLE else None


_LITTLE = 100_000  # steps that NumPy makes in the half second that loading numba takes
