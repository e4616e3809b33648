"""The SuperLink of a federation, its nodes registered, and the proxy in front of it."""

from __future__ import annotations

import shutil
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from persfl.errors import InputError
from persfl.federation import flower_api
from persfl.federation.federation_folder import Federation, refuse_plants
from persfl.federation.processes import Process, command, listening, quiet, until
from persfl.files import refuse_links, write_whole

MARK = "superlink.pid"  # whose run this is: a run does not outlive its SuperLink


def superlink(federation: Federation) -> Process:
    """Flower's SuperLink, on this machine only."""
    here = _coordinator(federation)
    _remove(here / "flwr" / "apps")  # apps that Flower would run as they lie there
    words = [
        command("flower-superlink"),
        "--host",
        "127.0.0.1",
        "--port",
        str(federation.inner),
        "--ssl-ca-certfile",
        str(federation.ca),
        "--ssl-certfile",
        str(here / "server.pem"),
        "--ssl-keyfile",
        str(here / "server.key"),
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
    ]
    env = quiet(here / "flwr") | {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
    return Process(words, env=env, log=here / "superlink.log")


def register(federation: Federation) -> int:
    """Tell the SuperLink the keys of all members; how many were new to it."""
    import httpx

    client = flower_api.ControlHttpClient.from_server_address(
        server_address=f"127.0.0.1:{federation.inner}",
        insecure=False,
        root_certificates=federation.ca.read_bytes(),
        interceptors=[flower_api.RuntimeVersion(component_name="flwr CLI")],
    )
    new = 0
    try:
        for name, key in federation.members.items():
            try:
                asked = flower_api.RegisterNodeRequest(
                    public_key=key.encode(), name=name
                )
                client.RegisterNode(asked)
                new += 1
            except httpx.HTTPStatusError as error:
                if error.response.status_code >= 500:
                    raise
    finally:
        client.close()
    return new


def check_up(federation: Federation) -> None:
    """Stop in words where a federation's SuperLink and proxy are not there."""
    start = f"Start `persfl federation up {federation.path}`."
    trust = ssl.create_default_context(cafile=str(federation.ca))
    for port, what in (
        (federation.inner, "the SuperLink"),
        (federation.port, "the proxy"),
    ):
        try:
            with (
                socket.create_connection(("127.0.0.1", port), timeout=5.0) as plain,
                trust.wrap_socket(plain, server_hostname="127.0.0.1"),
            ):
                pass
        except ssl.SSLError:
            raise InputError(
                f"what listens on port {port} is not {what} of this federation. End it, or change"
                " federation.toml."
            ) from None
        except TimeoutError:
            raise InputError(
                f"what listens on port {port} does not answer. End it and"
                f" {start[0].lower()}{start[1:]}"
            ) from None
        except OSError:
            raise InputError(
                f"nothing listens on port {port}, so {what} is not up. {start}"
            ) from None


def same_link(federation: Federation, before: str) -> bool:
    """Whether the SuperLink is there, and still the one that a run began with."""
    return link_mark(federation) == before and listening(federation.inner)


def link_mark(federation: Federation) -> str:
    """Which SuperLink is up: another mark, another SuperLink."""
    path = federation.coordinator / MARK
    return path.read_text(encoding="utf-8") if path.is_file() else ""


class Up:
    """A federation that is up: `with Up(federation): ...`; the SuperLink and the proxy are
    started again if they die.
    """

    def __init__(self, federation: Federation, *, say: Callable[[str], None]) -> None:
        self.federation = federation
        self.say = say
        self.link: Process | None = None
        self.proxy: Process | None = None
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Up:
        try:
            for port in (self.federation.inner, self.federation.port):
                if listening(port):
                    raise InputError(
                        f"port {port} is in use already. End what uses it, or change"
                        " federation.toml."
                    )
            self._start_link()
            self._start_proxy()
        except BaseException:
            self.__exit__()
            raise
        self._watcher.start()
        return self

    def _start_link(self) -> None:
        self.link = superlink(self.federation)
        mark = self.federation.coordinator / MARK
        write_whole(mark, f"{self.link.pid}\n".encode())
        _await(self.link, self.federation.inner, "the SuperLink")
        register(self.federation)

    def _start_proxy(self) -> None:
        here = (
            "127.0.0.1"
            if self.federation.host in ("127.0.0.1", "localhost")
            else "0.0.0.0"
        )
        words = [
            sys.executable,
            "-m",
            "persfl.federation.proxy",
            str(self.federation.path),
            here,
        ]
        place = self.federation.coordinator
        self.proxy = Process(words, env=quiet(place / "flwr"), log=place / "proxy.log")
        _await(self.proxy, self.federation.port, "the proxy")

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            for what, child, start in (
                ("the SuperLink", self.link, self._start_link),
                ("the proxy", self.proxy, self._start_proxy),
            ):
                if child is None or child.code is None:
                    continue
                self.say(
                    f"{what} stopped; starting it again (a run that was going on can be resumed)"
                )
                child.stop()
                try:
                    start()
                except Exception as error:  # it is tried again
                    self.say(str(error))
                    self._over.wait(2.0)

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        if self._watcher.is_alive():
            self._watcher.join(90.0)
        for child in (self.proxy, self.link):
            if child is not None:
                child.stop()


def _await(child: Process, port: int, what: str) -> None:
    if (
        not until(lambda: listening(port) or child.code is not None, 90.0)
        or child.code is not None
    ):
        raise InputError(f"{what} did not start. See {child.log}.")


_APP = {"pyproject.toml", "README.md"}


def _coordinator(federation: Federation) -> Path:
    """The coordinator's folder, if nothing in it leads elsewhere."""
    if federation.coordinator.is_symlink():
        refuse_links(federation.path)
    refuse_plants(federation.coordinator)
    return federation.coordinator


def _remove(folder: Path) -> None:
    """A folder that is made anew by every run."""
    if folder.is_dir():
        shutil.rmtree(folder)


def app_folder(path: Path) -> Path:
    """A Flower app that names persfl's ServerApp and ClientApp, and holds no code of its own."""
    from persfl import __version__

    # Flower reads modules from this folder before all others: nothing else may be there.
    if path.is_dir() and {file.name for file in path.iterdir()} != _APP:
        _remove(path)
    path.mkdir(parents=True, exist_ok=True)
    (path / "pyproject.toml").write_text(
        f'[project]\nname = "persfl-run"\nversion = "{__version__}"\ndescription = "persfl over'
        ' Flower"\nlicense = "Apache-2.0"\ndependencies = []\n\n[tool.flwr.app]\npublisher ='
        ' "persfl"\n\n[tool.flwr.app.components]\nserverapp ='
        ' "persfl.fleets.flower.server:app"\nclientapp ='
        ' "persfl.fleets.flower.client:app"\n\n[tool.flwr.app.config]\nplan = ""\n',
        encoding="utf-8",
    )
    (path / "README.md").write_text(
        "persfl over Flower: the code is in the installed package.\n",
        encoding="utf-8",
    )
    return path


def start_run(federation: Federation, plan: Path) -> Process:
    """`flwr run`: starts the ServerApp with a plan; the process ends when the run does."""
    here = _coordinator(federation)
    home = here / "flwr"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(
        '[superlink]\ndefault = "here"\n\n[superlink.here]\naddress ='
        f' "127.0.0.1:{federation.inner}"\nroot-certificates = "{federation.ca.resolve()}"\n',
        encoding="utf-8",
    )
    app = app_folder(here / "app")
    words = [
        command("flwr"),
        "run",
        str(app),
        "here",
        "--stream",
        "--run-config",
        f'plan="{plan.resolve()}"',
    ]
    return Process(words, env=quiet(home), log=here / "run.log")
