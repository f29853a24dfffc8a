"""The driver of the line protocol: sockets and tasks around `LineConnection`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from adapters.base import AdapterStatistics
from adapters.listener_figures import ListenerFigures
from adapters.moving import Moving
from adapters.transport import Listeners, StreamProtocol, Tasks
from tests.line_protocol.connection import LineConnection

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, Mapping

    from adapters.base import ListenerAddress, Services, TrafficCounter
    from adapters.connections import OpenConnection
    from adapters.moving import ConsumersByKey

BUSY: Final = "busy"
"""A reason not to read."""


class LineProtocol(StreamProtocol):
    """One socket. `Host` of its connection, and a `Holder`."""

    def __init__(self, adapter: LineAdapter, listener: ListenerAddress) -> None:
        super().__init__(
            adapter.loop,
            adapter.memory_of[listener.name],
            figures=adapter.figures_of[listener.name],
        )
        self._adapter = adapter
        self.listener = listener
        self.connection = LineConnection(self, adapter.services)
        self._buffer = b""
        self._running = False
        self._octets: TrafficCounter | None = None
        self._tenant = ""

    def opened(self) -> None:
        out = self._adapter.listeners.entered(self)
        if out is not None:
            out.abort()

    def received(self, data: bytes) -> None:
        self._buffer += data
        self._work()

    def _work(self) -> None:
        """Carry out the whole lines, as far as there is nothing to wait for."""
        while not self._running and not self.connection.is_waiting:
            line, newline, rest = self._buffer.partition(b"\n")
            if not newline:
                break
            self._buffer = rest
            self.connection.line(line.decode("utf-8", "replace").rstrip("\r"))
        waits = b"\n" in self._buffer
        if waits:
            self.hold_reading(BUSY)
        else:
            self.release_reading(BUSY)
            if len(self._buffer) > self._adapter.line_bytes_max:
                self.end("ERR too_large the line has no end")
        if self._buffer or self.has_input:
            self.hold_input(self.unfinished_bytes)

    @property
    def unfinished_bytes(self) -> int:
        return len(self._buffer)

    def send(self, line: str) -> None:
        self.out.append(line.encode() + b"\n")
        self.write_soon()
        if not self._running and self._buffer:
            self.loop.call_soon(self._work)

    def run(self, work: Coroutine[object, object, None]) -> None:
        self._running = True
        self._adapter.tasks.start(self._run(work))

    async def _run(self, work: Coroutine[object, object, None]) -> None:
        await work
        self._running = False
        if self.connection.is_over:
            return
        if self.connection.session is not None and not self._tenant:
            self._signed_in()
        self._work()

    def _signed_in(self) -> None:
        self._adapter.listeners.known(self)
        meter, rights = self._adapter.services.meter, self.connection.rights
        if meter is not None and rights is not None:
            self._tenant = rights.principal.tenant
            self._octets = meter.octet_counter(self._tenant)
            meter.connection_opened(self._tenant)

    def end(self, last: str) -> None:
        self.out.append(last.encode() + b"\n")
        self._buffer = b""
        self.close()

    def closed(self, error: Exception | None) -> None:
        self.connection.lost()
        self._adapter.listeners.left(self)
        meter = self._adapter.services.meter
        if meter is not None and self._octets is not None:
            self._octets.octets(self.bytes_in, self.bytes_out)
            meter.connection_closed(self._tenant)

    def recheck(self) -> Iterator[None]:
        return self.connection.recheck()


class LineAdapter:
    """`adapters.base.Adapter`."""

    name = "line"

    def __init__(self, services: Services) -> None:
        self.services = services
        self.loop = asyncio.get_running_loop()
        self.tasks = Tasks(self.loop)
        self.line_bytes_max = services.settings.limit("line_bytes_max")
        addresses = services.listeners()
        self.memory_of = {
            each.name: services.memory.listener(self.name, each.name) for each in addresses
        }
        self.figures_of = {
            each.name: ListenerFigures(self.name, each.name, services.clock) for each in addresses
        }
        self.listeners: Listeners[LineProtocol] = Listeners(
            self.loop,
            addresses,
            lambda listener: LineProtocol(self, listener),
            self.memory_of,
            services.settings.limit("connections_max"),
        )
        self._moving: Moving[LineProtocol] = Moving(_host_of, _host_of)

    async def start(self) -> None:
        await self.listeners.start()

    def addresses(self) -> Mapping[str, tuple[str, int]]:
        return self.listeners.addresses()

    def move(
        self, amount: int, to: Mapping[str, str], consumers_by_key: ConsumersByKey | None = None
    ) -> int:
        stay = [each for each in self.listeners.connections if not each.connection.is_leaving]
        movable = [each for each in stay if each.connection.session is not None]
        now_ms = self.services.clock.monotonic_ms()
        chosen = list(self._moving.chosen(movable, amount, consumers_by_key, _key_of, now_ms))
        for each in chosen:
            each.connection.leave(f"MOVE {to.get(each.listener.name, '')}".rstrip())
        return len(chosen)

    def connections(self) -> Iterable[OpenConnection]:
        return ()

    def holders(self) -> Iterable[LineProtocol]:
        return list(self.listeners.connections)

    async def drain(self) -> None:
        await self.listeners.stop_accepting()
        for each in list(self.listeners.connections):
            each.connection.leave("BYE")
        await self.listeners.wait_until_empty()

    async def stop(self) -> None:
        await self.listeners.stop_accepting()
        self.listeners.abort_all()
        await self.listeners.wait_until_empty()
        await self.tasks.stop()

    def spells(self, topic: str) -> bool:
        return " " not in topic

    def statistics(self) -> AdapterStatistics:
        return AdapterStatistics(
            len(self.listeners.connections),
            listeners=list(self.figures_of.values()),
            staying=self._moving.staying(),
        )


def _host_of(each: LineProtocol) -> str:
    return each.peer.rpartition(":")[0]


def _key_of(each: LineProtocol) -> object:
    session = each.connection.session
    return session.id if session is not None else None
