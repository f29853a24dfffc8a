"""Records of the journal: 48 bytes of header in two parts, then the body, padded to 8 bytes.

    node part     u32 crc32c of the 16 bytes that follow, seeded | u32 length | u64 sequence
    leader part   u32 crc32c of all that follows | u8 type | u8 version | u16 flags
                  | u64 group | u64 term | u64 index | body

Little-endian. `length` counts header and body without the padding. `sequence` rises by one with
every record of this store. The leader part is the same on every node and on the wire: a follower
verifies it once and puts its own node part before it, so no body is ever summed twice. The node
part's sum covers the leader part's, hence the whole record; it starts from a seed made of the store
id, so that neither another store's segment nor a message body made to look like a record passes.

    type            group   term    index    body
    1 ENTRY         yes     yes     yes      `kernel.log.format.entry`
    2 HARD_STATE    yes     term    commit   u64 vote (0 none)
    5 BATCH_END     0       0       0        `BatchEnd`: one for each group commit
    6 PAD           0       0       0        u64 number of the segment that continues this one
    3 RESET         yes     yes     yes      the log begins anew behind a snapshot at this index
    7 REWRITE       yes     yes     yes      an entry with nothing but its live slots
    9 CLOSE         0       0       0        `Close`: the rewrites it names now stand for a segment

4 (group created or destroyed) and 8 are kept free. A record type this version does not know makes
the store refuse to open.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from ..errors import FormatError

VERSION = 1
HEADER_BYTES = 48
ALIGNMENT = 8
BODY_BYTES_MAX = 256 * 1024 * 1024
"""An entry carries at most a client batch of 16 MiB messages; twice that again is a mistake."""

BATCH_GROUPS_MAX = 240
"""Groups of one batch: its closing record then stays under 4 KiB (a store has 225 at
most, `limits.ADDED_GROUPS_MAX`)."""

HEADER = struct.Struct("<IIQIBBHQQQ")
SUM = struct.Struct("<I")
NODE = struct.Struct("<IQI")
LEADER = struct.Struct("<BBHQQQ")
_BATCH_END = struct.Struct("<QQQQ")
_BATCH_GROUP = struct.Struct("<QQ")
_CLOSE = struct.Struct("<QQQQQ")
_NUMBER = struct.Struct("<Q")

NODE_SUMMED_BYTES = 20
"""The node part and the sum of the leader part: what has to be whole to trust a length."""

PADDING = tuple(bytes(count) for count in range(ALIGNMENT))


class RecordType(IntEnum):
    """Kind of a record; the numbers are on disk."""

    ENTRY = 1
    HARD_STATE = 2
    RESET = 3
    BATCH_END = 5
    PAD = 6
    REWRITE = 7
    CLOSE = 9


ENTRIES = (RecordType.ENTRY, RecordType.REWRITE)
"""Records with an entry of a log."""

KNOWN_TYPES = frozenset(int(kind) for kind in RecordType)


class Header(NamedTuple):
    """Decoded header of a record."""

    node_sum: int
    length: int
    sequence: int
    leader_sum: int
    type: int
    version: int
    flags: int
    group: int
    term: int
    log_index: int

    @property
    def padded(self) -> int:
        """Bytes that the record takes in its segment."""
        return (self.length + 7) & -8


class BatchEnd(NamedTuple):
    """Closing record of one group commit."""

    first: int
    """Sequence of the first record of the batch."""
    synced: int
    """Highest sequence known to be synced before this batch was written."""
    groups: Mapping[int, int]
    """Records of each group in the batch: tells who lost something when some are unreadable."""


class Close(NamedTuple):
    """Closing record of a rewrite: the REWRITE records from `first` to `last` now hold everything
    live of segment `source` (0: of a snapshot that came from another store). Appended only when all
    of them are synced.
    """

    source: int
    first: int
    last: int
    first_segment: int
    last_segment: int


def padded_bytes(body_bytes: int) -> int:
    """Bytes that a record with such a body takes in its segment."""
    return (HEADER_BYTES + body_bytes + 7) & -8


def seed_of(store: bytes) -> int:
    """Where the sums of node parts start in this store."""
    return crc32c(store)


def encode_header(
    kind: int, group: int, term: int, index: int, body: bytes, sequence: int, seed: int
) -> bytes:
    """The 48 bytes before `body` (`Writer` has this once more, in line)."""
    leader = LEADER.pack(kind, VERSION, 0, group, term, index)
    node = NODE.pack(HEADER_BYTES + len(body), sequence, crc32c(body, crc32c(leader)))
    return SUM.pack(crc32c(node, seed)) + node + leader


def encode_record(
    kind: int, group: int, term: int, index: int, body: bytes, sequence: int, seed: int
) -> bytes:
    """A whole record with its padding, for those that no hot path writes."""
    header = encode_header(kind, group, term, index, body, sequence, seed)
    return header + body + PADDING[-len(body) % ALIGNMENT]


def decode_header(buffer: bytes | memoryview, at: int, seed: int) -> Header | None:
    """The header at `at`, None if its node part is not whole. The body is not checked."""
    if len(buffer) - at < HEADER_BYTES:
        return None
    header = Header._make(HEADER.unpack_from(buffer, at))
    if header.length < HEADER_BYTES or crc32c(buffer[at + 4 : at + 20], seed) != header.node_sum:
        return None
    return header


def is_whole(record: bytes | memoryview, header: Header, at: int) -> bool:
    """Whether the leader part with its body, at `at` of `record`, matches its sum."""
    end = at + header.length
    return end <= len(record) and crc32c(record[at + 20 : end]) == header.leader_sum


def check_known(header: Header) -> None:
    """FormatError if this version cannot know what the (whole) record means."""
    if header.version != VERSION or header.type not in KNOWN_TYPES:
        raise FormatError(
            f"the journal holds a record of type {header.type}, version {header.version}, "
            "written by a newer version of Weir: start that version"
        )


def encode_batch_end(end: BatchEnd) -> bytes:
    groups = b"".join(_BATCH_GROUP.pack(group, count) for group, count in end.groups.items())
    return _BATCH_END.pack(end.first, end.synced, len(end.groups), 0) + groups


def decode_batch_end(body: bytes) -> BatchEnd:
    first, synced, groups, _reserved = _BATCH_END.unpack_from(body)
    pairs = _BATCH_GROUP.iter_unpack(body[_BATCH_END.size :][: groups * _BATCH_GROUP.size])
    return BatchEnd(first, synced, dict(pairs))


def encode_close(close: Close) -> bytes:
    return _CLOSE.pack(*close)


def decode_close(body: bytes) -> Close:
    return Close._make(_CLOSE.unpack_from(body))


def encode_number(number: int) -> bytes:
    """Body of a PAD (the next segment) or a HARD_STATE (the vote)."""
    return _NUMBER.pack(number)


def decode_number(body: bytes) -> int:
    number: int = _NUMBER.unpack_from(body)[0]
    return number
