"""Starting a run, or going on with one, and watching it to its end."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from persfl.errors import InputError
from persfl.federation.federation_folder import Federation
from persfl.federation.run_plan import RunPlan
from persfl.federation.superlink import check_up, link_mark, same_link, start_run
from persfl.files import NO_WAIT, open_regular
from persfl.folder_locks import LOCK, holder, holding_process
from persfl.formats import reading
from persfl.runs.begun_runs import is_begun, remove_begun
from persfl.runs.index import INDEX
from persfl.runs.run_folder import Folder
from persfl.runs.standing import DIARY

FAILURE = "failure.txt"
LINK_GONE = (
    "the SuperLink, which carries the messages, was stopped or started again. Everything is kept:"
    " when `persfl federation up` is there, go on with the same command and --resume."
)
_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")


def launch(
    federation: Federation,
    plan: RunPlan,
    *,
    resume: bool,
    show: Callable[[str, dict[str, Any]], None],
) -> int:
    """Run a plan over a federation that is up; 0 when it is finished, 3 when it stopped early
    and can go on.
    """
    out = Path(plan.out)
    plan = replace(plan, run=_run_name(out, plan, resume))
    if resume and (out / INDEX).is_file() and Folder.open(out).finished:
        show("done", {"text": f"{out} is finished already."})
        return 0
    check_up(federation)
    out.mkdir(parents=True, exist_ok=True)
    place = federation.coordinator / "plans"
    place.mkdir(exist_ok=True)
    told = place / f"{plan.run}.json"
    plan.write(told)
    progress = out / DIARY
    begin = progress.stat().st_size if progress.is_file() else 0
    mark = link_mark(federation)
    child = None if held(out) else start_run(federation, told)
    try:
        return _watch(progress, begin, child, show, lambda: same_link(federation, mark))
    except KeyboardInterrupt:
        _stop(out)
        show(
            "stopped",
            {
                "why": (
                    "stopped by hand; everything is kept. Go on with the same command and --resume."
                ),
                "kind": "hand",
            },
        )
        return 130
    finally:
        if child is not None:
            child.stop()


def follow(
    out: Path, show: Callable[[str, dict[str, Any]], None], *, once: bool
) -> int:
    """Show what a run has written down since it last began, and until it is over; with `once`
    only that. 0 when it is finished or still going on, 3 when it stopped early.
    """
    diary = out / DIARY
    begin = 0
    for event in _events(diary, 0):
        begin = event["_begin"] if event.get("event") == "begun" else begin
    if not once:
        return _watch(diary, begin, None, show, lambda: True)
    for event in _events(diary, begin):
        facts = {name: event[name] for name in event if name[:1] != "_"}
        with reading(diary):  # somebody else may have written it
            show(str(facts.pop("event", "")), facts)
    return 0


def _make_room(out: Path, resume: bool) -> None:
    """Stop where a run that begins would not be alone in its folder."""
    beside = (LOCK, *(name for name in _LEFT if _is_left(out / name)))
    if is_begun(out, besides=beside):
        if not resume:
            raise InputError(
                f"{str(out)!r} holds a run that was ended before anything of it was kept. Begin it"
                " again with --resume, or choose another --out."
            )
        if not held(out):
            remove_begun(out)
    elif out.is_dir() and any(path.name not in beside for path in out.iterdir()):
        raise InputError(f"{str(out)!r} is not empty. Choose another --out.")


_LEFT = {DIARY: b'{"event": "', FAILURE: b"Traceback "}


def _is_left(path: Path) -> bool:
    """Whether a file is what a run leaves that could not begin, and no person's own."""
    if not path.is_file():
        return False
    with open_regular(path, os.O_RDONLY | NO_WAIT, "rb") as file:
        said = file.readline(_LONGEST)
    return not said or said.startswith(_LEFT[path.name])


def _run_name(out: Path, plan: RunPlan, resume: bool) -> str:
    """A new name, or that of the run to go on with: devices know their models by it."""
    if not (out / INDEX).is_file():
        _make_room(out, resume)
        return secrets.token_hex(8)
    if not resume:
        raise InputError(
            f"{str(out)!r} holds a run already. Choose another --out, or go on with --resume."
        )
    before = plan.of_folder(Folder.open(out))
    run = str(before.get("run"))
    if not _RUN.fullmatch(run):  # it becomes the name of a file
        raise InputError(
            f"{str(out / 'spec.json')!r} does not name its run as persfl does."
        )
    return run


def held(out: Path) -> bool:
    """Whether a run is writing into this folder now."""
    return holder(out) is not None


_LONGEST = 2**26  # bytes of a line: names of all devices
_PATIENCE = 5.0  # seconds after which somebody must be writing where a run goes on


def _watch(
    progress: Path,
    begin: int,
    child: Any,
    show: Callable[[str, dict[str, Any]], None],
    linked: Callable[[], bool],
) -> int:
    """Show what happens until it is over; `linked` says whether the SuperLink of the beginning
    is still there.
    """
    pid = None
    position = begin
    patience = time.monotonic()
    while True:
        late = time.monotonic() - patience > _PATIENCE
        gone = pid is not None and not _alive(pid)
        # another process may have the number of one that is gone, and a diary may name none
        gone |= child is None and late and not held(progress.parent)
        over = child is not None and child.code is not None
        for event in _events(progress, position):
            position = event.pop("_end")
            event.pop("_begin")
            name = str(event.pop("event", ""))
            if name == "begun" and _is_process(event.get("pid")):
                pid = event["pid"]
            with reading(progress):
                show(name, event)
            if name == "done":
                return 0
            if name == "stopped":
                return 3
        if gone or (over and pid is None):
            why = (
                "the run was ended from outside"
                if gone
                else f"the run did not start (see {child.log})"
            )
            text = (
                f"{why}. Everything is kept: go on with the same command and --resume."
            )
            show("stopped", {"why": text if linked() else LINK_GONE, "kind": "gone"})
            return 3
        if pid is None and child is None and late:
            pid = _last_pid(progress)
        time.sleep(0.1)


def _events(progress: Path, position: int) -> list[dict[str, Any]]:
    """Whole lines that came after a position."""
    if not progress.is_file():
        return []
    found = []
    with open_regular(progress, os.O_RDONLY | NO_WAIT, "rb") as file:
        file.seek(position)
        # a line that somebody else wrote may have no end
        while (line := file.readline(_LONGEST)).endswith(b"\n"):
            place = {"_begin": position, "_end": position + len(line)}
            position += len(line)
            try:
                found.append(dict(json.loads(line)) | place)
            except (ValueError, TypeError, RecursionError):
                continue
    return found


def _last_pid(progress: Path) -> int | None:
    begun = [event for event in _events(progress, 0) if event.get("event") == "begun"]
    pids = [event["pid"] for event in begun if _is_process(event.get("pid"))]
    return pids[-1] if pids else None


def _is_process(pid: Any) -> bool:
    """Whether a number is one process: others stand for groups, or for all that a user runs."""
    return isinstance(pid, int) and not isinstance(pid, bool) and 1 < pid < 2**31


def _stop(out: Path) -> None:
    """End who is writing into a folder, by what the lock says: only its holder has written that,
    and a diary may name any process.
    """
    pid = holding_process(out)
    if pid is not None and _is_process(pid) and _alive(pid):
        os.kill(pid, signal.SIGTERM)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8")
            .rsplit(")", 1)[1]
            .split()[0]
            != "Z"
        )
    except (OSError, IndexError):
        return True
