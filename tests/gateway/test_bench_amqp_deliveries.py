"""Deliveries: whatever the cuts and the frames between, each is checked and acknowledged once."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.load.amqp_deliveries import AckMode, DeliveryScanner, Subscription
from benchmarks.load.amqp_wire import (
    BASIC_ACK,
    BASIC_CANCEL,
    BASIC_DELIVER,
    STAMP,
    frame,
    method,
    short_string,
)
from benchmarks.load.errors import BenchError
from benchmarks.load.verify import arrivals, first_key

HEARTBEAT = frame(8, 0, b"")


def deliver(
    tag: int,
    key: int,
    *,
    channel: int = 1,
    sent_ns: int = 0,
    size: int = 64,
    redelivered: bool = False,
    routing_key: str = "q",
    step: int = 1 << 20,
) -> list[bytes]:
    """The frames of one delivery; its body is cut into frames of `step` bytes."""
    arguments = short_string("c") + struct.pack(">QB", tag, redelivered)
    arguments += short_string("") + short_string(routing_key)
    body = STAMP.pack(key, sent_ns) + b"\xce" * (size - STAMP.size)
    header = struct.pack(">HHQHB", 60, 0, size, 0x1000, 2)
    return [
        method(channel, BASIC_DELIVER, arguments),
        frame(2, channel, header),
        *(frame(3, channel, body[at : at + step]) for at in range(0, size, step)),
    ]


def acked(data: bytes) -> list[tuple[int, int, bool]]:
    """(channel, tag, multiple) of every ack frame."""
    one = struct.Struct(">BHIIQBB")
    assert len(data) % one.size == 0
    found = []
    for kind, channel, size, number, tag, multiple, end in one.iter_unpack(data):
        assert (kind, size, number, end) == (1, 13, BASIC_ACK, 0xCE)
        found.append((channel, tag, bool(multiple)))
    return found


def scanner(mode: AckMode = AckMode.EACH, channels: int = 1) -> DeliveryScanner:
    subs = [Subscription(channel, channel - 1, 1) for channel in range(1, channels + 1)]
    return DeliveryScanner(subs, mode)


def intervals(scan: DeliveryScanner, channel: int = 1) -> list[tuple[int, int]]:
    sub = scan._subscriptions[channel]
    return arrivals(sub.ledger.runs(sub.ledger.expected)[0], 0, 1).intervals


def stream(count: int, first: int = 1, **options: int) -> bytes:
    return b"".join(
        part
        for tag in range(first, first + count)
        for part in deliver(tag, first_key(0) + tag - 1, **options)
    )


@given(cuts=st.lists(st.integers(0, 10_000), max_size=30))
@settings(max_examples=200)
def test_any_cut_gives_the_same_messages_and_acks(cuts: list[int]) -> None:
    data = stream(60)
    scan = scanner()
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    acks = b"".join(scan.feed(data[start:end], 10) for start, end in pairwise(places))
    assert acked(acks) == [(1, tag, False) for tag in range(1, 61)]
    assert (scan.received, scan.latency.total) == (60, 60)
    assert intervals(scan) == [(0, 60)]


def test_one_byte_at_a_time_gives_the_same() -> None:
    scan = scanner()
    acks = b"".join(scan.feed(bytes((octet,)), 10) for octet in stream(5))
    assert acked(acks) == [(1, tag, False) for tag in range(1, 6)]
    assert intervals(scan) == [(0, 5)]


@given(
    order=st.lists(st.integers(1, 4), min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 20_000), max_size=10),
    beats=st.sets(st.integers(0, 60)),
)
def test_channels_interleave_and_heartbeats_come_between(
    order: list[int], cuts: list[int], beats: set[int]
) -> None:
    tags = dict.fromkeys(range(1, 5), 0)
    data = b""
    for at, channel in enumerate(order):
        tags[channel] += 1
        key = first_key(0) + tags[channel] - 1
        data += b"".join(deliver(tags[channel], key, channel=channel, routing_key=f"q{channel}"))
        data += HEARTBEAT if at in beats else b""
    scan = scanner(channels=4)
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    acks = b"".join(scan.feed(data[start:end], 1) for start, end in pairwise(places))
    assert sorted(acked(acks)) == sorted(
        (channel, tag, False) for channel, last in tags.items() for tag in range(1, last + 1)
    )
    assert scan.received == len(order)
    assert all(intervals(scan, c) == [(0, last)] for c, last in tags.items() if last)


def test_frames_of_two_messages_on_two_channels_may_interleave() -> None:
    scan = scanner(channels=2)
    left = deliver(1, first_key(0), channel=1)
    right = deliver(1, first_key(0), channel=2)
    data = b"".join(part for pair in zip(left, right, strict=True) for part in pair)
    assert acked(scan.feed(data, 1)) == [(1, 1, False), (2, 1, False)]
    more = stream(3, first=2, channel=1) + stream(3, first=2, channel=2)
    assert len(acked(scan.feed(more, 1))) == 6
    assert intervals(scan, 1) == intervals(scan, 2) == [(0, 4)]


def test_bodies_in_several_frames_are_one_message() -> None:
    scan = scanner()
    data = b"".join(stream(1, first=tag, size=1000, step=300) for tag in range(1, 8))
    assert len(acked(scan.feed(data[:2500], 1) + scan.feed(data[2500:], 1))) == 7
    assert intervals(scan) == [(0, 7)]


def test_messages_of_other_lengths_are_read_the_slow_way() -> None:
    scan = scanner()
    data = stream(3) + stream(2, first=4, size=16) + stream(3, first=6) + stream(1, 9, size=5000)
    assert len(acked(scan.feed(data, 1))) == 9
    assert intervals(scan) == [(0, 9)]


def test_multiple_acks_once_a_chunk_and_channel() -> None:
    scan = scanner(AckMode.MULTIPLE, channels=2)
    data = stream(10, channel=1) + stream(5, channel=2)
    assert acked(scan.feed(data, 1)) == [(1, 10, True), (2, 5, True)]
    assert scan.feed(HEARTBEAT, 1) == b""


def test_no_ack_answers_nothing_and_still_checks() -> None:
    scan = scanner(AckMode.NONE)
    assert scan.feed(stream(10), 1) == b""
    assert intervals(scan) == [(0, 10)]


def test_latency_counts_from_the_stamp() -> None:
    scan = scanner()
    scan.feed(stream(5, sent_ns=100) + stream(5, first=6, sent_ns=40), 110)
    assert dict(scan.latency.to_pairs()) == {10: 5, 70: 5}


def test_lost_and_swapped_messages_reach_the_ledger_on_the_fast_way() -> None:
    scan = scanner()
    order = [0, 1, 2, 5, 4, 6, 7]
    data = b"".join(
        part for tag, n in enumerate(order, 1) for part in deliver(tag, first_key(0) + n)
    )
    scan.feed(data, 1)
    sub = scan._subscriptions[1]
    part = arrivals(sub.ledger.runs(sub.ledger.expected)[0], 0, 1)
    assert (part.intervals, part.disordered) == ([(0, 3), (4, 8)], 1)


def test_redelivered_messages_are_counted() -> None:
    scan = scanner()
    parts = [deliver(tag, first_key(0) + tag, redelivered=tag > 2) for tag in range(1, 6)]
    scan.feed(b"".join(part for message in parts for part in message), 1)
    assert scan.redelivered == 3


def test_a_message_without_a_stamp_is_foreign_and_acknowledged() -> None:
    arguments = short_string("c") + struct.pack(">QB", 1, 0) + short_string("") + short_string("q")
    head = method(1, BASIC_DELIVER, arguments)
    short_body = frame(2, 1, struct.pack(">HHQH", 60, 0, 3, 0)) + frame(3, 1, b"abc")
    empty = head.replace(struct.pack(">QB", 1, 0), struct.pack(">QB", 2, 0))
    empty += frame(2, 1, struct.pack(">HHQH", 60, 0, 0, 0))
    scan = scanner()
    assert acked(scan.feed(head + short_body + empty, 1)) == [(1, 1, False), (1, 2, False)]
    assert (scan.foreign, scan.received) == (2, 2)


def test_a_delivery_tag_out_of_turn_is_refused() -> None:
    scan = scanner()
    with pytest.raises(BenchError, match="delivery tag 9 came after 3"):
        scan.feed(stream(3) + stream(2, first=9), 1)


def test_a_cancelled_consumer_ends_the_run() -> None:
    with pytest.raises(BenchError, match="cancelled"):
        scanner().feed(method(1, BASIC_CANCEL, short_string("c") + b"\x01"), 1)


def test_a_frame_without_its_end_is_refused_on_both_ways() -> None:
    data = bytearray(stream(1))
    data[-1] = 0
    with pytest.raises(BenchError, match="end octet"):
        scanner().feed(bytes(data), 1)
    scan = scanner()
    scan.feed(stream(2), 1)
    data = bytearray(stream(1, first=3))
    data[-1] = 0
    with pytest.raises(BenchError, match="end octet"):
        scan.feed(bytes(data), 1)
