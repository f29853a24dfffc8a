"""HTTP server of the admin side, embedded in the node's event loop.

Open to everyone on loopback: /livez, /readyz, /metrics. The Host header must name this node's
address or `localhost`: a page in somebody's browser must not reach it by another name.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gateway.admin.metrics import NodeCollector, render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.requests import Request

    from gateway.config_schema import Listener

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class QuietServer(uvicorn.Server):
    """Leaves the signals to the node."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing is captured."""
        yield


class AdminServer:
    """Serves health and metrics."""

    def __init__(
        self, listener: Listener, collector: NodeCollector, is_ready: Callable[[], bool]
    ) -> None:
        self._collector = collector
        self._is_ready = is_ready
        routes = [
            Route("/livez", self._live),
            Route("/readyz", self._ready),
            Route("/metrics", self._metrics),
        ]
        hosts = ["localhost", "127.0.0.1", "[::1]", listener.host]
        app = Starlette(
            routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts)]
        )
        self._server = QuietServer(
            uvicorn.Config(
                app,
                host=listener.host,
                port=listener.port,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=2,
            )
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Bind and serve. Raises OSError if the address cannot be bound."""
        self._task = tasks.create_task(self._serve())
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise OSError(f"the admin address {self._server.config.host} cannot be bound")
            await asyncio.sleep(0.01)

    async def _serve(self) -> None:
        try:
            await self._server.serve()
        except SystemExit:
            raise OSError("the admin address cannot be bound") from None

    async def stop(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=5)

    async def _live(self, request: Request) -> Response:
        del request
        return PlainTextResponse("ok\n")

    async def _ready(self, request: Request) -> Response:
        del request
        if self._is_ready():
            return PlainTextResponse("ok\n")
        return PlainTextResponse("not ready\n", status_code=503)

    async def _metrics(self, request: Request) -> Response:
        del request
        return Response(render(self._collector), media_type=METRICS_TYPE)
