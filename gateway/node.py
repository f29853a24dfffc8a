"""One process with gateway and store in it: start order, readiness, drain, stop.

    data directory, its lock -> store -> identity -> adapters -> admin      (start)
    not ready -> adapters say goodbye -> adapters stop -> admin -> metering: last flush
              -> store: last commit, checkpoint

Every step of the way down is bounded in time; what hangs is left behind and said so.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

import gateway
from auth.development import Listener as Reachable
from auth.development import development_principals, startup_check
from auth.sealed import open_key_ring
from auth.tls import CertificateFiles, open_loopback_certificate
from auth.tokens import open_admin_token
from gateway.admin.address import write_address
from gateway.admin.app import AdminParts, build_app
from gateway.admin.metrics import NodeCollector
from gateway.admin.principals import Principals
from gateway.admin.server import AdminServer
from gateway.admin.store_view import StoreView
from gateway.builders import BUILDERS, Services
from gateway.data_lock import DataLock, lock_data_directory
from gateway.garbage import Garbage
from gateway.greeting import greeting
from gateway.identity import Identity
from gateway.node_metering import NodeMetering
from kernel.store.disk import DirectoryDisk
from kernel.store.opening import LocalStore, open_store
from kernel.store.system import SystemClock, SystemRandom
from kernel.store.worker import Worker

if TYPE_CHECKING:
    from adapters.base import Adapter
    from auth.tokens import AdminToken
    from gateway.config_schema import Settings
    from kernel.local_client import LocalClient

DRAIN_SECONDS = 20
"""For clients to hear goodbye and close: longer than any close handshake, shorter than the 30 s
that service managers wait before they kill."""

EXIT_STORAGE = 74
"""Exit code after a failed sync (sysexits' EX_IOERR): nothing more was written or answered."""

_log = structlog.get_logger("weir.node")


class StartRefused(Exception):
    """The node must not start; the text says why and what to do."""


class Node:
    """`weir serve` with `role: all`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._data = Path(settings.node.data)
        self._clock = SystemClock()
        self._random = SystemRandom()
        self._ready = False
        self._lock: DataLock | None = None
        self._local: LocalStore | None = None
        self._identity: Identity | None = None
        self._admin: AdminServer | None = None
        self._metering: NodeMetering | None = None
        self._garbage: Garbage | None = None
        self.adapters: list[Adapter] = []

    async def run(self) -> None:
        """Start, serve until SIGTERM or SIGINT, stop. Raises StartRefused, OSError, and what
        recovery raises for a data directory that cannot be opened.
        """
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        async with asyncio.TaskGroup() as tasks:
            try:
                await self._start(tasks)
                await stopping.wait()
                _log.info("draining", within_seconds=DRAIN_SECONDS)
            finally:
                await self._stop()

    async def _start(self, tasks: asyncio.TaskGroup) -> None:
        role = self._settings.node.role
        if role != "all":
            raise StartRefused(f"node.role is {role}, but this version serves the role all only")
        self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = lock_data_directory(self._data)
        _log.info("starting", version=gateway.__version__, data=str(self._data))
        loop = asyncio.get_running_loop()
        local = open_store(
            DirectoryDisk(self._data),
            self._clock,
            self._random,
            lambda name: Worker(loop, name),
            fatal,
        )
        self._local = local
        await local.start()
        principals, identity = await self._identify(local.client)
        token = open_admin_token(self._data)
        metering = await self._meter(local)
        services = Services(local.client, identity, self._clock, self._random, self._tls, metering)
        for name, protocol in self._settings.protocols.items():
            if protocol.open_listeners():
                self.adapters.append(BUILDERS[name](protocol, services))
        for adapter in self.adapters:
            await _bind(adapter)
        if metering is not None:
            metering.start(tasks)
        if self._settings.node.admin.enabled:
            await self._administer(local, principals, identity, token, tasks)
        self._garbage = Garbage(loop)
        self._garbage.start()
        self._ready = True
        address = self._admin.url if self._admin is not None else None
        sys.stderr.write(greeting(self._settings, self.adapters, local, address))
        sys.stderr.flush()
        _log.info(
            "serving",
            replayed=local.replayed,
            clean=local.clean,
            listeners={
                f"{adapter.name}.{name}": f"{host}:{port}"
                for adapter in self.adapters
                for name, (host, port) in adapter.addresses().items()
            },
        )

    async def _meter(self, local: LocalStore) -> NodeMetering | None:
        settings = self._settings.node.metering
        if not settings.enabled:
            return None
        metering = NodeMetering(local, self._data, self._clock, settings)
        await metering.open()
        self._metering = metering
        return metering

    async def _administer(
        self,
        local: LocalStore,
        principals: Principals,
        identity: Identity,
        token: AdminToken,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Serve the admin API, and write down where, for `weir --data DIR`."""
        listener = self._settings.node.admin
        parts = AdminParts(
            client=local.client,
            view=StoreView(local),
            principals=principals,
            identity=identity,
            token=token,
            collector=NodeCollector(local, self.adapters, self._metering),
            is_ready=lambda: self._ready,
            clock=self._clock,
            metering=self._metering,
        )
        self._admin = AdminServer(listener, build_app(listener, parts))
        await self._admin.start(tasks)
        write_address(self._data, self._admin.url)

    async def _identify(self, client: LocalClient) -> tuple[Principals, Identity]:
        listeners = [
            Reachable(".".join(path), each.host, each.port)
            for path, each in self._settings.open_listeners().items()
        ]
        keys = open_key_ring(Path(self._settings.node.key_file or self._data / "secrets.key"))
        identity = Identity(keys.unseal, development_principals(listeners), self._clock)
        self._identity = identity
        identity.follow(client)
        refusal = startup_check(listeners, identity.store.user_count(), os.environ)
        if refusal is not None:
            raise StartRefused(refusal)
        principals = Principals(client, identity.store, keys, self._clock, self._random)
        administrator = await principals.first_administrator(os.environ)
        if administrator is not None:
            _log.info("first administrator created", user=administrator.name)
        return principals, identity

    def _tls(self) -> CertificateFiles:
        """The certificate of the TLS listeners; on loopback the node makes one for itself."""
        tls = self._settings.node.tls
        if tls.certificate is not None and tls.private_key is not None:
            return CertificateFiles(Path(tls.certificate), Path(tls.private_key))
        now = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
        return open_loopback_certificate(self._data / "tls", now)

    async def _stop(self) -> None:
        self._ready = False
        if self._garbage is not None:
            self._garbage.stop()
        await asyncio.gather(*(self._drain(adapter) for adapter in self.adapters))
        if self._admin is not None:
            await self._admin.stop()
        if self._metering is not None:
            await self._metering.stop()
        if self._identity is not None:
            await self._identity.close()
        if self._local is not None:
            await self._local.stop()
            _log.info("stopped", data=str(self._data))
        if self._lock is not None:
            self._lock.release()

    async def _drain(self, adapter: Adapter) -> None:
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await adapter.drain()
        except TimeoutError:
            _log.warning("drain cut off", adapter=adapter.name, after_seconds=DRAIN_SECONDS)
        await adapter.stop()
        _log.info("drained", adapter=adapter.name)


async def _bind(adapter: Adapter) -> None:
    """Start an adapter; an address that is taken is told with the setting that changes it."""
    try:
        await adapter.start()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise StartRefused(
            f"{adapter.name} cannot listen: {error.strerror}. Stop the other program, or choose "
            f"another port: --set {adapter.name}.port=PORT"
        ) from error


def fatal(text: str, error: BaseException) -> None:
    """End the process at once: after a failed sync nobody can say what the disk holds, so nothing
    more may be written or answered (raft-store.md 3.5).
    """
    sys.stderr.write(f"weir: {text}: {error!r}. Ending; start again once the disk is well.\n")
    sys.stderr.flush()
    os._exit(EXIT_STORAGE)
