"""Where gateways reach each other: one listens, each dials all the others.

Whoever dials tells what lives in its memory, and is asked for it by the same connection; so a pair
has two, and each is of use to one of them alone.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from ...common.ports import Clock
from ...rpc.channel import Channel, Handler, Reply
from ...rpc.handshake import Hello
from ...rpc.link import Acceptor, Dialer, TurnedAway
from ...rpc.roles import GATEWAY
from .remote_memory import RemoteMemory

CONNECTIONS_MAX = 1_024
"""Gateways of one cluster. Those that have not proved that they are some are fewer (`rpc.link`)."""

Address = tuple[str, int]


def address_of(text: str) -> Address | None:
    """HOST:PORT as gateways tell where they are; None: nothing that could be dialled."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 1 << 16:
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


class MeetingPoint:
    """One gateway's listener, and how it dials."""

    def __init__(
        self,
        own: Callable[[], Hello],
        secret: bytes,
        clock: Clock,
        *,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        turned_away: TurnedAway | None = None,
    ) -> None:
        """`own`: who this gateway is, with a new nonce each time, as it tells stores. `turned_away`
        hears of every process that was not let in.
        """
        self._own = own
        self._secret = secret
        self._clock = clock
        self._client_tls = client_tls
        self._remote_processes: _DiallingGateways | None = None
        self.acceptor = Acceptor(self._accepted, clock, server_tls, CONNECTIONS_MAX, turned_away)

    @property
    def own(self) -> str:
        """Id of this process, as stores know it."""
        return self._own().store

    async def listen(self, host: str, port: int) -> Address:
        """Listen; the address, which belongs into the hello. Raises OSError."""
        return await self.acceptor.start(host, port)

    def serve(self, remote_memory: RemoteMemory) -> None:
        """Let other gateways in: what they tell goes there."""
        self._remote_processes = _DiallingGateways(remote_memory)

    async def stop(self) -> None:
        """Close the listener and what has come in by it."""
        await self.acceptor.stop()

    def _accepted(self, wake: Callable[[], None]) -> Channel:
        own, now_ms = self._own(), self._clock.monotonic_ms()
        handler = self._remote_processes or _DiallingGateways(None)

        def admit(peer: Hello) -> str | None:
            if handler.remote_memory is None:
                return "this gateway does not serve yet"
            if (peer.cluster, peer.role) != (own.cluster, GATEWAY):
                return f"{peer.role} of cluster {peer.cluster!r} is no gateway of this cluster"
            return None

        return Channel(own, self._secret, admit, handler, wake, now_ms, is_dialer=False)

    def dialer(self, process: str, address: Address, handler: Handler) -> Dialer:
        """What keeps a connection to another gateway up; starts with `start`."""

        def make(wake: Callable[[], None]) -> Channel:
            own, now_ms = self._own(), self._clock.monotonic_ms()

            def admit(peer: Hello) -> str | None:
                wanted = own.cluster, GATEWAY, process
                if (peer.cluster, peer.role, peer.store) != wanted:
                    return "another process has that address now"
                return None

            return Channel(own, self._secret, admit, handler, wake, now_ms, is_dialer=True)

        return Dialer(*address, make, self._clock, self._client_tls)


class _DiallingGateways:
    """`rpc.channel.Handler` of gateways that have dialled."""

    def __init__(self, remote_memory: RemoteMemory | None) -> None:
        self.remote_memory = remote_memory

    def opened(self, channel: Channel, peer: Hello) -> None:
        """One has come."""
        assert self.remote_memory is not None
        self.remote_memory.opened(channel, peer)

    def closed(self, channel: Channel, reason: str) -> None:
        """It has gone."""
        if self.remote_memory is not None:
            self.remote_memory.closed(channel)

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """It says something."""
        assert self.remote_memory is not None
        self.remote_memory.told(channel, method, payload)

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """It says something, and wants an answer."""
        assert self.remote_memory is not None
        self.remote_memory.called(channel, method, payload, reply)
