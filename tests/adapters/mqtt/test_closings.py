"""Why connections end: counted by reason and listener, and in the log so often a minute."""

from __future__ import annotations

import structlog.testing

from adapters.mqtt.access.refusals import AUTH_REASONS, KERNEL_REASONS
from adapters.mqtt.codec.packets import Connack, Disconnect
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.reporting.closings import LINES_MAX, REASONS, CloseReason
from adapters.refused import LINES_MAX as REFUSED_LINES_MAX
from tests.adapters.mqtt.broker import Broker

NO_REFUSALS = {ReasonCode.SESSION_TAKEN_OVER, ReasonCode.PACKET_IDENTIFIER_IN_USE}


def test_whatever_the_server_ends_a_connection_with_has_a_reason() -> None:
    told = {*KERNEL_REASONS.values(), *AUTH_REASONS.values()} - NO_REFUSALS
    assert told <= set(REASONS)
    assert set(REASONS.values()) == set(CloseReason)


async def test_what_clients_do_wrong_is_counted_and_said_a_few_times(broker: Broker) -> None:
    with structlog.testing.capture_logs() as lines:
        for number in range(30):
            client = await broker.connect(f"c{number}")
            client.writer.write(b"\x00")
            [goodbye] = await client.closed()
            assert isinstance(goodbye, Disconnect)
        stranger = await broker.dial()
        connack = await stranger.connect("c", login=("guest", b"wrong"))
        assert isinstance(connack, Connack)
        await broker.until_connections(0)
    refused = broker.adapter.statistics().refused
    assert refused["mqtt.tcp", "malformed"] == 30
    assert refused["mqtt.tcp", "login"] == 1
    assert refused["mqtt.websocket", "malformed"] == 0
    said = [each for each in lines if each["event"] == "refused"]
    assert 2 <= len(said) <= 2 * REFUSED_LINES_MAX
    first = said[0]
    assert (first["reason"], first["client_id"], first["code"]) == ("malformed", "c0", "0x81")
    assert "wrong" not in str(lines)


async def test_goodbyes_do_not_flood_the_log(broker: Broker) -> None:
    with structlog.testing.capture_logs() as lines:
        for number in range(LINES_MAX + 20):
            client = await broker.connect(f"c{number}")
            await client.disconnect()
    said = [each for each in lines if each["event"] == "connection closed"]
    assert len(said) == LINES_MAX
    assert (said[0]["client_id"], said[0]["by"]) == ("c0", "client")
