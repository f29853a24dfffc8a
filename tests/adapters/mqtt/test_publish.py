"""PUBLISH and acknowledgements on the wire."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from adapters.mqtt.codec.encoder import encode, marked_duplicate, publish_frame
from adapters.mqtt.codec.errors import LocalProtocolError, MqttError
from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.packets import Ack, Publish
from adapters.mqtt.codec.properties import (
    Properties,
    encode_properties,
    hop_properties,
    message_block,
    parse_publish_properties,
    read_publish_block,
)
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.codec.topic_names import TopicNames
from adapters.mqtt.limits import TOPIC_NAMES_REMEMBERED_MAX
from tests.adapters.mqtt.support import LEVELS, client_decoder, decoded, from_server, server_decoder

MALFORMED = ReasonCode.MALFORMED_PACKET
PROTOCOL_ERROR = ReasonCode.PROTOCOL_ERROR

# Body of a PUBLISH by first byte, and the code it is refused with.
V3_REFUSED = [
    ("32 0003 746f70 0000 78", PROTOCOL_ERROR, "packet identifier 0 [MQTT-2.2.1-3]"),
    ("34 0003 746f70 0000 78", PROTOCOL_ERROR, "packet identifier 0 [MQTT-2.2.1-3]"),
    ("32 0003 746f70", MALFORMED, "no packet identifier [MQTT-2.2.1-2]"),
    ("32 0003 746f70 01", MALFORMED, "half a packet identifier"),
    ("30 0009 746f70", MALFORMED, "topic longer than the packet"),
    ("30 00", MALFORMED, "half a topic length"),
    ("30", MALFORMED, "no topic [MQTT-3.3.2-1]"),
    ("30 0000 7878", PROTOCOL_ERROR, "empty topic [MQTT-4.7.3-1]"),
    ("30 0003 2b6f70", MALFORMED, "wildcard + [MQTT-3.3.2-2]"),
    ("30 0003 746f23", MALFORMED, "wildcard # [MQTT-3.3.2-2], [MQTT-4.7.0-1]"),
    ("30 0003 740070", MALFORMED, "U+0000 [MQTT-4.7.3-2]"),
    ("30 0003 eda080", MALFORMED, "surrogate [MQTT-1.5.4-1]"),
]
V5_REFUSED = [
    ("30 0003 746f70", MALFORMED, "no property length [MQTT-2.2.2-1]"),
    ("30 0003 746f70 02 01", MALFORMED, "properties longer than the packet"),
    ("30 0003 746f70 8000", MALFORMED, "property length not shortest [MQTT-1.5.5-1]"),
    ("30 0003 746f70 02 01 02 78", PROTOCOL_ERROR, "payload format 2"),
    ("30 0003 746f70 04 0101 0101 78", PROTOCOL_ERROR, "payload format twice"),
    ("30 0003 746f70 02 0200 78", MALFORMED, "expiry interval cut off"),
    ("30 0003 746f70 0a 0200000001 0200000001", PROTOCOL_ERROR, "expiry interval twice"),
    ("30 0003 746f70 03 23 0000", ReasonCode.TOPIC_ALIAS_INVALID, "alias 0 [MQTT-3.3.2-8]"),
    ("30 0003 746f70 06 23 0001 23 0001", PROTOCOL_ERROR, "topic alias twice"),
    ("30 0000 00 78", PROTOCOL_ERROR, "neither topic nor alias"),
    ("30 0000 02 0101 78", PROTOCOL_ERROR, "neither topic nor alias, but properties"),
    ("30 0003 746f70 02 0b01", PROTOCOL_ERROR, "subscription identifier [MQTT-3.3.4-6]"),
    ("30 0003 746f70 02 0b00", PROTOCOL_ERROR, "subscription identifier 0"),
    ("30 0003 746f70 04 08 0001 2b", PROTOCOL_ERROR, "response topic + [MQTT-3.3.2-14]"),
    ("30 0003 746f70 03 08 0000", PROTOCOL_ERROR, "response topic empty"),
    ("30 0003 746f70 05 08 0002 c080", MALFORMED, "response topic [MQTT-3.3.2-13]"),
    ("30 0003 746f70 04 03 0001 80", MALFORMED, "content type [MQTT-3.3.2-19]"),
    ("30 0003 746f70 07 26 0001 61 0001 00", MALFORMED, "user property [MQTT-1.5.7-1]"),
    ("30 0003 746f70 04 26 0001 61", MALFORMED, "user property without value"),
    ("30 0003 746f70 05 1100000001", MALFORMED, "session expiry does not belong here"),
    ("30 0003 746f70 02 7f01", MALFORMED, "unknown property"),
    ("30 0003 746f70 02 8001", MALFORMED, "unknown property of two bytes"),
]


def packet(text: str) -> bytes:
    first, _, body = text.replace(" ", "").partition(" ")
    raw = bytes.fromhex(first + body)
    return raw[:1] + bytes((len(raw) - 1,)) + raw[1:]


@pytest.mark.parametrize(("text", "code", "why"), V3_REFUSED, ids=lambda value: str(value)[:50])
def test_a_publish_that_breaks_a_rule_of_3_1_1_is_refused(text, code, why):
    with pytest.raises(MqttError) as caught:
        server_decoder(4).receive(packet(text), [])
    assert caught.value.reason_code == code, why


@pytest.mark.parametrize(("text", "code", "why"), V5_REFUSED, ids=lambda value: str(value)[:50])
def test_a_publish_that_breaks_a_rule_of_5_is_refused(text, code, why):
    with pytest.raises(MqttError) as caught:
        server_decoder(5).receive(packet(text), [])
    assert caught.value.reason_code == code, why


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 16_383, 16_384, 70_000])
def test_payloads_of_every_length_class_are_carried(level, size):
    sent = Publish("t", bytes(size), qos=1, packet_id=65_535)
    assert decoded(server_decoder(level), encode(sent, level)) == [sent]


def test_a_topic_of_the_greatest_length_is_carried_and_not_remembered():
    """[MQTT-4.7.3-3]."""
    sent = Publish("t" * 65_535, b"x")
    assert decoded(server_decoder(4), encode(sent, 4)) == [sent]


def test_a_name_with_too_many_levels_is_well_formed_but_not_accepted():
    names = TopicNames(levels_max=3)
    assert names[b"a/b/c"] == "a/b/c"
    with pytest.raises(MqttError) as caught:
        names[b"a/b/c/d"]
    assert caught.value.reason_code == ReasonCode.TOPIC_NAME_INVALID


def test_remembered_names_are_bounded_and_the_same_object_again():
    names = TopicNames()
    first = names[b"sensor/1"]
    assert names[b"sensor/1"] is first
    for number in range(TOPIC_NAMES_REMEMBERED_MAX + 10):
        names[b"n/%d" % number]
    assert len(names) <= TOPIC_NAMES_REMEMBERED_MAX + 1
    long_name = b"x" * 1000
    assert names[long_name] == "x" * 1000
    assert long_name not in names
    assert names[b""] == ""


def test_the_messages_own_properties_stay_as_they_came_and_the_hops_are_taken_out():
    """[MQTT-3.3.2-4], [MQTT-3.3.2-15] to [MQTT-3.3.2-18], [MQTT-3.3.2-20]."""
    own = Properties(
        payload_format_indicator=1,
        content_type="text/plain",
        response_topic="answers/7",
        correlation_data=b"\x00\xff",
        user_properties=(("b", "2"), ("a", "1"), ("b", "2")),
    )
    raw = encode_properties(own, PacketType.PUBLISH)[1:]
    # The hop's properties stand before, within and after the message's own.
    cut = len(raw) - 14
    mixed = b"\x23\x00\x05" + raw[:cut] + b"\x02\x00\x00\x00\x3c" + raw[cut:] + b"\x0b\x07\x0b\x08"
    block = read_publish_block(mixed, 0, len(mixed))
    assert block.application == raw
    assert block.topic_alias == 5
    assert block.message_expiry_interval == 60
    assert block.subscription_identifiers == (7, 8)
    assert parse_publish_properties(block.application) == own


def test_the_messages_own_part_of_a_will_reads_as_that_of_a_publish():
    """[MQTT-3.3.2-18]: a will's user properties keep their order too."""
    own = Properties(content_type="t", user_properties=(("b", "2"), ("a", "1")))
    will = replace(own, will_delay_interval=5, message_expiry_interval=9)
    assert message_block(will) == encode_properties(own, PacketType.PUBLISH)[1:]
    assert parse_publish_properties(message_block(will)) == own
    assert message_block(Properties()) == b""


def test_properties_larger_than_the_kernel_stores_are_refused():
    large = Properties(user_properties=(("k" * 60_000, "v" * 60_000),) * 3)
    with pytest.raises(MqttError) as caught:
        server_decoder(5).receive(encode(Publish("t", b"", properties=large), 5), [])
    assert caught.value.reason_code == ReasonCode.PACKET_TOO_LARGE


def test_hop_properties_stand_before_the_messages_own():
    own = encode_properties(Properties(content_type="t"), PacketType.PUBLISH)[1:]
    hop = hop_properties(9, (3, 200), 2)
    frame = publish_frame(5, 1 << 1, b"a", hop + own, b"x")
    [received] = from_server(frame[0] + b"\x00\x01" + frame[1], 5)
    assert received.properties == Properties(
        content_type="t",
        message_expiry_interval=9,
        subscription_identifiers=(3, 200),
        topic_alias=2,
    )
    assert hop_properties() == b""
    # An interval of 0 is an interval.
    assert hop_properties(0) == b"\x02\x00\x00\x00\x00"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [0, 90, 127, 128, 3_000, 16_383, 20_000, 2_200_000])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_frame_with_its_identifier_is_the_packet(level, size, qos):
    """[MQTT-2.2.1-2]: no identifier at QoS 0."""
    payload = bytes(size)
    head, tail = publish_frame(level, qos << 1 | 1, b"a/b", b"", payload)
    wire = head + (b"\x12\x34" if qos else b"") + tail
    packet_id = 0x1234 if qos else 0
    expected = Publish("a/b", payload, qos=qos, retain=True, packet_id=packet_id)
    assert wire == encode(expected, level)


def test_a_frame_takes_nothing_but_qos_and_retain_from_the_publishers_flags():
    """[MQTT-3.3.1-3]."""
    assert publish_frame(5, 0x3B, b"t", b"", b"") == publish_frame(5, 3, b"t", b"", b"")
    assert publish_frame(5, 0x3B, b"t", b"", b"")[0][0] == 0x33


def test_a_frame_marked_as_duplicate_differs_in_that_bit_only():
    """[MQTT-3.3.1-1]."""
    frame = publish_frame(4, 2 << 1, b"a", b"", b"x")
    head, tail = marked_duplicate(frame)
    assert head[0] == frame[0][0] | 0x08
    assert (head[1:], tail) == (frame[0][1:], frame[1])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("first", ["40", "50", "62", "70"])
def test_acknowledgements_need_an_identifier_that_is_not_0(first, level):
    for body, code in (("", MALFORMED), ("01", MALFORMED), ("0000", PROTOCOL_ERROR)):
        with pytest.raises(MqttError) as caught:
            server_decoder(level).receive(packet(first + body), [])
        assert caught.value.reason_code == code


@pytest.mark.parametrize("first", ["40", "50", "62", "70"])
def test_a_3_1_1_acknowledgement_is_its_identifier_and_nothing_more(first):
    with pytest.raises(MqttError) as caught:
        server_decoder(4).receive(packet(first + "0001 00"), [])
    assert caught.value.reason_code == MALFORMED


@pytest.mark.parametrize(
    ("first", "wrong"), [("40", "92"), ("50", "01"), ("62", "10"), ("70", "80"), ("40", "ff")]
)
def test_a_reason_code_from_outside_its_table_is_a_protocol_error(first, wrong):
    """[MQTT-3.4.2-1], [MQTT-3.5.2-1], [MQTT-3.6.2-1], [MQTT-3.7.2-1]."""
    with pytest.raises(MqttError) as caught:
        server_decoder(5).receive(packet(first + "0001" + wrong), [])
    assert caught.value.reason_code == PROTOCOL_ERROR


@pytest.mark.parametrize("packet_type", ["PUBACK", "PUBREC", "PUBREL", "PUBCOMP"])
def test_an_acknowledgement_may_leave_out_its_code_and_its_properties(packet_type):
    kind = PacketType[packet_type]
    first = encode(Ack(kind, 1), 5)[:1].hex()
    explained = Properties(reason_string="so it is", user_properties=(("k", "v"),))
    failed = 0x92 if kind in (PacketType.PUBREL, PacketType.PUBCOMP) else 0x87
    long = encode(Ack(kind, 4, failed, explained), 5)
    data = packet(first + "0001") + packet(first + "0002 00") + packet(first + "0003 00 00") + long
    assert decoded(server_decoder(5), data) == [
        (kind, 1, 0, None),
        (kind, 2, 0, None),
        (kind, 3, 0, None),
        (kind, 4, failed, explained),
    ]


def test_an_acknowledgement_carries_only_what_may_explain_it():
    with pytest.raises(MqttError) as caught:
        server_decoder(5).receive(packet("40 0001 00 02 0101"), [])
    assert caught.value.reason_code == MALFORMED


def test_a_client_reads_subscription_identifiers():
    sent = Publish("t", b"", properties=Properties(subscription_identifiers=(1, 268_435_455)))
    assert decoded(client_decoder(5), encode(sent, 5)) == [sent]


@pytest.mark.parametrize(
    "impossible",
    [
        Publish("t", b"", qos=3, packet_id=1),
        Publish("t", b"", qos=1),
        Publish("t", b"", qos=1, packet_id=65_536),
        Publish("t", b"", dup=True),
        Publish("t", b"", properties=Properties(reason_string="no")),
    ],
)
def test_a_publish_that_cannot_be_is_our_bug(impossible):
    with pytest.raises(LocalProtocolError):
        encode(impossible, 5)
