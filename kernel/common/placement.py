"""Which Raft group defines a thing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from zlib import crc32

from .ids import ADDED_FIRST, METADATA_GROUP, RaftGroup


def home_groups(groups: Iterable[RaftGroup]) -> list[RaftGroup]:
    """Of a cluster's groups those that define names, in order: the ones that it began with. Groups
    that are added later hold queues only, so that no name ever gets another home (ADR 30).
    """
    return sorted(each for each in groups if METADATA_GROUP < each < ADDED_FIRST)


def home_group(homes: Sequence[RaftGroup], tenant: str, name: str) -> RaftGroup:
    """Group that holds the definition of a name: the same on every node, for ever. `homes`: see
    `home_groups`.
    """
    return homes[crc32(f"{tenant}\0{name}".encode()) % len(homes)]
