"""Flower's own processes, quiet, offline, and gone when we are gone."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from persfl.errors import InputError
from persfl.files import appending

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "PYTHONUNBUFFERED": "1",
    # Whoever stands in a folder of somebody else's must not run the modules that lie there.
    "PYTHONSAFEPATH": "1",
}
_LEASH = Path(__file__).with_name("leash.py")


def quiet(home: Path) -> dict[str, str]:
    """The environment of Flower's processes: no telemetry, no update checks, no installations,
    files under `home`.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FLWR_")}
    bin_ = str(Path(sys.executable).parent)
    return (
        kept
        | QUIET
        | {
            "FLWR_HOME": str(home),
            "PATH": f"{bin_}{os.pathsep}{os.environ.get('PATH', '')}",
        }
    )


def command(name: str) -> str:
    """A command of the environment we run in."""
    found = Path(sys.executable).parent / name
    if not found.is_file():
        raise InputError(
            f"there is no command {name!r} beside this Python. Type: pip install 'persfl[flower]'"
        )
    return str(found)


class Process:
    """A child with its own group, its output in a file; it is ended with us, also when we are
    killed.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        env: dict[str, str],
        log: Path,
        cwd: Path | None = None,
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with appending(log) as out:
            self._child = subprocess.Popen(
                _leashed(words),
                env=env,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=cwd,
                start_new_session=True,
            )
        self.pid = self._child.pid
        self.log = log

    @property
    def code(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._child.poll()

    def wait(self, seconds: float) -> int | None:
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def ask_to_stop(self) -> None:
        """Without waiting."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGTERM)

    def stop(self, seconds: float = 5.0) -> None:
        """End it and whatever it started: politely first."""
        for how, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
            try:
                os.killpg(self.pid, how)
            except (ProcessLookupError, PermissionError):
                break
            if self.wait(patience) is not None and not _group(self.pid):
                break
        self.wait(5.0)


def _group(leader: int) -> bool:
    """Whether anybody of a process group is left."""
    try:
        os.killpg(leader, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _leashed(words: Sequence[str]) -> list[str]:
    """The command, begun by a small program that binds it to our life.

    Python between fork and exec (`preexec_fn`) is not safe where threads run, and here they do.
    """
    if sys.platform != "linux":
        return list(words)
    return [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid()), *words]


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def listening(port: int, host: str = "127.0.0.1") -> bool:
    """Whether somebody answers on a port."""
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False


def until(true: Callable[[], bool], seconds: float, pause: float = 0.1) -> bool:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True
