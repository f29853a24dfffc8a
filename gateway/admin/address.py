"""Where the admin API of a data directory's server listens: for commands on the same machine.

DATA/admin.url    one line, written at every start; a server that is gone leaves it behind
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ADDRESS_FILE = "admin.url"

ADDRESS_BYTES_MAX = 512
"""Longer than any scheme, host name and port."""


def write_address(data_directory: Path, url: str) -> None:
    """Write the URL down, whole or not at all."""
    fresh = data_directory / f"{ADDRESS_FILE}.new"
    fresh.write_text(url + "\n", encoding="ascii")
    fresh.replace(data_directory / ADDRESS_FILE)


def read_address(data_directory: Path) -> str | None:
    """The URL that the last server wrote; None if there was none."""
    try:
        with (data_directory / ADDRESS_FILE).open("rb") as file:
            return file.read(ADDRESS_BYTES_MAX).decode("ascii", "replace").strip() or None
    except OSError:
        return None
