"""The MQTT column of the message contract (docs/design/model.md#the-message-contract), in both
directions, and topics that other protocols share with MQTT.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from adapters.base import Origin
from adapters.mqtt.codec.packets import Disconnect, Publish
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.messages.stored import MQTT_ORIGIN
from adapters.mqtt.messages.views import text_of_value, uid_text
from adapters.tree_rights import CONSUME_TOPIC
from kernel.api import message as messages
from kernel.api.client import PublishBatch, PutTopic
from kernel.api.message import Ext, Flag, Message
from kernel.api.model import GroupOptions, TopicOptions
from tests.adapters.heard_consumers import HeardConsumers
from tests.adapters.mqtt.broker import Broker, WireClient

OTHER = 77
"""An origin that the tests register."""


class OtherOrigin:
    """Its native block is msgpack of the attributes."""

    def routing_key(self, native: bytes, /) -> str:
        return ""

    def topic_name(self, native: bytes, /) -> str:
        return ""

    def attributes(self, native: bytes, /) -> dict[str, object]:
        return msgspec.msgpack.decode(native)


OTHER_ORIGIN = OtherOrigin()


class Sink:
    def __init__(self) -> None:
        self.done: asyncio.Future[PublishBatch] = asyncio.get_running_loop().create_future()

    def published(self, batch: PublishBatch) -> None:
        self.done.set_result(batch)


async def make_topic(broker: Broker, name: str, **options: Any) -> None:
    await broker.kernel.administer(
        PutTopic("default", name, TopicOptions(**options), {"default": GroupOptions()})
    )


async def write(broker: Broker, topic: str, **fields: Any) -> str:
    """Store a message as another protocol would; its uid as text."""
    client = broker.kernel
    client.origins.register(OTHER, OTHER_ORIGIN)
    info = client.topic("default", topic)
    assert info is not None
    session = client.open_session("writer")
    sink = Sink()
    batch = client.batch(session, sink)
    high, low = batch.uid()
    given: dict[str, Any] = {
        "origin": OTHER,
        "priority": 0,
        "flags": Flag.PERSISTENT,
        "uid": high.to_bytes(8, "big") + low.to_bytes(8, "big"),
        "published_ms": 1_790_000_000_000,
        "ttl_ms": 0,
        "delay_ms": 0,
        "key_hash": 0,
        "tag_hash": 0,
        "ext": {},
        "native": msgspec.msgpack.encode({}),
        "body": b"body",
        **fields,
    }
    slot = messages.encode(Message(**given))
    batch.add(client.to_topic(info), (slot,), len(slot))
    client.submit(batch)
    assert (await sink.done).failures is None
    session.close()
    return uid_text(high, low)


async def member(broker: Broker, filter_text: str, **properties: Any) -> WireClient:
    client = await broker.connect("member")
    assert await client.subscribe(filter_text, properties=Properties(**properties)) == (1,)
    return client


async def stored(broker: Broker, topic: str) -> Message:
    """The newest message of a topic."""
    info = broker.kernel.topic("default", topic)
    assert info is not None
    found = await broker.kernel.peek(info, 0, 0, 100)
    return messages.decode(found[-1][1])


# --- From another protocol ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"ext": {Ext.MESSAGE_ID: b"m-1"}}, {"user_properties": (("weir.message_id", "m-1"),)}),
        ({"ext": {Ext.ORDERING_KEY: b"k"}}, {"user_properties": (("weir.key", "k"),)}),
        (
            {"ext": {Ext.TAG: b"t", Ext.KEYS: b"k1 k2"}},
            {"user_properties": (("weir.tag", "t"), ("weir.keys", "k1 k2"))},
        ),
        (
            {"native": {"a": "text", "n": 5, "f": 1.5, "yes": True, "raw": b"raw", "l": [1, "x"]}},
            {
                "user_properties": (
                    ("a", "text"),
                    ("n", "5"),
                    ("f", "1.5"),
                    ("yes", "true"),
                    ("raw", "cmF3"),
                    ("l", '[1,"x"]'),
                )
            },
        ),
        (
            {"native": {"content_type": "a/b", "reply_to": "back", "correlation_id": "c-1"}},
            {"content_type": "a/b", "response_topic": "back", "correlation_data": b"c-1"},
        ),
        (
            {"native": {"reply_to": "no/+/topic", "bad": "nul\0", "long": "x" * 70_000}},
            {
                "user_properties": (
                    ("reply_to", "no/+/topic"),
                    ("bad", "nul\N{REPLACEMENT CHARACTER}"),
                )
            },
        ),
        (
            {"ext": {Ext.ATTRIBUTES: msgspec.msgpack.encode({"typed": 1})}},
            {"user_properties": (("typed", "1"),)},
        ),
    ],
)
async def test_what_another_protocol_wrote_reads_as_mqtt(
    broker: Broker, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    await make_topic(broker, "orders")
    if "native" in fields:
        fields = {**fields, "native": msgspec.msgpack.encode(fields["native"])}
    recorder = await member(broker, "$share/default/orders")
    await write(broker, "orders", **fields)
    message = await recorder.take()
    assert (message.topic, message.payload, message.qos) == ("orders", b"body", 1)
    assert message.properties == Properties(**expected)


async def test_the_uid_is_a_user_property_on_request(broker: Broker) -> None:
    await make_topic(broker, "orders")
    recorder = await member(
        broker, "$share/default/orders", user_properties=(("weir.uid", "please"),)
    )
    uid = await write(broker, "orders")
    assert (await recorder.take()).properties.user_properties == (("weir.uid", uid),)


async def test_a_time_to_live_is_an_expiry_interval(broker: Broker) -> None:
    await make_topic(broker, "orders")
    recorder = await member(broker, "$share/default/orders")
    now_ms = broker.adapter.environment.clock.wall_ms()
    await write(broker, "orders", ttl_ms=9_500, published_ms=now_ms)
    assert (await recorder.take()).properties.message_expiry_interval == 10


async def test_a_further_attempt_is_a_duplicate(broker: Broker) -> None:
    await make_topic(broker, "orders")
    await write(broker, "orders")
    recorder = await member(broker, "$share/default/orders")
    first = await recorder.next(Publish)
    recorder.drop()
    again = await broker.connect("again")
    await again.subscribe("$share/default/orders")
    second = await again.take()
    assert (first.dup, second.dup) == (False, True)


# --- To other protocols ---------------------------------------------------------------------


async def test_what_mqtt_wrote_is_in_a_topic_of_the_tree_for_others(broker: Broker) -> None:
    await make_topic(broker, "orders", tree=True)
    giver = await broker.connect("giver")
    properties = Properties(
        message_expiry_interval=60,
        content_type="a/b",
        response_topic="back/1",
        correlation_data=b"c-1",
        user_properties=(
            ("a", "1"),
            ("a", "2"),
            ("weir.key", "k"),
            ("weir.tag", "t"),
            ("weir.keys", "k1 k2"),
            ("weir.message_id", "m-1"),
        ),
    )
    assert await giver.publish("orders/new", b"body", properties=properties) == 0
    message = await stored(broker, "orders")
    assert message.origin == Origin.MQTT
    assert message.body == b"body"
    assert message.ttl_ms == 60_000
    assert message.flags & Flag.PERSISTENT
    assert message.ext == {
        Ext.TREE_NAME: b"orders/new",
        Ext.ORDERING_KEY: b"k",
        Ext.TAG: b"t",
        Ext.KEYS: b"k1 k2",
        Ext.MESSAGE_ID: b"m-1",
    }
    assert message.key_hash == messages.key_hash(b"k")
    assert message.tag_hash == messages.tag_hash(b"t")
    assert broker.kernel.origins.attributes(Origin.MQTT, message.native) == {
        "a": "1",
        "content_type": "a/b",
        "reply_to": "back/1",
        "correlation_id": "c-1",
    }


async def test_a_message_of_an_old_client_has_no_attributes(broker: Broker) -> None:
    await make_topic(broker, "orders", tree=True)
    giver = await broker.connect("giver", 4)
    await giver.publish("orders", b"body", qos=0)
    await giver.ping()
    async with asyncio.timeout(5):
        while not await broker.kernel.peek(broker.kernel.topic("default", "orders"), 0, 0, 1):
            await asyncio.sleep(0.01)
    message = await stored(broker, "orders")
    assert dict(MQTT_ORIGIN.attributes(message.native)) == {}
    assert message.key_hash == 0
    assert not message.flags & Flag.PERSISTENT


def test_correlation_data_that_is_no_text_stays_bytes() -> None:
    native = bytes(10) + b"\x09\x00\x02\xff\x00"
    assert MQTT_ORIGIN.attributes(native) == {"correlation_id": b"\xff\x00"}


def test_values_without_a_text_of_their_own() -> None:
    assert text_of_value(None) == "null"
    assert text_of_value({"a": b"x"}) == '{"a":"eA=="}'


async def test_what_others_write_to_a_topic_of_the_tree_appears_there(broker: Broker) -> None:
    await make_topic(broker, "orders", tree=True)
    live = await broker.connect("live")
    await live.subscribe("orders/#")
    kept = await broker.connect("kept", clean=False, expiry=60)
    await kept.subscribe("+")
    await write(broker, "orders")
    for recorder in (live, kept):
        message = await recorder.take()
        assert (message.topic, message.payload) == ("orders", b"body")


# --- Groups of topics -----------------------------------------------------------------------


async def test_a_share_on_a_topic_is_a_consumer_group_of_it(broker: Broker) -> None:
    await make_topic(broker, "orders")
    await write(broker, "orders", body=b"before")
    first = await broker.connect("first", clean=False, expiry=60)
    assert await first.subscribe("$share/workers/orders") == (1,)
    info = broker.kernel.topic("default", "orders")
    assert info is not None
    assert info.groups.keys() == {"default", "workers"}
    assert (await first.take()).payload == b"before"
    await first.disconnect()
    for number in range(3):
        await write(broker, "orders", body=b"%d" % number)
    first = await broker.connect("first", clean=False, expiry=60)
    assert [(await first.take()).payload for _ in range(3)] == [b"0", b"1", b"2"]
    answer = await first.unsubscribe("$share/workers/orders")
    assert answer.reason_codes == (0,)
    await write(broker, "orders", body=b"later")
    await first.nothing()
    await first.disconnect()
    first = await broker.connect("first", clean=False, expiry=60)
    await first.nothing()
    other = await broker.connect("other")
    await other.subscribe("$share/workers/orders", qos=0)
    assert (await other.take()).payload == b"later"


async def test_groups_of_topics_want_the_right_to_consume_them(broker: Broker) -> None:
    await make_topic(broker, "orders")
    broker.logins.denied.add((CONSUME_TOPIC, "orders"))
    client = await broker.connect("c")
    assert await client.subscribe("$share/default/orders") == (ReasonCode.NOT_AUTHORIZED,)


async def test_a_hidden_topic_is_nobody_elses(broker: Broker) -> None:
    await make_topic(broker, "private", hidden=True)
    client = await broker.connect("c")
    await client.subscribe("$share/default/private")
    await write(broker, "private")
    await client.nothing()


async def test_a_topic_with_several_queues_is_read_whole(broker: Broker) -> None:
    await make_topic(broker, "wide", queues=4)
    client = await broker.connect("c", properties=Properties(receive_maximum=2))
    await client.subscribe("$share/default/wide")
    for number in range(20):
        await write(broker, "wide", body=b"%d" % number)
    got = [int((await client.take()).payload) for _ in range(20)]
    assert sorted(got) == list(range(20))


async def test_for_a_topic_those_are_sent_elsewhere_who_consume_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topic(broker, "hot")
    await make_topic(broker, "cold")
    heard = HeardConsumers(broker.kernel, monkeypatch)
    stays = await broker.connect("stays")
    await stays.subscribe("$share/default/cold")
    await stays.subscribe("hot")
    goes = [await broker.connect(f"goes{number}") for number in range(2)]
    for each in goes:
        await each.subscribe("$share/default/hot")
    assert broker.adapter.move(9, {"tcp": "gate2:1883"}, heard.of("hot")) == 2
    for each in goes:
        [goodbye] = await each.closed()
        assert goodbye == Disconnect(
            ReasonCode.USE_ANOTHER_SERVER,
            Properties(reason_string="moved", server_reference="gate2:1883"),
        )
    await write(broker, "cold")
    assert (await stays.take()).payload == b"body"
