"""Requests of plain messages, taken apart by slices: the same bytes are stored as by careful work,
and whatever is not plain is left alone.
"""

from __future__ import annotations

import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.rocketmq.codec.plain_sends import HEADER, PlainSends, Splitter
from adapters.rocketmq.codec.stubs import parse_send_message
from adapters.rocketmq.errors import RocketmqError
from adapters.rocketmq.messages.stored import Drafts, Target
from adapters.rocketmq.messages.topic_types import MessageType
from adapters.rocketmq.settings import TAILS_KEPT_MAX, RocketmqSettings
from kernel.api import message as messages
from tests.adapters.rocketmq.support import message, service_pb2

NOW_MS = 1_790_000_000_000
TARGET = Target(
    name="t",
    accepted=(MessageType.NORMAL,),
    body_bytes_max=1 << 22,
    has_window=False,
    takes_plain=True,
)


class Batch:
    """Keeps what is added."""

    def __init__(self) -> None:
        self.slots: list[bytes] = []
        self._next = 7

    def uid(self) -> tuple[int, int]:
        self._next += 1
        return 99, self._next

    def uids(self, count: int) -> tuple[int, int]:
        first = self._next + 1
        self._next += count
        return 99, first

    def add(self, to: object, parts: tuple[bytes, bytes], size: int) -> None:
        self.add_alike(to, [parts[0]], [parts[1]], [size])

    def add_alike(
        self, to: object, heads: list[bytes], bodies: list[bytes], sizes: list[int]
    ) -> None:
        for head, body, size in zip(heads, bodies, sizes, strict=True):
            assert len(head + body) == size
            self.slots.append(head + body)


def slots_of(found: PlainSends) -> list[bytes]:
    """The slots that the short way makes of a request that it takes."""
    batch = Batch()
    found.add(batch, None, NOW_MS)  # type: ignore[arg-type]
    return batch.slots


def plain(data: bytes) -> list[bytes] | None:
    """The same of any request; None: it leaves it alone."""
    found = Splitter().split(data)
    return None if found is None else slots_of(found)


def careful(data: bytes) -> list[bytes]:
    """The slots that the long way makes of it. Raises RocketmqError."""
    sent = parse_send_message(data).messages
    drafts = Drafts(sent[0].topic, TARGET, RocketmqSettings(), NOW_MS)
    batch = Batch()
    return [b"".join(drafts.of(each, batch.uid())[0]) for each in sent]


def request(*sent: object) -> bytes:
    data: bytes = service_pb2.SendMessageRequest(messages=sent).SerializeToString()
    return data


@st.composite
def plain_messages(draw: st.DrawFn):
    made = message(
        "t",
        draw(st.binary(min_size=1, max_size=300)),
        message_id=draw(st.from_regex(r"[A-Za-z0-9]{1,60}", fullmatch=True)),
        message_type=1,
    )
    made.system_properties.born_timestamp.nanos = draw(st.integers(0, 999_999_999))
    made.system_properties.born_host = draw(st.text(max_size=20))
    return made


@given(st.lists(plain_messages(), min_size=1, max_size=4))
def test_the_same_is_stored_the_short_way_and_the_long_way(sent: list) -> None:
    data = request(*sent)
    short = plain(data)
    assert short is None or short == careful(data)
    if all(len(each.system_properties.SerializeToString()) < 128 for each in sent):
        assert short is not None


@st.composite
def requests_alike(draw: st.DrawFn) -> bytes:
    """Messages of one size, as one client sends them together; at times one is not like that."""
    count, size = draw(st.integers(2, 6)), draw(st.sampled_from([1, 5, 130, 20_000]))
    numbers = draw(st.lists(st.integers(0, 10**9), min_size=count, max_size=count))
    sent = [
        message("t", b"%*d" % (size, number % 10), message_id=f"A{number:010}", message_type=1)
        for number in numbers
    ]
    if draw(st.booleans()):
        odd = sent[draw(st.integers(0, count - 1))]
        change = draw(st.sampled_from(["topic", "tag", "host", "id", "group"]))
        system = odd.system_properties
        if change == "topic":
            odd.topic.name = "u"
        elif change == "host":
            system.born_host = "10.0.0.8"
        elif change == "id":
            system.message_id = "-" * len(system.message_id)
        else:
            setattr(system, "tag" if change == "tag" else "message_group", "x")
    return request(*sent)


@given(requests_alike(), st.data())
def test_messages_of_one_size_are_read_by_columns_and_are_the_same(
    data: bytes, draw: st.DataObject
) -> None:
    short = plain(data)
    if short is None:
        assert any(word in data for word in (b"\x12\x01u", b"\x0a\x01x", b"--", b"\x01\x01x"))
    else:
        assert short == careful(data)
    spoilt = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        spoilt[draw.draw(st.integers(0, len(spoilt) - 1))] = draw.draw(st.integers(0, 255))
    short = plain(bytes(spoilt))
    if short is not None and is_as_written(bytes(spoilt)):
        assert short == careful(bytes(spoilt))


def is_as_written(data: bytes) -> bool:
    """Whether protobuf would spell it so: what it would not is kept as it came, the short way."""
    parsed = service_pb2.SendMessageRequest.FromString(data)
    return parsed.SerializeToString() == data


@pytest.mark.parametrize("size", [1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 4_194_304])
def test_bodies_of_every_length_of_length(size: int) -> None:
    data = request(message("t", b"x" * size, message_type=1), message("t", b"y", message_type=1))
    assert plain(data) == careful(data)


def test_what_clients_send_is_plain() -> None:
    """As the Python and the Node client write it."""
    python = message("t", b"x" * 1024, message_type=1, born_host="192.168.100.200")
    node = message("t", b"x", message_type=1, born_host="a-host.example.org")
    node.system_properties.born_timestamp.nanos = 123_000_000
    assert plain(request(python)) is not None
    assert plain(request(node)) is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"tag": "a"},
        {"keys": ["k"]},
        {"properties": {"a": "b"}},
        {"message_group": "g"},
        {"delivery_ms": 5},
        {"message_type": 0},
        {"message_type": 4},
        {"body_encoding": 2},
        {"message_id": ""},
        {"message_id": "with-dash"},
        {"body": b""},
        {"namespace": "n"},
        {"trace_context": "c"},
        {"queue_id": 3},
        {"receipt_handle": "h"},
        {"born_host": "x" * 200},
    ],
)
def test_what_is_not_plain_is_left_to_the_long_way(fields: dict) -> None:
    other = message("t", **{"message_type": 1, **fields})
    assert plain(request(message("t", message_type=1), other)) is None


def test_what_is_left_to_the_long_way_whole() -> None:
    one = request(message("t", message_type=1))
    assert plain(b"") is None
    assert plain(request(message("t", message_type=1), message("u", message_type=1))) is None
    assert plain(one + b"\x10\x01") is None, "a field of a later definition in the request"
    assert plain(b"\xff\xff") is None
    later = message("t", message_type=1)
    later.MergeFromString(b"\x28\x01")
    assert plain(request(later)) is None, "a field of a later definition in a message"
    bad = one.replace(b"10.0.0.7", b"\xff\xfe0.0.7")
    assert plain(bad) is None
    with pytest.raises(RocketmqError):
        parse_send_message(bad)


@given(st.data())
@example(None)
def test_no_bytes_are_an_error_of_another_kind(data: st.DataObject | None) -> None:
    good = bytearray(request(message("t", message_type=1), message("t", b"2", message_type=1)))
    if data is not None:
        for _ in range(data.draw(st.integers(1, 3))):
            good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
        good = good[: data.draw(st.integers(0, len(good)))]
    short = plain(bytes(good))
    assert short is None or short == careful(bytes(good))


def test_the_header_is_the_kernels() -> None:
    assert HEADER.size == messages.HEADER.size
    data = request(message("t", b"body", message_type=1))
    (slot,) = plain(data) or []
    stored = messages.decode(slot)
    assert (stored.origin, stored.flags, stored.published_ms) == (4, 1, NOW_MS)
    assert (stored.body, stored.ext) == (b"body", {5: b"01" + b"AB" * 16})
    assert stored.uid == (99).to_bytes(8, "big") + (8).to_bytes(8, "big")


def test_what_is_remembered_is_bounded() -> None:
    splitter = Splitter()
    for number in range(TAILS_KEPT_MAX + 10):
        sent = message("t", message_type=1)
        sent.system_properties.born_timestamp.nanos = number
        assert splitter.split(request(sent)) is not None
    assert len(splitter._tails) <= TAILS_KEPT_MAX
    assert sys.getsizeof(splitter._tails) < 1 << 20
