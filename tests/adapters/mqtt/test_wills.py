"""Wills, and shared subscriptions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.packets import (
    Publish,
    Will,
)
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.requests.publishing import PUBLISH_TREE
from tests.adapters.mqtt.broker import Broker, WireClient, serving

KEPT = 600
PUBLISH, PUBREC, PUBREL, PUBCOMP = (
    PacketType.PUBLISH,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
)


async def kept(broker: Broker, name: str = "kept", level: int = 5, **fields) -> WireClient:
    expiry = KEPT if level == 5 else None
    return await broker.connect(name, level, clean=False, expiry=expiry, **fields)


def present(client: WireClient) -> bool:
    assert client.connack is not None
    return client.connack.session_present


# --- Shared subscriptions -------------------------------------------------------------------


@pytest.mark.parametrize("expiry", [None, KEPT])
async def test_the_members_of_a_share_part_the_messages(broker: Broker, expiry: int | None) -> None:
    """[MQTT-4.8.2-3], each member by its own QoS; retained messages are for none of them."""
    giver = await broker.connect("giver")
    await giver.publish("a/kept", retain=True)
    members = [
        await broker.connect(f"m{number}", clean=False, expiry=expiry) for number in range(3)
    ]
    for qos, member in enumerate(members):
        assert await member.subscribe("$share/g/a/+", qos=qos) == (qos,)
    alone = await broker.connect("alone")
    await alone.subscribe("a/1", qos=0)
    for number in range(30):
        await giver.publish("a/1", b"%d" % number, 2)
    for member in members:
        member.send(Publish("a/none", b"", 0))
    got: list[Publish] = []
    async with asyncio.timeout(10):
        while len(got) < 30:
            for qos, member in enumerate(members):
                try:
                    message = await member.next(Publish, wait_s=0.05)
                except TimeoutError:
                    continue
                if not message.payload:
                    assert message.topic == "a/none"
                    assert message.qos == 0
                    continue
                assert message.qos == qos
                got.append(message)
                if message.qos:
                    member.ack(message, PacketType.PUBACK if message.qos == 1 else PUBREC)
                if message.qos == 2:
                    await member.answer(PUBREL, message.packet_id)
                    member.ack(message, PUBCOMP)
    assert sorted(int(each.payload) for each in got) == list(range(30))
    for number in range(30):
        assert (await alone.take()).payload == b"%d" % number


async def test_what_a_member_has_not_acknowledged_goes_to_another(broker: Broker) -> None:
    first = await broker.connect("first")
    await first.subscribe("$share/g/a", qos=1)
    giver = await broker.connect("giver")
    await giver.publish("a", b"1")
    await first.next(Publish)
    second = await broker.connect("second")
    await second.subscribe("$share/g/a", qos=1)
    first.drop()
    assert (await second.take()).payload == b"1"


# --- Wills ----------------------------------------------------------------------------------


WILL = Will("wills/c", b"gone", 1, properties=Properties(user_properties=(("a", "1"),)))


async def watcher(broker: Broker) -> WireClient:
    client = await broker.connect("watcher")
    await client.subscribe("wills/#", qos=1)
    return client


@pytest.mark.parametrize("level", [4, 5])
async def test_the_will_of_one_who_breaks_off_is_published(broker: Broker, level: int) -> None:
    """[MQTT-3.1.2-14]: it is not retained."""
    watch = await watcher(broker)
    client = await broker.connect("c", level, will=WILL)
    client.drop()
    message = await watch.take()
    later = await broker.connect("later")
    await later.subscribe("wills/#")
    await later.nothing()
    assert (message.topic, message.payload, message.qos) == ("wills/c", b"gone", 1)
    if level == 5:
        assert message.properties.user_properties == (("a", "1"),)


async def test_a_plain_goodbye_takes_the_will_back_and_one_with_will_does_not(
    broker: Broker,
) -> None:
    watch = await watcher(broker)
    client = await broker.connect("c", will=WILL)
    await client.disconnect()
    await watch.nothing()
    client = await broker.connect("c", will=WILL)
    await client.disconnect(0x04)
    assert (await watch.take()).payload == b"gone"


async def test_a_will_waits_for_its_delay_and_a_return_takes_it_back(broker: Broker) -> None:
    """[MQTT-3.1.3-9]."""
    watch = await watcher(broker)
    late = Will("wills/c", b"late", 1, properties=Properties(will_delay_interval=1))
    client = await kept(broker, "c", will=late)
    client.drop()
    client = await kept(broker, "c", will=late)
    await asyncio.sleep(1.5)
    await watch.nothing()
    client.drop()
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert (await watch.take()).payload == b"late"
    assert loop.time() - began >= 0.9


async def test_a_will_is_published_at_the_latest_when_the_session_ends(broker: Broker) -> None:
    watch = await watcher(broker)
    late = Will("wills/c", b"late", 1, properties=Properties(will_delay_interval=100))
    client = await broker.connect("c", will=late)
    client.drop()
    assert (await watch.take()).payload == b"late"


async def test_a_takeover_ends_a_connection_and_so_publishes_its_will(broker: Broker) -> None:
    watch = await watcher(broker)
    await broker.connect("c", will=WILL)
    await broker.connect("c")
    assert (await watch.take()).payload == b"gone"


async def test_a_retained_will_is_kept(broker: Broker) -> None:
    """[MQTT-3.1.2-15], and [MQTT-3.1.2-7]: it outlives the session."""
    client = await broker.connect("c", will=Will("wills/c", b"gone", retain=True))
    client.drop()
    await broker.until_connections(0)
    watch = await watcher(broker)
    message = await watch.take()
    assert (message.payload, message.qos) == (b"gone", 0)


async def test_a_will_that_may_not_be_published_is_refused_with_its_client(
    broker: Broker,
) -> None:
    broker.logins.denied.add((PUBLISH_TREE, "wills/c"))
    client = await broker.dial()
    assert (await client.connect("c", will=WILL)).reason_code == ReasonCode.NOT_AUTHORIZED


async def test_the_wills_of_a_gateway_that_stops_are_published(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        watch = await kept(broker, "watcher")
        await watch.subscribe("wills/#", qos=1)
        await broker.connect("c", will=WILL)
    async with serving(tmp_path) as broker:
        watch = await kept(broker, "watcher")
        assert (await watch.take()).payload == b"gone"
