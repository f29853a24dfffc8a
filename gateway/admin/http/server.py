"""HTTP server of the admin side, embedded in the node's event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from ssl import SSLContext

    from starlette.types import ASGIApp, Receive, Scope, Send

    from gateway.config.schema import Listener

CONNECTIONS_MAX = 256
"""People, scripts and scrapers; programs that move messages use a protocol."""

REQUEST_S_MAX = 10.0
"""From a connection's first byte, or from its beginning, to the end of its request: they are small,
and whoever dawdles holds one of few places."""

HEAD_BYTES_MAX = 64 * 1024
"""Request line and headers; the parser itself reads on for ever."""

START_CHECK_S = 0.01
STOP_SECONDS = 5
"""Longer than uvicorn's own patience with requests under way (2 s)."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection that is let go of when its request does not come. uvicorn has neither a time nor
    a size for that; and its bound on connections answers those above it with 503, so that some
    hundred strangers who say nothing would keep everybody else out.
    """

    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._await_request()
        if len(self.connections) >= CONNECTIONS_MAX:
            self._make_room()

    def _make_room(self) -> None:
        """Drop the oldest that waits, of the address that has most of them."""
        bounded = [each for each in self.connections if isinstance(each, BoundedProtocol)]
        waiting = [each for each in bounded if each.is_waiting and each is not self]
        if not waiting:
            self.drop()
            return
        counts = Counter(each.host for each in waiting)
        min(waiting, key=lambda each: (-counts[each.host], each.since_s)).drop()

    @property
    def host(self) -> str:
        """The peer's address, without its port."""
        return self.client[0] if self.client is not None else ""

    @property
    def is_waiting(self) -> bool:
        """Whether its request has not come yet, or not all of it."""
        return self._timer is not None

    @property
    def since_s(self) -> float:
        """Since when it waits, by the event loop's clock."""
        return self._timer.when() if self._timer is not None else 0.0

    def drop(self) -> None:
        """Close it, and count it no more."""
        self.connections.discard(self)
        self._stop_waiting()
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        if self._timer is None and self._is_between:
            self._await_request()
        super().data_received(data)
        if self._is_between:
            # Only what ended no head counts: a body may come in the same piece.
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.drop()
        elif not self.cycle.more_body:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop, once."""
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def _is_between(self) -> bool:
        """Whether no request is under way whose head has come."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _await_request(self) -> None:
        self._head_bytes = 0
        self._timer = self.loop.call_later(REQUEST_S_MAX, self.drop)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class QuietServer(uvicorn.Server):
    """Leaves the signals to the node."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing is captured."""
        yield


class Exchange:
    """An application whose place another one takes while it is served."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on to the one that is served now."""
        await self.app(scope, receive, send)


class AdminServer:
    """Serves the admin side's application on one address."""

    def __init__(
        self,
        listener: Listener,
        app: ASGIApp,
        tls: SSLContext | None = None,
        setting: str = "node.admin",
    ) -> None:
        """`tls`: None: it speaks plain HTTP; `setting`: the listener's own."""
        self._listener = listener
        self._setting = setting
        self._scheme = "http" if tls is None else "https"
        self._server = QuietServer(
            uvicorn.Config(
                app,
                host=listener.host,
                port=listener.port,
                http=BoundedProtocol,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                limit_concurrency=CONNECTIONS_MAX,
                timeout_graceful_shutdown=2,
                ssl_context_factory=None if tls is None else lambda _config, _default: tls,
            )
        )
        self._task: asyncio.Task[bool] | None = None

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Bind and serve. Raises OSError if the address cannot be bound."""
        self._task = tasks.create_task(self._serve())
        while not self._server.started:
            if self._task.done():
                host, port = self._listener.host, self._listener.port
                what = self._setting.removeprefix("node.")
                raise OSError(
                    f"the {what} address {host}:{port} cannot be bound. "
                    "Stop the other program, or choose another port: "
                    f"--set {self._setting}.port=PORT"
                )
            await asyncio.sleep(START_CHECK_S)

    async def _serve(self) -> bool:
        """Until told to stop; False if the address could not be bound."""
        try:
            await self._server.serve()
        except SystemExit:
            return False
        return True

    @property
    def url(self) -> str:
        """Where it serves, once started: with the port bound, if 0 was asked for."""
        host, port = self._server.servers[0].sockets[0].getsockname()[:2]
        return (
            f"{self._scheme}://[{host}]:{port}"
            if ":" in host
            else f"{self._scheme}://{host}:{port}"
        )

    async def stop(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=STOP_SECONDS)
