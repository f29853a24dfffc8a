"""MQTT clients over a bad network between gateway and store (`tests.simulator.hostile`).

The tests are those of the real clients, unchanged: whatever the network does, a client sees what it
sees without it. These stand for all; WEIR_HOSTILE=<seed> runs every test of the adapter so.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.packets import Ack, Publish
from tests.adapters.mqtt import test_clients as clients
from tests.adapters.mqtt import test_retained as retained
from tests.adapters.mqtt import test_serving as serving
from tests.adapters.mqtt import test_sessions as sessions
from tests.adapters.mqtt import test_wills as wills
from tests.adapters.mqtt.broker import Broker
from tests.simulator import hostile as hostile_client
from tests.simulator import hostile_link
from tests.simulator.hostile import HostileClient

SEED = 7


@pytest.fixture(autouse=True)
def hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for the second of two gateways in a row."""
    monkeypatch.delenv("WEIR_REMOTE", raising=False)
    monkeypatch.setenv("WEIR_HOSTILE", str(SEED))


test_order_of_answers = serving.test_acknowledgements_keep_the_order_of_the_messages
test_what_is_in_flight = serving.test_no_more_is_in_flight_than_the_client_takes
test_unsubscribing = serving.test_unsubscribing_ends_deliveries
test_equal_filters = serving.test_the_later_of_two_equal_filters_counts
test_retained_before_live = retained.test_what_is_retained_comes_before_what_is_live
test_shares_give_back = wills.test_what_a_member_has_not_acknowledged_goes_to_another
test_wills_taken_back = wills.test_a_plain_goodbye_takes_the_will_back_and_one_with_will_does_not


def test_paho(tmp_path: Path) -> None:
    clients.test_paho_publishes_and_receives_at_every_qos(tmp_path, 5)


async def test_subscribing_again(broker: Broker) -> None:
    await serving.test_subscribing_again_replaces_the_options_and_loses_nothing(broker, kept=True)


async def test_one_copy(broker: Broker) -> None:
    await serving.test_overlapping_subscriptions_bring_one_copy(broker, kept=True)


async def test_takeovers(broker: Broker) -> None:
    await sessions.test_a_second_connection_takes_the_session_over(broker, is_kept=True, level=5)


async def test_repeats(tmp_path: Path) -> None:
    await sessions.test_what_was_not_acknowledged_comes_again_by_its_identifier(
        tmp_path, 4, "restart"
    )


async def test_exactly_once_out(tmp_path: Path) -> None:
    await sessions.test_exactly_once_to_a_subscriber_goes_on_where_it_was(tmp_path, "break")


async def test_exactly_once_in(tmp_path: Path) -> None:
    await sessions.test_exactly_once_from_a_publisher_goes_on_where_it_was(
        tmp_path, answered=False, how="restart"
    )


async def test_retained(broker: Broker) -> None:
    await retained.test_retained_messages_are_handed_over_and_replaced_and_removed(
        broker, kept=True
    )


async def test_wills(broker: Broker) -> None:
    await wills.test_the_will_of_one_who_breaks_off_is_published(broker, 5)


@pytest.mark.parametrize("qos", [1, 2])
async def test_every_message_comes_and_in_order(
    broker: Broker, qos: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that is kept, over connections that break; at QoS 2 each message once."""
    monkeypatch.setattr(hostile_link, "FAILURE_SHARE", 0.03)
    monkeypatch.setattr(hostile_client, "RESET_S", (0.05, 0.1))
    count = 60
    giver = await broker.connect("giver")
    recorder = await broker.connect("taker", clean=False, expiry=600)
    await recorder.subscribe("a", qos=qos)
    for number in range(count):
        giver.send(Publish("a", b"%d" % number, qos, packet_id=giver.packet_id()))
        await asyncio.sleep(0.01)
    got: list[int] = []
    received: set[int] = set()
    breaks = [20, 40]
    while not got or got[-1] != count - 1:
        packet = await recorder.next()
        if not isinstance(packet, Publish):
            assert packet[0] is PacketType.PUBREL
            received.discard(packet[1])
            recorder.send(Ack(PacketType.PUBCOMP, packet[1]))
            continue
        if packet.packet_id not in received:
            got.append(int(packet.payload))
        if qos == 2:
            received.add(packet.packet_id)
        recorder.ack(packet, PacketType.PUBREC if qos == 2 else PacketType.PUBACK)
        if breaks and len(got) >= breaks[0]:
            del breaks[0]
            recorder.drop()
            await broker.until_connections(1)
            recorder = await broker.connect("taker", clean=False, expiry=600)
    assert (list(dict.fromkeys(got)) if qos == 1 else got) == list(range(count))
    client = broker.kernel
    assert isinstance(client, HostileClient)
    assert sum(client.link.failures.values()) > 0
    assert client.resets > 0
