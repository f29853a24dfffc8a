"""One gateway of a cluster as a process: it serves clients, and holds nothing that must last.

    data directory, its lock -> admin side (not ready) -> a store answers, leaders are known
        -> identity -> adapters -> ready                                                  (start)
    not ready -> adapters say goodbye -> adapters stop -> admin -> metering: last flush
        -> connections to the stores                                                      (stop)

Until the stores can be reached nothing but the admin side listens: it says which store does not
answer and why, and so does the log; they are tried for as long as the process runs. Its directory
holds its name, its admin token, a certificate and the archive of the metering: losing it loses no
message.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from auth.private_files.files import read_or_create_private
from auth.private_files.tokens import open_admin_token
from gateway.access.turned_away import TurnedAway
from gateway.admin.app import build_waiting_app
from gateway.admin.health import (
    Check,
    HealthRoutes,
    keys_check,
    memory_check,
    metering_check,
    serving_check,
)
from gateway.admin.http.server import Exchange
from gateway.admin.metrics.gateway_metrics import GatewayFigures, stores_check
from gateway.admin.metrics.history import History
from gateway.admin.metrics.process_metrics import NodeCollector
from gateway.admin.metrics.topic_metrics import TopicMetrics
from gateway.admin.metrics.totals_elsewhere import TotalsElsewhere, answer_totals
from gateway.config.cluster_settings import gateway_address, peers_of
from gateway.config.declared import declared_in
from gateway.config.exposure import warn_of_exposures
from gateway.process.running import GATEWAY_FILE, StartRefused, command_typed, understands
from gateway.process.service_manager import SERVING, tell_manager
from gateway.reporting.heartbeat_reports import HeartbeatReporter
from gateway.reporting.limit_reports import LimitReports
from gateway.reporting.node_metering import NodeMetering
from gateway.serving.front import DRAIN_SECONDS, Front
from gateway.serving.greeting import greeting
from gateway.serving.serving_node import ServingNode, end_task
from kernel.cluster import records
from kernel.cluster.cluster_admin import ClusterAdmin
from kernel.log.format.meta import read_meta
from kernel.remote.connecting import connect
from kernel.remote.leader_calls.leaders import RemoteLeaders
from kernel.remote.mesh.meeting import MeetingPoint
from kernel.rpc.handshake import VERSIONS, Hello
from kernel.rpc.roles import GATEWAY
from kernel.store.drivers.disk import DirectoryDisk
from kernel.store.drivers.system import SystemRandom
from kernel.store.raft_groups.peer_links import new_nonce

if TYPE_CHECKING:
    from auth.private_files.tokens import AdminToken
    from gateway.config.loading import Loaded
    from gateway.config.schema import Settings
    from kernel.remote.client import ClusterClient

SAY_AGAIN_SECONDS = 10.0
"""How often the log says that no store can be reached: often enough for whoever watches a start,
seldom enough for a night without stores."""

SAY_FIRST_SECONDS = 3.0
"""Longer than an election: a cluster that is well has been found by then."""

NAME_BITS = 48
"""Of chance: no two of a thousand gateways ever have the same name."""

_log = structlog.get_logger("weir.gateway")


class GatewayNode(ServingNode):
    """`weir gateway`."""

    def __init__(self, settings: Settings, loaded: Loaded | None = None) -> None:
        """`loaded`: where the settings come from; None: nobody is shown."""
        super().__init__(settings, _log, DRAIN_SECONDS)
        self._loaded = loaded
        self._name = ""
        self._process = ""
        self._heartbeat_reporter: HeartbeatReporter | None = None
        self._reporting: asyncio.Task[None] | None = None
        self._history: asyncio.Task[None] | None = None
        self._remote: RemoteLeaders | None = None
        self._meeting: MeetingPoint | None = None
        self._address = ""
        """Where other gateways reach this one."""
        self._client: ClusterClient | None = None
        self._serving: asyncio.Task[None] | None = None
        self._front: Front | None = None

    # --- Start ------------------------------------------------------------------------------

    async def _start(self, tasks: asyncio.TaskGroup) -> None:
        cluster = self._settings.node.cluster
        security = self._open_security()
        self._take_directory()
        if read_meta(DirectoryDisk(self._data)) is not None:
            raise StartRefused(
                f"{self._data} is the data directory of a store: give the gateway another one"
            )
        # One that starts anew is another process to the stores, which end what the old one held.
        self._process = f"{self._random.bits(64):016x}"
        self._name = gateway_name(self._data, self._random)
        hello = partial(self._hello, self._process)
        self._meeting = MeetingPoint(
            hello,
            security.secret,
            self._clock,
            server_tls=security.server_tls,
            client_tls=security.client_tls,
            turned_away=TurnedAway(_log, self._clock),
        )
        mesh = self._settings.node.mesh
        bound = await self._meeting.listen(mesh.host, mesh.port)
        self._address = gateway_address(self._settings, bound)
        remote = RemoteLeaders(
            hello, security.secret, peers_of(cluster), self._clock, tls=security.client_tls
        )
        self._remote = remote
        token = open_admin_token(self._data)
        exchange = Exchange(build_waiting_app(self._settings.node.admin, token, self._health()))
        if self._settings.node.admin.enabled:
            await self._serve_admin(exchange, tasks)
        self._serving = tasks.create_task(self._serve(tasks, token, exchange))

    def _hello(self, process: str) -> Hello:
        cluster = self._settings.node.cluster.name
        nonce = new_nonce(self._random.bits)
        return Hello(VERSIONS, cluster, 0, process, GATEWAY, self._address, nonce, understands())

    def _health(self) -> HealthRoutes:
        assert self._remote is not None
        return HealthRoutes(self._checks, NodeCollector(GatewayFigures(self._remote, None)))

    def _checks(self) -> list[Check]:
        assert self._remote is not None
        accepting = self._client is None or self._client.accepting
        heartbeat_reporter = self._heartbeat_reporter
        draining = heartbeat_reporter is not None and heartbeat_reporter.draining
        full = "a store that leads has too little free disk: new messages are refused"
        return [
            stores_check(self._remote),
            serving_check(ready=self._ready),
            Check("clients", not draining, "the clients of this gateway move to others" * draining),
            Check("disk", accepting, "" if accepting else full),
            memory_check(self._front.memory if self._front is not None else None),
            keys_check(self._front.keys if self._front is not None else None),
            metering_check(self._metering),
            Check("certificate", True, self._certificates.alarms),
            *(
                []
                if heartbeat_reporter is None
                else [Check("tenants", True, heartbeat_reporter.unlike_reason())]
            ),
        ]

    async def _serve(self, tasks: asyncio.TaskGroup, token: AdminToken, exchange: Exchange) -> None:
        """Find the cluster; then serve clients."""
        client = await self._connect()
        self._client = client
        self._follow_register(client)
        front = Front(
            self._settings,
            self._data,
            client,
            self._clock,
            self._random,
            self._certificates,
            self._name,
        )
        self._front = front
        await front.identify(command_typed())
        cluster_admin = self._cluster_admin(client)
        self._meter(client, cluster_admin, tasks)
        self._begin_tracing(client, self._name, tasks)
        await front.serve(self._metering)
        self._heartbeat_reporter = HeartbeatReporter(
            name=self._name,
            process=self._process,
            settings=self._settings,
            client=client,
            adapters=front.adapters,
            cluster_admin=cluster_admin,
            clock=self._clock,
            limits=LimitReports(front.quotas, self._clock),
        )
        self._reporting = tasks.create_task(self._heartbeat_reporter.run())
        figures = GatewayFigures(client.leaders, client, self._heartbeat_reporter, self._meeting)
        collector = front.collector(figures, self._metering)
        transient = client.transient.replica
        topics = TopicMetrics(lambda: [transient], self._clock, self._settings.node.metrics)
        health = HealthRoutes(self._checks, collector, topics)
        questions = client.mesh.questions
        answer_totals(questions, topics, f"gateway {self._name}")
        elsewhere = TotalsElsewhere(client.leaders, questions)
        history = History(topics, client, self._clock, elsewhere)
        exchange.app = front.admin_app(
            token,
            health,
            self._metering,
            cluster_admin,
            name=self._name,
            history=history,
            loaded=self._loaded,
            questions=questions,
        )
        self._history = tasks.create_task(history.run())
        await self._serve_management(front.management, tasks)
        self._make_alarms(self._checks)
        self._begin_looking()
        self._ready = True
        self._greet(front, client)

    async def _connect(self) -> ClusterClient:
        assert self._remote is not None
        loop = asyncio.get_running_loop()
        saying = loop.call_later(SAY_FIRST_SECONDS, self._say_waiting)
        self._saying = saying
        try:
            return await connect(self._remote, self._clock, self._random, self._meeting)
        finally:
            self._saying.cancel()

    def _say_waiting(self) -> None:
        """Say why nothing is served yet, and again later."""
        assert self._remote is not None
        loop = asyncio.get_running_loop()
        self._saying = loop.call_later(SAY_AGAIN_SECONDS, self._say_waiting)
        check = stores_check(self._remote)
        reason = check.reason or "the stores have not told yet what is defined"
        _log.warning("waiting for the cluster", reason=reason)

    def _cluster_admin(self, client: ClusterClient) -> ClusterAdmin:
        def register() -> dict[int, records.NodeRecord]:
            known = records.read(client.records(records.PREFIX))
            return {number: each for number, (_, each) in known.items()}

        return ClusterAdmin(self._settings.node.cluster.name, client.leaders, register)

    def _follow_register(self, client: ClusterClient) -> None:
        """Dial the stores that belong to the cluster, wherever they are now."""

        def follow(key: str, _record: tuple[int, bytes] | None) -> None:
            if key.startswith(records.PREFIX):
                update()

        def update() -> None:
            known = records.read(client.records(records.PREFIX))
            client.leaders.update(
                {number: (each.facts.host, each.facts.port) for number, (_, each) in known.items()}
            )

        client.watch_records(follow)
        update()

    def _meter(
        self, client: ClusterClient, cluster_admin: ClusterAdmin, tasks: asyncio.TaskGroup
    ) -> None:
        """Count what no log holds: the stores count what theirs do."""
        settings = self._settings.node.metering
        if not settings.enabled:
            return
        metering = NodeMetering(
            client,
            lambda: (client.transient.replica,),
            self._name,
            self._data,
            self._clock,
            settings,
            declared_in(self._settings.protocols),
            cluster_admin.flush,
        )
        self._metering = metering
        metering.start(tasks)

    def _greet(self, front: Front, client: ClusterClient) -> None:
        cluster = self._settings.node.cluster.name
        stores = ", ".join(map(str, client.leaders.connected))
        notes = [
            f"gateway {self._name} of cluster {cluster!r}, stores {stores}",
            *warn_of_exposures(self._settings),
        ]
        address = self._admin.url if self._admin is not None else None
        sys.stderr.write(greeting(self._settings, front.adapters, notes, address))
        sys.stderr.flush()
        _log.info(
            "serving", name=self._name, stores=client.leaders.connected, listeners=front.addresses
        )
        tell_manager(SERVING)

    # --- Stop -------------------------------------------------------------------------------

    async def _stop(self) -> None:
        self._ready = False
        self._end_looking()
        await end_task(self._serving)
        await end_task(self._reporting)
        await end_task(self._history)
        if self._front is not None:
            await self._front.drain()
        await self._stop_tracing()
        await self._stop_admin()
        await self._stop_metering()
        if self._front is not None:
            await self._front.close()
        if self._client is not None:
            await self._client.stop()
        elif self._remote is not None:
            await self._remote.stop()
            if self._meeting is not None:
                await self._meeting.stop()
        if self._lock is not None:
            _log.info("stopped", data=str(self._data))
        self._leave_directory()


def gateway_name(data: Path, random: SystemRandom) -> str:
    """What a gateway is called, and by whom the flushes of its metering are: the same after a
    restart. Raises AuthError UNSAFE_FILE, OSError.
    """

    def make() -> bytes:
        return f"gateway-{random.bits(NAME_BITS):012x}\n".encode()

    return read_or_create_private(data / GATEWAY_FILE, make).decode("ascii", "replace").strip()
