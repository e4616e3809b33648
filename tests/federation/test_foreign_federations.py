"""Federations and nodes' folders that somebody else made, and folders to stand in."""

import sqlite3
import struct
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from persfl.cli import main
from persfl.errors import InputError
from persfl.federation.federation_folder import Federation, read_node
from persfl.federation.ledger import Ledger
from persfl.federation.ledger_mark import LedgerMark
from persfl.federation.node_folder import device_of, use_table
from persfl.federation.processes import Process, quiet
from persfl.federation.superlink import app_folder, start_run, superlink

PLANT = "from pathlib import Path; Path({!r}).write_text('ran')\n"


def planted(folder, name, mark):
    """A module that says when it was read."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(PLANT.format(str(mark)))
    return folder


@pytest.fixture
def federation(tmp_path):
    made = Federation(tmp_path / "fed", "127.0.0.1", 1, 2, {})
    made.coordinator.mkdir(parents=True)
    return made


@pytest.fixture
def started(monkeypatch):
    """What would be started; nothing is."""
    found = []
    for module in ("superlink", "node"):
        monkeypatch.setattr(
            f"persfl.federation.{module}.Process",
            lambda words, **how: found.append(words),
        )
    return found


@pytest.fixture
def node(tmp_path):
    folder = tmp_path / "node"
    folder.mkdir()
    (folder / "node.toml").write_text('device = "ann"\nsuperlink = "127.0.0.1:1"\n')
    rows = pd.DataFrame({"x": np.arange(9.0), "y": np.arange(9.0)})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    return folder


def test_a_started_process_reads_no_modules_where_it_stands(tmp_path):
    mark = tmp_path / "mark"
    here = planted(tmp_path / "here", "persfl", mark)
    words = [sys.executable, "-m", "persfl.terminal"]
    child = Process(words, env=quiet(tmp_path), log=tmp_path / "log", cwd=here)
    assert child.wait(30) == 0, (tmp_path / "log").read_text()
    assert not mark.exists()


def test_a_command_reads_no_modules_where_it_stands(tmp_path, monkeypatch):
    mark = tmp_path / "mark"
    monkeypatch.chdir(planted(tmp_path / "here", "joblib", mark))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    child = [sys.executable, "-m", "joblib"]  # as joblib starts its own

    def started(_):
        return 0 * subprocess.run(child, capture_output=True, check=False).returncode

    monkeypatch.setattr("persfl.commands.run_output.write_report_again", started)
    assert main(["report", "run"]) == 0
    assert not mark.exists()


def test_flower_runs_nothing_that_lay_in_a_federation(tmp_path, federation, started):
    app = planted(federation.coordinator / "app", "persfl", tmp_path / "mark")
    apps = planted(
        federation.coordinator / "flwr" / "apps" / "persfl", "persfl", "mark"
    )
    start_run(federation, tmp_path / "plan.json")
    superlink(federation)
    assert {path.name for path in app.iterdir()} == {"pyproject.toml", "README.md"}
    assert not apps.exists()
    assert len(started) == 2
    app_folder(app)  # a second time, over its own


@pytest.mark.parametrize(
    "name", ["run.log", "superlink.log", "flwr/config.toml", "app"]
)
def test_a_coordinator_writes_through_no_link(tmp_path, federation, started, name):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (federation.coordinator / "flwr").mkdir()
    (federation.coordinator / name).symlink_to(mine)
    for start in (superlink, lambda fed: start_run(fed, tmp_path / "plan.json")):
        with pytest.raises(InputError, match="is a link"):
            start(federation)
    assert not started
    assert mine.read_text() == "mine"


def test_a_coordinators_folder_is_no_link(tmp_path, started):
    (tmp_path / "mine").mkdir()
    (tmp_path / "fed").mkdir()
    (tmp_path / "fed" / "coordinator").symlink_to(tmp_path / "mine")
    with pytest.raises(InputError, match="is a link"):
        superlink(Federation(tmp_path / "fed", "127.0.0.1", 1, 2, {}))
    assert not list((tmp_path / "mine").iterdir())


@pytest.mark.parametrize(
    "name", ["supernode.log", "errors.log", "ledger.sqlite", "models", "flwr/x"]
)
def test_a_node_writes_through_no_link(tmp_path, node, name):
    (tmp_path / "mine").write_text("mine")
    (node / "flwr").mkdir()
    (node / name).symlink_to(tmp_path / "mine")
    with pytest.raises(InputError, match="is a link"):
        read_node(node)


def test_a_log_is_written_through_no_link(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "log").symlink_to(tmp_path / "mine")
    with pytest.raises(InputError, match="is a link"):
        Process([sys.executable, "-V"], env=quiet(tmp_path), log=tmp_path / "log")
    assert (tmp_path / "mine").read_text() == "mine"


USE = {"label": "y", "drop": [], "weight": None}


def planted_past(node, tmp_path, monkeypatch):
    """A folder that was used on another machine."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
        use_table(node, tmp_path / "rows.csv", **USE)
        device_of(node).ledger.close()


def test_a_new_node_has_no_past(tmp_path, node, monkeypatch):
    """Also where the table is planted that makes the ledger look used."""
    planted_past(node, tmp_path, monkeypatch)
    for start in (
        lambda: use_table(node, tmp_path / "rows.csv", **USE),
        lambda: device_of(node),
    ):
        with pytest.raises(InputError, match="was not begun on this machine"):
            start()
    (node / "ledger.sqlite").unlink()
    with pytest.raises(InputError, match="models' was not begun on this machine"):
        use_table(node, tmp_path / "rows.csv", **USE)
    (node / "models").rmdir()
    with pytest.raises(InputError, match="does not know its table yet"):
        device_of(node)  # though a planted one says which
    use_table(node, tmp_path / "rows.csv", **USE)
    device_of(node).ledger.close()
    use_table(node, tmp_path / "rows.csv", **USE)  # its own past
    device_of(node).ledger.close()


def test_an_own_node_may_move_to_another_machine(tmp_path, node, monkeypatch):
    planted_past(node, tmp_path, monkeypatch)
    use_table(node, tmp_path / "rows.csv", **USE, moved=True)
    use_table(node, tmp_path / "rows.csv", **USE)
    device = device_of(node)
    device.ledger.mark.remember("d1")
    device.ledger.close()
    use_table(node, tmp_path / "rows.csv", **USE, moved=True)  # a second time
    assert device_of(node).ledger.protected.outdated  # what was known is not forgotten


def test_a_machine_without_a_place_to_remember_starts_its_nodes(
    tmp_path, node, monkeypatch
):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file" / "state"))
    for _ in range(2):
        use_table(node, tmp_path / "rows.csv", **USE)
        device_of(node).ledger.close()


def test_marks_never_lie_where_one_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", "state")  # not absolute: to be ignored
    LedgerMark(7).remember()
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_the_first_counts_of_a_ledger_are_its_own(tmp_path, node):
    """A file that is there is none that begins here, however empty its tables are."""
    base = sqlite3.connect(node / "ledger.sqlite")
    base.execute("CREATE TABLE secret (one INTEGER PRIMARY KEY, seed INTEGER NOT NULL)")
    base.execute("INSERT INTO secret VALUES (1, 7)")
    base.commit()
    base.close()
    with pytest.raises(InputError, match="was not begun on this machine"):
        use_table(node, tmp_path / "rows.csv", **USE)


def test_a_ledger_with_statements_of_others_is_refused(tmp_path):
    Ledger(tmp_path / "ledger.sqlite").close()
    base = sqlite3.connect(tmp_path / "ledger.sqlite")
    base.execute(
        "CREATE TRIGGER t AFTER INSERT ON of_target BEGIN DELETE FROM of_target; END"
    )
    base.close()
    with pytest.raises(InputError, match="statements of somebody else's"):
        Ledger(tmp_path / "ledger.sqlite")


@pytest.mark.parametrize(
    "columns",
    [
        "one INTEGER PRIMARY KEY, seed INTEGER AS (length(hex(zeroblob(9))))",
        "one INTEGER PRIMARY KEY, seed INTEGER, CHECK (one < length(hex(zeroblob(9))))",
    ],
)
def test_no_column_of_a_ledger_is_computed(tmp_path, columns):
    """A few bytes would fill the memory whenever it is read, or written."""
    Ledger(tmp_path / "ledger.sqlite").close()
    base = sqlite3.connect(tmp_path / "ledger.sqlite")
    base.execute("DROP TABLE secret")
    base.execute(f"CREATE TABLE secret ({columns})")
    base.execute("INSERT INTO secret (one) VALUES (1)")
    base.commit()
    base.close()
    with pytest.raises(InputError, match="statements of somebody else's"):
        Ledger(tmp_path / "ledger.sqlite")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE secret SET seed = 'many'",
        "INSERT INTO others VALUES ('a', 'b', 'ok', 1, 2, 3, 'never', 1e300)",
        "INSERT INTO others VALUES ('a', 'b', 'ok', 1, 2, 3, 0, 1e300)",
    ],
)
def test_a_ledger_with_values_of_other_kinds_is_a_sentence(
    tmp_path, node, capsys, change
):
    Ledger(node / "ledger.sqlite").close()
    base = sqlite3.connect(node / "ledger.sqlite")
    base.execute(change)
    base.commit()
    base.close()
    assert main(["ledger", str(node)]) == 2
    assert "does not hold what persfl writes" in capsys.readouterr().err


def test_a_planted_journal_removes_no_file(tmp_path, node, capsys):
    """SQLite would take the file that it names for the journal of several files, and remove it."""
    (tmp_path / "mine").write_text("mine")
    Ledger(node / "ledger.sqlite").close()
    base = (node / "ledger.sqlite").read_bytes()
    page = struct.unpack(">H", base[16:18])[0]
    magic = bytes.fromhex("d9d505f920a163d7")
    head = magic + struct.pack(">5I", 0, 0, len(base) // page, 512, page)
    name = str(tmp_path / "mine").encode()
    end = struct.pack(">2I", len(name), sum(name)) + magic
    lock_page = struct.pack(">I", 2**30 // page + 1)
    journal = node / "ledger.sqlite-journal"
    journal.write_bytes(head.ljust(512, b"\0") + lock_page + name + end)
    assert main(["ledger", str(node)]) == 2
    assert "names a file of its maker's choice" in capsys.readouterr().err
    with pytest.raises(InputError, match="Remove it"):
        use_table(node, tmp_path / "rows.csv", **USE)
    assert (tmp_path / "mine").read_text() == "mine"
    journal.write_bytes(head.ljust(512, b"\0"))  # as a killed node leaves one
    Ledger(node / "ledger.sqlite").close()


def test_a_ledger_of_another_machine_says_so(tmp_path, node, capsys, monkeypatch):
    planted_past(node, tmp_path, monkeypatch)
    assert main(["ledger", str(node)]) == 0
    assert "not begun on this machine" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["device", "superlink"])
def test_a_node_shows_nothing_that_a_terminal_obeys(tmp_path, node, capsys, name):
    """What will leave the machine could be hidden behind such a name."""
    mine = node / "node.toml"
    old = {"device": "ann", "superlink": "127.0.0.1:1"}[name]
    mine.write_text(mine.read_text().replace(old, f"{old}\\nNothing.\\u001b[8m"))
    assert main(["ledger", str(node)]) == 2
    assert f"{name} of" in capsys.readouterr().err


def test_what_a_node_says_of_its_policy_holds_no_commands(
    tmp_path, node, capsys, monkeypatch
):
    monkeypatch.setattr("persfl.commands.federation.leak_lines", lambda *_: "")
    mine = node / "node.toml"
    policy = '[policy]\nnetworks = ["mylab.nets:small\\u001b[8m"]\n'
    mine.write_text(mine.read_text() + policy)
    words = ["--data", str(tmp_path / "rows.csv"), "--label", "y", "--check"]
    assert main(["node", "--config", str(node), *words]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("table", ["entries", "others", "of_run", "secret"])
def test_a_ledger_that_lacks_a_table_does_not_begin_anew(tmp_path, table):
    path = tmp_path / "ledger.sqlite"
    Ledger(path).close()
    base = sqlite3.connect(path)
    base.execute(f"DROP TABLE {table}")
    base.close()
    with pytest.raises(InputError, match=f"lacks what persfl keeps in {table!r}"):
        Ledger(path)


def test_a_folder_in_place_of_a_ledger_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match="could not be opened"):
        Ledger(tmp_path)


@pytest.mark.parametrize("value", ["9" * 5_000, "[" * 2_000 + "]" * 2_000, "1e400"])
def test_values_that_no_setting_has_are_a_sentence(tmp_path, node, capsys, value):
    mine = node / "node.toml"
    mine.write_text(f"{mine.read_text()}rows = {value}\n[policy]\nrows = {value}\n")
    words = ["--data", str(tmp_path / "rows.csv"), "--label", "y", "--check"]
    assert main(["node", "--config", str(node), *words]) == 2
    assert "defect" not in capsys.readouterr().err
    federation = f'host = "a"\nport = {value}\ninner_port = 2\nmember = []\n'
    (tmp_path / "federation.toml").write_text(federation)
    assert main(["federation", "up", str(tmp_path)]) == 2
    assert "defect" not in capsys.readouterr().err
