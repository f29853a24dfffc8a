"""What every connection of the adapter shares, and what it asks of its driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from adapters.mqtt.config import SessionConfig
from adapters.mqtt.limits import (
    BACKLOG_MESSAGES_MAX,
    RETAINED_PER_FILTER_MAX,
    SUBSCRIPTIONS_PER_SESSION_MAX,
)
from adapters.transport import StreamHost

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from adapters.base import Rights
    from adapters.mqtt.codec.topic_names import TopicNames
    from adapters.mqtt.delivery.system_topics import Figures
    from adapters.mqtt.messages.stored import NamesKnown
    from adapters.mqtt.reporting.closings import Closings
    from adapters.mqtt.reporting.traffic import TrafficBook
    from adapters.mqtt.subscriptions.live import LiveRouter
    from kernel.api.client import Client
    from kernel.api.tree import Tree
    from kernel.common.ports import Clock, Random


class Login(msgspec.Struct, frozen=True):
    """What a CONNECT says of who is there, for a sign-in to judge."""

    username: str | None
    password: bytes | None
    client_id: str
    address: str
    """The peer, `host:port`."""
    certified: str | None = None
    """The login that its certificate names, if it has shown one."""


class MqttSignIn(Protocol):
    """Turns a CONNECT into rights: by the users of the store, or by plugins."""

    async def sign_in(self, login: Login) -> Rights:
        """Who this is and what it may do. Raises `auth.errors.AuthError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSettings:
    """Settings of the adapter beyond those of one session."""

    session: SessionConfig = field(default_factory=SessionConfig)
    connections_max: int = 65_536
    """Each costs a socket and some kilobytes; further ones are refused at once."""
    retained_per_filter_max: int = RETAINED_PER_FILTER_MAX
    backlog_messages_max: int = BACKLOG_MESSAGES_MAX
    subscriptions_max: int = SUBSCRIPTIONS_PER_SESSION_MAX
    amqtt_plugins: str = ""
    """A file of amqtt plugins that decide who may do what; empty: the users of the store."""


class Counters:
    """What the adapter has done since it started. Plain integers, read when somebody asks."""

    __slots__ = (
        "connections",
        "connections_refused",
        "delivered",
        "dropped_slow",
        "keep_alive_timeouts",
        "logins_refused",
        "nobody",
        "not_authorized",
        "not_owner",
        "publish_refused",
        "published",
        "retained_sent",
        "revoked",
        "taken_over",
        "too_large",
        "withheld",
    )

    def __init__(self) -> None:
        self.connections = 0
        """Connections opened."""
        self.connections_refused = 0
        """Connections dropped at once, above `connections_max`."""
        self.logins_refused = 0
        self.not_owner = 0
        """Connections refused since their client id is not their user's: somebody else's session
        has it, or no policy allows it."""
        self.published = 0
        """Messages submitted to the kernel."""
        self.publish_refused = 0
        """Messages that the kernel has refused."""
        self.nobody = 0
        """Messages that nobody gets."""
        self.not_authorized = 0
        """Messages that their publisher may not publish."""
        self.delivered = 0
        """Deliveries to clients, retained ones and repetitions included."""
        self.retained_sent = 0
        self.revoked = 0
        """Connections ended because their user may not consume any more what it subscribed to."""
        self.dropped_slow = 0
        """Live messages that a client did not take in time."""
        self.too_large = 0
        """Deliveries left out because the client's maximum packet size is less."""
        self.taken_over = 0
        """Connections ended because their client id connected anew."""
        self.withheld = 0
        """Subscriptions of resumed sessions that bring nothing, since the user has no right."""
        self.keep_alive_timeouts = 0


@dataclass(frozen=True, slots=True)
class Environment:
    """Shared by all connections of one adapter."""

    client: Client
    tree: Tree
    sign_in: MqttSignIn
    clock: Clock
    random: Random
    settings: MqttSettings
    names: TopicNames
    known: NamesKnown
    live: LiveRouter
    counters: Counters
    """What is counted for no tenant; the others are in `figures`."""
    figures: Figures
    traffic: TrafficBook
    closings: Closings
    run: Callable[[Coroutine[object, object, None]], object]
    """Runs a coroutine that deals with its own errors."""
    soon: Callable[[Callable[[], None]], object]
    """Calls in the next turn of the event loop."""


class Host(StreamHost, Protocol):
    """The driver of one connection: it moves bytes."""

    is_writing_paused: bool
    """The peer does not read fast enough."""
    listener: str
    """Name of the listener that it came by."""

    def deadline_moved(self) -> None:
        """The session's deadline is another one now, and may be nearer."""

    def signed_in(self, tenant: str) -> None:
        """The connection is a tenant's: its octets are counted."""

    def count_octets(self) -> None:
        """Count what came and went since the last time."""

    def close(self) -> None:
        """Write what is there and close the transport."""
