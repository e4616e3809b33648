"""Replies that are no replies, as a peer with a key can send them past persfl's own client: they
cost that peer its answer, and nobody else anything."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_object_id, get_object_tree

from persfl.federation import flower_api
from persfl.federation.local_grid import LocalGrid
from persfl.federation.proxy_replies import PARTS, wrong_with
from persfl.federation.reply_inbox import Failed, sealed
from persfl.fleets.flower import Device, Post, Rows
from persfl.types import Data
from persfl.wire import pack, unpack

NAMES = ("ann", "eve")
ROWS = Rows(["x"], Data(np.ones((9, 1)), np.ones(9)))


def part(kind, body, children=()):
    """An object of Flower's, whatever is in it, and its name."""
    content = f"{kind} {','.join(children)} {len(body)}\0".encode() + body
    return get_object_id(content), content


def chain(ids):
    """A tree in which every part has one part."""
    tree = ObjectTree(object_id=ids[-1])
    for name in reversed(ids[:-1]):
        tree = ObjectTree(object_id=name, children=[tree])
    return tree


class Runtime(flower_api.HttpGrid):
    """Flower's grid over a SuperLink in this process; `spoil` is what eve does to her replies."""

    run = SimpleNamespace(run_id=1)

    def __init__(self, spoil):
        super().__init__(token="x")
        self.local = LocalGrid({name: Device(name, ROWS) for name in NAMES})
        self.get_nodes, self.push_messages = (
            self.local.get_nodes,
            self.local.push_messages,
        )
        self.spoil, self._client = spoil, self
        self.objects, self.forgotten = {}, set()

    def PullMessages(self, asked):
        told = PullAppMessagesResponse()
        for reply in self.local.pull_messages(asked.message_ids):
            nested = flower_api.nested_objects(reply)
            objects = {name: one.deflate() for name, one in nested.items()}
            tree, message = get_object_tree(reply), message_to_proto(reply)
            message.metadata.message_id = tree.object_id
            if self.local._name[reply.metadata.src_node_id] == "eve":
                tree, objects = self.spoil(tree, objects, message.metadata)
            told.messages_list.append(message)
            told.message_object_trees.append(tree)
            self.objects |= objects
        return told

    def PullObject(self, asked):
        content = self.objects.get(asked.object_id, b"")
        return PullObjectResponse(
            object_found=True, object_available=bool(content), object_content=content
        )

    def ConfirmMessageReceived(self, asked):
        self.forgotten.add(asked.message_object_id)


def replaced(kind, body, children=()):
    def spoil(tree, objects, about):
        about.message_id, content = part(kind, body, children)
        return ObjectTree(object_id=about.message_id), {about.message_id: content}

    return spoil


def never(tree, objects, about):
    return tree, {}


def many(tree, objects, about):
    more = [ObjectTree(object_id=f"{i:064d}") for i in range(PARTS)]
    return ObjectTree(object_id=tree.object_id, children=more), objects


def deep(tree, objects, about):
    return chain([tree.object_id, *(f"{i:064d}" for i in range(90))]), objects


def question(tree, objects, about):
    about.reply_to_message_id = ""
    return tree, objects


def another(tree, objects, about):
    about.src_node_id += 1
    return tree, objects


@pytest.mark.parametrize(
    ("spoil", "how"),
    [
        (replaced("Message", b"no protobuf"), "format"),
        (replaced("Message", b""), "format"),
        (replaced("ArrayChunk", b"no message"), "format"),
        (replaced("Nothing", b""), "format"),
        (replaced("Message", b"", ["0" * 64]), "format"),
        (many, "format"),
        (deep, "format"),
        (another, "stale"),
        (never, "late"),
        (question, "late"),
    ],
)
def test_a_broken_reply_is_its_senders_trouble_alone(spoil, how):
    grid = Runtime(spoil)
    post = Post(grid, {name.encode(): name for name in NAMES}, pause=0.001)
    body = pack({"run": "r", "round": 0, "ask": 1})
    found = post.exchange(dict.fromkeys(NAMES, ("describe", body)), 0.2)
    assert unpack(found["ann"])[0]["device"] == "ann"
    assert found["eve"] == Failed(how)
    assert len(grid.forgotten) == 2  # the SuperLink keeps nothing of it


def test_nobody_can_foresee_the_names_of_parts():
    """Whoever announces a part first says what belongs to it."""
    seen = [set(flower_api.nested_objects(sealed(b"the same"))) for _ in range(2)]
    assert not seen[0] & seen[1]


def test_parts_may_come_one_by_one():
    late, kept = [], {}

    def slow(tree, objects, about):
        kept.update(objects)
        return tree, {}

    grid = Runtime(slow)
    real = grid.PullObject

    def pull(asked):
        late.append(asked.object_id)
        if len(late) > 5:
            grid.objects |= kept
        return real(asked)

    grid.PullObject = pull
    post = Post(grid, {name.encode(): name for name in NAMES}, pause=0.001)
    found = post.exchange(
        {"eve": ("describe", pack({"run": "r", "round": 0, "ask": 1}))}, 5.0
    )
    assert unpack(found["eve"])[0]["device"] == "eve"


def test_who_throws_a_question_away_while_it_is_sent_is_not_there():
    """By saying too early that it was received; Flower then cannot send the rest of it."""
    grid = Runtime(never)
    push = grid.push_messages

    def torn(messages):
        if any(grid.local._name[one.metadata.dst_node_id] == "eve" for one in messages):
            raise flower_api.ObjectPushError("part", 1, "session")
        return push(messages)

    grid.push_messages = torn
    post = Post(grid, {name.encode(): name for name in NAMES}, pause=0.001)
    body = pack({"run": "r", "round": 0, "ask": 1})
    found = post.exchange(dict.fromkeys(NAMES, ("describe", body)), 0.2)
    assert unpack(found["ann"])[0]["device"] == "ann"
    assert found["eve"] == Failed("gone")


def handed_in(ids=("a" * 64, "b" * 64, "c" * 64), node=7, **changes):
    """What a node sends before the parts of its reply."""
    told = PushMessagesRequest(
        node=Node(node_id=node), message_object_trees=[chain(list(ids))]
    )
    about = told.messages_list.add().metadata
    given = {
        "message_id": ids[0],
        "src_node_id": 7,
        "dst_node_id": 1,
        "reply_to_message_id": "q",
    }
    for name, value in (given | changes).items():
        setattr(about, name, value)
    return told


def laughs():
    """Few parts that refer to one another: as a tree, 2 ** 40 of them."""
    told, ids = handed_in(), [f"{i:064d}" for i in range(41)]
    tree = ObjectTree(object_id="a" * 64)
    for below, above in pairwise(ids):
        twice = [ObjectTree(object_id=below)] * 2
        tree.children.append(ObjectTree(object_id=above, children=twice))
    told.message_object_trees[0].CopyFrom(tree)
    return told


def twice():
    told = handed_in()
    told.messages_list.add().CopyFrom(told.messages_list[0])
    return told


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (handed_in(), ""),
        (handed_in(ids=["a" * 64]), ""),
        (handed_in(reply_to_message_id=""), "nodes reply, and ask nothing"),
        (
            handed_in(reply_to_message_id="", src_node_id=1),
            "nodes reply, and ask nothing",
        ),
        (handed_in(src_node_id=8), "a node replies in its own name"),
        (handed_in(message_id="d" * 64), "a reply is a chain of few parts"),
        (
            handed_in(ids=[f"{i:064d}" for i in range(PARTS + 1)]),
            "a reply is a chain of few parts",
        ),
        (laughs(), "a reply is a chain of few parts"),
        (twice(), "a reply comes alone"),
        (PushMessagesRequest(), "a reply comes alone"),
    ],
)
def test_nodes_hand_in_replies_and_nothing_else(told, says):
    assert wrong_with(told.SerializeToString()) == says
