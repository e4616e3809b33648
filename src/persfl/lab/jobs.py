"""Pieces of work side by side, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from joblib import Parallel, delayed

Done = TypeVar("Done", covariant=True)


class Job(Protocol[Done]):
    """Something that can be done in a process of its own."""

    @property
    def cost(self) -> float:
        """A rough measure of how long it takes."""

    def work(self) -> tuple[Done, float]:
        """Do it; returns what came of it and the seconds it took."""


AnyJob = TypeVar("AnyJob", bound=Job[object])


def longest_first(todo: Iterable[AnyJob]) -> list[AnyJob]:
    """Pieces in the order in which all of them are done soonest."""
    return sorted(todo, key=lambda job: -job.cost)


def finished_jobs(
    todo: Iterable[Job[Done]], *, jobs: int
) -> Iterator[tuple[Done, float]]:
    """Do the work in `jobs` processes, begun in this order; yield what comes of each piece as it
    is finished.
    """
    ordered = list(todo)
    if jobs == 1 or len(ordered) < 2:
        yield from (job.work() for job in ordered)
        return
    # as many processes are started as are named, whether they have work or not
    parallel = Parallel(n_jobs=min(jobs, len(ordered)), return_as="generator_unordered")
    yield from parallel(delayed(_worked)(job) for job in ordered)


def _worked(job: Job[Done]) -> tuple[Done, float]:
    return job.work()
