"""A federation's folder: who is in it, certificates, keys, addresses.

    federation.toml      name, public address, the devices and their public keys: nothing secret
    coordinator/         stays with the coordinator: server certificate and key, Flower's own files,
    logs node-1/ ...          one for each device, to be handed to its owner: node.toml (the owner's
    policy), ca.pem, private key

The certificate authority signs one server certificate and is then forgotten: its key is never
written, so that nobody can sign another. Private keys can be read by their owner alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from persfl.checks import whole
from persfl.errors import InputError, need
from persfl.federation.category_levels import Levels, levels_from, levels_text
from persfl.federation.certificates import certificates, node_key
from persfl.federation.member_keys import public_key
from persfl.federation.proxy_limits import Limits
from persfl.files import read_toml, refuse_links

CONFIG = "federation.toml"
NODE = "node.toml"
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ADDRESS = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9._:\[\]-]{0,255}:[0-9]{1,5}")
_FORMS = {
    "host": (
        _HOST,
        "the name or the IPv4 address by which nodes reach this machine",
    ),
    "device": (_NAME, "a name of letters, digits, '.', '_' and '-'"),
    "superlink": (_ADDRESS, "an address such as 'fed.example.org:9443'"),
}


@dataclass(frozen=True)
class Federation:
    """What `federation.toml` says."""

    path: Path
    host: str  # how nodes reach the proxy
    port: int
    inner: int  # the SuperLink's own port, on this machine only
    members: dict[str, str]  # device id -> public key as PEM
    limits: Limits = field(default_factory=Limits)
    categories: Levels = field(default_factory=dict)  # of text columns

    @property
    def coordinator(self) -> Path:
        return self.path / "coordinator"

    @property
    def ca(self) -> Path:
        return self.coordinator / "ca.pem"


def init(
    path: Path,
    devices: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 9443,
    inner: int = 9444,
    categories: Levels | None = None,
) -> Federation:
    """Make a federation's folder; an existing one is never touched."""
    need("cryptography", extra="flower", why="making certificates")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(
            f"{str(path)!r} is not empty. Choose another folder for the federation."
        )
    names = list(devices)
    odd = [name for name in names if not _NAME.fullmatch(name)]
    if odd or len(set(names)) < len(names) or not names:
        raise InputError(
            "device ids must be different names of letters, digits, '.', '_' and '-'. Got"
            f" {odd or names!r}."
        )
    taken = sorted({"coordinator", CONFIG} & {name.lower() for name in names})
    if taken:
        raise InputError(
            f"a device cannot be called {taken[0]!r}: the federation's folder has its own of that"
            " name."
        )
    if not _HOST.fullmatch(host):
        raise InputError(f"host must be {_FORMS['host'][1]}. Got {host!r}.")
    if port == inner:
        raise InputError(
            "port and inner port must differ: the proxy has one, the SuperLink the other. Got"
            f" {port} twice."
        )
    for name, value in (("port", port), ("inner port", inner)):
        whole(name, value, least=1, most=65535)
    declared = levels_text(levels_from(categories or {}, "--categories"))
    path.mkdir(parents=True, exist_ok=True)
    coordinator = path / "coordinator"
    _secret_folder(coordinator)
    ca, certificate, key = certificates(host)
    (coordinator / "ca.pem").write_bytes(ca)
    (coordinator / "server.pem").write_bytes(certificate)
    _secret(coordinator / "server.key", key)
    members = {}
    for name in names:
        folder = path / name
        _secret_folder(folder)
        private, public, pem = node_key()
        _secret(folder / "key", private)
        (folder / "key.pub").write_bytes(public)
        (folder / "ca.pem").write_bytes(ca)
        (folder / NODE).write_text(
            _node_text(name, host, port, declared), encoding="utf-8"
        )
        members[name] = pem
    text = _federation_text(host, port, inner, members, declared)
    (path / CONFIG).write_text(text, encoding="utf-8")
    return opened(path)


def opened(path: Path) -> Federation:
    """The federation of a folder."""
    told = _read(path / CONFIG, "a federation's folder", "persfl federation init")
    where = f"{str(path / CONFIG)!r}"
    try:
        host = _in_form("host", told["host"], where)
        port = whole(f"port of {where}", told["port"], least=1, most=65535)
        inner = whole(f"inner_port of {where}", told["inner_port"], least=1, most=65535)
        pairs = [(str(one["device"]), str(one["key"])) for one in told["member"]]
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"{where} must have host, port, inner_port and members. Make it again, or mend it."
        ) from None
    return Federation(
        path,
        host,
        port,
        inner,
        _members(pairs, where),
        Limits.of(told.get("proxy", {})),
        levels_from(told.get("categories", {}), where),
    )


def _members(pairs: Sequence[tuple[str, str]], where: str) -> dict[str, str]:
    """The keys of a federation's devices; the one that is wrong is named."""
    need("cryptography", extra="flower", why="a federation's keys")
    members: dict[str, str] = {}
    owners: dict[str, str] = {}
    for name, text in pairs:
        _in_form("device", name, where)
        key = public_key(text, f"the key of device {name!r} in {where}")
        if name in members:
            raise InputError(f"{where} has device {name!r} twice. Remove one of them.")
        if key in owners:
            raise InputError(
                f"{where} has one key for {owners[key]!r} and {name!r}. Each needs its own."
            )
        members[name] = key
        owners[key] = name
    return members


def refuse_plants(folder: Path) -> None:
    """Stop where a link would lead elsewhere what is written into a folder of somebody else's.

    The coordinator makes the folders of nodes, and a federation may be taken over: logs hold what
    others say, and must not be written to the end of a file of the owner's.
    """
    for place, _, _ in os.walk(folder):
        refuse_links(Path(place))


class NodeConfig(NamedTuple):
    """What a node's folder says, apart from its policy."""

    device: str
    superlink: str
    categories: Levels


def read_node(path: Path) -> NodeConfig:
    """Who the node of a folder is, and where its federation is."""
    refuse_plants(path)
    told = _read(path / NODE, "a node's folder", "persfl federation init")
    where = f"{str(path / NODE)!r}"
    device, superlink = (
        _in_form(name, told.get(name), where) for name in ("device", "superlink")
    )
    categories = levels_from(told.get("categories", {}), where)
    return NodeConfig(device, superlink, categories)


def _in_form(name: str, value: object, where: str) -> str:
    """A text of a folder that is shown and handed on, if it is one that persfl would write."""
    form, words = _FORMS[name]
    if not isinstance(value, str) or not form.fullmatch(value):
        raise InputError(f"{name} of {where} must be {words}. Got {value!r}.")
    return value


def _read(path: Path, what: str, how: str) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(
            f"{str(path.parent)!r} is not {what}: it has no {path.name}. Make one with: {how}"
        )
    return read_toml(path, f"{str(path)!r}")


def _federation_text(
    host: str, port: int, inner: int, members: dict[str, str], categories: str
) -> str:
    text = (
        f'# Who is in this federation. Nothing here is secret.\nhost = "{host}"\nport ='
        f" {port}\ninner_port = {inner}\n"
    )
    for name, key in members.items():
        text += f'\n[[member]]\ndevice = "{name}"\nkey = """\n{key}"""\n'
    if categories:
        text += f"\n# The levels of text columns, as in every node.toml.\n{categories}"
    return (
        f"{text}\n# What the proxy lets through, in seconds, bytes and"
        f" connections.\n{Limits().text()}"
    )


def _node_text(name: str, host: str, port: int, categories: str) -> str:
    # and with it much that the proxy does without
    from persfl.federation.node_family import FAMILIES
    from persfl.federation.policy import Policy

    families = f"of its own models, in runs with --model any: {', '.join(FAMILIES)}"
    return (
        "# This device in its federation. The owner of the rows owns this file: the policy below is"
        " what may leave.\n"
        f'device = "{name}"\nsuperlink = "{host}:{port}"\n'
        f'family = "linear"  # {families}\n\n{Policy().text()}'
        f"\n{categories}"
    )


def _secret_folder(path: Path) -> None:
    path.mkdir(mode=0o700)


def _secret(path: Path, content: bytes) -> None:
    """A file that only its owner can read, from its first moment on."""
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
    ) as file:
        file.write(content)
