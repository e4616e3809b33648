"""Letters to devices over a Flower Grid: one message each, a deadline for all, and whatever happens
is a value.

The texts of errors that come back are never read: they may hold what must not leave a device.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from persfl.errors import need
from persfl.wire import WireError, pack, unpack

RECORD = "persfl"
# Flower's error codes: expired or unavailable reply; node not there
_LATE, _GONE = (3, 4), (5,)


class Failed(NamedTuple):
    """No answer, and in which of the ways of `persfl.federation.roster`."""

    how: str


class Post:
    """`names` are device ids by public key, where a federation registers its nodes; without it
    nodes are asked who they are.

    `pause` is how long to wait between two looks for answers; Flower itself would wait 3 seconds.
    """

    def __init__(
        self, grid: Any, names: Mapping[bytes, str] | None = None, *, pause: float = 0.2
    ) -> None:
        need("flwr.app", extra="flower", why="a federation")
        self.grid, self.names, self.pause = (
            grid,
            None if names is None else dict(names),
            pause,
        )
        self.doubled: set[str] = set()
        self._told: dict[int, str] = {}
        self.waited = 0.0
        self.messages = 0
        self.seen: dict[str, float] = {}  # when a reply of a device came last

    def members(self, deadline: float = 30.0) -> dict[str, int]:
        """The devices that are connected now, and their node ids."""
        nodes = {
            int(node.node_id): bytes(node.public_key) for node in self.grid.get_nodes()
        }
        if self.names is not None:
            return {
                self.names[key]: node
                for node, key in nodes.items()
                if key in self.names
            }
        unknown = {f"node {node}": node for node in nodes if node not in self._told}
        body = pack({"run": "", "round": 0, "ask": 0})
        for label, reply in self._send(
            {label: (node, "describe", body) for label, node in unknown.items()},
            deadline,
        ).items():
            try:
                name = (
                    unpack(reply)[0].get("device") if isinstance(reply, bytes) else None
                )
            except WireError:
                continue
            if isinstance(name, str) and 0 < len(name) <= 200:
                self._told[unknown[label]] = name
        found: dict[str, int] = {}
        for node in sorted(nodes):
            name = self._told.get(node)
            if name is not None and name in found:
                self.doubled.add(name)  # two nodes claim one id: the first keeps it
            elif name is not None:
                found[name] = node
        return found

    def exchange(
        self, letters: Mapping[str, tuple[str, bytes]], deadline: float
    ) -> dict[str, bytes | Failed]:
        """Send (kind, body) to every device named and wait for the answers until the deadline."""
        if not letters:
            return {}
        there = self.members()
        found: dict[str, bytes | Failed] = {
            name: Failed("gone") for name in letters if name not in there
        }
        found |= self._send(
            {n: (there[n], *letter) for n, letter in letters.items() if n in there},
            deadline,
        )
        return found

    def _send(
        self, letters: Mapping[str, tuple[int, str, bytes]], deadline: float
    ) -> dict[str, bytes | Failed]:
        from flwr.app import ConfigRecord, Message, RecordDict

        if not letters:
            return {}
        begin = time.monotonic()
        messages, to = [], list(letters)
        for name in to:
            node, kind, body = letters[name]
            content = RecordDict({RECORD: ConfigRecord({"body": body})})
            messages.append(
                Message(content, node, f"query.{kind}", ttl=float(deadline))
            )
        sent = list(self.grid.push_messages(messages))
        self.messages += len(messages)
        waiting = {key: name for key, name in zip(sent, to, strict=False) if key}
        found: dict[str, bytes | Failed] = {
            name: Failed("gone") for name in to if name not in waiting.values()
        }
        while waiting:
            for reply in self.grid.pull_messages(list(waiting)):
                key = reply.metadata.reply_to_message_id
                if key in waiting:
                    name = waiting.pop(key)
                    found[name] = _read(reply, letters[name][0])
                    self.seen[name] = time.time()
            if not waiting or time.monotonic() - begin > deadline:
                break
            time.sleep(self.pause)
        self.waited += time.monotonic() - begin
        return found | {name: Failed("late") for name in waiting.values()}


def _read(reply: Any, node: int) -> bytes | Failed:
    if reply.has_error():
        code = int(reply.error.code)
        return Failed(
            "late" if code in _LATE else "gone" if code in _GONE else "failed"
        )
    if int(reply.metadata.src_node_id) != node:
        return Failed("stale")
    records = reply.content.config_records
    body = records[RECORD].get("body") if RECORD in records else None
    return body if isinstance(body, bytes) else Failed("format")
