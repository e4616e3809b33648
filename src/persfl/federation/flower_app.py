"""The two apps of a Flower federation: the ServerApp conducts a run, the ClientApp hands messages
to the device that lives here.

In a Flower federation of your own, name them as the app's `serverapp`
("persfl.fleets.flower.server:app") and `clientapp` ("persfl.fleets.flower.client:app"), and start
each SuperNode with `--node-config 'folder="/path/to/node-3"'`, a folder that `persfl federation
init` makes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from persfl.federation.device import KINDS, Device
from persfl.federation.reply_inbox import RECORD, sealed


def client_app(find: Callable[[Context], Device]) -> ClientApp:
    """A ClientApp over the device that `find` finds."""
    made = ClientApp()
    for kind in KINDS:
        made.query(kind)(_replies(kind, find))
    return made


def _replies(
    kind: str, find: Callable[[Context], Device]
) -> Callable[[Message, Context], Message]:
    def reply(message: Message, context: Context) -> Message:
        from persfl.wire.codec import pack

        try:
            records: Any = message.content.config_records
            body = records[RECORD].get("body") if RECORD in records else None
            answer = find(context).reply(kind, body)
        # Flower would send the error's text to the coordinator, and it may hold private values
        except Exception:
            answer = pack({"code": "failed"})
        return Message(sealed(answer), reply_to=message)

    return reply


@lru_cache(maxsize=4)
def _device(folder: str) -> Device:
    from persfl.federation.node_folder import device_of

    return device_of(Path(folder))


def _found(context: Context) -> Device:
    return _device(str(context.node_config["folder"]))


client = client_app(_found)
server = ServerApp()


@server.main()
def conduct_plan(grid: Grid, context: Context) -> None:
    """Conduct the run of `plan`, a JSON file of this machine."""
    from persfl.federation.conduct import conduct

    conduct(grid, Path(str(context.run_config["plan"])))
