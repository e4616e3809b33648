"""Whom a run waits for, in words: once, and again only when that changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

MOST = 5  # names in one line


class Waiting:
    """Says whom a run waits for, and since when they have not been seen.

    >>> waiting = Waiting({"south": 0.0}, lambda facts: print(facts["text"]))
    >>> waiting("round 1", ["east"])
    round 1: waiting for east (not seen yet)
    >>> waiting("round 1", ["east"])
    >>> waiting("device 'east' is at its owner's limit", [])
    device 'east' is at its owner's limit
    >>> waiting.unwilling = ["west"]
    >>> waiting("round 1", ["east", "north"])
    round 1: waiting for east (not seen yet), north (not seen yet); west does not want a model
    """

    def __init__(
        self, seen: Mapping[str, float], say: Callable[[dict[str, object]], None]
    ) -> None:
        self.unwilling: Sequence[str] = ()
        self._seen = seen
        self._say = say
        self._before: tuple[str, ...] = ()

    def __call__(self, where: str, missing: Sequence[str]) -> None:
        if not missing:  # something else that whoever watches should know
            self._say({"text": where})
            return
        names = tuple(sorted(missing))
        if names == self._before:
            return
        self._before = names
        text = f"{where}: waiting for {', '.join(map(self._named, names[:MOST]))}"
        if len(names) > MOST:
            text += f" and {len(names) - MOST} more"
        if self.unwilling:
            text += f"; {unwilling_text(self.unwilling)}"
        self._say({"missing": list(names), "text": text})

    def over(self) -> None:
        """It went on: whoever is missing the next time is said again."""
        self._before = ()

    def _named(self, name: str) -> str:
        when = self._seen.get(name)
        if when is None:
            return f"{name} (not seen yet)"
        return f"{name} (last seen {time.strftime('%H:%M:%S', time.localtime(when))})"


def unwilling_text(names: Sequence[str]) -> str:
    """Who answers as a peer only.

    >>> unwilling_text(["west"]), unwilling_text(["east", "west"])
    ('west does not want a model', 'east, west do not want a model')
    """
    return f"{', '.join(names)} {'does' if len(names) == 1 else 'do'} not want a model"
