"""Workers that are actors of Ray: of a cluster that runs already, or of one started here.

Nodes must be able to import persfl, and see the folders that a run names.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from persfl.errors import InputError, elsewhere, need
from persfl.scale.executor import (
    Answer,
    Answers,
    EngineLost,
    LostAnswer,
    Question,
    WorkerJob,
    WorkerReply,
)

_TMP = "/tmp" if os.name == "posix" else None  # names of sockets must be short
GONE = "Ray is gone. What is done is kept: start it again and go on with --resume."


class RayWorkers:
    """One actor for each core of the cluster at `address`; without an address, so many of this
    machine, in a Ray of their own.
    """

    def __init__(self, address: str, jobs: int) -> None:
        self._ray: Any = need("ray", extra="ray", why="the engine ray")
        self._ours = not self._ray.is_initialized()
        self._begun = ExitStack()
        if self._ours:
            with elsewhere():  # workers read modules where one stands when Ray begins
                self._join(address, jobs)
        cores = int(self._ray.cluster_resources().get("CPU", 1))
        self._many = max(1, cores if address else min(jobs, cores))
        self._actors: dict[int, Any] = {}

    def _join(self, address: str, jobs: int) -> None:
        """Connect to a cluster, or begin one."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # tell nobody
        # as it will be in later versions: GPUs are left as they are
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        words: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if not address:
            self._own(jobs, words)
            return
        try:
            self._ray.init(f"ray://{address}", **words)
        except (ConnectionError, TimeoutError, RuntimeError, ValueError) as error:
            raise InputError(
                f"no Ray answers at {address!r}. Start it (ray start --head), or give the address"
                " of its client server, such as --engine ray://10.0.0.5:10001."
            ) from error

    def _own(self, jobs: int, words: dict[str, Any]) -> None:
        """Begin one that nobody else can ask or has put there: Ray joins one whose address stands
        in /tmp, and a folder there is open to everybody.
        """
        with ExitStack() as begun:
            made = tempfile.TemporaryDirectory(
                prefix="persfl-", dir=_TMP, ignore_cleanup_errors=True
            )
            place = begun.enter_context(made)
            begun.enter_context(_secret())
            # a folder in it, for Ray opens the one that it is given to everybody
            words |= {"num_cpus": jobs, "_temp_dir": os.path.join(place, "ray")}
            self._ray.init("local", include_dashboard=False, **words)
            self._begun = begun.pop_all()

    @property
    def workers(self) -> int:
        return self._many

    def start(self, worker: int, job: WorkerJob) -> None:
        self._end(worker)
        made = self._ray.remote(_Actor).options(num_cpus=1, max_restarts=0)
        with self._while_there():
            self._actors[worker] = made.remote(job)

    def ask(self, questions: Sequence[tuple[int, Question]]) -> Iterator[WorkerReply]:
        places: dict[Any, int] = {}
        with self._while_there():
            for place, (worker, question) in enumerate(questions):
                places[self._actors[worker].answer.remote(question)] = place
        while places:
            with self._while_there():
                ready, _ = self._ray.wait(list(places), num_returns=1)
                answers = [self._answer_of(one) for one in ready]
            for one, answer in zip(ready, answers, strict=True):
                yield WorkerReply(places.pop(one), answer)

    def _answer_of(self, asked: Any) -> Answer:
        """What was answered; an error of the worker's own is raised."""
        trouble = self._ray.exceptions
        try:
            return self._ray.get(asked)
        except trouble.RayActorError:
            return LostAnswer("the Ray actor died.")
        except trouble.RayTaskError as error:
            raise error.cause from None

    @contextlib.contextmanager
    def _while_there(self) -> Iterator[None]:
        """Ray may go away at any time."""
        try:
            yield
        except (ConnectionError, self._ray.exceptions.RaySystemError) as error:
            raise EngineLost(GONE) from error

    def stop(self) -> None:
        for worker in list(self._actors):
            self._end(worker)
        if self._ours:
            with contextlib.suppress(Exception):  # whatever is still there of it
                self._ray.shutdown()
        self._begun.close()

    def _end(self, worker: int) -> None:
        actor = self._actors.pop(worker, None)
        if actor is not None:
            with contextlib.suppress(Exception):  # it may have died
                self._ray.kill(actor)


@contextlib.contextmanager
def _secret() -> Iterator[None]:
    """A Ray that begins now listens in the whole network, and whoever may ask it may run anything:
    it answers to this process and its workers alone.
    """
    raylet: Any = need("ray._raylet", extra="ray", why="the engine ray")
    words = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    before = {name: os.environ.get(name) for name in words}

    def told() -> None:
        raylet.AuthenticationTokenLoader.instance().reset_cache()
        raylet.Config.initialize("")  # Ray may have been imported before

    os.environ.update(words)
    told()
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value
        told()


class _Actor:
    """At a node: a job, begun at its first question, so that its errors reach whoever asks."""

    def __init__(self, job: WorkerJob) -> None:
        self._job = job
        self._begun: Answers | None = None

    def answer(self, question: Question) -> Answer:
        if self._begun is None:
            self._begun = self._job.begin()
        return self._begun(question)
