"""Retained messages, and clients that are slow to take what comes."""

from __future__ import annotations

import asyncio

import pytest

from adapters.mqtt.codec.packets import Disconnect, FilterOptions, Publish, Suback, Subscribe
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.environment import MqttSettings
from tests.adapters.mqtt.broker import Broker, WireClient, eventually, serving

KEPT = 600


async def session_of(broker: Broker, name: str, *, kept: bool, level: int = 5) -> WireClient:
    """A client whose session is kept, or ends with its connection."""
    expiry = KEPT if kept and level == 5 else None
    return await broker.connect(name, level, clean=not kept, expiry=expiry)


# --- Retained messages ----------------------------------------------------------------------


@pytest.mark.parametrize("kept", [False, True])
async def test_retained_messages_are_handed_over_and_replaced_and_removed(
    broker: Broker, kept: bool
) -> None:
    """[MQTT-3.3.1-5], [MQTT-3.3.1-6], [MQTT-3.3.1-7], [MQTT-3.3.1-8]."""
    giver = await broker.connect("giver")
    for topic, payload in (("a/1", b"old"), ("a/1", b"new"), ("a/2", b"2"), ("b", b"b")):
        assert await giver.publish(topic, payload, retain=True) == 0
    await giver.publish("a/3", b"not kept")
    recorder = await session_of(broker, "taker", kept=kept)
    assert await recorder.subscribe("a/+") == (1,)
    got = [await recorder.take() for _ in range(2)]
    assert [(each.topic, each.payload, each.retain) for each in got] == [
        ("a/1", b"new", True),
        ("a/2", b"2", True),
    ]
    assert await giver.publish("a/1", b"", retain=True) == 0
    removed = await recorder.take()
    assert (removed.payload, removed.retain) == (b"", False)
    later = await session_of(broker, "later", kept=kept)
    await later.subscribe("a/+")
    assert (await later.take()).topic == "a/2"
    await later.nothing()


async def test_retain_handling_says_when_retained_messages_come(broker: Broker) -> None:
    """[MQTT-3.3.1-9], [MQTT-3.3.1-10], [MQTT-3.3.1-11]."""
    giver = await broker.connect("giver")
    await giver.publish("a", b"kept", retain=True)
    recorder = await broker.connect("taker")
    await recorder.subscribe(FilterOptions("a", 1, retain_handling=2))
    await recorder.nothing()
    await recorder.subscribe(FilterOptions("a", 1, retain_handling=1))
    await recorder.nothing()
    await recorder.unsubscribe("a")
    await recorder.subscribe(FilterOptions("a", 1, retain_handling=1))
    assert (await recorder.take()).payload == b"kept"
    await recorder.subscribe(FilterOptions("a", 1, retain_handling=0))
    assert (await recorder.take()).payload == b"kept"


async def test_a_retained_message_tells_what_is_left_of_its_time(broker: Broker) -> None:
    giver = await broker.connect("giver")
    await giver.publish("a", retain=True, properties=Properties(message_expiry_interval=50))
    await giver.publish("b", retain=True, properties=Properties(message_expiry_interval=1))
    await asyncio.sleep(1.1)
    recorder = await broker.connect("taker")
    await recorder.subscribe("a", "b")
    message = await recorder.take()
    assert (message.topic, message.properties.message_expiry_interval) == ("a", 49)
    await recorder.nothing()


async def test_more_retained_messages_than_a_filter_may_bring_are_refused(tmp_path) -> None:
    async with serving(tmp_path, MqttSettings(retained_per_filter_max=3)) as broker:
        giver = await broker.connect("giver")
        for number in range(4):
            await giver.publish(f"a/{number}", retain=True)
        recorder = await broker.connect("taker")
        assert await recorder.subscribe("a/+", "a/1") == (ReasonCode.QUOTA_EXCEEDED, 1)
        assert (await recorder.take()).topic == "a/1"
        await giver.publish("a/2", b"live")
        await recorder.nothing()


async def test_retained_messages_beyond_the_window_wait_for_it(broker: Broker) -> None:
    giver = await broker.connect("giver")
    for number in range(10):
        await giver.publish(f"a/{number}", retain=True)
    recorder = await broker.connect("taker", properties=Properties(receive_maximum=2))
    await recorder.subscribe("a/+")
    assert [(await recorder.take()).topic for _ in range(10)] == [f"a/{n}" for n in range(10)]


async def test_what_is_retained_comes_before_what_is_live(broker: Broker) -> None:
    giver = await broker.connect("giver")
    await giver.publish("a", b"kept", retain=True)
    for _ in range(5):
        recorder = await broker.connect("taker")
        recorder.send(Subscribe(9, (FilterOptions("a", 1),)))
        giver.send(Publish("a", b"live", 0))
        assert isinstance(await recorder.next(), Suback)
        assert (await recorder.take()).payload == b"kept"
        await recorder.disconnect()


# --- Slow clients ---------------------------------------------------------------------------


async def test_live_messages_wait_for_a_slow_client_and_the_newest_are_dropped(tmp_path) -> None:
    async with serving(tmp_path, MqttSettings(backlog_messages_max=5)) as broker:
        recorder = await broker.connect("taker", properties=Properties(receive_maximum=1))
        await recorder.subscribe("a")
        giver = await broker.connect("giver")
        for number in range(10):
            await giver.publish("a", b"%d" % number)
        await eventually(lambda: broker.counters.dropped_slow == 4)
        got = [await recorder.take() for _ in range(6)]
        assert [each.payload for each in got] == [b"%d" % number for number in range(6)]
        await giver.publish("a", b"after")
        assert (await recorder.take()).payload == b"after"


async def test_a_client_that_does_not_read_does_not_fill_memory(tmp_path) -> None:
    async with serving(tmp_path, MqttSettings(backlog_messages_max=5)) as broker:
        recorder = await broker.connect("taker")
        await recorder.subscribe("a", qos=0)
        giver = await broker.connect("giver")
        for _ in range(200):
            await giver.publish("a", bytes(100_000), qos=0)
        counters = broker.counters
        # All but those that wait have been sent or dropped.
        await eventually(lambda: counters.delivered + counters.dropped_slow >= 200 - 5)
        assert counters.dropped_slow > 0
        seen = 200 - broker.counters.dropped_slow
        for _ in range(seen):
            assert len((await recorder.take()).payload) == 100_000
        await giver.publish("a", b"after", qos=0)
        assert (await recorder.take()).payload == b"after"


async def test_goodbye_is_for_every_client_when_the_server_drains(broker: Broker) -> None:
    recorder = await broker.connect("taker")
    old = await broker.connect("old", 4)
    draining = asyncio.ensure_future(broker.adapter.drain())
    [goodbye] = await recorder.closed()
    assert goodbye == Disconnect(ReasonCode.SERVER_SHUTTING_DOWN)
    assert await old.closed() == []
    await asyncio.wait_for(draining, 5)
    with pytest.raises(OSError):  # noqa: PT011 - whatever a closed port gives
        await broker.dial()


async def test_clients_are_sent_elsewhere_and_a_session_goes_on_there(broker: Broker) -> None:
    kept = await broker.connect("kept", clean=False, expiry=60)
    old = await broker.connect("old", 4)
    assert broker.adapter.move(0, {}) == 0
    assert broker.adapter.move(5, {"tcp": "gate2:1883"}) == 2
    [goodbye] = await kept.closed()
    assert goodbye == Disconnect(
        ReasonCode.USE_ANOTHER_SERVER,
        Properties(reason_string="moved", server_reference="gate2:1883"),
    )
    assert await old.closed() == []
    several = [await broker.connect(f"c{number}") for number in range(3)]
    assert broker.adapter.move(1, {}) == 1
    await broker.until_connections(2)
    assert len(several) - 1 == broker.adapter.statistics().connections
