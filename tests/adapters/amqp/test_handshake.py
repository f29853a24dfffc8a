"""From the protocol header to connection.open-ok, and what time does to a connection."""

from __future__ import annotations

import pytest

from adapters.amqp.codec import spec
from adapters.amqp.codec.fields import EMPTY_TABLE, Table, encode_table, text_of
from adapters.amqp.codec.frames import HEARTBEAT, PROTOCOL_HEADER, PROTOCOL_HEADER_0_9
from adapters.amqp.codec.methods import encode_method
from adapters.amqp.connection.liveness import Liveness, Verdict
from adapters.amqp.errors import (
    ACCESS_REFUSED,
    CHANNEL_ERROR,
    COMMAND_INVALID,
    CONNECTION_FORCED,
    FRAME_ERROR,
    NOT_ALLOWED,
    RESOURCE_ERROR,
)
from adapters.amqp.handshake import AmqpSettings
from adapters.amqp.lifecycle import ConnectionState
from auth.errors import AuthCode, AuthError
from tests.adapters.amqp.broker import Logins
from tests.adapters.amqp.wire import CAPABILITIES, Wire, close_of


def _started() -> Wire:
    wire = Wire()
    wire.feed(PROTOCOL_HEADER)
    wire.take()
    return wire


def _tuned(login: bytes = b"\0guest\0guest", **how: object) -> Wire:
    wire = Wire(**how)  # type: ignore[arg-type]
    wire.feed(PROTOCOL_HEADER)
    wire.send(0, spec.ConnectionStartOk(CAPABILITIES, "PLAIN", login, "en_US"))
    wire.take()
    return wire


@pytest.mark.parametrize("header", [PROTOCOL_HEADER, PROTOCOL_HEADER_0_9])
def test_the_protocol_header_is_answered_with_start(header: bytes) -> None:
    wire = Wire()
    wire.feed(header)
    start = wire.take_one()
    assert isinstance(start, spec.ConnectionStart)
    assert (start.version_major, start.version_minor) == (0, 9)
    assert start.mechanisms == b"PLAIN AMQPLAIN"
    capabilities = start.server_properties.get("capabilities")
    assert capabilities is not None
    assert isinstance(capabilities.value, Table)
    assert {name for name, field in capabilities.value.entries if field.value is True} == {
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    }


def test_the_product_is_a_setting() -> None:
    wire = Wire(settings=AmqpSettings(product="RabbitMQ", version="4.1.0"))
    wire.feed(PROTOCOL_HEADER)
    start = wire.take_one()
    assert isinstance(start, spec.ConnectionStart)
    assert text_of(start.server_properties.get("product")) == "RabbitMQ"
    assert text_of(start.server_properties.get("version")) == "4.1.0"


def test_a_header_in_pieces_is_put_together() -> None:
    wire = Wire()
    for at in range(8):
        wire.feed(PROTOCOL_HEADER[at : at + 1])
    assert isinstance(wire.take_one(), spec.ConnectionStart)


@pytest.mark.parametrize(
    "data",
    [
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x00\x00\x09\x02",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"X",
    ],
    ids=["1.0", "0-9-2", "http", "tls hello", "one octet"],
)
def test_any_other_header_is_answered_with_ours_and_the_end(data: bytes) -> None:
    wire = Wire()
    wire.connection.receive(data)
    assert wire.host.out == [PROTOCOL_HEADER]
    assert wire.host.closed == "no AMQP 0-9-1 protocol header"
    wire.connection.receive(b"more")
    assert wire.host.out == [PROTOCOL_HEADER]


def test_a_whole_handshake_in_one_read_works() -> None:
    wire = Wire()
    wire.feed(
        PROTOCOL_HEADER
        + encode_method(0, spec.ConnectionStartOk(CAPABILITIES, "PLAIN", b"\0guest\0guest", ""))
        + encode_method(0, spec.ConnectionTuneOk(0, 0, 0))
        + encode_method(0, spec.ConnectionOpen("/", "", reserved_2=True))
        + encode_method(1, spec.ChannelOpen())
    )
    kinds = [type(each) for each in wire.take_methods()]
    assert kinds == [
        spec.ConnectionStart,
        spec.ConnectionTune,
        spec.ConnectionOpenOk,
        spec.ChannelOpenOk,
    ]
    assert wire.connection.agreement == (2047, 131_072, 0)


def test_plain_login_leads_to_tune() -> None:
    wire = _started()
    wire.send(0, spec.ConnectionStartOk(CAPABILITIES, "PLAIN", b"\0guest\0guest", "en_US"))
    assert wire.take_one() == spec.ConnectionTune(2047, 131_072, 60)


def test_amqplain_login_leads_to_tune() -> None:
    wire = _started()
    response = encode_table(Table.of({"LOGIN": "guest", "PASSWORD": "guest"}))[4:]
    wire.send(0, spec.ConnectionStartOk(CAPABILITIES, "AMQPLAIN", response, "en_US"))
    assert isinstance(wire.take_one(), spec.ConnectionTune)


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b"\0guest\0wrong"),
        ("PLAIN", b"\0nobody\0guest"),
        ("PLAIN", b"no zeros"),
        ("AMQPLAIN", b"\xff\xff"),
        ("AMQPLAIN", encode_table(Table.of({"LOGIN": "guest"}))[4:]),
        ("AMQPLAIN", encode_table(Table.of({"LOGIN": "guest", "PASSWORD": 1}))[4:]),
    ],
)
def test_a_refused_login_is_403_without_a_culprit(mechanism: str, response: bytes) -> None:
    wire = _started()
    answer = (wire.send(0, spec.ConnectionStartOk(CAPABILITIES, mechanism, response, "")),)
    assert answer == (None,)
    close = wire.take_one()
    assert isinstance(close, spec.ConnectionClose)
    assert (close.reply_code, close.failing_class, close.failing_method) == (ACCESS_REFUSED, 0, 0)
    assert close.reply_text.startswith(
        f"ACCESS_REFUSED - Login was refused using authentication mechanism {mechanism}"
    )


def test_a_client_that_cannot_be_told_of_a_refused_login_hears_nothing_for_a_while() -> None:
    wire = _started()
    wire.send(0, spec.ConnectionStartOk(EMPTY_TABLE, "PLAIN", b"\0guest\0wrong", "en_US"))
    assert wire.take_methods() == []
    wire.host.now_ms += 2_900
    wire.connection.tick(wire.host.now_ms)
    assert wire.host.closed is None
    wire.feed(encode_method(0, spec.ConnectionTuneOk(0, 0, 0)))
    wire.host.now_ms += 200
    wire.connection.tick(wire.host.now_ms)
    assert wire.host.closed is not None
    assert "ACCESS_REFUSED" in wire.host.closed
    assert wire.take_methods() == []


def test_an_unknown_mechanism_is_command_invalid() -> None:
    wire = _started()
    wire.send(0, spec.ConnectionStartOk(CAPABILITIES, "EXTERNAL", b"", "en_US"))
    assert close_of(wire.take_one())[0] == COMMAND_INVALID


def test_a_login_that_cannot_be_decided_now_is_a_resource_error() -> None:
    logins = Logins()
    logins.failure = AuthError(AuthCode.BUSY, "too many password checks")
    wire = Wire(logins=logins)
    wire.feed(PROTOCOL_HEADER)
    wire.take()
    wire.send(0, spec.ConnectionStartOk(CAPABILITIES, "PLAIN", b"\0guest\0guest", ""))
    assert close_of(wire.take_one())[0] == RESOURCE_ERROR


def test_a_client_may_lower_every_limit() -> None:
    wire = _tuned()
    wire.send(0, spec.ConnectionTuneOk(10, 4096, 5), spec.ConnectionOpen("/"))
    assert isinstance(wire.take_one(), spec.ConnectionOpenOk)
    assert wire.connection.agreement == (10, 4096, 5)


@pytest.mark.parametrize(
    "answer",
    [
        spec.ConnectionTuneOk(2048, 131_072, 60),
        spec.ConnectionTuneOk(2047, 131_073, 60),
        spec.ConnectionTuneOk(2047, 4095, 60),
    ],
)
def test_limits_above_ours_or_below_the_minimum_are_not_allowed(
    answer: spec.ConnectionTuneOk,
) -> None:
    wire = _tuned()
    wire.send(0, answer)
    code, text = close_of(wire.take_one())
    assert code == NOT_ALLOWED
    assert "negotiated" in text


@pytest.mark.parametrize("virtual_host", ["", "other", "default"])
def test_a_virtual_host_of_another_tenant_is_not_allowed(virtual_host: str) -> None:
    wire = _tuned()
    wire.send(0, spec.ConnectionTuneOk(0, 0, 0), spec.ConnectionOpen(virtual_host))
    close = wire.take_one()
    assert isinstance(close, spec.ConnectionClose)
    assert (close.reply_code, close.failing_class, close.failing_method) == (NOT_ALLOWED, 10, 40)


def test_a_user_of_another_tenant_opens_its_own_virtual_host() -> None:
    wire = Wire().open(login=b"\0acme:alice\0secret", virtual_host="acme")
    assert wire.connection.state is ConnectionState.OPEN
    wire.declare("q")
    assert list(wire.client.queues) == [("acme", "q")]


def test_a_tenant_is_known_by_the_virtual_host_of_the_settings_alone() -> None:
    settings = AmqpSettings(virtual_hosts={"default": "/", "acme": "acme-vhost"})
    wire = Wire(settings=settings).open(login=b"\0acme:alice\0secret", virtual_host="acme-vhost")
    wire.declare("q")
    assert list(wire.client.queues) == [("acme", "q")]
    wire.send(1, spec.QueueDeclare(0, "nowhere", passive=True))
    assert "no queue 'nowhere' in vhost 'acme-vhost'" in close_of(wire.take_one())[1]
    for virtual_host in ("acme", "/"):
        wire = _tuned(settings=settings, login=b"\0acme:alice\0secret")
        wire.send(0, spec.ConnectionTuneOk(0, 0, 0), spec.ConnectionOpen(virtual_host))
        assert f"access to vhost '{virtual_host}' refused" in close_of(wire.take_one())[1]


def test_what_is_out_of_turn_in_a_handshake_is_refused() -> None:
    for method, code in (
        (spec.ConnectionTuneOk(0, 0, 0), COMMAND_INVALID),
        (spec.ConnectionOpen("/"), COMMAND_INVALID),
        (spec.ConnectionSecureOk(b""), COMMAND_INVALID),
        (spec.ConnectionBlocked("x"), COMMAND_INVALID),
        (spec.ChannelOpen(), CHANNEL_ERROR),
        (spec.BasicAck(1), CHANNEL_ERROR),
    ):
        wire = _started()
        wire.send(0, method)
        assert close_of(wire.take_one())[0] == code


def test_a_channel_before_connection_open_is_a_channel_error() -> None:
    wire = _tuned()
    wire.send(1, spec.ChannelOpen())
    assert close_of(wire.take_one())[0] == CHANNEL_ERROR


def test_a_start_ok_of_64_kib_is_taken_before_the_frame_size_is_agreed() -> None:
    wire = _started()
    wire.logins.passwords["guest"] = b"p" * 60_000
    response = b"\0guest\0" + b"p" * 60_000
    wire.send(0, spec.ConnectionStartOk(CAPABILITIES, "PLAIN", response, "en_US"))
    assert isinstance(wire.take_one(), spec.ConnectionTune)


def test_a_frame_over_the_agreed_size_is_a_frame_error_and_the_rest_is_thrown_away() -> None:
    wire = Wire().open(frame_max=4096)
    wire.feed(b"\x03\x00\x01\x00\x00\x10\x01" + bytes(50))
    assert close_of(wire.take_one())[0] == FRAME_ERROR
    wire.feed(encode_method(0, spec.ConnectionCloseOk()))
    assert wire.host.closed is None
    wire.host.now_ms += 6_000
    wire.connection.tick(wire.host.now_ms)
    assert wire.host.closed is not None


def test_a_heartbeat_belongs_to_channel_0() -> None:
    wire = Wire().open()
    wire.feed(HEARTBEAT)
    assert wire.take_methods() == []
    wire.feed(b"\x08\x00\x01\x00\x00\x00\x00\xce")
    assert close_of(wire.take_one())[0] == FRAME_ERROR


def test_a_silent_peer_loses_its_connection_before_the_handshake_is_done() -> None:
    wire = _started()
    wire.host.now_ms += 9_900
    wire.connection.tick(wire.host.now_ms)
    assert wire.host.closed is None
    wire.host.now_ms += 200
    wire.connection.tick(wire.host.now_ms)
    assert wire.host.closed == "the peer did not answer in time"


def test_heartbeats_are_sent_and_a_silent_peer_is_dropped() -> None:
    wire = Wire().open()
    wire.client.sessions[0]
    beats = 0
    for _ in range(119):
        wire.host.now_ms += 1_000
        wire.connection.tick(wire.host.now_ms)
        wire.turn()
        beats += wire.raw.count(HEARTBEAT)
        wire.raw = b""
    assert beats == 3
    assert wire.host.closed is None
    for _ in range(3):
        wire.host.now_ms += 1_000
        wire.connection.tick(wire.host.now_ms)
    assert wire.host.closed is not None
    assert "heartbeat" in wire.host.closed
    assert wire.client.sessions[0].is_closed


def test_without_heartbeats_silence_is_fine() -> None:
    wire = Wire()
    wire.feed(PROTOCOL_HEADER)
    wire.send(0, spec.ConnectionStartOk(CAPABILITIES, "PLAIN", b"\0guest\0guest", "en_US"))
    wire.send(0, spec.ConnectionTuneOk(0, 0, 0), spec.ConnectionOpen("/"))
    wire.take()
    wire.host.now_ms += 10**9
    wire.connection.tick(wire.host.now_ms)
    wire.turn()
    assert wire.host.closed is None
    assert wire.take_methods() == []


def test_liveness_counts_any_octet_and_excuses_silence_of_our_making() -> None:
    live = Liveness(0, 10_000)
    live.deadline = None
    live.agreed(10)
    assert live.check(4_900, 1, 0, is_held=False) is Verdict.NOTHING
    assert live.check(5_000, 1, 0, is_held=False) is Verdict.BEAT
    assert live.check(6_000, 1, 8, is_held=False) is Verdict.NOTHING
    assert live.check(24_900, 1, 9, is_held=False) is Verdict.NOTHING
    assert live.check(25_000, 1, 10, is_held=True) is Verdict.NOTHING
    assert live.check(45_001, 1, 11, is_held=False) is Verdict.SILENT


def test_close_by_the_client_is_answered_and_ends_the_session() -> None:
    wire = Wire().open()
    wire.send(0, spec.ConnectionClose(200, "bye", 0, 0))
    assert wire.take_one() == spec.ConnectionCloseOk()
    assert wire.host.closed == "closed by the client"
    assert wire.client.sessions[0].is_closed


def test_a_close_ok_out_of_the_blue_ends_the_session_too() -> None:
    wire = Wire().open()
    wire.declare("mine", exclusive=True)
    session = wire.connection.session
    assert session is not None
    wire.send(0, spec.ConnectionCloseOk())
    assert wire.connection.state is ConnectionState.GONE
    assert wire.connection.session is None
    assert wire.client.topic("default", "mine") is None


def test_after_our_close_everything_but_close_and_close_ok_is_ignored() -> None:
    wire = Wire().open()
    wire.send(0, spec.ChannelOpen())
    assert close_of(wire.take_one())[0] == CHANNEL_ERROR
    wire.send(1, spec.QueueDeclare(0, "q"), spec.BasicAck(9))
    wire.publish(1, "", "q", b"x")
    assert wire.take_methods() == []
    assert wire.client.queues == {}
    wire.send(0, spec.ConnectionCloseOk())
    assert wire.host.closed is not None
    assert wire.host.closed.startswith("504 CHANNEL_ERROR")


def test_closes_that_cross_are_both_answered() -> None:
    wire = Wire().open()
    wire.send(0, spec.ChannelOpen())
    wire.take()
    wire.send(0, spec.ConnectionClose(200, "bye", 0, 0))
    assert wire.take_one() == spec.ConnectionCloseOk()
    assert wire.host.closed is not None


def test_a_new_secret_is_checked() -> None:
    wire = Wire().open()
    wire.logins.passwords["guest"] = b"new"
    wire.send(0, spec.ConnectionUpdateSecret(b"new", "rotation"))
    assert wire.take_one() == spec.ConnectionUpdateSecretOk()
    wire.send(0, spec.ConnectionUpdateSecret(b"wrong", "rotation"))
    assert close_of(wire.take_one())[0] == NOT_ALLOWED


def test_a_removed_user_is_sent_away() -> None:
    wire = Wire().open()
    wire.logins.given[0].alive = False
    wire.recheck()
    assert close_of(wire.take_one())[0] == CONNECTION_FORCED


def test_a_shutdown_waits_for_what_was_published() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.send(1, spec.ConfirmSelect())
    wire.take()
    wire.client.holds_publishes = True
    wire.publish(1, "", "q", b"x")
    wire.connection.shut_down("the broker is shutting down")
    wire.turn()
    assert wire.take_methods() == []
    wire.client.holds_publishes = False
    wire.turn()
    ack, close = wire.take_methods()
    assert ack == spec.BasicAck(1)
    assert close_of(close) == (
        CONNECTION_FORCED,
        "CONNECTION_FORCED - the broker is shutting down",
    )
    assert wire.host.holds == set()
