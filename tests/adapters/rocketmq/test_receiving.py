"""ReceiveMessage: long polls, filters, limits, order, attempts, clients that go away."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import grpc
import pytest

from adapters.rocketmq.errors import Code
from adapters.rocketmq.settings import RocketmqSettings
from kernel.api.client import PutTopic
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicOptions
from tests.adapters.in_process import READER_KEY_ID, READER_SECRET
from tests.adapters.rocketmq.support import (
    Broker,
    HeldDisk,
    Wire,
    broker_in_thread,
    message,
    receive_request,
    signed,
)


@pytest.fixture
def topic(broker: Broker, wire: Wire, request: pytest.FixtureRequest) -> str:
    """A stream with a group `g` that waits for its first message."""
    name = f"t{abs(hash(request.node.name))}"
    broker.topic(name, queues=4)
    wire.receive(name, "g")
    return name


def test_what_is_delivered_is_what_clients_need(wire: Wire, topic: str) -> None:
    wire.send(message(topic, b"x", tag="t", keys=["a", "b"], properties={"p": "v"}))
    got = wire.receive(topic, "g", wait_s=2)
    assert got.kinds == ["status", "message", "delivery_timestamp"]
    (one,) = got.messages
    system = one.system_properties
    assert (one.topic.name, one.body, dict(one.user_properties)) == (topic, b"x", {"p": "v"})
    assert (system.tag, list(system.keys), system.message_id) == ("t", ["a", "b"], "01" + "AB" * 16)
    # MD5, upper case: what Node and Python accept alike.
    assert (system.body_digest.type, system.body_digest.checksum) == (
        2,
        "9DD4E461268C8034F5C8564E155C67A6",
    )
    assert (system.body_encoding, system.message_type, system.delivery_attempt) == (1, 1, 1)
    assert (system.born_host, system.born_timestamp.seconds) == ("10.0.0.7", 1_700_000_000)
    assert abs(system.store_timestamp.ToMilliseconds() - time.time() * 1000) < 5_000
    assert system.invisible_duration.seconds == 10
    assert system.receipt_handle


def test_a_compressed_body_stays_as_it_was_sent(wire: Wire, topic: str) -> None:
    wire.send(message(topic, b"\x1f\x8bnot really", body_encoding=2))
    (one,) = wire.receive(topic, "g", wait_s=2).messages
    assert (one.body, one.system_properties.body_encoding) == (b"\x1f\x8bnot really", 2)


def test_an_empty_poll_is_told_after_its_time(wire: Wire, topic: str) -> None:
    began = time.monotonic()
    got = wire.receive(topic, "g", wait_s=0.5)
    assert (got.kinds, got.code) == (["status"], Code.MESSAGE_NOT_FOUND)
    assert 0.4 < time.monotonic() - began < 3


def test_a_poll_ends_with_the_message_that_comes(wire: Wire, topic: str) -> None:
    sender = threading.Timer(0.3, lambda: wire.send(message(topic, b"late")))
    sender.start()
    began = time.monotonic()
    assert wire.receive(topic, "g", wait_s=10).bodies == [b"late"]
    assert time.monotonic() - began < 5
    sender.join()


def test_a_poll_is_cut_to_the_deadline_of_its_call(wire: Wire, topic: str) -> None:
    began = time.monotonic()
    got = wire.receive(topic, "g", wait_s=20, timeout=1.5)
    assert got.code == Code.MESSAGE_NOT_FOUND
    assert time.monotonic() - began < 1.5
    # A client that names no time: as long as its deadline allows.
    assert wire.receive(topic, "g", wait_s=None, timeout=1).code == Code.MESSAGE_NOT_FOUND


def test_time_to_make_a_group_is_no_time_to_wait_in(tmp_path: Path) -> None:
    """The first poll of a group makes it, which may take a while; the call must not end by that."""
    disk = HeldDisk(tmp_path)
    with broker_in_thread(tmp_path, disk=disk) as slow:
        slow.topic("slow")
        calls = Wire(slow.address)
        disk.may_sync.clear()
        release = threading.Timer(1, disk.may_sync.set)
        release.start()
        got = calls.receive("slow", "new", wait_s=None, timeout=2)
        assert got.code == Code.MESSAGE_NOT_FOUND
        release.join()
        calls.close()


def test_a_batch_is_at_most_what_was_asked_and_what_is_allowed(wire: Wire, topic: str) -> None:
    for _ in range(5):
        wire.send(*[message(topic)] * 10)
    assert len(wire.receive(topic, "g", batch=3, wait_s=2).messages) == 3
    most = [len(wire.receive(topic, "g", batch=1000, wait_s=2).messages) for _ in range(3)]
    assert max(most) <= 32


def test_a_consumer_takes_from_every_queue_whichever_it_names(wire: Wire, topic: str) -> None:
    for number in range(8):
        wire.send(message(topic, b"%d" % number))
    found: list[bytes] = []
    while len(found) < 8:
        some = wire.receive(topic, "g", wait_s=2).bodies
        assert some
        found += some
    assert sorted(found) == [b"%d" % number for number in range(8)]


def test_each_group_gets_everything(broker: Broker, wire: Wire, topic: str) -> None:
    wire.receive(topic, "h")
    wire.send(message(topic, b"both"))
    assert wire.receive(topic, "g", wait_s=2).bodies == [b"both"]
    assert wire.receive(topic, "h", wait_s=2).bodies == [b"both"]


def test_tags_are_compared_not_their_hashes(broker: Broker, wire: Wire, topic: str) -> None:
    for tag in ("Aa", "BB", "c", ""):
        wire.send(message(topic, tag.encode() or b"none", **({"tag": tag} if tag else {})))
    found: set[bytes] = set()
    while some := wire.receive(topic, "g", wait_s=0.3, expression="Aa || c"):
        if not some.messages:
            break
        found |= set(some.bodies)
    assert found == {b"Aa", b"c"}
    assert broker.statistics(topic, "g").ready == 0, "what does not match counts as consumed"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"batch": 0}, Code.BAD_REQUEST),
        ({"invisible_s": 0.5}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_s": None}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_s": 43_201}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"wait_s": -1}, Code.ILLEGAL_POLLING_TIME),
        ({"expression": "a||"}, Code.ILLEGAL_FILTER_EXPRESSION),
        ({"expression": "a >", "expression_type": 2}, Code.ILLEGAL_FILTER_EXPRESSION),
    ],
)
def test_a_receive_that_is_not_allowed(wire: Wire, topic: str, fields, code: Code) -> None:
    got = wire.receive(topic, "g", **fields)
    assert (got.kinds, got.code) == (["status"], code)
    assert got.text


def test_a_receive_of_what_is_not_there(wire: Wire, topic: str) -> None:
    assert wire.receive("nowhere", "g").code == Code.TOPIC_NOT_FOUND
    assert wire.receive(topic, "a.b").code == Code.ILLEGAL_CONSUMER_GROUP
    assert wire.receive(topic, "").code == Code.ILLEGAL_CONSUMER_GROUP


def test_rights_are_asked_for_topic_and_group(broker: Broker, wire: Wire, topic: str) -> None:
    broker.topic("open-receive")
    reader = Wire(broker.address, signed(READER_KEY_ID, READER_SECRET))
    assert reader.receive("open-receive", "readers").code == Code.MESSAGE_NOT_FOUND
    assert reader.receive("open-receive", "others").code == Code.FORBIDDEN
    assert reader.receive(topic, "readers").code == Code.FORBIDDEN
    reader.close()


def test_a_message_group_waits_for_its_head_and_others_go_on(broker: Broker, wire: Wire) -> None:
    broker.topic("ordered", "fifo", queues=4)
    wire.receive("ordered", "g")
    for number in range(3):
        for key in ("a", "b"):
            wire.send(message("ordered", f"{key}{number}".encode(), message_group=key))
    first = wire.receive("ordered", "g", batch=1, wait_s=2)
    (head,) = first.bodies
    found = [head]
    while (got := wire.receive("ordered", "g", batch=1, wait_s=0.3)).messages:
        found += got.bodies
        wire.ack("ordered", "g", *got.handles)
    key = head[:1]
    assert [body for body in found if body[:1] == key] == [head]
    other = b"b" if key == b"a" else b"a"
    assert [body for body in found if body[:1] == other] == [other + b"%d" % n for n in range(3)]
    wire.ack("ordered", "g", *first.handles)
    assert wire.receive("ordered", "g", batch=1, wait_s=2).bodies == [key + b"1"]


def test_a_repeated_attempt_gets_the_same_messages_of_a_message_group(
    broker: Broker, wire: Wire
) -> None:
    broker.topic("attempts", "fifo", queues=1)
    wire.receive("attempts", "g")
    for number in range(2):
        wire.send(message("attempts", b"%d" % number, message_group="k"))
    once = wire.receive("attempts", "g", wait_s=2, attempt_id="one")
    again = wire.receive("attempts", "g", wait_s=0.3, attempt_id="one")
    assert once.bodies == again.bodies != []
    assert once.attempts == again.attempts
    wire.ack("attempts", "g", *again.handles)
    rest = wire.receive("attempts", "g", wait_s=0.5, attempt_id="two").bodies
    assert once.bodies + rest == [b"0", b"1"]


def test_what_a_client_that_goes_away_was_being_sent_comes_back(
    broker: Broker, wire: Wire, topic: str
) -> None:
    data = receive_request(topic, "g", wait_s=20).SerializeToString()
    call = wire.stream("ReceiveMessage", data, timeout=None)
    ends = time.monotonic() + 5
    while broker.do(lambda: broker.adapter.statistics().gauges["polls"]) == 0:
        assert time.monotonic() < ends
        time.sleep(0.01)
    call.cancel()
    while broker.do(lambda: broker.adapter.statistics().gauges["polls"]) > 0:
        assert time.monotonic() < ends
        time.sleep(0.01)
    wire.send(message(topic, b"mine"))
    got = wire.receive(topic, "g", wait_s=5)
    assert got.bodies == [b"mine"]


def test_the_invisible_time_over_a_message_comes_again(wire: Wire, topic: str) -> None:
    wire.send(message(topic, b"again"))
    assert wire.receive(topic, "g", wait_s=2, invisible_s=1).attempts == [1]
    again = wire.receive(topic, "g", wait_s=5)
    assert (again.bodies, again.attempts) == ([b"again"], [2])


def test_the_last_attempt_is_followed_by_the_dead_letters(tmp_path: Path) -> None:
    settings = RocketmqSettings(attempts_max=1, invisible_ms_min=1_000)
    with broker_in_thread(tmp_path, settings) as strict:
        strict.topic("mortal")
        calls = Wire(strict.address)
        calls.receive("mortal", "g")
        calls.send(message("mortal", b"dead", properties={"p": "v"}))
        assert calls.receive("mortal", "g", wait_s=2, invisible_s=1).bodies == [b"dead"]
        (dead,) = calls.receive("%DLQ%g", "undertaker", wait_s=5).messages
        calls.close()
    assert (dead.body, dict(dead.user_properties)) == (b"dead", {"p": "v"})
    assert dead.topic.name == "%DLQ%g"
    assert dead.system_properties.dead_letter_queue.topic == "mortal"
    assert dead.system_properties.dead_letter_queue.message_id == "01" + "AB" * 16


def test_too_many_polls_are_refused_so_that_clients_wait(tmp_path: Path) -> None:
    with broker_in_thread(tmp_path, RocketmqSettings(polls_max=1)) as narrow:
        narrow.topic("narrow")
        calls = Wire(narrow.address)
        calls.receive("narrow", "g")
        first = calls.stream(
            "ReceiveMessage", receive_request("narrow", "g", wait_s=20).SerializeToString()
        )
        ends = time.monotonic() + 5
        while narrow.do(lambda: narrow.adapter.statistics().gauges["polls"]) == 0:
            assert time.monotonic() < ends
            time.sleep(0.01)
        refused = calls.receive("narrow", "g", wait_s=1)
        assert refused.code == Code.TOO_MANY_REQUESTS
        assert "polls_max" in refused.text
        # The one that waits is ended by the drain, with nothing.
        narrow.run(narrow.adapter.drain)
        assert [part.status.code for part in first] == [Code.MESSAGE_NOT_FOUND]
        calls.close()


def test_bytes_that_are_no_request_are_answered(wire: Wire) -> None:
    (answer,) = list(wire.stream("ReceiveMessage", b"\xff\xff"))
    assert answer.status.code == Code.BAD_REQUEST


def test_a_queue_of_another_protocol_is_received_with_group_default(
    broker: Broker, wire: Wire
) -> None:
    options = TopicOptions()
    change = PutTopic("default", "of-sqs", options, {DEFAULT_GROUP: GroupOptions()})
    broker.run(lambda: broker.store.client.administer(change))
    wire.send(message("of-sqs", b"shared"))
    assert wire.receive("of-sqs", DEFAULT_GROUP, wait_s=2).bodies == [b"shared"]


def test_a_method_that_is_none_is_unimplemented(wire: Wire) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        wire.raw("NoSuchCall", b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
