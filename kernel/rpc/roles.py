"""One listener for all kinds of processes: a new connection goes to the handler of its role.

The role stands in the hello and is believed once the handshake is done, as everything in it is.
"""

from __future__ import annotations

from .channel import Channel, Handler, Reply
from .frame import RpcError
from .handshake import Admit, Hello

STORE = "store"
GATEWAY = "gateway"


class Roles:
    """`channel.Handler` of channels whose other end is not known yet."""

    def __init__(self) -> None:
        self._handlers: dict[str, tuple[Handler, Admit]] = {}
        self.refused = ""
        """Why the last process that dialled, and then did not want this one, said so."""

    def serve(self, role: str, handler: Handler, admit: Admit) -> None:
        """Have processes of a role served by `handler`, if `admit` lets them in."""
        self._handlers[role] = handler, admit

    def admit(self, peer: Hello) -> str | None:
        """Why a process may not connect; None if it may."""
        known = self._handlers.get(peer.role)
        if known is None:
            return f"a process of role {peer.role[:40]!r} is not served here"
        return known[1](peer)

    def opened(self, channel: Channel, peer: Hello) -> None:
        """The handshake is done: everything goes to the handler of that role from now on."""
        channel.handler = self._handlers[peer.role][0]
        channel.handler.opened(channel, peer)

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """Never before the channel is open, and then it has another handler."""
        raise RpcError("a call before the connection is open")

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """As `called`."""
        raise RpcError("a message before the connection is open")

    def closed(self, channel: Channel, reason: str) -> None:
        """Nothing to do: it was never open."""
        if channel.was_turned_away:
            self.refused = reason
