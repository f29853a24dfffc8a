"""One store of a cluster as a process: it holds the data and speaks to the other stores.

    data directory, its lock, whose it is -> store -> listener, peers -> manager -> admin   (start)
    not ready -> metering: last flush -> leaderships to others -> admin -> manager -> peers
        -> store: checkpoint                                                                  (stop)

Clients are not served here. Until the cluster has let it in, the store waits (`weir cluster join`).
"""

from __future__ import annotations

import asyncio
import errno
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

import gateway
from auth.errors import AuthCode, AuthError
from auth.private_files.tokens import open_admin_token
from gateway.access.identity import UserRecords
from gateway.access.limit_records import LimitRecords
from gateway.access.tenant_book import TenantBook, limit_tenants
from gateway.access.turned_away import TurnedAway
from gateway.access.will_rights import WillRights
from gateway.admin.app import StoreParts, build_store_app
from gateway.admin.health import Check, HealthRoutes, metering_check, serving_check
from gateway.admin.metrics.cluster_metrics import StoreCollector
from gateway.admin.metrics.store_metrics import damage_check, disk_check, features_check
from gateway.admin.metrics.topic_metrics import TopicMetrics
from gateway.admin.metrics.totals_elsewhere import answer_totals
from gateway.admin.resources.backups import Pinning
from gateway.admin.resources.cluster import Admission
from gateway.config.cluster_settings import (
    address_of,
    host_label,
    peers_of,
    spell_address,
)
from gateway.config.declared import declared_in, register_readers
from gateway.config.exposure import warn_of_exposures
from gateway.config.limits import quotas_of
from gateway.process.data_lock import lock_data_directory
from gateway.process.running import (
    StartRefused,
    calm_ms,
    check_no_gateway,
    fatal,
    make_data_directory,
    understands,
)
from gateway.process.service_manager import SERVING, tell_manager
from gateway.process.slices import give_way_to
from gateway.reporting.leader_log import LeaderLog
from gateway.reporting.node_metering import NodeMetering, node_of
from gateway.reporting.resize_log import ResizeLog
from gateway.serving.serving_node import ServingNode, end_task
from kernel.cluster.cluster_admin import ClusterAdmin
from kernel.cluster.cluster_service import ClusterService
from kernel.cluster.manager import Manager
from kernel.cluster.records import Facts, NodeState
from kernel.cluster.roster import FILE as HOME_FILE
from kernel.cluster.roster import Home, Roster, read_home, write_home
from kernel.in_process.opening import LocalStore, open_store
from kernel.log.format.meta import ensure_meta, read_meta
from kernel.quotas.accounts import Quotas
from kernel.remote.leader_calls.leaders import RemoteLeaders
from kernel.remote.serving import join_peer_stores, serve_gateways
from kernel.rpc.handshake import VERSIONS, Hello
from kernel.rpc.roles import GATEWAY, STORE
from kernel.store.drivers.disk import DirectoryDisk
from kernel.store.drivers.worker import Worker
from kernel.store.raft_groups.consensus import RaftTiming
from kernel.store.raft_groups.peer_links import PeerLinks, new_nonce

if TYPE_CHECKING:
    from gateway.config.cluster_settings import Security
    from gateway.config.schema import Settings
    from kernel.store.replicas.replica import Replica

TICKS_PER_ELECTION = 10

HAND_OVER_SECONDS = 10
"""For others to lead what this store led: a transfer takes a few round trips, and a third of the
30 s that service managers wait is left for the last checkpoint."""

HAND_OVER_LOOK_SECONDS = 0.05

_log = structlog.get_logger("weir.store")


class StoreNode(ServingNode):
    """`weir store`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, _log, HAND_OVER_SECONDS)
        self._links: PeerLinks | None = None
        self._local: LocalStore | None = None
        self._remote: RemoteLeaders | None = None
        self._cluster_service: ClusterService | None = None
        self._manager: Manager | None = None
        self._managing: asyncio.Task[None] | None = None

    # --- Start ------------------------------------------------------------------------------

    async def _start(self, tasks: asyncio.TaskGroup) -> None:
        security = self._open_security()
        self._take_directory()
        disk = self._open_disk()
        home = claim(disk, self._settings)
        cluster, number = self._settings.node.cluster, home.number
        store = ensure_meta(disk, self._random).store.hex()
        facts = Facts(store, *address_of(self._settings), host_label(cluster), cluster.zone or "")
        own = facts.host, facts.port
        roster = Roster(home, facts.store, {**peers_of(cluster), number: own})
        local, links = await self._open(disk, home, roster, security)
        register_readers(local.client.origins, declared_in(self._settings.protocols))
        bounds = cluster.gateway_traffic_max, cluster.hot_topic_messages
        cluster_service = ClusterService(
            local, links, roster, self._clock, gateway.__version__, *bounds
        )
        self._cluster_service = cluster_service
        service = serve_gateways(local, asyncio.get_running_loop().call_soon)
        service.add(cluster_service)
        self._begin_logging(local)
        links.serve(GATEWAY, service, roster.admit_gateway)
        await self._listen(links, local)
        remote = RemoteLeaders(
            partial(self._hello, roster, GATEWAY),
            security.secret,
            {**roster.addresses(), number: own},
            self._clock,
            given=roster.given,
            tls=security.client_tls,
        )
        self._remote = remote
        join_peer_stores(local, remote, self._clock, self._random)
        topics = TopicMetrics(local.store.replicas, self._clock, self._settings.node.metrics)
        answer_totals(service.questions, topics, f"store {home.number}")
        topics.sizes = local.client.sizing.figures
        wills = WillRights()
        local.client.tree.judge_wills(wills.may_publish)
        checks = partial(self._checks, local, links, remote, roster)
        alarms = self._make_alarms(checks)
        local.store.unreadable.losses.watchers.append(alarms.given_up)
        await local.start()
        users = UserRecords(_sealed)
        book = TenantBook(
            self._settings.tenants, declared_in(self._settings.protocols), self._clock
        )
        book.follow(local.client)
        users.follow(local.client)
        users.bar(book)
        wills.follow(users)
        quotas = self._limited(local, book)
        remote.start()
        manager = Manager(
            local.store, local.client, links, remote, roster, cluster_service, facts, disk
        )
        self._begin_managing(manager, tasks)
        self._meter(local, cluster_service, tasks)
        self._begin_tracing(local.client, f"store {number}", tasks)
        if self._settings.node.admin.enabled:
            figures = StoreCollector(
                local, links, service, self._metering, quotas, cluster_service.count_short
            )
            parts = self._admin_parts(
                local, HealthRoutes(checks, figures, topics), roster, remote, facts
            )
            await self._serve_admin(build_store_app(self._settings.node.admin, parts), tasks)
        self._begin_looking()
        self._ready = True
        self._greet(local, roster, own)

    def _admin_parts(
        self,
        local: LocalStore,
        health: HealthRoutes,
        roster: Roster,
        remote: RemoteLeaders,
        facts: Facts,
    ) -> StoreParts:
        pins = local.housekeeper.pins
        pins.beside = (HOME_FILE,)
        key_file = Path(self._settings.node.key_file or self._data / "secrets.key")
        return StoreParts(
            token=open_admin_token(self._data),
            health=health,
            cluster_admin=ClusterAdmin(roster.cluster, remote, lambda: roster.records),
            admission=Admission(roster.number, facts, len(local.store.home_groups)),
            pinning=Pinning(pins, self._data, key_file, store=roster.number),
            clock=self._clock,
        )

    def _begin_managing(self, manager: Manager, tasks: asyncio.TaskGroup) -> None:
        manager.replicas = self._settings.node.cluster.replicas
        self._manager = manager
        self._managing = tasks.create_task(manager.run())

    def _begin_logging(self, local: LocalStore) -> None:
        resizes = ResizeLog(_log, self._clock)
        local.client.administrator.queues_changed = resizes.queues_changed
        local.client.sizing.tell = resizes.sized
        local.client.sizing.calm_ms = calm_ms()
        consensus = local.store.consensus
        lines, tell = LeaderLog(_log, local.store, self._clock), consensus.leaders_changed

        def leaders_changed() -> None:
            tell()
            lines.look()

        consensus.leaders_changed = leaders_changed

    def _hello(self, roster: Roster, role: str) -> Hello:
        nonce = new_nonce(self._random.bits)
        own = roster.cluster, roster.number, roster.store, role, "", nonce
        return Hello(VERSIONS, *own, understands(), roster.timeline)

    async def _open(
        self, disk: DirectoryDisk, home: Home, roster: Roster, security: Security
    ) -> tuple[LocalStore, PeerLinks]:
        loop = asyncio.get_running_loop()
        cluster = self._settings.node.cluster
        links = PeerLinks(
            partial(self._hello, roster, STORE),
            security.secret,
            roster.addresses(),
            self._clock,
            given=roster.given,
            server_tls=security.server_tls,
            client_tls=security.client_tls,
            admit=roster.admit,
            turned_away=TurnedAway(_log, self._clock),
        )
        tick_ms = cluster.election_timeout_ms // TICKS_PER_ELECTION
        local = open_store(
            disk,
            self._clock,
            self._random,
            partial(Worker, loop),
            fatal,
            data_groups=cluster.data_groups,
            node=home.number,
            members=None if home.founder else (),
            peers=links,
            timing=RaftTiming(tick_ms, TICKS_PER_ELECTION),
            understands=understands(),
        )
        roster.level = lambda: local.store.feature_level
        assert local.receiver is not None, "a store with peers takes in what they send"
        local.receiver.bytes_per_second = cluster.copy_bytes_per_second
        self._local = local
        give_way_to(local.store)
        return local, links

    async def _listen(self, links: PeerLinks, local: LocalStore) -> None:
        """Listen, and dial the others."""
        assert local.source is not None
        listener = self._settings.node.store
        self._links = links
        try:
            await links.start(local.store.consensus, local.source, (listener.host, listener.port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise StartRefused(
                f"the store cannot listen at {listener.host}:{listener.port}: {error.strerror}. "
                "Stop the other program, or choose another port: --set node.store.port=PORT"
            ) from error

    def _limited(self, local: LocalStore, book: TenantBook) -> Quotas:
        """The limits that are decided here, by the store's own settings and what is set at run
        time.
        """
        seeds = quotas_of(self._settings.limits)
        quotas = Quotas(seeds)
        LimitRecords(seeds, quotas, self._clock).follow(local.client)
        limit_tenants(local.client, quotas, book)
        return quotas

    def _meter(
        self, local: LocalStore, cluster_service: ClusterService, tasks: asyncio.TaskGroup
    ) -> None:
        """Count what the groups hold that this store leads; the archive is the gateways' business.
        The first flush may have to wait until the cluster has let this store in.
        """
        settings = replace(self._settings.node.metering, export_interval_s=0)
        if not settings.enabled:
            return
        store = local.store

        def led() -> list[Replica]:
            return [store.replica(each) for each in store.groups if store.serving(each)]

        self._metering = NodeMetering(
            local.client,
            led,
            node_of(self._data),
            self._data,
            self._clock,
            settings,
            declared_in(self._settings.protocols),
        )
        self._metering.start(tasks)
        cluster_service.flush = self._metering.flush

    def _checks(
        self, local: LocalStore, links: PeerLinks, remote: RemoteLeaders, roster: Roster
    ) -> list[Check]:
        return [
            serving_check(ready=self._ready),
            disk_check(local.housekeeper.disk_space, accepting=local.client.accepting),
            damage_check(local),
            place(local, links, remote, roster),
            replicas_check(self._cluster_service),
            features_check(local) if roster.own is not None else Check("features", True, ""),
            metering_check(self._metering),
            Check("certificate", True, self._certificates.alarms),
        ]

    def _greet(self, local: LocalStore, roster: Roster, own: tuple[str, int]) -> None:
        admin = self._admin.url if self._admin is not None else ""
        address = spell_address(own)
        name = f"store {roster.number} of cluster {roster.cluster!r}"
        lines = [
            f"Weir {gateway.__version__}, {name}, data in {self._data}",
            *(f"  {each}" for each in warn_of_exposures(self._settings)),
            f"  stores    {address}",
        ]
        if admin:
            lines.append(f"  admin     {admin}  /livez /readyz /metrics /api/v1/cluster")
        if not roster.records and not roster.home().founder:
            lines.append(f"  not let in yet: weir cluster join --data {self._data}")
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()
        _log.info(
            "serving",
            store=roster.number,
            replayed=local.replayed,
            clean=local.clean,
            listeners={"store": address},
        )
        tell_manager(SERVING)

    # --- Stop -------------------------------------------------------------------------------

    async def _stop(self) -> None:
        was_ready, self._ready = self._ready, False
        await self._stop_tracing()
        await self._stop_metering()
        if was_ready:
            await self._hand_over()
        self._end_looking()
        await self._stop_admin()
        await end_task(self._managing)
        if self._cluster_service is not None:
            await self._cluster_service.stop()
        if self._remote is not None:
            await self._remote.stop()
        if self._links is not None:
            await self._links.stop()
        if self._local is not None:
            await self._local.stop()
            _log.info("stopped", data=str(self._data))
        self._leave_directory()

    async def _hand_over(self) -> None:
        """Have others lead what they can."""
        assert self._cluster_service is not None
        assert self._manager is not None
        self._cluster_service.draining = True
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS):
                while not self._manager.lead_nothing():  # noqa: ASYNC110 - Raft is looked at
                    await asyncio.sleep(HAND_OVER_LOOK_SECONDS)
        except TimeoutError:
            _log.warning("leaderships kept", after_seconds=HAND_OVER_SECONDS)


def _sealed(_envelope: bytes, _context: bytes) -> bytes:
    """A store has no key to secrets, and needs none: nobody signs in to it."""
    raise AuthError(AuthCode.UNAVAILABLE, "a store opens no secrets")


def claim(disk: DirectoryDisk, settings: Settings) -> Home:
    """Whose the data directory is: an empty one becomes that of the store of the settings, which
    waits to be let in. Raises StartRefused.
    """
    cluster = settings.node.cluster
    home = read_home(disk)
    if home is None:
        check_empty(disk, settings.node.data)
        if not cluster.peers:
            raise StartRefused(
                f"store {cluster.number} is new and knows no other: name one that runs in "
                "node.cluster.peers (NUMBER@HOST:PORT), or begin a cluster with "
                "`weir cluster init`"
            )
        home = Home(cluster.name, cluster.number)
        write_home(disk, home)
    for name, given, found in (
        ("number", cluster.number, home.number),
        ("name", cluster.name, home.cluster),
    ):
        if given != found:
            raise StartRefused(
                f"{settings.node.data} is the data directory of store {home.number} of cluster "
                f"{home.cluster!r}, and node.cluster.{name} is {given}"
            )
    return home


def found_cluster(data: Path, settings: Settings) -> None:
    """Make an empty data directory that of the first store of a new cluster, durably. Raises
    StartRefused, DataDirectoryInUse, KernelError, OSError.
    """
    make_data_directory(data)
    lock = lock_data_directory(data)
    try:
        disk = DirectoryDisk(data)
        home = read_home(disk)
        if home is not None:
            raise StartRefused(
                f"{data} is that of store {home.number} of cluster {home.cluster!r} already"
            )
        check_empty(disk, str(data))
        cluster = settings.node.cluster
        write_home(disk, Home(cluster.name, cluster.number, founder=True))
    finally:
        lock.release()


def check_empty(disk: DirectoryDisk, data: str) -> None:
    """Raise StartRefused for the directory of a gateway, or of a store that is in no cluster."""
    check_no_gateway(Path(data))
    if read_meta(disk) is not None:
        raise StartRefused(
            f"{data} is the data directory of `weir serve`, which belongs to no cluster (or of a "
            f"store that has lost its {HOME_FILE}): begin with an empty one"
        )


def replicas_check(cluster_service: ClusterService | None) -> Check:
    """Groups with too few replicas: an alarm, since all else goes on."""
    groups = cluster_service.short_groups()[1] if cluster_service is not None else {}
    told = [f"group {group}: {each.what}" for group, each in sorted(groups.items())]
    return Check("replicas", True, "; ".join(told))


def place(local: LocalStore, links: PeerLinks, remote: RemoteLeaders, roster: Roster) -> Check:
    """Whether the store is where it belongs in its cluster, and why it is not."""
    errors = {**{node: remote.last_error(node) for node in remote.nodes}, **links.errors()}
    told = [f"store {node}: {error}" for node, error in sorted(errors.items()) if error]
    reasons = "; ".join([links.refused] * bool(links.refused) or told)
    why = f" ({reasons})" if reasons else ""
    if roster.own is None:
        reason = f"the cluster has not let this store in: run `weir cluster join`{why}"
        return Check("cluster", ok=False, reason=reason)
    if roster.own.state is NodeState.LEAVING:
        # The register comes here no more once it has left, so that this is the last that it knows.
        reason = "the cluster has this store leave, or it has left: then it can be stopped"
        return Check("cluster", ok=False, reason=reason)
    held = filter(local.store.holds, local.store.groups)
    leaderless = [group for group in held if not local.store.standing(group)[1]]
    if not leaderless:
        return Check("cluster", ok=True, reason="")
    names = ", ".join(map(str, leaderless))
    reason = f"no leader is known of group {names}{why}"
    if any(remote.table.of(group) for group in leaderless):
        reason += "; others lead without this store: if it was removed or replaced, stop it"
    return Check("cluster", ok=False, reason=reason)
