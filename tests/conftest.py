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


def pytest_xdist_auto_num_workers(config):
    """One more than there are cores: the federation of real processes mostly waits for them."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items):
    """The longest tests first, so that nothing waits for them at the end; of these the
    federation.
    """
    items.sort(
        key=lambda item: (
            "test_real_processes" not in item.nodeid,
            not item.get_closest_marker("slow"),
        )
    )
