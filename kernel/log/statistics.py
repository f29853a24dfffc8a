"""Counters and sizes of a journal, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SegmentStatistics:
    """One segment. `live_bytes` is an estimate: length of each entry by its live share."""

    number: int
    size_bytes: int
    end: int
    live_entries: int
    live_bytes: int
    sealed: bool


@dataclass(frozen=True, slots=True)
class JournalStatistics:
    """Counters since start; sizes in bytes as of now."""

    segments: int
    ready_segments: int
    bytes_on_disk: int
    """Of segments in use, allocated; the ready ones come on top."""
    live_bytes: int
    live_entries: int
    entries_in_memory: int
    """Indexes with room in the location table, 20 bytes each."""
    records_written: int
    bytes_written: int
    syncs: int
    synced_sequence: int
    pending_bytes: int
    cache_bytes: int
    cold_bytes: int
    cache_hits: int
    cold_hits: int
    cache_misses: int
    rewrites: int
    rewritten_bytes: int
    can_accept: bool
