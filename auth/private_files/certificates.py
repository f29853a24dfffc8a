"""Certificates: those of the settings as bytes, and one that loopback makes for itself.

    DATA/tls/loopback.pem   mode 0600: private key and certificate in one file, replaced at once,
                            so that no crash leaves a key beside another key's certificate
    DATA/tls/loopback.crt   the certificate alone, for clients to trust

The loopback certificate is its own authority (ECDSA P-256), names localhost, 127.0.0.1 and ::1,
and is made anew when less than RENEW_BEFORE remains. It proves nothing to another machine.
"""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ..errors import AuthCode, AuthError
from .files import create_private, read_private, replace_private
from .tls import CertificateFiles, PemPair, server_context

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

LIFETIME = timedelta(days=397)
"""The longest that browsers and phones accept of any certificate."""

RENEW_BEFORE = timedelta(days=30)

_BACKDATED = timedelta(hours=1)
_NAMES = (
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.IPAddress(ipaddress.ip_address("::1")),
)


def read_pem_pair(files: CertificateFiles) -> PemPair:
    """Certificate chain and key as bytes. Raises AuthError DAMAGED as `server_context` does."""
    server_context(files)  # finds a key that does not fit its certificate
    key = serialization.load_pem_private_key(files.private_key.read_bytes(), password=None)
    chain = x509.load_pem_x509_certificates(files.certificate.read_bytes())
    return PemPair(b"".join(_certificate_pem(one) for one in chain), _key_pem(key))


def open_loopback_certificate(directory: Path, now: datetime) -> CertificateFiles:
    """The loopback certificate of a data directory, made or renewed if need be.

    `directory` (DATA/tls) is created with mode 0700. `now`: aware. Raises AuthError UNSAFE_FILE
    or DAMAGED; a file that someone put there is never overwritten.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / "loopback.pem"
    try:
        certificate = _parse(path, read_private(path))
    except FileNotFoundError:
        with suppress(FileExistsError):  # another process of this start was first
            create_private(path, _make(now))
        certificate = _parse(path, read_private(path))
    if certificate.not_valid_after_utc - now < RENEW_BEFORE:
        replace_private(path, _make(now))
        certificate = _parse(path, read_private(path))
    _publish(directory / "loopback.crt", _certificate_pem(certificate))
    return CertificateFiles(path, path)


def _parse(path: Path, data: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError:
        message = f"{path} holds no certificate. Delete it and start again: a new one is made"
        raise AuthError(AuthCode.DAMAGED, message) from None


def _publish(path: Path, pem: bytes) -> None:
    """Keeps the public copy equal to the certificate in use. Anyone may read it."""
    try:
        if path.read_bytes() == pem:
            return
    except FileNotFoundError:
        pass
    replace_private(path, pem)
    path.chmod(0o644)


def _make(now: datetime) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName(_NAMES), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _key_pem(key) + _certificate_pem(certificate)


def _key_pem(key: PrivateKeyTypes) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
