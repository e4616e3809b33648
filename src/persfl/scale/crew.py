"""All workers of an engine, and who has which shard: questions about shards, to whoever has them.

A worker that dies is replaced and asked again. What it was asked does not change anything but files
that are written whole, so the result is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from persfl.errors import PersflError
from persfl.scale.executor import Answer, Executor, LostAnswer, Question, WorkerJob

TRIES = 3  # deaths of a worker without an answer between them, before the run ends


class WorkerLost(PersflError, RuntimeError):
    """Workers keep dying."""


class Crew:
    """The workers, each with its share of the shards; leave it with `with`."""

    def __init__(self, executor: Executor, job: WorkerJob) -> None:
        self._executor = executor
        self._job = job

    def __enter__(self) -> Crew:
        try:
            for worker in range(self._executor.workers):
                self._executor.start(worker, self._job)
        except BaseException:
            self._executor.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.stop()

    def ask(self, questions: Mapping[int, Question]) -> Iterator[tuple[int, Answer]]:
        """One question about each of these shards; answers come as they are ready."""
        todo = dict(questions)
        deaths: dict[int, int] = {}
        while todo:
            shards = sorted(todo)
            asked = [(self._worker(shard), todo[shard]) for shard in shards]
            dead: dict[int, str] = {}
            for place, answer in self._executor.ask(asked):
                shard = shards[place]
                worker = self._worker(shard)
                if isinstance(answer, LostAnswer):
                    dead[worker] = answer.why
                else:
                    deaths.pop(worker, None)
                    del todo[shard]
                    yield shard, answer
            for worker, why in dead.items():
                deaths[worker] = deaths.get(worker, 0) + 1
                self._replace(worker, why, deaths[worker])

    def _replace(self, worker: int, why: str, tries: int) -> None:
        if tries >= TRIES:
            raise WorkerLost(
                f"worker {worker} was started {tries} times and died each time: {why} If it was"
                " short of memory, make smaller shards (persfl shard --shards) or use fewer"
                " jobs. What is done is kept: go on with --resume."
            )
        self._executor.start(worker, self._job)

    def _worker(self, shard: int) -> int:
        """Whose shard this is: shards are dealt in turn."""
        return shard % self._executor.workers
