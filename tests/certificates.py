"""Authorities and the certificates that they sign, for mutual TLS."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
HOUR = timedelta(hours=1)


class Authority:
    """Signs certificates, which it leaves in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, folder.name)])
        self.file = folder / "authority.pem"
        own = self._sign(self._name, self._key.public_key(), is_authority=True)
        self.file.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def _sign(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        is_authority: bool,
        alternative: x509.GeneralName = LOOPBACK,
        ends_in: timedelta = HOUR,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        constraints = x509.BasicConstraints(ca=is_authority, path_length=None)
        return (
            x509.CertificateBuilder(self._name, name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - HOUR)
            .not_valid_after(now + ends_in)
            .add_extension(constraints, critical=True)
            .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def issue(
        self,
        common_name: str = "process",
        file: str = "",
        *,
        alternative: x509.GeneralName = LOOPBACK,
        ends_in: timedelta = HOUR,
    ) -> tuple[Path, Path]:
        """A new certificate of a process on this machine, and its key; the last ones of the same
        `file` are gone. One that `ends_in` a negative time has expired.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        signed = self._sign(
            name,
            key.public_key(),
            is_authority=False,
            alternative=alternative,
            ends_in=ends_in,
        )
        chain, private = self._folder / f"{file}chain.pem", self._folder / f"{file}key.pem"
        chain.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return chain, private
