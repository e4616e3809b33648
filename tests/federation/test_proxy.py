"""The federation's door under attack: held-back headers and bodies, strangers, floods; in one
process.
"""

import asyncio
import datetime
import gc
import select
import socket
import ssl
import threading
import time
from base64 import b64encode
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

pytest.importorskip("flwr")

import httpx
from cryptography.hazmat.primitives import serialization

from persfl.errors import InputError
from persfl.federation import flower_api, proxy_replies
from persfl.federation.federation_folder import CONFIG, init, opened
from persfl.federation.member_keys import Members
from persfl.federation.processes import until
from persfl.federation.proxy import Proxy, tls
from persfl.federation.proxy_limits import Limits
from persfl.federation.proxy_visits import Refusals, Visits
from persfl.wire import LARGEST

PATH = "/v1/fleet/push-object"


@pytest.fixture(scope="module")
def fed(tmp_path_factory):
    return init(
        tmp_path_factory.mktemp("door") / "fed", ["ann", "bob"], port=19443, inner=19444
    )


class Echo(BaseHTTPRequestHandler):
    """Stands in for the SuperLink: sends back what came; `gate` holds up its reading."""

    protocol_version = "HTTP/1.1"
    gate, began = threading.Event(), threading.Event()
    paths: ClassVar[list[str]] = []

    def do_POST(self):
        self.paths.append(self.path)
        self.began.set()
        self.gate.wait(10)
        body = b"".join(self.pieces())
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def pieces(self):
        if "content-length" in self.headers:
            yield self.rfile.read(int(self.headers["content-length"]))
            return
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def log_message(self, *words): ...


class Link(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *about): ...


@pytest.fixture
def link(fed):
    Echo.gate.set()
    Echo.began.clear()
    Echo.paths.clear()
    server = Link(("127.0.0.1", 0), Echo)
    server.socket = tls(fed.coordinator).wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server.server_address[1]
    Echo.gate.set()
    server.shutdown()
    server.server_close()


class Door:
    """A proxy in a thread, and ways to knock."""

    def __init__(self, fed, link, **limits):
        self.fed, self.limits = fed, Limits(**limits)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        self.trust = ssl.create_default_context(cafile=str(fed.ca))
        self._up = threading.Event()
        self._thread = threading.Thread(
            target=asyncio.run, args=(self._serve(link),), daemon=True
        )
        self._thread.start()
        self._up.wait(10)
        self.held = []

    async def _serve(self, link):
        self.loop, self.task = asyncio.get_running_loop(), asyncio.current_task()
        self.proxy = Proxy(
            f"127.0.0.1:{link}", self.fed.ca, Members(self.fed.members), self.limits
        )
        self._up.set()
        with suppress(asyncio.CancelledError):
            await self.proxy.serve(self.listener, tls(self.fed.coordinator))

    def close(self):
        for sock in self.held:
            sock.close()
        self.loop.call_soon_threadsafe(self.task.cancel)
        self._thread.join(10)
        self.listener.close()

    def plain(self):
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        self.held.append(sock)
        return sock

    def knock(self, text=b""):
        """A TLS connection that has said this much."""
        raw = self.plain()
        sock = self.trust.wrap_socket(raw, server_hostname="127.0.0.1")
        self.held[-1] = sock
        sock.sendall(text)
        return sock

    def begin(self, size, name="ann"):
        """A signed request that announces a body of this size and sends none of it."""
        lines = [f"POST {PATH} HTTP/1.1", "host: x", f"content-length: {size}"]
        lines += [f"{k}: {v}" for k, v in signed(self.fed, name).items()]
        return self.knock(("\r\n".join(lines) + "\r\n\r\n").encode())

    def send(self, body=b"", name="ann", path=PATH, headers=None, client=None):
        headers = signed(self.fed, name) if headers is None else headers
        url = f"https://127.0.0.1:{self.port}{path}"
        if client is not None:
            return client.post(url, content=body, headers=headers)
        return httpx.post(
            url, content=body, headers=headers, verify=self.trust, trust_env=False
        )


def signed(fed, name, moment=None, by=None):
    """The headers with which a node shows its key."""
    moment = moment or datetime.datetime.now(datetime.UTC).isoformat()
    private = (fed.path / (by or name) / "key").read_bytes()
    key = serialization.load_ssh_private_key(private, None)
    shown = fed.members[name].encode()
    signature = flower_api.sign(key, moment.encode())
    return {
        flower_api.PUBLIC_KEY: b64encode(shown).decode(),
        flower_api.TIMESTAMP: moment,
        flower_api.SIGNATURE: b64encode(signature).decode(),
    }


@pytest.fixture
def door(fed, link):
    made = []

    def make(**limits):
        made.append(Door(fed, link, **limits))
        return made[-1]

    yield make
    for one in made:
        one.close()


def over(sock):
    """Whether the other side has ended a connection; waits for it."""
    with suppress(ConnectionError, ssl.SSLError):
        while sock.recv(2**16):
            pass
    return True


def answer(sock):
    """All of a refusal."""
    said = b""
    while not said.endswith(b"}"):
        said += sock.recv(4096)
    return said


def status(sock):
    return int(sock.recv(4096).split()[1])


def test_a_signed_request_goes_through_and_back(door):
    here = door()
    body = bytes(range(256)) * 8192
    reply = here.send(body)
    assert reply.status_code == 200
    assert reply.content == body
    pieces = here.send(iter([body[:5], body[5:]]))  # of a length that was not announced
    assert pieces.content == body
    # one connection, many requests
    with httpx.Client(verify=here.trust, trust_env=False) as client:
        assert [here.send(b"x" * n, client=client).content for n in (3, 0, 2)] == [
            b"xxx",
            b"",
            b"xx",
        ]
    assert until(lambda: here.proxy.inside.total() == 0, 10)


def test_strangers_are_refused_before_their_body(door, fed):
    here = door()
    old = (
        datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    ).isoformat()
    forged = signed(fed, "ann", by="bob")
    tries = {
        "this request is not signed": {},
        "this signature is not of its key": forged,
        "signed for another time": signed(fed, "ann", old),
        "not in the federation": (
            signed(fed, "ann") | {flower_api.PUBLIC_KEY: b64encode(b"mine").decode()}
        ),
    }
    for says, headers in tries.items():
        lines = [f"POST {PATH} HTTP/1.1", "host: x", "content-length: 50000000"]
        lines += [f"{k}: {v}" for k, v in headers.items()]
        sock = here.knock(("\r\n".join(lines) + "\r\n\r\n").encode())
        said = answer(sock)
        assert b" 400 " in said
        assert says.encode() in said
    assert here.send(path="/v1/control/list-runs").status_code == 404
    assert here.send(path=f"{PATH}?x=1").status_code == 404
    assert status(here.begin(here.limits.body + 1)) == 413
    both = "".join(f"{k}: {v}\r\n" for k, v in signed(fed, "ann").items())
    smuggled = (
        f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding:"
        f" chunked\r\n{both}\r\n"
    )
    assert status(here.knock(smuggled.encode())) == 400
    assert Echo.paths == []


def test_replies_are_looked_at_before_they_are_passed_on(door):
    one = door()
    path = proxy_replies.PATH
    told = flower_api.PushMessagesRequest()
    told.node.node_id = 7
    tree, about = told.message_object_trees.add(), told.messages_list.add().metadata
    about.message_id = tree.object_id = "a" * 64
    about.src_node_id, about.reply_to_message_id = 7, "q"
    good = told.SerializeToString()
    assert one.send(good, path=path).content == good
    assert (
        one.send(iter([good[:9], good[9:]]), path=path).content == good
    )  # of no announced size
    Echo.paths.clear()
    about.src_node_id = 1
    for wrong in (told.SerializeToString(), b"?", b"", good * 2, b"?" * 2**20):
        assert one.send(wrong, path=path).status_code in (400, 413)
    assert Echo.paths == []


def test_half_sent_headers_hold_nobody_up(door):
    """Slow-loris: strangers that hold connections open are ended, the oldest first; a node gets
    in.
    """
    here = door(strangers_per_address=8, strangers=16, header_seconds=60.0)
    slow = [
        here.knock(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nhost: x\r\n")
        for _ in range(12)
    ]
    mute = [here.plain() for _ in range(6)]  # and some that do not even begin TLS
    assert here.send(b"honest").content == b"honest"
    for sock in slow[:9]:
        assert over(sock)
    assert here.send(b"again", "bob").content == b"again"
    assert len(mute) == 6


def gone(sock):
    """Whether the other side has closed a connection, now."""
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_a_burst_of_strangers_is_closed_and_not_left_to_the_garbage(door):
    """Whoever was pushed out before its turn came kept its file handle until cycles were looked
    for.
    """
    one = door(strangers_per_address=4)
    one.loop.call_soon_threadsafe(
        time.sleep, 0.3
    )  # so that all of them wait at the door
    gc.disable()
    try:
        knocking = [one.plain() for _ in range(60)]
        assert until(lambda: sum(map(gone, knocking)) >= 56, 5.0)
    finally:
        gc.enable()
    assert one.send(b"still here").content == b"still here"


def test_headers_have_a_time_limit(door):
    here = door(header_seconds=0.3, idle_seconds=0.3)
    assert over(here.knock(b"POST /v1/fl"))
    assert over(here.plain())
    idle = here.begin(0)
    assert status(idle) == 200
    assert over(idle)


def test_memory_is_bounded_whatever_is_sent(door):
    """A body goes on as it comes: when the SuperLink does not read, its sender has to stop, too."""
    here = door()
    Echo.gate.clear()
    sock = here.begin(60 * 2**20)
    sock.setblocking(False)
    sent, piece = 0, b"x" * 2**16
    while sent < 60 * 2**20:
        try:
            sent += sock.send(piece)
        except ssl.SSLWantWriteError:
            if not select.select([], [sock], [], 1.0)[1]:
                break
    assert Echo.began.is_set()  # the SuperLink has it while it is still coming
    # a few pieces of ours and what this machine's sockets take
    assert sent < 40 * 2**20


def test_held_back_bodies_are_cut_and_others_get_through(door):
    here = door(body_seconds=0.4, least_rate=10**6)
    slow = [here.begin(60 * 2**20) for _ in range(5)]
    for sock in slow:
        sock.sendall(b"x" * 1000)
    assert here.send(b"honest", "bob").content == b"honest"
    for sock in slow:
        assert over(sock)
    assert here.send(b"after").content == b"after"
    assert until(lambda: here.proxy.inside.total() == 0, 10)


def test_all_bodies_together_have_a_limit(door):
    here = door(body=1000, bodies=2500)
    first, second = here.begin(1000), here.begin(1000)
    for sock in (first, second):
        sock.sendall(b"x")
    Echo.began.wait(10)
    assert until(lambda: here.proxy.inside.total() == 2000, 10)
    assert here.send(b"y" * 600, "bob").status_code == 503
    assert here.send(b"y" * 400, "bob").status_code == 200
    first.sendall(b"x" * 999)
    assert status(first) == 200
    assert until(lambda: here.proxy.inside.total() == 1000, 10)
    assert here.send(b"y" * 600, "bob").status_code == 200


def test_one_member_alone_cannot_use_all_room(door):
    here = door(body=1000, bodies=10_000, bodies_per_member=2500)
    held = [here.begin(1000) for _ in range(2)]
    assert until(lambda: here.proxy.inside.total() == 2000, 10)
    assert here.send(b"y" * 600).status_code == 503
    assert here.send(b"y" * 600, "bob").status_code == 200
    assert len(held) == 2


def test_one_key_has_so_many_connections(door):
    here = door(connections_per_member=2)
    held = [here.begin(10) for _ in range(2)]
    assert until(lambda: here.proxy.visits._members["ann"] == 2, 10)
    assert here.send().status_code == 503
    assert here.send(name="bob").status_code == 200
    assert len(held) == 2


def test_a_superlink_that_is_away_is_said(door, link, fed):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    here = Door(fed, port)
    try:
        reply = here.send(b"x" * 100_000)
        assert reply.status_code == 503
        assert "SuperLink is not there" in reply.text
    finally:
        here.close()


def test_the_address_with_the_most_gives_way():
    class One:
        def __init__(self, address):
            self.address, self.member, self.ended = address, "", False

        def end(self):
            self.ended = True

    visits = Visits(Limits(strangers=4, strangers_per_address=3))
    loud, quiet = [One("6.6.6.6") for _ in range(3)], [One("1.2.3.4") for _ in range(2)]
    for one in [*loud, *quiet]:
        visits.come(one)
    assert [one.ended for one in [*loud, *quiet]] == [True, False, False, False, False]
    assert visits.know(quiet[0], "ann")
    visits.come(One("5.5.5.5"))
    assert not any(one.ended for one in quiet)


def test_the_largest_message_fits():
    assert Limits().body >= LARGEST + 2**20


def test_refusals_do_not_fill_the_disk(capsys):
    told = Refusals()
    for _ in range(1000):
        told.count("not HTTP")
    assert capsys.readouterr().out.count("\n") == 1


@contextmanager
def changed(fed, old, new):
    path = fed.path / CONFIG
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, new))
    yield
    path.write_text(before)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "strangers = 256",
            "strangrs = 256",
            r"no setting 'strangrs'. Did you mean 'strangers'\?",
        ),
        ("strangers = 256", "strangers = 0", "strangers must be at least 1"),
        ("body = 68157440", "body = 2000000000", "bodies must be at least body"),
        (
            "bodies_per_member = 268435456",
            "bodies_per_member = 9",
            "bodies_per_member must be at least body",
        ),
        (
            "-----BEGIN PUBLIC KEY-----\n",
            "",
            "the key of device 'ann' in .* could not be read. Paste all",
        ),
        (
            "BEGIN PUBLIC",
            "BEGIN PRIVATE",
            "the key of device 'ann' in .* is a private key",
        ),
        ('device = "bob"', 'device = "ann"', "device 'ann' twice"),
    ],
)
def test_a_mistake_in_federation_toml_is_named(fed, old, new, says):
    with changed(fed, old, new), pytest.raises(InputError, match=says):
        opened(fed.path)


def test_keys_as_ssh_writes_them_and_one_key_for_two(fed):
    ssh = (fed.path / "ann" / "key.pub").read_text()
    with changed(fed, fed.members["ann"], ssh):
        assert opened(fed.path).members == fed.members
    with (
        changed(fed, fed.members["bob"], fed.members["ann"]),
        pytest.raises(InputError, match="one key for 'ann' and 'bob'"),
    ):
        opened(fed.path)
