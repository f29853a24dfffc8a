"""Body of a Raft entry: the slots it carries and the batches of commands over them.

    u64 base time ms | u8 version (1) | u8 flags | u16 batches | u32 slots | u32 payload at
    u32 slot end [slots]        relative to the payload
    batch [batches]
    payload                     the slots (`kernel.api.message`) back to back

    batch:   u64 session | u32 epoch | u64 sequence | u8 origin | u16 commands
             u32 bytes of commands
    command: u8 type | u8 version | u32 length | bytes

Little-endian. Slot bytes are joined here once and never parsed again on the write path. A
rewritten entry (flag `REWRITTEN`) keeps base time, slot numbers and batches; its dead slots have
length 0. It stands below the checkpoint and is never applied again: its batches only say which
queues refer to it.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

HEAD = struct.Struct("<QBBHII")
BATCH = struct.Struct("<QIQBHI")
COMMAND = struct.Struct("<BBI")
_U32 = struct.Struct("<I")
_BOUNDS = struct.Struct("<II")
_DIRECTORY_AT = HEAD.size
VERSION = 1
REWRITTEN = 1
_NO_SLOTS = bytes(4)


class EntryBatch(NamedTuple):
    """Commands of one client batch. `sequence` is unique per (session, epoch) and rising."""

    session: int
    epoch: int
    sequence: int
    commands: Sequence[tuple[int, int, bytes]]
    """(type, version, bytes) of each."""
    origin: int = 0
    """Who asked (`kernel.api.origins`): for counting only."""


def encode_batch(batch: EntryBatch) -> bytes:
    """Bytes of a batch, as it stands in an entry."""
    commands = b"".join(
        COMMAND.pack(kind, version, len(body)) + body for kind, version, body in batch.commands
    )
    head = BATCH.pack(
        batch.session,
        batch.epoch,
        batch.sequence,
        batch.origin,
        len(batch.commands),
        len(commands),
    )
    return head + commands


def build(
    base_time_ms: int,
    batches: Sequence[bytes],
    slot_lengths: Sequence[int],
    slot_parts: Sequence[bytes],
) -> bytes:
    """Join an entry: encoded batches, the length of each slot, and parts that make up the slots."""
    ends = list(accumulate(slot_lengths))
    directory = struct.pack(f"<{len(ends)}I", *ends)
    commands = b"".join(batches)
    payload_at = HEAD.size + len(directory) + len(commands)
    head = HEAD.pack(base_time_ms, VERSION, 0, len(batches), len(ends), payload_at)
    return b"".join((head, directory, commands, *slot_parts))


def base_time_ms(entry: bytes) -> int:
    """Log time of an entry."""
    time_ms: int = HEAD.unpack_from(entry)[0]
    return time_ms


def batches(entry: bytes) -> Iterator[EntryBatch]:
    """The batches of an entry, in order."""
    _time, _version, _flags, count, slots, _payload_at = HEAD.unpack_from(entry)
    at = HEAD.size + 4 * slots
    for _ in range(count):
        session, epoch, sequence, origin, commands, _length = BATCH.unpack_from(entry, at)
        at += BATCH.size
        found: list[tuple[int, int, bytes]] = []
        for _ in range(commands):
            kind, version, length = COMMAND.unpack_from(entry, at)
            at += COMMAND.size
            found.append((kind, version, entry[at : at + length]))
            at += length
        yield EntryBatch(session, epoch, sequence, found, origin)


def has_slots(entry: bytes) -> bool:
    """Whether it carries anything but commands (hot)."""
    return entry[12:16] != _NO_SLOTS


def directory(entry: bytes) -> tuple[int, ...]:
    """Bounds of the slots within `entry`: slot i is `entry[bounds[i]:bounds[i + 1]]`."""
    slots, payload_at = struct.unpack_from("<II", entry, 12)
    ends = struct.unpack_from(f"<{slots}I", entry, HEAD.size)
    return (payload_at, *[payload_at + end for end in ends])


class Opened:
    """An entry with its directory read once, for those who want many of its slots (hot)."""

    __slots__ = ("_bounds", "body", "ends", "index")

    def __init__(self, index: int, body: bytes) -> None:
        self.index = index
        self.body = body
        self.ends = array("I")
        """Slot i has `ends[i + 1] - ends[i]` bytes."""
        self._bounds: tuple[int, ...] = ()
        if body:
            # What stands before the first end is of as many bytes: the place of the payload.
            slots: int = _U32.unpack_from(body, 12)[0]
            self.ends.frombytes(body[_DIRECTORY_AT - 4 : _DIRECTORY_AT + 4 * slots])
            if sys.byteorder == "big":
                self.ends.byteswap()
            self.ends[0] = 0

    @property
    def bounds(self) -> tuple[int, ...]:
        """Slot i is `body[bounds[i]:bounds[i + 1]]`. Made when it is first asked for: sizes alone
        are cheaper.
        """
        if not self._bounds and self.body:
            self._bounds = directory(self.body)
        return self._bounds


NOTHING_OPENED = Opened(0, b"")


def slot(entry: bytes, number: int) -> bytes:
    """Bytes of one slot; empty if it was dead when the entry was rewritten."""
    slots, payload_at = struct.unpack_from("<II", entry, 12)
    if not 0 <= number < slots:
        raise IndexError(f"entry has {slots} slots, no slot {number}")
    at = HEAD.size + 4 * number
    start = struct.unpack_from("<I", entry, at - 4)[0] if number else 0
    end = struct.unpack_from("<I", entry, at)[0]
    return entry[payload_at + start : payload_at + end]


def rewritten(entry: bytes, live: Collection[int]) -> bytes:
    """The entry with nothing but the slots in `live`; slot numbers stay."""
    time_ms, version, flags, count, slots, payload_at = HEAD.unpack_from(entry)
    bounds = directory(entry)
    parts = [entry[bounds[i] : bounds[i + 1]] if i in live else b"" for i in range(slots)]
    ends: list[int] = []
    end = 0
    for part in parts:
        end += len(part)
        ends.append(end)
    head = HEAD.pack(time_ms, version, flags | REWRITTEN, count, slots, payload_at)
    commands = entry[HEAD.size + 4 * slots : payload_at]
    return b"".join((head, struct.pack(f"<{slots}I", *ends), commands, *parts))


def slots(entry: bytes, first: int, count: int) -> list[bytes]:
    """Bytes of `count` consecutive slots (hot). They must be there: the index says so."""
    if first and count == 1:
        (payload_at,) = _U32.unpack_from(entry, 16)
        start, end = _BOUNDS.unpack_from(entry, _DIRECTORY_AT + 4 * first - 4)
        return [entry[payload_at + start : payload_at + end]]
    (payload_at,) = _U32.unpack_from(entry, 16)
    at = _DIRECTORY_AT + 4 * first
    if first:
        bounds = struct.unpack_from(f"<{count + 1}I", entry, at - 4)
    else:
        bounds = (0, *struct.unpack_from(f"<{count}I", entry, at))
    return [entry[payload_at + start : payload_at + end] for start, end in pairwise(bounds)]


def slots_of(entry: bytes, base: int, offsets: Sequence[int]) -> list[bytes]:
    """Bytes of the slots `base + offset` of some rising offsets (hot)."""
    first, count = offsets[0], len(offsets)
    if offsets[-1] - first + 1 == count:
        return slots(entry, base + first, count)
    return [slot(entry, base + each) for each in offsets]
