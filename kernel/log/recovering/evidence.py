"""What follows a record that does not read: was it synced, and where does the journal go on?

A batch is begun only when the one before it is synced, and its closing record says so. So what
stands behind an unreadable record may prove that it was on the disk. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...common.ports import Disk
from ..errors import FormatError
from ..format.checkpoint import Cut
from ..format.files import segment_name
from ..format.record import BatchEnd, Header, RecordType, decode_batch_end, seed_of
from ..format.segment import HEADER_PAGE_BYTES, SegmentHeader, SegmentKind, decode_segment_header
from ..format.segment_reader import SegmentReader
from ..hard_read import hard_read


class Place(NamedTuple):
    """Where a record stands."""

    segment: int
    offset: int
    header: Header


class Evidence(NamedTuple):
    """What follows an unreadable record."""

    synced: bool
    """It proves that the record was synced."""
    resume: Place | None
    """The next whole record."""


class Lookout:
    """Looks behind unreadable records of a store's journal. OSError, FormatError."""

    def __init__(
        self, disk: Disk, store: bytes, numbers: Sequence[int], cuts: Mapping[int, Cut]
    ) -> None:
        self._disk = disk
        self._store = store
        self._seed = seed_of(store)
        self._numbers = numbers
        self._cuts = cuts

    def header_of(self, number: int) -> SegmentHeader | None:
        """Header of a segment; None if there is none, or it does not read."""
        if number not in self._numbers:
            return None
        file = self._disk.open(segment_name(number))
        try:
            header = decode_segment_header(hard_read(file, HEADER_PAGE_BYTES, 0)[0])
        finally:
            file.close()
        if header is not None and header.store != self._store:
            raise FormatError(f"segment {number} belongs to another store")
        return header

    def first_sequence(self, number: int) -> int:
        """A lower bound of the sequences in a segment, from its header; 0 if that is unreadable."""
        header = self.header_of(number)
        return header.sequence_floor if header is not None else 0

    def is_cut(self, number: int, size: int) -> bool:
        """Whether a file of so many bytes is only the beginning of the segment."""
        header = self.header_of(number)
        return header is not None and size < header.size

    def behind(
        self, number: int, offset: int, reader: SegmentReader | None, bad: int, *, bounded: bool
    ) -> Evidence:
        """What the records behind the unreadable one of sequence `bad` say about it; `reader`: of
        its segment, if that exists; `bounded`: only that is looked at.
        """
        resume: Place | None = None
        batch_end: int | None = None
        for at in self._behind(number, offset, reader, bad, bounded=bounded):
            resume = resume or at[0]
            header, end = at[0].header, at[1]
            if batch_end is not None and header.sequence > batch_end:
                return Evidence(True, resume)
            if end is not None:
                if end.synced >= bad or end.first > bad:
                    return Evidence(True, resume)
                batch_end = header.sequence
        return Evidence(False, resume)

    def _behind(
        self, number: int, offset: int, reader: SegmentReader | None, bad: int, *, bounded: bool
    ) -> Iterator[tuple[Place, BatchEnd | None]]:
        """Whole records behind an unreadable one, with what closing records say."""
        if reader is not None:
            yield from _search(number, offset, reader, bad)
        following = None if bounded else self._following(number)
        while following is not None:
            file = self._disk.open(segment_name(following))
            try:
                size = self._cuts[following].offset if following in self._cuts else file.size()
                reader = SegmentReader(file, size, self._seed)
                yield from _search(following, HEADER_PAGE_BYTES, reader, bad)
            finally:
                file.close()
            following = self._following(following)

    def _following(self, number: int) -> int | None:
        """The next segment there is that may continue the journal: a cut's, else the next normal
        one. A cut may name one that is gone: nothing in it was needed, or it was lost.
        """
        while number in self._cuts:
            number = self._cuts[number].next
            if number in self._numbers:
                return number
        for candidate in self._numbers:
            if candidate > number:
                header = self.header_of(candidate)
                if header is None or header.kind == SegmentKind.NORMAL:
                    return candidate
        return None


def _search(
    number: int, offset: int, reader: SegmentReader, bad: int
) -> Iterator[tuple[Place, BatchEnd | None]]:
    for at, header in reader.search(offset, bad):
        closing = header.type == RecordType.BATCH_END
        end = decode_batch_end(reader.body(at, header)) if closing else None
        yield Place(number, at, header), end
