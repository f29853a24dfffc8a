"""Frames of a connection between two processes of a cluster.

    u32 length of the payload | u8 kind | u8 flags | u16 method | u32 call | payload

A message larger than FRAGMENT_BYTES is cut into frames of which all but the last have the flag
MORE, and are full. There are two lanes, and fragments of one lane follow each other in order;
frames of the other lane may stand between them. So a heartbeat waits for one fragment at most,
never for the 16 MiB message that is being sent (docs/design/replication.md#elections).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

HEAD = struct.Struct("<IBBHI")

FRAGMENT_BYTES = 256 * 1024
"""Payload of one frame at most: 2 ms of a loopback's or a gigabit link's time."""

MESSAGE_BYTES_MAX = 40 * 1024 * 1024
"""A message at most: one entry with the largest message, and what is gathered beside it."""

MORE = 1
CONTROL = 2
"""Flag of the lane for what must not wait: heartbeats, votes, answers, credit."""


class RpcFrameKind(IntEnum):
    """What a frame is."""

    HELLO = 1
    PROOF = 2
    REFUSED = 3
    CALL = 4
    ANSWER = 5
    ERROR = 6
    CAST = 7
    """A message without an answer."""
    PING = 8
    PONG = 9
    GOODBYE = 10
    """The sender closes in order; the payload says why."""


class RpcError(Exception):
    """The other end does not keep to the protocol, or may not join; the text says how."""


class Frame(NamedTuple):
    """A whole message."""

    kind: int
    method: int
    call: int
    payload: bytes


def encode(
    kind: int, method: int, call: int, parts: Sequence[bytes], *, control: bool
) -> Iterator[list[bytes]]:
    """The frames of a message, each as buffers to be written one after the other. The parts are
    never copied, unless a fragment ends within one. ValueError above MESSAGE_BYTES_MAX.
    """
    size = sum(map(len, parts))
    if size > MESSAGE_BYTES_MAX:
        raise ValueError(f"a message of {size} bytes; at most {MESSAGE_BYTES_MAX}")
    lane = CONTROL if control else 0
    if size <= FRAGMENT_BYTES:
        yield [HEAD.pack(size, kind, lane, method, call), *parts]
        return
    for pieces, last in _cut(parts, size):
        length = sum(map(len, pieces))
        yield [HEAD.pack(length, kind, lane if last else lane | MORE, method, call), *pieces]


def _cut(parts: Sequence[bytes], left: int) -> Iterator[tuple[list[bytes], bool]]:
    """Parts dealt out into fragments, and whether each is the last."""
    pieces: list[bytes] = []
    room = FRAGMENT_BYTES
    for part in parts:
        view = memoryview(part)
        while view:
            piece = view[:room]
            pieces.append(part if len(piece) == len(part) else bytes(piece))
            view = view[room:]
            room -= len(piece)
            left -= len(piece)
            if not room and left:
                yield pieces, False
                pieces, room = [], FRAGMENT_BYTES
    yield pieces, True


class FrameReader:
    """Bytes in, whole messages out."""

    def __init__(self, bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        """`bytes_max`: of one message; until the other end is known, less."""
        self.bytes_max = bytes_max
        self._buffer = bytearray()
        self._partial: dict[int, list[bytes]] = {}
        """Fragments so far of the message that each lane is in."""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The messages that these bytes complete. RpcError for what cannot be one."""
        buffer = self._buffer
        buffer += data
        at = 0
        end = len(buffer)
        try:
            while end - at >= HEAD.size:
                length, kind, flags, method, call = HEAD.unpack_from(buffer, at)
                if length > FRAGMENT_BYTES or flags & ~(MORE | CONTROL):
                    raise RpcError(f"a frame of {length} bytes with flags {flags}")
                if length > self.bytes_max:  # before it is waited for
                    raise RpcError(f"a message of more than {self.bytes_max} bytes")
                if flags & MORE and length < FRAGMENT_BYTES:
                    # Of empty ones there could be any number in a message of any size.
                    raise RpcError(f"a fragment of {length} bytes that is not the last")
                start = at + HEAD.size
                if end - start < length:
                    break
                payload = bytes(memoryview(buffer)[start : start + length])
                at = start + length
                whole = self._gather(flags, payload)
                if whole is not None:
                    yield Frame(kind, method, call, whole)
        finally:
            del buffer[:at]

    def _gather(self, flags: int, payload: bytes) -> bytes | None:
        """The message that this fragment completes."""
        lane = flags & CONTROL
        partial = self._partial.get(lane)
        if partial is None and not flags & MORE:
            return payload
        if partial is None:
            partial = self._partial[lane] = []
        partial.append(payload)
        if sum(map(len, partial)) > self.bytes_max:
            raise RpcError(f"a message of more than {self.bytes_max} bytes")
        if flags & MORE:
            return None
        del self._partial[lane]
        return b"".join(partial)
