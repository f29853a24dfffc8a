"""Where each entry stands: (group, index) to segment, offset, length and references, packed.

Entries are kept in chunks of 1,024 indexes, each four arrays: 8 bytes an entry and no object, or up
to 20 where a chunk has values that are too large for that.

    position   u32 or u64   segment << 30 | offset / 8, less the chunk's base; 0: it is not placed
    length     u16 or u32   of the record
    live       u8 or u32    references that still hold the entry
    total      u8 or u32    references it ever had

A chunk goes when nothing in it is held any more and all of it stands below its group's mark (the
index that a durable snapshot has applied). So memory follows what is live, not what is on disk,
and one message that nobody takes keeps one chunk.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from .errors import JournalError
from .format.segment import Segment

CHUNK_SHIFT = 10
CHUNK_ENTRIES = 1 << CHUNK_SHIFT
CHUNK_MASK = CHUNK_ENTRIES - 1
SEGMENT_SHIFT = 30
OFFSET_MASK = (1 << SEGMENT_SHIFT) - 1

Weighed = tuple[int, int, int, int]
"""(group, index, offset in its segment, references it had) of an entry."""

NOTHING: Mapping[int, int] = MappingProxyType({})

_ZEROS = bytes(4 * CHUNK_ENTRIES)
_NARROW_POSITION = (1 << 32) - 1
_NARROW_LENGTH = (1 << 16) - 1
_NARROW_COUNT = (1 << 8) - 1


def pack_position(segment: int, offset: int) -> int:
    """One integer for a place; offsets are multiples of 8."""
    return segment << SEGMENT_SHIFT | offset >> 3


class Chunk:
    """1,024 consecutive indexes of a group."""

    __slots__ = ("_base", "_positions", "held", "lengths", "live", "total")

    def __init__(self) -> None:
        self._base = -1
        """Before the first that was placed; -1: none was. Entries mostly stand one behind another,
        so that the others are not far from it.
        """
        self._positions = array("I", _ZEROS)
        self.lengths = array("H", _ZEROS[: 2 * CHUNK_ENTRIES])
        self.live = array("B", _ZEROS[:CHUNK_ENTRIES])
        self.total = array("B", _ZEROS[:CHUNK_ENTRIES])
        self.held = 0
        """Entries with a live reference."""

    def position(self, slot: int) -> int:
        """Packed position; 0: the entry is not placed."""
        behind = self._positions[slot]
        return behind + self._base if behind else 0

    def put(self, slot: int, position: int, length: int) -> None:
        """The entry stands there (hot)."""
        if self._base < 0:
            self._base = position - 1
        if not 0 < position - self._base <= _NARROW_POSITION and self._positions.itemsize == 4:
            self._positions = array("Q", map(self.position, range(CHUNK_ENTRIES)))
            self._base = 0
        if length > _NARROW_LENGTH and self.lengths.itemsize == 2:
            self.lengths = array("I", self.lengths.tolist())
        self._positions[slot] = position - self._base
        self.lengths[slot] = length

    def forget(self, slot: int) -> None:
        """The entry stands nowhere."""
        self._positions[slot] = 0

    def count(self, slot: int, live: int, total: int) -> None:
        """So many references hold the entry, of so many that it had: `live` <= `total` (hot)."""
        if total > _NARROW_COUNT and self.total.itemsize == 1:
            self.live = array("I", self.live.tolist())
            self.total = array("I", self.total.tolist())
        self.live[slot] = live
        self.total[slot] = total


class Locations:
    """All entries of all groups, and how much of each segment they hold."""

    def __init__(self) -> None:
        self.segments: dict[int, Segment] = {}
        self._groups: dict[int, dict[int, Chunk]] = {}
        self._marks: dict[int, int] = {}
        self._swept: dict[int, int] = {}

    def add_segment(self, segment: Segment) -> None:
        """A segment that entries may be placed in."""
        self.segments[segment.number] = segment

    def place(self, group: int, index: int, position: int, length: int) -> None:
        """The entry stands at `position` now. Hot: once per entry written."""
        chunks = self._groups.get(group)
        if chunks is None:
            chunks = self._groups[group] = {}
        chunk = chunks.get(index >> CHUNK_SHIFT)
        if chunk is None:
            chunk = chunks[index >> CHUNK_SHIFT] = Chunk()
        slot = index & CHUNK_MASK
        if chunk.live[slot]:
            self._account(chunk, slot, -1)
        chunk.put(slot, position, length)
        if chunk.live[slot]:
            self._account(chunk, slot, 1)

    def position(self, group: int, index: int) -> int:
        """Packed position; 0 if the entry is unknown or not placed."""
        chunks = self._groups.get(group)
        if chunks is None:
            return 0
        chunk = chunks.get(index >> CHUNK_SHIFT)
        return chunk.position(index & CHUNK_MASK) if chunk is not None else 0

    def has(self, group: int, index: int) -> bool:
        """Whether the entry is placed in a segment that is still there."""
        return self.position(group, index) >> SEGMENT_SHIFT in self.segments

    def reaches(self, group: int, index: int) -> bool:
        """Whether the entry is placed, and the file of its segment reaches as far."""
        chunk = self._groups.get(group, {}).get(index >> CHUNK_SHIFT)
        if chunk is None:
            return False
        slot = index & CHUNK_MASK
        position = chunk.position(slot)
        segment = self.segments.get(position >> SEGMENT_SHIFT)
        end = ((position & OFFSET_MASK) << 3) + chunk.lengths[slot]
        return segment is not None and end <= segment.size

    def locate(self, group: int, index: int) -> tuple[Segment, int, int]:
        """(segment, offset, record length). JournalError if the journal does not hold the entry."""
        chunk = self._chunk(group, index)
        slot = index & CHUNK_MASK
        position = chunk.position(slot)
        segment = self.segments.get(position >> SEGMENT_SHIFT)
        if not position or segment is None:
            raise JournalError(f"entry {index} of group {group} is not in the journal")
        return segment, (position & OFFSET_MASK) << 3, chunk.lengths[slot]

    def retain(self, group: int, index: int, references: int) -> None:
        """The entry is held by so many references more. JournalError if it is unknown."""
        if references <= 0:
            return
        chunk = self._chunk(group, index, create=True)
        slot = index & CHUNK_MASK
        live = chunk.live[slot]
        position = chunk.position(slot)
        if position:
            if position >> SEGMENT_SHIFT not in self.segments:
                raise JournalError(f"entry {index} of group {group} is no more in the journal")
            if live:
                self._account(chunk, slot, -1)
        if not live:
            chunk.held += 1
        chunk.count(slot, live + references, chunk.total[slot] + references)
        if position:
            self._account(chunk, slot, 1)

    def release(self, group: int, index: int, references: int) -> bool:
        """So many references died; True if none is left. JournalError if there were not so many.

        Hot: once per entry and loop turn that settles messages of it.
        """
        chunks = self._groups.get(group)
        chunk = chunks.get(index >> CHUNK_SHIFT) if chunks is not None else None
        if chunk is None:
            raise JournalError(f"entry {index} of group {group} is not in the journal")
        slot = index & CHUNK_MASK
        live = chunk.live[slot]
        left = live - references
        if left < 0:
            raise JournalError(
                f"{references} references to entry {index} of group {group} released, it has {live}"
            )
        position = chunk.position(slot)
        segment = self.segments[position >> SEGMENT_SHIFT] if position else None
        chunk.live[slot] = left
        if segment is not None:
            length = chunk.lengths[slot]
            total = chunk.total[slot]
            segment.live_bytes += length * left // total - length * live // total
        if left or not references:
            return False
        if segment is not None:
            segment.live_entries -= 1
        chunk.held -= 1
        if not chunk.held:
            self._drop_if_dead(group, index >> CHUNK_SHIFT, chunk)
        return True

    def is_live(self, group: int, index: int, position: int) -> bool:
        """Whether the entry stands at just that position and is held."""
        chunks = self._groups.get(group)
        chunk = chunks.get(index >> CHUNK_SHIFT) if chunks is not None else None
        if chunk is None:
            return False
        slot = index & CHUNK_MASK
        return chunk.position(slot) == position and chunk.live[slot] > 0

    def is_held(self, group: int, index: int) -> bool:
        """Whether something refers to the entry, and it stands in a segment that is there."""
        position = self.position(group, index)
        there = bool(position) and position >> SEGMENT_SHIFT in self.segments
        return there and self.is_live(group, index, position)

    def stands_in(self, group: int, index: int, segment: int) -> bool:
        """Whether the entry is held, and stands in that segment."""
        position = self.position(group, index)
        return position >> SEGMENT_SHIFT == segment and self.is_live(group, index, position)

    def move(self, group: int, index: int, source: int, position: int, length: int) -> None:
        """A rewrite of the entry counts from now on, if the entry is held and still in `source`.

        What the rewrite left out was dead, so the references of before are its whole total.
        """
        chunks = self._groups.get(group)
        chunk = chunks.get(index >> CHUNK_SHIFT) if chunks is not None else None
        if chunk is None:
            return
        slot = index & CHUNK_MASK
        if not chunk.live[slot] or chunk.position(slot) >> SEGMENT_SHIFT != source:
            return
        self._account(chunk, slot, -1)
        chunk.put(slot, position, length)
        chunk.count(slot, chunk.live[slot], chunk.live[slot])
        self._account(chunk, slot, 1)

    def large(self, length_min: int) -> Iterator[tuple[int, int, int, int]]:
        """(group, index, segment, offset) of every held entry whose record is so long."""
        for group, chunks in self._groups.items():
            for number, chunk in chunks.items():
                if not chunk.held or max(chunk.lengths) < length_min:
                    continue
                first = number << CHUNK_SHIFT
                for slot, length in enumerate(chunk.lengths):
                    position = chunk.position(slot)
                    if length >= length_min and chunk.live[slot] and position:
                        offset = (position & OFFSET_MASK) << 3
                        yield group, first + slot, position >> SEGMENT_SHIFT, offset

    def weigh(self, segment: int, found: Sequence[Weighed]) -> None:
        """So many references these entries of a segment had; what was moved meanwhile is left."""
        for group, index, offset, references in found:
            chunk = self._groups.get(group, {}).get(index >> CHUNK_SHIFT)
            slot = index & CHUNK_MASK
            if chunk is None or chunk.position(slot) != pack_position(segment, offset):
                continue
            if chunk.live[slot]:
                self._account(chunk, slot, -1)
                chunk.count(slot, chunk.live[slot], max(chunk.total[slot], references))
                self._account(chunk, slot, 1)

    def drop(self, group: int, but: Mapping[int, int] = NOTHING) -> None:
        """Forget everything of a group: a snapshot takes its place. Entries in `but` stay, and are
        held by so many references from now on. JournalError if one of them is not held.
        """
        chunks = self._groups.pop(group, {})
        kept = {index >> CHUNK_SHIFT for index in but}
        left = len(but)
        for number, chunk in chunks.items():
            first = number << CHUNK_SHIFT
            for slot in range(CHUNK_ENTRIES):
                live, references = chunk.live[slot], but.get(first + slot, 0)
                left -= live > 0 and references > 0
                if live and live != references:
                    self._account(chunk, slot, -1)
                    chunk.count(slot, references, max(references, chunk.total[slot]))
                    if references:
                        self._account(chunk, slot, 1)
                        continue
                    chunk.held -= 1
                if not references:
                    chunk.forget(slot)
                    chunk.total[slot] = 0
        if left:
            raise JournalError(f"{left} entries of group {group} are held no more")
        if kept:
            self._groups[group] = {number: chunks[number] for number in kept}
        self._marks.pop(group, None)
        self._swept.pop(group, None)

    def truncate(self, group: int, index: int) -> None:
        """Forget the group's entries from `index` on: another leader's replace them."""
        for number, chunk in self._groups.get(group, {}).items():
            first = number << CHUNK_SHIFT
            for slot in range(max(0, index - first), CHUNK_ENTRIES):
                if chunk.live[slot]:
                    raise JournalError(
                        f"entry {first + slot} of group {group} is applied and cannot be replaced"
                    )
                chunk.forget(slot)

    def checkpointed(self, group: int, index: int) -> None:
        """A durable snapshot has applied the group up to `index`: drop what nothing holds."""
        if index <= self._marks.get(group, -1):
            return
        self._marks[group] = index
        self.sweep(group)

    def sweep(self, group: int) -> None:
        """Drop the group's chunks that are wholly below its mark and held by nothing."""
        chunks = self._groups.get(group)
        if chunks is None:
            return
        end = (self._marks.get(group, -1) + 1) >> CHUNK_SHIFT
        start = self._swept.get(group)
        self._swept[group] = end
        numbers = range(start, end) if start is not None else [n for n in chunks if n < end]
        for number in numbers:
            chunk = chunks.get(number)
            if chunk is not None and not chunk.held:
                del chunks[number]

    def entries_in_memory(self) -> int:
        """Indexes that the chunks have room for: times 8 to 20 bytes is the memory they take."""
        return sum(len(chunks) for chunks in self._groups.values()) * CHUNK_ENTRIES

    def held(self) -> Iterator[tuple[int, int]]:
        """(group, index) of every entry with a live reference. Slow: for tests and tools."""
        for group, chunks in self._groups.items():
            for number, chunk in chunks.items():
                for slot in range(CHUNK_ENTRIES):
                    if chunk.live[slot]:
                        yield group, (number << CHUNK_SHIFT) + slot

    def _chunk(self, group: int, index: int, *, create: bool = False) -> Chunk:
        chunks = self._groups.get(group)
        chunk = chunks.get(index >> CHUNK_SHIFT) if chunks is not None else None
        if chunk is None:
            if not create or index <= self._marks.get(group, -1):
                raise JournalError(f"entry {index} of group {group} is not in the journal")
            chunk = Chunk()
            self._groups.setdefault(group, {})[index >> CHUNK_SHIFT] = chunk
        return chunk

    def _account(self, chunk: Chunk, slot: int, sign: int) -> None:
        """Add (1) or take (-1) a held entry's share of its segment."""
        segment = self.segments.get(chunk.position(slot) >> SEGMENT_SHIFT)
        if segment is not None:
            segment.live_entries += sign
            share = chunk.lengths[slot] * chunk.live[slot] // chunk.total[slot]
            segment.live_bytes += sign * share

    def _drop_if_dead(self, group: int, number: int, chunk: Chunk) -> None:
        if (number + 1 << CHUNK_SHIFT) - 1 <= self._marks.get(group, -1) and not chunk.held:
            del self._groups[group][number]
