"""MQTT's words in the transcripts. A packet is spelled by its name, then what it says:

    CONNECT client=ID [level=4] [clean_start=0] [keep_alive=S] [will=TOPIC:TEXT]
    PUBLISH TOPIC TEXT [qos=Q id=N] [retain=1] [dup=1]
    PUBACK|PUBREC|PUBREL|PUBCOMP id=N [code=N]
    SUBSCRIBE FILTER... id=N [qos=Q]           UNSUBSCRIBE FILTER... id=N
    PINGREQ, DISCONNECT [code=N]
    BYTES 32 06 ...                            what no packet of ours can be

and properties of MQTT 5 by their names in the code (`session_expiry_interval=60`,
`user_properties=name:value`). Clients sign in as `guest`; those without `level` speak MQTT 5. What
every CONNACK offers (`OFFERED`) is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from adapters.mqtt.codec.encoder import encode
from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.packets import (
    Ack,
    Connect,
    Disconnect,
    FilterOptions,
    Pingreq,
    Publish,
    Subscribe,
    Unsubscribe,
    Will,
)
from adapters.mqtt.codec.properties import NO_PROPERTIES, Properties
from adapters.mqtt.server import MqttAdapter, MqttProtocol
from tests.adapters.mqtt.broker import Logins
from tests.adapters.mqtt.support import client_decoder, single
from tests.adapters.session_script import LISTENER, SessionScript, quoted, shown
from tests.transcripts import parsed

OFFERED = {"receive_maximum": 1_000, "topic_alias_maximum": 32, "maximum_packet_size": 17_170_432}
ACKNOWLEDGEMENTS = ("PUBACK", "PUBREC", "PUBREL", "PUBCOMP")


class Reader:
    """A client: the level that it speaks, and what it has read of a packet."""

    def __init__(self) -> None:
        self.speak(5)

    def speak(self, level: int) -> None:
        """As CONNECT says."""
        self.level = level
        self.decoder = client_decoder(level)


class Script(SessionScript[MqttAdapter, Reader]):
    """The commands of one transcript."""

    def serving(self) -> MqttAdapter:
        world = self.world
        return MqttAdapter(
            world.client, Logins(), [LISTENER], clock=world.clock, random=world.random
        )

    def accepted(self, adapter: MqttAdapter) -> MqttProtocol:
        return MqttProtocol(adapter, LISTENER.name)

    def client(self) -> Reader:
        return Reader()

    def sent(self, client: Reader, text: str) -> bytes:
        (kind, *words), named = parsed(text)
        if kind == "BYTES":
            return bytes.fromhex("".join(words))
        if kind == "CONNECT":
            client.speak(int(named.get("level", "5")))
        return encode(_packet(kind, words, named), client.level)

    def read(self, client: Reader, data: bytes) -> Iterable[str]:
        found: list[Any] = []
        client.decoder.receive(data, found)
        return [_line(packet) for packet in single(found)]


def _packet(kind: str, words: list[str], named: dict[str, str]) -> Any:
    packet_id, code = int(named.get("id", "0")), int(named.get("code", "0"), 0)
    properties = _properties(named)
    match kind:
        case "CONNECT":
            return _connect(named, properties)
        case "PUBLISH":
            topic, payload = words
            flags = {name: named.get(name) == "1" for name in ("retain", "dup")}
            qos = int(named.get("qos", "0"))
            return Publish(
                topic, payload.encode(), qos, packet_id=packet_id, properties=properties, **flags
            )
        case "SUBSCRIBE":
            qos = int(named.get("qos", "0"))
            filters = tuple(FilterOptions(each, qos) for each in words)
            return Subscribe(packet_id, filters, properties)
        case "UNSUBSCRIBE":
            return Unsubscribe(packet_id, tuple(words), properties)
        case "PINGREQ":
            return Pingreq()
        case "DISCONNECT":
            return Disconnect(code, properties)
    assert kind in ACKNOWLEDGEMENTS, kind
    return Ack(PacketType[kind], packet_id, code, properties)


def _connect(named: dict[str, str], properties: Properties) -> Connect:
    will = None
    if "will" in named:
        topic, _, payload = named["will"].partition(":")
        delay_s = named.get("will_delay")
        of_will = Properties(will_delay_interval=None if delay_s is None else int(delay_s))
        will = Will(topic, payload.encode(), properties=of_will)
    return Connect(
        named["client"],
        int(named.get("level", "5")),
        named.get("clean_start", "1") == "1",
        int(named.get("keep_alive", "0")),
        named.get("user", "guest"),
        named.get("password", "guest").encode(),
        will,
        properties,
    )


def _properties(named: dict[str, str]) -> Properties:
    values: dict[str, Any] = {}
    for name in Properties.__struct_fields__:
        text = named.get(name)
        if text is None:
            continue
        if name == "user_properties":
            pairs = (pair.split(":") for pair in text.split(","))
            values[name] = tuple((key, value) for key, value in pairs)
        elif name == "subscription_identifiers":
            values[name] = (int(text),)
        elif name == "correlation_data":
            values[name] = text.encode()
        else:
            values[name] = int(text) if text.isdigit() else text
    return Properties(**values)


def _line(packet: Any) -> str:
    if isinstance(packet, tuple):
        kind, packet_id, code, properties = packet
        return _joined(PacketType(kind).name, shown(id=packet_id, code=_code(code)), properties)
    named: dict[str, object] = {}
    words = [packet.type.name]
    if isinstance(packet, Publish):
        words += [packet.topic, quoted(packet.payload)]
        named = {"qos": packet.qos, "id": packet.packet_id or None}
        named |= {name: 1 for name in ("retain", "dup") if getattr(packet, name)}
    else:
        for name in packet.__struct_fields__:
            value = getattr(packet, name)
            if name == "reason_codes":
                named["codes"] = ",".join(map(_code, value))
            elif name == "reason_code":
                named["code"] = _code(value)
            elif name != "properties":
                named["id" if name == "packet_id" else name] = value
    return _joined(" ".join(words), shown(**named), getattr(packet, "properties", NO_PROPERTIES))


def _joined(start: str, fields: str, properties: Properties | None) -> str:
    given: dict[str, object] = {}
    for name, value in msgspec.structs.asdict(properties or NO_PROPERTIES).items():
        if name == "user_properties":
            value = ",".join(f"{key}:{text}" for key, text in value)
        elif name == "subscription_identifiers":
            value = ",".join(map(str, value))
        elif isinstance(value, bytes):
            value = quoted(value)
        elif name == "reason_string" and value is not None:
            value = f'"{value}"'
        if value not in (None, "") and OFFERED.get(name) != value:
            given[name] = value
    return " ".join(part for part in (start, fields, shown(**given)) if part)


def _code(code: int) -> str:
    return f"0x{code:02X}" if code > 2 else str(code)
