"""Names below $SYS are the server's, and $share is no name at all: nobody publishes there."""

from __future__ import annotations

import asyncio

import pytest

from adapters.mqtt.codec.packets import FilterOptions, Publish, Will
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.delivery import system_topics
from adapters.mqtt.delivery.system_topics import ADMINISTER_NODE, state_of
from adapters.tree_rights import CONSUME_TREE
from tests.adapters.mqtt.broker import Broker, WireClient

RESERVED = ["$SYS", "$SYS/broker/uptime", "$share/g/a", "$SYS/broker/connection/other/state"]


@pytest.mark.parametrize("name", RESERVED)
async def test_publishing_to_what_is_the_servers_own_is_refused(broker: Broker, name: str) -> None:
    listener = await broker.connect("listener", clean=False, expiry=60)
    if not name.startswith("$share"):
        assert await listener.subscribe(name) == (1,)
    client = await broker.connect("c", clean=False, expiry=60)
    for qos in (1, 2):
        assert await client.publish(name, qos=qos) == ReasonCode.NOT_AUTHORIZED
        assert await client.publish(name, qos=qos, retain=True) == ReasonCode.NOT_AUTHORIZED
    await client.publish(name, qos=0, retain=True)
    await client.ping()
    assert broker.counters.not_authorized == 5
    refused = await broker.dial()
    connack = await refused.connect("w", will=Will(name, b"x"))
    assert connack.reason_code == ReasonCode.NOT_AUTHORIZED
    old = await broker.connect("old", 4)
    old.send(Publish(name, b"x", 1, packet_id=1))
    assert await old.closed() == []
    assert await client.publish("$own/name") in (0, ReasonCode.NO_MATCHING_SUBSCRIBERS)


async def test_a_bridge_may_tell_its_own_state_which_is_kept_nowhere(broker: Broker) -> None:
    """Mosquitto's bridges do, retained and as their will, unless `notifications false`."""
    name = state_of("bridge")
    for level in (4, 5):
        client: WireClient = await broker.dial(level)
        await client.connect("bridge", will=Will(name, b"0", 1, True), is_bridge=level == 4)
        assert await client.publish(name, b"1", 1, retain=True) == 0
        client.drop()
        await broker.until_connections(0)
    other = await broker.connect("other")
    assert await other.publish(name, b"1") == ReasonCode.NOT_AUTHORIZED


DOCUMENTED = [
    *("clients/connected", "clients/active", "clients/maximum", "uptime", "version"),
    *("messages/received", "messages/sent", "messages/inflight", "subscriptions/count"),
    *("publish/messages/received", "publish/messages/sent", "publish/messages/dropped"),
    *("bytes/received", "bytes/sent"),
]
LOADS = [
    *("messages/received", "messages/sent", "bytes/received", "bytes/sent", "connections"),
    *("publish/received", "publish/sent", "publish/dropped"),
]


async def told(client: WireClient, wait_s: float = 0.2) -> dict[str, str]:
    """Figures that come until none come for so long."""
    found: dict[str, str] = {}
    try:
        while True:
            packet = await client.next(Publish, wait_s)
            assert packet.qos == 0
            found[packet.topic] = packet.payload.decode()
    except TimeoutError:
        return found


async def test_the_server_tells_a_tenants_figures_to_whoever_subscribes(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_topics, "INTERVAL_MS", 100)
    broker.logins.denied.add((ADMINISTER_NODE, "admin"))
    alice = await broker.connect("a", login=("acme:alice", b"secret"))
    client = await broker.connect("c")
    await client.subscribe("x")
    for _ in range(3):
        await client.publish("x")
        await client.take()
    assert await client.subscribe("$SYS/#", qos=1) == (1,)
    first = await told(client)
    assert first["$SYS/broker/clients/connected"] == "1"
    assert first["$SYS/broker/publish/messages/received"] == "3"
    assert first["$SYS/broker/publish/messages/sent"] == "3"
    assert first["$SYS/broker/subscriptions/count"] == "2"
    assert first["$SYS/broker/version"].startswith("weir")
    assert not any(name.startswith("$SYS/node/") for name in first)
    missing = [name for name in DOCUMENTED if f"$SYS/broker/{name}" not in first]
    assert not missing
    await alice.subscribe("$SYS/broker/publish/messages/+")
    assert (await told(alice))["$SYS/broker/publish/messages/received"] == "0"
    other = await broker.connect("other")
    await other.publish("x")
    await client.take()
    async with asyncio.timeout(10):
        later: dict[str, str] = {}
        while later.get("$SYS/broker/clients/connected") != "2":
            later |= await told(client)
    assert later["$SYS/broker/publish/messages/received"] == "4"
    loads = {name for name in later if name.startswith("$SYS/broker/load/")}
    assert {f"$SYS/broker/load/{name}/{span}min" for name in LOADS for span in (1, 5, 15)} <= loads
    assert float(later["$SYS/broker/load/publish/received/1min"]) > 0
    assert "$SYS/broker/version" not in later, "only what has changed"
    await client.unsubscribe("$SYS/#")
    await told(client)
    assert await told(client, 1.5) == {}


async def test_deliveries_that_a_client_has_not_answered_are_in_flight(broker: Broker) -> None:
    slow = await broker.connect("slow")
    await slow.subscribe("x", qos=1)
    giver = await broker.connect("giver")
    for qos in (0, 1, 1):
        await giver.publish("x", qos=qos)
    while (await slow.next(Publish)).qos == 0:  # and none is acknowledged
        pass
    await giver.subscribe("$SYS/broker/messages/inflight")
    assert list((await told(giver)).values()) == ["2"]


async def test_who_administers_the_node_reads_its_figures(broker: Broker) -> None:
    await broker.connect("a", login=("acme:alice", b"secret"))
    client = await broker.connect("c", 4)
    await client.subscribe("$SYS/node/clients/+", qos=0)
    assert (await told(client))["$SYS/node/clients/connected"] == "2"


async def test_figures_are_for_who_may_consume_them_and_shared_by_nobody(broker: Broker) -> None:
    broker.logins.denied.add((CONSUME_TREE, "$SYS/#"))
    client = await broker.connect("c")
    assert await client.subscribe("$SYS/#") == (ReasonCode.NOT_AUTHORIZED,)
    assert await client.subscribe("$share/g/$SYS/broker/+") == (ReasonCode.TOPIC_FILTER_INVALID,)
    assert await client.subscribe("#", "+/broker/version") == (1, 1)
    assert await told(client) == {}


async def test_a_kept_session_goes_on_reading_figures(broker: Broker) -> None:
    uptime = "$SYS/broker/uptime"
    client = await broker.connect("c", clean=False, expiry=60)
    await client.subscribe(FilterOptions(uptime, retain_handling=2))
    assert await told(client) == {}, "it asked for nothing retained"
    await client.subscribe(FilterOptions(uptime))
    assert list(await told(client)) == [uptime]
    client.drop()
    await broker.until_connections(0)
    client = await broker.connect("c", clean=False, expiry=60)
    await client.ping()
    assert broker.adapter.statistics().gauges["subscriptions"] == 1
    assert (await client.unsubscribe(uptime)).reason_codes == (0,)


async def test_a_bridge_that_is_connected_is_seen(broker: Broker) -> None:
    bridge = await broker.dial(4)
    await bridge.connect("bridge", is_bridge=True)
    client = await broker.connect("c")
    await client.subscribe("$SYS/broker/connection/#")
    assert await told(client) == {state_of("bridge"): "1"}
