"""PullMessage, QueryOffset, GetOffset, UpdateOffset and RecallMessage, on the wire."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from adapters.rocketmq.errors import Code
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicKind
from tests.adapters.in_process import READER_KEY_ID, READER_SECRET
from tests.adapters.rocketmq.support import Broker, Wire, message, resource, service_pb2, signed

BEGINNING, END, TIMESTAMP = 0, 1, 2


@pytest.fixture
def topic(broker: Broker, wire: Wire, request: pytest.FixtureRequest) -> str:
    """A stream of one queue with five messages."""
    name = f"o{abs(hash(request.node.name))}"
    broker.topic(name)
    wire.send(
        *[message(name, b"%d" % each, tag="odd" if each % 2 else "even") for each in range(5)]
    )
    return name


def offset_call(wire: Wire, name: str, topic: str, queue: int = 0, **fields: Any) -> Any:
    headers = fields.pop("headers", None)
    time_ms = fields.pop("time_ms", None)
    if "group" in fields:
        fields["group"] = resource(fields["group"])
    request = getattr(service_pb2, f"{name}Request")(**fields)
    request.message_queue.topic.name, request.message_queue.id = topic, queue
    if time_ms is not None:
        request.timestamp.FromMilliseconds(time_ms)
    return wire.call(name, request, headers)


def test_where_a_queue_begins_ends_and_was_at_a_time(wire: Wire, topic: str) -> None:
    def asked(policy: int, time_ms: int | None = None) -> int:
        answer = offset_call(
            wire, "QueryOffset", topic, query_offset_policy=policy, time_ms=time_ms
        )
        assert answer.status.code == Code.OK, answer.status.message
        return int(answer.offset)

    assert (asked(BEGINNING), asked(END)) == (0, 5)
    now_ms = int(time.time() * 1000)
    assert asked(TIMESTAMP, now_ms - 60_000) == 0
    assert asked(TIMESTAMP, now_ms + 60_000) == 5
    unknown = offset_call(wire, "QueryOffset", topic, query_offset_policy=9)
    assert unknown.status.code == Code.BAD_REQUEST


def test_a_stream_is_read_by_offset(broker: Broker, wire: Wire, topic: str) -> None:
    pulled = wire.pull(topic, 0, 0, batch=3)
    assert pulled.kinds == ["status", "message", "message", "message", "next_offset"]
    assert (pulled.bodies, pulled.next_offset) == ([b"0", b"1", b"2"], 3)
    system = pulled.messages[1].system_properties
    assert (system.queue_offset, system.delivery_attempt, system.receipt_handle) == (1, 1, "")
    assert system.body_digest.checksum
    # Nothing is leased or acked by it: others receive all, and it may be read again.
    assert len(wire.receive(topic, "g", wait_s=2).messages) == 5
    assert wire.pull(topic, 0, 1, batch=1).bodies == [b"1"]
    handed = [each for each in broker.meter.handed if each[1] == topic]
    assert [each[:4] for each in handed] == [("default", topic, "g", 3), ("default", topic, "g", 1)]


def test_the_end_of_a_queue_is_waited_at(wire: Wire, topic: str) -> None:
    empty = wire.pull(topic, 0, 5)
    assert (empty.code, empty.next_offset) == (Code.MESSAGE_NOT_FOUND, 5)
    sender = threading.Timer(0.3, lambda: wire.send(message(topic, b"late")))
    sender.start()
    pulled = wire.pull(topic, 0, 5, wait_s=10)
    assert (pulled.bodies, pulled.next_offset) == ([b"late"], 6)
    sender.join()


def test_a_filter_leaves_out_and_the_offset_goes_on(wire: Wire, topic: str) -> None:
    assert wire.pull(topic, 0, 0, expression="odd").bodies == [b"1", b"3"]
    nothing = wire.pull(topic, 0, 0, expression="neither")
    assert (nothing.code, nothing.next_offset) == (Code.MESSAGE_NOT_FOUND, 5)


def test_a_pull_stops_before_what_is_not_due(broker: Broker, wire: Wire) -> None:
    broker.topic("pull-delay", None)
    due_ms = int(time.time() * 1000) + 1_500
    wire.send(message("pull-delay", b"0"))
    wire.send(message("pull-delay", b"later", delivery_ms=due_ms))
    wire.send(message("pull-delay", b"2"))
    assert (first := wire.pull("pull-delay", 0, 0)).bodies == [b"0"]
    assert first.next_offset == 1
    assert wire.pull("pull-delay", 0, 1, wait_s=10).bodies == [b"later", b"2"]


def test_a_group_is_set_back_and_receives_again(wire: Wire, topic: str) -> None:
    received = wire.receive(topic, "g", wait_s=2)
    busy = offset_call(wire, "UpdateOffset", topic, group="g", offset=2)
    assert busy.status.code == Code.BAD_REQUEST, "it holds messages"
    wire.ack(topic, "g", *received.handles)
    assert offset_call(wire, "GetOffset", topic, group="g").offset == 5
    assert offset_call(wire, "UpdateOffset", topic, group="g", offset=3).status.code == Code.OK
    assert offset_call(wire, "GetOffset", topic, group="g").offset == 3
    assert wire.receive(topic, "g", wait_s=2).bodies == [b"3", b"4"]


def test_a_group_that_only_pulls_keeps_its_place_here(wire: Wire, topic: str) -> None:
    unknown = offset_call(wire, "GetOffset", topic, group="puller")
    assert unknown.status.code == Code.CONSUMER_GROUP_NOT_FOUND
    assert offset_call(wire, "UpdateOffset", topic, group="puller", offset=4).status.code == Code.OK
    assert offset_call(wire, "GetOffset", topic, group="puller").offset == 4


def test_offsets_and_queues_that_are_not_there(wire: Wire, topic: str) -> None:
    assert wire.pull(topic, 0, 6).code == Code.ILLEGAL_OFFSET
    assert wire.pull(topic, 0, -1).code == Code.ILLEGAL_OFFSET
    assert wire.pull(topic, 1, 0).code == Code.BAD_REQUEST
    far = offset_call(wire, "UpdateOffset", topic, group="g", offset=6)
    assert far.status.code == Code.ILLEGAL_OFFSET
    assert offset_call(wire, "GetOffset", topic, 7, group="g").status.code == Code.BAD_REQUEST


def test_a_queue_that_is_no_stream_has_no_offsets_to_read(broker: Broker, wire: Wire) -> None:
    broker.topic("kept-for-acks", kind=TopicKind.WORK, groups={DEFAULT_GROUP: GroupOptions()})
    assert wire.pull("kept-for-acks", 0, 0).code == Code.UNSUPPORTED
    asked = offset_call(wire, "QueryOffset", "kept-for-acks")
    assert asked.status.code == Code.UNSUPPORTED


def test_rights_are_those_of_a_consumer(broker: Broker, wire: Wire) -> None:
    broker.topic("open-pull")
    broker.topic("closed-pull")
    reader = signed(READER_KEY_ID, READER_SECRET)
    assert wire.pull("open-pull", 0, 0, "readers", headers=reader).code == Code.MESSAGE_NOT_FOUND
    assert wire.pull("open-pull", 0, 0, "others", headers=reader).code == Code.FORBIDDEN
    assert wire.pull("closed-pull", 0, 0, "readers", headers=reader).code == Code.FORBIDDEN
    for name in ("UpdateOffset", "GetOffset"):
        answer = offset_call(wire, name, "closed-pull", group="readers", headers=reader)
        assert answer.status.code == Code.FORBIDDEN, name
    asked = offset_call(wire, "QueryOffset", "closed-pull", headers=reader)
    assert asked.status.code == Code.FORBIDDEN


# --- RecallMessage ------------------------------------------------------------------------------


def recall(wire: Wire, topic: str, handle: str, **more: Any) -> Any:
    request = service_pb2.RecallMessageRequest(topic=resource(topic), recall_handle=handle)
    return wire.call("RecallMessage", request, **more)


def delayed(wire: Wire, topic: str, ahead_s: float = 3) -> str:
    due_ms = int((time.time() + ahead_s) * 1000)
    (entry,) = wire.send(message(topic, b"late", delivery_ms=due_ms)).entries
    assert entry.status.code == Code.OK
    handle: str = entry.recall_handle
    return handle


def test_a_recalled_message_comes_to_nobody(broker: Broker, wire: Wire) -> None:
    broker.topic("recalled", "delay")
    handle = delayed(wire, "recalled", 1)
    answer = recall(wire, "recalled", handle)
    assert (answer.status.code, answer.message_id) == (Code.OK, "01" + "AB" * 16)
    assert recall(wire, "recalled", handle).status.code == Code.OK, "a repeat"
    assert wire.receive("recalled", "g", wait_s=2).bodies == []


def test_what_is_due_is_not_recalled_and_does_not_look_as_if(broker: Broker, wire: Wire) -> None:
    broker.topic("too-late", "delay")
    handle = delayed(wire, "too-late", 0.2)
    assert wire.receive("too-late", "g", wait_s=5).bodies == [b"late"]
    answer = recall(wire, "too-late", handle)
    assert answer.status.code == Code.BAD_REQUEST, "MESSAGE_NOT_FOUND is a success to clients"


def test_handles_that_are_none(broker: Broker, wire: Wire) -> None:
    broker.topic("one-delay", "delay")
    broker.topic("other-delay", "delay")
    handle = delayed(wire, "one-delay", 60)
    for wrong in ("", "x", "é", handle[:-4], handle[::-1], handle + "A" * 4, "A" * 5_000):
        assert recall(wire, "one-delay", wrong).status.code == Code.BAD_REQUEST, wrong
    assert recall(wire, "other-delay", handle).status.code == Code.BAD_REQUEST
    assert recall(wire, "one-delay", handle).status.code == Code.OK


def test_who_may_not_publish_may_not_recall(broker: Broker, wire: Wire) -> None:
    broker.topic("open-delay", "delay")
    handle = delayed(wire, "open-delay", 60)
    reader = signed(READER_KEY_ID, READER_SECRET)
    answer = recall(wire, "open-delay", handle, headers=reader)
    assert answer.status.code == Code.FORBIDDEN
