"""Names below $SYS are the server's, and $share is no name at all: nobody publishes there."""

from __future__ import annotations

import pytest

from adapters.mqtt.codec.packets import Publish, Will
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.system_topics import state_of
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
