import gc
import io
import os
import shutil
import tempfile
import time
from contextlib import chdir, redirect_stdout
from dataclasses import replace

# One thread each: the tests run in parallel processes, and tiny matrices gain nothing from more.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")
# What machines remember of ledgers is not to be put into anybody's home.
os.environ["XDG_STATE_HOME"] = MARKS = tempfile.mkdtemp(prefix="persfl-state-")
# Tests start a hundred processes: where nothing compiled may be kept, each compiles persfl anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
gc.disable()  # a third of the time of collecting tests; see pytest_collection_finish

import pytest

from persfl import compiled
from persfl.cli import main
from persfl.errors import InputError
from persfl.folder_locks import Lock
from persfl.methods.blend.blend_settings import USUAL


@pytest.fixture
def uncompiled(monkeypatch):
    """A function that switches the compiled kernels off for the rest of the test."""

    def switch():
        monkeypatch.setenv("PERSFL_COMPILED", "0")
        compiled.kernels.cache_clear()

    yield switch
    monkeypatch.undo()
    compiled.kernels.cache_clear()


@pytest.fixture
def brief_descents(monkeypatch):
    """Blends of networks with fewer steps: enough to see that nothing is lost or leaked."""
    less = replace(
        USUAL.descent,
        own_steps=(2, 5),
        tuning_steps=(0, 2, 5),
        pool_steps=10,
        near_steps=3,
        rounds=2,
    )
    fewer = replace(USUAL, descent=less)
    monkeypatch.setattr("persfl.methods.blend.blend_settings.USUAL", fewer)


@pytest.fixture(scope="session")
def demo(tmp_path_factory, worker_id):
    """What `persfl demo` leaves: one of the parallel processes makes it, for all of them."""
    own = tmp_path_factory.getbasetemp()
    place = (own if worker_id == "master" else own.parent) / "demo"
    place.mkdir(exist_ok=True)
    lock = Lock(place)
    while not taken(lock):
        time.sleep(0.1)
    try:
        if not (place / "done").exists():
            with chdir(place), redirect_stdout(io.StringIO()) as said:
                assert main(["demo"]) == 0
            assert "persfl-demo/run/report.html" in said.getvalue()
            (place / "done").touch()
    finally:
        lock.release()
    return place / "persfl-demo"


def taken(lock):
    try:
        lock.take()
    except InputError:
        return False
    return True


def pytest_xdist_auto_num_workers(config):
    """As many as there are cores; with the slow tests two more, since those of real processes
    (federations, workers over shards) mostly wait for them.
    """
    slow = "not slow" not in config.option.markexpr
    return (os.cpu_count() or 1) + 2 * slow


def pytest_unconfigure():
    shutil.rmtree(MARKS, ignore_errors=True)


def pytest_collection_finish():
    """From here on rubbish is looked for, but not among modules and tests, which stay."""
    gc.freeze()
    gc.enable()


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
