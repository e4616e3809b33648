"""What a terminal shows: tables and progress."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from persfl.errors import need
from persfl.runs.standing import RunStanding, remove_standing
from persfl.terminal import shown
from persfl.training.state import Keep, Plan, State
from persfl.types import Round

CLEAR = "\r\x1b[2K"
_OFTEN = 0.2  # seconds between two lines
_TRIAL = re.compile(r"trial-([0-9]{1,9})")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns of text, the first on the left, aligned."""
    lines = [tuple(map(shown, row)) for row in [head, *rows]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print("  ".join(cells).rstrip())


class Progress:
    """A keeper that also says how far a run is: a line that changes on a terminal, JSON lines
    with `--json`; and `place`, the folder of the run, has it for whoever watches.
    """

    def __init__(
        self,
        keep: Keep,
        *,
        lines: bool,
        place: Path | None = None,
        report: bool = True,
    ) -> None:
        self.keep = keep
        self.lines = lines
        self.live = not lines and sys.stderr.isatty()
        self.place = place
        self.report = report
        self._begin = (time.monotonic(), 0)
        self._last = 0.0
        self._took: float | None = None  # seconds of the stage before

    def last(self, stage: str) -> State | None:
        state = self.keep.last(stage)
        self._begin = (time.monotonic(), 0 if state is None else state.r)
        return state

    def after(self, stage: str, plan: Plan, state: State, round_: Round | None) -> None:
        self.keep.after(stage, plan, state, round_)
        if round_ is None:
            self._begin = (time.monotonic(), state.r)
            self._leave(stage, plan.rounds, state.r, None)
            if state.pace.halved:
                step = state.pace.step_size
                text = f"step size halved to {step:g}"
                self.say("halved", stage=stage, step_size=step, text=text)
        elif self.lines or self.live or self.place is not None:
            self._round(stage, plan.rounds, state.r, round_)

    def _round(self, stage: str, rounds: int, r: int, round_: Round) -> None:
        """One round more."""
        now = time.monotonic()
        over = r >= rounds
        if now - self._last < _OFTEN and not over:
            return
        self._last = now
        self._leave(stage, rounds, r, round_)
        left = self._left(rounds, r) or 0.0
        if over:
            self._took = now - self._begin[0]
        loss = float(np.median(round_.loss))
        if self.lines:
            facts = {"stage": stage, "round": r, "rounds": rounds, "loss": loss}
            self.say("round", **facts, seconds_left=round(left, 1))
        elif self.live:
            done = "█" * round(20 * r / rounds)
            count = f"round {r} of {rounds}, median loss {loss:.4g}, {left:.0f} s left"
            line = f"{stage_name(stage)}: |{done:20}| {count}"
            print(f"{CLEAR}{line}", end="", file=sys.stderr, flush=True)

    def _left(self, rounds: int, r: int) -> float | None:
        """Seconds until a stage is over: by its rounds so far, or by the stage before."""
        began, first = self._begin
        gone = time.monotonic() - began
        if r > first:
            return gone / (r - first) * (rounds - r)
        return None if self._took is None else max(self._took - gone, 0.0)

    def _leave(self, stage: str, rounds: int, r: int, round_: Round | None) -> None:
        """Leave word for whoever watches the folder."""
        if self.place is None:
            return
        now = time.time()
        gone = time.monotonic() - self._begin[0]
        here = RunStanding(
            stage,
            r,
            max(rounds, r),
            now - gone,
            now,
            left=self._left(rounds, r),
            report=self.report,
        )
        if round_ is not None:
            asked = round_.peers >= 0
            told = np.isfinite(round_.losses[:, 1:]) & asked
            known = round_.loss[np.isfinite(round_.loss)]
            here = here._replace(
                asked=int(asked.sum()),
                answered=int(told.sum()),
                loss=float(np.median(known)) if len(known) else None,
            )
        here.write(self.place)

    def say(self, event: str, **facts: Any) -> None:
        """One event: a line of JSON, or its `text` on a terminal."""
        text = facts.pop("text", None)
        if self.lines:
            plain = {name: json_number(value) for name, value in facts.items()}
            print(json.dumps({"event": event} | plain), flush=True)
        elif self.live and text is not None:
            print(f"{CLEAR}{text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clear the line."""
        if self.live:
            print(CLEAR, end="", file=sys.stderr, flush=True)

    def over(self) -> None:
        """The command ends: there is nothing more to watch."""
        if self.place is not None:
            remove_standing(self.place)
            self.place = None


def stage_name(stage: str) -> str:
    """What a person calls a stage.

    >>> stage_name("final"), stage_name("trial-0")
    ('all rows', 'trial 1')
    """
    trial = _TRIAL.fullmatch(stage)  # a folder of somebody else's may say anything
    if trial is not None:
        return f"trial {int(trial[1]) + 1}"
    return "all rows" if stage == "final" else stage


def json_number(value: Any) -> Any:
    """The value, or null where it is no number that JSON has."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


class _NoBar:
    """Stands in for a progress bar where none is wanted."""

    def __enter__(self) -> _NoBar:
        return self

    def __exit__(self, *_: object) -> None: ...
    def set_description_str(self, text: str) -> None: ...
    def update(self, by: float) -> None: ...


def bar(quiet: bool, **settings: Any) -> Any:
    """A progress bar, unless it should be quiet."""
    if quiet:
        return _NoBar()
    return need("tqdm", extra="report", why="showing progress").tqdm(**settings)
