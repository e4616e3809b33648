"""Workers that are those of a Dask cluster: one that runs already, or one started here.

A question is a Dask task that may run at one Dask worker only: the one that keeps what the job has
read. Dask starts workers that die again, under another address; whoever asked there is told, and
goes on at another one. Workers must be able to import persfl, and see the folders that a run names.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
from typing import Any

from persfl.errors import InputError, need
from persfl.scale.executor import (
    Answer,
    Answers,
    EngineLost,
    LostAnswer,
    Question,
    WorkerJob,
    WorkerReply,
)

PATIENCE = 30.0  # seconds for a scheduler to answer, and for a first worker
LOOK = 1.0  # seconds between two looks at who is there
FETCH = 5.0  # seconds for an answer to come from its worker before looking again
GONE = "the Dask scheduler is gone. What is done is kept: start it again and go on with --resume."

Key = tuple[str, int, int]  # of a run, a worker, and how often that was started

_begun: dict[Key, tuple[threading.Lock, Answers]] = {}  # at a Dask worker
_door = threading.Lock()


class DaskWorkers:
    """The workers of the cluster whose scheduler listens at `address`; without an address, so many
    new processes of this machine, with a scheduler of their own.
    """

    def __init__(self, address: str, jobs: int) -> None:
        self._dask: Any = need("distributed", extra="dask", why="the engine dask")
        self._cluster: Any = None
        self._begun = ExitStack()
        if not address:
            need("cryptography", extra="dask", why="the engine dask")
            place = self._begun.enter_context(
                tempfile.TemporaryDirectory(
                    prefix="persfl-", ignore_cleanup_errors=True
                )
            )
            self._cluster = self._dask.LocalCluster(
                n_workers=jobs,
                threads_per_worker=1,
                # whoever may ask it, or puts modules where its workers write, may run anything
                security=True,
                local_directory=place,
                scheduler_kwargs={"local_directory": place},
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )
        self._client: Any = self._connected(address)
        self._run = uuid.uuid4().hex
        self._starts: dict[int, int] = {}
        self._jobs: dict[int, WorkerJob] = {}
        self._at: dict[int, str] = {}
        self._many = jobs if self._cluster is not None else len(self._first_workers())

    def _connected(self, address: str) -> Any:
        """A client of the scheduler."""
        try:
            return self._dask.Client(
                self._cluster if self._cluster is not None else f"tcp://{address}",
                timeout=PATIENCE,
                set_as_default=False,
            )
        except (OSError, ValueError) as error:
            raise InputError(
                f"no Dask scheduler answers at {address!r}. Start one (dask scheduler), or give the"
                " address that it prints, such as --engine dask://10.0.0.5:8786."
            ) from error

    def _first_workers(self) -> list[str]:
        """The cluster's workers, once there is one."""
        with contextlib.suppress(TimeoutError, self._dask.TimeoutError):
            self._client.wait_for_workers(1, timeout=PATIENCE)
        there = self._there()
        if not there:
            self.stop()
            raise InputError(
                "the Dask scheduler has no workers. Start some: dask worker ADDRESS."
            )
        return there

    @property
    def workers(self) -> int:
        return self._many

    def start(self, worker: int, job: WorkerJob) -> None:
        """At the worker that it had, or where that is gone at the one with least to do."""
        until = time.monotonic() + PATIENCE
        while not (there := self._there()):
            if time.monotonic() > until:
                raise EngineLost(
                    "all Dask workers are gone. What is done is kept: go on with --resume."
                )
            time.sleep(LOOK)
        taken = [self._at.get(other) for other in range(self._many) if other != worker]
        if self._at.get(worker) not in there:
            self._at[worker] = min(there, key=lambda one: (taken.count(one), one))
        self._jobs[worker] = job
        self._starts[worker] = self._starts.get(worker, 0) + 1

    def ask(self, questions: Sequence[tuple[int, Question]]) -> Iterator[WorkerReply]:
        places: dict[Any, tuple[int, str]] = {}
        with self._while_there():
            for place, (worker, question) in enumerate(questions):
                key = (self._run, worker, self._starts[worker])
                words = (key, self._jobs[worker], question)
                address = self._at[worker]
                task = self._client.submit(
                    _answer, *words, workers=[address], pure=False, retries=0
                )
                places[task] = (place, address)
        try:
            while places:
                for task, answer in self._replies(places):
                    place, _ = places.pop(task)
                    yield WorkerReply(place, answer)
        finally:
            with contextlib.suppress(Exception):
                self._client.cancel(list(places))

    def _replies(self, places: dict[Any, tuple[int, str]]) -> list[tuple[Any, Answer]]:
        """What has come of these, after a while."""
        with self._while_there():
            late = contextlib.suppress(TimeoutError, self._dask.TimeoutError)
            with self._client.as_current(), late:
                self._dask.wait(list(places), LOOK, return_when="FIRST_COMPLETED")
            there = set(self._there())
        found = []
        for task, (_, address) in places.items():
            if task.done():
                answer = self._answer_of(task, address in there)
            else:
                answer = (
                    _WAIT
                    if address in there
                    else LostAnswer("the Dask worker is gone.")
                )
            if answer is not _WAIT:
                found.append((task, answer))
        return found

    def _answer_of(self, task: Any, there: bool) -> Answer:
        """The answer of a task that is done; it lies at a worker, which may be gone."""
        if task.status in ("cancelled", "lost"):
            if self._client.status != "running":
                raise EngineLost(GONE)
            return LostAnswer("Dask has dropped the question.")
        if task.status == "error":
            trouble = task.exception()
            if isinstance(trouble, self._dask.KilledWorker):
                return LostAnswer(str(trouble))
            raise trouble
        try:
            return task.result(timeout=FETCH if there else LOOK)
        except (TimeoutError, self._dask.TimeoutError):
            return _WAIT if there else LostAnswer("the Dask worker is gone.")

    def _there(self) -> list[str]:
        """The addresses of all workers."""
        with self._while_there():
            found = self._client.scheduler_info(n_workers=-1)["workers"]
        return sorted(found)

    @contextlib.contextmanager
    def _while_there(self) -> Iterator[None]:
        """The scheduler may go away at any time."""
        if self._client.status not in ("running", "connecting"):
            raise EngineLost(GONE)
        try:
            yield
        except (OSError, CancelledError) as error:
            raise EngineLost(GONE) from error

    def stop(self) -> None:
        with contextlib.suppress(Exception):  # whatever is still there of it
            if self._cluster is None:
                self._client.run(_forget, self._run)
            self._client.close(timeout=2)
        if self._cluster is not None:
            with contextlib.suppress(Exception):
                self._cluster.close(timeout=5)
        self._begun.close()


_WAIT = object()  # no answer yet


def _answer(key: Key, job: WorkerJob, question: Question) -> Answer:
    """At a Dask worker: from what the job has read there; one question after the other."""
    with _door:
        if key not in _begun:
            for other in [one for one in _begun if one[:2] == key[:2]]:
                del _begun[other]
            _begun[key] = (threading.Lock(), job.begin())
        lock, answers = _begun[key]
    with lock:
        return answers(question)


def _forget(run: str) -> None:
    """At a Dask worker: drop what a run has read."""
    with _door:
        for key in [one for one in _begun if one[0] == run]:
            del _begun[key]
