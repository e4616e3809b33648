"""Independent pieces of work whose questions travel together.

Each piece runs in a thread of its own and waits when it asks. When all of them wait, their
questions go out in one exchange, so a round costs one message to each device, however many pieces
there are. One piece computes at a time, so nothing they share needs a lock of its own, and the
order of threads decides nothing.

>>> def work(ask, k):
...     first = ask([k])[0]
...     return ask([first + 1])[0] if k else first
>>> met = []
>>> def exchange(asked):
...     met.append(asked)
...     return [[10 * q for q in each] for each in asked]
>>> side_by_side([lambda ask: work(ask, 0), lambda ask: work(ask, 2)], exchange), met
([0, 210], [[[0], [2]], [[21]]])
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any


class Stopped(BaseException):
    """The work ends because the exchange could not be made."""


def side_by_side(
    work: Sequence[Callable[[Any], Any]], exchange: Callable[[list[Any]], list[Any]]
) -> list[Any]:
    """What each piece returns; each gets a function that asks, and `exchange` sees the
    questions of all that ask at that time.
    """
    turn = threading.Lock()
    lines = [_Line(piece, turn) for piece in work]
    waiting: list[_Line] = []
    try:
        for line in lines:
            line.thread.start()
        active = list(lines)
        while active:
            events = [(line, *line.out.get()) for line in active]
            waiting = [line for line, kind, _ in events if kind == "asks"]
            for _, kind, value in events:
                if kind == "failed":
                    raise value
            for line, kind, value in events:
                if kind == "done":
                    line.result = value
            if waiting:
                told = exchange([value for _, kind, value in events if kind == "asks"])
                for line, each in zip(waiting, told, strict=True):
                    line.into.put(("told", each))
            active = waiting
            waiting = []
    finally:
        for line in lines:
            line.into.put(("over", None))
        for line in lines:
            if line.thread.ident is not None:
                line.thread.join()
    return [line.result for line in lines]


class _Line:
    """One piece of work and its two mailboxes."""

    def __init__(self, piece: Callable[[Any], Any], turn: threading.Lock) -> None:
        self.piece = piece
        self.result = None
        self.turn = turn
        self.out: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.into: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            with self.turn:
                found = self.piece(self._ask)
            self.out.put(("done", found))
        except Stopped:
            pass
        except BaseException as error:
            self.out.put(("failed", error))

    def _ask(self, questions: Any) -> Any:
        self.turn.release()
        self.out.put(("asks", questions))
        kind, value = self.into.get()
        self.turn.acquire()
        if kind == "over":
            raise Stopped
        return value
