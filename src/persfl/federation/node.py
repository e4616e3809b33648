"""A node's own hands: takes questions from the SuperNode beside it and answers them in this
process.

Flower would start a new process for every message, and run in it whatever code the coordinator's
app bundle holds. Here the bundle is never opened: only persfl's own ClientApp answers. So nobody
can ship code to this node, and an answer costs milliseconds instead of the seconds a process takes
to start.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from persfl.federation import flower_api
from persfl.federation.federation_folder import read_node
from persfl.federation.processes import (
    Process,
    command,
    free_ports,
    listening,
    quiet,
    until,
)

JOINING = 600.0  # seconds to wait for a coordinator that is not up yet
# seconds of refusals after which a node gives up; a killed connection is held to be alive for about
# 70
REFUSED = 240.0
_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
_CERTIFICATE = re.compile(
    r"CERTIFICATE_VERIFY_FAILED\] certificate verify failed: ([^\n(]+)"
)
_SEEN = 2**20  # bytes of a SuperNode's log that are looked at


def supernode(
    folder: Path, port: int, *, node_config: str = "", isolation: str = "process"
) -> Process:
    """Flower's SuperNode of a node's folder; its own little API listens on `port` of this machine
    and wants a secret.

    With `isolation="subprocess"` it is Flower's as it comes: a new process for every message, told
    its device by `node_config`.
    """
    config = read_node(folder)
    ours = [sys.executable, "-m", "persfl.federation.supernode"]
    words = [
        *(ours if isolation == "process" else [command("flower-supernode")]),
        "--superlink",
        config.superlink,
        "--root-certificates",
        str(folder / "ca.pem"),
        "--auth-supernode-private-key",
        str(folder / "key"),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--isolation",
        isolation,
    ]
    if isolation == "process":
        words += ["--superexec-auth-secret-file", str(folder / "secret")]
    if node_config:
        words += ["--node-config", node_config]
    return Process(words, env=quiet(folder / "flwr"), log=folder / "supernode.log")


class Hands:
    """Answers what the SuperNode on `port` receives, with `app`."""

    def __init__(self, port: int, secret: bytes, app: Any) -> None:
        self.app = app
        self._address = f"127.0.0.1:{port}"
        acquire = frozenset({_ACQUIRE})
        signed = flower_api.RuntimeSecret(
            master_secret=secret, protected_methods=acquire
        )
        self._runtime = self._client(signed)
        self._one = threading.Lock()  # the device answers one question at a time
        self.trouble = ""

    def _client(self, *more: Any) -> Any:
        version = flower_api.RuntimeVersion(component_name="flwr-clientapp")
        return flower_api.RuntimeHttpClient.from_server_address(
            server_address=self._address,
            insecure=True,
            root_certificates=None,
            interceptors=[version, *more],
        )

    def take(self) -> bool:
        """Answer one question, if there is one."""
        kinds = [flower_api.TaskType.CLIENT_APP]
        asked = flower_api.AcquireTaskRequest(supported_task_types=kinds)
        found = self._runtime.AcquireTask(asked)
        if not (found.HasField("task") and found.token):
            return False
        # A thread each: Flower waits for hours for the rest of a message whose run has died, and
        # others must not wait with it.
        threading.Thread(
            target=self._answer, args=(found.token, found.task.task_id), daemon=True
        ).start()
        return True

    def _answer(self, token: str, task: int) -> None:
        import httpx

        client = self._client(flower_api.RuntimeToken(token))
        heart = flower_api.HeartbeatSender(flower_api.task_heartbeat(client))
        heart.start()
        try:
            # The app bundle, the last of these, is left closed.
            message, context, _, _ = flower_api.pull_task_input(client)
            with self._one:
                identity = flower_api.TaskIdentity
                identity.task_id = task
                identity.run_id = context.run_id
                identity.node_id = context.node_id
                reply = self.app(message, context)
            flower_api.push_message(client, reply, context)
            flower_api.push_task_output(
                client, context, flower_api.SubStatus.COMPLETED, ""
            )
        except (httpx.HTTPError, RuntimeError, ValueError, OSError) as error:
            # its text may hold what the message held
            self.trouble = type(error).__name__
        finally:
            heart.stop()
            client.close()

    def serve(self, going: Callable[[], bool], pause: float = 0.2) -> None:
        """Answer until `going` says no; trouble with one question, or a SuperNode that is away,
        does not end it.
        """
        import httpx

        while going():
            try:
                if not self.take():
                    time.sleep(pause)
            except (httpx.HTTPError, RuntimeError, ValueError, OSError):
                time.sleep(1.0)


def run_node(
    folder: Path,
    *,
    say: Callable[[str], None],
    going: Callable[[], bool],
    app: Any = None,
) -> int:
    """A node until `going` says no: the SuperNode, started again if it dies, and the hands
    beside it.
    """
    if app is None:
        from persfl.federation.flower_app import client_app
        from persfl.federation.node_folder import device_of

        device = device_of(folder)
        app = client_app(lambda _: device)
    secret = secrets.token_bytes(32)
    where = folder / "secret"
    where.unlink(missing_ok=True)
    with os.fdopen(
        os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
    ) as file:
        file.write(secret)
    waits = 0
    refused = 0.0
    before = ""
    while going():
        begin = time.monotonic()
        log, seen = _log(folder)
        if _connected(folder, secret, app, say, going):
            waits = 0
            refused = 0.0
            before = ""
            say(
                "the connection is over; joining again"
                if going()
                else "out of the federation"
            )
        elif going():
            why, hopeless = refusal(_since(log, seen), folder)
            if why != before:
                say(why if hopeless else f"{why}; trying again")
            refused += time.monotonic() - begin
            if hopeless or refused > REFUSED:
                say(f"giving up; see {log}")
                return 1
            before = why
        waits += 1
        refused += min(2.0 * waits, 15.0)
        until(lambda: not going(), min(2.0 * waits, 15.0))
    return 0


def refusal(said: str, folder: Path) -> tuple[str, bool]:
    """Why a node was not let in, from its SuperNode's log, and whether trying again is of no use.

    >>> why, hopeless = refusal(
    ...     "... [code: 0] this key is not in the federation", Path("north")
    ... )
    >>> why, hopeless
    ("the federation does not let this node in: its key is not in the coordinator's
    federation.toml", False)
    """
    certificate = _CERTIFICATE.search(said)
    no = "the federation does not let this node in:"
    if certificate:
        return _about_certificate(certificate[1].strip(), folder), True
    if "this key is not in the federation" in said:
        return f"{no} its key is not in the coordinator's federation.toml", False
    if "set the clock of the node" in said:
        return (
            f"{no} the clocks of this machine and of the coordinator differ too much",
            False,
        )
    if flower_api.REFUSED in said:
        return (
            f"{no} another process has its key, or its last connection is not over yet",
            False,
        )
    return f"{no} see {folder / 'supernode.log'}", False


def _about_certificate(reason: str, folder: Path) -> str:
    where = read_node(folder).superlink
    if "expired" in reason or "not yet valid" in reason:
        return (
            f"the certificate of {where} is not valid today ({reason}). Ask the coordinator for a"
            " new one."
        )
    if "mismatch" in reason:
        return (
            f"the certificate of {where} is for another address ({reason}). Put the name that it"
            f" was made for into {folder / 'node.toml'}."
        )
    return (
        f"{where} is not the federation of this folder: {folder / 'ca.pem'} did not sign its"
        f" certificate ({reason}). Ask the coordinator for the folder of this device."
    )


def _log(folder: Path) -> tuple[Path, int]:
    """A SuperNode's log, and how much of it is there already."""
    log = folder / "supernode.log"
    return log, log.stat().st_size if log.is_file() else 0


def _since(log: Path, seen: int) -> str:
    if not log.is_file():
        return ""
    with log.open("rb") as file:
        file.seek(seen)
        return file.read(_SEEN).decode(errors="replace")


def _connected(
    folder: Path,
    secret: bytes,
    app: Any,
    say: Callable[[str], None],
    going: Callable[[], bool],
) -> bool:
    """One connection from its beginning to its end; whether this node was let in."""
    (port,) = free_ports(1)
    log, seen = _log(folder)
    host, _, door = str(read_node(folder).superlink).rpartition(":")
    if door.isdigit() and not listening(int(door), host):
        say(f"nothing listens at {host}:{door} yet; waiting for the coordinator")
    child = supernode(folder, port)
    try:
        until(
            lambda: _joined(log, seen) or child.code is not None or not going(), JOINING
        )
        if child.code is None and going() and _joined(log, seen):
            say("in the federation; waiting for questions")
            Hands(port, secret, app).serve(lambda: going() and child.code is None)
    finally:
        child.stop()
    return _joined(log, seen)


def _joined(log: Path, seen: int) -> bool:
    """Whether the SuperNode that writes this log has been let in."""
    return flower_api.JOINED in _since(log, seen)
