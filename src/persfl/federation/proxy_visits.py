"""Connections to the proxy: how long they may take, and who has to go when there are too many."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

from persfl.federation.proxy_limits import Limits

# bytes that are read at once; a connection holds a few of these and no more
PIECE = 2**16
_HEADERS = 2**14
_FAREWELL = 3.0  # seconds for the last bytes of an answer


class Visit:
    """One connection: a stranger's until `member` says whose it is."""

    def __init__(self, address: str, sock: Any) -> None:
        import h11

        self.address = address
        self.member = ""
        self.sock = sock
        self.pushed_out = False
        self.task: asyncio.Task[None] | None = None
        self.reader = asyncio.StreamReader(limit=PIECE)
        self.writer: asyncio.StreamWriter | None = None
        self.http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEADERS)

    async def secure(self, context: Any, seconds: float) -> None:
        """TLS."""
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(self.reader, loop=loop)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            self.sock,
            ssl=context,
            ssl_handshake_timeout=seconds,
            ssl_shutdown_timeout=_FAREWELL,
        )
        self.writer = asyncio.StreamWriter(transport, protocol, self.reader, loop)

    async def event(self) -> Any:
        """The next thing that came, as h11 tells it."""
        import h11

        while True:
            found = self.http.next_event()
            if found is not h11.NEED_DATA:
                return found
            if self.http.they_are_waiting_for_100_continue:
                go = h11.InformationalResponse(status_code=100, headers=[])
                await self.send(go, 1.0)
            self.http.receive_data(await self.reader.read(PIECE))

    async def send(self, event: Any, seconds: float) -> None:
        """Send an event; whoever does not take it in time is gone."""
        assert self.writer is not None
        self.writer.write(self.http.send(event) or b"")
        async with asyncio.timeout(seconds):
            await self.writer.drain()

    def end(self) -> None:
        """End it now, whatever it is doing."""
        self.pushed_out = True
        if self.task is not None:
            self.task.cancel()

    async def close(self) -> None:
        """Give back what it holds; what was answered goes out first."""
        if self.writer is None:
            self.sock.close()
            return
        try:
            if not self.pushed_out:
                self.writer.close()
                async with asyncio.timeout(_FAREWELL):
                    await self.writer.wait_closed()
        except OSError:  # time is over, or it was gone already
            pass
        finally:
            self.writer.transport.abort()


class Visits:
    """All connections, and the limits on how many there are."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        # by address, the oldest first
        self._strangers: dict[str, dict[Visit, None]] = {}
        self._members: Counter[str] = Counter()
        self._count = 0

    def come(self, one: Visit) -> None:
        """A new stranger; where there are too many, the oldest of the address with the most
        goes.
        """
        here = self._strangers.setdefault(one.address, {})
        here[one] = None
        self._count += 1
        if len(here) > self.limits.strangers_per_address:
            self._push_out(one.address)
        elif self._count > self.limits.strangers:
            self.make_room()

    def make_room(self) -> None:
        """End the oldest stranger of the address that has the most."""
        if self._strangers:
            self._push_out(
                max(self._strangers, key=lambda address: len(self._strangers[address]))
            )

    def know(self, one: Visit, member: str) -> bool:
        """A stranger has shown a known key; False where its owner has too many connections."""
        if one.member == member:
            return True
        if self._members[member] >= self.limits.connections_per_member:
            return False
        self.leave(one)
        one.member = member
        self._members[member] += 1
        return True

    def leave(self, one: Visit) -> None:
        """It is over, or no stranger's any more."""
        if one.member:
            self._members[one.member] -= 1
            one.member = ""
            return
        here = self._strangers.get(one.address, {})
        if one in here:
            del here[one]
            self._count -= 1
        if not here:
            self._strangers.pop(one.address, None)

    def _push_out(self, address: str) -> None:
        oldest = next(iter(self._strangers[address]))
        self.leave(oldest)
        oldest.end()


class Refusals:
    """How often what was refused, said at most once a minute: nobody may fill the disk with
    lines.
    """

    def __init__(self, pause: float = 60.0) -> None:
        self._pause = pause
        self._said = -pause
        self._counts: Counter[str] = Counter()

    def count(self, why: str) -> None:
        self._counts[why] += 1
        now = time.monotonic()
        if now - self._said < self._pause:
            return
        self._said = now
        told = ", ".join(
            f"{times} x {why}" for why, times in self._counts.most_common()
        )
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} refused: {told}", flush=True)
        self._counts.clear()
