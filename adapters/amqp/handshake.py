"""The first words of a connection: server properties, login, and what both sides agree on.

Pure functions over values; `state_machine.py` calls them in the order of the drawing in
`lifecycle.py`.

SASL mechanisms: PLAIN (RFC 4616), AMQPLAIN, RabbitMQ's: the content of a field table, without its
length word, that holds LOGIN and PASSWORD, and EXTERNAL for whoever has shown a certificate: its
subject is the login, which the response may repeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from adapters.amqp import limits
from adapters.amqp.codec import spec
from adapters.amqp.codec.fields import EMPTY_TABLE, Table, decode_table, text_of
from adapters.amqp.errors import (
    ACCESS_REFUSED,
    COMMAND_INVALID,
    NOT_ALLOWED,
    RESOURCE_ERROR,
    AmqpError,
    LoginRefused,
)
from adapters.amqp.names import DEFAULT_VIRTUAL_HOST
from auth.errors import AuthCode, AuthError
from auth.principal import DEFAULT_TENANT
from auth.sign_in.sasl import PlainCredentials, parse_plain

EXTERNAL: Final = "EXTERNAL"
MECHANISMS: Final = ("PLAIN", "AMQPLAIN", EXTERNAL)
LOCALES: Final = b"en_US"

CAPABILITIES: Final = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}
"""What RabbitMQ's clients look for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpSettings:
    """Settings of the adapter that clients can tell. Defaults are those of `limits`."""

    product: str = "Weir"
    """Some clients read it: kombu decides by `RabbitMQ` and the version how prefetch works."""
    version: str = "0.1.0"
    cluster_name: str = "weir"
    connections_max: int = limits.CONNECTIONS_MAX
    channel_max: int = limits.CHANNEL_MAX
    frame_max: int = limits.FRAME_MAX
    heartbeat_s: int = limits.HEARTBEAT_S
    body_bytes_max: int = limits.BODY_BYTES_MAX
    handshake_timeout_ms: int = limits.HANDSHAKE_TIMEOUT_MS
    close_timeout_ms: int = limits.CLOSE_TIMEOUT_MS
    refusal_delay_ms: int = limits.REFUSAL_DELAY_MS
    virtual_hosts: Mapping[str, str] = field(
        default_factory=lambda: {DEFAULT_TENANT: DEFAULT_VIRTUAL_HOST}
    )
    """Virtual host by tenant; a tenant without one is its own."""

    def virtual_host_of(self, tenant: str) -> str:
        """The one virtual host that users of a tenant may open."""
        return self.virtual_hosts.get(tenant, tenant)


class Agreement(NamedTuple):
    """What tune and tune-ok settled. Heartbeat 0 is off."""

    channel_max: int
    frame_max: int
    heartbeat_s: int


@dataclass(frozen=True, slots=True)
class ClientFeatures:
    """What the client says it understands (`capabilities` of its properties), and its name."""

    wants_failure_close: bool = False
    """It is told of a refused login by connection.close; else the connection just drops."""
    wants_cancel_notify: bool = False
    """It may be sent basic.cancel."""
    wants_blocked: bool = False
    """It may be sent connection.blocked."""
    name: str = ""
    product: str = ""


def server_properties(settings: AmqpSettings) -> Table:
    """What connection.start says about us."""
    return Table.of(
        {
            "capabilities": CAPABILITIES,
            "cluster_name": settings.cluster_name,
            "copyright": "Apache-2.0",
            "information": "one queue for SQS, AMQP, MQTT and RocketMQ clients",
            "platform": "Python",
            "product": settings.product,
            "version": settings.version,
        }
    )


def start(settings: AmqpSettings, *, is_certified: bool = False) -> spec.ConnectionStart:
    """Our first word. `is_certified`: the client has shown a certificate."""
    offered = [each for each in MECHANISMS if is_certified or each != EXTERNAL]
    mechanisms = " ".join(offered).encode()
    return spec.ConnectionStart(0, 9, server_properties(settings), mechanisms, LOCALES)


def client_features(properties: Table) -> ClientFeatures:
    """What start-ok says about the client."""
    field = properties.get("capabilities")
    capabilities = (
        field.value if field is not None and isinstance(field.value, Table) else EMPTY_TABLE
    )

    def has(name: str) -> bool:
        found = capabilities.get(name)
        return found is not None and found.tag == "t" and found.value is True

    def text(name: str) -> str:
        return (text_of(properties.get(name)) or "")[: limits.CONNECTION_NAME_MAX]

    return ClientFeatures(
        wants_failure_close=has("authentication_failure_close"),
        wants_cancel_notify=has("consumer_cancel_notify"),
        wants_blocked=has("connection.blocked"),
        name=text("connection_name"),
        product=text("product"),
    )


def credentials(method: spec.ConnectionStartOk) -> PlainCredentials:
    """Login and password of start-ok.

    Raises AmqpError: 503 for a mechanism that was not offered, 403 for a response that is no login.
    """
    if method.mechanism == "PLAIN":
        try:
            return parse_plain(method.response)
        except AuthError as error:
            raise refused(method.mechanism, error.message) from None
    if method.mechanism == "AMQPLAIN":
        return _amqplain(method.response)
    raise AmqpError(COMMAND_INVALID, f"unknown authentication mechanism '{method.mechanism}'")


def certified_login(method: spec.ConnectionStartOk, certified: str | None) -> str:
    """Who a client with a certificate is. Raises AmqpError: 503 if it has none, 403 if it says that
    it is another.
    """
    if certified is None:
        raise AmqpError(COMMAND_INVALID, f"unknown authentication mechanism '{EXTERNAL}'")
    if method.response not in (b"", certified.encode()):
        raise refused(EXTERNAL, "the certificate is another user's")
    return certified


def _amqplain(response: bytes) -> PlainCredentials:
    block = len(response).to_bytes(4, "big") + response
    try:
        table, _ = decode_table(block, 0, len(block))
    except AmqpError:
        raise refused("AMQPLAIN", "the response is no table") from None
    login = text_of(table.get("LOGIN"))
    password = table.get("PASSWORD")
    if not login or password is None or not isinstance(password.value, bytes):
        raise refused("AMQPLAIN", "LOGIN or PASSWORD is missing")
    return PlainCredentials(login, password.value)


def refused(mechanism: str, why: str = "") -> LoginRefused:
    """A refused login."""
    text = f"Login was refused using authentication mechanism {mechanism}"
    return LoginRefused(ACCESS_REFUSED, f"{text}: {why}" if why else f"{text}.")


def sign_in_error(error: AuthError, mechanism: str) -> LoginRefused:
    """What a client is told of a sign-in that failed: 403, or 506 if nothing could be decided."""
    if error.code is AuthCode.BAD_CREDENTIALS:
        return refused(mechanism)
    if error.code.caller_fault:
        return refused(mechanism, error.message)
    return LoginRefused(RESOURCE_ERROR, f"login is not possible now: {error.message}")


def agree(settings: AmqpSettings, answer: spec.ConnectionTuneOk) -> Agreement:
    """What tune-ok makes of our offer. Raises AmqpError 530 where it asks for more than that.

    0 asks for no limit of the client's own, and so gets ours.
    """
    for name, asked, ours in (
        ("channel_max", answer.channel_max, settings.channel_max),
        ("frame_max", answer.frame_max, settings.frame_max),
    ):
        if asked > ours:
            raise AmqpError(
                NOT_ALLOWED,
                f"negotiated {name} = {asked} is higher than the maximum allowed value ({ours})",
            )
    frame_max = answer.frame_max or settings.frame_max
    if frame_max < limits.FRAME_MIN:
        raise AmqpError(
            NOT_ALLOWED,
            f"negotiated frame_max = {frame_max} is lower than the minimum allowed value "
            f"({limits.FRAME_MIN})",
        )
    return Agreement(answer.channel_max or settings.channel_max, frame_max, answer.heartbeat)
