"""What a run over shards needs of an engine: long-lived workers that answer questions.

An engine has a few workers, numbered from 0. Each is started with a job, holds it until the end,
and answers one question after the other. Questions and answers are plain values of a few kilobytes
to a few megabytes; rows stay with the workers. Another engine is one file with a class that has
these calls (`persfl.scale.local_processes` is one), and a line in `engines.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from persfl.errors import PersflError

Question = Any
Answer = Any
Answers = Callable[[Question], Answer]


class EngineLost(PersflError, RuntimeError):
    """The engine itself went away, not one of its workers."""


class WorkerJob(Protocol):
    """What a worker is started with: a small value that can be sent to another process."""

    def begin(self) -> Answers:
        """At the worker, once: what answers its questions from then on."""


@dataclass(frozen=True)
class LostAnswer:
    """In place of an answer: the worker died before it gave one."""

    why: str = ""


class WorkerReply(NamedTuple):
    """The answer to one of the questions asked together, by its place among them."""

    place: int
    answer: Answer | LostAnswer


class Executor(Protocol):
    """An engine."""

    @property
    def workers(self) -> int:
        """How many workers there are."""

    def start(self, worker: int, job: WorkerJob) -> None:
        """Start this worker with its job; in place of the one that died, where there was one."""

    def ask(self, questions: Sequence[tuple[int, Question]]) -> Iterator[WorkerReply]:
        """Put each question to the worker of this number; replies come as they are ready.

        A worker that dies makes a `LostAnswer` of each question that it has not answered. An error
        that a worker raises is raised here. `EngineLost` says that there is nobody left to ask.
        """

    def stop(self) -> None:
        """End all workers; whatever happened before."""


class InThisProcess:
    """Workers that are no processes of their own: nothing is sent, nothing dies.

    >>> class Twice:
    ...     def begin(self):
    ...         return lambda question: 2 * question
    >>> here = InThisProcess()
    >>> here.start(0, Twice())
    >>> [reply.answer for reply in here.ask([(0, 4), (0, 5)])]
    [8, 10]
    """

    def __init__(self) -> None:
        self._begun: dict[int, Answers] = {}

    @property
    def workers(self) -> int:
        return 1

    def start(self, worker: int, job: WorkerJob) -> None:
        self._begun[worker] = job.begin()

    def ask(self, questions: Sequence[tuple[int, Question]]) -> Iterator[WorkerReply]:
        for place, (worker, question) in enumerate(questions):
            yield WorkerReply(place, self._begun[worker](question))

    def stop(self) -> None:
        self._begun.clear()
