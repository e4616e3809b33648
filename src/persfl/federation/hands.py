"""A node's own hands: takes questions from the SuperNode beside it and answers them in this process.

Flower would start a new process for every message, and run in it whatever code the coordinator's app bundle holds. Here the bundle
is never opened: only persfl's own ClientApp answers. So nobody can ship code to this node, and an answer costs milliseconds instead
of the seconds a process takes to start.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from persfl.federation.folder import node_told
from persfl.federation.processes import Process, command, free_ports, quiet, until

JOINING = 600.0  # seconds to wait for a coordinator that is not up yet
REFUSED = 240.0  # seconds of refusals after which a node gives up; a killed connection is held to be alive for about 70
_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


def supernode(folder: Path, port: int, *, node_config: str = "", isolation: str = "process") -> Process:
    """Flower's SuperNode of a node's folder; its own little API listens on `port` of this machine and wants a secret.

    With `isolation="subprocess"` it is Flower's as it comes: a new process for every message, told its device by `node_config`.
    """
    told = node_told(folder)
    ours = [sys.executable, "-m", "persfl.federation.supernode"]
    words = [
        *(ours if isolation == "process" else [command("flower-supernode")]), "--superlink", told["superlink"],
        "--root-certificates", str(folder / "ca.pem"), "--auth-supernode-private-key", str(folder / "key"),
        "--host", "127.0.0.1", "--port", str(port), "--isolation", isolation,
    ]  # fmt: skip
    if isolation == "process":
        words += ["--superexec-auth-secret-file", str(folder / "secret")]
    if node_config:
        words += ["--node-config", node_config]
    return Process(words, env=quiet(folder / "flwr"), log=folder / "supernode.log")


class Hands:
    """Answers what the SuperNode on `port` receives, with `app`."""

    def __init__(self, port: int, secret: bytes, app: Any) -> None:
        from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor

        self.app = app
        self._address = f"127.0.0.1:{port}"
        self._runtime = self._client(SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=frozenset({_ACQUIRE})))
        self._one = threading.Lock()  # the device answers one question at a time
        self.trouble = ""

    def _client(self, *more: Any) -> Any:
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
        from flwr.supercore.runtime import RuntimeHttpClient

        version = RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")
        return RuntimeHttpClient.from_server_address(
            server_address=self._address, insecure=True, root_certificates=None, interceptors=[version, *more]
        )

    def take(self) -> bool:
        """Answer one question, if there is one."""
        from flwr.proto.runtime_pb2 import AcquireTaskRequest
        from flwr.supercore.constant import TaskType

        found = self._runtime.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
        if not (found.HasField("task") and found.token):
            return False
        # A thread each: Flower waits for hours for the rest of a message whose run has died, and others must not wait with it.
        threading.Thread(target=self._answer, args=(found.token, found.task.task_id), daemon=True).start()
        return True

    def _answer(self, token: str, task: int) -> None:
        import httpx
        from flwr.common.constant import SubStatus
        from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
        from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
        from flwr.supercore.task_identity import TaskIdentity
        from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

        client = self._client(RuntimeTokenHttpInterceptor(token))
        heart = HeartbeatSender(make_task_heartbeat_fn_http(client))
        heart.start()
        try:
            message, context, _, _ = pull_task_input(client)  # the app bundle, the last of these, is left closed
            with self._one:
                TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = task, context.run_id, context.node_id
                reply = self.app(message, context)
            push_message(client, reply, context)
            push_task_output(client, context, SubStatus.COMPLETED, "")
        except (httpx.HTTPError, RuntimeError, ValueError, OSError) as error:
            self.trouble = type(error).__name__  # its text may hold what the message held
        finally:
            heart.stop()
            client.close()

    def serve(self, going: Callable[[], bool], pause: float = 0.2) -> None:
        """Answer until `going` says no; trouble with one question, or a SuperNode that is away, does not end it."""
        import httpx

        while going():
            try:
                if not self.take():
                    time.sleep(pause)
            except (httpx.HTTPError, RuntimeError, ValueError, OSError):
                time.sleep(1.0)


def run_node(folder: Path, *, say: Callable[[str], None], going: Callable[[], bool], app: Any = None) -> int:
    """A node until `going` says no: the SuperNode, started again if it dies, and the hands beside it."""
    if app is None:
        from persfl.federation.member import device_of
        from persfl.fleets.flower.client import client_app

        device = device_of(folder)
        app = client_app(lambda _: device)
    secret = secrets.token_bytes(32)
    where = folder / "secret"
    where.unlink(missing_ok=True)
    with os.fdopen(os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret)
    waits, refused = 0, 0.0
    while going():
        begin = time.monotonic()
        if _connected(folder, secret, app, say, going):
            waits, refused = 0, 0.0
            say("the connection is over; joining again" if going() else "out of the federation")
        elif going():
            say(
                "the federation does not let this node in: its key is unknown, or its last connection is not over yet; trying again"
            )
            refused += time.monotonic() - begin
            if refused > REFUSED:
                say(f"giving up; see {folder / 'supernode.log'}")
                return 1
        waits += 1
        refused += min(2.0 * waits, 15.0)
        until(lambda: not going(), min(2.0 * waits, 15.0))
    return 0


def _connected(folder: Path, secret: bytes, app: Any, say: Callable[[str], None], going: Callable[[], bool]) -> bool:
    """One connection from its beginning to its end; whether this node was let in."""
    (port,) = free_ports(1)
    log = folder / "supernode.log"
    seen = log.stat().st_size if log.is_file() else 0
    child = supernode(folder, port)
    try:
        until(lambda: _joined(log, seen) or child.code is not None or not going(), JOINING)
        if child.code is None and going() and _joined(log, seen):
            say("in the federation; waiting for questions")
            Hands(port, secret, app).serve(lambda: going() and child.code is None)
    finally:
        child.stop()
    return _joined(log, seen)


def _joined(log: Path, seen: int) -> bool:
    """Whether the SuperNode that writes this log has been let in."""
    with log.open("rb") as file:
        file.seek(seen)
        return b"SuperNode ID: " in file.read(2**20)
