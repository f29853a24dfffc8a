"""The certificate that this process shows: of the settings, or on loopback one made for itself.

DATA/admin.crt    the one that the admin side shows, for commands on the same machine: they know it
                  by the file, whatever names it has
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from auth.private_files.certificates import open_loopback_certificate
from auth.private_files.tls import CertificateFiles
from gateway.admin.address import ADMIN_CERTIFICATE

if TYPE_CHECKING:
    from auth.private_files.tls import PemPair
    from gateway.access.live_certificates import LiveCertificate, LiveCertificates
    from gateway.config.schema import Settings
    from kernel.common.ports import Clock


def certificate_of(settings: Settings, clock: Clock) -> CertificateFiles:
    """Of every TLS listener. Raises AuthError."""
    tls = settings.node.tls
    if tls.certificate is not None and tls.private_key is not None:
        return CertificateFiles(Path(tls.certificate), Path(tls.private_key))
    now = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC)
    return open_loopback_certificate(Path(settings.node.data) / "tls", now)


def certificate_of_listeners(
    certificates: LiveCertificates, settings: Settings, clock: Clock
) -> LiveCertificate:
    """The same, as it is shown now. Raises AuthError."""
    return certificates.of("listeners", partial(certificate_of, settings, clock))


def publish_admin_certificate(data: Path, pair: PemPair) -> None:
    """Leave the admin side's certificate for commands of this machine. Raises OSError."""
    published = data / ADMIN_CERTIFICATE
    fresh = published.with_suffix(".new")
    fresh.write_bytes(pair.certificate)
    fresh.replace(published)


def remove_admin_certificate(data: Path) -> None:
    """The admin side speaks plain HTTP."""
    (data / ADMIN_CERTIFICATE).unlink(missing_ok=True)
