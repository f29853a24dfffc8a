"""Sessions over connections, breaks and restarts of the gateway; wills; who may connect."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    FilterOptions,
    Publish,
    Subscribe,
)
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.config import SessionConfig
from adapters.mqtt.environment import MqttSettings
from adapters.mqtt.limits import TURN_BYTES
from adapters.mqtt.session.client_ids import subscriber_name
from adapters.tree_rights import CONSUME_TREE
from auth.errors import AuthCode, AuthError
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


# --- Coming and going -----------------------------------------------------------------------


@pytest.mark.parametrize("level", [4, 5])
async def test_a_session_is_present_exactly_if_it_was_kept(broker: Broker, level: int) -> None:
    """[MQTT-3.1.2-6], [MQTT-3.1.3-2], [MQTT-3.1.4-4], [MQTT-4.1.0-2]."""
    first = await kept(broker, level=level)
    assert not present(first)
    await first.subscribe("a")
    await first.disconnect()
    second = await kept(broker, level=level)
    assert present(second)
    await second.disconnect()
    clean = await broker.connect("kept", level, clean=True)
    assert not present(clean)
    await clean.disconnect()
    last = await kept(broker, level=level)
    assert not present(last)


async def test_a_session_ends_when_its_interval_is_over(broker: Broker) -> None:
    client = await broker.connect("c", clean=False, expiry=1)
    await client.subscribe("a")
    await client.disconnect()
    again = await broker.connect("c", clean=False, expiry=1)
    assert present(again)
    await again.disconnect()
    await asyncio.sleep(3.5)
    last = await broker.connect("c", clean=False, expiry=1)
    assert not present(last)


async def test_the_goodbye_may_change_how_long_a_session_is_kept(broker: Broker) -> None:
    client = await kept(broker)
    await client.subscribe("a")
    await client.disconnect(properties=Properties(session_expiry_interval=0))
    assert not present(await kept(broker))


async def test_a_client_without_an_identifier_is_given_one(broker: Broker) -> None:
    one = await broker.connect("")
    other = await broker.connect("")
    assert one.connack is not None
    assert other.connack is not None
    names = {each.connack.properties.assigned_client_identifier for each in (one, other)}
    assert len(names) == 2
    assert all(name.startswith("weir-") for name in names)


async def test_long_client_identifiers_have_sessions_too(broker: Broker) -> None:
    """MQTT5 3.1.3.1: the specification sets no bound; the kernel's names have one."""
    name = "x" * 1_000
    assert subscriber_name("x" * 255) == "x" * 255
    assert len(subscriber_name(name)) < 255
    assert subscriber_name(name) != subscriber_name("x" * 999)
    client = await kept(broker, name)
    await client.disconnect()
    assert present(await kept(broker, name))


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("is_kept", [False, True])
async def test_a_second_connection_takes_the_session_over(
    broker: Broker, level: int, is_kept: bool
) -> None:
    """[MQTT-3.1.4-4] of 3.1.1 as well: the first one is told and closed."""
    first = await broker.connect("c", 5, clean=False, expiry=KEPT if is_kept else None)
    await first.subscribe("a", qos=1)
    second = await broker.connect("c", level, clean=False, expiry=KEPT if level == 5 else None)
    [goodbye] = await first.closed()
    assert goodbye.reason_code == ReasonCode.SESSION_TAKEN_OVER
    assert present(second) is is_kept
    assert broker.counters.taken_over == 1
    giver = await broker.connect("giver")
    await giver.publish("a")
    if is_kept:
        assert (await second.take()).payload == b"x"
    await second.nothing()


async def test_a_storm_of_one_identifier_leaves_one_connection(broker: Broker) -> None:
    clients = [await broker.dial() for _ in range(20)]
    for client in clients:
        client.send(
            Connect(
                "c",
                username="guest",
                password=b"guest",
                properties=Properties(session_expiry_interval=60),
            )
        )
    await broker.until_connections(1)
    ends = await asyncio.gather(*(first_and_end(client) for client in clients))
    assert ends.count(None) == 1
    assert set(ends) - {None} <= {ReasonCode.SESSION_TAKEN_OVER}


async def first_and_end(client: WireClient) -> int | None:
    """The code of the DISCONNECT that a client got within a second, or None."""
    try:
        while not isinstance(packet := await client.next(wait_s=1), Disconnect):
            assert isinstance(packet, Connack)
    except TimeoutError:
        return None
    return packet.reason_code


async def test_a_login_decides(broker: Broker) -> None:
    for level, code in ((5, ReasonCode.BAD_USER_NAME_OR_PASSWORD), (4, 4)):
        client = await broker.dial(level)
        answer = await client.connect(login=("guest", b"wrong"))
        assert answer.reason_code == code
        assert await client.closed() == []
    assert broker.counters.logins_refused == 2
    broker.logins.failure = AuthError(AuthCode.BUSY, "busy")
    for level, code in ((5, ReasonCode.SERVER_BUSY), (4, 3)):
        client = await broker.dial(level)
        assert (await client.connect()).reason_code == code
    broker.logins.failure = None
    alice = await broker.connect("alice", login=("acme:alice", b"secret"))
    await alice.subscribe("a")
    guest = await broker.connect("guest")
    assert await guest.publish("a") == ReasonCode.NO_MATCHING_SUBSCRIBERS
    assert broker.logins.seen[-1].client_id == "guest"


async def test_one_who_is_removed_is_disconnected(broker: Broker) -> None:
    client = await broker.connect()
    other = await broker.connect("other")
    broker.logins.given[0].alive = False
    broker.recheck()
    [goodbye] = await client.closed()
    assert goodbye.reason_code == ReasonCode.ADMINISTRATIVE_ACTION
    await other.ping()


async def test_one_whose_subscription_is_not_allowed_any_more_is_disconnected(
    broker: Broker,
) -> None:
    client = await broker.connect()
    other = await broker.connect("other")
    await client.subscribe("secret/#")
    await client.subscribe("open/#")
    await other.subscribe("open/#")
    broker.recheck()
    await client.ping()
    broker.logins.denied.add((CONSUME_TREE, "secret/#"))
    broker.recheck()
    [goodbye] = await client.closed()
    assert goodbye.reason_code == ReasonCode.NOT_AUTHORIZED
    await other.ping()
    assert broker.counters.revoked == 1


async def test_a_right_withdrawn_while_its_subscribe_is_served_holds_for_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await broker.connect()
    tree = broker.adapter.environment.tree
    watched = tree.watched

    async def withdrawn() -> None:
        await watched()
        broker.logins.denied.add((CONSUME_TREE, "secret/#"))

    monkeypatch.setattr(tree, "watched", withdrawn)
    client.send(Subscribe(1, (FilterOptions("secret/#", 0),)))
    [goodbye] = await client.closed()
    assert goodbye.reason_code == ReasonCode.NOT_AUTHORIZED


async def test_a_silent_client_is_gone_after_one_and_a_half_intervals(broker: Broker) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    client = await broker.connect(keep_alive_s=1)
    await asyncio.sleep(1)
    await client.ping()
    [goodbye] = await client.closed()
    assert goodbye.reason_code == ReasonCode.KEEP_ALIVE_TIMEOUT
    assert 2.4 <= loop.time() - began <= 5
    assert broker.counters.keep_alive_timeouts == 1


async def test_one_who_never_says_anything_is_dropped(tmp_path: Path) -> None:
    settings = MqttSettings(session=SessionConfig(connect_timeout_ms=100))
    async with serving(tmp_path, settings) as broker:
        client = await broker.dial()
        assert await client.closed() == []


async def test_what_was_read_and_has_its_turn_later_counts_as_unfinished(broker: Broker) -> None:
    await broker.connect()
    [protocol] = broker.adapter._listeners.connections
    pool = broker.adapter._memory.input
    protocol.received(b"\xc0\x00" * TURN_BYTES)
    assert protocol.unfinished_bytes == pool.bytes == TURN_BYTES
    async with asyncio.timeout(10):
        while pool.bytes:
            await asyncio.sleep(0.01)


async def test_connections_above_the_limit_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, MqttSettings(connections_max=1)) as broker:
        client = await broker.connect()
        other = await broker.dial()
        assert await other.closed() == []
        assert broker.adapter.statistics().counters["connections_refused"] == 1
        await client.ping()


async def test_an_authentication_method_is_refused(broker: Broker) -> None:
    client = await broker.dial()
    client.send(Connect("c", properties=Properties(authentication_method="SCRAM-SHA-256")))
    [answer] = await client.closed()
    assert answer.reason_code == ReasonCode.BAD_AUTHENTICATION_METHOD
    client = await broker.connect()
    client.send(Auth(0x19, Properties(authentication_method="SCRAM-SHA-256")))
    [goodbye] = await client.closed()
    assert goodbye.reason_code == ReasonCode.PROTOCOL_ERROR


async def test_a_broken_packet_is_answered_and_ends_the_connection(broker: Broker) -> None:
    client = await broker.connect()
    client.writer.write(b"\x36\x00")
    [goodbye] = await client.closed()
    assert goodbye.reason_code == ReasonCode.MALFORMED_PACKET
    client = await broker.dial()
    client.writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await client.closed() == []


# --- Resuming -------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("how", ["break", "goodbye", "restart"])
async def test_what_was_not_acknowledged_comes_again_by_its_identifier(
    tmp_path: Path, level: int, how: str
) -> None:
    """MQTT5 4.4: with the original packet identifier, and DUP."""
    async with serving(tmp_path) as broker:
        recorder = await kept(broker, level=level)
        await recorder.subscribe("a", qos=1)
        giver = await broker.connect("giver")
        for number in range(4):
            await giver.publish("a", b"%d" % number)
        sent = [await recorder.next(Publish) for _ in range(4)]
        recorder.ack(sent[1])
        await recorder.ping()
        if how == "goodbye":
            await recorder.disconnect()
        elif how == "break":
            recorder.drop()
            await broker.until_connections(1)
        if how != "restart":
            await resume_and_check(broker, level, sent)
            return
    async with serving(tmp_path) as broker:
        await resume_and_check(broker, level, sent)


async def resume_and_check(broker: Broker, level: int, sent: list[Publish]) -> None:
    recorder = await kept(broker, level=level)
    again = [await recorder.take() for _ in range(3)]
    assert [(each.payload, each.packet_id, each.dup) for each in again] == [
        (each.payload, each.packet_id, True) for each in (sent[0], sent[2], sent[3])
    ]
    await recorder.nothing()
    giver = await broker.connect("giver")
    await giver.publish("a", b"new")
    message = await recorder.take()
    assert (message.payload, message.dup) == (b"new", False)


@pytest.mark.parametrize("how", ["break", "restart"])
async def test_exactly_once_to_a_subscriber_goes_on_where_it_was(tmp_path: Path, how: str) -> None:
    """[MQTT-4.3.3-7]: unanswered ones come again by their identifier, released ones only as PUBREL,
    and those that are over never.
    """
    async with serving(tmp_path) as broker:
        recorder = await kept(broker)
        await recorder.subscribe("a", qos=2)
        giver = await broker.connect("giver")
        for number in range(3):
            await giver.publish("a", b"%d" % number, 2)
        sent = [await recorder.next(Publish) for _ in range(3)]
        for each in sent[:2]:
            recorder.ack(each, PUBREC)
            await recorder.answer(PUBREL, each.packet_id)
        recorder.ack(sent[0], PUBCOMP)
        await recorder.ping()
        if how == "break":
            recorder.drop()
            await broker.until_connections(1)
            await exactly_once_resumed(broker, sent)
            return
    async with serving(tmp_path) as broker:
        await exactly_once_resumed(broker, sent)


async def exactly_once_resumed(broker: Broker, sent: list[Publish]) -> None:
    recorder = await kept(broker)
    await recorder.answer(PUBREL, sent[1].packet_id)
    recorder.ack(sent[1], PUBCOMP)
    again = await recorder.take()
    assert (again.payload, again.packet_id, again.dup) == (b"2", sent[2].packet_id, True)
    await recorder.nothing()
    giver = await broker.connect("giver")
    for number in range(5):
        await giver.publish("a", b"new %d" % number, 2)
    assert [(await recorder.take()).payload for _ in range(5)] == [
        b"new %d" % number for number in range(5)
    ]
    recorder.drop()
    await broker.until_connections(1)
    recorder = await kept(broker)
    await recorder.nothing()


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_has_become_too_large_for_a_client_is_brought_to_its_end(
    broker: Broker, qos: int
) -> None:
    """[MQTT-3.1.2-25] on resuming: a QoS 2 exchange is released, because the client may know it."""
    recorder = await kept(broker)
    await recorder.subscribe("a", qos=qos)
    giver = await broker.connect("giver")
    await giver.publish("a", bytes(100), qos)
    sent = await recorder.next(Publish)
    recorder.drop()
    await broker.until_connections(1)
    limits = Properties(session_expiry_interval=KEPT, maximum_packet_size=60)
    recorder = await broker.connect("kept", clean=False, properties=limits)
    if qos == 2:
        await recorder.answer(PUBREL, sent.packet_id)
        recorder.ack(sent, PUBCOMP)
    await giver.publish("a", b"small", qos)
    assert (await recorder.take()).payload == b"small"
    recorder.drop()
    await broker.until_connections(1)
    recorder = await kept(broker)
    await recorder.nothing()


@pytest.mark.parametrize("how", ["break", "restart"])
@pytest.mark.parametrize("answered", [False, True])
async def test_exactly_once_from_a_publisher_goes_on_where_it_was(
    tmp_path: Path, how: str, answered: bool
) -> None:
    """[MQTT-4.3.3-10] over connections: a repeat is stored once, whether or not PUBREC was seen."""
    async with serving(tmp_path) as broker:
        recorder = await kept(broker, "taker")
        await recorder.subscribe("a", qos=2)
        giver = await kept(broker, "giver")
        giver.send(Publish("a", b"once", 2, packet_id=7))
        if answered:
            await giver.answer(PUBREC, 7)
        assert (await recorder.take()).payload == b"once"
        await recorder.ping()
        giver.drop()
        if how == "break":
            await broker.until_connections(1)
            await repeated(broker, recorder)
            return
    async with serving(tmp_path) as broker:
        await repeated(broker, await kept(broker, "taker"))


async def repeated(broker: Broker, recorder: WireClient) -> None:
    giver = await kept(broker, "giver")
    assert present(giver)
    giver.send(Publish("a", b"once", 2, dup=True, packet_id=7))
    await giver.answer(PUBREC, 7)
    giver.send(Ack(PUBREL, 7))
    await giver.answer(PUBCOMP, 7)
    await recorder.nothing()
    giver.send(Publish("a", b"another", 2, packet_id=7))
    await giver.answer(PUBREC, 7)
    assert (await recorder.take()).payload == b"another"


async def test_a_subscription_of_qos_0_outlives_its_connection_too(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        recorder = await kept(broker)
        await recorder.subscribe(FilterOptions("a/#", 0), FilterOptions("b", 0))
        await recorder.unsubscribe("b")
        await recorder.subscribe(FilterOptions("b", 0))
        await recorder.unsubscribe("b")
    async with serving(tmp_path) as broker:
        recorder = await kept(broker)
        assert present(recorder)
        giver = await broker.connect("giver")
        await giver.publish("a/1", b"hello")
        assert await giver.publish("b") == ReasonCode.NO_MATCHING_SUBSCRIBERS
        message = await recorder.take()
        assert (message.payload, message.qos) == (b"hello", 0)


async def test_sessions_and_retained_messages_outlive_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        recorder = await kept(broker)
        options = Properties(subscription_identifiers=(5,))
        await recorder.subscribe(FilterOptions("a/+", 2, no_local=True), properties=options)
        await recorder.disconnect()
        giver = await broker.connect("giver")
        for number in range(10):
            await giver.publish("a/b", b"%d" % number, 1 + number % 2)
        await giver.publish("r", b"retained", retain=True)
    async with serving(tmp_path) as broker:
        recorder = await kept(broker)
        got = [await recorder.take() for _ in range(10)]
        assert sorted(int(each.payload) for each in got) == list(range(10))
        assert {each.properties.subscription_identifiers for each in got} == {(5,)}
        await recorder.publish("a/b", b"own")
        await recorder.nothing()
        await recorder.subscribe("r")
        assert (await recorder.take()).payload == b"retained"


async def test_a_session_that_ends_with_its_connection_leaves_nothing(broker: Broker) -> None:
    client = await broker.connect("c", clean=True)
    await client.subscribe("a/#", qos=2)
    await client.disconnect()
    giver = await broker.connect("giver")
    assert await giver.publish("a/b") == ReasonCode.NO_MATCHING_SUBSCRIBERS
    statistics = broker.adapter.statistics()
    assert statistics.gauges == {"subscriptions": 0, "live_patterns": 0}
    assert statistics.connections == 1
