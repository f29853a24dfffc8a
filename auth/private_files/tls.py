"""TLS contexts from certificate files, for listeners and for processes that dial each other."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import AuthCode, AuthError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A certificate chain and its private key, in PEM. Both may be one file."""

    certificate: Path
    private_key: Path


@dataclass(frozen=True, slots=True)
class PemPair:
    """The same as bytes, for libraries that take no paths (gRPC)."""

    certificate: bytes
    private_key: bytes

    def __repr__(self) -> str:
        return "PemPair(...)"


def server_context(
    files: CertificateFiles,
    *,
    client_authority: Path | None = None,
    is_demanded: bool = True,
    alpn: Sequence[str] = (),
) -> ssl.SSLContext:
    """The TLS context of a listener: TLS 1.2 or later, no compression, no renegotiation.

    `client_authority`: ask clients for a certificate of this authority, and let no other in, nor,
    if it `is_demanded`, who has none. Raises AuthError DAMAGED, naming the file, if key and
    certificate cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    _load_pair(context, files)
    if client_authority is not None:
        _load_authority(context, client_authority)
        context.verify_mode = ssl.CERT_REQUIRED if is_demanded else ssl.CERT_OPTIONAL
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def client_context(files: CertificateFiles, authority: Path) -> ssl.SSLContext:
    """The TLS context of a process that dials others of its kind: it shows its own certificate,
    and takes only a certificate of `authority` with the name that was dialled.

    Raises AuthError DAMAGED as `server_context` does.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION
    _load_pair(context, files)
    _load_authority(context, authority)
    return context


def _load_pair(context: ssl.SSLContext, files: CertificateFiles) -> None:
    try:
        # Without a password here OpenSSL would ask the terminal for that of an encrypted key.
        context.load_cert_chain(files.certificate, files.private_key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        both = f"{files.certificate} and {files.private_key}"
        message = f"{both} are no usable certificate and key: {_reason(error)}"
        raise AuthError(AuthCode.DAMAGED, message) from None


def _load_authority(context: ssl.SSLContext, authority: Path) -> None:
    try:
        context.load_verify_locations(authority)
    except (OSError, ssl.SSLError) as error:
        message = f"{authority} is no usable authority: {_reason(error)}"
        raise AuthError(AuthCode.DAMAGED, message) from None


def login_of(certificate: Mapping[str, object] | None) -> str | None:
    """The login of whoever has shown a certificate that was verified, as `SSLSocket.getpeercert`
    tells it: the one common name of its subject. None: nobody's.
    """
    subject = (certificate or {}).get("subject", ())
    assert isinstance(subject, tuple)
    names = [value for part in subject for key, value in part if key == "commonName"]
    return str(names[0]) if len(names) == 1 and names[0] else None


def _no_password() -> str:
    return ""


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
