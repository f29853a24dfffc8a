"""Bytes that wait for the rest of what they belong to."""

from __future__ import annotations

from typing import Final

CHUNK_BYTES: Final = 4_096
"""Chunks that are kept have at least so many bytes: as objects of one byte each they would take
forty times as much memory."""


def keep_chunk(chunks: list[bytes], data: bytes) -> None:
    """Keep what a read brought behind what came before: small pieces as one."""
    if chunks and len(chunks[-1]) < CHUNK_BYTES:
        chunks[-1] += data
    else:
        chunks.append(data)
