"""Sessions of this process's clients: owners of leases and of transient topics."""

from __future__ import annotations

from typing import Protocol

from ..api.tracing import ConnectedUser
from ..broker.delivery.consumers import DispatchedConsumer
from ..common.ids import SessionId

SESSION_PRUNE = 64
"""A session forgets its cancelled consumers when it knows twice as many as are left, and so many
more."""


class SessionHost(Protocol):
    """What a session asks of its client."""

    def end_session(self, session: LocalSession) -> None:
        """Return its leases, delete what it owns."""


class LocalSession:
    """Keeps what a connection of a protocol consumes, until it is closed (`client.Session`)."""

    __slots__ = (
        "_client",
        "by",
        "closed",
        "consumers",
        "epoch",
        "id",
        "name",
        "origin",
        "prune_at",
        "pulls",
    )

    def __init__(
        self,
        client: SessionHost,
        ident: SessionId,
        name: str,
        origin: int,
        by: ConnectedUser | None = None,
    ) -> None:
        self._client = client
        self.id = ident
        self.epoch = 1
        self.name = name
        self.origin = origin
        self.by = by
        self.consumers: dict[DispatchedConsumer, None] = {}
        self.pulls: dict[tuple[int, str], DispatchedConsumer] = {}
        self.closed = False
        self.prune_at = SESSION_PRUNE

    def prune(self) -> None:
        """Forget consumers that are cancelled and hold nothing."""
        for consumer in [each for each in self.consumers if each.ended and not each.held]:
            del self.consumers[consumer]
        self.prune_at = 2 * len(self.consumers) + SESSION_PRUNE

    def close(self) -> None:
        """End the session (see `client.Session`)."""
        if not self.closed:
            self.closed = True
            self._client.end_session(self)
