"""What the MQTT tests share: decoders in a given state, and a session that is let in."""

from __future__ import annotations

from msgspec.structs import replace

from adapters.mqtt.codec.decoder import Decoder
from adapters.mqtt.codec.encoder import encode
from adapters.mqtt.codec.packets import AckRun, Auth, Connect, Publish, PublishRun
from adapters.mqtt.codec.topic_names import TopicNames
from adapters.mqtt.config import SessionConfig
from adapters.mqtt.limits import PACKET_BYTES_MAX
from adapters.mqtt.session.client_session import Session
from adapters.mqtt.session.events import ConnectReceived
from adapters.mqtt.session.handshake import Welcome

NOW_MS = 1_000_000
NAMES = TopicNames()
LEVELS = (4, 5)


def server_decoder(level: int, maximum_packet_size: int = PACKET_BYTES_MAX) -> Decoder:
    """A server's decoder that has read a CONNECT of `level`."""
    decoder = Decoder(NAMES)
    decoder.receive(encode(Connect("c", level=level), level), [])
    decoder.maximum_packet_size = maximum_packet_size
    return decoder


def client_decoder(level: int) -> Decoder:
    return Decoder(NAMES, client_level=level)


def decoded(decoder: Decoder, data: bytes) -> list:
    """Every packet of `data`, the runs taken apart into single packets."""
    packets: list = []
    decoder.receive(data, packets)
    # The decoder stops behind CONNECT and AUTH.
    while packets and decoder.buffered_bytes and isinstance(packets[-1], Auth | Connect):
        decoder.receive(b"", packets)
    return single(packets)


def single(packets: list) -> list:
    flat: list = []
    for packet in packets:
        if isinstance(packet, PublishRun):
            flat += [packet.packet(index) for index in range(len(packet))]
        elif isinstance(packet, AckRun):
            flat += [
                (packet.type, packet_id, code, packet.properties.get(index))
                for index, (packet_id, code) in enumerate(
                    zip(packet.packet_ids, packet.reason_codes, strict=True)
                )
            ]
        else:
            flat.append(packet)
    return flat


def from_server(data: bytes, level: int) -> list:
    """What a client of `level` reads in `data`."""
    return decoded(client_decoder(level), data)


def asking(connect: Connect, config: SessionConfig | None = None) -> tuple[Session, list]:
    """A session that has received `connect`, and the events of it."""
    session = Session(config or SessionConfig(), NAMES, NOW_MS)
    return session, session.receive_data(encode(connect, connect.level), NOW_MS)


def connected(
    level: int = 5,
    config: SessionConfig | None = None,
    connect: Connect | None = None,
    *,
    session_present: bool = False,
    in_flight: tuple = (),
    received_ids: tuple = (),
) -> Session:
    """An accepted session whose CONNACK has been taken."""
    session, events = asking(connect or Connect("client", level=level), config)
    assert isinstance(events[0], ConnectReceived), events
    welcome = Welcome(
        session_present=session_present,
        assigned_client_id="assigned-1" if events[0].client_id_needed else "",
    )
    session.accept(welcome, NOW_MS, in_flight=in_flight, received_ids=received_ids)
    session.data_to_send()
    return session


def publish(packet_id: int = 0, qos: int | None = None, *, level: int = 5, **fields) -> bytes:
    """A PUBLISH from a client; QoS 1 if it has a packet identifier, unless told."""
    qos = (1 if packet_id else 0) if qos is None else qos
    packet = Publish("a/b", b"payload", qos=qos, packet_id=packet_id)
    return encode(replace(packet, **fields), level)


def said(session: Session) -> list:
    """What the session has sent since the last time, as its client reads it."""
    return from_server(session.data_to_send(), session.level)
