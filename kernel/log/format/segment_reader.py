"""Reading a segment record by record, and looking hard at what does not read.

Recovery, the reader of cold entries and the rewrite share this; nothing here changes anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...common.ports import File
from ..hard_read import Stretch, hard_read, is_unread
from .record import (
    HEADER_BYTES,
    NODE_SUMMED_BYTES,
    Header,
    check_known,
    decode_header,
    is_whole,
)

WINDOW_BYTES = 1024 * 1024
SECTOR_BYTES = 512
"""What a disk writes whole or not at all."""

_ZEROS = bytes(WINDOW_BYTES)
"""Compared with where nothing is near: ten times as fast as the pattern over an empty segment."""

_NEAR_BYTES = 4096
"""Between records and in damaged ones the next byte that is not zero is near."""

_NOT_ZERO = re.compile(rb"[^\0]")


class SegmentReader:
    """Reads through a window of 1 MiB (or of one record, if that is longer)."""

    def __init__(
        self,
        file: File,
        end: int,
        seed: int,
        window_bytes: int = WINDOW_BYTES,
        *,
        hard: bool = True,
    ) -> None:
        """`hard`: where a read brings an error, or less than was asked for, try page by page."""
        self._file = file
        self.end = end
        """Nothing is read behind it."""
        self._seed = seed
        self._window_bytes = window_bytes
        self._hard = hard
        self._window = b""
        self._at = 0
        self._unread: Sequence[Stretch] = ()
        """Of the window, what the disk does not read: no sum matches it."""

    def record(self, offset: int) -> Header | None:
        """Header of the record at `offset` if all of it is whole. OSError, FormatError."""
        header = self.node_part(offset)
        if header is None or offset + header.length > self.end:
            return None
        self._cover(offset, header.length)
        if not is_whole(memoryview(self._window), header, offset - self._at):
            return None
        check_known(header)
        return header

    def node_part(self, offset: int) -> Header | None:
        """Header at `offset` if its node part is whole; says nothing of leader part and body."""
        self._cover(offset, HEADER_BYTES)
        return decode_header(self._window, offset - self._at, self._seed)

    def body(self, offset: int, header: Header) -> bytes:
        """Body of the record at `offset`."""
        self._cover(offset, header.length)
        at = offset - self._at
        return self._window[at + HEADER_BYTES : at + header.length]

    def raw(self, offset: int, length: int) -> bytes:
        """What stands there, whatever it is; fewer bytes at the end."""
        self._cover(offset, length)
        return self._window[offset - self._at : offset - self._at + length]

    def unread(self, offset: int, length: int) -> Sequence[Stretch]:
        """What the disk does not read of [offset, offset + length)."""
        self._cover(offset, length)
        end = offset + length
        return [
            (max(one[0], offset), min(one[1], end))
            for one in self._unread
            if one[0] < end and offset < one[1]
        ]

    def unread_at(self, offset: int) -> int | None:
        """Where the disk ceases to read the record at `offset`; None if it reads all of it."""
        header = self.node_part(offset)
        found = self.unread(offset, header.length if header is not None else HEADER_BYTES)
        return found[0][0] if found else None

    def header_bytes(self, offset: int) -> bytes:
        """The encoded header of the record at `offset`."""
        self._cover(offset, HEADER_BYTES)
        return self._window[offset - self._at : offset - self._at + HEADER_BYTES]

    def records(self, offset: int) -> Iterator[tuple[int, Header]]:
        """Whole records from `offset` on, up to the first that is not."""
        while (header := self.record(offset)) is not None:
            yield offset, header
            offset += header.padded

    def search(self, offset: int, above: int) -> Iterator[tuple[int, Header]]:
        """Every whole record from `offset` on with a sequence above, wherever it starts.

        Slow where there is much that is neither zero nor a record: 0.3 s a MiB, after damage only.
        """
        while True:
            header = self.record(offset)
            if header is not None and header.sequence > above:
                yield offset, header
                offset += header.padded
                continue
            candidate = self._next_not_zero(offset + 8)
            if candidate is None:
                return
            offset = candidate

    def may_be_torn(self, offset: int) -> bool:
        """Whether the unreadable record at `offset` can be a write that power loss cut short.

        Its place read as zeros before, and a disk writes whole sectors. So if every sector that it
        reaches into holds something, all of it was written, and what does not match its sum was
        changed since. What the disk does not read may be anything.
        """
        if self.unread_at(offset) is not None:
            return False
        header = self.node_part(offset)
        if header is None:
            return self._has_zero_sector(offset, NODE_SUMMED_BYTES)
        if offset + header.length > self.end:
            return False
        return self._has_zero_sector(offset, header.length)

    def _has_zero_sector(self, offset: int, length: int) -> bool:
        end = min(offset + length, self.end)
        if end <= offset:
            return True
        self._cover(offset, length)
        while offset < end:
            upto = min(end, (offset // SECTOR_BYTES + 1) * SECTOR_BYTES)
            if not any(self._window[offset - self._at : upto - self._at]):
                return True
            offset = upto
        return False

    def _next_not_zero(self, offset: int) -> int | None:
        """First multiple of 8 from `offset` on whose 8 bytes are not all zero."""
        while offset < self.end:
            self._cover(offset, 8)
            at = offset - self._at
            found = _NOT_ZERO.search(self._window, at, at + _NEAR_BYTES)
            if found is None and not self._is_zero_from(at + _NEAR_BYTES):
                found = _NOT_ZERO.search(self._window, at + _NEAR_BYTES)
            if found is not None:
                return (found.start() + self._at) & -8
            following = self._at + len(self._window)
            if following <= offset:
                return None
            offset = following
        return None

    def _is_zero_from(self, at: int) -> bool:
        rest = self._window[at:]
        return rest == _ZEROS[: len(rest)]

    def _cover(self, offset: int, length: int) -> None:
        """Have [offset, offset + length) in the window, as far as the segment goes."""
        end = min(offset + length, self.end)
        if offset >= self._at and end <= self._at + len(self._window):
            return
        wanted = min(max(length, self._window_bytes), max(0, self.end - offset))
        self._at = offset
        if self._hard:
            self._window, self._unread = hard_read(self._file, wanted, offset)
            return
        try:
            self._window = self._file.pread(wanted, offset)
        except OSError as error:
            if not is_unread(error):
                raise
            self._window = b""
