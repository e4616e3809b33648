"""Letters to devices over a Flower Grid: one message each, a deadline for all, and whatever happens
is a value.

The texts of errors that come back are never read: they may hold what must not leave a device.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from persfl.errors import need
from persfl.federation import flower_api
from persfl.federation.reply_inbox import Failed, inbox_of, sealed
from persfl.wire.codec import WireError, pack, unpack


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
        from flwr.app import Message

        if not letters:
            return {}
        begin = time.monotonic()
        found: dict[str, bytes | Failed] = {}
        waiting: dict[str, str] = {}
        for name, (node, kind, body) in letters.items():
            key = self._sent(
                Message(sealed(body), node, f"query.{kind}", ttl=float(deadline))
            )
            if key:
                waiting[key] = name
            else:
                found[name] = Failed("gone")
        inbox = inbox_of(self.grid)
        while waiting:
            for reply in inbox.look(waiting):
                if reply.key not in waiting:
                    continue
                name = waiting.pop(reply.key)
                strange = (
                    isinstance(reply.body, bytes) and reply.node != letters[name][0]
                )
                found[name] = Failed("stale") if strange else reply.body
                self.seen[name] = time.time()
            if not waiting or time.monotonic() - begin > deadline:
                break
            time.sleep(self.pause)
        inbox.close()
        self.waited += time.monotonic() - begin
        return found | {name: Failed("late") for name in waiting.values()}

    def _sent(self, message: Any) -> str | None:
        """The key of a message, by which its reply is known; None where it could not be sent.

        Each goes for itself: a node that says it has received a message before all of it was there
        makes Flower throw it away while it is being sent.
        """
        self.messages += 1
        try:
            keys = list(self.grid.push_messages([message]))
        except flower_api.ObjectPushError:
            return None
        return keys[0] if keys else None
