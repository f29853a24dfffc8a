"""A client connection, as the kernel knows it."""

from __future__ import annotations

from typing import Protocol

from ..common.ids import SessionId
from .tracing import ConnectedUser


class Session(Protocol):
    """A client connection as the kernel knows it: owner of leases, of exclusive topics and of the
    order of what it publishes. Ends with `close`; leases return, transient property goes.
    """

    id: SessionId
    epoch: int
    origin: int
    """Whose traffic it is (`kernel.api.origins`), for counting."""
    by: ConnectedUser | None
    """Who it is, for traces; None: nobody in particular."""

    def close(self) -> None:
        """End the session: return its leases (counted as redelivered), delete what it owns.

        Idempotent, does not wait.
        """
