"""A Grid inside one process, for tests and for trying things out: real messages, really
serialised, to the real ClientApp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flwr.app import Context, Message, RecordDict

from persfl.federation import flower_api
from persfl.federation.device import Device
from persfl.federation.flower_app import client_app


class LocalGrid:
    """The part of `flwr.serverapp.Grid` that a `Post` uses. `tamper` may change or drop (None) a
    reply on its way back.

    >>> import numpy as np
    >>> from persfl import Data
    >>> from persfl.fleets.flower import Post, Rows
    >>> grid = LocalGrid(
    ...     {"ann": Device("ann", Rows(["x"], Data(np.ones((9, 1)), np.ones(9))))}
    ... )
    >>> list(Post(grid).members())
    ['ann']
    """

    def __init__(
        self,
        devices: Mapping[str, Device],
        tamper: Callable[[str, Message], Message | None] | None = None,
    ) -> None:
        identity = flower_api.TaskIdentity  # Flower stamps these on every message
        identity.run_id = identity.task_id = identity.node_id = 1
        self.devices = dict(devices)
        self.tamper = tamper
        self.away: set[str] = set()
        self._node = {name: 1000 + i for i, name in enumerate(sorted(devices))}
        self._name = {node: name for name, node in self._node.items()}
        self._replies: dict[str, Message] = {}
        self._app = client_app(
            lambda context: self.devices[self._name[context.node_id]]
        )

    def get_nodes(self) -> list[Any]:
        """Who is there, in no order that means anything."""
        return [
            flower_api.NodeInfo(node_id=node, public_key=name.encode())
            for name, node in self._node.items()
            if name not in self.away
        ]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Deliver at once."""
        sent = []
        for message in messages:
            key = message.object_id
            message.metadata.__dict__["_message_id"] = key
            sent.append(key)
            name = self._name[message.metadata.dst_node_id]
            if name in self.away:
                continue
            asked = _through(message)
            asked.metadata.__dict__["_message_id"] = key
            context = Context(
                run_id=0,
                node_id=self._node[name],
                node_config={},
                state=RecordDict(),
                run_config={},
            )
            reply: Message | None = self._app(asked, context)
            assert reply is not None
            reply.metadata.__dict__["_src_node_id"] = self._node[name]
            reply = (
                _through(reply)
                if self.tamper is None
                else self.tamper(name, _through(reply))
            )
            if reply is not None:
                self._replies[key] = reply
        return sent

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """What has come back."""
        return [self._replies.pop(key) for key in message_ids if key in self._replies]


def _through(message: Message) -> Message:
    """The message after a trip as bytes."""
    contents = {
        key: part.deflate() for key, part in flower_api.nested_objects(message).items()
    }
    again: Any = flower_api.inflated(message.object_id, contents)
    return again  # type: ignore[no-any-return]
