"""What is in a data directory's journal, read by nothing but docs/formats.md.

    .venv/bin/python examples/read_journal.py weir-data

Prints a line for each Raft entry with messages: group, index, term, and each message's body. It
only reads, so it may run beside a server: what that is just writing ends the list.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from crc32c import crc32c

SEGMENT = struct.Struct("<8sII16sQQQI")
RECORD = struct.Struct("<IIQIBBHQQQ")
ENTRY = struct.Struct("<QBBHII")
SLOT = struct.Struct("<BBBBIII")
ENTRIES = {1, 7}
"""Types of the records that hold messages: as they were appended, and rewritten."""
MEMBERSHIP = b"\xff" * 8
"""What the entry of a membership change begins with."""


def records(segment: Path) -> Iterator[tuple[int, int, int, int, bytes]]:
    """(type, group, term, index, body) of each record that is whole."""
    with segment.open("rb") as file:
        data = file.read()
    magic, _, _, store, *_ = SEGMENT.unpack_from(data)
    assert magic == b"WEIRSEG\n", f"{segment} is no segment"
    seed, at = crc32c(store), 4096
    while at + RECORD.size <= len(data):
        node_sum, length, _, leader_sum, kind, _, _, group, term, index = RECORD.unpack_from(
            data, at
        )
        if length < RECORD.size or crc32c(data[at + 4 : at + 20], seed) != node_sum:
            return  # Zeros: here the segment ends.
        if crc32c(data[at + 20 : at + length]) != leader_sum:
            return
        yield kind, group, term, index, data[at + RECORD.size : at + length]
        at += (length + 7) & -8


def bodies(entry: bytes) -> Iterator[bytes]:
    """Body of each message of an entry; those of a rewritten entry that are gone are left out."""
    _, _, _, _, slots, payload_at = ENTRY.unpack_from(entry)
    ends = struct.unpack_from(f"<{slots}I", entry, ENTRY.size)
    for start, end in zip((0, *ends), ends, strict=False):
        if end > start:
            body_bytes = SLOT.unpack_from(entry, payload_at + start)[4]
            yield entry[payload_at + end - body_bytes : payload_at + end]


for segment in sorted(Path(sys.argv[1], "journal").glob("*.seg")):
    for kind, group, term, index, body in records(segment):
        # A leader's first entry is empty.
        if kind in ENTRIES and body and not body.startswith(MEMBERSHIP):
            for message in bodies(body):
                print(f"{segment.name} group {group} index {index} term {term}: {message[:60]!r}")
