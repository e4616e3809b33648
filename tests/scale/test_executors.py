"""Every engine starts workers, asks them, and replaces those that die. To try another engine, add a
fixture to conftest.py that makes it with two workers, and its name to the parameters of `engine`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from engine_checks import AlwaysDies, DiesOnce, Echo, Refuses

from persfl.scale.crew import Crew, WorkerLost
from persfl.scale.dask_workers import DaskWorkers
from persfl.scale.executor import InThisProcess
from persfl.scale.local_processes import LocalProcesses

# processes that other packages leave to their end
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
# Ray's lowest version is the one of constraints.txt: tools/minimum tries Dask's alone.
SLOW = [
    pytest.param("dask", marks=(pytest.mark.slow, pytest.mark.smoke)),
    pytest.param("ray", marks=pytest.mark.slow),
]


@pytest.fixture(params=["processes", *SLOW])
def engine(request):
    made = LocalProcesses(2)
    if request.param != "processes":
        made = request.getfixturevalue(f"{request.param}_of_tests")()
    yield made
    made.stop()


def test_state_stays_at_the_worker_that_has_the_shard(engine):
    with Crew(engine, Echo()) as crew:
        first = dict(crew.ask({shard: f"look {shard}" for shard in range(5)}))
        assert {shard: said for shard, (said, _) in first.items()} == {
            shard: f"look {shard}" for shard in range(5)
        }
        again = dict(crew.ask({0: "more"}))
    assert again[0] == ("more", 4)  # worker 0 had shards 0, 2 and 4


def test_a_worker_that_is_killed_is_replaced(engine, tmp_path):
    with Crew(engine, DiesOnce(tmp_path / "died", 3)) as crew:
        found = dict(crew.ask({shard: shard for shard in range(6)}))
    assert found == {shard: 10 * shard for shard in range(6)}
    assert (tmp_path / "died").exists()


def test_workers_that_keep_dying_end_the_run_in_a_sentence(engine):
    with Crew(engine, AlwaysDies()) as crew, pytest.raises(WorkerLost, match="3 times"):
        dict(crew.ask({0: 0}))


def test_what_a_worker_raises_is_raised_here(engine):
    with Crew(engine, Refuses()) as crew, pytest.raises(ValueError, match="not 7"):
        dict(crew.ask({0: 7}))


def test_in_this_process_nothing_is_sent():
    with Crew(InThisProcess(), Echo()) as crew:
        assert dict(crew.ask({2: "a", 5: "b"})) == {2: ("a", 1), 5: ("b", 2)}


STRANGER = """
import sys
kind, address = sys.argv[1:]
try:
    if kind == "dask":
        from distributed import Client, Security
        way = Security.temporary() if address.startswith("tls") else None
        Client(address, security=way, timeout=5).run_on_scheduler(print, "ran")
    else:
        import ray
        ray.init(address, log_to_driver=False)
except Exception:
    print("refused")
else:
    print("in")
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_nobody_else_on_the_machine_may_ask_what_we_begin(kind, request):
    """Whoever may ask Dask or Ray has them run anything, and both listen on ports."""
    if kind == "dask":
        pytest.importorskip("distributed")
        made = DaskWorkers("", 1)
        address = made._cluster.scheduler_address
    else:
        made = request.getfixturevalue("ray_of_tests")()
        address = made._ray.get_runtime_context().gcs_address
    theirs = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    words = [sys.executable, "-c", STRANGER, kind, address]
    asked = subprocess.run(words, env=theirs, capture_output=True, text=True)
    made.stop()
    assert asked.stdout == "refused\n"


BEGIN = """
from pathlib import Path
from persfl.scale.engines import engine_of

if __name__ == "__main__":
    engine = engine_of("{kind}", 1)
    engine.start(0, Path())  # no job, and persfl must be imported to see that
    try:
        print(list(engine.ask([(0, 0)])))
    except Exception as error:
        print(error)
    engine.stop()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_workers_read_no_modules_where_one_stands(kind, tmp_path):
    """Ray lets its workers read modules there before all others."""
    pytest.importorskip({"dask": "distributed"}.get(kind, kind))
    place = tmp_path / "theirs"
    place.mkdir()
    for name in ("persfl", "pyarrow", "scipy"):
        (place / f"{name}.py").write_text(f"open({str(place / 'ran')!r}, 'w')")
    program = tmp_path / "begin.py"
    program.write_text(BEGIN.format(kind=kind))
    words = [sys.executable, str(program)]
    said = subprocess.run(words, cwd=place, capture_output=True, text=True)
    assert "has no attribute 'begin'" in said.stdout, said.stderr
    assert not (place / "ran").exists()


DASK_FOLDERS = """
import os, sys, tempfile
from persfl.scale.dask_workers import DaskWorkers
if __name__ == "__main__":
    engine = DaskWorkers("", 1)
    print([name for name in os.listdir(tempfile.gettempdir()) if "dask-scratch" in name])
    engine.stop()
    print([place for place in sys.path if "dask-scratch" in place])
"""


def test_dask_keeps_modules_in_a_folder_of_its_own(tmp_path):
    """Its scheduler put a folder of one that is everybody's before all others."""
    pytest.importorskip("distributed")
    program = tmp_path / "begin.py"
    program.write_text(DASK_FOLDERS)
    shared = tmp_path / "shared"
    shared.mkdir()
    told = subprocess.run(
        [sys.executable, str(program)],
        env=os.environ | {"TMPDIR": str(shared)},
        capture_output=True,
        text=True,
    )
    assert told.stdout.splitlines() == ["[]", "[]"], told.stderr


@pytest.mark.slow
def test_ray_is_begun_anew_whatever_stands_in_a_folder_of_all(
    monkeypatch, ray_of_tests
):
    """Ray joins one that others have named in /tmp, and unpickles what it answers."""
    asked = {}
    made = ray_of_tests()
    monkeypatch.setattr(made._ray, "init", lambda *a, **k: asked.update(k, where=a))
    made._own(1, {})
    made._begun.close()
    assert asked["where"] == ("local",)
    assert not Path(asked["_temp_dir"]).parent.exists()
