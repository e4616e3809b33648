"""What a terminal shows: tables and progress."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from persfl.errors import need
from persfl.terminal import shown
from persfl.training import Keep, Plan, State
from persfl.types import Round

STAGES = {"final": "all rows"}


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Columns of text, the first on the left, aligned."""
    lines = [tuple(map(shown, row)) for row in [head, *rows]]
    widths = [max(len(row[i]) for row in lines) for i in range(len(head))]
    for row in lines:
        print(
            "  ".join(
                cell.ljust(width) for cell, width in zip(row, widths, strict=True)
            ).rstrip()
        )


class Shown:
    """A keeper that also says how far a run is: a line that changes on a terminal, JSON lines
    with `--json`, else nothing.
    """

    def __init__(self, kept: Keep, *, lines: bool) -> None:
        self.kept, self.lines = kept, lines
        self.live = not lines and sys.stderr.isatty()
        self._begin = (time.monotonic(), 0)
        self._said = 0.0

    def last(self, stage: str) -> State | None:
        state = self.kept.last(stage)
        self._begin = (time.monotonic(), 0 if state is None else state.r)
        return state

    def after(self, stage: str, plan: Plan, state: State, round_: Round | None) -> None:
        self.kept.after(stage, plan, state, round_)
        if round_ is None:
            self._begin = (time.monotonic(), state.r)
            if state.pace.halved:
                step = state.pace.step_size
                self.say(
                    "halved",
                    stage=stage,
                    step_size=step,
                    text=f"step size halved to {step:g}",
                )
            return
        now = time.monotonic()
        if not (self.lines or self.live) or (
            now - self._said < 0.2 and state.r < plan.rounds
        ):
            return
        self._said = now
        began, first = self._begin
        left = (now - began) / max(state.r - first, 1) * (plan.rounds - state.r)
        loss = float(np.median(round_.loss))
        if self.lines:
            self.say(
                "round",
                stage=stage,
                round=state.r,
                rounds=plan.rounds,
                loss=loss,
                seconds_left=round(left, 1),
            )
        else:
            what = STAGES.get(
                stage,
                f"trial {int(stage.split('-')[-1]) + 1}"
                if stage.startswith("trial-")
                else stage,
            )
            bar = "█" * round(20 * state.r / plan.rounds)
            line = (
                f"{what}: |{bar:20}| round {state.r} of {plan.rounds}, median loss {loss:.4g},"
                f" {left:.0f} s left"
            )
            print(f"\r\x1b[2K{line}", end="", file=sys.stderr, flush=True)

    def say(self, event: str, **facts: Any) -> None:
        """One event: a line of JSON, or its `text` on a terminal."""
        if self.lines:
            print(
                json.dumps(
                    {"event": event}
                    | {k: finite(v) for k, v in facts.items() if k != "text"}
                ),
                flush=True,
            )
        elif self.live and "text" in facts:
            print(f"\r\x1b[2K{facts['text']}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clear the line."""
        if self.live:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def finite(value: Any) -> Any:
    """JSON has no NaN."""
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
    return (
        _NoBar()
        if quiet
        else need("tqdm", extra="report", why="showing progress").tqdm(**settings)
    )
