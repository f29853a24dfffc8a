"""What every connection of the adapter shares."""

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

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from adapters.base import Rights
    from adapters.limiting import Limiter
    from adapters.mqtt.codec.topic_names import TopicNames
    from adapters.mqtt.counters import Counters
    from adapters.mqtt.delivery.system_topics import BrokerFigures
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
    figures: BrokerFigures
    traffic: TrafficBook
    closings: Closings
    limiter: Limiter
    run: Callable[[Coroutine[object, object, None]], object]
    """Runs a coroutine that deals with its own errors."""
    soon: Callable[[Callable[[], None]], object]
    """Calls in the next turn of the event loop."""
