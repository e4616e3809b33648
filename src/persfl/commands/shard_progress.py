"""How far a fit over shards is."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from persfl.checks import percent
from persfl.commands.progress import CLEAR


class ShardProgress:
    """What is being done, and how long it will take: a line that changes, or JSON lines."""

    def __init__(self, lines: bool) -> None:
        self.lines = lines
        self.live = not lines and sys.stderr.isatty()
        self._what = ""
        self._began = (0.0, 0)

    def shards_done(self, what: str, done: int, total: int) -> None:
        """So many shards, or rounds, of all."""
        now = time.monotonic()
        if what != self._what:
            self._what = what
            self._began = (now, done)
        began, first = self._began
        left = None
        if done > first:
            left = (now - began) / (done - first) * (total - done)
        facts: dict[str, Any] = {"event": "shards", "stage": what}
        facts |= {"done": done, "of": total, "seconds_left": left}
        if self.lines:
            print(json.dumps(facts), flush=True)
        elif self.live:
            rest = "" if left is None else f", {left:.0f} s left"
            self._show(f"{what}: {done} of {total}{rest}")

    def share_done(self, what: str, share: float) -> None:
        """So much of it."""
        if self.live:
            self._show(what + (f": {percent(share)}" if share < 1 else ""))

    def close(self) -> None:
        """Clear the line."""
        if self.live:
            print(CLEAR, end="", file=sys.stderr, flush=True)

    def _show(self, text: str) -> None:
        print(f"{CLEAR}{text}", end="", file=sys.stderr, flush=True)
