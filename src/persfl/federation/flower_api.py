"""The one place where Flower's insides are touched: names that its public API does not have.

A federation needs more of Flower than Flower promises to keep: how nodes sign, how a SuperNode
hands out its messages, how keys are registered. These names may go with any version, so the version
is pinned, they are all listed here, and `lacking()` says in words which of them an installed Flower
does not have. Nothing is imported before it is used.

>>> from persfl.federation import flower_api
>>> flower_api.SIGNATURE
'flwr-signature'
>>> flower_api.lacking()
[]
"""

from __future__ import annotations

import inspect
from importlib import import_module, metadata
from typing import Any

from persfl.errors import InputError

_INSIDES = {
    # Registering nodes at the SuperLink
    "RegisterNodeRequest": ("flwr.proto.control_pb2", "RegisterNodeRequest"),
    "ControlHttpClient": ("flwr.supercore.control", "ControlHttpClient"),
    # A node's own hands
    "AcquireTaskRequest": ("flwr.proto.runtime_pb2", "AcquireTaskRequest"),
    "RuntimeHttpClient": ("flwr.supercore.runtime", "RuntimeHttpClient"),
    "RuntimeVersion": ("flwr.supercore.interceptors", "RuntimeVersionHttpInterceptor"),
    "RuntimeToken": ("flwr.supercore.interceptors", "RuntimeTokenHttpInterceptor"),
    "RuntimeSecret": ("flwr.supercore.interceptors", "SuperExecAuthHttpInterceptor"),
    "TaskType": ("flwr.supercore.constant", "TaskType"),
    "TaskIdentity": ("flwr.supercore.task_identity", "TaskIdentity"),
    "SubStatus": ("flwr.common.constant", "SubStatus"),
    "HeartbeatSender": ("flwr.supercore.heartbeat", "HeartbeatSender"),
    "task_heartbeat": ("flwr.supercore.heartbeat", "make_task_heartbeat_fn_http"),
    "pull_task_input": ("flwr.supernode.runtime.run_clientapp", "pull_task_input"),
    "push_message": ("flwr.supernode.runtime.run_clientapp", "push_message"),
    "push_task_output": ("flwr.supernode.runtime.run_clientapp", "push_task_output"),
    # The SuperNode, and how long it sleeps between two looks
    "supernode_module": ("flwr.supernode.start_client_internal", ""),
    "supernode_clock": ("flwr.supernode.start_client_internal", "time"),
    "supernode_command": ("flwr.supernode.cli", "flower_supernode"),
    # How nodes sign: the proxy refuses strangers by it
    "PUBLIC_KEY": ("flwr.supercore.constant", "FLEET_HTTP_PUBLIC_KEY_HEADER"),
    "SIGNATURE": ("flwr.supercore.constant", "FLEET_HTTP_SIGNATURE_HEADER"),
    "TIMESTAMP": ("flwr.common.constant", "TIMESTAMP_HEADER"),
    "OLDEST_TIMESTAMP": ("flwr.common.constant", "TIMESTAMP_TOLERANCE"),
    "CLOCK_TOLERANCE": ("flwr.common.constant", "SYSTEM_TIME_TOLERANCE"),
    "sign": ("flwr.supercore.primitives.asymmetric", "sign_message"),
    "signed": ("flwr.supercore.primitives.asymmetric", "verify_signature"),
    # Replies, opened with care: at the coordinator, and at the proxy
    "HttpGrid": ("flwr.superlink.grid.http_grid", "HttpGrid"),
    "ObjectPushError": (
        "flwr.supercore.inflatable.inflatable_utils",
        "ObjectPushError",
    ),
    "PullAppMessagesRequest": ("flwr.proto.runtime_pb2", "PullAppMessagesRequest"),
    "PullObjectRequest": ("flwr.proto.message_pb2", "PullObjectRequest"),
    "ConfirmReceivedRequest": (
        "flwr.proto.message_pb2",
        "ConfirmMessageReceivedRequest",
    ),
    "DecodeError": ("google.protobuf.message", "DecodeError"),
    "PushMessagesRequest": ("flwr.proto.fleet_pb2", "PushMessagesRequest"),
    # Messages inside one process
    "NodeInfo": ("flwr.proto.node_pb2", "NodeInfo"),
    "nested_objects": (
        "flwr.supercore.inflatable.inflatable_object",
        "get_all_nested_objects",
    ),
    "inflated": (
        "flwr.supercore.inflatable.inflatable_utils",
        "inflate_object_from_contents",
    ),
}
JOINED = "SuperNode ID: "  # in a SuperNode's log when it has been let in
# and when its key is known, but it may not come in now
REFUSED = "Failed to activate SuperNode"
_TEXTS = {
    JOINED: "flwr.supernode.start_client_internal",
    REFUSED: "flwr.supercore.error.catalog",
    "/v1/fleet": "flwr.superlink.routers.fleet.router",
}


def __getattr__(name: str) -> Any:
    if name not in _INSIDES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, inner = _INSIDES[name]
    try:
        found = import_module(module)
        return getattr(found, inner) if inner else found
    except (ImportError, AttributeError):
        raise InputError(_lacks(f"{module}.{inner}".rstrip("."))) from None


def lacking() -> list[str]:
    """A sentence for every inside of Flower that the installed version does not have."""
    found = []
    for name in _INSIDES:
        try:
            __getattr__(name)
        except InputError as error:
            found.append(str(error))
    for text, module in _TEXTS.items():
        try:
            there = text in inspect.getsource(import_module(module))
        except (ImportError, OSError, TypeError):
            there = False
        if not there:
            found.append(_lacks(f"{text!r} in {module}"))
    return found


def _lacks(what: str) -> str:
    wanted = next(iter(_pins()), "the version of the extra 'flower'")
    have = metadata.version("flwr")
    return f"Flower {have} lacks {what}, which a federation needs. Install {wanted}."


def _pins() -> list[str]:
    """What the installed persfl says of Flower's version."""
    try:
        said = metadata.requires("persfl") or []
    except metadata.PackageNotFoundError:
        return []
    return [one.split(";")[0].strip() for one in said if one.startswith("flwr")]
