"""The fixed header and the loop: flags, sizes, directions, runs, and chunks cut anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.mqtt.codec.decoder import Decoder
from adapters.mqtt.codec.encoder import encode
from adapters.mqtt.codec.errors import MqttError
from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.packets import (
    Ack,
    AckRun,
    Auth,
    Connect,
    FilterOptions,
    Pingreq,
    Publish,
    PublishRun,
    Subscribe,
)
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.codec.reason_codes import ReasonCode
from tests.adapters.mqtt.support import (
    LEVELS,
    NAMES,
    client_decoder,
    decoded,
    server_decoder,
    single,
)

MALFORMED = ReasonCode.MALFORMED_PACKET
PROTOCOL_ERROR = ReasonCode.PROTOCOL_ERROR


def refused(decoder: Decoder, data: bytes) -> ReasonCode:
    with pytest.raises(MqttError) as caught:
        decoder.receive(data, [])
    return caught.value.reason_code


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "first",
    [
        *(0x40 | flags for flags in range(1, 16)),
        *(0x50 | flags for flags in range(1, 16)),
        *(0x60 | flags for flags in range(16) if flags != 2),
        *(0x70 | flags for flags in range(1, 16)),
        *(0x80 | flags for flags in range(16) if flags != 2),
        *(0xA0 | flags for flags in range(16) if flags != 2),
        *(0xC0 | flags for flags in range(1, 16)),
        *(0xE0 | flags for flags in range(1, 16)),
        *(0xF0 | flags for flags in range(1, 16)),
        *range(16),
    ],
)
def test_reserved_flags_must_be_what_the_table_says(first, level):
    """[MQTT-2.1.3-1], [MQTT-3.6.1-1], [MQTT-3.8.1-1], [MQTT-3.10.1-1], [MQTT-3.14.1-1],
    [MQTT-3.15.1-1]; [MQTT-2.2.2-2] of 3.1.1. The rest of the packet is not waited for."""
    assert refused(server_decoder(level), bytes((first,))) == MALFORMED


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("first", [0x36, 0x37, 0x3E, 0x3F])
def test_qos_3_is_malformed(first, level):
    """[MQTT-3.3.1-4]."""
    assert refused(server_decoder(level), bytes((first,))) == MALFORMED


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("first", [0x38, 0x39])
def test_dup_at_qos_0_is_malformed(first, level):
    """[MQTT-3.3.1-2]."""
    assert refused(server_decoder(level), bytes((first,))) == MALFORMED


@pytest.mark.parametrize("first", [0x20, 0x90, 0xB0, 0xD0])
def test_a_packet_that_only_servers_send_is_refused_by_a_server(first):
    assert refused(server_decoder(5), bytes((first,))) == PROTOCOL_ERROR


@pytest.mark.parametrize("first", [0x10, 0x82, 0xA2, 0xC0])
def test_a_packet_that_only_clients_send_is_refused_by_a_client(first):
    assert refused(client_decoder(5), bytes((first,))) == PROTOCOL_ERROR


@pytest.mark.parametrize("first", [0x30, 0x32, 0x40, 0x82, 0xC0, 0xE0, 0xF0])
def test_the_first_packet_must_be_connect(first):
    """[MQTT-3.1.0-1]."""
    assert refused(Decoder(NAMES), bytes((first,))) == PROTOCOL_ERROR


def test_another_protocol_is_recognised_by_its_first_byte():
    assert refused(Decoder(NAMES), b"GET / HTTP/1.1\r\n") == MALFORMED
    assert refused(Decoder(NAMES), b"\x16\x03\x01\x02\x00") == MALFORMED


@pytest.mark.parametrize("size", ["8000", "ffff00", "80808000", "ffffffff7f", "8080808001"])
def test_a_remaining_length_that_is_not_shortest_or_too_long_is_malformed(size):
    """[MQTT-1.5.5-1]."""
    for first in (b"\x30", b"\xc0", b"\xe0"):
        assert refused(server_decoder(5), first + bytes.fromhex(size)) == MALFORMED


@pytest.mark.parametrize("level", LEVELS)
def test_a_packet_of_just_the_maximum_size_is_allowed_and_one_byte_more_is_not(level):
    """[MQTT-3.2.2-15]; 0x95 as soon as the header is here, whatever of the body is."""
    data = encode(Publish("t", b"x" * 300), level)
    assert len(decoded(server_decoder(level, len(data)), data)) == 1
    decoder = server_decoder(level, len(data))
    assert decoded(decoder, data[:5]) == []
    assert len(decoded(decoder, data[5:])) == 1
    for known in (3, 100, len(data)):
        decoder = server_decoder(level, len(data) - 1)
        assert refused(decoder, data[:known]) == ReasonCode.PACKET_TOO_LARGE
        assert decoder.buffered_bytes == 0


def test_a_connect_may_not_be_larger_than_the_bound_before_acceptance():
    decoder = Decoder(NAMES, maximum_packet_size=100)
    packet = Connect("c" * 100)
    assert refused(decoder, encode(packet, 5)) == ReasonCode.PACKET_TOO_LARGE


@pytest.mark.parametrize("level", LEVELS)
def test_what_came_before_a_malformed_packet_is_delivered(level):
    packets: list = []
    data = encode(Publish("t", b"1"), level) + b"\x00\x00"
    with pytest.raises(MqttError):
        server_decoder(level).receive(data, packets)
    assert [packet.payload for packet in single(packets)] == [b"1"]


def test_publishes_become_one_run_and_pubacks_between_them_do_not_part_it():
    messages = [encode(Publish("t", bytes([n]), qos=1, packet_id=n), 4) for n in (1, 2, 3)]
    ack = encode(Ack(PacketType.PUBACK, 9), 4)
    packets: list = []
    server_decoder(4).receive(messages[0] + ack + messages[1] + ack + messages[2], packets)
    assert [type(packet) for packet in packets] == [PublishRun, AckRun]
    assert packets[0].packet_ids == [1, 2, 3]
    assert packets[1].packet_ids == [9, 9]


def test_every_other_packet_keeps_its_place_among_the_publishes():
    one = encode(Publish("t", b"1", qos=2, packet_id=1), 4)
    two = encode(Publish("t", b"2", qos=2, packet_id=1), 4)
    release = encode(Ack(PacketType.PUBREL, 1), 4)
    ask = encode(Subscribe(7, (FilterOptions("t"),)), 4)
    packets: list = []
    server_decoder(4).receive(one + release + two + release + ask + one, packets)
    assert [packet.type for packet in packets] == [
        PacketType.PUBLISH,
        PacketType.PUBREL,
        PacketType.PUBLISH,
        PacketType.PUBREL,
        PacketType.SUBSCRIBE,
        PacketType.PUBLISH,
    ]


def test_decoding_stops_behind_connect_until_asked_again():
    """[MQTT-3.1.4-6]: what follows is not looked at before the decision."""
    decoder = Decoder(NAMES)
    packets: list = []
    decoder.receive(encode(Connect("c", level=4), 4) + b"\xc0\x00" * 3, packets)
    assert len(packets) == 1
    assert decoder.buffered_bytes == 6
    decoder.hold(b"\xc0\x00")
    decoder.receive(b"", packets)
    assert packets[1:] == [Pingreq()] * 4
    assert decoder.buffered_bytes == 0


def test_decoding_stops_behind_auth():
    decoder = server_decoder(5)
    packets: list = []
    auth = Auth(0x19, Properties(authentication_method="m"))
    decoder.receive(encode(auth, 5) + b"\xc0\x00", packets)
    assert packets == [auth]
    decoder.receive(b"", packets)
    assert packets == [auth, Pingreq()]


def stream(level: int) -> bytes:
    """A little of everything that a client sends."""
    own = Properties(user_properties=(("k", "v"),), message_expiry_interval=5)
    properties = own if level == 5 else Properties()
    return b"".join(
        encode(packet, level)
        for packet in (
            Publish("a/b", b"x" * 200, qos=1, packet_id=1, properties=properties),
            Publish("a/b", b"y" * 3, qos=0, retain=True),
            Ack(PacketType.PUBACK, 77),
            Ack(PacketType.PUBREC, 78),
            Publish("a/b/ü", b"", qos=2, packet_id=2, dup=True),
            Ack(PacketType.PUBREL, 2),
            Subscribe(3, (FilterOptions("a/+", 1), FilterOptions("#", 0))),
            Pingreq(),
        )
    )


@pytest.mark.parametrize("level", LEVELS)
@given(cuts=st.lists(st.integers(0, 330), max_size=12))
@settings(max_examples=60, deadline=None)
def test_chunks_may_be_cut_anywhere(level, cuts):
    """[MQTT-6.0.0-2]: packets span and share chunks."""
    data = stream(level)
    whole = decoded(server_decoder(level), data)
    decoder = server_decoder(level)
    packets: list = []
    start = 0
    for cut in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        decoder.receive(data[start:cut], packets)
        start = cut
    # A run ends with its chunk, so acknowledgements may stand elsewhere among the publishes.
    assert sorted(map(repr, single(packets))) == sorted(map(repr, whole))
    assert len(whole) == 8
    assert decoder.buffered_bytes == 0


def test_a_large_packet_may_arrive_in_many_pieces():
    payload = bytes(3_000_000)
    data = encode(Publish("t", payload), 4)
    decoder = server_decoder(4)
    packets: list = []
    for start in range(0, len(data), 60_000):
        decoder.receive(data[start : start + 60_000], packets)
    assert packets[0].payloads == [payload]


def test_bytes_that_come_one_by_one_are_decoded():
    decoder = server_decoder(5)
    packets: list = []
    for byte in stream(5):
        decoder.receive(bytes((byte,)), packets)
    assert len(single(packets)) == 8
