"""What clients meet: who may sign in, the adapters, the admin side. Over any kernel client, so that
a process with a store and one without are served by the same code.

    identify -> serve -> admin_app                     (start)
    drain: adapters say goodbye, then stop -> close    (stop)
"""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from adapters.fair_scheduler import fair_scheduler_of
from adapters.memory import GatewayMemory
from auth.private_files.sealed import open_key_ring
from auth.users.development import ReachableListener as Reachable
from auth.users.development import development_principals, startup_check
from gateway.access.certificates import certificate_of_listeners
from gateway.access.disconnects import Disconnects
from gateway.access.identity import Identity, UserRecords
from gateway.access.limit_records import LimitRecords
from gateway.access.rights_watch import RightsWatch
from gateway.access.size_records import SizeRecords
from gateway.access.tenant_book import TenantBook
from gateway.access.tenant_removal import TenantRemoval
from gateway.access.tls_failures import TlsFailures
from gateway.admin.app import AdminParts, build_app
from gateway.admin.console.browser_sessions import BrowserSessions
from gateway.admin.http.callers import OPERATOR
from gateway.admin.http.inside import Inside
from gateway.admin.metrics.process_metrics import NodeCollector
from gateway.admin.resources.backups import Pinning
from gateway.admin.resources.declared_shapes import DeclaredShapes
from gateway.admin.resources.principals import Principals
from gateway.config.declared import declared_in, register_readers
from gateway.config.limits import quotas_of
from gateway.process.running import StartRefused
from gateway.reporting.audit import AuditTrail
from gateway.serving.builders import Builder
from kernel.quotas.accounts import Quotas

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client.registry import Collector
    from starlette.types import ASGIApp

    from adapters.base import Adapter
    from auth.password_checks.passwords import CheckStatistics
    from auth.private_files.tokens import AdminToken
    from gateway.access.live_certificates import LiveCertificate, LiveCertificates
    from gateway.admin.health import HealthRoutes
    from gateway.admin.metrics.history import History
    from gateway.admin.metrics.topic_metrics import TopicMetrics
    from gateway.config.loading import Loaded
    from gateway.config.schema import Listener, Protocol, Settings
    from gateway.reporting.node_metering import NodeMetering
    from kernel.api.client import Client
    from kernel.cluster.cluster_admin import ClusterAdmin
    from kernel.cluster.local_features import LocalFeatures
    from kernel.common.ports import Clock, Random
    from kernel.remote.mesh.questions import Questions
    from kernel.store.space.disk_watch import DiskSpace
    from kernel.store.space.pin_keeper import PinKeeper

DRAIN_SECONDS = 20
"""For clients to hear goodbye and close: longer than any close handshake, shorter than the 30 s
that service managers wait before they kill."""

_log = structlog.get_logger("weir.node")


class Front:
    """Serves the clients of one process: sign-in, adapters, admin side."""

    def __init__(
        self,
        settings: Settings,
        data: Path,
        client: Client,
        clock: Clock,
        random: Random,
        certificates: LiveCertificates,
        name: str = "the only one",
    ) -> None:
        """`data`: where the keys and the certificate are, unless the settings say otherwise;
        `name`: of this process in its cluster, the same after a restart.
        """
        self._certificates = certificates
        self._settings = settings
        self._data = data
        self._declared = declared_in(settings.protocols)
        self._client = client
        self._clock = clock
        self._random = random
        self._reachable = [
            Reachable(".".join(path), each.host, each.port)
            for path, each in settings.open_listeners().items()
        ]
        self._key_file = Path(settings.node.key_file or data / "secrets.key")
        self.keys = open_key_ring(self._key_file)
        """Opens the secrets of access keys."""
        self._identity = Identity(self.keys.unseal, development_principals(self._reachable), clock)
        self._principals = Principals(client, self._identity.store, self.keys, clock, random)
        self.adapters: list[Adapter] = []
        self._inside = Inside()
        self.management: ASGIApp | None = None
        """That of `node.management`; None: it is off, or no adapter that is served has one."""
        self._watch: RightsWatch | None = None
        self._disconnects = Disconnects(self.adapters, random)
        self.tls_failures = TlsFailures(_log, clock)
        memory = settings.node.memory
        self.memory = GatewayMemory(
            clock, memory.unfinished_input_bytes, memory.unread_output_bytes
        )
        seeds = quotas_of(settings.limits)
        self.quotas = Quotas(seeds)
        self._audit: AuditTrail | None = None
        self._limits = LimitRecords(seeds, self.quotas, clock)
        self._sizes = SizeRecords(self.quotas, clock)
        self._sessions = BrowserSessions(clock, random)
        self.tenants = TenantBook(settings.tenants, self._declared, clock)
        self._removal = TenantRemoval(
            self.tenants, client, self._principals, self._limits, clock, name
        )
        self._removing: asyncio.Task[None] | None = None

    async def identify(self, command: str) -> None:
        """Learn who may sign in; make the first administrator, if the environment names one.

        `command`: as typed, for the answer to whoever must make one first. Raises StartRefused.
        """
        self.tenants.follow(self._client)
        self._identity.follow(self._client)
        self._identity.bar(self.tenants)
        self._limits.follow(self._client)
        self._sizes.follow(self._client)
        users = self._identity.store.user_count()
        refusal = startup_check(self._reachable, users, os.environ, command)
        if refusal is not None:
            raise StartRefused(refusal)
        administrator = await self._principals.first_administrator(os.environ)
        if administrator is not None:
            _log.info("first administrator created", user=administrator.name)

    async def serve(self, metering: NodeMetering | None) -> None:
        """Make every adapter, and listen. Raises StartRefused, OSError."""
        builder = Builder(
            client=self._client,
            identity=self._identity,
            clock=self._clock,
            random=self._random,
            tls=self._tls,
            client_authority=_path(self._settings.node.tls.client_authority),
            tls_failures=self.tls_failures,
            memory=self.memory,
            quotas=self.quotas,
            tenants=self.tenants,
            metering=metering,
        )
        for name, protocol in self._settings.protocols.items():
            if protocol.open_listeners():
                declared = self._declared[name]
                register_readers(self._client.origins, {name: declared})
                adapter = builder.build(declared, protocol)
                self.adapters.append(adapter)
                if declared.management is not None and self._settings.node.management.enabled:
                    services = builder.services(declared, protocol)
                    self.management = declared.management(services, adapter, self._inside)
        self._disconnects.follow(self._client)
        # Before anyone is let in: from now on no change is missed.
        self._watch = RightsWatch(self._identity.store, self.adapters, asyncio.get_running_loop())
        self._watch.start()
        self._removing = asyncio.get_running_loop().create_task(self._removal.run())
        for adapter in self.adapters:
            await _bind(adapter, self._settings.protocols[adapter.name])

    @property
    def users(self) -> UserRecords:
        """Who may sign in, and what they may do."""
        return self._identity

    def admin_app(
        self,
        token: AdminToken,
        health: HealthRoutes,
        metering: NodeMetering | None,
        cluster_admin: ClusterAdmin | None = None,
        features: LocalFeatures | None = None,
        name: str = "",
        history: History | None = None,
        disk: Callable[[], DiskSpace] | None = None,
        topics: TopicMetrics | None = None,
        loaded: Loaded | None = None,
        pins: PinKeeper | None = None,
        questions: Questions | None = None,
    ) -> ASGIApp:
        """The application of the admin side; `cluster_admin`: of the cluster, if it belongs to
        one; `features`: if not; `name`: of this process, empty for that of the machine; `history`:
        None: none is kept; `disk`: None: there is no store here; `topics`: None: they are
        led elsewhere; `loaded`: where the settings come from; `pins`: of its own store, if that
        belongs to no cluster; `questions`: to the other gateways of the cluster.
        """
        node_name = name or os.uname().nodename
        self._audit = AuditTrail(self._client, self._clock, node_name)
        gateway = name if pins is None else ""
        pinning = Pinning(pins, self._data, self._key_file, gateway=gateway)
        parts = AdminParts(
            client=self._client,
            principals=self._principals,
            identity=self._identity,
            token=token,
            health=health,
            clock=self._clock,
            tenants=self.tenants,
            removal=self._removal,
            limits=self._limits,
            quotas=self.quotas,
            declared=self._declared,
            metering=metering,
            cluster_admin=cluster_admin,
            features=features,
            pinning=pinning,
            adapters=self.adapters,
            disconnects=self._disconnects,
            node_name=node_name,
            audit=self._audit,
            shapes=DeclaredShapes(self._declared, self._settings.protocols),
            sessions=self._sessions,
            history=history,
            disk=disk,
            topics=topics,
            loaded=loaded,
            questions=questions,
            memory=self.memory,
        )
        guard = build_app(self._settings.node.admin, parts)
        self._inside.application = guard.application
        return guard

    def sign_in_code(self) -> str | None:
        """What signs a browser in once as the operator, for whoever reads what the server says at
        start; None where other machines can reach a listener.
        """
        if not self._identity.directory.has_development:
            return None
        return self._sessions.code(OPERATOR)

    def logins(self) -> CheckStatistics:
        """Figures of the logins by password."""
        return self._identity.statistics()

    @property
    def addresses(self) -> dict[str, str]:
        """Where it listens, by protocol and listener."""
        return {
            f"{adapter.name}.{name}": f"{host}:{port}"
            for adapter in self.adapters
            for name, (host, port) in adapter.addresses().items()
        }

    def _tls(self) -> LiveCertificate:
        return certificate_of_listeners(self._certificates, self._settings, self._clock)

    # --- Stop -------------------------------------------------------------------------------

    def collector(self, below: Collector, metering: NodeMetering | None) -> NodeCollector:
        """The figures of this process; `below`: those of the store, or of the way to the stores."""
        return NodeCollector(
            below,
            self.adapters,
            metering,
            self.tls_failures,
            self.logins,
            self.memory,
            self.quotas,
            fair_scheduler_of(self._client, asyncio.get_running_loop()),
            lambda: self._audit,
        )

    async def drain(self) -> None:
        """Tell every client to go, wait until they have, bounded in time; then stop listening."""
        await asyncio.gather(*map(_drain, self.adapters))
        if self._watch is not None:
            self._watch.stop()
        if self._removing is not None:
            self._removing.cancel()
            await asyncio.wait([self._removing])

    async def close(self) -> None:
        """Check no more logins."""
        await self._identity.close()


def _path(named: str | None) -> Path | None:
    return None if named is None else Path(named)


async def _drain(adapter: Adapter) -> None:
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            await adapter.drain()
    except TimeoutError:
        _log.warning("drain cut off", adapter=adapter.name, after_seconds=DRAIN_SECONDS)
    await adapter.stop()
    _log.info("drained", adapter=adapter.name)


UNBINDABLE = {
    errno.EADDRINUSE: "Stop the other program, or choose another port: --set {setting}.port=PORT",
    errno.EADDRNOTAVAIL: "This machine has no such address; choose one: --set {setting}.host=HOST",
    errno.EACCES: "That port needs a right which this user lacks: --set {setting}.port=PORT",
}
"""Why an address cannot be listened at, and what is to be done."""


async def _bind(adapter: Adapter, protocol: Protocol) -> None:
    """Start an adapter; an address that cannot be had is told with the setting that changes it."""
    try:
        await adapter.start()
    except OSError as error:
        # None is bound now; which one could not be is asked of the system once more.
        for name, listener in protocol.open_listeners().items():
            found = await _obstacle(listener)
            if found is not None and found.errno in UNBINDABLE:
                setting = f"{adapter.name}.listeners.{name}"
                raise StartRefused(
                    f"{adapter.name} cannot listen: {os.strerror(found.errno)}: "
                    f"{listener.host}:{listener.port}, the listener {name}. "
                    f"{UNBINDABLE[found.errno].format(setting=setting)}"
                ) from error
        raise


async def _obstacle(listener: Listener) -> OSError | None:
    """Why a listener cannot be bound, if it cannot."""
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(asyncio.Protocol, listener.host, listener.port)
    except OSError as error:
        return error
    server.close()
    return None
