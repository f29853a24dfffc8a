"""Counters and sizes of a journal, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .locations import Locations
    from .reading.bodies import Bodies
    from .reclaiming.space import Space
    from .writer import Writer


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


def segments_of(locations: Locations) -> list[SegmentStatistics]:
    """Each segment, oldest first."""
    return [
        SegmentStatistics(
            each.number, each.size, each.end, each.live_entries, each.live_bytes, each.sealed
        )
        for each in sorted(locations.segments.values(), key=lambda each: each.number)
    ]


def statistics_of(
    locations: Locations, writer: Writer, space: Space, bodies: Bodies
) -> JournalStatistics:
    """Figures of a journal that is made of these."""
    segments = locations.segments
    return JournalStatistics(
        segments=len(segments),
        ready_segments=writer.ready_segments,
        bytes_on_disk=sum(segment.size for segment in segments.values()),
        live_bytes=sum(segment.live_bytes for segment in segments.values()),
        live_entries=sum(segment.live_entries for segment in segments.values()),
        entries_in_memory=locations.entries_in_memory(),
        records_written=writer.records,
        bytes_written=writer.bytes_written,
        syncs=writer.syncs,
        synced_sequence=writer.synced_sequence,
        pending_bytes=writer.pending_bytes,
        cache_bytes=bodies.tail.bytes_held,
        cold_bytes=bodies.cold.bytes_held,
        cache_hits=bodies.hits,
        cold_hits=bodies.cold_hits,
        cache_misses=bodies.misses,
        rewrites=space.rewrites,
        rewritten_bytes=space.rewritten_bytes,
        can_accept=writer.can_accept,
    )
