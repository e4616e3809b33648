"""One local Dask and one local Ray for all tests of a process: each takes seconds to begin."""

from __future__ import annotations

import gc
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from persfl.scale.dask_workers import DaskWorkers
from persfl.scale.ray_workers import RayWorkers

TESTS = str(Path(__file__).parents[1])


@contextmanager
def importing_tests() -> Iterator[None]:
    """Workers that begin now import the jobs of tests, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([TESTS, *sys.path]))
        yield


def end(engine: DaskWorkers | RayWorkers) -> None:
    """Stopped, with the processes that both packages leave to their end: whichever test is the
    last one of its process would be told of them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        engine.stop()
        gc.collect()


@pytest.fixture(scope="session")
def dask_of_tests():
    """A function that makes an engine of two workers, which may take long to come back."""
    distributed = pytest.importorskip("distributed")
    words = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "dashboard_address": "127.0.0.1:0",
    }
    with importing_tests():
        cluster = distributed.LocalCluster(silence_logs=logging.CRITICAL, **words)
    address = cluster.scheduler_address.removeprefix("tcp://")
    began = DaskWorkers(address, 2)
    patch = pytest.MonkeyPatch()
    patch.setattr("persfl.scale.dask_workers.PATIENCE", 120.0)

    def make() -> DaskWorkers:
        began._client.wait_for_workers(2, timeout=60)  # one may just have been killed
        return DaskWorkers(address, 2)

    yield make
    patch.undo()
    end(began)
    cluster.close(timeout=5)


@pytest.fixture(scope="session")
def ray_of_tests():
    """A function that makes an engine of two workers: it finds Ray begun."""
    pytest.importorskip("ray")
    with importing_tests():
        began = RayWorkers("", 2)
    yield partial(RayWorkers, "", 2)
    end(began)
