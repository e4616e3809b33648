"""Who may come in: the public keys of a federation's devices, and signatures made with them.

A node signs the time with its private key and sends key, time and signature in the headers of every
request. So whoever has no known key can be refused before a byte of a body is read.
"""

from __future__ import annotations

import binascii
import datetime
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from persfl.errors import InputError
from persfl.federation import flower_api


class Stranger(Exception):
    """A request that no known key has signed; the text says what is wrong."""


class Members:
    """The devices of a federation by their keys (PEM), as the proxy knows them."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._known = {pem.encode(): (name, _loaded(pem)) for name, pem in keys.items()}

    def signer(self, headers: Mapping[str, str]) -> str:
        """The device whose key has signed these headers, or `Stranger`."""
        try:
            shown = b64decode(headers[flower_api.PUBLIC_KEY], validate=True)
            signature = b64decode(headers[flower_api.SIGNATURE], validate=True)
            moment = headers[flower_api.TIMESTAMP]
            age = _age(moment)
        except (KeyError, ValueError, TypeError, binascii.Error):
            raise Stranger("this request is not signed") from None
        if shown not in self._known:
            raise Stranger("this key is not in the federation")
        name, key = self._known[shown]
        slack = flower_api.CLOCK_TOLERANCE
        if not -slack < age < flower_api.OLDEST_TIMESTAMP + slack:
            raise Stranger(
                "this request is signed for another time: set the clock of the node"
            )
        if not flower_api.signed(key, moment.encode("latin-1"), signature):
            raise Stranger("this signature is not of its key")
        return name


def _age(moment: str) -> float:
    """Seconds since a request was signed."""
    then = datetime.datetime.fromisoformat(moment)
    return (datetime.datetime.now(datetime.UTC) - then).total_seconds()


def public_key(text: str, where: str) -> str:
    """A device's public key as PEM, whichever of the two usual ways it was written; `where` names
    it.

    >>> public_key("AAAAE2VjZHNhLXNoYTIt", "the key of device 'ann' in 'federation.toml'")
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: the key of device 'ann' in 'federation.toml' could not be read. Paste
    \
all of it, from '-----BEGIN PUBLIC KEY-----' to '-----END PUBLIC KEY-----'.
    """
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    if "PRIVATE KEY" in text:
        raise InputError(
            f"{where} is a private key, which nobody else may see. Make a new pair and paste its"
            " public key."
        )
    try:
        key = _loaded(text)
    # the library has a different error for every way a key can be broken
    except Exception:
        raise InputError(
            f"{where} could not be read. Paste all of it, from '-----BEGIN PUBLIC KEY-----' to"
            " '-----END PUBLIC KEY-----'."
        ) from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise InputError(
            f"{where} must be an ECDSA key, as `ssh-keygen -t ecdsa -b 384` makes it."
        )
    return key.public_bytes(
        form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo
    ).decode()


def _loaded(text: str) -> Any:
    from cryptography.hazmat.primitives import serialization as form

    plain = text.strip().encode()
    if plain.startswith(b"ecdsa-"):
        return form.load_ssh_public_key(plain)
    return form.load_pem_public_key(plain + b"\n")
