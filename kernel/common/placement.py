"""Which Raft group defines a thing."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from .ids import RaftGroup


def home_group(groups: Sequence[RaftGroup], tenant: str, name: str) -> RaftGroup:
    """Group that holds the definition of a name: the same on every node, for ever."""
    return groups[crc32(f"{tenant}\0{name}".encode()) % len(groups)]
