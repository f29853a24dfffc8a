"""What is encoded is decoded, for every packet, both versions and both directions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.mqtt.codec.decoder import Decoder
from adapters.mqtt.codec.encoder import encode, encode_within
from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.packets import Ack, Auth, Connack, Disconnect, Suback, Unsuback
from adapters.mqtt.codec.properties import NO_PROPERTIES, Properties
from tests.adapters.mqtt import strategies as packets
from tests.adapters.mqtt.support import NAMES, client_decoder, decoded, server_decoder

levels = st.sampled_from((4, 5))


def plain(packet):
    """As `support.single` shows a received packet."""
    if isinstance(packet, Ack):
        shown = None if packet.properties == NO_PROPERTIES else packet.properties
        return (packet.type, packet.packet_id, packet.reason_code, shown)
    return packet


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_connect_reads_back(data):
    level = data.draw(st.sampled_from((3, 4, 5)))
    sent = data.draw(packets.connects(level))
    received: list = []
    Decoder(NAMES).receive(encode(sent, level), received)
    assert received == [sent]


@given(st.data(), levels)
@settings(max_examples=120, deadline=None)
def test_a_clients_packet_reads_back(data, level):
    sent = data.draw(packets.from_clients(level))
    [received] = decoded(server_decoder(level), encode(sent, level))
    if isinstance(received, tuple):
        assert received[:3] == plain(sent)[:3]
        assert (received[3] or NO_PROPERTIES) == sent.properties
    else:
        assert received == sent


@given(st.data(), levels)
@settings(max_examples=120, deadline=None)
def test_a_servers_packet_reads_back(data, level):
    sent = data.draw(packets.from_servers(level))
    [received] = decoded(client_decoder(level), encode(sent, level))
    if isinstance(received, tuple):
        assert received[:3] == plain(sent)[:3]
        assert (received[3] or NO_PROPERTIES) == sent.properties
    else:
        assert received == sent


@given(st.data(), levels, st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_many_packets_read_back_in_order_of_their_kind(data, level, count):
    sent = [data.draw(packets.publishes(level)) for _ in range(count)]
    stream = b"".join(encode(packet, level) for packet in sent)
    assert decoded(server_decoder(level), stream) == sent


@given(packets.connacks(5), st.integers(5, 120))
@settings(max_examples=80, deadline=None)
def test_explanations_are_left_out_first_when_a_packet_would_be_too_large(packet, limit):
    """[MQTT-3.2.2-19], [MQTT-3.2.2-20]: Reason String goes first, then User Properties."""
    full = encode(packet, 5)
    silent = replace(packet, properties=replace(packet.properties, reason_string=None))
    bare = replace(silent, properties=replace(silent.properties, user_properties=()))
    fitting = [data for data in (full, encode(silent, 5), encode(bare, 5)) if len(data) <= limit]
    assert encode_within(packet, 5, limit) == (fitting[0] if fitting else None)


EXPLAINED = Properties(reason_string="x" * 40, user_properties=(("k", "v" * 40),))


@pytest.mark.parametrize(
    "packet",
    [
        Connack(0x87, False, EXPLAINED),
        *(Ack(PacketType(number), 1, 0, EXPLAINED) for number in (4, 5, 6, 7)),
        Suback(1, (0x87,), EXPLAINED),
        Unsuback(1, (0x87,), EXPLAINED),
        Disconnect(0x87, EXPLAINED),
        Auth(0x18, replace(EXPLAINED, authentication_method="m")),
    ],
    ids=lambda packet: packet.type.name,
)
def test_every_packet_with_an_explanation_can_do_without_it(packet):
    """[MQTT-3.4.2-2], [MQTT-3.4.2-3], [MQTT-3.5.2-2], [MQTT-3.5.2-3], [MQTT-3.6.2-2],
    [MQTT-3.6.2-3], [MQTT-3.7.2-2], [MQTT-3.7.2-3], [MQTT-3.9.2-1], [MQTT-3.9.2-2],
    [MQTT-3.11.2-1], [MQTT-3.11.2-2], [MQTT-3.14.2-3], [MQTT-3.14.2-4], [MQTT-3.15.2-2],
    [MQTT-3.15.2-3]."""
    lengths = [len(encode_within(packet, 5, limit) or b"") for limit in (200, 80, 30, 1)]
    assert lengths[0] == len(encode(packet, 5))
    assert lengths[0] > lengths[1] > lengths[2] > 0
    assert lengths[3] == 0


def test_what_has_nothing_to_leave_out_is_not_sent_at_all():
    named = Connack(0, False, Properties(assigned_client_identifier="x" * 50))
    assert encode_within(named, 5, 20) is None
