"""Publisher confirms: which messages are still open, and how long each one took.

A broker answers publishes by tag (1, 2, 3, ... on a channel) with basic.ack or basic.nack, in
any order, singly or "multiple" (this tag and all open ones before it):

    tags    1 ......... floor | floor+1 .................. sent
            all answered      | open, but for those in `early`

    ack n, multiple      the floor moves to n
    ack floor+1          the floor moves by one, and on over the early ones that follow
    ack n > floor+1      n becomes early

Publishes made in one go share one entry (last tag, time), so a run of confirms costs one step
an entry, not one a message.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque

from benchmarks.load.amqp_wire import (
    BASIC_ACK,
    BASIC_NACK,
    FRAME_END,
    FRAME_HEAD,
    FRAME_METHOD,
    FRAME_OVERHEAD,
    close_reason,
)
from benchmarks.load.errors import BenchError
from benchmarks.load.stats import Histogram

# A whole ack or nack frame: type, channel, size, class and method, tag, flags, end.
CONFIRM_FRAME = struct.Struct(">BHIIQBB")
CONFIRM_PAYLOAD_BYTES = 13


class ConfirmTracker:
    """The open publishes of one channel in confirm mode."""

    __slots__ = ("_batches", "_early", "_floor", "_rest", "_sent", "latency", "nacked")

    def __init__(self) -> None:
        self.latency = Histogram()
        self.nacked = array("Q")  # tags the broker refused
        self._batches: deque[tuple[int, int]] = deque()
        self._early: set[int] = set()
        self._floor = 0
        self._sent = 0
        self._rest = b""

    @property
    def sent(self) -> int:
        return self._sent

    @property
    def open(self) -> int:
        """Published and not answered yet."""
        return self._sent - self._floor - len(self._early)

    @property
    def answered(self) -> int:
        return self._floor + len(self._early)

    def unanswered(self) -> list[int]:
        """The open tags."""
        early = self._early
        return [tag for tag in range(self._floor + 1, self._sent + 1) if tag not in early]

    def published(self, count: int, sent_ns: int) -> None:
        """The next `count` tags have been published at `sent_ns`."""
        self._sent += count
        self._batches.append((self._sent, sent_ns))

    def feed(self, data: bytes, now_ns: int) -> None:
        """Take what the broker sent. Raises BenchError when it closed or broke the protocol."""
        if self._rest:
            data = self._rest + data
        size = len(data)
        at = 0
        unpack = CONFIRM_FRAME.unpack_from
        while size - at >= CONFIRM_FRAME.size:
            kind, _channel, length, number, tag, multiple, end = unpack(data, at)
            if length == CONFIRM_PAYLOAD_BYTES and number == BASIC_ACK and kind == FRAME_METHOD:
                if end != FRAME_END:
                    raise BenchError("the broker sent a frame without its end octet")
                if multiple or tag == self._floor + 1:
                    self._settle_through(tag, now_ns)
                else:
                    self._settle_early(tag, now_ns)
                at += CONFIRM_FRAME.size
                continue
            step = self._other_frame(data, at, now_ns)
            if not step:
                break
            at += step
        else:
            while step := self._other_frame(data, at, now_ns):
                at += step
        self._rest = data[at:]

    def _other_frame(self, data: bytes, at: int, now_ns: int) -> int:
        """Handle any frame at `at`; return its length, 0 if it is not all there."""
        if len(data) - at < FRAME_HEAD.size:
            return 0
        kind, _channel, length = FRAME_HEAD.unpack_from(data, at)
        if len(data) - at < length + FRAME_OVERHEAD:
            return 0
        payload = data[at + FRAME_HEAD.size : at + FRAME_HEAD.size + length]
        number = int.from_bytes(payload[:4], "big")
        if kind == FRAME_METHOD:
            if number == BASIC_NACK:
                self._refuse(int.from_bytes(payload[4:12], "big"), payload[12] & 1, now_ns)
            elif reason := close_reason(number, payload):
                raise BenchError(f"the broker closed a producer: {reason}")
        return int(length) + FRAME_OVERHEAD

    def _check(self, tag: int) -> None:
        if tag <= self._floor or tag > self._sent or tag in self._early:
            raise BenchError(f"the broker confirmed tag {tag}, which is not open")

    def _settle_through(self, tag: int, now_ns: int) -> None:
        """Answer all open tags up to `tag` (0 = all)."""
        tag = tag or self._sent
        if tag <= self._floor or tag > self._sent:
            self._check(tag)
        floor, batches, early = self._floor, self._batches, self._early
        while floor < tag:
            last, sent_ns = batches[0]
            stop = min(last, tag)
            count = stop - floor
            if early:
                known = {number for number in early if number <= stop}
                early -= known
                count -= len(known)
            self.latency.record(now_ns - sent_ns, count)
            floor = stop
            if floor == last:
                batches.popleft()
        while early and floor + 1 in early:
            floor += 1
            early.discard(floor)
            if floor == batches[0][0]:
                batches.popleft()
        self._floor = floor

    def _settle_early(self, tag: int, now_ns: int) -> None:
        """Answer one tag above others that are still open."""
        self._check(tag)
        self._early.add(tag)
        for last, sent_ns in self._batches:
            if tag <= last:
                self.latency.record(now_ns - sent_ns)
                return

    def _refuse(self, tag: int, multiple: int, now_ns: int) -> None:
        """A basic.nack: answered, but the message may be missing."""
        tag = tag or self._sent
        self._check(tag)
        first = self._floor + 1 if multiple else tag
        self.nacked.extend(t for t in range(first, tag + 1) if t not in self._early)
        if multiple or tag == self._floor + 1:
            self._settle_through(tag, now_ns)
        else:
            self._settle_early(tag, now_ns)
