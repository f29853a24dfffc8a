"""Reading what a disk still reads of a file, where some of it fails with EIO: a bad sector mostly.

What does not read stands as 0xFF. No sum matches that, so that a record in it is as damaged as one
in which a bit has changed; and it is not zero, which is what a place holds that was never written.
A system may fail a whole read for one bad sector, or end it before that: so what a read does not
bring is asked for again page by page.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from ..common.ports import File

PAGE_BYTES = 4096
"""What systems read from a disk at once: less is not to be had where this fails."""

TRIES = 2
"""Of a page. The drive and the system have tried for long before they said EIO; who can wait asks
once more later (`kernel.store.entry_reader`)."""

Stretch = tuple[int, int]
"""(begin, end) of what does not read."""

_FILL = b"\xff" * PAGE_BYTES


def is_unread(error: BaseException) -> bool:
    """Whether it is what a disk says that does not read a sector."""
    return isinstance(error, OSError) and error.errno == errno.EIO


def hard_read(file: File, length: int, offset: int) -> tuple[bytes, Sequence[Stretch]]:
    """Up to `length` bytes, fewer at the end of the file, and the stretches of the file that do not
    read. OSError: other than EIO.
    """
    parts: list[bytes] = []
    unread: list[Stretch] = []
    at, end = offset, offset + length
    while at < end:
        part = _some(file, end - at, at)
        if part is None:
            upto = min(end, _page_end(at))
            part = _FILL[: upto - at]
            if unread and unread[-1][1] == at:
                unread[-1] = (unread[-1][0], upto)
            else:
                unread.append((at, upto))
        elif not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts) if len(parts) != 1 else parts[0], unread


def _some(file: File, length: int, offset: int) -> bytes | None:
    """What one read brings; None: not even a page."""
    page = min(length, _page_end(offset) - offset)
    for each in (length, *[page] * TRIES):
        try:
            return file.pread(each, offset)
        except OSError as error:
            if not is_unread(error):
                raise
    return None


def _page_end(offset: int) -> int:
    return (offset // PAGE_BYTES + 1) * PAGE_BYTES
