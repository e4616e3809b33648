"""`persfl watch`: how far a fit or a federation is that writes into a folder now, to its end."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from persfl.checks import many
from persfl.commands.progress import json_number, stage_name
from persfl.errors import InputError
from persfl.folder_locks import holder
from persfl.run_kinds import is_sharded
from persfl.runs.index import INDEX
from persfl.runs.run_folder import Folder
from persfl.runs.standing import DIARY, RunStanding, standing_of

PAUSE = 0.5  # seconds between two looks
_STALE = 60.0  # seconds after which nobody writes a page any more
_CLEAR = "\r\x1b[2K"
STOPPED = 3  # exit status, as that of `persfl federate`


def watch(chosen: argparse.Namespace) -> int:
    """Show how far the run of a folder is, until it is over."""
    out = Path(chosen.run)
    if is_sharded(out):
        return _sharded(out, chosen)
    if not (out / INDEX).is_file() and holder_of(out) is None:
        raise _nothing_in(out)
    if (out / DIARY).is_file():
        return _federation(out, chosen)
    shown = Screen(chosen.json)
    while True:
        folder = Folder.open(out) if (out / INDEX).is_file() else None
        here = standing_of(out)
        if here is not None:
            shown(here, time.time())
        if folder is not None and folder.finished and _is_over(here):
            shown.end()
            return _answer(out, chosen.json)
        if folder is not None and not folder.finished and holder_of(out) is None:
            # it may have ended between the two looks
            if Folder.open(out).finished:
                continue
            shown.end()
            return _say_stopped(out)
        if chosen.once:
            shown.end()
            return 0
        if folder is None and is_sharded(out):
            return _sharded(out, chosen)
        if folder is None and holder_of(out) is None and not (out / INDEX).is_file():
            raise _nothing_in(out)  # whoever wrote there was stopped before it began
        time.sleep(PAUSE)


def _nothing_in(out: Path) -> InputError:
    return InputError(
        f"there is no run in {str(out)!r} yet. Start one: persfl fit TABLE ... --out {out}"
    )


def _sharded(out: Path, chosen: argparse.Namespace) -> int:
    """A run over shards says what came out once it is over, and nothing before."""
    from persfl.commands.folder_answers import print_facts
    from persfl.scale.sharded_run import ShardedRun

    while not (run := ShardedRun.open(out)).finished:
        if holder_of(out) is None and not ShardedRun.open(out).finished:
            return _say_stopped(out)
        if chosen.once:
            told = {"event": "standing", "made": len(run.made())}
            print(json.dumps(told) if chosen.json else f"models are made in {out}.")
            return 0
        time.sleep(PAUSE)
    if chosen.json:
        print(json.dumps({"event": "done"} | dict(run.facts)), flush=True)
    else:
        print_facts(run)
    return 0


def _say_stopped(out: Path) -> int:
    print(
        f"persfl: nobody is writing into {out}: the run was stopped. Go on with the same command"
        " and --resume.",
        file=sys.stderr,
    )
    return STOPPED


def holder_of(out: Path) -> str | None:
    """Who writes into a folder now, if it is there."""
    return holder(out) if out.is_dir() else None


def _is_over(here: RunStanding | None) -> bool:
    """Whether a finished run has nothing left to write."""
    # a moment far ahead is no moment of this run: the clock was set back, or it is made up
    return here is None or abs(time.time() - here.at) > _STALE


class Screen:
    """Where a run is: a line that changes on a terminal, else a line whenever it changes."""

    def __init__(self, plain: bool) -> None:
        self.plain = plain
        self.live = not plain and sys.stdout.isatty()
        self._before: RunStanding | None = None

    def __call__(self, here: RunStanding, now: float) -> None:
        if here == self._before and not self.live:
            return
        self._before = here
        if self.plain:
            facts = {name: json_number(value) for name, value in here._asdict().items()}
            print(json.dumps({"event": "standing"} | facts), flush=True)
        elif self.live:
            print(f"{_CLEAR}{standing_text(here, now)}", end="", flush=True)
        else:
            print(standing_text(here, now), flush=True)

    def end(self) -> None:
        """Leave the line."""
        if self.live:
            print(_CLEAR, end="", flush=True)


def standing_text(here: RunStanding, now: float) -> str:
    """Where a run is, for a person.

    >>> here = RunStanding("final", 30, 50, 0.0, 60.0, 90, 88, 0.25, left=40.0)
    >>> standing_text(here, 60.0)
    'all rows: round 30 of 50, median loss 0.25, 88 of 90 questions answered, 40 s left'
    >>> standing_text(RunStanding("trial-0", 0, 1, 0.0, 3.0), 5.0)
    'trial 1: began 5 s ago'
    """
    words = []
    if here.rounds > 1:
        words.append(f"round {here.round} of {here.rounds}")
    if here.loss is not None:
        words.append(f"median loss {here.loss:.4g}")
    if here.asked:
        words.append(f"{here.answered} of {many(here.asked, 'question')} answered")
    if here.left is not None:
        words.append(f"{max(here.left - (now - here.at), 0):.0f} s left")
    else:
        words.append(f"began {max(now - here.began, 0):.0f} s ago")
    return f"{stage_name(here.stage)}: {', '.join(words)}"


def _answer(out: Path, plain: bool) -> int:
    """What came out, as `persfl fit` says it, and where its page is."""
    from persfl.commands.answers import print_answer, verdict_facts
    from persfl.report.html import REPORT
    from persfl.runs.model_reader import load_model

    model = load_model(out)
    page = out / REPORT
    there = page.is_file()
    if plain:
        facts = {
            name: json_number(value) for name, value in verdict_facts(model).items()
        }
        told = {"event": "done", "report": str(page) if there else None}
        print(json.dumps(told | {"notes": model.notes_, **facts}), flush=True)
        return 0
    print_answer(model, out)
    print(f"Open {page}." if there else f"Its report: persfl report {out}")
    return 0


def _federation(out: Path, chosen: argparse.Namespace) -> int:
    """What a federated run writes down, from its last beginning on."""
    from persfl.commands.federate import Lines
    from persfl.federation.launch import follow

    code = follow(out, Lines(chosen.json), once=chosen.once)
    if code == 0 and not chosen.once:
        _answer(out, chosen.json)
    return code
