"""Control packets that break a rule, and what each is answered with."""

from __future__ import annotations

import pytest

from adapters.mqtt.codec.control import UnsupportedLevelError
from adapters.mqtt.codec.decoder import Decoder
from adapters.mqtt.codec.encoder import encode
from adapters.mqtt.codec.errors import LocalProtocolError, MqttError
from adapters.mqtt.codec.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    FilterOptions,
    Publish,
    Suback,
    Subscribe,
    Unsubscribe,
    Will,
)
from adapters.mqtt.codec.properties import PROPERTIES, WILL, Properties
from adapters.mqtt.codec.reason_codes import ALLOWED, ReasonCode, carried_by, v3_return_code
from tests.adapters.mqtt.support import NAMES, client_decoder, server_decoder

MALFORMED = ReasonCode.MALFORMED_PACKET
PROTOCOL_ERROR = ReasonCode.PROTOCOL_ERROR


def packet(text: str) -> bytes:
    raw = bytes.fromhex(text)
    return raw[:1] + bytes((len(raw) - 1,)) + raw[1:]


def refused(decoder: Decoder, data: bytes) -> MqttError:
    with pytest.raises(MqttError) as caught:
        decoder.receive(data, [])
    return caught.value


CONNECT_REFUSED = [
    ("10 0004 4d515454 04 03 000a 0000", "reserved flag [MQTT-3.1.2-3]"),
    ("10 0004 4d515454 04 1c 000a 0001 61 0001 62 0000", "will QoS 3 [MQTT-3.1.2-12]"),
    ("10 0004 4d515454 04 0a 000a 0001 61", "will QoS without will [MQTT-3.1.2-11]"),
    ("10 0004 4d515454 04 22 000a 0001 61", "will retain without will [MQTT-3.1.2-13]"),
    ("10 0004 4d515454 04 06 000a 0001 61", "no will fields [MQTT-3.1.2-9]"),
    ("10 0004 4d515454 04 06 000a 0001 61 0000 0000", "empty will topic"),
    ("10 0004 4d515454 04 06 000a 0001 61 0002 612b 0000", "wildcard in the will topic"),
    ("10 0004 4d515454 04 06 000a 0001 61 0001 ff 0000", "will topic [MQTT-3.1.3-11]"),
    ("10 0004 4d515454 04 42 000a 0001 61 0001 62", "password alone [MQTT-3.1.2-22] of 3.1.1"),
    ("10 0004 4d515454 04 82 000a 0001 61", "no user name [MQTT-3.1.2-17]"),
    ("10 0004 4d515454 04 c2 000a 0001 61 0001 75", "no password [MQTT-3.1.2-19]"),
    ("10 0004 4d515454 04 82 000a 0001 61 0001 ff", "user name [MQTT-3.1.3-12]"),
    ("10 0004 4d515454 04 02 000a 0001 ff", "client id not UTF-8 [MQTT-3.1.3-4]"),
    ("10 0004 4d515454 04 02 000a", "no client id [MQTT-3.1.3-3]"),
    ("10 0004 4d515454 04 02 000a 0001 61 00", "user name without its flag [MQTT-3.1.2-16]"),
    ("10 0004 4d515454 04 02 00", "half a keep alive"),
    ("10 0004 4d515454 04", "no flags"),
    ("10 0004 4d515454", "no level"),
    ("10 0004 4d51", "half a name"),
    ("10 0004 6d717474 04 02 000a 0001 61", "another name [MQTT-3.1.2-1]"),
    ("10 0004 4d515454 05 02 000a 0001 61", "no property length [MQTT-2.2.2-1]"),
    ("10 0004 4d515454 05 02 000a 02 0101 0001 61", "a property of messages"),
    ("10 0004 4d515454 05 06 000a 00 0001 61 02 1101 0001 62 0000", "no property of wills"),
]


@pytest.mark.parametrize(("text", "why"), CONNECT_REFUSED, ids=lambda value: str(value)[-40:])
def test_a_connect_that_breaks_the_format_is_malformed(text, why):
    """[MQTT-3.1.4-1]."""
    error = refused(Decoder(NAMES), packet(text))
    assert error.reason_code == MALFORMED, why
    assert error.v3_return_code is None


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ("03 210000", "receive maximum 0"),
        ("05 2700000000", "maximum packet size 0"),
        ("0a 1100000001 1100000001", "session expiry twice"),
        ("02 1702", "request problem information 2"),
        ("02 1902", "request response information 2"),
        ("03 160000", "authentication data without a method"),
    ],
)
def test_a_connect_property_that_breaks_its_rule_is_a_protocol_error(properties, why):
    data = packet(f"10 0004 4d515454 05 02 000a {properties} 0001 61")
    assert refused(Decoder(NAMES), data).reason_code == PROTOCOL_ERROR, why


@pytest.mark.parametrize(
    ("name", "level", "answer_level"),
    [
        ("0004 4d515454", 6, 5),
        ("0004 4d515454", 255, 5),
        ("0004 4d515454", 3, 4),
        ("0004 4d515454", 0, 4),
        ("0006 4d5149736470", 4, 4),
        ("0006 4d5149736470", 2, 4),
    ],
)
def test_a_level_that_is_not_served_says_in_which_format_to_answer(name, level, answer_level):
    """[MQTT-3.1.2-2]."""
    error = refused(Decoder(NAMES), packet(f"10 {name} {level:02x} 02 000a 0001 61"))
    assert isinstance(error, UnsupportedLevelError)
    assert error.reason_code == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
    assert error.v3_return_code == 1
    assert error.answer_level == answer_level


def test_mqtt_3_1_is_read_like_3_1_1_with_long_identifiers_too():
    long_id = "a-client-identifier-of-more-than-23-bytes"
    sent = Connect(long_id, level=3, username="u", password=b"p", will=Will("t", b"gone", 1))
    received: list = []
    decoder = Decoder(NAMES)
    decoder.receive(encode(sent, 3), received)
    assert received == [sent]
    assert decoder.level == 3


SUBSCRIBE_REFUSED = [
    (4, "82 0001", PROTOCOL_ERROR, "no filter [MQTT-3.8.3-2]"),
    (5, "82 0001 00", PROTOCOL_ERROR, "no filter [MQTT-3.8.3-2]"),
    (4, "82 0000 0001 61 00", PROTOCOL_ERROR, "packet identifier 0 [MQTT-2.2.1-3]"),
    (4, "82 00", MALFORMED, "half a packet identifier"),
    (4, "82 0001 0001 61", MALFORMED, "no options"),
    (4, "82 0001 0001 ff 00", MALFORMED, "not UTF-8 [MQTT-3.8.3-1]"),
    (4, "82 0001 0001 61 03", MALFORMED, "QoS 3"),
    (5, "82 0001 00 0001 61 03", MALFORMED, "QoS 3"),
    (4, "82 0001 0001 61 04", MALFORMED, "reserved bits [MQTT-3-8.3-4] of 3.1.1"),
    (4, "82 0001 0001 61 10", MALFORMED, "reserved bits [MQTT-3-8.3-4] of 3.1.1"),
    (5, "82 0001 00 0001 61 40", MALFORMED, "reserved bits [MQTT-3.8.3-5]"),
    (5, "82 0001 00 0001 61 80", MALFORMED, "reserved bits [MQTT-3.8.3-5]"),
    (5, "82 0001 00 0001 61 30", PROTOCOL_ERROR, "retain handling 3"),
    (5, "82 0001 02 0b00 0001 61 00", PROTOCOL_ERROR, "subscription identifier 0"),
    (5, "82 0001 04 0b01 0b02 0001 61 00", PROTOCOL_ERROR, "two subscription identifiers"),
    (5, "82 0001 02 0101 0001 61 00", MALFORMED, "a property of messages"),
    (4, "a2 0001", PROTOCOL_ERROR, "UNSUBSCRIBE without filter [MQTT-3.10.3-2]"),
    (5, "a2 0001 00", PROTOCOL_ERROR, "UNSUBSCRIBE without filter [MQTT-3.10.3-2]"),
    (4, "a2 0000 0001 61", PROTOCOL_ERROR, "packet identifier 0 [MQTT-2.2.1-3]"),
    (4, "a2 0001 0001 ff", MALFORMED, "not UTF-8 [MQTT-3.10.3-1]"),
    (5, "a2 0001 02 0b01 0001 61", MALFORMED, "a property of SUBSCRIBE"),
    (4, "c0 00", MALFORMED, "PINGREQ with a body"),
    (4, "e0 00", MALFORMED, "a 3.1.1 DISCONNECT with a body"),
    (5, "e0 10", PROTOCOL_ERROR, "a code of PUBACK [MQTT-3.14.2-1]"),
    (5, "e0 00 02 2101", MALFORMED, "a property of CONNECT"),
    (5, "e0 00 00 00", MALFORMED, "bytes left over"),
    (4, "f0", MALFORMED, "AUTH before MQTT 5"),
    (5, "f0 01", PROTOCOL_ERROR, "not a code of AUTH [MQTT-3.15.2-1]"),
    (5, "f0 00", MALFORMED, "AUTH with a code and no properties"),
    (5, "f0 18 00", PROTOCOL_ERROR, "AUTH without a method"),
]


@pytest.mark.parametrize(
    ("level", "text", "code", "why"), SUBSCRIBE_REFUSED, ids=lambda value: str(value)[-40:]
)
def test_a_clients_control_packet_that_breaks_a_rule_is_refused(level, text, code, why):
    assert refused(server_decoder(level), packet(text)).reason_code == code, why


SERVER_REFUSED = [
    (4, "20 02 00", MALFORMED, "reserved flag [MQTT-3.2.2-1]"),
    (4, "20 00 06", PROTOCOL_ERROR, "no such return code"),
    (4, "20 01 05", PROTOCOL_ERROR, "a refusal with a session [MQTT-3.2.2-6]"),
    (5, "20 00 93 00", PROTOCOL_ERROR, "not a code of CONNACK [MQTT-3.2.2-8]"),
    (5, "20 00 00 02 2402", PROTOCOL_ERROR, "maximum QoS 2"),
    (4, "90 0001", PROTOCOL_ERROR, "SUBACK without a code"),
    (4, "90 0001 03", PROTOCOL_ERROR, "no such return code [MQTT-3.9.3-2] of 3.1.1"),
    (5, "90 0001 00 11", PROTOCOL_ERROR, "not a code of SUBACK [MQTT-3.9.3-2]"),
    (4, "b0 0001 00", MALFORMED, "a 3.1.1 UNSUBACK with a code"),
    (5, "b0 0001 00", PROTOCOL_ERROR, "UNSUBACK without a code"),
    (5, "b0 0001 00 02", PROTOCOL_ERROR, "not a code of UNSUBACK [MQTT-3.11.3-2]"),
    (4, "d0 00", MALFORMED, "PINGRESP with a body"),
]


@pytest.mark.parametrize(
    ("level", "text", "code", "why"), SERVER_REFUSED, ids=lambda value: str(value)[-40:]
)
def test_a_servers_control_packet_that_breaks_a_rule_is_refused(level, text, code, why):
    assert refused(client_decoder(level), packet(text)).reason_code == code, why


def test_the_property_table_is_whole():
    """MQTT5 table 2-4: 27 properties, and a field for each."""
    assert len(PROPERTIES) == 27
    assert {row.field for row in PROPERTIES} == set(Properties.__struct_fields__)
    assert len({row.identifier for row in PROPERTIES}) == 27
    assert sum(WILL in row.owners for row in PROPERTIES) == 7


def test_every_property_is_refused_where_it_does_not_belong():
    """MQTT5 2.2.2.2: malformed. Shown with UNSUBSCRIBE, which may carry user properties only."""
    for row in PROPERTIES:
        data = bytes((0xA2, 7, 0, 1, 1, row.identifier, 0, 1, 0x61))
        assert refused(server_decoder(5), data).reason_code == MALFORMED, row.field


@pytest.mark.parametrize(
    "impossible",
    [
        Connack(0, False, Properties(topic_alias=1)),
        Connack(0, False, Properties(maximum_qos=2)),
        Connack(0, False, Properties(receive_maximum=65_536)),
        Connack(0, False, Properties(maximum_packet_size=2**32)),
        Connect("c", keep_alive_s=65_536),
        Subscribe(1, ()),
        Unsubscribe(1, ()),
        Subscribe(0, ()),
        Disconnect(0, Properties(server_keep_alive=1)),
        Publish("t", b"", properties=Properties(content_type="\0")),
        Connect("c", properties=Properties(user_properties=(("x" * 65_536, ""),))),
    ],
)
def test_a_packet_that_cannot_be_expressed_is_our_bug(impossible):
    with pytest.raises(LocalProtocolError):
        encode(impossible, 5)


def test_what_only_mqtt_5_has_cannot_be_said_before_it():
    with pytest.raises(LocalProtocolError):
        encode(Auth(0), 4)
    with pytest.raises(LocalProtocolError):
        encode(Connect("c", level=4, password=b"p"), 4)
    two = Properties(subscription_identifiers=(1, 2))
    with pytest.raises(LocalProtocolError):
        encode(Subscribe(1, (FilterOptions("a"),), two), 5)


def test_a_failure_that_a_packet_has_no_code_for_becomes_the_nearest():
    """[MQTT-3.2.2-8], [MQTT-3.14.2-1] and the like."""
    for packet_type, allowed in ALLOWED.items():
        for code in ReasonCode:
            carried = carried_by(packet_type, code)
            if code in allowed:
                assert carried == code
            elif 0x80 in allowed:
                assert carried in allowed
                assert carried >= 0x80


def test_a_3_1_1_client_hears_one_of_five_refusals_or_none():
    """MQTT3.1.1 table 3.1."""
    heard = {v3_return_code(code) for code in ReasonCode if code >= 0x80}
    assert heard == {1, 2, 3, 4, 5, None}
    assert v3_return_code(ReasonCode.BAD_USER_NAME_OR_PASSWORD) == 4
    assert v3_return_code(ReasonCode.NOT_AUTHORIZED) == 5
    assert v3_return_code(MALFORMED) is None


def test_a_3_1_1_suback_says_0x80_for_every_failure():
    data = encode(Suback(1, (1, 0x8F, 0x97, 0)), 4)
    assert data == bytes.fromhex("90 06 0001 01 80 80 00")
