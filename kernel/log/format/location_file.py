"""`NNNNNNNN.loc`: the headers of all records of a sealed segment, so that neither a start nor
a rewrite need read all of it.

    8 bytes magic | u64 segment | u64 bytes of headers | u32 crc32c of them, seeded | headers

Offsets follow from the lengths. The file is a cache: it is written once, when the segment is
sealed, and never synced; missing or damaged, the segment is scanned instead.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from ...common.ports import Disk
from ..hard_read import is_unread
from ..locations import pack_position
from .files import locations_name, read_all, write_all
from .record import ENTRIES, HEADER, Header
from .segment import HEADER_PAGE_BYTES, Segment

MAGIC = b"WEIRLOCS"
_HEAD = struct.Struct("<8sQQI")


class LocationFileJob:
    """Writes the location file of a sealed segment. `run` belongs to a thread."""

    __slots__ = ("_disk", "_headers", "_seed", "segment")

    def __init__(self, disk: Disk, segment: Segment, headers: bytes, seed: int) -> None:
        self._disk = disk
        self._headers = headers
        self._seed = seed
        self.segment = segment

    def run(self) -> None:
        """Thread: one write. OSError."""
        number = self.segment.number
        head = _HEAD.pack(MAGIC, number, len(self._headers), crc32c(self._headers, self._seed))
        file = self._disk.open(locations_name(number), create=True)
        try:
            write_all(file, [head, self._headers], 0)
        finally:
            file.close()


def read_location_file(disk: Disk, number: int, seed: int) -> Iterator[tuple[int, Header]] | None:
    """(offset, header) of each record, None if there is no whole location file that reads."""
    try:
        content = read_all(disk, locations_name(number))
    except OSError as error:
        if not is_unread(error):
            raise
        return None
    if content is None or len(content) < _HEAD.size:
        return None
    magic, segment, length, checksum = _HEAD.unpack_from(content)
    headers = content[_HEAD.size : _HEAD.size + length]
    if magic != MAGIC or segment != number or len(headers) != length:
        return None
    if length % HEADER.size or crc32c(headers, seed) != checksum:
        return None
    return _rows(headers)


def _rows(headers: bytes) -> Iterator[tuple[int, Header]]:
    offset = HEADER_PAGE_BYTES
    for row in HEADER.iter_unpack(headers):
        header = Header._make(row)
        yield offset, header
        offset += header.padded


class RecordPlace(NamedTuple):
    """Where an entry stands in a segment."""

    entry: tuple[int, int, int]
    """(group, index, packed position)."""
    offset: int
    end: int


class PlacesRead:
    """Reads where the entries of a segment stand. `run` belongs to a thread."""

    __slots__ = ("_disk", "_number", "_seed", "places")

    def __init__(self, disk: Disk, seed: int, segment: Segment) -> None:
        self._disk = disk
        self._seed = seed
        self._number = segment.number
        self.places: list[RecordPlace] | None = None
        """None: there is no whole location file."""

    def run(self) -> None:
        """Thread: one read. OSError."""
        rows = read_location_file(self._disk, self._number, self._seed)
        if rows is not None:
            self.places = [
                RecordPlace(
                    (header.group, header.log_index, pack_position(self._number, offset)),
                    offset,
                    offset + header.padded,
                )
                for offset, header in rows
                if header.type in ENTRIES
            ]
