"""The cache of compiled kernels: whatever is in it, the kernels work."""

import os
import subprocess
import sys

import pytest

from persfl import compiled

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


def test_a_damaged_cache_is_made_anew(tmp_path):
    assert used(tmp_path)[:2] == ("True", "0")
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


def test_a_cache_that_cannot_be_removed_is_not_used(tmp_path):
    class Kernels:
        forgotten = 0

        def forget_cache(self):
            self.forgotten += 1

    name = f"_kernels.f-1.py{sys.version_info.major}{sys.version_info.minor}"
    (tmp_path / f"{name}.nbi").mkdir()
    kernels = Kernels()
    compiled._remove(tmp_path, kernels)
    assert kernels.forgotten == 1
    (tmp_path / f"{name}.nbi").rmdir()
    (tmp_path / f"{name}.1.nbc").write_bytes(b"x")
    (tmp_path / "mine.nbc").write_bytes(b"x")
    compiled._seal(tmp_path)
    assert compiled._sound(tmp_path)
    (tmp_path / f"{name}.1.nbc").write_bytes(b"y")
    assert not compiled._sound(tmp_path)
    compiled._remove(tmp_path, kernels)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.nbc"]
    assert kernels.forgotten == 1
