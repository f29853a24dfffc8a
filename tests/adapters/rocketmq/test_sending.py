"""SendMessage: what is stored, what is refused and how, batches, sizes, repeats."""

from __future__ import annotations

import time

import pytest

from adapters.rocketmq.errors import Code
from adapters.rocketmq.settings import KEYS_MAX, SEND_MESSAGES_MAX
from tests.adapters.in_process import READER_KEY_ID, READER_SECRET
from tests.adapters.rocketmq.support import Broker, Wire, message, service_pb2, signed

DAY_MS = 86_400_000


def in_ms(delay_ms: int) -> int:
    return int(time.time() * 1000) + delay_ms


@pytest.fixture(scope="module", autouse=True)
def topics(broker: Broker) -> None:
    for word in ("normal", "fifo", "delay", "transaction"):
        broker.topic(word, word, queues=4)


def test_a_message_is_answered_with_its_id_and_offset(broker: Broker, wire: Wire) -> None:
    broker.topic("offsets", queues=1)
    for offset in range(3):
        (entry,) = wire.send(message("offsets")).entries
        assert (entry.status.code, entry.message_id) == (Code.OK, "01" + "AB" * 16)
        assert entry.offset == offset


def test_a_batch_goes_to_one_queue_in_its_order(broker: Broker, wire: Wire) -> None:
    broker.topic("batch", queues=8)
    wire.receive("batch", "all")
    bodies = [b"%d" % number for number in range(32)]
    answer = wire.send(
        *(message("batch", body, message_id=f"ID{body.decode()}") for body in bodies)
    )
    assert answer.status.code == Code.OK
    assert [entry.message_id for entry in answer.entries] == [f"ID{b.decode()}" for b in bodies]
    assert [entry.offset for entry in answer.entries] == list(range(32))
    assert wire.receive("batch", "all", wait_s=2).bodies == bodies


def test_a_batch_with_one_message_that_is_not_allowed_is_stored_not_at_all(
    broker: Broker, wire: Wire
) -> None:
    broker.topic("all-or-nothing")
    wire.receive("all-or-nothing", "g")
    answer = wire.send(message("all-or-nothing"), message("all-or-nothing", b""))
    assert answer.status.code == Code.MESSAGE_BODY_EMPTY
    assert broker.statistics("all-or-nothing", "g").ready == 0


def test_the_largest_body_is_stored_and_one_byte_more_refused(broker: Broker, wire: Wire) -> None:
    broker.topic("big")
    wire.receive("big", "g")
    largest = b"\xff" * (4 * 1024 * 1024)
    assert wire.send(message("big", largest)).status.code == Code.OK
    assert wire.receive("big", "g", wait_s=2).bodies == [largest]
    refused = wire.send(message("big", largest + b"x"))
    assert refused.status.code == Code.MESSAGE_BODY_TOO_LARGE
    assert refused.status.message == "the body has 4194305 bytes; at most 4194304 are allowed here"


def test_a_topic_may_take_less(broker: Broker, wire: Wire) -> None:
    broker.topic("small", message_bytes_max=10)
    assert wire.send(message("small", b"x" * 11)).status.code == Code.MESSAGE_BODY_TOO_LARGE


def test_lite_messages_are_refused(wire: Wire) -> None:
    assert wire.send(message("normal", lite_topic="l")).status.code == Code.UNSUPPORTED


def test_only_topics_with_priorities_take_them(broker: Broker, wire: Wire) -> None:
    broker.topic("urgent", "priority")
    broker.topic("declared-elsewhere", None, priority_max=3)
    codes = [
        wire.send(message(topic, priority=3)).status.code
        for topic in ("urgent", "declared-elsewhere", "normal")
    ]
    assert codes == [Code.OK, Code.OK, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE]
    assert wire.send(message("urgent", priority=-1)).status.code == Code.BAD_REQUEST


def test_higher_priorities_are_received_first(broker: Broker, wire: Wire) -> None:
    broker.topic("levels", "priority")
    for level in (None, 1, 9, 1_000, 5):
        fields = {} if level is None else {"priority": level}
        wire.send(message("levels", str(level).encode(), **fields))
    got = [wire.receive("levels", "g", batch=1, wait_s=2) for _ in range(5)]
    assert [each.bodies[0] for each in got] == [b"9", b"1000", b"5", b"1", b"None"]
    first = got[0].messages[0].system_properties
    assert (first.priority, first.message_type) == (9, 6)
    assert got[1].messages[0].system_properties.priority == 1_000, "as it was sent"


@pytest.mark.parametrize(
    ("topic", "fields", "code"),
    [
        ("normal", {"body": b""}, Code.MESSAGE_BODY_EMPTY),
        ("normal", {"message_id": ""}, Code.ILLEGAL_MESSAGE_ID),
        ("normal", {"message_id": "x" * 129}, Code.ILLEGAL_MESSAGE_ID),
        ("normal", {"message_id": "a\nb"}, Code.ILLEGAL_MESSAGE_ID),
        ("normal", {"tag": "a|b"}, Code.ILLEGAL_MESSAGE_TAG),
        ("normal", {"tag": " "}, Code.ILLEGAL_MESSAGE_TAG),
        ("normal", {"tag": "a\x01"}, Code.ILLEGAL_MESSAGE_TAG),
        ("normal", {"keys": [""]}, Code.ILLEGAL_MESSAGE_KEY),
        ("normal", {"keys": ["k"] * (KEYS_MAX + 1)}, Code.ILLEGAL_MESSAGE_KEY),
        ("normal", {"properties": {"": "v"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ("normal", {"properties": {"TAGS": "v"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ("normal", {"properties": {"a": "\x02"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (
            "normal",
            {"properties": {str(n): "v" for n in range(129)}},
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
        ),
        ("normal", {"properties": {"a": "v" * 16_384}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ("normal", {"message_group": "g"}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ("normal", {"message_type": 2}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ("normal", {"message_type": 77}, Code.BAD_REQUEST),
        ("fifo", {}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ("fifo", {"message_group": "g" * 64}, Code.ILLEGAL_MESSAGE_GROUP),
        ("fifo", {"message_group": " "}, Code.ILLEGAL_MESSAGE_GROUP),
        ("delay", {}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ("delay", {"delivery_ms": 0}, Code.ILLEGAL_DELIVERY_TIME),
        (
            "fifo",
            {"message_group": "g", "delivery_ms": 1},
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        ),
        ("nowhere", {}, Code.TOPIC_NOT_FOUND),
        ("a b", {}, Code.ILLEGAL_TOPIC),
    ],
)
def test_a_message_that_is_not_allowed(wire: Wire, topic: str, fields, code: Code) -> None:
    answer = wire.send(message(topic, **fields))
    assert answer.status.code == code, answer.status.message
    assert answer.status.message


def test_delays_reach_40_days_and_no_further(wire: Wire) -> None:
    almost = wire.send(message("delay", delivery_ms=in_ms(40 * DAY_MS - 60_000)))
    assert almost.status.code == Code.OK
    beyond = wire.send(message("delay", delivery_ms=in_ms(40 * DAY_MS + 60_000)))
    assert beyond.status.code == Code.ILLEGAL_DELIVERY_TIME


def test_a_time_that_has_come_is_no_delay(wire: Wire) -> None:
    wire.receive("delay", "now")
    wire.send(message("delay", b"at once", delivery_ms=in_ms(-5_000)))
    assert wire.receive("delay", "now", wait_s=2).bodies == [b"at once"]


def test_a_request_without_messages_or_with_too_many(wire: Wire) -> None:
    assert wire.send().status.code == Code.MESSAGE_CORRUPTED
    too_many = [message("normal")] * (SEND_MESSAGES_MAX + 1)
    assert wire.send(*too_many).status.code == Code.MESSAGE_CORRUPTED


def test_a_request_with_messages_of_two_topics(wire: Wire) -> None:
    answer = wire.send(message("normal"), message("fifo", message_group="g"))
    assert answer.status.code == Code.MESSAGE_CORRUPTED


def test_bytes_that_are_no_request_are_answered(wire: Wire) -> None:
    answer = service_pb2.SendMessageResponse.FromString(wire.raw("SendMessage", b"\xff\xff"))
    assert answer.status.code == Code.BAD_REQUEST
    assert "SendMessageRequest" in answer.status.message


def test_who_may_only_consume_may_not_send(broker: Broker, wire: Wire) -> None:
    broker.topic("open-send")
    reader = signed(READER_KEY_ID, READER_SECRET)
    answer = wire.send(message("open-send"), headers=reader)
    assert answer.status.code == Code.FORBIDDEN
    assert "publish to topic open-send" in answer.status.message


def test_a_message_sent_again_is_stored_once_where_the_topic_deduplicates(
    broker: Broker, wire: Wire
) -> None:
    broker.topic("once", deduplication_ms=60_000)
    wire.receive("once", "g")
    first, again = (wire.send(message("once", body)).entries[0] for body in (b"1", b"2"))
    assert (first.status.code, again.status.code) == (Code.OK, Code.OK)
    assert (first.offset, again.offset) == (0, 0)
    assert wire.receive("once", "g", wait_s=2).bodies == [b"1"]


def test_a_full_topic_makes_clients_wait(broker: Broker, wire: Wire) -> None:
    from kernel.api.model import DEFAULT_GROUP, GroupOptions, Overflow, TopicKind

    broker.topic(
        "full",
        kind=TopicKind.WORK,
        groups={DEFAULT_GROUP: GroupOptions()},
        messages_max=2,
        overflow=Overflow.REJECT,
    )
    codes = [wire.send(message("full")).status.code for _ in range(3)]
    assert codes == [Code.OK, Code.OK, Code.TOO_MANY_REQUESTS]


def test_calls_that_are_not_served_say_so(wire: Wire) -> None:
    lite = wire.call("SyncLiteSubscription", service_pb2.SyncLiteSubscriptionRequest())
    assert lite.status.code == Code.UNSUPPORTED
    assert lite.status.message
