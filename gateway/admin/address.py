"""Where the admin API of a data directory's server listens: for commands on the same machine.

DATA/admin.url    one line, written at every start; a server that is gone leaves it behind

One that listens at all addresses (0.0.0.0, ::) is written down by loopback, where it listens too:
the token of a data directory is sent nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ADDRESS_FILE = "admin.url"

ADMIN_CERTIFICATE = "admin.crt"
"""The certificate that it shows, if it is reached by TLS (`gateway.access.certificates`)."""

ADDRESS_BYTES_MAX = 512
"""Longer than any scheme, host name and port."""


def write_address(data_directory: Path, url: str) -> None:
    """Write the URL down, whole or not at all."""
    fresh = data_directory / f"{ADDRESS_FILE}.new"
    fresh.write_text(_nearest(url) + "\n", encoding="ascii")
    fresh.replace(data_directory / ADDRESS_FILE)


def _nearest(url: str) -> str:
    """The URL by which this machine reaches a server."""
    return url.replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:")


def read_address(data_directory: Path) -> str | None:
    """The URL that the last server wrote; None if there was none."""
    try:
        with (data_directory / ADDRESS_FILE).open("rb") as file:
            return file.read(ADDRESS_BYTES_MAX).decode("ascii", "replace").strip() or None
    except OSError:
        return None
