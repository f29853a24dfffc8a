"""What is encoded is decoded, for every packet, both versions and both directions."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.mqtt.codec.decoder import Decoder
from adapters.mqtt.codec.encoder import encode, encode_within
from adapters.mqtt.codec.packets import Ack, Connack
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
@settings(max_examples=80)
def test_connect_reads_back(data):
    level = data.draw(st.sampled_from((3, 4, 5)))
    sent = data.draw(packets.connects(level))
    received: list = []
    Decoder(NAMES).receive(encode(sent, level), received)
    assert received == [sent]


@given(st.data(), levels)
@settings(max_examples=120)
def test_a_clients_packet_reads_back(data, level):
    sent = data.draw(packets.from_clients(level))
    [received] = decoded(server_decoder(level), encode(sent, level))
    if isinstance(received, tuple):
        assert received[:3] == plain(sent)[:3]
        assert (received[3] or NO_PROPERTIES) == sent.properties
    else:
        assert received == sent


@given(st.data(), levels)
@settings(max_examples=120)
def test_a_servers_packet_reads_back(data, level):
    sent = data.draw(packets.from_servers(level))
    [received] = decoded(client_decoder(level), encode(sent, level))
    if isinstance(received, tuple):
        assert received[:3] == plain(sent)[:3]
        assert (received[3] or NO_PROPERTIES) == sent.properties
    else:
        assert received == sent


@given(st.data(), levels, st.integers(1, 12))
@settings(max_examples=40)
def test_many_packets_read_back_in_order_of_their_kind(data, level, count):
    sent = [data.draw(packets.publishes(level)) for _ in range(count)]
    stream = b"".join(encode(packet, level) for packet in sent)
    assert decoded(server_decoder(level), stream) == sent


@given(packets.connacks(5), st.integers(5, 120))
@settings(max_examples=80)
def test_explanations_are_left_out_first_when_a_packet_would_be_too_large(packet, limit):
    """[MQTT-3.2.2-19], [MQTT-3.2.2-20]: Reason String goes first, then User Properties."""
    full = encode(packet, 5)
    silent = replace(packet, properties=replace(packet.properties, reason_string=None))
    bare = replace(silent, properties=replace(silent.properties, user_properties=()))
    fitting = [data for data in (full, encode(silent, 5), encode(bare, 5)) if len(data) <= limit]
    assert encode_within(packet, 5, limit) == (fitting[0] if fitting else None)


def test_what_has_nothing_to_leave_out_is_not_sent_at_all():
    named = Connack(0, False, Properties(assigned_client_identifier="x" * 50))
    assert encode_within(named, 5, 20) is None
