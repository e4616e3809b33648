"""A bar that says how far a fit is: in a notebook under the cell, on a terminal in one line."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

import numpy as np

from persfl.tracking.callbacks import Callback

if TYPE_CHECKING:
    from persfl.fitting.fitted import Fitted
    from persfl.types import Round

OFTEN = 0.2  # seconds between two pictures
_CLEAR = "\r\x1b[2K"


class ProgressBar(Callback):
    """Rounds done, the median loss and the time left, of every stage of a fit.

    Methods that fit at once have no rounds, and so no bar. Where nobody looks, in a log or a pipe,
    nothing is written.

    >>> from persfl import PersonalizedRegressor
    >>> from persfl.methods import Paper
    >>> X, y = np.arange(8.0)[:, None], np.arange(8.0) + 1
    >>> model = PersonalizedRegressor(method=Paper(rounds=2), holdout=0)
    >>> _ = model.fit(X, y, devices=list("aaaabbbb"), callbacks=[ProgressBar()])
    """

    def __init__(self) -> None:
        self._place = _place()
        self._began = 0.0
        self._rounds = 0
        self._last = 0.0

    def on_stage(self, stage: str, rounds: int) -> None:
        """A stage begins, of so many rounds."""
        self._rounds = rounds
        self._began = time.monotonic()
        self._last = 0.0

    def on_round(self, round_: Round, stage: str) -> None:
        """One round more."""
        done = round_.r + 1
        now = time.monotonic()
        if now - self._last < OFTEN and done < self._rounds:
            return
        self._last = now
        left = (now - self._began) / done * max(self._rounds - done, 0)
        loss = float(np.nanmedian(round_.loss))
        text = f"{stage}: round {done} of {self._rounds}, median loss {loss:.4g}"
        self._place.show(done, self._rounds, f"{text}, {left:.0f} s left")

    def on_fit(self, fitted: Fitted) -> None:
        """The fit is done."""
        self._place.end()


class BarPlace(Protocol):
    """Where a bar is drawn."""

    def show(self, done: int, rounds: int, text: str) -> None: ...
    def end(self) -> None: ...


class UpdatedDisplay(Protocol):
    """What a notebook gives back for something that it shows and that may change."""

    def update(self, shown: object) -> None: ...


class Nowhere:
    """Nobody looks."""

    def show(self, done: int, rounds: int, text: str) -> None: ...

    def end(self) -> None: ...


class TerminalLine:
    """A line that is written over again and again."""

    def show(self, done: int, rounds: int, text: str) -> None:
        full = "█" * round(20 * done / max(rounds, 1))
        print(f"{_CLEAR}|{full:20}| {text}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        print(_CLEAR, end="", file=sys.stderr, flush=True)


class NotebookBar:
    """An element under the cell, which is replaced again and again; none where nothing is shown."""

    def __init__(self) -> None:
        self._display = import_module("IPython.display")
        self._handle: UpdatedDisplay | None = None

    def show(self, done: int, rounds: int, text: str) -> None:
        bar = f'<progress value="{done}" max="{rounds}"></progress>'
        html = self._display.HTML(f"{bar} {text}")
        if self._handle is None:
            self._handle = self._display.display(html, display_id=True)
        else:
            self._handle.update(html)

    def end(self) -> None:
        if self._handle is not None:
            self._handle.update(self._display.HTML(""))


def _place() -> BarPlace:
    """A notebook, a terminal, or nowhere."""
    shell = sys.modules.get("IPython")
    running = None if shell is None else shell.get_ipython()
    if type(running).__name__ == "ZMQInteractiveShell":
        return NotebookBar()
    return TerminalLine() if sys.stderr.isatty() else Nowhere()
