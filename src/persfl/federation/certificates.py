"""Keys and certificates of a federation: an authority that signs once and is forgotten."""

from __future__ import annotations

import datetime
import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )

_DAYS = 825
# What a key may be used for: signing, and no more.
_UNUSED = (
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "encipher_only",
    "decipher_only",
)


def node_key() -> tuple[bytes, bytes, str]:
    """A node's private key, its public key as a file, and the same as PEM."""
    from cryptography.hazmat.primitives import serialization as form

    key = _new_key()
    public = key.public_key()
    openssh = public.public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    pem = public.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    private = key.private_bytes(
        form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption()
    )
    return private, openssh + b"\n", pem.decode()


def certificates(host: str) -> tuple[bytes, bytes, bytes]:
    """The authority's certificate, and the server's certificate and key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.x509.oid import ExtendedKeyUsageOID

    authority = _new_key()
    server = _new_key()
    known = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    signs = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        **dict.fromkeys(_UNUSED, False),
    )
    issuer = "persfl federation"
    ca = (
        _unsigned(issuer, issuer, authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signs, critical=True)
        .add_extension(known, critical=False)
        .sign(authority, hashes.SHA384())
    )
    whose = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)
    serves = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    names = x509.SubjectAlternativeName(_names(host))
    certificate = (
        _unsigned("persfl coordinator", issuer, server.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .add_extension(serves, critical=False)
        .add_extension(whose, critical=False)
        .sign(authority, hashes.SHA384())
    )
    key = server.private_bytes(
        form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
    )
    pem = form.Encoding.PEM
    return ca.public_bytes(pem), certificate.public_bytes(pem), key


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1())


def _unsigned(
    subject: str, issuer: str, public: EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    """A certificate but for what it is for, and its signature."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(named(subject))
        .issuer_name(named(issuer))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
    )


def _names(host: str) -> list[x509.GeneralName]:
    """How the server may be reached: by this machine itself, and by its name or address."""
    from cryptography import x509

    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    try:
        outside: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        outside = x509.DNSName(host)
    return list(dict.fromkeys([x509.DNSName("localhost"), here, outside]))
