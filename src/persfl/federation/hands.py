"""A node's own hands: takes questions from the SuperNode beside it and answers them in this process.

Flower would start a new process for every message, and run in it whatever code the coordinator's app bundle holds. Here the bundle is
never opened: only persfl's own ClientApp answers. So nobody can ship code to this node, and an answer costs milliseconds instead of
the seconds a process takes to start.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from persfl.federation.processes import Process, command, free_ports, quiet, until
from persfl.federation.folder import node_told

_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


def supernode(folder: Path, port: int, *, node_config: str = "", isolation: str = "process") -> Process:
    """Flower's SuperNode of a node's folder; its own little API listens on `port` of this machine and wants a secret."""
    told = node_told(folder)
    words = [
        command("flower-supernode"), "--superlink", told["superlink"], "--root-certificates", str(folder / "ca.pem"),
        "--auth-supernode-private-key", str(folder / "key"), "--host", "127.0.0.1", "--port", str(port), "--isolation", isolation,
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
        self.answered = 0

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
        self._answer(found.token)
        self.answered += 1
        return True

    def _answer(self, token: str) -> None:
        from flwr.common.constant import SubStatus
        from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
        from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
        from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

        client = self._client(RuntimeTokenHttpInterceptor(token))
        heart = HeartbeatSender(make_task_heartbeat_fn_http(client))
        heart.start()
        try:
            message, context, _, _ = pull_task_input(client)  # the app bundle, the last of these, is left closed
            push_message(client, self.app(message, context), context)
            push_task_output(client, context, SubStatus.COMPLETED, "")
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
    import os
    import secrets

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
    restarts = 0
    while going():
        (port,) = free_ports(1)
        child = supernode(folder, port)
        begin = time.monotonic()
        try:
            from persfl.federation.processes import listening

            if until(lambda: listening(port) or child.code is not None or not going(), 60.0) and child.code is None and going():
                say("connected; waiting for questions" if not restarts else "connected again")
                Hands(port, secret, app).serve(lambda: going() and child.code is None)
        finally:
            child.stop()
        if child.code == 305 or (child.code not in (None, 0) and time.monotonic() - begin < 5 and restarts > 20):
            say(f"the federation does not let this node in (see {child.log})")
            return 1
        if going():
            restarts += 1
            say("the SuperNode stopped; starting it again")
            time.sleep(min(2.0 * restarts, 30.0))
    return 0
