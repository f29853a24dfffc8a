"""One HTTP connection: uvicorn's, with the bounds that it lacks.

* A request line and headers of more than HEAD_BYTES_MAX end the connection.
* A request that takes longer than REQUEST_TIMEOUT_MS to arrive does too; `sweep` looks.
* A connection over the adapter's limit is closed before it is read.
* Head and body of an answer leave in one system call; uvicorn makes two, 13 us of an answer's 50.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .environment import PEER_KEY
from .settings import HEAD_BYTES_MAX, REQUEST_TIMEOUT_MS

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Transport
    from collections.abc import Callable

    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from .environment import Counters

_STALL_S = REQUEST_TIMEOUT_MS / 1000
_IDLE = float("inf")


class JoinedWrites:
    """What uvicorn uses of a transport; what is written goes out at `flush`, or a turn later."""

    __slots__ = ("_held", "_loop", "_transport")

    def __init__(self, transport: Transport, loop: AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Have bytes written soon."""
        held = self._held
        if not held:
            # `100 Continue` and answers in several parts have no `flush` of their own.
            self._loop.call_soon(self.flush)
        held.append(data)

    def flush(self) -> None:
        """Write now, in one call."""
        if self._held:
            data = b"".join(self._held)
            self._held.clear()
            self._transport.write(data)

    def close(self) -> None:
        """Write what is held, then close."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._held.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._transport.get_extra_info(name, default)


class HttpConnection(HttpToolsProtocol):
    """See the module. `state` holds the open connections of the adapter."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        scope_state: dict[str, object],
        loop: AbstractEventLoop,
        connections_max: int,
        counters: Counters,
        emptied: Callable[[], None],
    ) -> None:
        """`scope_state`: what each request's scope gets as `state`, with this connection added;
        `emptied` is called when the last connection has gone.
        """
        super().__init__(config, state, scope_state, loop)
        scope_state[PEER_KEY] = self
        self.is_lost = False
        self._lost_action: Callable[[], object] | None = None
        self._connections_max = connections_max
        self._counters = counters
        self._emptied = emptied
        self._is_admitted = False
        self._is_reading_head = False
        self._head_bytes = 0
        self._waiting_since_s = _IDLE
        """When the request that is being read, or the connection, began."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # uvicorn's
        """Called by the event loop."""
        if len(self.connections) >= self._connections_max:
            self._counters.connections_refused += 1
            transport.abort()
            return
        self._is_admitted = True
        self._counters.connections += 1
        self._waiting_since_s = self.loop.time()
        joined = JoinedWrites(transport, self.loop)
        self._flush = joined.flush
        super().connection_made(cast("Transport", joined))

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop, once."""
        if not self._is_admitted:
            return
        self.is_lost = True
        super().connection_lost(exc)
        self.app_state.clear()  # it refers to us: no work for the collector of cycles
        if self._lost_action is not None:
            self._lost_action()
        if not self.connections:
            self._emptied()

    def when_lost(self, action: Callable[[], object] | None) -> None:
        """See `environment.Peer`; the requests of a connection are answered one at a time."""
        self._lost_action = action

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        if not self._is_admitted:
            return
        super().data_received(data)
        if self._is_reading_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse()

    def on_message_begin(self) -> None:
        """Called by the parser: a request starts."""
        super().on_message_begin()
        self._is_reading_head = True
        self._head_bytes = 0
        self._waiting_since_s = self.loop.time()

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self._is_reading_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Called by the parser: a request is there to its last byte."""
        self._waiting_since_s = _IDLE
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Called by the request's cycle: the answer is written to its last byte."""
        self._flush()
        super().on_response_complete()

    def sweep(self, now_s: float) -> None:
        """Close the connection if its client stalls; `now_s` is the event loop's time."""
        if now_s - self._waiting_since_s > _STALL_S:
            self._refuse()

    def abort(self) -> None:
        """Drop the connection with whatever was not written."""
        self.transport.abort()

    def _refuse(self) -> None:
        self._counters.connections_refused += 1
        self.abort()
