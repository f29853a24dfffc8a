"""What the three kinds of node do alike: one process over one data directory, with an admin side,
figures and alarms.

    Node           store and clients in one process (`weir serve`)
    StoreNode      a store of a cluster (`weir store`)
    GatewayNode    clients before a cluster's stores (`weir gateway`)

Each says in which order it starts and stops, by the steps that stand here and its own.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from auth.private_files.tls import server_context
from gateway.access.certificates import (
    certificate_of_listeners,
    publish_admin_certificate,
    remove_admin_certificate,
)
from gateway.access.live_certificates import LiveCertificates
from gateway.access.tls_failures import TlsFailures
from gateway.admin.address import write_address
from gateway.admin.http.guard import CalledHere
from gateway.admin.http.server import AdminServer
from gateway.config.cluster_settings import open_security
from gateway.process.garbage import Garbage
from gateway.process.running import open_ring_of, run_until_told, take_data_directory
from gateway.reporting.trace_stream import TraceWriter
from gateway.serving.alarm_log import AlarmLog
from kernel.store.drivers.disk import DirectoryDisk
from kernel.store.drivers.system import SystemClock, SystemRandom

if TYPE_CHECKING:
    from ssl import SSLContext

    from starlette.types import ASGIApp
    from structlog.typing import FilteringBoundLogger

    from gateway.admin.health import Check
    from gateway.config.cluster_settings import Security
    from gateway.config.schema import Settings
    from gateway.process.data_lock import DataLock
    from gateway.reporting.node_metering import NodeMetering
    from kernel.in_process.local_client import LocalClient
    from kernel.remote.client import ClusterClient
    from kernel.store.drivers.write_ring import WriteRing


TRACES_SECONDS = 2.0
"""For the last traces to be written: a commit; longer only where nobody leads."""


class ServingNode(ABC):
    """A node as a process. `run` it once."""

    def __init__(self, settings: Settings, log: FilteringBoundLogger, stop_seconds: float) -> None:
        """`stop_seconds`: what the log says of how long stopping may take."""
        self._settings = settings
        self._log = log
        self._stop_seconds = stop_seconds
        self._data = Path(settings.node.data)
        self._clock = SystemClock()
        self._random = SystemRandom()
        self._certificates = LiveCertificates(log, self._clock)
        self._ready = False
        self._lock: DataLock | None = None
        self._ring: WriteRing | None = None
        self._admin: AdminServer | None = None
        self._management: AdminServer | None = None
        self._metering: NodeMetering | None = None
        self._garbage: Garbage | None = None
        self._alarms: AlarmLog | None = None
        self._traces: tuple[TraceWriter, asyncio.Task[None]] | None = None

    async def run(self) -> None:
        """Start, serve until SIGTERM or SIGINT, stop. Raises as `process.run_until_told`:
        StartRefused, OSError, AuthError (a secret, the key file), KernelError (a file that is not
        ours), and what recovery raises for a data directory that cannot be opened.
        """
        await run_until_told(self._start, self._stop, self._certificates.look, self._stop_seconds)

    @abstractmethod
    async def _start(self, tasks: asyncio.TaskGroup) -> None:
        """Begin to serve."""

    @abstractmethod
    async def _stop(self) -> None:
        """End in order what has begun; the start may have failed anywhere."""

    # --- Steps of the start -----------------------------------------------------------------

    def _take_directory(self) -> None:
        self._lock = take_data_directory(self._data)

    def _open_disk(self) -> DirectoryDisk:
        """The data directory, for a journal."""
        self._ring = open_ring_of(self._settings.node)
        return DirectoryDisk(self._data, self._ring)

    async def _serve_admin(self, app: ASGIApp, tasks: asyncio.TaskGroup) -> None:
        """Serve the admin API, and write down where, for `weir --data DIR`."""
        tls = self._admin_context()
        self._admin = AdminServer(self._settings.node.admin, app, tls)
        await self._admin.start(tasks)
        write_address(self._data, self._admin.url)

    async def _serve_management(self, app: ASGIApp | None, tasks: asyncio.TaskGroup) -> None:
        """Serve the management API of a protocol's own tools, if there is one."""
        listener = self._settings.node.management
        if app is None:
            return
        tls = None
        if listener.tls:
            live = certificate_of_listeners(self._certificates, self._settings, self._clock)
            tls = live.keep(server_context(live.files))
        server = AdminServer(listener, CalledHere(app, listener), tls, "node.management")
        await server.start(tasks)
        self._management = server
        self._log.info("management API", url=server.url)

    def _admin_context(self) -> SSLContext | None:
        """None: it speaks plain HTTP. Raises AuthError, OSError."""
        if not self._settings.node.admin.tls:
            remove_admin_certificate(self._data)
            return None
        live = certificate_of_listeners(self._certificates, self._settings, self._clock)
        publish = partial(publish_admin_certificate, self._data)
        publish(live.pair)
        live.taken.append(publish)
        return live.keep(server_context(live.files))

    def _open_security(self) -> Security:
        """How the processes of the cluster know each other. Raises AuthError."""
        security = open_security(self._settings.node.cluster)
        if security.files is not None:
            files = security.files
            live = self._certificates.of("cluster", lambda: files)
            for context in (security.server_tls, security.client_tls):
                assert context is not None
                live.keep(context)
        if security.server_tls is not None:
            TlsFailures(self._log, self._clock).watch(security.server_tls, "cluster")
        return security

    def _make_alarms(self, checks: Callable[[], Sequence[Check]]) -> AlarmLog:
        self._alarms = AlarmLog(self._log, asyncio.get_running_loop(), checks)
        return self._alarms

    def _begin_looking(self) -> None:
        """Collect garbage, and look for alarms, from now on."""
        assert self._alarms is not None
        self._garbage = Garbage(asyncio.get_running_loop())
        self._garbage.start()
        self._certificates.start(asyncio.get_running_loop())
        self._alarms.start()

    # --- Steps of the stop ------------------------------------------------------------------

    def _end_looking(self) -> None:
        self._certificates.stop()
        if self._alarms is not None:
            self._alarms.stop()
        if self._garbage is not None:
            self._garbage.stop()

    async def _stop_admin(self) -> None:
        for server in (self._management, self._admin):
            if server is not None:
                await server.stop()

    def _begin_tracing(
        self, client: LocalClient | ClusterClient, name: str, tasks: asyncio.TaskGroup
    ) -> None:
        """Write down what is noted here of traced topics; `name`: of this process."""
        writer = TraceWriter(client, self._clock, client.trace.buffer, name)
        self._traces = writer, tasks.create_task(writer.run())

    async def _stop_tracing(self) -> None:
        """Write what has been noted; bounded in time. After the adapters, before the store."""
        if self._traces is not None:
            writer, task = self._traces
            await end_task(task)
            with suppress(TimeoutError):
                async with asyncio.timeout(TRACES_SECONDS):
                    await writer.flush()

    async def _stop_metering(self) -> None:
        if self._metering is not None:
            await self._metering.stop()

    def _leave_directory(self) -> None:
        if self._ring is not None:
            self._ring.close()
        if self._lock is not None:
            self._lock.release()


async def end_task(task: asyncio.Task[None] | None) -> None:
    """Cancel a task, and wait until it has ended."""
    if task is not None:
        task.cancel()
        await asyncio.wait((task,))
