"""CONNECT and CONNACK: what a client asks for, may have, and is told (MQTT5 3.1, 3.2).

`agree` checks a CONNECT against the server's offer and settles the terms of the connection; it
refuses by raising MqttError with the reason code that CONNACK is to carry. Whether the client is
who it says is not decided here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from adapters.mqtt.codec.errors import MqttError
from adapters.mqtt.codec.packet_types import MQTT_3_1_1, MQTT_5
from adapters.mqtt.codec.packets import Connack
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.limits import (
    KEEP_ALIVE_GRACE,
    KEEP_ALIVE_S_MAX,
    PACKET_BYTES_MAX,
    RECEIVE_MAXIMUM_MAX,
)

if TYPE_CHECKING:
    from adapters.mqtt.codec.packets import Connect
    from adapters.mqtt.config import SessionConfig


class Agreement(msgspec.Struct, frozen=True):
    """The terms of one connection. Intervals are seconds, sizes bytes."""

    # 4 or 5: the format that both sides write. MQTT 3.1 is served as 3.1.1.
    level: int
    client_id_needed: bool
    keep_alive_s: int
    # The server's own keep alive, if the client must be told one.
    server_keep_alive_s: int | None
    session_expiry_s: int
    # The session expires sooner than was asked, so the client must be told.
    session_expiry_capped: bool
    # What the client takes: unacknowledged deliveries, bytes a packet, aliases.
    delivery_window: int
    maximum_packet_size: int
    topic_aliases_out: int
    explains: bool
    response_information_wanted: bool
    authentication_method: str | None
    # It carries messages between brokers: what it subscribes to is never its own, and keeps its
    # RETAIN flag, as MQTT 5 has options for.
    is_bridge: bool

    @property
    def silence_ms_max(self) -> int | None:
        """How long the client may say nothing; None: for ever ([MQTT-3.1.2-22])."""
        return round(self.keep_alive_s * 1000 * KEEP_ALIVE_GRACE) or None


def agree(connect: Connect, config: SessionConfig) -> Agreement:
    """The terms for this client, or MqttError: why it is refused."""
    _check_client_id(connect, config)
    _check_will(connect, config)
    properties = connect.properties
    method = properties.authentication_method
    if method is not None and method not in config.authentication_methods:
        raise MqttError(
            ReasonCode.BAD_AUTHENTICATION_METHOD, "the authentication method is not supported"
        )
    five = connect.level == MQTT_5
    keep_alive_s = _keep_alive_s(connect, config)
    asked_expiry_s = _asked_expiry_s(connect, config)
    session_expiry_s = min(asked_expiry_s, config.session_expiry_s_max)
    return Agreement(
        level=MQTT_5 if five else MQTT_3_1_1,
        client_id_needed=not connect.client_id,
        keep_alive_s=keep_alive_s,
        server_keep_alive_s=keep_alive_s if keep_alive_s != connect.keep_alive_s else None,
        session_expiry_s=session_expiry_s,
        session_expiry_capped=five and session_expiry_s < asked_expiry_s,
        delivery_window=min(
            properties.receive_maximum or RECEIVE_MAXIMUM_MAX, config.deliveries_in_flight_max
        ),
        maximum_packet_size=properties.maximum_packet_size or PACKET_BYTES_MAX,
        topic_aliases_out=min(properties.topic_alias_maximum or 0, config.topic_aliases_out_max),
        explains=properties.request_problem_information != 0,
        response_information_wanted=properties.request_response_information == 1,
        authentication_method=method,
        is_bridge=connect.is_bridge,
    )


def _check_client_id(connect: Connect, config: SessionConfig) -> None:
    if connect.client_id:
        if len(connect.client_id.encode()) > config.client_id_bytes_max:
            raise _bad_client_id(f"longer than {config.client_id_bytes_max} bytes")
    elif connect.level != MQTT_5 and not (connect.level == MQTT_3_1_1 and connect.clean_start):
        # 3.1 has no empty ids; 3.1.1 has them for clean sessions only ([MQTT-3.1.3-8] of 3.1.1).
        raise _bad_client_id("empty, and the session is to be kept")


def _bad_client_id(what: str) -> MqttError:
    return MqttError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, f"the client identifier is {what}")


def _check_will(connect: Connect, config: SessionConfig) -> None:
    will = connect.will
    if will is None:
        return
    if will.qos > config.maximum_qos:
        raise MqttError(ReasonCode.QOS_NOT_SUPPORTED, "the will has too high a QoS")
    if will.retain and not config.retain_available:
        raise MqttError(ReasonCode.RETAIN_NOT_SUPPORTED, "the will is retained")
    if will.topic.count("/") >= config.topic_levels_max:
        raise MqttError(ReasonCode.TOPIC_NAME_INVALID, "the will topic has too many levels")
    if will.properties.payload_format_indicator and config.validate_payload_format:
        try:
            will.payload.decode()
        except UnicodeDecodeError as error:
            raise MqttError(
                ReasonCode.PAYLOAD_FORMAT_INVALID, "the will is not the UTF-8 that it claims"
            ) from error


def _keep_alive_s(connect: Connect, config: SessionConfig) -> int:
    asked = connect.keep_alive_s
    if connect.level != MQTT_5:
        return asked
    if asked == 0:
        bounded = config.keep_alive_s_max < KEEP_ALIVE_S_MAX
        return config.keep_alive_s_max if bounded else 0
    return min(max(asked, config.keep_alive_s_min), config.keep_alive_s_max)


def _asked_expiry_s(connect: Connect, config: SessionConfig) -> int:
    if connect.level == MQTT_5:
        return connect.properties.session_expiry_interval or 0
    return 0 if connect.clean_start else config.v3_session_expiry_s


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver adds to an acceptance."""

    session_present: bool
    # The one that the server made up, "" if the client brought its own.
    assigned_client_id: str = ""
    response_information: str = ""
    authentication_data: bytes | None = None
    reason_string: str = ""
    user_properties: tuple[tuple[str, str], ...] = ()


def connack(agreement: Agreement, config: SessionConfig, welcome: Welcome) -> Connack:
    """The acceptance. What this server restricts is said, what it does not is left out."""
    if agreement.level != MQTT_5:
        return Connack(0, welcome.session_present)
    wanted = agreement.response_information_wanted
    method = agreement.authentication_method
    return Connack(
        0,
        welcome.session_present,
        Properties(
            session_expiry_interval=(
                agreement.session_expiry_s if agreement.session_expiry_capped else None
            ),
            receive_maximum=config.receive_maximum,
            maximum_qos=config.maximum_qos if config.maximum_qos < 2 else None,
            retain_available=None if config.retain_available else 0,
            maximum_packet_size=config.maximum_packet_size,
            assigned_client_identifier=welcome.assigned_client_id or None,
            topic_alias_maximum=config.topic_alias_maximum,
            reason_string=welcome.reason_string or None,
            user_properties=welcome.user_properties,
            server_keep_alive=agreement.server_keep_alive_s,
            response_information=(welcome.response_information or None) if wanted else None,
            authentication_method=method,
            authentication_data=welcome.authentication_data if method is not None else None,
        ),
    )
