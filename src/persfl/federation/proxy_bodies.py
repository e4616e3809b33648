"""Bodies that members send through the proxy: in pieces, at a least rate, up to a size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

from persfl.federation import proxy_replies
from persfl.federation.proxy_limits import Limits
from persfl.federation.proxy_visits import Visit


class Refusal(NamedTuple):
    """Why a request is not passed on."""

    status: int
    why: str


class RefusedBody(Exception):
    """A body that is not passed on."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.why)
        self.refusal = refusal


class CutBody(Exception):
    """A body that came too slowly, too large, or not to its end."""


async def body_pieces(one: Visit, limits: Limits) -> AsyncIterator[bytes]:
    """A body in pieces; it has to come at the least rate, but the SuperLink's time is not
    counted.
    """
    import h11

    loop = asyncio.get_running_loop()
    waited = 0.0
    size = 0
    while True:
        begin = loop.time()
        allowed = limits.body_seconds + size / limits.least_rate
        async with asyncio.timeout(max(allowed - waited, 0.0)):
            event = await one.event()
        waited += loop.time() - begin
        if isinstance(event, h11.EndOfMessage):
            return
        if not isinstance(event, h11.Data):
            raise CutBody
        size += len(event.data)
        if size > limits.body:
            raise CutBody
        yield bytes(event.data)


async def announced_reply(body: AsyncIterator[bytes]) -> bytes:
    """The body that announces a reply, if it is one."""
    found = b""
    async for piece in body:
        found += piece
        if len(found) > proxy_replies.LARGEST:
            raise RefusedBody(Refusal(413, "too large"))
    why = proxy_replies.wrong_with(found)
    if why:
        raise RefusedBody(Refusal(400, why))
    return found
