"""The cache of compiled kernels: whatever is in it, the kernels work."""

import os
import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from persfl import compiled, kernel_cache
from persfl.errors import elsewhere
from persfl.fleets import torch_graphs

pytest.importorskip("numba")
CODE = """
import logging, numpy as np
logging.basicConfig()
from persfl import _kernels, compiled
_kernels._signatures = {k: v for k, v in _kernels._signatures.items() if k is _kernels._sound_peers}
fast = compiled.kernels()
hits = sum(_kernels._sound_peers.stats.cache_hits.values())
print(fast.sound_peers(np.array([[1]]), np.array([0]), 2), hits)
"""


def used(cache):
    """What a kernel says in a new process, whether it was loaded, and what was logged."""
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return (*done.stdout.split(), done.stderr)


def test_every_kernel_is_kept_for_later_processes():
    assert compiled.kernels() is not None  # from now on at the latest
    code = """
import logging
logging.basicConfig()
from persfl import _kernels, compiled
compiled.kernels()
print([k.__name__ for k in _kernels._signatures if not k.stats.cache_hits])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_damaged_cache_is_made_anew(tmp_path):
    said, loaded, log = used(tmp_path)
    assert (said, loaded) == ("True", "0")
    assert "compiles its kernels once" in log
    index, code = (next(tmp_path.rglob(f"*.{ending}")) for ending in ("nbi", "nbc"))
    body = bytearray(code.read_bytes())
    body[len(body) // 2] ^= 255  # in the machine code: running it could end the process
    code.write_bytes(body)
    assert used(tmp_path)[:2] == ("True", "0")
    next(tmp_path.rglob("_kernels.*.json")).unlink()  # as an earlier version left it
    index.write_bytes(b"")
    said, loaded, log = used(tmp_path)
    assert (said, loaded) == ("True", "0")
    assert "damaged ones (EOFError)" in log
    assert used(tmp_path) == ("True", "1", "")


class Marker:
    """Unpickled, it makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no such modes")
def test_a_cache_that_others_may_write_to_is_not_used(tmp_path):
    marker, cache = tmp_path / "marker", tmp_path / "cache"
    assert used(cache)[:2] == ("True", "0")
    index = next(cache.rglob("*.nbi"))
    index.write_bytes(pickle.dumps(Marker(marker)))
    # whoever may write there can do that, too
    next(cache.rglob("_kernels.*.json")).unlink()
    cache.chmod(0o777)
    said, _, log = used(cache)
    assert said == "True"
    assert "others may write to" in log
    assert not marker.exists()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no such modes")
def test_what_is_safe_to_load_code_from(tmp_path):
    here = tmp_path / "a" / "b"
    here.mkdir(parents=True)
    assert kernel_cache._ours(here)
    assert kernel_cache._ours(Path(compiled.__file__).parent / "__pycache__")
    here.parent.chmod(0o1777)  # as /tmp
    assert kernel_cache._ours(here)
    here.chmod(0o1777)  # others may put files of theirs there
    assert not kernel_cache._ours(here)
    here.chmod(0o755)
    kept = here / f"_kernels.f-1.{kernel_cache._VERSION}.nbi"
    kept.touch()
    assert kernel_cache._ours(here)
    kept.chmod(0o666)
    assert not kernel_cache._ours(here)
    kept.chmod(0o644)
    if os.geteuid() == 0:
        os.chown(kept, 12345, 12345)
        assert not kernel_cache._ours(here)
    kept.unlink()
    (here / kernel_cache._DIGESTS).symlink_to(tmp_path / "elsewhere")
    assert not kernel_cache._ours(here)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no such modes")
def test_torch_runs_nothing_that_others_may_have_compiled(tmp_path, monkeypatch):
    home, planted = tmp_path / "home", tmp_path / "planted"
    home.mkdir()
    planted.mkdir()
    planted.chmod(0o777)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = home / ".cache" / "persfl" / "torch"
    for told, used in ((planted, mine), ("", mine), (mine / "other", mine / "other")):
        monkeypatch.setenv(torch_graphs.TORCH_CACHE, str(told))
        torch_graphs.keep_apart()
        assert os.environ[torch_graphs.TORCH_CACHE] == str(used)
    home.chmod(0o777)
    torch_graphs.keep_apart()
    assert Path(os.environ[torch_graphs.TORCH_CACHE]).parent == tmp_path
    assert kernel_cache.closed_to_others(Path(os.environ[torch_graphs.TORCH_CACHE]))


def test_nothing_is_compiled_by_torch_but_apart(monkeypatch):
    torch = pytest.importorskip("torch")
    made = []
    monkeypatch.setattr(torch_graphs, "keep_apart", lambda: made.append("apart"))
    monkeypatch.setattr(torch, "compile", lambda *_, **how: made.append("compiled"))
    torch_graphs.by_torch(abs)
    assert made == ["apart", "compiled"]


def test_a_cache_that_cannot_be_removed_is_not_used(tmp_path):
    class Kernels:
        forgotten = 0

        def forget_cache(self):
            self.forgotten += 1

    name = f"_kernels.f-1.py{sys.version_info.major}{sys.version_info.minor}"
    (tmp_path / f"{name}.nbi").mkdir()
    kernels = Kernels()
    kernel_cache._remove(tmp_path, kernels)
    assert kernels.forgotten == 1
    (tmp_path / f"{name}.nbi").rmdir()
    (tmp_path / f"{name}.1.nbc").write_bytes(b"x")
    (tmp_path / "mine.nbc").write_bytes(b"x")
    kernel_cache._seal(tmp_path)
    assert kernel_cache._sound(tmp_path)
    (tmp_path / f"{name}.1.nbc").write_bytes(b"y")
    assert not kernel_cache._sound(tmp_path)
    kernel_cache._remove(tmp_path, kernels)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.nbc"]
    assert kernels.forgotten == 1


ASKED = """
from persfl.errors import need
from persfl.kernel_cache import _imported
kernels = _imported()
from numba.core import config
config.reload_config()
print(config.CACHE_DIR, kernels.place(), config.OPT)
print(need("matplotlib", extra="report", why="this").rcParams["font.size"])
"""


def test_no_settings_are_read_where_one_stands(tmp_path):
    """A cache of numba that somebody else names is code, which would run."""
    for module in ("yaml", "matplotlib"):
        pytest.importorskip(module)
    (tmp_path / ".numba_config.yaml").write_text("cache_dir: planted\nopt: 0\n")
    (tmp_path / "matplotlibrc").write_text("font.size : 41\n")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    words = [sys.executable, "-c", ASKED]
    told = subprocess.run(
        words, cwd=tmp_path, env=kept, capture_output=True, text=True, check=True
    ).stdout
    assert "planted" not in told
    assert "3)\n" in told
    assert "41" not in told
    assert not (tmp_path / "planted").exists()


def test_torch_keeps_no_compiled_headers_in_a_folder_of_all(tmp_path, monkeypatch):
    """It keeps them in /tmp whatever folder it is given, and runs what lies there."""
    monkeypatch.setenv(torch_graphs.TORCH_CACHE, str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "1")
    config = SimpleNamespace(cpp_cache_precompile_headers=True)
    monkeypatch.setitem(sys.modules, "torch._inductor.config", config)
    torch_graphs.keep_apart()
    assert os.environ["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] == "0"
    assert not config.cpp_cache_precompile_headers


def test_two_threads_that_stand_elsewhere_come_back(tmp_path, monkeypatch):
    """Of two the second took the root for the folder to go back to, for good."""
    monkeypatch.chdir(tmp_path)

    def away(_):
        with elsewhere():
            time.sleep(0.05)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(away, range(4)))
    assert Path.cwd() == tmp_path
