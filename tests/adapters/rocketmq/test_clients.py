"""Heartbeat, Telemetry, NotifyClientTermination, signatures; leases that are renewed."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from adapters.rocketmq import server
from adapters.rocketmq.clients.registry import Clients
from adapters.rocketmq.errors import Code
from adapters.rocketmq.services.call_counting import outcome_of
from adapters.rocketmq.services.messaging_service import SERVICE
from adapters.rocketmq.settings import (
    CLIENT_SILENT_MS_MAX,
    MOVED_MS,
    MOVED_SILENT_MS,
    RocketmqSettings,
)
from adapters.rocketmq.transport.telemetry import Streams
from auth.principal import SignInMode
from auth.sign_in.mqv2 import SKEW_MS_DEFAULT
from tests.adapters.heard_consumers import HeardConsumers
from tests.adapters.rocketmq.support import (
    Broker,
    Wire,
    broker_in_thread,
    definition_pb2,
    message,
    receive_request,
    resource,
    service_pb2,
    signed,
)

PRODUCER, PUSH = 1, 2


def heartbeat(wire: Wire, client_type: int = PUSH, headers=None):
    return wire.call("Heartbeat", service_pb2.HeartbeatRequest(client_type=client_type), headers)


class Telemetry:
    """A telemetry stream that a test writes to and reads from."""

    def __init__(self, wire: Wire, headers=None) -> None:
        self._out: queue.SimpleQueue = queue.SimpleQueue()
        call = wire.channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=service_pb2.TelemetryCommand.SerializeToString,
            response_deserializer=service_pb2.TelemetryCommand.FromString,
        )
        metadata = tuple((headers or wire.headers).items())
        self.answers = call(iter(self._out.get, None), metadata=metadata, timeout=20)

    def show(self, settings) -> object:
        self._out.put(service_pb2.TelemetryCommand(settings=settings))
        return next(self.answers)

    def end(self) -> None:
        self._out.put(None)


@pytest.fixture
def telemetry(wire: Wire) -> Iterator[Telemetry]:
    stream = Telemetry(wire)
    yield stream
    stream.end()


def subscriber(group: str, *topics: str, language: int = 6):
    settings = definition_pb2.Settings(client_type=PUSH)
    settings.user_agent.language = language
    settings.subscription.group.CopyFrom(resource(group))
    for name in topics:
        settings.subscription.subscriptions.add(topic=resource(name))
    return settings


def test_producers_are_told_the_largest_body_and_how_to_try_again(telemetry: Telemetry) -> None:
    settings = definition_pb2.Settings(client_type=PRODUCER)
    settings.publishing.topics.append(resource("t"))
    answer = telemetry.show(settings)
    assert answer.status.code == Code.OK, "else clients wait for ever"
    told = answer.settings
    assert (told.publishing.max_body_size, told.publishing.validate_message_type) == (
        4 * 1024 * 1024,
        True,
    )
    assert told.backoff_policy.max_attempts == 3
    assert told.backoff_policy.HasField("exponential_backoff")
    assert told.publishing.topics[0].name == "t", "what the client said stays"


def test_consumers_are_told_how_to_receive(broker: Broker, telemetry: Telemetry) -> None:
    broker.topic("plain")
    broker.topic("in-order", "fifo")
    told = telemetry.show(subscriber("g", "plain")).settings
    assert not told.subscription.fifo
    assert told.subscription.receive_batch_size == 32
    assert told.subscription.long_polling_timeout.seconds == 20
    assert told.backoff_policy.max_attempts == 17
    assert [each.seconds for each in told.backoff_policy.customized_backoff.next][:4] == [
        *(1, 5, 10, 30)
    ]
    assert telemetry.show(subscriber("g", "in-order")).settings.subscription.fifo


def test_the_node_client_is_told_what_it_can_read(broker: Broker, telemetry: Telemetry) -> None:
    broker.topic("for-node")
    told = telemetry.show(subscriber("g", "for-node", language=8)).settings
    assert told.backoff_policy.HasField("exponential_backoff")
    assert told.backoff_policy.exponential_backoff.initial.seconds == 1


def test_settings_that_name_what_is_not_there_are_answered(telemetry: Telemetry) -> None:
    answer = telemetry.show(subscriber("g", "nowhere", "a b"))
    assert answer.status.code == Code.OK


def test_a_stream_that_is_not_signed_is_told_why(wire: Wire) -> None:
    stream = Telemetry(wire, signed(secret="wrong"))
    answer = next(stream.answers)
    assert answer.status.code == Code.UNAUTHORIZED
    assert list(stream.answers) == []
    stream.end()


def test_streams_end_when_the_broker_drains_and_new_ones_at_once(tmp_path: Path) -> None:
    with broker_in_thread(tmp_path) as leaving:
        calls = Wire(leaving.address)
        stream = Telemetry(calls)
        stream.show(definition_pb2.Settings(client_type=PRODUCER))
        began = time.monotonic()
        leaving.run(leaving.adapter.drain)
        assert list(stream.answers) == []
        assert time.monotonic() - began < 5
        stream.end()
        calls.close()


class LateCall:
    """A call that says late that a write is done."""

    def __init__(self, call) -> None:
        self._call = call
        self.written = False

    def __getattr__(self, name: str):
        return getattr(self._call, name)

    async def write(self, data: bytes) -> None:
        await self._call.write(data)
        await asyncio.sleep(0.3)
        self.written = True


def test_a_stream_does_not_end_in_the_midst_of_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # gRPC takes no status while a write is under way, and the call would never end.
    serve, ended = Streams.serve, []

    async def late(streams: Streams, call, *, listener: str) -> None:
        slow = LateCall(call)
        await serve(streams, slow, listener=listener)
        ended.append(slow.written)

    monkeypatch.setattr(Streams, "serve", late)
    with broker_in_thread(tmp_path) as leaving:
        calls = Wire(leaving.address)
        stream = Telemetry(calls)
        stream.show(definition_pb2.Settings(client_type=PRODUCER))
        leaving.run(leaving.adapter.drain)
        assert list(stream.answers) == []
        stream.end()
        calls.close()
    assert ended == [True]


def test_a_client_that_is_moved_is_told_to_connect_anew_and_finds_the_other_in_its_routes(
    broker: Broker, wire: Wire, telemetry: Telemetry
) -> None:
    broker.topic("moving")

    def place() -> tuple[str, int]:
        request = service_pb2.QueryRouteRequest(topic=resource("moving"))
        (queue,) = wire.call("QueryRoute", request).message_queues
        (address,) = queue.broker.endpoints.addresses
        return address.host, address.port

    telemetry.show(definition_pb2.Settings(client_type=PRODUCER))
    assert place() == ("127.0.0.1", broker.port)
    there = {"grpc": "gate2.example.org:8081"}
    assert broker.do(lambda: broker.adapter.move(5, there)) == 1
    assert next(telemetry.answers).HasField("reconnect_endpoints_command")
    assert place() == ("gate2.example.org", 8081)
    assert broker.do(lambda: broker.adapter.move(5, there)) == 0
    # Who asks stays there, for as long as that gateway does.
    broker.clock.put_forward(MOVED_MS - 1_000)
    assert place() == ("gate2.example.org", 8081)
    broker.clock.put_forward(MOVED_MS - 1_000)
    assert place() == ("gate2.example.org", 8081)
    there.clear()
    assert place() == ("127.0.0.1", broker.port)


def test_callers_without_a_stream_count_and_find_the_other_in_their_routes(tmp_path: Path) -> None:
    """As after a restart of the server, when clients have not opened their streams anew."""
    with broker_in_thread(tmp_path) as restarted:
        restarted.topic("called")
        calls = Wire(restarted.address)
        assert heartbeat(calls).status.code == Code.OK

        def clients() -> int:
            return restarted.do(restarted.adapter.statistics).connections

        assert clients() == 1
        there = {"grpc": "gate2.example.org:8081"}
        assert restarted.do(lambda: restarted.adapter.move(5, there)) == 1
        assert restarted.do(lambda: restarted.adapter.move(5, there)) == 0
        request = service_pb2.QueryRouteRequest(topic=resource("called"))
        queue = calls.call("QueryRoute", request).message_queues[0]
        assert queue.broker.endpoints.addresses[0].host == "gate2.example.org"
        restarted.clock.put_forward(CLIENT_SILENT_MS_MAX + 1_000)
        assert clients() == 0, "its heartbeats go elsewhere"
        calls.close()


def test_a_client_that_comes_straight_back_is_asked_again_soon(tmp_path: Path) -> None:
    with broker_in_thread(tmp_path) as leaving:
        calls = Wire(leaving.address)
        there = {"grpc": "balancer.example.org:8081"}

        def come() -> Telemetry:
            stream = Telemetry(calls)
            stream.show(definition_pb2.Settings(client_type=PRODUCER))
            return stream

        def move() -> int:
            return leaving.do(lambda: leaving.adapter.move(1, there))

        first = come()
        assert move() == 1
        first.end()
        while leaving.do(leaving.adapter.statistics).gauges["streams_open"]:
            time.sleep(0.01)
        second = come()
        assert move() == 0, "a pause first"
        leaving.clock.put_forward(2_500)
        assert move() == 1
        second.end()
        calls.close()


def test_who_was_moved_and_asks_no_more_is_forgotten() -> None:
    clients = Clients(RocketmqSettings())
    key, to = ("default", "c"), {"grpc": "gate2:8081"}
    clients.send_elsewhere(key, to, 0)
    assert clients.address_for(key, "grpc", 1_000) == "gate2:8081"
    assert clients.address_for(key, "tls", 1_000) is None
    clients.tick(MOVED_MS)
    assert clients.is_sent_elsewhere(key)
    clients.tick(MOVED_MS + 1_000)
    assert not clients.is_sent_elsewhere(key)


def test_no_more_who_were_moved_are_remembered_than_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("adapters.rocketmq.clients.registry.CLIENTS_MAX", 2)
    clients = Clients(RocketmqSettings())
    for name in "abc":
        clients.send_elsewhere(("default", name), {"grpc": "gate2:8081"}, 0)
    assert [clients.is_sent_elsewhere(("default", name)) for name in "abc"] == [False, True, True]


def test_the_stream_of_a_client_that_has_gone_elsewhere_is_ended(
    broker: Broker, wire: Wire, telemetry: Telemetry
) -> None:
    telemetry.show(definition_pb2.Settings(client_type=PRODUCER))
    assert broker.do(lambda: broker.adapter.move(1, {"grpc": "gate2.example.org:8081"})) == 1
    assert next(telemetry.answers).HasField("reconnect_endpoints_command")
    broker.clock.put_forward(MOVED_SILENT_MS - 5_000)
    assert heartbeat(wire).status.code == Code.OK
    broker.clock.put_forward(MOVED_SILENT_MS - 5_000)
    broker.do(lambda: broker.adapter._streams.tick(broker.clock.monotonic_ms()))
    assert broker.adapter.statistics().gauges["streams_open"] == 1
    broker.clock.put_forward(6_000)
    assert list(telemetry.answers) == []
    assert broker.adapter.statistics().gauges["streams_open"] == 0


def test_for_a_topic_those_are_moved_who_receive_from_it(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = HeardConsumers(broker.kernel, monkeypatch)
    for name in ("hot", "cold"):
        broker.topic(name)
    callers = {}
    for name, topic in (("a", "cold"), ("b", "hot"), ("c", "hot")):
        headers = signed(x_mq_client_id=name)
        callers[name] = Telemetry(wire, headers)
        callers[name].show(definition_pb2.Settings(client_type=PUSH))
        request = receive_request(topic, "g")
        list(wire.stream("ReceiveMessage", request.SerializeToString(), headers))
    there = {"grpc": "gate2.example.org:8081"}

    def move(amount: int) -> int:
        return broker.do(lambda: broker.adapter.move(amount, there, heard.pulling("hot")))

    assert [move(1), move(9), move(9)] == [1, 1, 0]
    for name in ("b", "c"):
        assert next(callers[name].answers).HasField("reconnect_endpoints_command")
    request = service_pb2.QueryRouteRequest(topic=resource("cold"))
    for name, host in (("a", "127.0.0.1"), ("b", "gate2.example.org")):
        answer = wire.call("QueryRoute", request, signed(x_mq_client_id=name))
        assert answer.message_queues[0].broker.endpoints.addresses[0].host == host
    for each in callers.values():
        each.end()
        assert list(each.answers) == []


def test_a_heartbeat_needs_nothing_from_before(wire: Wire) -> None:
    assert heartbeat(wire).status.code == Code.OK
    for client_type in (0, 99):
        assert heartbeat(wire, client_type).status.code == Code.UNRECOGNIZED_CLIENT_TYPE


@pytest.mark.parametrize(
    ("headers", "code", "text"),
    [
        (signed(secret="wrong"), Code.UNAUTHORIZED, "does not fit the secret"),
        (signed(key_id="nobody"), Code.UNAUTHORIZED, "nobody"),
        (signed(authorization=None), Code.UNAUTHORIZED, ""),
        (signed(authorization="Basic abc"), Code.UNAUTHORIZED, ""),
        (signed(x_mq_date_time=None), Code.UNAUTHORIZED, ""),
        (signed(x_mq_client_id=None), Code.CLIENT_ID_REQUIRED, "x-mq-client-id"),
        (signed(x_mq_client_id="x" * 256), Code.CLIENT_ID_REQUIRED, "255"),
    ],
)
def test_a_call_that_is_not_signed_as_it_should_be(
    wire: Wire, headers: dict[str, str], code: Code, text: str
) -> None:
    answer = heartbeat(wire, headers=headers)
    assert answer.status.code == code
    assert text in answer.status.message
    assert answer.status.message


def test_a_signature_of_long_ago_is_refused(wire: Wire) -> None:
    answer = heartbeat(wire, headers=signed(date_time="20010101T000000Z"))
    assert answer.status.code == Code.UNAUTHORIZED
    assert "too far from this server's time" in answer.status.message


def test_a_signature_that_was_accepted_is_refused_once_its_time_is_over(tmp_path: Path) -> None:
    with broker_in_thread(tmp_path) as broker:
        calls = Wire(broker.address)
        try:
            calls.headers = signed(date_time=datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"))
            assert heartbeat(calls).status.code == Code.OK
            broker.clock.put_forward(SKEW_MS_DEFAULT - 60_000)
            assert heartbeat(calls).status.code == Code.OK
            broker.clock.put_forward(120_000)
            assert heartbeat(calls).status.code == Code.UNAUTHORIZED
            later = datetime.now(UTC) + timedelta(milliseconds=broker.clock.wall_ahead_ms)
            renewed = signed(date_time=later.strftime("%Y%m%dT%H%M%SZ"))
            assert heartbeat(calls, headers=renewed).status.code == Code.OK
        finally:
            calls.close()


def test_hexadecimal_digits_may_be_of_either_case(wire: Wire) -> None:
    headers = signed()
    head, _, digits = headers["authorization"].rpartition("=")
    upper = headers | {"authorization": f"{head}={digits.upper()}"}
    assert heartbeat(wire, headers=upper).status.code == Code.OK


def test_signatures_may_be_off(tmp_path: Path) -> None:
    with broker_in_thread(tmp_path, RocketmqSettings(sign_in=SignInMode.OFF)) as open_to_all:
        calls = Wire(open_to_all.address, {"x-mq-client-id": "me"})
        assert heartbeat(calls).status.code == Code.OK
        calls.close()


# --- Leases that the server renews --------------------------------------------------------------


def push_receive(wire: Wire, topic: str, group: str, **fields):
    return wire.receive(topic, group, auto_renew=True, invisible_s=None, **fields)


def test_a_push_consumers_messages_stay_with_it_as_long_as_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Shorter than a setting may be, so they are looked at more often: late by the tick, a lease
    # would be over.
    monkeypatch.setattr(server, "TICK_S", 0.2)
    settings = RocketmqSettings(auto_renew_lease_ms=1_500)
    with broker_in_thread(tmp_path, settings) as patient:
        patient.topic("held")
        calls = Wire(patient.address)
        push_receive(calls, "held", "g", wait_s=0)
        calls.send(message("held"))
        assert len(push_receive(calls, "held", "g", wait_s=2).messages) == 1
        # Three leases long: nobody else gets it, because it is renewed.
        assert calls.receive("held", "g", wait_s=4.5).code == Code.MESSAGE_NOT_FOUND
        # It stops when nothing has been heard of the client for so long.
        patient.do(lambda: patient.clock.put_forward(60_000))
        other = Wire(patient.address, signed(x_mq_client_id="other"))
        assert other.receive("held", "g", wait_s=6).attempts == [2]
        other.close()
        calls.close()


def test_a_consumer_that_says_goodbye_gives_its_messages_back(broker: Broker, wire: Wire) -> None:
    broker.topic("goodbye")
    going = Wire(broker.address, signed(x_mq_client_id="going"))
    push_receive(going, "goodbye", "g", wait_s=0)
    wire.send(message("goodbye"))
    assert len(push_receive(going, "goodbye", "g", wait_s=2).messages) == 1
    request = service_pb2.NotifyClientTerminationRequest(group=resource("g"))
    assert going.call("NotifyClientTermination", request).status.code == Code.OK
    assert wire.receive("goodbye", "g", wait_s=2).attempts == [2]
    assert going.call("NotifyClientTermination", request).status.code == Code.OK, "once more"
    going.close()


def test_an_acked_message_is_renewed_no_more(broker: Broker, wire: Wire) -> None:
    broker.topic("settled")
    push_receive(wire, "settled", "g", wait_s=0)
    wire.send(message("settled"))
    before = broker.do(lambda: broker.adapter.statistics().gauges["leases_renewed"])
    (handle,) = push_receive(wire, "settled", "g", wait_s=2).handles
    held = broker.do(lambda: broker.adapter.statistics().gauges["leases_renewed"])
    assert held == before + 1
    wire.ack("settled", "g", handle)
    assert broker.do(lambda: broker.adapter.statistics().gauges["leases_renewed"]) == before


def test_calls_are_metered_by_how_they_ended(broker: Broker, wire: Wire) -> None:
    broker.topic("metered")
    told = broker.meter.told
    del told[:]
    wire.receive("metered", "g")
    wire.send(message("metered", b"x" * 5_000))
    (handle,) = wire.receive("metered", "g", wait_s=2).handles
    wire.ack("metered", "g", handle)
    wire.send(message("nowhere"))
    wire.call("RecallMessage", service_pb2.RecallMessageRequest())
    assert [each[:4] for each in told] == [
        ("default", "receive", "ReceiveMessage", "empty"),
        ("default", "publish", "SendMessage", "ok"),
        ("default", "receive", "ReceiveMessage", "ok"),
        ("default", "ack", "AckMessage", "ok"),
        ("default", "publish", "SendMessage", "client_error"),
        ("default", "admin", "RecallMessage", "client_error"),
    ]
    octets = [each[4:] for each in told]
    assert octets[1][0] > 5_000 > octets[1][1] > 0
    assert octets[2][1] > 5_000 > octets[2][0] > 0


def test_a_telemetry_stream_stands_for_a_connection(broker: Broker, wire: Wire) -> None:
    before = broker.meter.connections["default"]
    stream = Telemetry(wire)
    stream.show(definition_pb2.Settings())
    assert broker.meter.connections["default"] == before + 1
    stream.end()
    assert list(stream.answers) == []
    deadline = time.monotonic() + 5
    while broker.meter.connections["default"] != before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nobody_pays_for_calls_of_strangers(broker: Broker, wire: Wire) -> None:
    before = list(broker.meter.told)
    wire.send(message("metered"), headers=signed(secret="wrong"))
    assert broker.meter.told == before


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (Code.TOO_MANY_REQUESTS, "throttled"),
        (Code.FORBIDDEN, "client_error"),
        (Code.UNSUPPORTED, "client_error"),
        (Code.HA_NOT_AVAILABLE, "server_error"),
        (Code.INTERNAL_SERVER_ERROR, "server_error"),
    ],
)
def test_how_a_refused_call_is_counted(code: Code, outcome: str) -> None:
    assert outcome_of(code) == outcome


def test_an_operator_sees_a_clients_stream_and_ends_it(
    broker: Broker, telemetry: Telemetry
) -> None:
    telemetry.show(definition_pb2.Settings(client_type=PRODUCER))
    (stream,) = broker.adapter.connections()
    shown = broker.do(stream.shown)
    assert (shown.protocol, shown.state, shown.tenant) == ("rocketmq", "open", "default")
    assert shown.client_id
    assert stream.owner == (shown.tenant, shown.user)
    broker.do(lambda: stream.end("enough"))
    assert list(telemetry.answers) == []
