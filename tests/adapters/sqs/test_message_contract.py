"""The SQS column of the message contract (docs/design/model.md#the-message-contract), in both
directions."""

from __future__ import annotations

import base64
import hashlib
import uuid

import msgspec
import pytest

from adapters.base import Origin
from adapters.sqs.codec.shapes import MessageAttributeValue
from adapters.sqs.messages import native, stored
from adapters.sqs.messages.native import NativeBlock
from kernel.api import message as messages
from kernel.api.client import PublishBatch, PutTopic
from kernel.api.message import Ext, Flag, Message
from kernel.api.model import GroupOptions, TopicOptions
from tests.adapters.sqs.service import Service

OTHER = 77
"""An origin that the test registers."""


class OtherOrigin:
    """Its native block is msgpack of the attributes."""

    def routing_key(self, native_block: bytes, /) -> str:
        return ""

    def attributes(self, native_block: bytes, /) -> dict[str, object]:
        return msgspec.msgpack.decode(native_block)


OTHER_ORIGIN = OtherOrigin()


class Sink:
    def __init__(self, done) -> None:
        self.done = done

    def published(self, batch: PublishBatch) -> None:
        self.done.set_result(batch)


def write(service: Service, topic: str, **fields: object) -> bytes:
    """Store a message as another protocol would; its uid."""
    defaults: dict[str, object] = {
        "origin": OTHER,
        "priority": 0,
        "flags": Flag.PERSISTENT,
        "published_ms": 1_790_000_000_000,
        "ttl_ms": 0,
        "delay_ms": 0,
        "key_hash": 0,
        "tag_hash": 0,
        "ext": {},
        "native": msgspec.msgpack.encode({}),
        "body": b"",
    }

    async def publish() -> bytes:
        client = service.store.client
        client.origins.register(OTHER, OTHER_ORIGIN)
        if client.topic("default", topic) is None:
            options = {"default": GroupOptions()}
            await client.administer(PutTopic("default", topic, TopicOptions(), options))
        info = client.topic("default", topic)
        assert info is not None
        session = client.open_session("writer")
        done = service.loop.create_future()
        batch = client.batch(session, Sink(done))
        high, low = batch.uid()
        uid = high.to_bytes(8, "big") + low.to_bytes(8, "big")
        slot = messages.encode(Message(**{**defaults, "uid": uid, **fields}))
        batch.add(client.to_topic(info), (slot,), len(slot))
        client.submit(batch)
        assert (await done).failures is None
        session.close()
        return uid

    return service.run(publish)


def read(service: Service, topic: str) -> Message:
    """The newest message of a topic as it is stored."""

    async def peek() -> bytes:
        client = service.store.client
        info = client.topic("default", topic)
        assert info is not None
        found = await client.peek(info, 0, 0, 100)
        return found[-1][1]

    return messages.decode(service.run(peek))


def receive(sqs, url: str):
    (message,) = sqs.receive_message(
        QueueUrl=url, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"]
    )["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return message


@pytest.fixture
def foreign(service: Service, sqs):
    """Writes as another protocol, receives over SQS."""

    def exchange(**fields: object):
        write(service, "from-others", **fields)
        return receive(sqs, sqs.get_queue_url(QueueName="from-others")["QueueUrl"])

    return exchange


def text(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


# --- written by others, read over SQS ----------------------------------------------------------


def test_a_text_body_comes_as_it_is(foreign) -> None:
    message = foreign(body="grüße".encode())
    assert message["Body"] == "grüße"
    assert "MessageAttributes" not in message
    assert message["MD5OfBody"] == hashlib.md5("grüße".encode()).hexdigest()


@pytest.mark.parametrize("body", [b"\x00\x01", b"\xff\xfe", "\ufffe".encode(), b"a\x0b"])
def test_a_body_that_is_no_text_comes_in_base64_and_says_so(foreign, body: bytes) -> None:
    message = foreign(body=body)
    assert base64.b64decode(message["Body"]) == body
    assert message["MessageAttributes"] == {"weir.encoding": text("base64")}


def test_an_empty_body_is_the_empty_text(foreign) -> None:
    assert foreign(body=b"")["Body"] == ""


def test_the_uid_is_the_message_id(service, sqs) -> None:
    uid = write(service, "with-uid")
    message = receive(sqs, sqs.get_queue_url(QueueName="with-uid")["QueueUrl"])
    assert message["MessageId"] == str(uuid.UUID(bytes=uid))


def test_the_fields_of_the_kernel_are_attributes(foreign) -> None:
    message = foreign(
        body=b"x",
        ext={
            Ext.MESSAGE_ID: b"theirs",
            Ext.TAG: b"blue",
            Ext.KEYS: b"k1 k2",
            Ext.ORDERING_KEY: b"group",
        },
        native=msgspec.msgpack.encode(
            {"content_type": "text/plain", "correlation_id": "c", "reply_to": "r", "own": 5}
        ),
    )
    assert message["MessageAttributes"] == {
        "weir.message_id": text("theirs"),
        "weir.tag": text("blue"),
        "weir.keys": text("k1 k2"),
        "weir.content_type": text("text/plain"),
        "weir.correlation_id": text("c"),
        "weir.reply_to": text("r"),
        "own": {"DataType": "Number", "StringValue": "5"},
    }
    assert message["Attributes"]["MessageGroupId"] == "group"
    assert message["Attributes"]["SentTimestamp"] == "1790000000000"


def test_attributes_beyond_the_tenth_are_in_weir_more(foreign) -> None:
    values = {f"name-{number:02d}": number for number in range(12)} | {"odd name": True}
    attributes = foreign(body=b"x", native=msgspec.msgpack.encode(values))["MessageAttributes"]
    assert len(attributes) == 10
    more = msgspec.json.decode(attributes["weir.more"]["StringValue"])
    assert more == {"name-09": 9, "name-10": 10, "name-11": 11, "odd name": True}


def test_attributes_of_a_writer_without_native_block(foreign) -> None:
    message = foreign(
        body=b"x",
        origin=Origin.KERNEL,
        native=b"",
        ext={Ext.ATTRIBUTES: msgspec.msgpack.encode({"a": "b"})},
    )
    assert message["MessageAttributes"] == {"a": text("b")}


def test_a_message_of_sixteen_megabytes_is_received(foreign) -> None:
    assert len(foreign(body=b"x" * messages.BODY_BYTES_MAX)["Body"]) == messages.BODY_BYTES_MAX


def test_an_answer_holds_no_more_than_its_limit_but_always_one(service, sqs) -> None:
    for _ in range(4):
        write(service, "large-ones", body=b"x" * (6 * 1024 * 1024))
    url = sqs.get_queue_url(QueueName="large-ones")["QueueUrl"]
    counts = []
    for _ in range(3):
        result = sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
        )
        found = result.get("Messages", [])
        counts.append(len(found))
        for message in found:
            assert message["Attributes"] == {"ApproximateReceiveCount": "1"}
    assert counts == [2, 2, 0]


# --- written over SQS, read by others ----------------------------------------------------------


@pytest.fixture
def send(service: Service, sqs):
    """Sends over SQS; the message as it is stored."""
    url = sqs.create_queue(QueueName="to-others")["QueueUrl"]

    def exchange(**fields: object) -> Message:
        sqs.send_message(QueueUrl=url, **fields)
        return read(service, "to-others")

    return exchange


def test_what_sqs_writes_is_marked_as_such(send) -> None:
    message = send(MessageBody="grüße")
    assert message.origin == Origin.SQS
    assert message.body == "grüße".encode()
    assert message.flags == Flag.PERSISTENT
    assert message.ext == {}
    assert native.decode(message.native) == NativeBlock(sender_id="guest")


def test_a_body_sent_in_base64_is_stored_decoded_and_given_back_encoded(send, sqs) -> None:
    encoded = base64.b64encode(b"\x00\xff").decode()
    message = send(MessageBody=encoded, MessageAttributes={"weir.encoding": text("base64")})
    assert message.body == b"\x00\xff"
    url = sqs.get_queue_url(QueueName="to-others")["QueueUrl"]
    body = None
    while body != encoded:
        # Other tests' messages come first; when none is left this fails by KeyError.
        body = receive(sqs, url)["Body"]


def test_reserved_attributes_become_fields_of_the_kernel(send) -> None:
    message = send(
        MessageBody="x",
        MessageGroupId="tenant",
        DelaySeconds=5,
        MessageAttributes={
            "weir.message_id": text("mine"),
            "weir.tag": text("blue"),
            "weir.keys": text("k1"),
            "weir.content_type": text("text/plain"),
            "weir.reply_to": text("answers"),
            "own": {"DataType": "Number", "StringValue": "5"},
        },
    )
    assert message.ext == {
        Ext.MESSAGE_ID: b"mine",
        Ext.TAG: b"blue",
        Ext.KEYS: b"k1",
        Ext.FAIRNESS_KEY: b"tenant",
    }
    assert message.tag_hash == messages.tag_hash(b"blue")
    assert message.key_hash == messages.key_hash(b"tenant")
    assert message.delay_ms == 5000
    assert stored.ORIGIN.attributes(message.native) == {
        "content_type": "text/plain",
        "reply_to": "answers",
        "own": 5,
    }
    assert stored.ORIGIN.routing_key(message.native) == ""


def test_a_fifo_message_has_its_ordering_key(service, sqs) -> None:
    url = sqs.create_queue(QueueName="to-others.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="d")
    message = read(service, "to-others.fifo")
    assert message.ext == {Ext.ORDERING_KEY: b"g", Ext.DEDUPLICATION_ID: b"d"}
    assert message.key_hash == messages.key_hash(b"g")
    assert message.flags == Flag.PERSISTENT | Flag.DEDUPLICATE


def test_what_was_received_can_be_sent_on_as_it_is(service, sqs, foreign) -> None:
    values = {f"name-{number:02d}": number for number in range(12)} | {"odd name": b"\x00"}
    message = foreign(body=b"\x00", native=msgspec.msgpack.encode(values))
    url = sqs.create_queue(QueueName="sent-on")["QueueUrl"]
    sqs.send_message(
        QueueUrl=url,
        MessageBody=message["Body"],
        MessageAttributes=message["MessageAttributes"],
    )
    again = read(service, "sent-on")
    assert again.body == b"\x00"
    assert stored.ORIGIN.attributes(again.native) == values


def test_the_reader_of_our_blocks_takes_what_was_ever_stored() -> None:
    assert stored.ORIGIN.attributes(b"") == {}
    block = native.encode(
        NativeBlock({"weir.tag": MessageAttributeValue(data_type="String", string_value="t")})
    )
    assert stored.ORIGIN.attributes(block) == {}
