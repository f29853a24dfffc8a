"""The location table: memory follows what is live."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from kernel.log.errors import JournalError
from kernel.log.format.segment import Segment
from kernel.log.locations import CHUNK_ENTRIES, Locations, pack_position

ENTRIES = 100_000


def filled(entries: int = ENTRIES) -> Locations:
    """Entries of group 1 with a reference each, 10,000 to a segment."""
    locations = Locations()
    for index in range(1, entries + 1):
        number = index // 10_000 + 1
        if number not in locations.segments:
            locations.add_segment(Segment(number, 1 << 26))
        position = pack_position(number, 4096 + index % 10_000 * 1000)
        locations.place(1, index, position, 1000)
        locations.retain(1, index, 1)
    return locations


def test_an_entry_takes_under_12_bytes() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        locations = filled()
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used / ENTRIES < 12
    assert locations.locate(1, ENTRIES)[2] == 1000


def test_a_stuck_entry_keeps_one_chunk() -> None:
    locations = filled()
    for index in range(1, ENTRIES + 1):
        if index != 5:
            assert locations.release(1, index, 1)
    locations.checkpointed(1, ENTRIES)
    assert locations.entries_in_memory() <= 2 * CHUNK_ENTRIES
    assert list(locations.held()) == [(1, 5)]
    assert [s.live_entries for s in locations.segments.values()] == [1] + [0] * 10
    assert locations.locate(1, 5)[1] == 4096 + 5 * 1000


def test_chunks_stay_until_the_checkpoint() -> None:
    locations = filled(5000)
    for index in range(1, 5001):
        locations.release(1, index, 1)
    assert locations.locate(1, 17)[0].number == 1
    locations.checkpointed(1, 4000)
    with pytest.raises(JournalError):
        locations.locate(1, 17)
    assert locations.locate(1, 4500)[0].number == 1
    locations.checkpointed(1, 3000)  # never back
    locations.checkpointed(1, 5119)
    assert locations.entries_in_memory() == 0


def test_a_chunk_below_the_mark_goes_with_its_last_reference() -> None:
    locations = filled(3000)
    locations.checkpointed(1, 3000)
    before = locations.entries_in_memory()
    for index in range(1024, 2048):
        locations.release(1, index, 1)
    assert locations.entries_in_memory() == before - CHUNK_ENTRIES
    with pytest.raises(JournalError, match="not in the journal"):
        locations.retain(1, 1500, 1)


def test_estimates_add_up() -> None:
    locations = filled(100)
    segment = locations.segments[1]
    locations.retain(1, 7, 2)
    assert segment.live_bytes == 100 * 1000
    locations.release(1, 7, 1)
    assert segment.live_bytes == 99 * 1000 + 666
    locations.place(1, 7, pack_position(1, 8), 600)
    assert segment.live_bytes == 99 * 1000 + 400
    for index in range(1, 101):
        locations.release(1, index, 2 if index == 7 else 1)
    assert (segment.live_bytes, segment.live_entries) == (0, 0)


def test_applied_entries_are_never_replaced() -> None:
    locations = filled(10)
    with pytest.raises(JournalError, match="is applied"):
        locations.truncate(1, 5)


def test_what_is_too_large_for_a_narrow_chunk_is_kept_as_well() -> None:
    """Long records, many references, segments far from each other, in any order."""
    rng = random.Random(7)
    locations = Locations()
    kept: dict[int, tuple[int, int, int, int]] = {}
    for number in range(1, 40):
        locations.add_segment(Segment(number * 1_000_003, 1 << 30))
    segments = list(locations.segments)
    for _ in range(20_000):
        index = rng.randrange(1, 3 * CHUNK_ENTRIES)
        number = rng.choice(segments[: 1 + index // 300])
        offset = 8 * rng.randrange(512, 1 << 20)
        length = rng.choice((100, 65_535, 65_536, 1 << 24))
        more = rng.choice((1, 254, 255, 256, 100_000))
        locations.place(1, index, pack_position(number, offset), length)
        _, _, _, live = kept.get(index, (0, 0, 0, 0))
        if not live or rng.random() < 0.2:
            locations.retain(1, index, more)
            live += more
        elif rng.random() < 0.5:
            locations.release(1, index, live)
            live = 0
        kept[index] = (number, offset, length, live)
    for index, (number, offset, length, live) in kept.items():
        segment, at, found = locations.locate(1, index)
        assert (segment.number, at, found) == (number, offset, length)
        assert locations.is_live(1, index, pack_position(number, offset)) == bool(live)
    held = {index for index, row in kept.items() if row[3]}
    assert {index for _, index in locations.held()} == held
    live_entries = sum(segment.live_entries for segment in locations.segments.values())
    assert live_entries == len(held)
