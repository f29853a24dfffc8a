"""Shared by adapters that own their sockets: listeners, joined writes, flow control.

Knows bytes and nothing of what they mean. A protocol's driver subclasses `StreamProtocol`, hands
incoming bytes to its state machine, and puts outgoing ones into `out`.

Flow control is the event loop's own, in both directions:

* writing: when a peer does not read, the transport's buffer passes its high-water mark and
  `writing_paused` is called; `writing_resumed` follows when it has drained. What a driver must do
  in between is stop producing.
* reading: reasons to stop reading are counted by name (`hold_reading`, `release_reading`), so that
  two of them do not undo one another.

While several tenants are active, what comes is taken in turn (`fair_scheduler`), if a driver has
said whose the connection is (`shares_as`): until it is, nothing more is read.

What a connection holds in memory is told to the budgets of the gateway (`memory`): unread output
here, by all drivers alike; unfinished input by the driver, which knows it, at the end of a read.
"""

from __future__ import annotations

import asyncio
import select
import socket
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, cast

from adapters.connections import next_number
from adapters.fair_scheduler import NOBODY, PART_BYTES_MAX, FairScheduler, Place, TenantShare
from adapters.lingering import LINGERING
from adapters.listener_figures import UNCOUNTED, ListenerFigures
from adapters.memory import Excess, Share
from adapters.read_scheduler import scheduler_of
from adapters.small_reads import SmallReads
from adapters.tls_server import TlsServer
from auth.private_files.tls import login_of
from kernel.common.crowd import Crowd, address_of
from kernel.common.fairness import WriteRounds
from kernel.common.listening import PlainServer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from adapters.base import ListenerAddress
    from adapters.memory import ListenerMemory

WRITE_BUFFER_BYTES_MAX = 256 * 1024
"""High-water mark of a connection's send buffer: two of the largest usual frames."""

_LEFT: Final[int] = getattr(select, "POLLRDHUP", 0)
"""Besides that the connection is broken, which is always told: that its peer has closed it, where
the system has a word for that (Linux)."""

_KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A peer that is not there is found in a minute (`watch_peer`). Only while a connection is held: a
device on a battery is not to be woken that often by each broker that it is connected to."""

_NO_HOLDS: frozenset[str] = frozenset()

_TURN = "turn"
"""A reason not to read."""

_SHARED = "shared"
"""Another one: what has come waits for its turn beside other tenants."""

_SHARED_ALONE: Final = frozenset({_SHARED})


def _never(*_: object) -> asyncio.TimerHandle:
    raise AssertionError("nobody shares")


_UNSHARED: Final = FairScheduler(WriteRounds(), _never, _never, lambda: 0)
"""Of connections that do not say whose they are."""


class StreamHost(Protocol):
    """What a connection's state machine asks of its `StreamProtocol`, in every protocol."""

    def write_soon(self) -> None:
        """Write what there is to send at the end of this turn of the event loop."""

    def hold_reading(self, reason: str) -> None:
        """Stop reading until `release_reading` is called with the same reason."""

    def release_reading(self, reason: str) -> None:
        """The reason is gone."""

    def take_turn(self) -> None:
        """Be read again when others have been: for what is only to be dropped."""

    @property
    def is_reading_held(self) -> bool:
        """Whether there is a reason not to read."""

    @property
    def is_waiting_for_turn(self) -> bool:
        """Whether something has come that had no turn yet: who sent it is not silent."""

    def lags(self) -> None:
        """Something begins to wait until the peer reads, or answers, what was sent before."""

    @property
    def peer(self) -> str:
        """The peer's address, for operators."""

    @property
    def certified(self) -> str | None:
        """The login that the peer's certificate names; None: it has shown none."""

    @property
    def figures(self) -> ListenerFigures:
        """Of the listener by which it came."""


class StreamProtocol(asyncio.Protocol):
    """One connection: collects output and writes it once per turn of the event loop."""

    __slots__ = (
        "__weakref__",
        "_closing",
        "_holds",
        "_input",
        "_memory",
        "_output",
        "_place",
        "_reads_as",
        "_tenant_share",
        "_untaken",
        "_untaken_at",
        "_write_scheduled",
        "bytes_in",
        "bytes_out",
        "figures",
        "is_writing_paused",
        "loop",
        "number",
        "opened_s",
        "out",
        "transport",
        "turns",
    )

    work_us = 0
    """See `fair_scheduler.Reading`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        memory: ListenerMemory,
        turns: FairScheduler | None = None,
        figures: ListenerFigures | None = None,
    ) -> None:
        """`turns`: whose turn it is to be read; None: it is never shared out. `figures`: of its
        listener; None: nobody counts.
        """
        self.loop = loop
        self.number = next_number()
        self.opened_s = loop.time()
        """When it came, by the loop's clock."""
        self._memory = memory
        self.figures = figures or UNCOUNTED
        self.turns = turns or _UNSHARED
        self._tenant_share = self.turns.strangers
        # Whom `turns.alone` has to be for what comes to be taken at once.
        self._reads_as: TenantShare = NOBODY if turns is None else self._tenant_share
        self._place: Place | None = None
        self._untaken = b""
        """What has come and waits for its turn, from `_untaken_at` on."""
        self._untaken_at = 0
        # Made when there is something to hold: most connections never have one.
        self._input: Share | None = None
        self._output: Share | None = None
        self.transport: asyncio.Transport | None = None
        self.out: list[bytes] = []
        """Bytes to be written; a driver appends and calls `write_soon`."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.is_writing_paused = False
        self._write_scheduled = False
        self._closing = False
        # Made for the first reason: an idle connection has none.
        self._holds: frozenset[str] = _NO_HOLDS

    @property
    def waits_for(self) -> str:
        """Why it is not read, or not written to; empty: for nothing."""
        held = sorted(self._holds)
        return ", ".join(["the client to read", *held] if self.is_writing_paused else held)

    @property
    def is_secret(self) -> bool:
        """Whether what it carries is encrypted."""
        transport = self.transport
        return transport is not None and transport.get_extra_info("ssl_object") is not None

    # --- To be overridden -------------------------------------------------------------------

    def opened(self) -> None:
        """The connection is there; `transport` is set."""

    def received(self, data: bytes) -> None:
        """One socket read brought these bytes."""

    def turn_ending(self) -> None:
        """`out` is about to be written: the last moment to add to it in this turn."""

    def writing_paused(self) -> None:
        """The peer does not read fast enough: produce no more."""

    def writing_resumed(self) -> None:
        """The peer has caught up."""

    def closed(self, error: Exception | None) -> None:
        """The connection is gone; nothing can be written any more."""

    def backlog_bytes(self) -> int:
        """What waits for the peer to read, besides what was written. Asked while it does not read,
        about once a second.
        """
        return 0

    @property
    def unfinished_bytes(self) -> int:
        """What has come of a request, frame, packet or message that is not whole. Asked again while
        there is any, about once a second: it may be over without a further read.
        """
        return 0

    def refuse_input(self) -> None:
        """Its unfinished input is too much for the gateway: let go of it and close, with the
        protocol's own word for that.
        """
        self.abort()

    def refuse_output(self) -> None:
        """Its unread output is too much for the gateway. There is no word for that which a peer
        that does not read would hear.
        """
        self.abort()

    # --- Memory -----------------------------------------------------------------------------

    def hold_input(self, size: int) -> None:
        """So many bytes of unfinished input are held now. To be called at the end of a read, if
        there are any or there were (`has_input`).
        """
        share = self._input
        if share is None:
            share = self._input = Share(self.judged_as(), self._drop_input, self._unfinished)
        pool = self._memory.input
        size += len(self._untaken) - self._untaken_at
        pool.hold(share, size, self.loop.call_soon)
        if size and pool.is_tight:
            self.take_turn()

    def _unfinished(self) -> int:
        return self.unfinished_bytes + len(self._untaken) - self._untaken_at

    @property
    def has_input(self) -> bool:
        """Whether unfinished input was held at the last `hold_input`."""
        return self._input is not None and self._input.bytes > 0

    def judged_as(self) -> str:
        """Its address, as far as those are told apart."""
        return address_of(self.peer.rpartition(":")[0].strip("[]"))

    def _drop_input(self) -> None:
        share, self._input = self._input, None
        if share is not None and not self._closing:
            self._memory.dropped(Excess.UNFINISHED_INPUT, self.peer, share.peak)
            self.refuse_input()

    def lags(self) -> None:
        """The peer has not read all that was written, or something begins to wait behind that."""
        share = self._output
        if share is None:
            share = self._output = Share(self.judged_as(), self._drop_output, self._unread)
        self._memory.output.note(share, max(1, self._unread()), self.loop.call_soon)

    def _unread(self) -> int:
        transport = self.transport
        if transport is None:
            return 0
        return transport.get_write_buffer_size() + self.backlog_bytes()

    def _drop_output(self) -> None:
        share, self._output = self._output, None
        if share is not None and self.transport is not None:
            self._memory.dropped(Excess.UNREAD_OUTPUT, self.peer, share.peak)
            self.refuse_output()

    def _leave_output(self, transport: asyncio.Transport) -> None:
        """It is closed, and perhaps not read to its end: what was written counts as long as it is
        there, and goes at the end of the budget without a word.
        """
        if transport.get_write_buffer_size():
            self.lags()
        share, self._output = self._output, None
        if share is not None:
            share.drop, share.measure = transport.abort, transport.get_write_buffer_size

    def _let_go(self) -> None:
        """The connection is gone, and what it held."""
        for share, pool in ((self._input, self._memory.input), (self._output, self._memory.output)):
            if share is not None:
                pool.hold(share, 0)
        self._input = self._output = None

    def take_turn(self) -> None:
        """Be read again when others have been (`read_scheduler`)."""
        if _TURN not in self._holds and not self._closing:
            self.hold_reading(_TURN)
            scheduler_of(self.loop).wait(self.judged_as(), self)

    def read_on(self) -> None:
        """It is this one's turn."""
        self.release_reading(_TURN)

    # --- Turns beside other tenants ---------------------------------------------------------

    def shares_as(self, tenant: str) -> None:
        """It is a tenant's from now on."""
        turns, place = self.turns, self._place
        is_waiting = place is not None and place.is_in
        if place is not None and is_waiting:
            turns.leave(place)
        if self._reads_as is self._tenant_share:
            self._reads_as = turns.tenant(tenant)
        self._tenant_share = turns.tenant(tenant)
        turns.sends(self._tenant_share)
        if place is not None:
            place.tenant = self._tenant_share
            if is_waiting:
                turns.wait(place)

    def _share_out(self, data: bytes) -> None:
        """Take what has come, now or in turn."""
        turns, tenant = self.turns, self._tenant_share
        if self._untaken:
            self._untaken = self._untaken[self._untaken_at :] + data
            self._untaken_at = 0
        elif not turns.sends(tenant):
            if self._reads_as is not tenant:
                self._reads_as = tenant
                self.read_much()
            self.received(data)
        elif self._memory.input.is_tight:
            # Nothing is kept that could be taken.
            self.received(data)
        elif turns.at_once(tenant, len(data)):
            turns.take_at_once(tenant, len(data), partial(self.received, data))
        else:
            self._untaken = data
            self.hold_reading(_SHARED)
            if self._reads_as is not turns.strangers and self.transport is not None:
                self._reads_as = turns.strangers
                self.transport.set_protocol(SmallReads(self.loop, self, PART_BYTES_MAX))
            self.hold_input(self.unfinished_bytes)
            self.wait_for_turn()

    def wait_for_turn(self) -> None:
        """Have `take_part` called when it is its turn."""
        if self._place is None:
            self._place = Place(self, self._tenant_share)
        self.turns.wait(self._place)

    @property
    def is_waiting_for_turn(self) -> bool:
        """Whether something has come that had no turn: who sent it is not silent."""
        return bool(self._untaken)

    def has_part(self) -> bool:
        """See `fair_scheduler.Reading`."""
        return bool(self._untaken) and self._holds == _SHARED_ALONE

    def take_part(self, most_bytes: int) -> int:
        """See `fair_scheduler.Reading`."""
        at = self._untaken_at
        part = self._untaken[at : at + most_bytes]
        self._untaken_at = at + len(part)
        if self._untaken_at >= len(self._untaken):
            self._forget_untaken()
        self.received(part)
        if not self._untaken:
            if self.has_input:
                self.hold_input(self.unfinished_bytes)
            self.release_reading(_SHARED)
        return len(part)

    def take_untaken(self) -> bytes:
        """All that has come and had no turn: it is not waited for any more."""
        untaken = self._untaken[self._untaken_at :]
        self._forget_untaken()
        return untaken

    def _forget_untaken(self) -> None:
        self._untaken, self._untaken_at = b"", 0

    # --- Output -----------------------------------------------------------------------------

    def write_soon(self) -> None:
        """Have `out` written at the end of this turn of the event loop."""
        if not self._write_scheduled:
            self._write_scheduled = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write `out` now, in one call."""
        # First, so that `turn_ending` can ask for another turn.
        self._write_scheduled = False
        self.turn_ending()
        out = self.out
        if not out:
            return
        transport = self.transport
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        if transport is not None and not self._closing and not transport.is_closing():
            self.bytes_out += len(data)
            transport.write(data)
            # The socket has taken it, but for what its peer is behind.
            if transport.get_write_buffer_size():
                self.lags()

    def close(self) -> None:
        """Write what is there, then close; bytes that still come in are ignored. Idempotent.

        The socket lingers, so that the last words arrive (see `lingering`); `closed` comes soon.
        """
        if self._closing:
            return
        self.flush()
        self._closing = True
        self._forget_untaken()
        transport = self.transport
        if transport is None:
            return
        self._leave_output(transport)
        if not transport.is_closing() and LINGERING.take(self.loop, transport):
            self.loop.call_soon(self.connection_lost, None)
        else:
            transport.close()

    def abort(self) -> None:
        """Drop the connection with whatever was not written. Idempotent."""
        self._closing = True
        self._forget_untaken()
        if self.transport is not None:
            self.transport.abort()

    @property
    def peer(self) -> str:
        """The peer's address, `host:port`; empty if it has none (a socket pair)."""
        name = self.transport.get_extra_info("peername") if self.transport is not None else None
        if not isinstance(name, tuple) or len(name) < 2:
            return ""
        host = f"[{name[0]}]" if ":" in str(name[0]) else str(name[0])
        return f"{host}:{name[1]}"

    @property
    def certified(self) -> str | None:
        """The login that the peer's certificate names, which TLS has verified; None: it has shown
        none.
        """
        shown = self.transport.get_extra_info("peercert") if self.transport is not None else None
        return login_of(shown)

    # --- Flow control -----------------------------------------------------------------------

    def hold_reading(self, reason: str) -> None:
        """Stop reading until `release_reading` is called with the same reason."""
        if not self._holds and not self._closing:
            self._set_reading(on=False)
        self._holds |= {reason}

    def release_reading(self, reason: str) -> None:
        """The reason is gone; read again if it was the last one."""
        if reason not in self._holds:
            return
        self._holds -= {reason}
        if self._closing:
            return
        if not self._holds:
            self._set_reading(on=True)
        elif self._holds == _SHARED_ALONE:
            self.wait_for_turn()

    def _set_reading(self, *, on: bool) -> None:
        transport = self.transport
        if transport is not None and not transport.is_closing():
            if on:
                transport.resume_reading()
            else:
                transport.pause_reading()

    @property
    def is_reading_held(self) -> bool:
        """Whether there is a reason not to read."""
        return bool(self._holds)

    def watch_peer(self) -> None:
        """Have the system ask from time to time whether the peer is still there. What a peer has
        closed behind more than the socket takes is not seen to be closed otherwise.
        """
        transport = self.transport
        held = None if transport is None else transport.get_extra_info("socket")
        if held is not None and held.family in {socket.AF_INET, socket.AF_INET6}:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEP_ALIVE.items():
                if hasattr(socket, name):
                    held.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def has_been_left(self) -> bool:
        """Whether the peer has closed its end, or the connection is broken: the event loop does not
        say so of one that is not read. What was sent before may be in the socket still.
        """
        transport = self.transport
        held = None if transport is None else transport.get_extra_info("socket")
        if held is None or transport is None or transport.is_closing():
            return True
        look = select.poll()
        look.register(held.fileno(), _LEFT)
        return bool(look.poll(0))

    def read_little(self) -> None:
        """Little at once, until its client is known (`small_reads`). To be called in `opened`."""
        if self.transport is not None:
            self.transport.set_protocol(SmallReads(self.loop, self))

    def read_much(self) -> None:
        """As much at once as there is, from now on."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        # How it is read is settled when reading begins.
        transport.pause_reading()
        transport.set_protocol(self)
        if not self._holds:
            transport.resume_reading()

    # --- asyncio.Protocol -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        # uvloop's transports are none of asyncio's classes.
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        self.opened()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        if not self._closing:
            self.bytes_in += len(data)
            if self.turns.alone is self._reads_as:
                self.received(data)
            else:
                self._share_out(data)

    def pause_writing(self) -> None:
        """Called by the event loop."""
        self.is_writing_paused = True
        self.writing_paused()
        self.lags()

    def resume_writing(self) -> None:
        """Called by the event loop."""
        self.is_writing_paused = False
        self.writing_resumed()
        if self._output is not None:
            self.lags()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop, once. What has come before counts, also if its turn has not."""
        untaken = self.take_untaken()
        if untaken and not self._closing:
            self.received(untaken)
        if self._place is not None:
            self.turns.leave(self._place)
        self._closing = True
        self.out.clear()
        self._let_go()
        self.closed(exc)


class Tasks:
    """Tasks of one owner that start at any time and all end with it.

    An `asyncio.TaskGroup` would end them all when one fails; these are strangers to one another.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run a coroutine that deals with its own errors."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self, timeout_s: float) -> None:
        """Wait for what runs now, no longer than that."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_s)

    async def stop(self) -> None:
        """Cancel what runs, and wait for it."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


ProtocolT = TypeVar("ProtocolT", bound=StreamProtocol)


class Listeners(Generic[ProtocolT]):
    """The listening sockets of one adapter, and the connections that came by them."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        addresses: Iterable[ListenerAddress],
        factory: Callable[[ListenerAddress], ProtocolT],
        memory_of: Mapping[str, ListenerMemory],
        connections_max: int,
    ) -> None:
        """`connections_max`: at once, by all of them together."""
        self._loop = loop
        self._memory_of = memory_of
        self._wanted = tuple(addresses)
        self._factory = factory
        self._servers: dict[str, PlainServer | TlsServer] = {}
        self.connections: set[ProtocolT] = set()
        """Open connections. A driver adds itself in `opened` and leaves in `closed`."""
        self._connections_max = connections_max
        self._strangers: Crowd[ProtocolT] = Crowd()
        self._emptied: asyncio.Event = asyncio.Event()

    async def start(self) -> None:
        """Bind all. Raises OSError if one cannot be bound, after closing the others."""
        try:
            for wanted in self._wanted:
                self._servers[wanted.name] = await self._bind(wanted)
        except OSError:
            await self.stop_accepting()
            raise

    async def _bind(self, wanted: ListenerAddress) -> PlainServer | TlsServer:
        server: PlainServer | TlsServer
        if wanted.tls is None:
            server = PlainServer(self._loop, lambda: self._factory(wanted))
        else:
            server = TlsServer(
                self._loop, wanted.tls, self._memory_of[wanted.name], lambda: self._factory(wanted)
            )
        await server.start(wanted.host, wanted.port, reuse_port=wanted.reuse_port)
        return server

    def addresses(self) -> Mapping[str, tuple[str, int]]:
        """Listener name to the address bound."""
        found: dict[str, tuple[str, int]] = {}
        for name, server in self._servers.items():
            sockets = server.sockets
            if sockets:
                host, port = sockets[0].getsockname()[:2]
                found[name] = (host, port)
        return found

    def entered(self, connection: ProtocolT) -> ProtocolT | None:
        """A connection has opened; the one that has to go for it, if there are too many: one that
        has not signed in (`crowd`), so perhaps it itself.
        """
        self.connections.add(connection)
        connection.figures.entered()
        self._strangers.add(connection.judged_as(), connection)
        self._emptied.clear()
        if len(self.connections) <= self._connections_max:
            return None
        out = self._strangers.next_to_go()
        self._strangers.discard(out)
        return out

    def known(self, connection: ProtocolT) -> None:
        """A connection has signed in: it goes for no other."""
        self._strangers.discard(connection)

    def left(self, connection: ProtocolT) -> None:
        """A connection has closed."""
        if connection in self.connections:
            self.connections.discard(connection)
            connection.figures.left()
        self._strangers.discard(connection)
        if not self.connections:
            self._emptied.set()

    async def stop_accepting(self) -> None:
        """Close the listening sockets; connections stay. Idempotent."""
        servers, self._servers = self._servers, {}
        await asyncio.gather(*(server.stop() for server in servers.values()))

    async def wait_until_empty(self) -> None:
        """Return when no connection is left, and what was said last has arrived (`lingering`)."""
        if self.connections:
            await self._emptied.wait()
        await LINGERING.wait_until_empty(self._loop)

    def abort_all(self) -> None:
        """Drop every connection at once."""
        for connection in list(self.connections):
            connection.abort()
        LINGERING.end(self._loop)
