"""Deliveries scanned a chunk at a time, checked and acknowledged.

One message is three frames, and all messages of one consumer look alike but for a few fields:

    | 01 channel size 003C003C "c" | tag u64 | redelivered u8 | exchange key CE | 02 header CE |
    | 03 channel size | key u64 | sent u64 | rest of the body CE |
      ------ head ----            -- tag --  -- redelivered --  ------- middle --------------...

So the first one is taken apart frame by frame (the slow way), which gives a `Layout`: where the
fields lie, and the constant bytes between them. While the bytes keep to the layout, messages
are read by one precompiled `Struct` in one loop. Whatever does not fit (another frame between,
a message cut by the end of the chunk, another channel) goes the slow way; nothing is assumed
that is not compared.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from benchmarks.load.amqp_wire import (
    BASIC_ACK,
    BASIC_DELIVER,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEAD,
    FRAME_HEADER,
    FRAME_METHOD,
    FRAME_OVERHEAD,
    STAMP,
    close_reason,
    method,
)
from benchmarks.load.errors import BenchError
from benchmarks.load.stats import Histogram
from benchmarks.load.verify import Ledger

_TAG = struct.Struct(">Q")
HEAD_BYTES = FRAME_HEAD.size + 4  # the frame head, class and method
TAG_BYTES = 9  # the delivery tag and the redelivered bit
LAYOUTS_MAX = 64  # distinct lengths of messages met by one process


class AckMode(StrEnum):
    """How a consumer acknowledges: one frame a message, one a chunk, or not at all (no-ack)."""

    EACH = "each"
    MULTIPLE = "multiple"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the fields of a consumer's messages lie, and the bytes that do not change."""

    fields: struct.Struct
    head: bytes
    middle: bytes


@lru_cache(maxsize=LAYOUTS_MAX)
def _layout_struct(consumer_tag_bytes: int, middle_bytes: int, body_bytes: int) -> struct.Struct:
    return struct.Struct(
        f">{HEAD_BYTES}s{consumer_tag_bytes}xQB{middle_bytes}sQQ{body_bytes - STAMP.size}xB"
    )


def ack_frames(one: bytes, first: int, last: int) -> bytearray:
    """The ack frame `one` for each tag from `first` to `last`."""
    frames = bytearray(one * (last - first + 1))
    put = _TAG.pack_into
    tags = range(first, last + 1)
    for place, tag in zip(range(HEAD_BYTES, len(frames), len(one)), tags, strict=True):
        put(frames, place, tag)
    return frames


def ack_frame(channel: int, tag: int, *, multiple: bool) -> bytes:
    return method(channel, BASIC_ACK, _TAG.pack(tag) + bytes((multiple,)))


class Subscription:
    """One consumer: one channel, one queue; its ledger and what is known of its messages."""

    __slots__ = (
        "ack",
        "acked",
        "channel",
        "layout",
        "ledger",
        "open_body",
        "open_redelivered",
        "open_start",
        "open_tag",
        "queue",
        "stamp",
        "tag",
    )

    def __init__(self, channel: int, queue: int, stride: int) -> None:
        self.channel = channel
        self.queue = queue
        self.ack = ack_frame(channel, 0, multiple=False)  # patched with each tag
        self.ledger = Ledger(stride)
        self.layout: Layout | None = None
        self.tag = 0  # the last delivery tag that has arrived whole
        self.acked = 0  # the last delivery tag that has been acknowledged
        # The message that is arriving frame by frame:
        self.open_tag = 0
        self.open_redelivered = 0
        self.open_body = -1  # bytes still missing; -1 = its header has not come
        self.open_start = 0  # where its first frame lies, counted from the first byte of all
        self.stamp: tuple[int, int] | None = None


class DeliveryScanner:
    """All consumers of one connection: bytes in, acknowledgements out."""

    __slots__ = (
        "_acks",
        "_base",
        "_mode",
        "_now_ns",
        "_rest",
        "_subscriptions",
        "foreign",
        "latency",
        "received",
        "redelivered",
    )

    def __init__(self, subscriptions: list[Subscription], mode: AckMode) -> None:
        self.latency = Histogram()
        self.received = 0
        self.redelivered = 0
        self.foreign = 0  # messages too short to hold a stamp
        self._subscriptions = {sub.channel: sub for sub in subscriptions}
        self._mode = mode
        self._acks: list[bytes | bytearray] = []
        self._rest = b""
        self._base = 0  # bytes of all chunks before the one at hand
        self._now_ns = 0

    def feed(self, data: bytes, now_ns: int) -> bytes:
        """Take a chunk that arrived at `now_ns`; return the acknowledgements it calls for.

        Raises BenchError when the broker closed or broke the protocol.
        """
        if self._rest:
            data = self._rest + data
        self._now_ns = now_ns
        size = len(data)
        view = memoryview(data)
        at = 0
        while size - at >= FRAME_HEAD.size:
            kind, channel, length = FRAME_HEAD.unpack_from(data, at)
            sub = self._subscriptions.get(channel)
            if sub is not None and sub.layout is not None and not sub.open_tag:
                step = self._run(sub, sub.layout, view[at:])
                if step:
                    at += step
                    continue
            end = at + length + FRAME_OVERHEAD
            if end > size:
                break
            if data[end - 1] != FRAME_END:
                raise BenchError("the broker sent a frame without its end octet")
            self._frame(kind, sub, data, at, end)
            at = end
        self._rest = data[at:]
        self._base += at
        return self._take_acks()

    def _run(self, sub: Subscription, layout: Layout, view: memoryview) -> int:
        """Read messages of `sub` as long as they keep to its layout; return their bytes."""
        fields = layout.fields
        whole = len(view) // fields.size
        if not whole:
            return 0
        want_head, want_middle = layout.head, layout.middle
        ledger = sub.ledger
        expected, stride = ledger.expected, ledger.stride
        record, now_ns = self.latency.record, self._now_ns
        first = last = sub.tag
        sent_ns = -1
        alike = 0  # messages in a row that were sent at the same time
        redelivered = 0
        for head, tag, again, middle, key, sent, end in fields.iter_unpack(
            view[: whole * fields.size]
        ):
            if head != want_head or middle != want_middle or end != FRAME_END or tag != last + 1:
                break
            last = tag
            if key == expected:
                expected += stride
            else:
                expected = ledger.turn(key, expected)
            redelivered += again
            if sent == sent_ns:
                alike += 1
            else:
                if alike:
                    record(now_ns - sent_ns, alike)
                sent_ns = sent
                alike = 1
        count = last - first
        if not count:
            return 0
        record(now_ns - sent_ns, alike)
        ledger.expected = expected
        sub.tag = last
        self.redelivered += redelivered
        self._took(sub, count)
        return count * fields.size

    def _frame(self, kind: int, sub: Subscription | None, data: bytes, at: int, end: int) -> None:
        """Handle one whole frame at data[at:end], the slow way."""
        body = at + FRAME_HEAD.size
        if kind == FRAME_METHOD:
            number = int.from_bytes(data[body : body + 4], "big")
            if number == BASIC_DELIVER and sub is not None:
                tag_at = body + 5 + data[body + 4]
                sub.open_tag = int.from_bytes(data[tag_at : tag_at + 8], "big")
                sub.open_redelivered = data[tag_at + 8]
                sub.open_body = -1
                sub.open_start = self._base + at
                sub.stamp = None
            elif reason := close_reason(number, data[body : end - 1]):
                raise BenchError(f"the broker closed a consumer: {reason}")
        elif kind == FRAME_HEADER and sub is not None and sub.open_tag:
            sub.open_body = int.from_bytes(data[body + 4 : body + 12], "big")
            if not sub.open_body:
                self._complete(sub)
        elif kind == FRAME_BODY and sub is not None and sub.open_body > 0:
            if sub.stamp is None and end - 1 - body >= STAMP.size:
                sub.stamp = STAMP.unpack_from(data, body)
            sub.open_body -= end - 1 - body
            if not sub.open_body:
                self._learn(sub, data, body, end)
                self._complete(sub)

    def _learn(self, sub: Subscription, data: bytes, body: int, end: int) -> None:
        """Keep the layout of the message whose last frame ends at `end`, if it is a plain one.

        Plain: its three frames follow each other in this chunk, with one body frame.
        """
        at = sub.open_start - self._base
        if sub.layout is not None or at < 0 or sub.stamp is None:
            return
        tag_at = at + HEAD_BYTES + 1 + data[at + HEAD_BYTES]
        middle_at = tag_at + TAG_BYTES
        header_at = at + FRAME_OVERHEAD + FRAME_HEAD.unpack_from(data, at)[2]
        kind, channel, length = FRAME_HEAD.unpack_from(data, header_at)
        body_head_at = body - FRAME_HEAD.size
        if (kind, channel) != (FRAME_HEADER, sub.channel):
            return
        if header_at + length + FRAME_OVERHEAD != body_head_at:
            return
        total = int.from_bytes(data[header_at + 11 : header_at + 19], "big")
        if total != end - 1 - body:
            return
        sub.layout = Layout(
            _layout_struct(tag_at - at - HEAD_BYTES, body - middle_at, total),
            bytes(data[at : at + HEAD_BYTES]),
            bytes(data[middle_at:body]),
        )

    def _complete(self, sub: Subscription) -> None:
        """The message that came frame by frame is whole."""
        if sub.stamp is None:
            self.foreign += 1
        else:
            key, sent_ns = sub.stamp
            ledger = sub.ledger
            if key == ledger.expected:
                ledger.expected += ledger.stride
            else:
                ledger.expected = ledger.turn(key, ledger.expected)
            self.latency.record(self._now_ns - sent_ns)
        if sub.open_tag != sub.tag + 1:
            raise BenchError(f"delivery tag {sub.open_tag} came after {sub.tag}")
        sub.tag = sub.open_tag
        sub.open_tag = 0
        self.redelivered += sub.open_redelivered
        self._took(sub, 1)

    def _took(self, sub: Subscription, count: int) -> None:
        """`count` messages of `sub` have arrived up to its tag: acknowledge them."""
        self.received += count
        if self._mode is AckMode.EACH:
            self._acks.append(ack_frames(sub.ack, sub.acked + 1, sub.tag))
            sub.acked = sub.tag

    def _take_acks(self) -> bytes:
        """The acknowledgements of this chunk."""
        for sub in self._subscriptions.values() if self._mode is AckMode.MULTIPLE else ():
            if sub.acked != sub.tag:
                self._acks.append(ack_frame(sub.channel, sub.tag, multiple=True))
                sub.acked = sub.tag
        acks = b"".join(self._acks)
        self._acks.clear()
        return acks
