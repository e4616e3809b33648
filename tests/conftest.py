import os

# One thread each: the tests run in parallel processes, and tiny matrices gain nothing from more.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import pytest

from persfl import compiled


@pytest.fixture
def uncompiled(monkeypatch):
    """A function that switches the compiled kernels off for the rest of the test."""

    def switch():
        monkeypatch.setenv("PERSFL_COMPILED", "0")
        compiled.kernels.cache_clear()

    yield switch
    monkeypatch.undo()
    compiled.kernels.cache_clear()
