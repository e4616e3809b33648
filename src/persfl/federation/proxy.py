"""The one door to the SuperLink: TLS, and nothing but what nodes need.

Flower serves nodes, the control commands and running apps on one port, and whoever reaches the control commands can start a run on
every node. So the SuperLink listens on this machine only, and other machines reach this proxy, which passes `POST /v1/fleet/...`
and refuses everything else.
"""

from __future__ import annotations

import contextlib
import re
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from persfl.federation.folder import opened
from persfl.wire import LARGEST

FLEET = re.compile(r"/v1/fleet/[a-z]+(-[a-z]+)*")
_HOP = {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "te", "trailer", "upgrade", "host", "content-length"}
_SECONDS = 120.0


def proxy_app(upstream: str, ca: Path) -> Any:
    """An ASGI app that passes what nodes send to the SuperLink at `upstream`."""
    import httpx
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    trust = ssl.create_default_context(cafile=str(ca))
    link = httpx.AsyncClient(base_url=f"https://{upstream}", verify=trust, timeout=_SECONDS, trust_env=False)

    async def passed(request: Request) -> Response:
        path = request.scope["path"]
        if request.method != "POST" or not FLEET.fullmatch(path) or request.scope.get("raw_path", b"").decode("latin-1") != path:
            return PlainTextResponse("not here", status_code=404)
        try:
            body = await _body(request.stream())
        except ValueError:
            return PlainTextResponse("too large", status_code=413)
        headers = [(k, v) for k, v in request.headers.raw if k.decode("latin-1").lower() not in _HOP]
        query = request.scope["query_string"].decode("latin-1")
        try:
            reply = await link.post(path + (f"?{query}" if query else ""), content=body, headers=headers)
        except httpx.HTTPError:
            return PlainTextResponse("the SuperLink is not there", status_code=503)
        kept = {k: v for k, v in reply.headers.items() if k.lower() not in _HOP | {"content-encoding"}}
        return Response(reply.content, status_code=reply.status_code, headers=kept)

    @contextlib.asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with link:
            yield

    every = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"]
    return Starlette(routes=[Route("/{path:path}", passed, methods=every)], lifespan=lifespan)


async def _body(stream: AsyncIterator[bytes]) -> bytes:
    parts, size = [], 0
    async for part in stream:
        size += len(part)
        if size > LARGEST + 2**20:
            raise ValueError
        parts.append(part)
    return b"".join(parts)


def main(folder: str, host: str) -> None:
    """Serve the proxy of a federation's folder until it is ended."""
    import uvicorn

    federation = opened(Path(folder))
    here = federation.coordinator
    config = uvicorn.Config(
        proxy_app(f"127.0.0.1:{federation.inner}", federation.ca), host=host, port=federation.port,
        ssl_certfile=str(here / "server.pem"), ssl_keyfile=str(here / "server.key"), log_level="critical", server_header=False,
        date_header=False, limit_concurrency=2_000, timeout_keep_alive=30, timeout_graceful_shutdown=1,
        proxy_headers=False, ws="none",
    )  # fmt: skip
    config.load()
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
    uvicorn.Server(config).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
