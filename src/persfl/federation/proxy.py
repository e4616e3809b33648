"""The one door to the SuperLink: TLS, known keys, and nothing but what nodes need.

Flower serves nodes, the control commands and running apps on one port, and whoever reaches the
control commands can start a run on every node. So the SuperLink listens on this machine only, and
other machines reach this proxy, which passes `POST /v1/fleet/...` that a known key has signed, and
refuses everything else by its headers alone. Bodies are passed on as they come, never collected;
but the short one that announces a reply is looked at first (see `persfl.federation.proxy_replies`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import ssl
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from persfl.federation import proxy_replies
from persfl.federation.federation_folder import opened
from persfl.federation.member_keys import Members, Stranger
from persfl.federation.proxy_bodies import (
    CutBody,
    Refusal,
    RefusedBody,
    announced_reply,
    body_pieces,
)
from persfl.federation.proxy_limits import Limits
from persfl.federation.proxy_visits import PIECE, Refusals, Visit, Visits

FLEET = re.compile(r"/v1/fleet/[a-z]+(-[a-z]+)*")
_HOP = {
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "host",
    "content-length",
}
_LINK_SECONDS = 120.0  # the SuperLink's own time for an answer
_BACKLOG = 1024
_LINGER = 1.0  # seconds in which a refused client may still read why


class Proxy:
    """Passes what members send to the SuperLink at `upstream`, within limits."""

    def __init__(
        self, upstream: str, ca: Path, members: Members, limits: Limits
    ) -> None:
        import httpx

        self.limits = limits
        self.members = members
        self.visits, self.refusals = Visits(limits), Refusals()
        # Bytes of bodies that are on their way, as far as they were announced, by whose they are.
        self.inside: Counter[str] = Counter()
        self._link = httpx.AsyncClient(
            base_url=f"https://{upstream}",
            verify=ssl.create_default_context(cafile=str(ca)),
            timeout=_LINK_SECONDS,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=100),
            trust_env=False,
        )

    async def serve(self, listener: socket.socket, context: ssl.SSLContext) -> None:
        """Take connections until this task is ended."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._trouble)
        listener.setblocking(False)
        async with self._link:
            while True:
                try:
                    sock, where = await loop.sock_accept(listener)
                except OSError:  # no file handles left
                    self.visits.make_room()
                    await asyncio.sleep(0.05)
                    continue
                one = Visit(str(where[0]), sock)
                one.task = loop.create_task(self._visit(one, context))
                self.visits.come(one)
                # Its turn first: in a burst it would else be ended before it began, and so never be
                # closed, and nobody else would have a turn.
                await asyncio.sleep(0)

    def _trouble(self, _: Any, about: dict[str, Any]) -> None:
        """What nobody caught is counted: one connection's trouble is not another's."""
        kind = type(about.get("exception")).__name__
        self.refusals.count(f"trouble in the proxy ({kind})")

    async def _visit(self, one: Visit, context: ssl.SSLContext) -> None:
        """One connection from its beginning to its end; nothing that happens in it reaches
        another.
        """
        import h11

        try:
            async with asyncio.timeout(self.limits.header_seconds):
                await one.secure(context, self.limits.header_seconds)
                request = await one.event()
            while isinstance(request, h11.Request):
                await self._answer(one, request)
                if (one.http.our_state, one.http.their_state) != (h11.DONE, h11.DONE):
                    return
                one.http.start_next_cycle()
                async with asyncio.timeout(self.limits.idle_seconds):
                    request = await one.event()
        except TimeoutError:
            self.refusals.count("too slow")
        except asyncio.CancelledError:
            if one.pushed_out:
                self.refusals.count("too many connections without a known key")
        except h11.ProtocolError:
            self.refusals.count("not HTTP")
        except (OSError, CutBody):  # broken off
            pass
        finally:
            self.visits.leave(one)
            await one.close()

    async def _answer(self, one: Visit, request: Any) -> None:
        """Pass one request on, or say why not."""
        headers = {
            k.decode("latin-1").lower(): v.decode("latin-1") for k, v in request.headers
        }
        refusal = self._refusal(one, request, headers)
        size = int(headers.get("content-length", self.limits.body))
        if refusal is None and not self._room(one.member, size):
            refusal = Refusal(503, "too much is on its way: try again")
        if refusal is not None:
            await self._refuse(one, refusal)
            return
        whose = one.member
        self.inside[whose] += size
        try:
            await self._pass(one, request, headers)
        finally:
            self.inside[whose] -= size

    def _room(self, member: str, size: int) -> bool:
        """Whether one more body may be on its way."""
        limits = self.limits
        own = self.inside[member] + size
        return (
            own <= limits.bodies_per_member
            and self.inside.total() + size <= limits.bodies
        )

    def _refusal(
        self, one: Visit, request: Any, headers: dict[str, str]
    ) -> Refusal | None:
        """What is wrong with a request, by its headers alone."""
        path = request.target.decode("latin-1")
        if request.method != b"POST" or not FLEET.fullmatch(path):
            return Refusal(404, "not here")
        try:
            member = self.members.signer(headers)
        except Stranger as stranger:
            return Refusal(400, str(stranger))
        if "transfer-encoding" in headers and "content-length" in headers:
            return Refusal(400, "a body has one length")
        if int(headers.get("content-length", 0)) > self.limits.body:
            return Refusal(413, "too large")
        if one.member not in ("", member):
            return Refusal(400, "one connection has one key")
        if not self.visits.know(one, member):
            return Refusal(503, "too many connections of this key")
        return None

    async def _pass(self, one: Visit, request: Any, headers: dict[str, str]) -> None:
        """To the SuperLink and back, piece by piece."""
        import h11
        import httpx

        sent = {k: v for k, v in headers.items() if k not in _HOP}
        if "content-length" in headers:
            sent["content-length"] = headers["content-length"]
        path = request.target.decode("latin-1")
        begun = False
        try:
            body: Any = body_pieces(one, self.limits)
            if path == proxy_replies.PATH:
                body = await announced_reply(body)
                sent["content-length"] = str(len(body))
            async with self._link.stream(
                "POST", path, content=body, headers=sent
            ) as reply:
                kept = [
                    (k, v)
                    for k, v in reply.headers.raw
                    if k.decode().lower() not in _HOP
                ]
                if "content-length" in reply.headers:
                    kept.append(
                        (b"content-length", reply.headers["content-length"].encode())
                    )
                begun = True
                await self._send(
                    one, h11.Response(status_code=reply.status_code, headers=kept)
                )
                async for piece in reply.aiter_raw(PIECE):
                    await self._send(one, h11.Data(data=piece))
                await self._send(one, h11.EndOfMessage())
        except RefusedBody as no:
            await self._refuse(one, no.refusal)
        except httpx.HTTPError:
            if begun:
                raise CutBody from None
            await self._refuse(one, Refusal(503, "the SuperLink is not there"))

    async def _send(self, one: Visit, event: Any) -> None:
        await one.send(event, self.limits.body_seconds + PIECE / self.limits.least_rate)

    async def _refuse(self, one: Visit, refusal: Refusal) -> None:
        """Say why, in Flower's form so that it stands in the node's log, and end the connection."""
        import h11

        self.refusals.count(refusal.why)
        text = json.dumps({"code": 0, "detail": refusal.why}).encode()
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(text))),
            ("connection", "close"),
        ]
        with contextlib.suppress(h11.LocalProtocolError):
            await self._send(
                one, h11.Response(status_code=refusal.status, headers=headers)
            )
            await self._send(one, h11.Data(data=text))
            await self._send(one, h11.EndOfMessage())
        # a connection that is cut at once loses the answer
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER):
                for _ in range(16):
                    if not await one.reader.read(PIECE):
                        return


def tls(folder: Path) -> ssl.SSLContext:
    """The coordinator's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    return context


def handles() -> None:
    """As many open files as this machine allows: a connection needs one, and one to the
    SuperLink.
    """
    try:
        import resource
    except ImportError:  # not on this system
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def run_proxy(folder: str, host: str) -> None:
    """Serve the proxy of a federation's folder until it is ended."""
    federation = opened(Path(folder))
    handles()
    listener = socket.create_server((host, federation.port), backlog=_BACKLOG)
    upstream = f"127.0.0.1:{federation.inner}"
    context = tls(federation.coordinator)

    async def serve() -> None:
        members = Members(federation.members)
        proxy = Proxy(upstream, federation.ca, members, federation.limits)
        await proxy.serve(listener, context)

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())


if __name__ == "__main__":
    run_proxy(*sys.argv[1:])
