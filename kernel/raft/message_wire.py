"""Raft messages as bytes. Several for one node travel together, one behind the other.

    u8 kind | u8 flags | u16 group | u32 sender | u32 to | u64 term | u64 log term | u64 index
    | u64 commit | u64 hint | u64 stamp | u16 context length | u16 snapshot length | u32 entries
    | context | snapshot | (u64 term | u32 crc32c of the body | u32 length and kind | body)[entries]

Little-endian. Entries stand behind `index` without gaps, so they need no index of their own. A body
is summed where it enters the cluster's network and checked where it leaves: TCP's own sum is too
weak for what is to be kept for ever.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import msgspec
from crc32c import crc32c

from ..common.errors import UNDECODABLE
from .messages import APPEND, MESSAGE_KINDS, Entry, Membership, RaftMessage, Snapshot

_HEAD = struct.Struct("<BBHIIQQQQQQHHI")
_ENTRY = struct.Struct("<QII")

_REJECT = 1
_FORCED = 2
_SNAPSHOT = 4

_KIND_SHIFT = 30
_LENGTH_MASK = (1 << _KIND_SHIFT) - 1


class WireError(ValueError):
    """Bytes that are no message."""


class _SnapshotHead(msgspec.Struct, frozen=True, array_like=True):
    index: int
    term: int
    membership: Membership
    handle: str


_decode_snapshot = msgspec.msgpack.Decoder(_SnapshotHead).decode


def encode(group: int, message: RaftMessage) -> list[bytes]:
    """Parts of one message; bodies are not copied. A snapshot's handle must be a string."""
    flags = message.reject * _REJECT | message.forced * _FORCED
    snapshot = b""
    if message.snapshot is not None:
        flags |= _SNAPSHOT
        held = message.snapshot
        head = _SnapshotHead(held.index, held.term, held.membership, str(held.handle or ""))
        snapshot = msgspec.msgpack.encode(head)
    parts = [
        _HEAD.pack(
            message.kind,
            flags,
            group,
            message.sender,
            message.to,
            message.term,
            message.log_term,
            message.index,
            message.commit,
            message.hint,
            message.stamp,
            len(message.context),
            len(snapshot),
            len(message.entries),
        ),
        message.context,
        snapshot,
    ]
    for entry in message.entries:
        body = entry.body
        parts.append(_ENTRY.pack(entry.term, crc32c(body), entry.kind << _KIND_SHIFT | len(body)))
        parts.append(body)
    return parts


def decode(payload: bytes) -> Iterator[tuple[int, RaftMessage]]:
    """(group, message) of each. WireError, before anything of the damaged one was handed out."""
    at = 0
    while at < len(payload):
        try:
            group, message, at = _one(payload, at)
        except (*UNDECODABLE, struct.error, IndexError) as error:
            raise WireError(f"no message: {error}") from None
        yield group, message


def _one(payload: bytes, at: int) -> tuple[int, RaftMessage, int]:
    head = _HEAD.unpack_from(payload, at)
    kind, flags, group, sender, to, term, log_term, index, commit, hint, stamp = head[:11]
    context_length, snapshot_length, count = head[11:]
    if kind >= MESSAGE_KINDS or (count and kind != APPEND):
        raise WireError(f"a message of kind {kind} with {count} entries")
    at += _HEAD.size
    context = payload[at : at + context_length]
    at += context_length
    snapshot = None
    if flags & _SNAPSHOT:
        found = _decode_snapshot(payload[at : at + snapshot_length])
        snapshot = Snapshot(found.index, found.term, found.membership, found.handle)
    at += snapshot_length
    if at > len(payload):
        raise WireError("a message that is cut short")
    entries: Sequence[Entry] = ()
    if count:
        entries, at = _entries(payload, at, index, count)
    message = RaftMessage(
        kind,
        sender,
        to,
        term,
        log_term,
        index,
        commit,
        entries,
        bool(flags & _REJECT),
        hint,
        context,
        snapshot,
        stamp,
        bool(flags & _FORCED),
    )
    return group, message, at


def _entries(payload: bytes, at: int, index: int, count: int) -> tuple[list[Entry], int]:
    entries: list[Entry] = []
    for number in range(1, count + 1):
        term, checksum, length = _ENTRY.unpack_from(payload, at)
        kind, length = length >> _KIND_SHIFT, length & _LENGTH_MASK
        at += _ENTRY.size
        body = payload[at : at + length]
        at += length
        if len(body) != length or crc32c(body) != checksum:
            raise WireError(f"entry {index + number} is damaged")
        entries.append(Entry(term, index + number, kind, body))
    return entries, at
