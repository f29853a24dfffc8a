"""The settings of an MQTT server, as all its clients meet them. Bounds and their reasons are in
`limits.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from adapters.mqtt import limits


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """Settings of the session machine. Raises ValueError for a value that cannot be meant.

    Sizes are bytes; `_s` is seconds, `_ms` milliseconds.
    """

    connect_timeout_ms: int = limits.CONNECT_TIMEOUT_MS
    # Of one packet from a client, before and after it is accepted.
    connect_bytes_max: int = limits.CONNECT_BYTES_MAX
    maximum_packet_size: int = limits.PACKET_BYTES_MAX
    client_id_bytes_max: int = limits.CLIENT_ID_BYTES_MAX

    # A 3.1.1 client cannot be told another keep alive, so the bounds hold for MQTT 5 only.
    keep_alive_s_min: int = 0
    keep_alive_s_max: int = limits.KEEP_ALIVE_S_MAX
    session_expiry_s_max: int = limits.SESSION_EXPIRY_NEVER
    # What Clean Session 0 means, which has no interval of its own: a week.
    v3_session_expiry_s: int = 7 * 24 * 3600

    # Messages that one client may have unacknowledged with us. False: MQTT 5 clients that send more
    # are read more slowly instead of being disconnected, as 3.1.1 clients always are.
    receive_maximum: int = limits.RECEIVE_MAXIMUM
    enforce_receive_maximum: bool = True
    deliveries_in_flight_max: int = limits.DELIVERIES_IN_FLIGHT_MAX
    topic_alias_maximum: int = limits.TOPIC_ALIAS_MAXIMUM
    topic_aliases_out_max: int = limits.TOPIC_ALIASES_OUT_MAX
    topic_levels_max: int = limits.TOPIC_LEVELS_MAX
    filters_per_subscribe_max: int = limits.FILTERS_PER_SUBSCRIBE_MAX
    requests_pending_max: int = limits.REQUESTS_PENDING_MAX

    maximum_qos: int = 2
    retain_available: bool = True
    # Payloads that claim to be UTF-8 are checked (MQTT5 3.3.2.3.2); it costs a scan a message.
    validate_payload_format: bool = False
    # What a 3.1.1 publisher gets for a message that it may not publish: the connection is closed,
    # or it is told a lie (MQTT3.1.1 3.3.5).
    acknowledge_unauthorized_v3: bool = False
    authentication_methods: frozenset[str] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        bounds = {
            "receive_maximum": (1, limits.RECEIVE_MAXIMUM_MAX),
            "deliveries_in_flight_max": (1, limits.RECEIVE_MAXIMUM_MAX),
            "topic_alias_maximum": (0, 0xFFFF),
            "topic_aliases_out_max": (0, 0xFFFF),
            "keep_alive_s_min": (0, 0xFFFF),
            "keep_alive_s_max": (max(1, self.keep_alive_s_min), 0xFFFF),
            "session_expiry_s_max": (0, limits.SESSION_EXPIRY_NEVER),
            "v3_session_expiry_s": (0, limits.SESSION_EXPIRY_NEVER),
            "maximum_packet_size": (1, limits.VARINT_MAX + 5),
            "connect_bytes_max": (1, limits.VARINT_MAX + 5),
            "client_id_bytes_max": (23, limits.TEXT_BYTES_MAX),
            "maximum_qos": (0, 2),
            "topic_levels_max": (1, limits.TEXT_BYTES_MAX),
            "filters_per_subscribe_max": (1, limits.FILTERS_READ_MAX),
            "requests_pending_max": (1, limits.PACKET_ID_MAX),
            "connect_timeout_ms": (1, 3_600_000),
        }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}, not between {low} and {high}")
