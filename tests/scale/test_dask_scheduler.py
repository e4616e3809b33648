"""A Dask scheduler of its own, as a company has one: asked by its address, killed, not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from engine_checks import Echo, Waits

from persfl.errors import InputError
from persfl.federation.processes import free_ports
from persfl.scale import dask_workers
from persfl.scale.crew import Crew
from persfl.scale.engines import engine_of
from persfl.scale.executor import EngineLost

pytest.importorskip("distributed")
# processes and sockets that other packages leave to their end
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
TESTS = str(Path(__file__).parents[1])


@pytest.fixture
def scheduler():
    """The process of a scheduler with one worker, and its address."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    host, _, port = address.partition(":")
    ways = (
        ("scheduler", "--host", host, "--port", port, "--no-dashboard"),
        ("worker", f"tcp://{address}", "--nthreads", "2", "--no-dashboard"),
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([TESTS, *sys.path])}
    began = [
        subprocess.Popen(
            [sys.executable, "-m", "dask", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        for words in ways
    ]
    yield began[0], address
    for child in began:
        child.kill()
        child.wait()


@pytest.mark.slow
def test_a_scheduler_that_is_killed_ends_the_run_in_a_sentence(scheduler, monkeypatch):
    process, address = scheduler
    monkeypatch.setattr(dask_workers, "PATIENCE", 15.0)
    with Crew(engine_of(f"dask://{address}", 7), Echo()) as crew:
        assert dict(crew.ask({0: "a", 1: "b"})) == {0: ("a", 1), 1: ("b", 2)}
    with Crew(engine_of(f"dask://{address}", 7), Waits()) as crew:
        answers = crew.ask({0: 0.0, 1: 300.0})
        assert next(answers) == (0, 0.0)
        process.kill()
        with pytest.raises(EngineLost, match="go on with --resume"):
            next(answers)


def test_no_scheduler_is_a_sentence(monkeypatch):
    monkeypatch.setattr(dask_workers, "PATIENCE", 0.5)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(InputError, match="no Dask scheduler answers"):
        engine_of(f"dask://{address}", 2)
