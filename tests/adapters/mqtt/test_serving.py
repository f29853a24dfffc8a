"""The adapter over a real store: publishing and what subscribers get of it."""

from __future__ import annotations

import asyncio

import pytest

from adapters.mqtt.codec.packets import Disconnect, FilterOptions, Publish
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.config import SessionConfig
from adapters.mqtt.environment import MqttSettings
from adapters.mqtt.requests.publishing import PUBLISH_TREE
from adapters.tree_rights import CONSUME_TREE
from tests.adapters.mqtt.broker import Broker, WireClient, serving

KEPT = 600


async def session_of(broker: Broker, name: str, *, kept: bool, level: int = 5) -> WireClient:
    """A client whose session is kept, or ends with its connection."""
    expiry = KEPT if kept and level == 5 else None
    return await broker.connect(name, level, clean=not kept, expiry=expiry)


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_reaches_a_subscriber(
    broker: Broker, level: int, kept: bool, qos: int
) -> None:
    """[MQTT-4.3.3-7] with QoS 2: it is stored before PUBREC, and delivered once."""
    recorder = await session_of(broker, "taker", kept=kept, level=level)
    assert await recorder.subscribe("a/+", qos=2) == (2,)
    giver = await session_of(broker, "giver", kept=kept, level=level)
    await giver.publish("a/b", b"hello", qos)
    message = await recorder.take()
    assert (message.topic, message.payload, message.qos) == ("a/b", b"hello", qos)
    await recorder.nothing()


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_kept_session_gets_later_what_came_while_it_was_away(
    broker: Broker, level: int, qos: int
) -> None:
    """[MQTT-3.1.2-5], [MQTT-4.5.0-1]."""
    recorder = await session_of(broker, "taker", kept=True, level=level)
    await recorder.subscribe("a/+", qos=2)
    await recorder.disconnect()
    giver = await broker.connect("giver", level)
    for number in range(5):
        await giver.publish("a/b", b"%d" % number, qos)
    recorder = await session_of(broker, "taker", kept=True, level=level)
    assert recorder.connack is not None
    assert recorder.connack.session_present
    got = [await recorder.take() for _ in range(5)]
    assert [(each.payload, each.qos, each.dup) for each in got] == [
        (b"%d" % number, qos, False) for number in range(5)
    ]
    await recorder.nothing()


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(("published", "granted"), [(2, 0), (2, 1), (1, 0), (0, 2), (1, 2)])
async def test_a_delivery_has_the_lesser_qos(
    broker: Broker, kept: bool, published: int, granted: int
) -> None:
    """[MQTT-3.8.4-8]; and the name is the one of the message [MQTT-3.3.2-3]."""
    recorder = await session_of(broker, "taker", kept=kept)
    assert await recorder.subscribe("a", qos=granted) == (granted,)
    giver = await broker.connect("giver")
    await giver.publish("a", qos=published)
    assert (await recorder.take()).qos == min(published, granted)


@pytest.mark.parametrize("kept", [False, True])
async def test_messages_of_a_topic_come_in_their_order(broker: Broker, kept: bool) -> None:
    """[MQTT-4.6.0-6], [MQTT-4.1.0-1]: those of one QoS, also when few are taken at a time."""
    recorder = await broker.connect(
        "taker",
        clean=not kept,
        properties=Properties(session_expiry_interval=KEPT if kept else None, receive_maximum=3),
    )
    await recorder.subscribe("a/#", qos=2)
    giver = await broker.connect("giver")
    for number in range(60):
        giver.send(Publish("a/b", b"%d" % number, 1 + number % 2, packet_id=number + 1))
    got = [await recorder.take() for _ in range(60)]
    for qos in (1, 2):
        ordered = [int(each.payload) for each in got if each.qos == qos]
        assert ordered == list(range(qos - 1, 60, 2))


@pytest.mark.parametrize("kept", [False, True])
async def test_no_more_is_in_flight_than_the_client_takes(broker: Broker, kept: bool) -> None:
    recorder = await broker.connect(
        "taker",
        clean=not kept,
        properties=Properties(session_expiry_interval=KEPT if kept else None, receive_maximum=2),
    )
    await recorder.subscribe("a", qos=1)
    giver = await broker.connect("giver")
    for _ in range(5):
        await giver.publish("a")
    first, second = await recorder.next(Publish), await recorder.next(Publish)
    await recorder.nothing()
    recorder.ack(second)
    third = await recorder.next(Publish)
    await recorder.nothing()
    for each in (first, third):
        recorder.ack(each)
    for _ in range(2):
        await recorder.take()


async def test_nobody_to_give_it_to_is_told(broker: Broker) -> None:
    giver = await broker.connect("giver")
    assert await giver.publish("a", qos=1) == ReasonCode.NO_MATCHING_SUBSCRIBERS
    assert await giver.publish("a", qos=2) == ReasonCode.NO_MATCHING_SUBSCRIBERS
    assert broker.counters.nobody == 2
    old = await broker.connect("old", 4)
    assert await old.publish("a", qos=1) == 0


async def test_acknowledgements_keep_the_order_of_the_messages(broker: Broker) -> None:
    recorder = await session_of(broker, "taker", kept=True)
    await recorder.subscribe("a/#", qos=0)
    giver = await session_of(broker, "giver", kept=True)
    for number in range(1, 41):
        topic = "nobody" if number % 3 == 0 else f"a/{number}"
        giver.send(Publish(topic, b"x", 1 + number % 2, packet_id=number))
    answered = [(await giver.next())[1] for _ in range(40)]
    assert answered == list(range(1, 41))


async def test_what_may_not_be_published_is_refused(broker: Broker) -> None:
    broker.logins.denied.add((PUBLISH_TREE, "secret"))
    giver = await broker.connect("giver")
    for qos in (1, 2):
        assert await giver.publish("secret", qos=qos) == ReasonCode.NOT_AUTHORIZED
    await giver.publish("secret", qos=0)
    await giver.ping()
    assert broker.counters.not_authorized == 3
    old = await broker.connect("old", 4)
    old.send(Publish("secret", b"", 1, packet_id=1))
    assert await old.closed() == []


async def test_a_tolerant_server_acknowledges_an_old_client_what_it_may_not_publish(
    tmp_path,
) -> None:
    settings = MqttSettings(session=SessionConfig(acknowledge_unauthorized_v3=True))
    async with serving(tmp_path, settings) as broker:
        broker.logins.denied.add((PUBLISH_TREE, "secret"))
        recorder = await broker.connect("taker")
        await recorder.subscribe("secret")
        old = await broker.connect("old", 4)
        assert await old.publish("secret", qos=1) == 0
        await recorder.nothing()


async def test_a_client_that_publishes_on_and_on_hears_why_it_was_disconnected(
    tmp_path,
) -> None:
    """[MQTT-4.13.1-1]: DISCONNECT 0x93 met a reset while more was under way, and was lost."""
    settings = MqttSettings(session=SessionConfig(receive_maximum=3))
    async with serving(tmp_path, settings) as broker:
        giver = await broker.connect("giver")
        giver.writer.transport.pause_reading()
        for packet_id in range(1, 5):
            giver.send(Publish("a", b"x", 2, packet_id=packet_id))
        await broker.until_connections(0)
        for _ in range(3):
            giver.send(Publish("a", bytes(50_000), 0))
            await giver.writer.drain()
        giver.writer.transport.resume_reading()
        goodbye = (await giver.closed())[-1]
        assert isinstance(goodbye, Disconnect)
        assert goodbye.reason_code == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


async def test_the_properties_of_a_message_reach_its_subscribers_unaltered(
    broker: Broker,
) -> None:
    """[MQTT-3.3.2-5] and the interval [MQTT-3.3.2-6]."""
    properties = Properties(
        payload_format_indicator=1,
        message_expiry_interval=300,
        content_type="text/plain",
        response_topic="answers/1",
        correlation_data=b"\x00\xff",
        user_properties=(("b", "2"), ("a", "1"), ("b", "3"), ("weir.key", "k")),
    )
    live = await broker.connect("live")
    await live.subscribe("a")
    stored = await session_of(broker, "stored", kept=True)
    await stored.subscribe("a")
    giver = await broker.connect("giver")
    await giver.publish("a", qos=1, properties=properties)
    for recorder in (live, stored):
        assert (await recorder.take()).properties == properties


async def test_an_old_client_is_spared_the_properties(broker: Broker) -> None:
    old = await broker.connect("old", 4)
    await old.subscribe("a")
    giver = await broker.connect("giver")
    await giver.publish("a", qos=1, properties=Properties(user_properties=(("a", "1"),)))
    assert await old.take() == Publish("a", b"x", 1, packet_id=1)


async def test_what_has_expired_is_not_delivered(broker: Broker) -> None:
    """[MQTT-3.3.2-5]: an interval of 0 is over at once, one of a second after a second."""
    live = await broker.connect("live")
    await live.subscribe("a")
    stored = await session_of(broker, "stored", kept=True)
    await stored.subscribe("a")
    await stored.disconnect()
    giver = await broker.connect("giver")
    await giver.publish("a", b"0", properties=Properties(message_expiry_interval=0))
    await giver.publish("a", b"1", properties=Properties(message_expiry_interval=1))
    await giver.publish("a", b"2", properties=Properties(message_expiry_interval=60))
    assert [(await live.take()).payload for _ in range(2)] == [b"1", b"2"]
    await live.nothing()
    await asyncio.sleep(1.1)
    stored = await session_of(broker, "stored", kept=True)
    message = await stored.take()
    assert message.payload == b"2"
    assert message.properties.message_expiry_interval in (58, 59)
    await stored.nothing()


async def test_topic_aliases_shorten_deliveries(broker: Broker) -> None:
    recorder = await broker.connect("taker", properties=Properties(topic_alias_maximum=1))
    await recorder.subscribe("a/#")
    giver = await broker.connect("giver")
    for topic in ("a/1", "a/2", "a/1"):
        await giver.publish(topic)
    got = [await recorder.take() for _ in range(3)]
    assert [(each.topic, each.properties.topic_alias) for each in got] == [
        ("a/1", 1),
        ("a/2", None),
        ("", 1),
    ]


@pytest.mark.parametrize("kept", [False, True])
async def test_a_message_too_large_for_a_client_counts_as_delivered(
    broker: Broker, kept: bool
) -> None:
    recorder = await broker.connect(
        "taker",
        clean=not kept,
        properties=Properties(
            session_expiry_interval=KEPT if kept else None, maximum_packet_size=60
        ),
    )
    await recorder.subscribe("a")
    giver = await broker.connect("giver")
    await giver.publish("a", bytes(100))
    await giver.publish("a", b"small")
    assert (await recorder.take()).payload == b"small"
    assert broker.counters.too_large == 1


# --- Subscribing ----------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [False, True])
async def test_unsubscribing_ends_deliveries(broker: Broker, kept: bool) -> None:
    """[MQTT-3.10.4-1], [MQTT-3.10.4-2], and [MQTT-3.10.4-3]: what was being delivered may be
    acknowledged.
    """
    recorder = await session_of(broker, "taker", kept=kept)
    await recorder.subscribe("a", "b")
    giver = await broker.connect("giver")
    await giver.publish("a", b"1")
    begun = await recorder.next(Publish)
    answer = await recorder.unsubscribe("a", "c")
    assert answer.reason_codes == (0, ReasonCode.NO_SUBSCRIPTION_EXISTED)
    recorder.ack(begun)
    await giver.publish("a", b"2")
    await giver.publish("b", b"3")
    assert (await recorder.take()).payload == b"3"
    await recorder.nothing()
    if kept:
        await recorder.disconnect()
        await giver.publish("a", b"4")
        recorder = await session_of(broker, "taker", kept=True)
        await recorder.nothing()


@pytest.mark.parametrize("kept", [False, True])
async def test_subscribing_again_replaces_the_options_and_loses_nothing(
    broker: Broker, kept: bool
) -> None:
    """[MQTT-3.8.4-3], [MQTT-3.8.4-4]."""
    recorder = await session_of(broker, "taker", kept=kept)
    giver = await broker.connect("giver")
    for qos in (1, 0, 2):
        assert await recorder.subscribe("a", qos=qos) == (qos,)
        await giver.publish("a", b"%d" % qos, 2)
        message = await recorder.take()
        assert (message.payload, message.qos) == (b"%d" % qos, qos)
    await recorder.nothing()
    assert (await recorder.unsubscribe("a")).reason_codes == (0,)
    assert await giver.publish("a") == ReasonCode.NO_MATCHING_SUBSCRIBERS


async def test_the_later_of_two_equal_filters_counts(broker: Broker) -> None:
    recorder = await broker.connect("taker")
    await recorder.subscribe(FilterOptions("a", 2), FilterOptions("a", 0))
    giver = await broker.connect("giver")
    await giver.publish("a", qos=2)
    assert (await recorder.take()).qos == 0
    await recorder.nothing()
    await recorder.unsubscribe("a")
    assert await giver.publish("a") == ReasonCode.NO_MATCHING_SUBSCRIBERS


async def test_a_filter_that_may_not_be_read_is_refused_alone(broker: Broker) -> None:
    broker.logins.denied.add((CONSUME_TREE, "secret/#"))
    recorder = await broker.connect("taker")
    assert await recorder.subscribe("secret/#", "open", "bad/#/filter") == (0x87, 1, 0x8F)
    old = await broker.connect("old", 4)
    assert await old.subscribe("secret/#", "open") == (0x80, 1)


async def test_a_session_has_a_bounded_number_of_subscriptions(tmp_path) -> None:
    async with serving(tmp_path, MqttSettings(subscriptions_max=2)) as broker:
        recorder = await broker.connect("taker")
        assert await recorder.subscribe("a") == (1,)
        assert await recorder.subscribe("b") == (1,)
        assert await recorder.subscribe("c") == (ReasonCode.QUOTA_EXCEEDED,)
        assert await recorder.subscribe("a") == (1,)


@pytest.mark.parametrize("kept", [False, True])
async def test_no_local_keeps_ones_own_messages_out(broker: Broker, kept: bool) -> None:
    """[MQTT-3.8.3-3]."""
    both = await session_of(broker, "both", kept=kept)
    await both.subscribe(FilterOptions("a", 1, no_local=True))
    other = await broker.connect("other")
    await both.publish("a", b"own")
    await other.publish("a", b"other")
    assert (await both.take()).payload == b"other"
    await both.nothing()


@pytest.mark.parametrize("kept", [False, True])
async def test_retain_as_published(broker: Broker, kept: bool) -> None:
    """[MQTT-3.3.1-12] and [MQTT-3.3.1-13]."""
    keeps = await session_of(broker, "keeps", kept=kept)
    await keeps.subscribe(FilterOptions("a", 1, retain_as_published=True))
    drops = await session_of(broker, "drops", kept=kept)
    await drops.subscribe(FilterOptions("a", 1))
    giver = await broker.connect("giver")
    await giver.publish("a", retain=True)
    await giver.publish("a", retain=False)
    assert [(await keeps.take()).retain for _ in range(2)] == [True, False]
    assert [(await drops.take()).retain for _ in range(2)] == [False, False]


@pytest.mark.parametrize("kept", [False, True])
async def test_overlapping_subscriptions_bring_one_copy(broker: Broker, kept: bool) -> None:
    """[MQTT-3.3.4-2], [MQTT-3.3.4-3], [MQTT-3.3.4-4], [MQTT-3.3.4-5]: with the highest QoS and all
    the identifiers.
    """
    recorder = await session_of(broker, "taker", kept=kept)
    await recorder.subscribe("a/#", qos=1, properties=Properties(subscription_identifiers=(7,)))
    await recorder.subscribe("a/+", qos=2, properties=Properties(subscription_identifiers=(8,)))
    await recorder.subscribe("#", qos=0)
    await recorder.subscribe("b", qos=0, properties=Properties(subscription_identifiers=(9,)))
    giver = await broker.connect("giver")
    for number in range(3):
        await giver.publish("a/b", b"%d" % number, 2)
    for number in range(3):
        message = await recorder.take()
        assert (message.payload, message.qos) == (b"%d" % number, 2)
        assert sorted(message.properties.subscription_identifiers) == [7, 8]
    await giver.publish("b", b"b", 2)
    message = await recorder.take()
    assert (message.payload, message.properties.subscription_identifiers) == (b"b", (9,))
    await recorder.nothing()


async def test_the_uid_is_told_on_request(broker: Broker) -> None:
    asks = await broker.connect("asks")
    await asks.subscribe("a", properties=Properties(user_properties=(("weir.uid", "1"),)))
    plain = await broker.connect("plain")
    await plain.subscribe("a")
    giver = await broker.connect("giver")
    await giver.publish("a")
    assert (await plain.take()).properties.user_properties == ()
    [(name, value)] = (await asks.take()).properties.user_properties
    assert name == "weir.uid"
    assert [len(part) for part in value.split("-")] == [8, 4, 4, 4, 12]
