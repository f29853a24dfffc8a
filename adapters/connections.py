"""Connections as operators see them: listed with what they do, and closed one at a time.

Column names are RabbitMQ's where it has the thing. Nothing is counted for this: an adapter says
what its connections know, when somebody asks.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from kernel.api.tracing import ConnectedUser

if TYPE_CHECKING:
    from collections.abc import Iterator

DETAILS_MAX: Final = 1_000
"""Channels, and consumers of a channel, that are shown of one connection."""

CLIENT_CHARACTERS_MAX: Final = 256
"""Of what a client calls its library."""

_NUMBERS: Final = count(1)


def next_number() -> int:
    """A number for a connection: no other of this process ever has it."""
    return next(_NUMBERS)


def id_of(protocol: str, number: int) -> str:
    """What a connection is called."""
    return f"{protocol}-{number}"


def connected_user(
    protocol: str, owner: tuple[str, str], address: str, number: int
) -> ConnectedUser:
    """Who publishes and takes by a connection, for traces of messages; `owner`: tenant and user."""
    return ConnectedUser(*owner, protocol, address, id_of(protocol, number))


class ConsumerShown(Struct, frozen=True):
    """Something that a client consumes: a consumer, a subscription."""

    consumer_tag: str
    queue: str
    """As the client names it: a queue, a topic filter."""
    ack_required: bool
    prefetch_count: int
    """0: no limit."""
    messages_unacknowledged: int


class ChannelShown(Struct, frozen=True):
    """A channel, or the session that an MQTT connection is."""

    number: int
    state: str
    confirm: bool
    transactional: bool
    prefetch_count: int
    messages_unacknowledged: int
    consumers: list[ConsumerShown]


class ConnectionShown(Struct, frozen=True, kw_only=True):
    """One connection. What a protocol does not know, or not yet, is empty."""

    id: str
    """Of this gateway's connections, for as long as the process runs."""
    protocol: str
    listener: str
    peer: str
    """Address and port."""
    ssl: bool
    tenant: str
    """Empty until somebody has signed in."""
    user: str
    client_id: str
    """What the client calls itself."""
    client: str
    """Its library."""
    state: str
    waits_for: str
    """Why it is not read, or gets nothing, just now; empty: nothing is in its way."""
    connected_s: float
    """Since it came."""
    channels: int
    consumers: int
    messages_unacknowledged: int
    recv_oct: int
    send_oct: int


class OpenConnection(Protocol):
    """A connection that an adapter shows (`base.Adapter.connections`)."""

    @property
    def number(self) -> int:
        """From `next_number`."""

    @property
    def owner(self) -> tuple[str, str]:
        """Tenant and user; empty until somebody has signed in."""

    def shown(self) -> ConnectionShown:
        """What it is now."""

    def channels_shown(self) -> Iterator[ChannelShown]:
        """Its channels with their consumers, DETAILS_MAX of each."""

    def end(self, reason: str) -> None:
        """Say goodbye in the protocol's own way, with a reason for people, and close it."""
