"""The environment that all connections of the adapter share, and the port to their driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from adapters.amqp.origin import ORIGIN_BYTE
from adapters.transport import StreamHost

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from adapters.amqp.handshake import AmqpSettings
    from adapters.amqp.messages.stamps import Stamps
    from adapters.amqp.topology.declaring import Declarations
    from adapters.base import SignIn, TrafficMeter
    from adapters.limiting import Limiter
    from kernel.api.client import Client, Session
    from kernel.api.origins import Origins
    from kernel.api.tracing import ConnectedUser
    from kernel.common.ports import Random


class Counters:
    """What the adapter has done since it started. Plain integers, read when somebody asks."""

    __slots__ = (
        "acked",
        "commits",
        "confirmed",
        "connections",
        "connections_refused",
        "delivered",
        "logins_refused",
        "nacked",
        "published",
        "returned",
        "revoked",
        "rollbacks",
        "unroutable",
    )

    def __init__(self) -> None:
        self.connections = 0
        """Connections opened."""
        self.connections_refused = 0
        """Connections dropped at once, above `connections_max`."""
        self.logins_refused = 0
        self.published = 0
        """Messages submitted to the kernel."""
        self.confirmed = 0
        """Messages the kernel has stored, whether or not the client wanted to know."""
        self.nacked = 0
        """Messages the kernel has refused."""
        self.unroutable = 0
        """Messages without a destination, returned or dropped."""
        self.returned = 0
        self.delivered = 0
        self.acked = 0
        self.commits = 0
        """Transactions committed."""
        self.revoked = 0
        """Consumers ended because their user may not consume any more."""
        self.rollbacks = 0
        """Rolled back, as the client has asked."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Shared by all connections of one adapter."""

    client: Client
    origins: Origins
    declarations: Declarations
    sign_in: SignIn
    random: Random
    settings: AmqpSettings
    stamps: Stamps
    counters: Counters
    limiter: Limiter
    meter: TrafficMeter | None = None

    def open_session(self, host: AmqpHost, tenant: str, name: str) -> Session:
        """The kernel session of a connection that belongs to a tenant from now on."""
        host.signed_in(tenant)
        return self.client.open_session(name or host.peer, ORIGIN_BYTE, host.connected_user())


class AmqpHost(StreamHost, Protocol):
    """The driver of one connection: it moves bytes, and knows the time."""

    def signed_in(self, tenant: str) -> None:
        """It belongs to a tenant from now on."""

    def connected_user(self) -> ConnectedUser:
        """Who has signed in, and by which connection."""

    out: list[bytes]
    """Bytes to be written, in order; `write_soon` has them written."""
    bytes_in: int
    """Octets received so far: life is a change of it."""
    bytes_out: int
    """Octets written so far."""
    tenant: str
    """Whose connection it is; empty until that is known."""

    listener_name: str
    """Of the listener that it came by."""

    async def rest(self, delay_ms: int) -> None:
        """Return after so long, or a second: what is owed may be less by then."""

    def pause(self, delay_ms: int) -> None:
        """Do not read for so long; then call `Connection.go_on`."""

    def deliver_later(self, delay_ms: int) -> None:
        """Call `Connection.deliver_again` in so long."""

    def run(self, operation: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run to the end, unless the connection is lost first; then call `Connection.resume`."""

    def close(self, reason: str) -> None:
        """Write what is there and close the transport. `reason` is for the operator's log."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some point; never goes back."""
