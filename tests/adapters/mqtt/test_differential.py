"""Our codec beside those of others: amqtt for 3.1.1, mqtt5 for 5. Neither shares code with ours."""

from __future__ import annotations

import random

import mqtt5
from amqtt.adapters import BufferReader
from amqtt.mqtt import packet_class
from amqtt.mqtt.packet import MQTTFixedHeader
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.mqtt.codec.decoder import Decoder
from adapters.mqtt.codec.encoder import encode
from adapters.mqtt.codec.errors import MqttError
from adapters.mqtt.codec.packets import Connect, Publish
from adapters.mqtt.codec.properties import NO_PROPERTIES, Properties
from tests.adapters.mqtt import strategies as packets
from tests.adapters.mqtt.support import NAMES, client_decoder, decoded, server_decoder
from tests.adapters.mqtt.test_mutation_fuzz import mutated, seeds


def finished(coroutine):
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waited")


def rewritten_by_amqtt(data: bytes) -> bytes:
    reader = BufferReader(data)
    header = finished(MQTTFixedHeader.from_stream(reader))
    return finished(packet_class(header).from_stream(reader, fixed_header=header)).to_bytes()


@given(packets.from_clients(4) | packets.from_servers(4))
@settings(max_examples=150, deadline=None)
def test_amqtt_reads_and_rewrites_our_3_1_1_packets_byte_for_byte(packet):
    data = encode(packet, 4)
    assert rewritten_by_amqtt(data) == data


@given(packets.connects(4))
@settings(max_examples=60, deadline=None)
def test_amqtt_reads_and_rewrites_our_3_1_1_connect(packet):
    # amqtt makes up an identifier while it reads an empty one, takes an empty user name for none,
    # and takes passwords for text.
    packet = replace(packet, client_id=packet.client_id or "c", username=packet.username or None)
    has_password = packet.username and packet.password is not None
    packet = replace(packet, password=b"secret" if has_password else None)
    data = encode(packet, 4)
    assert rewritten_by_amqtt(data) == data


# What the specification says an absent property means; mqtt5 does not part the two.
DEFAULTS = {
    "payload_format_indicator": 0,
    "session_expiry_interval": 0,
    "request_problem_information": 1,
    "request_response_information": 0,
    "will_delay_interval": 0,
    "receive_maximum": 65_535,
    "topic_alias_maximum": 0,
    "retain_available": 1,
    "wildcard_subscription_available": 1,
    "subscription_identifiers_available": 1,
    "shared_subscription_available": 1,
}


def without_defaults(properties: Properties) -> Properties:
    kept = {
        name: value
        for name in Properties.__struct_fields__
        if (value := getattr(properties, name)) is not None and DEFAULTS.get(name) != value
    }
    return Properties(**kept) if kept else NO_PROPERTIES


def meaning(packet):
    """A packet with everything taken away that says no more than its absence."""
    if isinstance(packet, tuple):
        return (*packet[:3], without_defaults(packet[3] or NO_PROPERTIES))
    if not hasattr(packet, "properties"):
        return packet
    packet = replace(packet, properties=without_defaults(packet.properties))
    if isinstance(packet, Connect) and packet.will is not None:
        will = replace(packet.will, properties=without_defaults(packet.will.properties))
        packet = replace(packet, will=will)
    return packet


# Legal (MQTT5 3.15.2.1), but mqtt5 0.8 wants a property length.
EMPTY_AUTH = b"\xf0\x00"


def rewritten_by_mqtt5(data: bytes) -> bytes:
    packet, size = mqtt5.read(memoryview(data))
    assert size == len(data)
    return packet.write()


@given(packets.from_clients(5))
@settings(max_examples=150, deadline=None)
def test_mqtt5_understands_our_clients_packets_as_we_do(packet):
    data = encode(packet, 5)
    assume(data != EMPTY_AUTH)
    [ours] = decoded(server_decoder(5), data)
    [theirs] = decoded(server_decoder(5), rewritten_by_mqtt5(data))
    assert meaning(theirs) == meaning(ours)


@given(packets.from_servers(5))
@settings(max_examples=150, deadline=None)
def test_mqtt5_understands_our_servers_packets_as_we_do(packet):
    data = encode(packet, 5)
    assume(data != EMPTY_AUTH)
    [ours] = decoded(client_decoder(5), data)
    [theirs] = decoded(client_decoder(5), rewritten_by_mqtt5(data))
    assert meaning(theirs) == meaning(ours)


@given(packets.connects(5))
@settings(max_examples=60, deadline=None)
def test_mqtt5_understands_our_connect_as_we_do(packet):
    data = encode(packet, 5)
    again = read_connect(rewritten_by_mqtt5(data))
    assert meaning(again) == meaning(packet)


def read_connect(data: bytes) -> Connect:
    received: list = []
    Decoder(NAMES).receive(data, received)
    return received[0]


@given(packets.names, st.binary(max_size=50), packets.packet_ids, packets.qos_levels)
@settings(max_examples=60, deadline=None)
def test_we_read_what_mqtt5_writes(topic, payload, packet_id, qos):
    theirs = mqtt5.PublishPacket(
        topic,
        payload,
        qos=mqtt5.QoS(qos),
        packet_id=packet_id if qos else None,
        message_expiry_interval=9,
        user_properties=[("a", "b"), ("a", "c")],
    )
    [ours] = decoded(server_decoder(5), theirs.write())
    assert ours == Publish(
        topic,
        payload,
        qos=qos,
        packet_id=packet_id if qos else 0,
        properties=Properties(message_expiry_interval=9, user_properties=(("a", "b"), ("a", "c"))),
    )


def test_what_we_accept_of_mutated_packets_mqtt5_accepts_too():
    """The reverse does not hold: mqtt5 lets pass, for one, U+0000 and packet identifier 0."""
    dice = random.Random(7)
    good = seeds(5)
    accepted = 0
    for _ in range(6_000):
        data = mutated(dice.choice(good), good, dice)
        if not data or data[0] >> 4 == 1:
            continue
        from_server = data[0] >> 4 in (2, 9, 11, 13)
        received: list = []
        try:
            (client_decoder(5) if from_server else server_decoder(5)).receive(data, received)
        except MqttError:
            continue
        if not received or data[:2] == EMPTY_AUTH:
            continue
        accepted += 1
        mqtt5.read(memoryview(data))
    assert accepted > 200
