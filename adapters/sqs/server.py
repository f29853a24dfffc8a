"""The driver: listeners, uvicorn's HTTP connections in our own event loop, and the adapter.

uvicorn's protocol class (httptools) is used without uvicorn's server, which would take the
process's signals, end the process if a port is taken, and know one TLS context. The listeners are
ours; each connection serves `SqsApplication`.

    start -> (serving) -> drain: no new connection, long polls answered empty, each connection
    closed after its answer -> stop: what is left is dropped
"""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from typing import TYPE_CHECKING, Final

from uvicorn.config import Config
from uvicorn.server import ServerState

from adapters.base import AdapterStatistics, Origin
from adapters.transport import BACKLOG, TLS_HANDSHAKE_TIMEOUT_S

from .app import SqsApplication
from .connection import HttpConnection
from .environment import LISTENER_KEY, Environment
from .gate import Gate
from .queues import Queues
from .settings import SqsSettings
from .stored import ORIGIN
from .waiting import LongPolls, NameLocks, SharedBatches

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from adapters.base import ListenerAddress, Rights, TrafficMeter
    from auth.records import AccessKey
    from auth.sigv4 import SigV4Verifier
    from kernel.client import Client
    from kernel.ports import Clock, Random

    from .environment import Catalogue

TICK_S: Final = 1.0
"""How often the Date header is renewed and stalled clients are looked for."""


class SqsAdapter:
    """SQS, served (`adapters.base.Adapter`)."""

    name = "sqs"

    def __init__(
        self,
        client: Client,
        catalogue: Catalogue,
        verifier: SigV4Verifier,
        rights_of: Callable[[AccessKey], Rights | None],
        listeners: Sequence[ListenerAddress],
        settings: SqsSettings,
        *,
        clock: Clock,
        random: Random,
        meter: TrafficMeter | None = None,
    ) -> None:
        """Made on the event loop that will serve it; nothing is bound before `start`.

        `verifier` works in the mode `settings.sign_in`; `rights_of` gives the rights of a key's
        principal, None if it is gone.
        """
        self._loop = asyncio.get_running_loop()
        self._wanted = tuple(listeners)
        self._settings = settings
        self._client = client
        client.origins.register(Origin.SQS, ORIGIN)
        self._session = client.open_session("sqs", Origin.SQS)
        self._polls = LongPolls(client)
        self._environment = Environment(
            client=client,
            catalogue=catalogue,
            clock=clock,
            settings=settings,
            queues=Queues(client),
            publisher=SharedBatches(client, self._session, self._loop),
            polls=self._polls,
            locks=NameLocks(),
            meter=meter,
        )
        gate = Gate(verifier, settings.sign_in, rights_of, settings.accounts)
        application = SqsApplication(self._environment, gate, random, settings.advertised)
        self._config = Config(
            application,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=settings.idle_timeout_s,
        )
        self._config.load()
        self._state = ServerState()
        self._servers: dict[str, asyncio.Server] = {}
        self._emptied = asyncio.Event()
        self._ticker: asyncio.TimerHandle | None = None

    # --- adapters.base.Adapter --------------------------------------------------------------

    async def start(self) -> None:
        """Bind every listener. Raises OSError if one cannot be bound; then none is."""
        self._tick()
        try:
            for wanted in self._wanted:
                self._servers[wanted.name] = await self._bind(wanted)
        except OSError:
            await self.stop()
            raise

    def addresses(self) -> Mapping[str, tuple[str, int]]:
        """Listener name to the address bound."""
        found: dict[str, tuple[str, int]] = {}
        for name, server in self._servers.items():
            if server.sockets:
                host, port = server.sockets[0].getsockname()[:2]
                found[name] = (host, port)
        return found

    async def drain(self) -> None:
        """Take no new connection; return when every request is answered and its client gone."""
        self._close_listeners()
        self._polls.drain()
        for connection in tuple(self._state.connections):
            connection.shutdown()
        if self._state.connections:
            self._emptied.clear()
            await self._emptied.wait()

    async def stop(self) -> None:
        """Drop what is left, at once. Idempotent."""
        self._close_listeners()
        self._polls.drain()
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        for connection in tuple(self._state.connections):
            assert isinstance(connection, HttpConnection)
            connection.abort()
        tasks = tuple(self._state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._session.close()

    def statistics(self) -> AdapterStatistics:
        """Figures now."""
        counters = self._environment.counters
        return AdapterStatistics(
            connections=len(self._state.connections),
            counters={name: getattr(counters, name) for name in counters.__slots__},
            gauges={"long_polls": len(self._polls), "requests": len(self._state.tasks)},
        )

    # --- Listeners --------------------------------------------------------------------------

    async def _bind(self, wanted: ListenerAddress) -> asyncio.Server:
        return await self._loop.create_server(
            lambda: self._connection(wanted),
            wanted.host,
            wanted.port,
            ssl=wanted.tls,
            backlog=BACKLOG,
            reuse_port=wanted.reuse_port or None,
            ssl_handshake_timeout=TLS_HANDSHAKE_TIMEOUT_S if wanted.tls is not None else None,
        )

    def _connection(self, listener: ListenerAddress) -> HttpConnection:
        return HttpConnection(
            self._config,
            self._state,
            {LISTENER_KEY: listener.name},
            self._loop,
            self._settings.connections_max,
            self._environment.counters,
            self._emptied.set,
        )

    def _close_listeners(self) -> None:
        servers, self._servers = self._servers, {}
        for server in servers.values():
            server.close()

    def _tick(self) -> None:
        now_s = self._environment.clock.wall_ms() // 1000
        self._state.default_headers = [(b"date", formatdate(now_s, usegmt=True).encode())]
        loop_s = self._loop.time()
        for connection in tuple(self._state.connections):
            assert isinstance(connection, HttpConnection)
            connection.sweep(loop_s)
        self._ticker = self._loop.call_later(TICK_S, self._tick)
