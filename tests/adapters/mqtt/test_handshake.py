"""CONNECT and CONNACK: the rules, the terms, refusals in each version's words."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from adapters.mqtt.codec.encoder import encode
from adapters.mqtt.codec.errors import LocalProtocolError
from adapters.mqtt.codec.packets import (
    Connack,
    Connect,
    Disconnect,
    FilterOptions,
    Pingreq,
    Pingresp,
    Publish,
    PublishRun,
    Subscribe,
    Will,
)
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.config import SessionConfig
from adapters.mqtt.limits import HELD_BYTES_MAX, HELD_BYTES_PAUSE
from adapters.mqtt.session.client_session import Session
from adapters.mqtt.session.events import ConnectionClosed, ConnectReceived, Initiator
from adapters.mqtt.session.handshake import Welcome
from adapters.mqtt.session.states import ConnectionState
from tests.adapters.mqtt.support import (
    NAMES,
    NOW_MS,
    asking,
    connected,
    from_server,
    said,
)

NEW = Welcome(session_present=False)


def refusal(connect: Connect, config: SessionConfig | None = None):
    """The CONNACK that a CONNECT is refused with, or None, and the closing event."""
    session, [event] = asking(connect, config)
    assert isinstance(event, ConnectionClosed)
    assert not event.accepted
    answers = said(session)
    return (answers[0] if answers else None), event


def test_connect_is_handed_to_the_driver_with_everything_in_it():
    will = Will("gone", b"bye", 2, True, Properties(will_delay_interval=9))
    connect = Connect(
        "me", 5, False, 30, "user", b"\x00\xff", will, Properties(session_expiry_interval=60)
    )
    _, events = asking(connect)
    assert events == [ConnectReceived(connect, client_id_needed=False, session_expiry_s=60)]


def test_an_acceptance_names_what_the_server_takes():
    """[MQTT-3.2.0-1], [MQTT-3.1.4-5]; the three limits always, restrictions only where they are."""
    config = SessionConfig(receive_maximum=7, maximum_packet_size=1000, topic_alias_maximum=3)
    session, _ = asking(Connect("c"), config)
    session.accept(NEW, NOW_MS)
    limits = Properties(receive_maximum=7, maximum_packet_size=1000, topic_alias_maximum=3)
    assert said(session) == [Connack(0, False, limits)]
    assert session.state == ConnectionState.CONNECTED


def test_a_restricted_server_says_so():
    """[MQTT-3.2.2-9]."""
    config = SessionConfig(maximum_qos=1, retain_available=False)
    session, _ = asking(Connect("c"), config)
    session.accept(NEW, NOW_MS)
    [connack] = said(session)
    assert connack.properties.maximum_qos == 1
    assert connack.properties.retain_available == 0


@pytest.mark.parametrize("level", [3, 4])
def test_an_acceptance_before_mqtt_5_is_four_bytes(level):
    session, _ = asking(Connect("c", level=level))
    session.accept(NEW, NOW_MS)
    assert session.data_to_send() == b"\x20\x02\x00\x00"
    assert session.level == 4


@pytest.mark.parametrize(("level", "flag"), [(3, 0), (4, 1), (5, 1)])
def test_session_present_is_said_to_those_who_know_it(level, flag):
    """[MQTT-3.2.2-3]; in MQTT 3.1 the byte is reserved."""
    session, _ = asking(Connect("c", level=level, clean_start=False))
    session.accept(Welcome(session_present=True), NOW_MS)
    assert session.data_to_send()[2] == flag


def test_a_clean_start_has_no_session():
    """[MQTT-3.1.2-4], [MQTT-3.2.2-2]."""
    session, _ = asking(Connect("c", clean_start=True))
    with pytest.raises(LocalProtocolError):
        session.accept(Welcome(session_present=True), NOW_MS)


def test_a_client_without_an_identifier_is_given_one_and_told():
    """[MQTT-3.1.3-6], [MQTT-3.1.3-7], [MQTT-3.2.2-16]."""
    session, [event] = asking(Connect("", clean_start=False))
    assert event.client_id_needed
    with pytest.raises(LocalProtocolError):
        session.accept(NEW, NOW_MS)
    session.accept(replace(NEW, assigned_client_id="made-up"), NOW_MS)
    [connack] = said(session)
    assert connack.properties.assigned_client_identifier == "made-up"


def test_a_client_with_an_identifier_keeps_it():
    session, _ = asking(Connect("mine"))
    with pytest.raises(LocalProtocolError):
        session.accept(replace(NEW, assigned_client_id="other"), NOW_MS)


def test_a_3_1_1_client_may_be_nameless_only_if_its_session_is_clean():
    """[MQTT-3.1.3-7], [MQTT-3.1.3-8] of 3.1.1."""
    _, [event] = asking(Connect("", level=4, clean_start=True))
    assert event.client_id_needed
    connack, event = refusal(Connect("", level=4, clean_start=False))
    assert connack == Connack(2)
    assert event.reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert refusal(Connect("", level=3))[0] == Connack(2)


@pytest.mark.parametrize(
    "client_id", ["a", "0123456789abcdefghijklm", "ABCXYZ", "x" * 1024, "ä/ö#+"]
)
def test_identifiers_of_usual_and_unusual_form_are_allowed(client_id):
    """[MQTT-3.1.3-5]."""
    _, [event] = asking(Connect(client_id))
    assert isinstance(event, ConnectReceived)


def test_an_identifier_that_is_too_long_is_refused():
    """[MQTT-3.1.3-8]."""
    connack, _ = refusal(Connect("ü" * 513))
    assert connack.reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert refusal(Connect("ü" * 513, level=4))[0] == Connack(2)


@pytest.mark.parametrize(
    ("will", "config", "code"),
    [
        (Will("t", b"", 2), SessionConfig(maximum_qos=1), ReasonCode.QOS_NOT_SUPPORTED),
        (
            Will("t", b"", 0, True),
            SessionConfig(retain_available=False),
            ReasonCode.RETAIN_NOT_SUPPORTED,
        ),
        (Will("a/b/c", b""), SessionConfig(topic_levels_max=2), ReasonCode.TOPIC_NAME_INVALID),
        (
            Will("t", b"\xff", properties=Properties(payload_format_indicator=1)),
            SessionConfig(validate_payload_format=True),
            ReasonCode.PAYLOAD_FORMAT_INVALID,
        ),
    ],
)
def test_a_will_beyond_what_the_server_can_do_is_refused(will, config, code):
    """[MQTT-3.2.2-12], [MQTT-3.2.2-13]."""
    connack, event = refusal(Connect("c", will=will), config)
    assert connack.reason_code == event.reason_code == code
    assert not connack.session_present


@pytest.mark.parametrize(
    ("asked", "granted", "told"), [(60, 60, None), (3600, 600, 600), (0xFFFFFFFF, 600, 600)]
)
def test_session_expiry_is_capped_and_told(asked, granted, told):
    config = SessionConfig(session_expiry_s_max=600)
    properties = Properties(session_expiry_interval=asked)
    session, [event] = asking(Connect("c", properties=properties), config)
    assert event.session_expiry_s == granted
    session.accept(NEW, NOW_MS)
    assert said(session)[0].properties.session_expiry_interval == told


def test_a_3_1_1_session_that_is_kept_expires_as_the_server_says():
    config = SessionConfig(v3_session_expiry_s=500)
    assert asking(Connect("c", level=4, clean_start=False), config)[1][0].session_expiry_s == 500
    assert asking(Connect("c", level=4, clean_start=True), config)[1][0].session_expiry_s == 0


@pytest.mark.parametrize(
    ("asked", "bounds", "told", "silence_s"),
    [
        (60, (0, 65_535), None, 90),
        (5, (10, 300), 10, 15),
        (1000, (10, 300), 300, 450),
        (0, (10, 300), 300, 450),
        (0, (0, 65_535), None, None),
    ],
)
def test_the_server_may_choose_the_keep_alive(asked, bounds, told, silence_s):
    """[MQTT-3.2.2-21], [MQTT-3.2.2-22]."""
    config = SessionConfig(keep_alive_s_min=bounds[0], keep_alive_s_max=bounds[1])
    session, _ = asking(Connect("c", keep_alive_s=asked), config)
    session.accept(NEW, NOW_MS)
    assert said(session)[0].properties.server_keep_alive == told
    expected = None if silence_s is None else NOW_MS + silence_s * 1000
    assert session.deadline_ms == expected


def test_a_3_1_1_client_cannot_be_told_another_keep_alive():
    config = SessionConfig(keep_alive_s_min=10, keep_alive_s_max=300)
    session = connected(4, config, Connect("c", level=4, keep_alive_s=5))
    assert session.deadline_ms == NOW_MS + 7_500


def test_response_information_is_given_only_on_request():
    """[MQTT-3.1.2-28]."""
    welcome = replace(NEW, response_information="answers/c")
    for wanted, told in ((None, None), (0, None), (1, "answers/c")):
        connect = Connect("c", properties=Properties(request_response_information=wanted))
        session, _ = asking(connect)
        session.accept(welcome, NOW_MS)
        assert said(session)[0].properties.response_information == told


def test_the_drivers_own_words_go_into_the_acceptance():
    session, _ = asking(Connect("c"))
    session.accept(replace(NEW, reason_string="hello", user_properties=(("k", "v"),)), NOW_MS)
    [connack] = said(session)
    assert connack.properties.reason_string == "hello"
    assert connack.properties.user_properties == (("k", "v"),)


def test_explanations_are_dropped_where_the_acceptance_would_be_too_large():
    """[MQTT-3.2.2-19], [MQTT-3.2.2-20], [MQTT-3.1.2-24]."""
    session, _ = asking(Connect("c", properties=Properties(maximum_packet_size=40)))
    session.accept(replace(NEW, reason_string="x" * 50, user_properties=(("k", "v"),)), NOW_MS)
    [connack] = said(session)
    assert connack.properties.reason_string is None
    assert connack.properties.user_properties == (("k", "v"),)


REFUSALS = [
    (ReasonCode.BAD_USER_NAME_OR_PASSWORD, 4),
    (ReasonCode.NOT_AUTHORIZED, 5),
    (ReasonCode.SERVER_UNAVAILABLE, 3),
    (ReasonCode.SERVER_BUSY, 3),
    (ReasonCode.BANNED, 5),
    (ReasonCode.QUOTA_EXCEEDED, 3),
    (ReasonCode.CONNECTION_RATE_EXCEEDED, 3),
    (ReasonCode.PACKET_TOO_LARGE, None),
]


@pytest.mark.parametrize(("code", "return_code"), REFUSALS)
def test_a_refusal_is_said_in_the_clients_own_format(code, return_code):
    """[MQTT-3.2.2-6], [MQTT-3.2.2-7], [MQTT-3.1.4-2]; MQTT3.1.1 3.2.2.3."""
    session, _ = asking(Connect("c"))
    closed = session.refuse(code, "because")
    assert said(session) == [Connack(code, False, Properties(reason_string="because"))]
    assert (closed.initiator, closed.reason_code) == (Initiator.SERVER, code)
    assert not closed.accepted
    session, _ = asking(Connect("c", level=4))
    session.refuse(code)
    assert said(session) == ([] if return_code is None else [Connack(return_code)])


def test_a_client_can_be_sent_to_another_server():
    session, _ = asking(Connect("c"))
    session.refuse(ReasonCode.USE_ANOTHER_SERVER, server_reference="other:1883")
    [connack] = said(session)
    assert connack.reason_code == 0x9C
    assert connack.properties.server_reference == "other:1883"


@pytest.mark.parametrize(
    ("head", "answer"),
    [
        ("0004 4d515454 06", "20 03 00 84"),
        ("0004 4d515454 03", "20 02 00 01"),
        ("0006 4d5149736470 05", "20 02 00 01"),
        ("0004 4d515454 83", "20 02 00 01"),
        ("0004 4d515454 85", "20 03 00 84"),
        ("0006 4d5149736470 84", "20 02 00 01"),
    ],
)
def test_a_level_that_is_not_served_is_answered_in_a_format_it_may_know(head, answer):
    """[MQTT-3.1.2-2]."""
    body = bytes.fromhex(head) + bytes.fromhex("02 000a 0001 61")
    session = Session(SessionConfig(), NAMES, NOW_MS)
    [closed] = session.receive_data(b"\x10" + bytes((len(body),)) + body, NOW_MS)
    sent = session.data_to_send()
    assert closed.reason_code == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
    wanted = bytes.fromhex(answer)
    if wanted[1] == 2:
        assert sent == wanted
    else:
        [connack] = from_server(sent, 5)
        assert connack.reason_code == wanted[3]


@pytest.mark.parametrize(("head", "level"), [("0004 4d515454 84", 4), ("0006 4d5149736470 83", 3)])
def test_a_bridge_is_let_in_and_known_to_be_one(head, level):
    """Mosquitto's bridges mark the level of their CONNECT, and fall back with a pause otherwise."""
    body = bytes.fromhex(head) + bytes.fromhex("02 000a 0001 61")
    session = Session(SessionConfig(), NAMES, NOW_MS)
    [event] = session.receive_data(b"\x10" + bytes((len(body),)) + body, NOW_MS)
    assert (event.connect.level, event.connect.is_bridge) == (level, True)
    session.accept(Welcome(session_present=False), NOW_MS)
    assert session.data_to_send() == bytes.fromhex("20020000")
    filters = (FilterOptions("a/#", 1), FilterOptions("$share/g/a", 1))
    [asked] = session.receive_data(encode(Subscribe(7, filters), 4), NOW_MS)
    own, shared = asked.requests
    assert (own.no_local, own.retain_as_published) == (True, True)
    assert (shared.no_local, shared.retain_as_published) == (False, True)


def test_a_malformed_connect_is_answered_once_its_level_is_known():
    """[MQTT-3.1.4-1], [MQTT-4.13.1-1]."""
    five = bytes.fromhex("10 0d 0004 4d515454 05 03 000a 00 0000")
    session = Session(SessionConfig(), NAMES, NOW_MS)
    session.receive_data(five, NOW_MS)
    assert said(session)[0].reason_code == ReasonCode.MALFORMED_PACKET
    for silent in (
        bytes.fromhex("10 0c 0004 4d515454 04 03 000a 0000"),
        bytes.fromhex("10 0c 0004 6d717474 05 02 000a 0000"),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xc0\x00",
    ):
        session = Session(SessionConfig(), NAMES, NOW_MS)
        [closed] = session.receive_data(silent, NOW_MS)
        assert closed.initiator == Initiator.SERVER
        assert session.data_to_send() == b""


def test_a_second_connect_is_a_protocol_error():
    """[MQTT-3.1.0-2]."""
    session = connected(5)
    [closed] = session.receive_data(encode(Connect("c"), 5), NOW_MS)
    assert closed.reason_code == ReasonCode.PROTOCOL_ERROR
    [goodbye] = said(session)
    assert isinstance(goodbye, Disconnect)
    assert goodbye.reason_code == ReasonCode.PROTOCOL_ERROR


def test_packets_behind_connect_wait_for_the_decision():
    """[MQTT-3.1.4-6]; MQTT5 3.1.4 lets clients send them."""
    early = encode(Publish("t", b"1"), 5) + encode(Pingreq(), 5)
    session = Session(SessionConfig(), NAMES, NOW_MS)
    events = session.receive_data(encode(Connect("c"), 5) + early, NOW_MS)
    assert len(events) == 1
    assert session.receive_data(encode(Publish("t", b"2"), 5), NOW_MS) == []
    assert session.data_to_send() == b""
    events = session.accept(NEW, NOW_MS)
    assert [event.payloads for event in events] == [[b"1"], [b"2"]]
    answers = said(session)
    assert [type(answer) for answer in answers] == [Connack, Pingresp]


def test_packets_behind_connect_are_dropped_with_a_refusal():
    """[MQTT-3.1.4-6]."""
    session, _ = asking(Connect("c"))
    session.receive_data(encode(Publish("t", b"1"), 5), NOW_MS)
    session.refuse(ReasonCode.NOT_AUTHORIZED)
    assert session.receive_data(encode(Publish("t", b"2"), 5), NOW_MS) == []
    assert len(said(session)) == 1


def test_a_client_that_sends_too_much_before_connack_is_paused_then_closed():
    session, _ = asking(Connect("c"))
    assert not session.reading_paused
    session.receive_data(bytes(HELD_BYTES_PAUSE), NOW_MS)
    assert session.reading_paused
    [closed] = session.receive_data(bytes(HELD_BYTES_MAX), NOW_MS)
    assert closed.reason_code == ReasonCode.QUOTA_EXCEEDED
    assert said(session)[0].reason_code == ReasonCode.QUOTA_EXCEEDED


def test_the_larger_packets_begin_with_acceptance():
    config = SessionConfig(connect_bytes_max=100, maximum_packet_size=1000)
    session, _ = asking(Connect("c"), config)
    large = encode(Publish("t", bytes(500)), 5)
    session.receive_data(large, NOW_MS)
    [run] = session.accept(NEW, NOW_MS)
    assert isinstance(run, PublishRun)
    [closed] = session.receive_data(encode(Publish("t", bytes(1000)), 5), NOW_MS)
    assert closed.reason_code == ReasonCode.PACKET_TOO_LARGE


def test_decisions_come_when_there_is_something_to_decide():
    """[MQTT-3.2.0-2]: never a second CONNACK."""
    session = Session(SessionConfig(), NAMES, NOW_MS)
    with pytest.raises(LocalProtocolError):
        session.accept(NEW, NOW_MS)
    with pytest.raises(LocalProtocolError):
        session.refuse(ReasonCode.NOT_AUTHORIZED)
    session = connected(5)
    with pytest.raises(LocalProtocolError):
        session.accept(NEW, NOW_MS)


def test_the_fields_of_connect_are_read_in_their_order():
    """[MQTT-3.1.3-1], [MQTT-3.1.2-18]: what no flag announces is not there."""
    data = bytes.fromhex(
        "10 20 0004 4d515454 05 ae 003c 00 0002 6964 05 1800000007 0001 74 0003 627965 0001 75"
    )
    session = Session(SessionConfig(), NAMES, NOW_MS)
    [event] = session.receive_data(data, NOW_MS)
    will = Will("t", b"bye", 1, True, Properties(will_delay_interval=7))
    assert event.connect == Connect("id", 5, True, 60, "u", None, will)


def test_a_decision_about_a_client_that_is_gone_does_nothing():
    session, _ = asking(Connect("c"))
    session.connection_lost()
    assert session.accept(NEW, NOW_MS) == []
    assert session.refuse(ReasonCode.NOT_AUTHORIZED) is None
    assert session.data_to_send() == b""


@pytest.mark.parametrize(
    "setting",
    [
        {"receive_maximum": 0},
        {"maximum_qos": 3},
        {"keep_alive_s_min": 100, "keep_alive_s_max": 50},
        {"client_id_bytes_max": 22},
        {"topic_alias_maximum": 65_536},
    ],
)
def test_settings_that_cannot_be_meant_are_refused(setting):
    with pytest.raises(ValueError, match="is"):
        SessionConfig(**setting)
