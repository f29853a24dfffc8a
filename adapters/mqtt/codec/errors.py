"""The two errors of the MQTT codec and session: the peer's fault, and ours."""

from __future__ import annotations

from adapters.mqtt.codec.reason_codes import ReasonCode, v3_return_code


class MqttError(Exception):
    """The peer broke the protocol, or asked for what this server refuses.

    `reason_code` is what an MQTT 5 peer is told, in CONNACK before acceptance and in DISCONNECT
    after it (MQTT5 4.13). `v3_return_code` is what a 3.1.1 client is told in CONNACK before
    acceptance; None, and always after acceptance: nothing, the connection is closed.
    """

    def __init__(self, reason_code: ReasonCode, detail: str) -> None:
        super().__init__(detail)
        self.reason_code = reason_code
        self.detail = detail

    @property
    def v3_return_code(self) -> int | None:
        return v3_return_code(self.reason_code)


class LocalProtocolError(Exception):
    """Our own code asked for something that the protocol forbids: a bug, never a peer's doing."""


def malformed(detail: str) -> MqttError:
    """A packet that cannot be parsed (MQTT5 4.13.1): 0x81."""
    return MqttError(ReasonCode.MALFORMED_PACKET, detail)


def protocol_error(detail: str) -> MqttError:
    """A packet or value that the rules do not allow here (MQTT5 4.13.1): 0x82."""
    return MqttError(ReasonCode.PROTOCOL_ERROR, detail)
