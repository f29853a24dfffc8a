"""Transactional messages: prepared, asked about, committed, rolled back."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from adapters.rocketmq.clients.callers import CLIENT_ID
from adapters.rocketmq.clients.registry import KnownClient
from adapters.rocketmq.codec.answer_encoding import Name
from adapters.rocketmq.errors import Code
from adapters.rocketmq.services.messaging_service import SERVICE
from adapters.rocketmq.services.questions import Producers
from adapters.rocketmq.settings import QUESTION_BYTES_MAX, STREAM_TOPICS_MAX
from adapters.rocketmq.transport.telemetry import Stream
from kernel.api.model import HalfOptions
from tests.adapters.in_process import READER_KEY_ID, READER_SECRET
from tests.adapters.rocketmq.support import (
    Broker,
    Wire,
    definition_pb2,
    message,
    resource,
    service_pb2,
    signed,
)

UNDECIDED, COMMIT, ROLLBACK = 0, 1, 2
TRANSACTION = 4
SOON = HalfOptions(check_after_ms=1, check_interval_ms=1_000, checks_max=15)


@pytest.fixture(scope="module", autouse=True)
def topics(broker: Broker) -> None:
    broker.topic("orders", "transaction", queues=2)
    broker.topic("asked", "transaction", half=SOON)
    broker.topic(
        "once", "transaction", half=HalfOptions(check_after_ms=1, check_interval_ms=1, checks_max=1)
    )
    broker.topic("normal")


def half(topic: str, body: bytes = b"half", **fields: object):
    return message(topic, body, message_type=TRANSACTION, **fields)


def prepare(wire: Wire, topic: str, body: bytes = b"half", headers=None, **fields: object) -> str:
    """The transaction id of a message that was prepared."""
    answer = wire.send(half(topic, body, **fields), headers=headers)
    assert answer.status.code == Code.OK, answer.status
    (entry,) = answer.entries
    assert (entry.status.code, entry.message_id) == (Code.OK, "01" + "AB" * 16)
    return entry.transaction_id


def end(wire: Wire, topic: str, ident: str, resolution: int, headers=None):
    request = service_pb2.EndTransactionRequest(
        topic=resource(topic), transaction_id=ident, resolution=resolution
    )
    return wire.call("EndTransaction", request, headers).status


class Producer:
    """A client with a telemetry stream, which it reads."""

    def __init__(self, wire: Wire, client_id: str, *topics: str) -> None:
        self.headers = signed(**{CLIENT_ID: client_id})
        self._out: queue.SimpleQueue = queue.SimpleQueue()
        call = wire.channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=service_pb2.TelemetryCommand.SerializeToString,
            response_deserializer=service_pb2.TelemetryCommand.FromString,
        )
        self.commands = call(
            iter(self._out.get, None), metadata=tuple(self.headers.items()), timeout=20
        )
        settings = definition_pb2.Settings(client_type=1)
        settings.publishing.topics.extend(resource(topic) for topic in topics)
        self._out.put(service_pb2.TelemetryCommand(settings=settings))
        assert next(self.commands).HasField("settings")

    def question(self):
        command = next(self.commands)
        assert command.HasField("recover_orphaned_transaction_command")
        return command.recover_orphaned_transaction_command

    def end(self) -> None:
        self._out.put(None)
        assert not [each for each in self.commands if each.HasField("settings")]


@pytest.fixture
def producer(wire: Wire) -> Iterator[Producer]:
    made = Producer(wire, "producer@1", "nowhere", "not a name", "normal", "asked")
    yield made
    made.end()


def test_a_message_is_delivered_when_it_is_committed_and_not_before(wire: Wire) -> None:
    wire.receive("orders", "g")
    first = prepare(wire, "orders", b"first")
    second = prepare(wire, "orders", b"second")
    assert first != second
    assert wire.receive("orders", "g", wait_s=0.3).messages == []
    assert end(wire, "orders", second, COMMIT).code == Code.OK
    assert end(wire, "orders", first, ROLLBACK).code == Code.OK
    (got,) = wire.receive("orders", "g", wait_s=2).messages
    assert got.body == b"second"
    assert got.system_properties.message_type == TRANSACTION
    assert wire.receive("orders", "g", wait_s=0.3).messages == []


def test_a_decision_may_be_repeated_but_not_changed(wire: Wire) -> None:
    ident = prepare(wire, "orders")
    for _ in range(2):
        assert end(wire, "orders", ident, ROLLBACK).code == Code.OK
    status = end(wire, "orders", ident, COMMIT)
    assert status.code == Code.INVALID_TRANSACTION_ID
    assert "rolled back" in status.message


@pytest.mark.parametrize("ident", ["", "grün", "00", "ff" * 16, "0" * 32])
def test_ids_that_are_none(wire: Wire, ident: str) -> None:
    assert end(wire, "orders", ident, COMMIT).code == Code.INVALID_TRANSACTION_ID


def test_an_id_of_another_topic_is_none(wire: Wire) -> None:
    ident = prepare(wire, "orders")
    assert end(wire, "normal", ident, COMMIT).code == Code.INVALID_TRANSACTION_ID
    assert end(wire, "nowhere", ident, COMMIT).code == Code.TOPIC_NOT_FOUND
    assert end(wire, "orders", ident, 7).code == Code.BAD_REQUEST
    assert end(wire, "orders", ident, ROLLBACK).code == Code.OK


def test_who_may_not_publish_may_not_decide(wire: Wire) -> None:
    ident = prepare(wire, "orders")
    reader = signed(READER_KEY_ID, READER_SECRET)
    assert end(wire, "orders", ident, COMMIT, reader).code == Code.FORBIDDEN
    assert end(wire, "orders", ident, ROLLBACK).code == Code.OK


def test_transactional_messages_are_sent_one_by_one(wire: Wire) -> None:
    answer = wire.send(half("orders"), half("orders"))
    assert answer.status.code == Code.MESSAGE_CORRUPTED
    assert answer.status.message == "a request holds one transactional message"


@pytest.mark.parametrize(
    ("topic", "fields"),
    [
        ("normal", {"message_type": TRANSACTION}),
        ("orders", {"message_type": 1}),
        ("orders", {"message_type": TRANSACTION, "message_group": "g"}),
        ("orders", {"message_type": TRANSACTION, "delivery_ms": 5}),
    ],
)
def test_only_transactional_messages_go_to_a_topic_of_transactions(
    wire: Wire, topic: str, fields: dict[str, object]
) -> None:
    status = wire.send(message(topic, **fields)).status
    assert status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


def test_too_many_undecided_messages_are_refused_as_what_passes(broker: Broker, wire: Wire) -> None:
    broker.topic("few", "transaction", half=HalfOptions(messages_max=1))
    ident = prepare(wire, "few")
    refused = wire.send(half("few")).status
    assert refused.code == Code.TOO_MANY_REQUESTS
    assert "half.messages_max of topic few is 1" in refused.message
    end(wire, "few", ident, ROLLBACK)
    end(wire, "few", prepare(wire, "few"), ROLLBACK)


def test_a_topic_that_drops_duplicates_takes_transactions_all_the_same(
    broker: Broker, wire: Wire
) -> None:
    broker.topic("window", "transaction", deduplication_ms=60_000)
    for _ in range(2):
        assert end(wire, "window", prepare(wire, "window"), COMMIT).code == Code.OK


def test_a_producer_of_the_topic_is_asked_although_another_has_sent(
    wire: Wire, producer: Producer
) -> None:
    sent = {"tag": "a", "keys": ["k"], "properties": {"color": "blau"}}
    ident = prepare(wire, "asked", b"grey", headers=signed(), **sent)
    question = producer.question()
    assert question.transaction_id == ident
    asked = question.message
    assert (asked.topic.name, asked.body) == ("asked", b"grey")
    assert dict(asked.user_properties) == {"color": "blau"}
    system = asked.system_properties
    assert (system.tag, list(system.keys), system.message_id) == ("a", ["k"], "01" + "AB" * 16)
    assert (system.message_type, system.delivery_attempt) == (TRANSACTION, 1)
    assert (system.body_digest.type, len(system.body_digest.checksum)) == (2, 32)
    assert end(wire, "asked", ident, UNDECIDED, producer.headers).code == Code.OK
    assert producer.question().transaction_id == ident, "it does not know yet: asked again"
    assert end(wire, "asked", ident, ROLLBACK, producer.headers).code == Code.OK


def test_who_sends_is_a_producer_without_saying_so(wire: Wire) -> None:
    silent = Producer(wire, "producer@2")
    ident = prepare(wire, "asked", headers=silent.headers)
    assert silent.question().transaction_id == ident
    assert end(wire, "asked", ident, COMMIT).code == Code.OK
    silent.end()


def test_what_nobody_decides_on_is_rolled_back(broker: Broker, wire: Wire) -> None:
    wire.receive("once", "g")
    ident = prepare(wire, "once")
    deadline = time.monotonic() + 10
    while not broker.do(lambda: broker.store.client.half_keeper.figures.discarded):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert end(wire, "once", ident, COMMIT).code == Code.INVALID_TRANSACTION_ID
    assert wire.receive("once", "g", wait_s=0.2).messages == []


# --- Bounds -------------------------------------------------------------------------------------


class Mute:
    """`environment.Call` of a client that does not read."""


async def test_questions_that_wait_are_bounded_and_leave_room_for_answers() -> None:
    client = KnownClient(("default", "c"), 0)
    stream = Stream(Mute(), None, client, "grpc", "")  # type: ignore[arg-type]
    assert stream.ask(bytes(QUESTION_BYTES_MAX * 2)), "one, however large"
    assert not stream.ask(b"q")
    assert stream.push(b"answer")
    assert not stream.ended.is_set()
    stream.ended.set()
    assert not Stream.ask(stream, b"")


class Half:
    """`HalfMessages.watch`, counted."""

    def __init__(self) -> None:
        self.open = 0

    @property
    def halves(self):
        return self

    origins = None

    def watch(self, tenant: str, producers: str, sink: object):
        self.open += 1
        return self

    def close(self) -> None:
        self.open -= 1


class Topic:
    """`topics.Topic` of transactions, as far as it is looked at."""

    has_transactions = True

    def __init__(self, number: int) -> None:
        self.info = self
        self.id, self.tenant, self.name = number, "default", f"t{number}"


def test_topics_of_one_stream_are_bounded_and_forgotten_with_it() -> None:
    kernel = Half()
    producers = Producers(kernel)  # type: ignore[arg-type]
    key = ("default", "c")
    caller = SimpleNamespace(tenant="default", client_id="c")
    questions = producers.joined(caller, lambda question: False)  # type: ignore[arg-type]
    for number in [0, *range(STREAM_TOPICS_MAX + 5)]:
        producers.publishes(key, Topic(number), Name("", "t"))  # type: ignore[arg-type]
    assert kernel.open == STREAM_TOPICS_MAX
    producers.left(key, questions)
    assert kernel.open == 0
    producers.publishes(key, Topic(0), Name("", "t"))  # type: ignore[arg-type]
    assert kernel.open == 0
