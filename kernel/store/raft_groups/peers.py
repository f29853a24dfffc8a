"""The other stores of the cluster, as a store sees them: a port."""

from __future__ import annotations

from typing import Protocol

from ...common.errors import Code, KernelError
from ...raft.messages import RaftMessage


class Peers(Protocol):
    """Carries messages between the members of Raft groups."""

    def send(self, group: int, message: RaftMessage) -> None:
        """Send a message to the node it names; it may get lost, never changed. Does not wait."""

    def flush(self) -> None:
        """Everything that this turn of the loop had to say has been said."""

    async def ask(self, node: int, question: bytes) -> bytes:
        """Put a question to another store (`transfer`). Raises KernelError."""


class Alone:
    """`Peers` of a store without others."""

    def send(self, group: int, message: RaftMessage) -> None:
        """Nothing is sent: there is no other store."""

    def flush(self) -> None:
        """Nothing is sent: there is no other store."""

    async def ask(self, node: int, question: bytes) -> bytes:
        """Nothing is asked: there is no other store."""
        raise KernelError(Code.UNAVAILABLE, f"no node {node}")
