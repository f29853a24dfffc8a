"""The certificate that this process shows: of the settings, or on loopback one made for itself.

DATA/admin.crt    the one that the admin side shows, for commands on the same machine: they know it
                  by the file, whatever names it has
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from auth.private_files.tls import CertificateFiles, open_loopback_certificate, read_pem_pair

if TYPE_CHECKING:
    from gateway.config.schema import Settings
    from kernel.common.ports import Clock

ADMIN_CERTIFICATE: Final = "admin.crt"


def certificate_of(settings: Settings, clock: Clock) -> CertificateFiles:
    """Of every TLS listener. Raises AuthError."""
    tls = settings.node.tls
    if tls.certificate is not None and tls.private_key is not None:
        return CertificateFiles(Path(tls.certificate), Path(tls.private_key))
    now = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC)
    return open_loopback_certificate(Path(settings.node.data) / "tls", now)


def admin_certificate(settings: Settings, clock: Clock) -> CertificateFiles | None:
    """Of the admin side, left for commands of this machine; None: it speaks plain HTTP. Raises
    AuthError, OSError.
    """
    published = Path(settings.node.data) / ADMIN_CERTIFICATE
    if not settings.node.admin.tls:
        published.unlink(missing_ok=True)
        return None
    files = certificate_of(settings, clock)
    fresh = published.with_suffix(".new")
    fresh.write_bytes(read_pem_pair(files).certificate)
    fresh.replace(published)
    return files
