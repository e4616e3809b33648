"""Engines by their names, as `--engine` says them."""

from __future__ import annotations

from collections.abc import Callable

from persfl.errors import InputError
from persfl.scale.executor import Executor, InThisProcess
from persfl.scale.local_processes import LocalProcesses


def _processes(address: str, jobs: int) -> Executor:
    return LocalProcesses(jobs) if jobs > 1 else InThisProcess()


# what stands before "://" in a name, or the whole of it; given what stands behind, and the jobs
ENGINES: dict[str, Callable[[str, int], Executor]] = {"processes": _processes}


def engine_of(name: str, jobs: int) -> Executor:
    """The engine of this name.

    >>> engine_of("processes", 1).workers
    1
    >>> engine_of("spark", 1)
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: there is no engine 'spark'. There are: processes.
    """
    kind, _, address = name.partition("://")
    if kind not in ENGINES:
        known = ", ".join(ENGINES)
        raise InputError(f"there is no engine {name!r}. There are: {known}.")
    return ENGINES[kind](address, jobs)
