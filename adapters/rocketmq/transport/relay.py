"""One port for TLS and plain text: who has connected is told by its first byte.

A TLS connection begins with a handshake record (RFC 8446 5.1: type 22), a plain one with the
preface of HTTP/2 (RFC 9113 3.4: `PRI * ...`). gRPC listens either for the one or for the other. So
a listener for both has a gRPC server with a port of each kind on loopback, and this relay before
them: it waits for the first byte, connects to the right one, and then only moves bytes.

    client ──► relay ──► gRPC's TLS port      first byte 22
                  └────► gRPC's plain port    any other

What one side does not take is not read from the other. What waits here is told to the budgets of
the gateway (`adapters.memory`): gRPC connects thousands of clients more slowly than they come.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from adapters.memory import Excess, Share
from adapters.read_scheduler import scheduler_of
from adapters.small_reads import SmallReads
from kernel.common.crowd import Crowd, address_of
from kernel.common.listening import PlainServer

from ..settings import FIRST_BYTE_S

if TYPE_CHECKING:
    from adapters.memory import ListenerMemory

TLS_HANDSHAKE: Final = 22

WAITING_BYTES_MAX: Final = 64 * 1024
"""What waits in each direction until the other side reads: one turn's worth at full speed."""

UNANSWERED_BYTES_MIN: Final = 8 * 1024
"""What was passed on to gRPC since it answered counts as input that is not finished from here on:
gRPC keeps what it has of a request until it has all of it, and tells nobody."""

ANSWER_BYTES_MIN: Final = 64
"""Of gRPC at once: less is no answer, but news of its windows, or an ACK of a PING or of SETTINGS
(9 to 17 bytes each, and 22 of TLS). An answer has at least headers, a message and trailers."""

GREETING_WRITES: Final = 4
"""So many times gRPC writes before it may have answered: its SETTINGS, the ACK of the client's, and
with TLS the handshake and its tickets."""


class Relay:
    """The relay of one listener. Belongs to the event loop."""

    def __init__(
        self,
        plain_port: int,
        tls_port: int,
        connections_max: int,
        memory: ListenerMemory,
        relayed: dict[str, str],
    ) -> None:
        """Both ports are gRPC's, on 127.0.0.1; `relayed`: whose the connections are that gRPC sees,
        by their address there.
        """
        self.memory = memory
        self.relayed = relayed
        self._ports = {False: plain_port, True: tls_port}
        self._connections_max = connections_max
        self.loop = asyncio.get_running_loop()
        self._server: PlainServer | None = None
        self._clients: Crowd[_ClientSide] = Crowd()
        """None of them is ever known: who signs a call is between gRPC and its client."""
        self._empty = asyncio.Event()
        """Set when the last client has gone."""
        self._connecting: set[asyncio.Task[None]] = set()
        self.refused = 0
        """Connections closed at once because there were too many."""

    def __len__(self) -> int:
        """Connections of clients."""
        return len(self._clients)

    async def start(self, host: str, port: int, *, reuse_port: bool) -> int:
        """Listen; the port. Raises OSError."""
        self._server = PlainServer(self.loop, lambda: _ClientSide(self))
        await self._server.start(host, port, reuse_port=reuse_port)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def close(self) -> None:
        """Take no new connection."""
        if self._server is not None:
            self._server.close()

    async def stop(self) -> None:
        """Close what connections are left, at once. Idempotent."""
        if self._server is not None:
            await self._server.stop()
        for client in self._clients:
            client.abort()
        for task in self._connecting:
            task.cancel()
        if self._connecting:
            await asyncio.wait(self._connecting)
        # An aborted transport gives its socket back in a later turn of the loop.
        if self._clients:
            await self._empty.wait()
        await asyncio.sleep(0)

    # --- What the connections ask -----------------------------------------------------------

    def entered(self, client: _ClientSide) -> bool:
        """A client has connected; False: there are too many, and none that goes for it: of another
        address that has more.
        """
        address = client.address()
        self._clients.add(address, client)
        self._empty.clear()
        if len(self._clients) <= self._connections_max:
            return True
        self.refused += 1
        out = self._clients.next_to_go()
        if self._clients.address(out) == address:
            self._clients.discard(client)
            return False
        self._clients.discard(out)
        out.abort()
        return True

    def left(self, client: _ClientSide) -> None:
        """Its connection has ended."""
        self._clients.discard(client)
        if not self._clients:
            self._empty.set()

    def connect(self, client: _ClientSide, *, tls: bool) -> None:
        """Connect a client with gRPC."""
        task = self.loop.create_task(self._connect(client, tls=tls))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, client: _ClientSide, *, tls: bool) -> None:
        try:
            port = self._ports[tls]
            await self.loop.create_connection(lambda: _ServerSide(client), "127.0.0.1", port)
        except OSError:
            # gRPC takes no more: the server is being stopped.
            client.abort()


def shown_address(name: tuple[object, ...] | None) -> str:
    """Address and port of one end of a connection; empty: it is not known."""
    if not name:
        return ""
    return f"[{name[0]}]:{name[1]}" if ":" in str(name[0]) else f"{name[0]}:{name[1]}"


class _Side(asyncio.Protocol):
    """One of the two connections; `other` is where its bytes go."""

    transport: asyncio.Transport
    other: _Side | None = None
    has_ended = False
    """No more comes from there."""

    def take(self, transport: asyncio.BaseTransport) -> None:
        """The connection has been made."""
        # uvloop's transports do not derive from asyncio's.
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(WAITING_BYTES_MAX)

    def pause_writing(self) -> None:
        """Nobody reads here: then the other side is not read either."""
        if self.other is not None:
            self.other.stop_reading()
        self.lags()

    def lags(self) -> None:
        """Bytes wait here until the other side reads."""

    def resume_writing(self) -> None:
        """It has read."""
        if self.other is not None:
            self.other.read_again()

    def stop_reading(self) -> None:
        """Read nothing more: it could not be passed on."""
        self.transport.pause_reading()

    def read_again(self) -> None:
        """Read on: the other side takes what is read."""
        self.transport.resume_reading()

    def eof_received(self) -> bool:
        """No more is written here; reading may go on (RFC 9293 3.6), until the other has ended too:
        then both are closed.
        """
        self.has_ended = True
        other = self.other
        if other is None or other.has_ended:
            return False
        other.transport.write_eof()
        return True

    def connection_lost(self, _error: Exception | None) -> None:
        """The connection has ended, and so does the other once it has what was written."""
        if self.other is not None:
            self.other.transport.close()
            self.other = None


class _ClientSide(_Side):
    """The connection of a client."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._first = b""
        self._unanswered = 0
        """Bytes passed on since gRPC answered."""
        self._answers = -GREETING_WRITES
        self._is_stopped = False
        """gRPC does not take what is read."""
        self._is_waiting = False
        """Others are read first (`read_scheduler`)."""
        self._timer: asyncio.TimerHandle | None = None
        self._input: Share | None = None
        self._output: Share | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected: its first byte is waited for."""
        self.take(transport)
        if not self._relay.entered(self):
            self.abort()
            return
        self.transport.set_protocol(SmallReads(self._relay.loop, self))
        self._timer = self._relay.loop.call_later(FIRST_BYTE_S, self.abort)

    def data_received(self, data: bytes) -> None:
        """Bytes of the client (hot)."""
        if self.other is not None:
            self.other.transport.write(data)
            self._unanswered += len(data)
            if self._unanswered >= UNANSWERED_BYTES_MIN:
                self.holds()
                self._let_others_go_first()
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._first = data
        self.transport.pause_reading()
        self.holds()
        self._relay.connect(self, tls=data[0] == TLS_HANDSHAKE)

    def relays(self, name: str) -> None:
        """gRPC knows it by that address from now on."""
        self._relay.relayed[name] = shown_address(self.transport.get_extra_info("peername"))

    def relays_no_more(self, name: str) -> None:
        """The connection with gRPC has ended."""
        self._relay.relayed.pop(name, None)

    def joined(self, other: _ServerSide) -> None:
        """gRPC has been connected with."""
        if self.transport.is_closing():
            other.transport.abort()
            return
        self.other, other.other = other, self
        other.transport.write(self._first)
        self._unanswered = len(self._first)
        self._first = b""
        self.transport.set_protocol(self)
        self.holds()
        self.read_again()

    def stop_reading(self) -> None:
        """Read nothing more, since gRPC does not take it."""
        self._is_stopped = True
        self.transport.pause_reading()

    def read_again(self) -> None:
        """Read on, unless others are to be read first."""
        self._is_stopped = False
        if not self._is_waiting:
            self.transport.resume_reading()

    def _let_others_go_first(self) -> None:
        if self._relay.memory.input.is_tight and not self._is_waiting:
            self._is_waiting = True
            self.transport.pause_reading()
            scheduler_of(self._relay.loop).wait(self.address(), self)

    def read_on(self) -> None:
        """It is its turn (`read_scheduler`)."""
        self._is_waiting = False
        if not self._is_stopped and not self.transport.is_closing():
            self.transport.resume_reading()

    def answered(self) -> None:
        """gRPC has written so much that it may be the answer to a call."""
        self._answers += 1
        if self._answers <= 0:
            return
        is_held = self._unanswered >= UNANSWERED_BYTES_MIN
        self._unanswered = 0
        if is_held:
            self.holds()

    # --- Memory -----------------------------------------------------------------------------

    def holds(self) -> None:
        """Something waits until gRPC takes it, or no more."""
        if self._input is None:
            self._input = Share(self.address(), self._drop_input, self._unfinished)
        self._relay.memory.input.note(self._input, self._unfinished(), self._relay.loop.call_soon)

    def _unfinished(self) -> int:
        if self.other is None:
            return len(self._first)
        waiting = self.other.transport.get_write_buffer_size()
        given = self._unanswered if self._unanswered >= UNANSWERED_BYTES_MIN else 0
        return max(given, waiting)

    def lags(self) -> None:
        """Something waits until the client reads it."""
        if self._output is None:
            self._output = Share(
                self.address(), self._drop_output, self.transport.get_write_buffer_size
            )
        size = self.transport.get_write_buffer_size()
        self._relay.memory.output.note(self._output, size, self._relay.loop.call_soon)

    def address(self) -> str:
        """Where it comes from, as far as that is told apart."""
        name = self.transport.get_extra_info("peername")
        return address_of(str(name[0])) if name else ""

    def _drop_input(self) -> None:
        self._drop(Excess.UNFINISHED_INPUT, self._input)

    def _drop_output(self) -> None:
        self._drop(Excess.UNREAD_OUTPUT, self._output)

    def _drop(self, why: Excess, share: Share | None) -> None:
        peer = shown_address(self.transport.get_extra_info("peername"))
        self._relay.memory.dropped(why, peer, share.peak if share is not None else 0)
        self._first = b""
        self.abort()

    def abort(self) -> None:
        """End it at once."""
        self.transport.abort()
        if self.other is not None:
            self.other.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """The client has gone."""
        if self._timer is not None:
            self._timer.cancel()
        memory = self._relay.memory
        for share, pool in ((self._input, memory.input), (self._output, memory.output)):
            if share is not None:
                pool.hold(share, 0)
        self._first = b""
        self._relay.left(self)
        super().connection_lost(error)


class _ServerSide(_Side):
    """The connection with gRPC for a client."""

    def __init__(self, client: _ClientSide) -> None:
        self._client = client
        self._name = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """gRPC has accepted the connection."""
        self.take(transport)
        self._client.joined(self)
        self._name = shown_address(transport.get_extra_info("sockname"))
        self._client.relays(self._name)

    def connection_lost(self, error: Exception | None) -> None:
        """gRPC has closed it, or its client has gone."""
        self._client.relays_no_more(self._name)
        super().connection_lost(error)

    def lags(self) -> None:
        """gRPC does not take what its client sends."""
        self._client.holds()

    def data_received(self, data: bytes) -> None:
        """Bytes of gRPC (hot)."""
        if self.other is not None:
            self.other.transport.write(data)
        if len(data) >= ANSWER_BYTES_MIN:
            self._client.answered()
