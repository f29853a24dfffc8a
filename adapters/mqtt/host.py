"""What a connection asks of its driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from adapters.transport import StreamHost

if TYPE_CHECKING:
    from kernel.api.tracing import ConnectedUser


class MqttHost(StreamHost, Protocol):
    """The driver of one connection: it moves bytes."""

    holds_deliveries: bool
    """The peer does not read fast enough, or is to get no more for now."""
    listener: str
    """Name of the listener that it came by."""

    def input_held(self) -> None:
        """What it holds of its input may be more, and has not just been read."""

    def deadline_moved(self) -> None:
        """The session's deadline is another one now, and may be nearer."""

    def connected_user(self) -> ConnectedUser:
        """Who has signed in, and by which connection."""

    def signed_in(self, tenant: str) -> None:
        """The connection is a tenant's: its octets are counted."""

    @property
    def is_paused(self) -> bool:
        """Whether it is not read because a limit is exceeded."""

    def pause(self, delay_ms: int) -> None:
        """Do not read for so long, and until nothing is owed (`ClientConnection.owes_ms`)."""

    def hold_deliveries(self, delay_ms: int) -> None:
        """Deliver nothing for so long, and until nothing is owed
        (`ClientConnection.delivery_owes_ms`).
        """

    def count_octets(self) -> None:
        """Count what came and went since the last time."""

    def close(self) -> None:
        """Write what is there and close the transport."""
