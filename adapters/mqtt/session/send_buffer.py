"""What is about to be sent on one connection, and what its client allows to be sent.

Everything goes through here, so that the rules about size and about the end hold everywhere: no
packet over the client's maximum, no explanation that the client did not want, and nothing behind a
goodbye ([MQTT-3.1.2-24], [MQTT-3.1.2-29], [MQTT-3.14.4-1]).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.mqtt.codec.encoder import encode, encode_within
from adapters.mqtt.codec.packet_types import MQTT_3_1_1, PacketType
from adapters.mqtt.codec.packets import Ack, Pingresp
from adapters.mqtt.codec.properties import NO_PROPERTIES, Properties
from adapters.mqtt.limits import PACKET_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adapters.mqtt.codec.encoder import Explaining
    from adapters.mqtt.codec.packets import Connack, Disconnect

_PINGRESP = encode(Pingresp(), MQTT_3_1_1)
# What Request Problem Information does not silence (MQTT5 3.1.2.11.7).
_ALWAYS_EXPLAINED = frozenset({PacketType.CONNACK, PacketType.DISCONNECT})


class SendBuffer:
    """Bytes to send, in order. `parts` is written by the hot paths directly."""

    __slots__ = ("_closed", "explains", "level", "maximum_packet_size", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.level = MQTT_3_1_1
        self.maximum_packet_size = PACKET_BYTES_MAX
        # False: the client asked not to be told why.
        self.explains = True
        self._closed = False

    def take(self) -> bytes:
        """Everything since the last call."""
        if not self.parts:
            return b""
        data = b"".join(self.parts)
        self.parts.clear()
        return data

    def ping_answer(self) -> None:
        if not self._closed and self.maximum_packet_size >= len(_PINGRESP):
            self.parts.append(_PINGRESP)

    def send(self, packet: Explaining) -> None:
        """Sends what the client can take of `packet`: less explanation, or nothing."""
        if self._closed:
            return
        data = encode_within(packet, self.level, self.maximum_packet_size)
        if data is not None:
            self.parts.append(data)

    def acknowledge(
        self, packet_type: PacketType, packet_id: int, code: int = 0, reason_string: str = ""
    ) -> None:
        """A PUBACK, PUBREC, PUBREL or PUBCOMP. Before MQTT 5 the code is not said."""
        properties = self.explanation(packet_type, reason_string)
        self.send(Ack(packet_type, packet_id, code, properties))

    def explanation(
        self,
        packet_type: PacketType,
        reason_string: str,
        user_properties: Sequence[tuple[str, str]] = (),
        server_reference: str | None = None,
    ) -> Properties:
        """The properties with which `packet_type` may explain itself to this client."""
        if not self.explains and packet_type not in _ALWAYS_EXPLAINED:
            reason_string, user_properties = "", ()
        if not (reason_string or user_properties or server_reference):
            return NO_PROPERTIES
        return Properties(
            reason_string=reason_string or None,
            user_properties=tuple(user_properties),
            server_reference=server_reference,
        )

    def close(self, goodbye: Connack | Disconnect | None) -> None:
        """Sends the goodbye, if any, and nothing after it."""
        if goodbye is not None:
            self.send(goodbye)
        self._closed = True

    @property
    def closed(self) -> bool:
        return self._closed

    def addressed(self, level: int, maximum_packet_size: int | None, explains: bool) -> None:
        """What CONNECT said about the answers that this client takes."""
        self.level = level
        self.explains = explains
        self.maximum_packet_size = maximum_packet_size or PACKET_BYTES_MAX
