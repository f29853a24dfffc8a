"""Sizes of a journal, and what its owner puts up with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """Sizes of a journal."""

    segment_bytes: int = 64 * 1024 * 1024
    reserve_bytes: int = 8 * 1024 * 1024
    """The segment kept for settlements on a full disk: 300,000 acks of single messages, and as much
    less to keep ready than a whole segment."""
    long_bytes: int = 4 * 1024 * 1024
    """Groups with little to write go before a batch of more: a disk of 250 MB/s takes 16 ms for it,
    and half a millisecond for one more batch."""
    cache_bytes: int = 256 * 1024 * 1024
    cold_bytes: int = 16 * 1024 * 1024
    rewrite_share: float = 0.34
    """A segment with a smaller live share may be rewritten: a third, since a journal of more than
    three times its live bytes (`housekeeper.SPARSE_FACTOR`) always has such a segment."""
    accept_damage: bool = False
    """Open although groups lost synced data; they are named in `Recovered.damaged`."""
