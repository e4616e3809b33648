"""What a federation stands on: Flower's insides, processes, and the words for what goes wrong
there.
"""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("flwr")

from persfl.errors import InputError
from persfl.federation import flower_api, launch, node, superlink
from persfl.federation.federation_folder import init
from persfl.federation.processes import Process, quiet, until


@pytest.fixture(scope="module")
def fed(tmp_path_factory):
    return init(
        tmp_path_factory.mktemp("words") / "fed",
        ["ann", "bob"],
        port=19447,
        inner=19448,
    )


def test_this_flower_has_all_insides_that_a_federation_uses():
    """The canary: it fails in words when a Flower lacks one of the names that nobody has
    promised.
    """
    assert flower_api.lacking() == []


def test_an_inside_that_is_gone_is_named(monkeypatch):
    gone = {
        "Gone": ("flwr.supercore.nowhere", "Gone"),
        "Less": ("flwr.supercore.constant", "Less"),
    }
    monkeypatch.setattr(flower_api, "_INSIDES", gone)
    monkeypatch.setattr(
        flower_api, "_TEXTS", {"no such text": "flwr.supernode.start_client_internal"}
    )
    said = flower_api.lacking()
    assert len(said) == 3
    assert (
        "lacks flwr.supercore.nowhere.Gone, which a federation needs. Install flwr=="
        in said[0]
    )
    with pytest.raises(InputError, match="lacks flwr.supercore.constant.Less"):
        _ = flower_api.Less
    with pytest.raises(AttributeError):
        _ = flower_api.Other


def test_flowers_insides_are_touched_in_one_place():
    from pathlib import Path

    root = Path(flower_api.__file__).parents[1]
    public = ("flwr.app", "flwr.clientapp", "flwr.serverapp")
    for path in root.rglob("*.py"):
        if path.name == "flower_api.py":
            continue
        for line in path.read_text().splitlines():
            words = line.split()
            if (
                len(words) > 1
                and words[0] in ("from", "import")
                and words[1].startswith("flwr")
            ):
                assert words[1] in public, f"{path}: {line}"


def test_locks_without_fcntl(tmp_path):
    """Where there is no fcntl (Windows) modules are imported all the same, and a lock goes
    through msvcrt.
    """
    code = """if True:
        import sys, types
        from pathlib import Path
        sys.modules["fcntl"] = None
        from persfl.federation.launch import held
        from persfl.folder_locks import Lock
        calls = []
        locking = lambda *asked: calls.append(asked[1:])
        sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=locking)
        assert not held(Path("."))
        Lock(Path(".")).take()
        print(calls)
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "[(2, 1)]", done.stderr


# A child that outlives a killed parent keeps ports and answers in its name.
@pytest.mark.skipif(sys.platform != "linux", reason="parents' deaths are told on Linux")
def test_a_child_ends_with_its_parent_however_that_ends(tmp_path):
    code = (
        "import sys, time, threading\n"
        "from pathlib import Path\n"
        "from persfl.federation.processes import Process, quiet\n"
        "where = Path(sys.argv[1])\n"
        "words = [sys.executable, '-c', 'import time; time.sleep(100)']\n"
        "child = Process(words, env=quiet(where), log=where / 'log')\n"
        "(where / 'pid.part').write_text(str(child.pid))\n"
        "(where / 'pid.part').rename(where / 'pid')\n"
        "time.sleep(100)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    try:
        assert until(lambda: (tmp_path / "pid").is_file(), 60)
        pid = int((tmp_path / "pid").read_text())
        assert alive(pid)
    finally:
        parent.kill()
        parent.wait()
    assert until(lambda: not alive(pid), 30)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_process_is_a_group_and_a_missing_command_is_said(tmp_path):
    child = Process(
        [sys.executable, "-c", "import time; time.sleep(100)"],
        env=quiet(tmp_path),
        log=tmp_path / "a",
    )
    assert os.getpgid(child.pid) == child.pid
    child.stop()
    assert child.code == -signal.SIGTERM
    lost = Process([str(tmp_path / "nowhere")], env=quiet(tmp_path), log=tmp_path / "b")
    assert lost.wait(60) == 1
    assert "No such file" in (tmp_path / "b").read_text()


# Words for what goes wrong

SSL = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {} (_ssl.c:1006)"


@pytest.mark.parametrize(
    ("log", "says", "hopeless"),
    [
        (
            SSL.format("unable to get local issuer certificate"),
            "is not the federation of this folder",
            True,
        ),
        (SSL.format("certificate has expired"), "is not valid today", True),
        (
            SSL.format("IP address mismatch, certificate is not valid for '10.0.0.1'."),
            "for another address",
            True,
        ),
        (
            "[code: 2004] Failed to activate SuperNode.",
            "another process has its key",
            False,
        ),
        (
            "[code: 0] this key is not in the federation",
            "is not in the coordinator's federation.toml",
            False,
        ),
        ("[code: 0] ... set the clock of the node", "clocks", False),
        ("something else", "supernode.log", False),
    ],
)
def test_why_a_node_is_not_let_in(fed, log, says, hopeless):
    why, over = node.refusal(log, fed.path / "ann")
    assert says in why
    assert over is hopeless


def test_a_wrong_certificate_is_said_once_and_ends_the_node(fed, monkeypatch):
    folder = fed.path / "ann"

    def connected(*_):
        with (folder / "supernode.log").open("a") as file:
            file.write(SSL.format("unable to get local issuer certificate") + "\n")
        return False

    said = []
    monkeypatch.setattr(node, "_connected", connected)
    assert node.run_node(folder, say=said.append, going=lambda: True, app=object()) == 1
    assert len(said) == 2
    assert "is not the federation of this folder" in said[0]


def test_the_same_refusal_is_said_once(fed, monkeypatch):
    def connected(*_):
        with (fed.path / "bob" / "supernode.log").open("a") as file:
            file.write("Failed to activate SuperNode\n")
        return False

    said, left = [], iter([True] * 12 + [False] * 100)
    monkeypatch.setattr(node, "_connected", connected)
    monkeypatch.setattr(node, "until", lambda *_: time.sleep(0))
    assert (
        node.run_node(
            fed.path / "bob", say=said.append, going=lambda: next(left), app=object()
        )
        == 0
    )
    assert len(said) == 1


@pytest.mark.parametrize(
    ("linked", "says"),
    [(False, "the SuperLink, which carries"), (True, "ended from outside")],
)
def test_a_run_that_is_gone_is_explained(linked, says, tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    progress = tmp_path / "progress.jsonl"
    progress.write_text(json.dumps({"event": "begun", "pid": gone.pid}) + "\n")
    said = []
    assert (
        launch._watch(
            progress, 0, None, lambda *facts: said.append(facts), lambda: linked
        )
        == 3
    )
    name, facts = said[-1]
    assert name == "stopped"
    assert says in facts["why"]
    assert "--resume" in facts["why"]


@pytest.mark.parametrize("named", [True, False])
def test_nobody_is_waited_for_where_nobody_writes(named, tmp_path, monkeypatch):
    """The number of a process that is gone may be another's, and a diary may name none."""
    pid = os.getpid() if named else "x"
    monkeypatch.setattr(launch, "_PATIENCE", 0.05)
    progress = tmp_path / "progress.jsonl"
    progress.write_text(json.dumps({"event": "begun", "pid": pid}) + "\n")
    said = []
    code = launch._watch(progress, 0, None, lambda *facts: said.append(facts), bool)
    assert code == 3
    assert said[-1][0] == "stopped"


def test_another_superlink_is_not_the_one_a_run_began_with(fed, monkeypatch):
    monkeypatch.setattr(superlink, "listening", lambda port: True)
    mark = fed.coordinator / superlink.MARK
    mark.write_text("17\n")
    before = superlink.link_mark(fed)
    assert superlink.same_link(fed, before)
    mark.write_text("18\n")
    assert not superlink.same_link(fed, before)
