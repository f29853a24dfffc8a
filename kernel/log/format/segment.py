r"""Segments: the files of the journal, each a 4 KiB header page and then records.

    bytes 0..8     magic "WEIRSEG\n"
    u32 version | u32 kind | 16 bytes store id | u64 number | u64 size | u64 sequence floor
    u32 crc32c of all before it | zeros up to 4096

The header is written once, when the segment is prepared, and never again. Records follow from
offset 4096 without gaps; a PAD record ends the segment, or a cut that the checkpoint names (after
an unclean end). Behind the last record a segment reads as zeros: it is allocated as a new file and
nothing in it is ever written twice. Recovery leans on that to tell a torn write from a flipped bit.

A segment of kind RECOVERED was begun by recovery; it counts once the checkpoint names it.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from crc32c import crc32c

from ...common.ports import Disk, File
from ..errors import FormatError
from .files import JOURNAL_DIRECTORY, NO_SPACE, segment_name, write_all

HEADER_PAGE_BYTES = 4096
TAIL_BYTES = 4096
"""Kept free at the end of a segment: a batch's closing record (under 4,000 bytes with
BATCH_GROUPS_MAX groups) and the PAD always fit, so neither ever needs a segment of its own."""

SEGMENT_BYTES_MIN = 16 * 1024
MAGIC = b"WEIRSEG\n"
VERSION = 1
_HEADER = struct.Struct("<8sII16sQQQ")
_SUM = struct.Struct("<I")


class SegmentKind(IntEnum):
    """How a segment came to be; the numbers are on disk."""

    NORMAL = 0
    RECOVERED = 1


class Segment:
    """What the journal knows of one segment: about 150 bytes, one per 64 MiB of data."""

    __slots__ = (
        "end",
        "file",
        "headers",
        "live_bytes",
        "live_entries",
        "number",
        "readers",
        "sealed",
        "size",
        "synced_end",
    )

    def __init__(self, number: int, size: int, file: File | None = None) -> None:
        self.number = number
        self.size = size
        """Bytes on disk."""
        self.end = HEADER_PAGE_BYTES
        """Where the next record goes; behind the last record once sealed."""
        self.synced_end = HEADER_PAGE_BYTES
        self.file = file
        """Open while it may be written."""
        self.sealed = False
        self.live_entries = 0
        """Entries with at least one live reference."""
        self.live_bytes = 0
        """Estimate: length of each entry by its share of live references."""
        self.readers = 0
        """Reads in progress: the file must not go."""
        self.headers: bytearray | None = bytearray()
        """Headers of all records, for the location file; None once that is written."""

    @property
    def limit(self) -> int:
        """Offset that no record but the closing ones may reach beyond."""
        return self.size - TAIL_BYTES


def segment_bytes_for(record_bytes: int, segment_bytes: int) -> int:
    """Size of a segment that takes a record of so many (padded) bytes."""
    needed = HEADER_PAGE_BYTES + record_bytes + TAIL_BYTES
    return max(segment_bytes, (needed + 4095) & -4096)


def encode_segment_header(
    kind: SegmentKind, store: bytes, number: int, size: int, sequence_floor: int
) -> bytes:
    """The header page."""
    head = _HEADER.pack(MAGIC, VERSION, kind, store, number, size, sequence_floor)
    return (head + _SUM.pack(crc32c(head))).ljust(HEADER_PAGE_BYTES, b"\0")


class SegmentHeader:
    """Decoded header page."""

    __slots__ = ("kind", "number", "sequence_floor", "size", "store")

    def __init__(self, kind: int, store: bytes, number: int, size: int, floor: int) -> None:
        self.kind = kind
        self.store = store
        self.number = number
        self.size = size
        self.sequence_floor = floor
        """No record here has a lower sequence."""


def decode_segment_header(page: bytes) -> SegmentHeader | None:
    """The header, None if the page does not match its sum. FormatError: a newer version."""
    if len(page) < _HEADER.size + _SUM.size or not page.startswith(MAGIC):
        return None
    if _SUM.unpack_from(page, _HEADER.size)[0] != crc32c(page[: _HEADER.size]):
        return None
    _magic, version, kind, store, number, size, floor = _HEADER.unpack_from(page)
    if version != VERSION:
        raise FormatError(f"segment {number} has format version {version}, this Weir knows 1")
    return SegmentHeader(kind, store, number, size, floor)


def create_segment(
    disk: Disk, kind: SegmentKind, store: bytes, number: int, size: int, sequence_floor: int
) -> File:
    """Allocate a segment file and sync its header and its name. Blocking.

    OSError; for want of space (NO_SPACE) the half-made file is gone again.
    """
    file = disk.open(segment_name(number), create=True)
    try:
        file.allocate(size)
        page = encode_segment_header(kind, store, number, size, sequence_floor)
        write_all(file, [page], 0)
        file.fdatasync()
        disk.sync_directory(JOURNAL_DIRECTORY)
    except OSError as error:
        file.close()
        if error.errno in NO_SPACE:
            disk.remove(segment_name(number))
        raise
    return file
