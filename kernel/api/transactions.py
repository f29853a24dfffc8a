"""Half messages, as adapters see them: published now, delivered if and when the producer says so.

A producer prepares a message, does its own work, then commits or rolls back. If it says nothing,
the store asks any gateway that holds a producer of the same producer group, again and again
(`model.HalfOptions`); a message that nobody has decided on an interval after the last question is
rolled back. A question counts whether or not somebody was there to hear it.

Tokens: `u64 queue | u64 number`, little-endian. Like lease tokens they prove nothing by secrecy; a
number is never used twice in a Raft group, nor is a queue's id.

Durability: `prepare` and `end` return once a majority has fdatasynced the command; a prepared
message survives any crash, and so does the number of questions asked.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..common.ids import Offset, QueueId
from .model import TopicInfo
from .tracing import ConnectedUser

_TOKEN = struct.Struct("<QQ")


def encode_token(queue: int, number: int) -> bytes:
    """Token of a half message."""
    return _TOKEN.pack(queue, number)


def decode_token(token: bytes) -> tuple[int, int]:
    """(queue, number) of a token; zeros, which none has, if the bytes cannot be one."""
    if len(token) != _TOKEN.size:
        return 0, 0
    queue, number = _TOKEN.unpack(token)
    return queue, number


@dataclass(frozen=True, slots=True)
class HalfCheck:
    """A question: what became of this message?"""

    tenant: str
    topic: str
    token: bytes
    """For `HalfMessages.end`."""
    slot: bytes
    """The stored message (`kernel.api.message`)."""
    prepared_ms: int
    """Log time at which it was prepared."""
    checks: int
    """1-based number of the question."""
    producers: str
    """Producer group of the message."""


class HalfSink(Protocol):
    """A gateway's connection to a producer."""

    def check(self, check: HalfCheck) -> None:
        """Ask the producer. Must not wait; the answer comes by `HalfMessages.end`."""


class HalfWatch(Protocol):
    """A registration of a sink."""

    def close(self) -> None:
        """Hear no more. Idempotent."""


class HalfMessages(Protocol):
    """The half messages of a store, seen from a gateway."""

    async def prepare(self, topic: TopicInfo, producers: str, parts: Sequence[bytes]) -> bytes:
        """Store a message of a producer group without an offset; its token. `parts` as
        `PublishBatch.add` takes them.

        Errors: INVALID_ARGUMENT (a transient topic; a message that asks for deduplication, since
        its id would have to be held back too; a producer group of more than 255 bytes),
        LIMIT_EXCEEDED (messages or bytes of the topic or the store), NOT_FOUND, NO_SPACE, BUSY,
        TIMEOUT.
        """

    async def end(
        self, topic: TopicInfo, token: bytes, *, commit: bool, by: ConnectedUser | None = None
    ) -> tuple[QueueId, Offset] | None:
        """Commit (the message's place) or roll back (None). A repeat of the same outcome returns
        the same. `by`: who says so.

        Errors: LEASE_LOST (not a token of this topic, already resolved the other way, or so long
        ago that it is forgotten), TIMEOUT. A commit is never refused for want of room: the limits
        were kept at `prepare`, and the topic's own limits on what waits in it act from then on.
        """

    def watch(self, tenant: str, producers: str, sink: HalfSink) -> HalfWatch:
        """Have questions about half messages of a producer group put to `sink`. With several
        sinks each question goes to one of them, in turn.
        """
