"""A gateway tells the manager every second whom it serves, and does what it hears: some of its
clients are to go to another gateway (`kernel.cluster.gateway_balance`, `Adapter.move`).

    adapters' connections, topics in use, traffic --HEARTBEAT_REPORT--> leader of group 0
    adapters' move(connections, to)               <--Orders--

While nobody leads group 0 nothing is told, and nobody moves. Adapters may go on sending a client to
where it was told to go; when that gateway takes no more clients, or this one is no longer drained,
they hear it by the addresses that they were given, which are emptied.

It also tells a word for its `tenants` and `limits`, and hears which other gateways have told
another: clients would find other names there, or may use more or less. That is said, and stops
nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

import gateway
from adapters.base import KERNEL_ORIGIN
from gateway.config.cluster_settings import ANYWHERE, host_label, spell_address
from gateway.config.declared import KERNEL_NAME, declared_in, names_by_origin
from gateway.config.tenants import settings_word
from kernel.cluster.gateway_balance import SMOOTHED
from kernel.cluster.messages import (
    CLIENT_NAME_LENGTH_MAX,
    STAYING_MAX,
    TASKS_MAX,
    ClientMove,
    HeartbeatReport,
    Orders,
    Role,
    Staying,
    Task,
)
from kernel.common.errors import KernelError
from kernel.remote.served_topics import Consumers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from adapters.base import Adapter
    from adapters.moving import ConsumersByKey
    from gateway.config.schema import Settings
    from gateway.reporting.limit_reports import LimitReports
    from kernel.cluster.cluster_admin import ClusterAdmin
    from kernel.common.ports import Clock
    from kernel.remote.client import ClusterClient

REPORT_SECONDS = 1.0
"""Between two reports; the manager takes a gateway for gone after five."""

ABSENT_REPORTS = 3
"""Another gateway that is not told of so often takes no clients: a new leader of group 0 has heard
of all gateways by then. Likewise one of other tenants that is not named any more."""

_log = structlog.get_logger("weir.gateway")


class HeartbeatReporter:
    """Of one gateway. `run` until it is cancelled."""

    def __init__(
        self,
        name: str,
        process: str,
        settings: Settings,
        client: ClusterClient,
        adapters: Sequence[Adapter],
        cluster_admin: ClusterAdmin,
        clock: Clock,
        limits: LimitReports | None = None,
    ) -> None:
        """`name`: of the gateway, the same after a restart; `process`: of this process alone."""
        self._limits = limits
        self._name = name
        self._process = process
        self._label = host_label(settings.node.cluster)
        self._listeners = told_listeners(settings, adapters)
        declared = declared_in(settings.protocols)
        self._kinds = {KERNEL_ORIGIN: KERNEL_NAME, **names_by_origin(declared)}
        self._origins = {kind: origin for origin, kind in self._kinds.items()}
        self._tenants = settings_word(settings.tenants, declared, settings.limits)
        self._client = client
        self._adapters = {each.name: each for each in adapters}
        self._cluster_admin = cluster_admin
        self._clock = clock
        self._moved_bytes = client.leaders.bytes_moved
        self._looked_ms = clock.monotonic_ms()
        self._traffic = 0.0
        self._places: dict[tuple[str, str], dict[str, str]] = {}
        """Where clients were told to go: addresses by process of a gateway and adapter."""
        self._absent: dict[str, int] = {}
        """Of these gateways, those that are missing among the others, and for how many reports."""
        self.unlike: tuple[str, ...] = ()
        """Gateways whose tenants or limits are not those of this one: the first few by name."""
        self.unlike_count = 0
        """How many there are."""
        self._fewer = 0
        """For how many reports they have been fewer."""
        self.draining = False
        """The manager wants no clients here."""
        self.moved = 0
        """Clients asked to go elsewhere."""
        self.problem = ""
        """Why the last report was not taken; empty if it was."""

    async def run(self) -> None:
        """Tell, and do what is heard, again and again."""
        while True:
            await self.send_report()
            await asyncio.sleep(REPORT_SECONDS)

    async def send_report(self) -> None:
        """Send one report, and do what its answer says."""
        try:
            orders = await self._cluster_admin.send_report(self.report())
        except KernelError as error:
            if self.problem != error.message:
                _log.warning("the manager was not told of this gateway", reason=error.message)
            self.problem = error.message
            if self._limits is not None:
                self._limits.missed()
            return
        self.problem = ""
        if self._limits is not None:
            self._limits.granted(orders)
        self._carry_out(orders)

    def report(self) -> HeartbeatReport:
        """Whom this gateway serves now."""
        produced = [
            Task(Role.PRODUCE, each.tenant, each.topic, "", "", each.messages)
            for each in self._client.tasks.produced(TASKS_MAX // 2)
        ]
        figures = {name: each.statistics() for name, each in self._adapters.items()}
        consumed = [
            Task(Role.CONSUME, of.tenant, of.topic, of.group, self._kind(of.origin), consumers)
            for of, consumers in self._client.tasks.consumed(TASKS_MAX // 2)
        ]
        return HeartbeatReport(
            name=self._name,
            process=self._process,
            label=self._label,
            version=gateway.__version__,
            listeners=self._listeners,
            clients={name: each.connections for name, each in figures.items()},
            traffic=self._look_at_traffic(),
            moved=self.moved,
            tasks=[*produced, *consumed],
            settings=self._tenants,
            staying=[
                Staying(name, who[:CLIENT_NAME_LENGTH_MAX], times)
                for name, each in figures.items()
                for who, times in each.staying.items()
            ][:STAYING_MAX],
            limits=self._limits.uses() if self._limits is not None else [],
        )

    def _look_at_traffic(self) -> int:
        """Bytes a second between this gateway and the stores: what clients send and get passes
        there, but for transient topics.
        """
        now_ms, moved = self._clock.monotonic_ms(), self._client.leaders.bytes_moved
        elapsed_ms = max(now_ms - self._looked_ms, 1)
        # A connection that has closed takes its count along.
        rate = max(moved - self._moved_bytes, 0) * 1_000 / elapsed_ms
        self._looked_ms, self._moved_bytes = now_ms, moved
        self._traffic += (rate - self._traffic) * SMOOTHED
        return int(self._traffic)

    def _carry_out(self, orders: Orders) -> None:
        if orders.draining != self.draining:
            self.draining = orders.draining
            _log.info("to be drained" if orders.draining else "serving again", name=self._name)
            if not orders.draining:
                self._take_back(self._places)
        absent = {process for process, _ in self._places}.difference(orders.others)
        self._absent = {each: self._absent.get(each, 0) + 1 for each in absent}
        self._take_back(
            key for key in self._places if self._absent.get(key[0], 0) >= ABSENT_REPORTS
        )
        for move in orders.moves:
            adapter = self._adapters.get(move.kind)
            if adapter is None:
                continue
            to = self._place(move)
            asked = adapter.move(move.clients, to, self._consumers_by_key(move))
            self.moved += asked
            if asked:
                of = {} if move.consuming is None else {"because_of": move.consuming.topic}
                _log.info("clients asked to move", adapter=move.kind, clients=asked, to=to, **of)

        self._compare(orders)

    def _compare(self, orders: Orders) -> None:
        """Say which gateways have other tenants or limits, once whenever that changes."""
        found = tuple(orders.unlike)
        if found == self.unlike and orders.unlike_count == self.unlike_count:
            self._fewer = 0
            return
        if orders.unlike_count < self.unlike_count:
            self._fewer += 1
            if self._fewer < ABSENT_REPORTS:
                return
        self._fewer = 0
        self.unlike, self.unlike_count = found, orders.unlike_count
        if found:
            _log.warning(
                "other gateways have other tenants or limits",
                gateways=found,
                count=self.unlike_count,
            )
        else:
            _log.info("all gateways have the same tenants and limits")

    def unlike_reason(self) -> str:
        """What is wrong with the settings of the cluster's gateways; empty if nothing is."""
        if not self.unlike:
            return ""
        others = self.unlike_count - len(self.unlike)
        more = f" and {others} others" if others else ""
        return f"the settings tenants or limits are others at {', '.join(self.unlike)}{more}"

    def _place(self, move: ClientMove) -> dict[str, str]:
        """The addresses of a gateway that a protocol's clients can use."""
        prefix = f"{move.kind}."
        to = self._places.setdefault((move.process, move.kind), {})
        to.update(
            (name.removeprefix(prefix), place)
            for name, place in move.listeners.items()
            if name.startswith(prefix)
        )
        return to

    def _take_back(self, keys: Iterable[tuple[str, str]]) -> None:
        """Clients that were told to go there may come back."""
        for key in list(keys):
            self._places.pop(key).clear()

    def _consumers_by_key(self, move: ClientMove) -> ConsumersByKey | None:
        """Who has the consumers that a move is about."""
        of = move.consuming
        if of is None:
            return None
        origin = self._origins[move.kind]
        return self._client.tasks.consumers_by_key(Consumers(of.tenant, of.topic, of.group, origin))

    def _kind(self, origin: int) -> str:
        """The protocol of an origin; empty if it is nobody's here."""
        return self._kinds.get(origin, "")


def told_listeners(settings: Settings, adapters: Sequence[Adapter]) -> dict[str, str]:
    """`protocol.listener` to the `host:port` by which clients reach it: as advertised, or where it
    is bound; one that is bound to every address of the machine is told by the machine's label.
    """
    found: dict[str, str] = {}
    for adapter in adapters:
        protocol = settings.protocols[adapter.name]
        for name, (host, port) in adapter.addresses().items():
            advertised = protocol.listeners[name].advertised
            reached = host_label(settings.node.cluster) if host in ANYWHERE else host
            found[f"{adapter.name}.{name}"] = advertised or spell_address((reached, port))
    return found
