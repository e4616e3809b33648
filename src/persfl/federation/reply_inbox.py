"""Replies as they come over Flower, opened with care: whoever sent them is not trusted.

Flower's own way of pulling replies ends with whatever error a broken part of one of them raises,
and waits up to two hours for a part that a node has announced and not sent: one peer could end
every run, or hold it up. Here a reply that is not what it should be is that reply's trouble alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from persfl.federation import flower_api
from persfl.wire.codec import LARGEST

RECORD = "persfl"
PARTS = 4  # of one reply; it has three: a Message, its RecordDict, one ConfigRecord
_ROOM = LARGEST + 2**20  # bytes of all its parts
_LATE, _GONE = (
    (3, 4),
    (5,),
)  # Flower's codes: expired or unavailable reply; node not there


class Failed(NamedTuple):
    """No answer, and in which of the ways of `persfl.federation.roster`."""

    how: str


class Reply(NamedTuple):
    """What came back to a message (its key), and from which node."""

    key: str
    node: int
    body: bytes | Failed


@dataclass
class _Coming:
    """A reply that was announced; its parts may still be on their way."""

    mark: str
    node: int
    parts: list[str] | None
    got: dict[str, bytes] = field(default_factory=dict)


class GridInbox:
    """Replies to messages over a grid that is not Flower's own: as that gives them."""

    def __init__(self, grid: Any) -> None:
        self.grid = grid

    def look(self, waiting: Collection[str]) -> list[Reply]:
        """What has come since, to these messages."""
        return [
            Reply(
                reply.metadata.reply_to_message_id,
                int(reply.metadata.src_node_id),
                _read(reply),
            )
            for reply in self.grid.pull_messages(list(waiting))
        ]

    def close(self) -> None:
        """Nobody waits any more."""


class RuntimeInbox(GridInbox):
    """Replies that a SuperLink holds, each pulled part by part and without waiting for any."""

    def __init__(self, grid: Any) -> None:
        super().__init__(grid)
        self._link: Any = grid._runtime_client
        self._run = grid.run.run_id
        self._coming: dict[str, _Coming] = {}

    def look(self, waiting: Collection[str]) -> list[Reply]:
        """What has come since, to these messages: whole, or known never to be."""
        self._announced(waiting)
        found = []
        for key, one in list(self._coming.items()):
            body = self._opened(one)
            if body is not None:
                found.append(Reply(key, one.node, body))
                self._forget(self._coming.pop(key).mark)
        return found

    def close(self) -> None:
        """Let the SuperLink forget what was announced and did not come."""
        while self._coming:
            self._forget(self._coming.popitem()[1].mark)

    def _announced(self, waiting: Collection[str]) -> None:
        wanted = [key for key in waiting if key not in self._coming]
        if not wanted:
            return
        asked = flower_api.PullAppMessagesRequest(message_ids=wanted)
        told = _answer(self._link.PullMessages, asked)
        if told is None:
            return
        trees = told.message_object_trees
        for message, tree in zip(told.messages_list, trees, strict=False):
            about = message.metadata
            key = about.reply_to_message_id
            if key in wanted and key not in self._coming:
                self._coming[key] = _Coming(
                    about.message_id, int(about.src_node_id), part_names(tree)
                )
            else:  # nobody asked for it
                self._forget(about.message_id)

    def _opened(self, one: _Coming) -> bytes | Failed | None:
        """The body of a reply; None while parts of it are on their way."""
        if one.parts is None:
            return Failed("format")
        for part in one.parts:
            if part in one.got:
                continue
            where: Any = {"node": self.grid.node, "run_id": self._run}
            asked = flower_api.PullObjectRequest(object_id=part, **where)
            told = _answer(self._link.PullObject, asked)
            if told is None or not told.object_found:
                return Failed("late")
            if not told.object_available:
                return None
            one.got[part] = told.object_content
            if sum(map(len, one.got.values())) > _ROOM:
                return Failed("format")
        try:
            return _read(flower_api.inflated(one.mark, one.got))
        except (
            Exception
        ):  # a stranger's bytes: there is an error for every way to break them
            return Failed("format")

    def _forget(self, mark: str) -> None:
        where: Any = {"node": self.grid.node, "run_id": self._run}
        asked = flower_api.ConfirmReceivedRequest(message_object_id=mark, **where)
        _answer(self._link.ConfirmMessageReceived, asked)


def sealed(body: bytes) -> Any:
    """A body as Flower carries it, under names that nobody can foresee.

    Flower keeps parts of messages by their hashes, and whoever announces one first says which
    parts belong to it: a peer that knew the next letter to another could add one that never comes.
    """
    from flwr.app import ConfigRecord, RecordDict

    salt = secrets.token_bytes(16)
    return RecordDict({RECORD: ConfigRecord({"body": body, "salt": salt})})


def inbox_of(grid: Any) -> GridInbox:
    """Where the replies to a grid's messages are."""
    return (
        RuntimeInbox(grid) if isinstance(grid, flower_api.HttpGrid) else GridInbox(grid)
    )


def part_names(tree: Any) -> list[str] | None:
    """The names of a reply's parts; None where there are more than a reply has.

    >>> from types import SimpleNamespace as Tree
    >>> part_names(Tree(object_id="a", children=[Tree(object_id="b", children=[])]))
    ['a', 'b']
    """
    found = list[str]()
    todo = [tree]
    while todo:
        one = todo.pop()
        found.append(str(one.object_id))
        if len(found) + len(todo) + len(one.children) > PARTS:
            return None
        todo.extend(one.children)
    return found


def _answer(call: Callable[[Any], Any], asked: Any) -> Any:
    """What the SuperLink says; None where it cannot say it, or it cannot be read."""
    import httpx

    try:
        return call(asked)
    except flower_api.DecodeError:
        return None
    except httpx.HTTPStatusError as error:
        if error.response.status_code == httpx.codes.INTERNAL_SERVER_ERROR:
            return None
        raise


def _read(reply: Any) -> bytes | Failed:
    """The body of a Flower message; texts of errors are never read."""
    if reply.has_error():
        code = int(reply.error.code)
        return Failed(
            "late" if code in _LATE else "gone" if code in _GONE else "failed"
        )
    records = reply.content.config_records
    body = records[RECORD].get("body") if RECORD in records else None
    return body if isinstance(body, bytes) else Failed("format")
