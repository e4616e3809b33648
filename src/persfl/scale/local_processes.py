"""Workers that are processes of this machine, by Python's own `concurrent.futures`.

Each worker is a pool of one process, so that what it holds stays with it. Programs that fit with
several processes need the usual `if __name__ == "__main__":` around what they do.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait

from threadpoolctl import threadpool_limits

from persfl.checks import whole
from persfl.scale.executor import (
    Answer,
    Answers,
    LostAnswer,
    Question,
    WorkerJob,
    WorkerReply,
)

_begun: list[Answers] = []  # at a worker: what answers


class LocalProcesses:
    """So many processes; `stop` ends them, and so does the end of this one, however it comes.

    >>> with_two = LocalProcesses(2)
    >>> with_two.workers
    2
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = whole("jobs", jobs, least=1)
        self._pools: dict[int, ProcessPoolExecutor] = {}

    @property
    def workers(self) -> int:
        return self._jobs

    def start(self, worker: int, job: WorkerJob) -> None:
        self._end(worker)
        self._pools[worker] = ProcessPoolExecutor(
            max_workers=1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(job,),
        )

    def ask(self, questions: Sequence[tuple[int, Question]]) -> Iterator[WorkerReply]:
        asked: dict[Future[Answer], int] = {}
        for place, (worker, question) in enumerate(questions):
            try:
                asked[self._pools[worker].submit(_answer, question)] = place
            except BrokenProcessPool as error:
                yield WorkerReply(place, LostAnswer(str(error)))
        for future in as_completed(asked):
            trouble = future.exception()
            if isinstance(trouble, BrokenProcessPool):
                yield WorkerReply(asked[future], LostAnswer(str(trouble)))
            else:
                yield WorkerReply(asked[future], future.result())

    def stop(self) -> None:
        for worker in list(self._pools):
            self._end(worker)

    def _end(self, worker: int) -> None:
        pool = self._pools.pop(worker, None)
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin(job: WorkerJob) -> None:
    """At a worker: it ends with its parent, and leaves the other cores to the other workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), daemon=True).start()
    threadpool_limits(1)
    _begun[:] = [job.begin()]


def _follow(parent: int) -> None:
    """End this process when its parent ends: a coordinator may have been killed."""
    wait([parent])
    os._exit(1)


def _answer(question: Question) -> Answer:
    return _begun[0](question)
