"""What a node may hand in: one reply to one question that it was asked, in its own name.

The SuperLink takes whatever a known key sends: questions in the coordinator's name to other nodes
or to the run, and lists of parts that refer to one another, a few hundred bytes of which come to
2 ** 40 parts. A reply of persfl is a chain of three parts, so anything else is refused at the door.
"""

from __future__ import annotations

from typing import Any

from persfl.federation import flower_api

PATH = "/v1/fleet/push-messages"
LARGEST = 2**16  # bytes: it names a message and its parts, and holds neither
PARTS = 4


def wrong_with(body: bytes) -> str:
    """What is wrong with a body that was sent to `PATH`; nothing where it is a node's reply.

    >>> wrong_with(b"?")
    'this is no reply'
    """
    try:
        told = flower_api.PushMessagesRequest.FromString(body)
    except flower_api.DecodeError:
        return "this is no reply"
    if len(told.messages_list) != 1 or len(told.message_object_trees) != 1:
        return "a reply comes alone"
    about = told.messages_list[0].metadata
    tree = told.message_object_trees[0]
    if not about.reply_to_message_id:
        return "nodes reply, and ask nothing"
    if about.src_node_id != told.node.node_id:
        return "a node replies in its own name"
    if about.message_id != tree.object_id or not _chain(tree):
        return "a reply is a chain of few parts"
    return ""


def _chain(tree: Any) -> bool:
    """Whether every part has one part at most, and there are not many."""
    for _ in range(PARTS):
        if not tree.children:
            return True
        if len(tree.children) > 1:
            return False
        tree = tree.children[0]
    return False
