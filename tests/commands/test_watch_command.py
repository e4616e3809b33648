"""Watching a run that another command writes: where it is, that it was stopped, what came out."""

import json
import subprocess
import sys
import threading
import time
import tracemalloc

import pytest
from fitted_runs import fit, rows

from persfl.cli import main
from persfl.folder_locks import Lock
from persfl.runs.run_folder import Folder
from persfl.runs.standing import DIARY, STANDING, RunStanding, standing_of

HERE = RunStanding("trial-1", 7, 20, 100.0, 103.0, 12, 9, 0.125, 4.0)


@pytest.fixture
def going(tmp_path):
    """A run that this process writes."""
    folder = Folder.create(tmp_path / "run", {"features": []})
    HERE.write(folder.path)
    yield folder
    folder.close()


def test_a_run_that_is_going_on_says_where_it_is(going, capsys):
    assert main(["watch", str(going.path), "--once"]) == 0
    said = capsys.readouterr().out
    assert "trial 2: round 7 of 20, median loss 0.125, 9 of 12 questions" in said
    assert main(["watch", str(going.path), "--once", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == {"event": "standing"} | HERE._asdict()


def test_a_run_that_was_stopped_says_how_to_go_on(going, capsys):
    going.close()
    assert main(["watch", str(going.path)]) == 3
    assert "the run was stopped. Go on with" in capsys.readouterr().err


def test_where_there_is_no_run(tmp_path, capsys):
    assert main(["watch", str(tmp_path / "nowhere")]) == 2
    assert "there is no run in" in capsys.readouterr().err


def test_whoever_was_stopped_before_a_run_began_is_not_waited_for(tmp_path, capsys):
    """It was looked for without end."""
    lock = Lock(tmp_path)
    lock.take()
    threading.Timer(0.2, lock.release).start()
    assert main(["watch", str(tmp_path)]) == 2
    assert "there is no run in" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        {"event": "round"},
        {"event": "stopped"},
        {"event": "devices", "ids": 3, "targets": [], "first": 0, "rounds": 1},
    ],
)
def test_a_diary_of_somebody_elses_is_a_sentence(going, capsys, line):
    (going.path / DIARY).write_text(json.dumps(line) + "\n")
    assert main(["watch", str(going.path), "--once"]) == 2
    assert f"{DIARY}' does not hold what persfl writes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"stage": "\x1b[2J"},
        {"round": -1},
        {"rounds": True},
        {"loss": "low"},
        {"at": float("inf")},
        {"more": 1},
        {"report": 2},
    ],
)
def test_nothing_that_the_file_says_is_trusted(going, capsys, change):
    told = json.dumps(HERE._asdict() | change).replace("Infinity", "1e999")
    (going.path / STANDING).write_text(told)
    assert main(["watch", str(going.path), "--once"]) == 2
    assert "does not hold what persfl writes there" in capsys.readouterr().err


def test_a_fit_leaves_nothing_to_watch_and_its_answer_is_said_again(tmp_path, capsys):
    assert fit(tmp_path, rows()) == 0
    run = tmp_path / "run"
    assert standing_of(run) is None
    verdict = capsys.readouterr().out.split("(method 'paper').")[1]
    assert main(["watch", str(run)]) == 0
    said = capsys.readouterr().out
    assert said.split("(method 'paper').")[1].startswith(verdict)
    assert f"persfl report {run}" in said


@pytest.mark.parametrize("at", [0.0, 1e300])
def test_a_run_that_is_over_is_not_waited_for_without_end(tmp_path, capsys, at):
    """A moment ahead of the clock was waited for until it came."""
    assert fit(tmp_path, rows()) == 0
    HERE._replace(at=at, stage="trial-x").write(tmp_path / "run")
    assert main(["watch", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "trial-x: round 7 of 20" in said
    assert "Its report" in said


def test_a_resume_of_what_is_over_leaves_nothing_to_watch(tmp_path, capsys):
    """Killed after its models were kept, and before its page was written."""
    assert fit(tmp_path, rows()) == 0
    HERE.write(tmp_path / "run")
    assert fit(tmp_path, rows(), "--resume") == 0
    assert "is finished already" in capsys.readouterr().out
    assert standing_of(tmp_path / "run") is None


def test_force_removes_what_a_killed_run_left_and_nobody_elses_file(tmp_path, capsys):
    assert fit(tmp_path, rows()) == 0
    HERE.write(tmp_path / "run")
    assert fit(tmp_path, rows(), "--force") == 0
    assert standing_of(tmp_path / "run") is None
    (tmp_path / "run" / STANDING).write_text("my own notes")
    assert fit(tmp_path, rows(), "--force") == 2
    assert "does not belong to the run" in capsys.readouterr().err


def test_a_federation_is_shown_from_its_last_beginning(tmp_path, capsys):
    run = Folder.create(tmp_path / "run", {"features": []})
    rounds = {"ids": ["a", "b"], "targets": ["a"], "first": 0, "rounds": 3}
    counts = {"asked": 2, "answered": 2, "unfit": 0, "far": 0, "refused": 0, "new": 0}
    round_ = counts | {"round": 1, "loss": 0.5, "seconds": 2.0, "own": 0.1}
    events = [
        {"event": "begun", "pid": 0},
        {"event": "stopped", "why": "long ago"},
        {"event": "begun", "pid": 0},
        {"event": "devices"} | rounds,
        {"event": "round"} | round_,
        {"event": "waiting", "text": "round 2: waiting for b (not seen yet)"},
    ]
    lines = "".join(json.dumps(event) + "\n" for event in events)
    (run.path / DIARY).write_text(lines + '{"event": "rou')
    assert main(["watch", str(run.path), "--once"]) == 0
    said = capsys.readouterr().out
    assert "long ago" not in said
    assert "median loss 0.5; 2.0 s, of these our own 0.10 s; about 4 s left" in said
    assert "waiting for b" in said


def test_a_line_without_end_is_not_read_to_its_end(tmp_path, capsys, monkeypatch):
    """A planted file may say that it has terabytes, and have none."""
    monkeypatch.setattr("persfl.federation.launch._LONGEST", 1_000)
    run = Folder.create(tmp_path / "run", {"features": []})
    with (run.path / DIARY).open("wb") as file:
        file.write(b'{"event": "begun", "pid": 0}\n')
        file.truncate(2**32)
    tracemalloc.start()
    assert main(["watch", str(run.path), "--once"]) == 0
    assert tracemalloc.get_traced_memory()[1] < 2**26
    tracemalloc.stop()


def test_no_diary_is_read_through_a_link(tmp_path, capsys):
    run = Folder.create(tmp_path / "run", {"features": []})
    (tmp_path / "mine").write_text('{"event": "note", "text": "mine"}\n')
    (run.path / DIARY).symlink_to(tmp_path / "mine")
    assert main(["watch", str(run.path), "--once"]) == 2
    told = capsys.readouterr()
    assert "is a link" in told.err
    assert "mine" not in told.out


@pytest.mark.slow
def test_a_real_fit_is_watched_to_its_end(tmp_path):
    """Two processes: there is no other way to see that one reads what the other writes."""
    table, run = tmp_path / "rows.csv", tmp_path / "run"
    rows(each=12).to_csv(table, index=False)
    persfl = [sys.executable, "-m", "persfl"]
    words = ["--device", "who", "--label", "y", "--method", "paper"]
    many = ["--rounds", "2500", "--trials", "1", "--out", str(run)]
    fitting = subprocess.Popen([*persfl, "fit", str(table), *words, *many])
    try:
        while not (run / STANDING).is_file() and fitting.poll() is None:
            time.sleep(0.05)
        watching = subprocess.run(
            [*persfl, "watch", str(run)], capture_output=True, text=True, timeout=120
        )
    finally:
        fitting.wait(timeout=120)
    assert watching.returncode == 0, watching.stderr
    assert " of 2500, median loss" in watching.stdout
    assert f"Open {run / 'report.html'}." in watching.stdout
