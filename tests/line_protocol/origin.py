"""The byte in a stored message that says that the line protocol wrote it: on disk, so for ever."""

from __future__ import annotations

from typing import Final

ORIGIN_BYTE: Final = 200
