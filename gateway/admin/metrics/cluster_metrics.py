"""Figures of a store's place in its cluster, beside those of the store itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway.admin.metrics.process_metrics import (
    build_info,
    limits_metric,
    metering_metrics,
)
from gateway.admin.metrics.service_metrics import ServiceFigures
from gateway.admin.metrics.store_metrics import StoreFigures
from gateway.admin.metrics.turned_metrics import turned_metrics
from kernel.common.ids import ADDED_FIRST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

    from gateway.reporting.node_metering import NodeMetering
    from kernel.in_process.opening import LocalStore
    from kernel.quotas.accounts import Quotas
    from kernel.remote.serving import StoreService
    from kernel.store.raft_groups.peer_links import PeerLinks


class StoreCollector(Collector):
    """Figures of one store."""

    def __init__(
        self,
        local: LocalStore,
        links: PeerLinks,
        service: StoreService,
        metering: NodeMetering | None,
        quotas: Quotas,
        short: Callable[[], int],
    ) -> None:
        """`short()`: how many groups have too few replicas, as every store knows."""
        self._short = short
        self._metering = metering
        self._quotas = quotas
        self._own = StoreFigures(local)
        self._service = ServiceFigures(service)
        self._store = local.store
        self._remote_memory = service.mesh.remote_memory
        self._links = links

    def collect(self) -> Iterator[Metric]:
        """Every metric with its value now."""
        yield build_info()
        yield from self._own.collect()
        if self._metering is not None:
            yield from metering_metrics(self._metering)
        yield from self._service.collect()
        yield limits_metric(self._quotas)
        groups = list(filter(self._store.holds, self._store.groups))
        leaderless = sum(not self._store.standing(group)[1] for group in groups)
        led = sum(self._store.serving(group) is not None for group in groups)
        added = sum(each >= ADDED_FIRST for each in self._store.groups)
        connected = len(self._links.connected)
        for name, text, value in (
            ("weir_cluster_groups_led", "Raft groups that this store leads.", led),
            ("weir_cluster_groups_leaderless", "Raft groups whose leader is unknown.", leaderless),
            ("weir_cluster_groups_added", "Raft groups added since the cluster began.", added),
            ("weir_cluster_groups_short", "Raft groups with too few replicas.", self._short()),
            ("weir_cluster_stores_connected", "Other stores that can be reached.", connected),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        yield from turned_metrics(self._links.acceptor)
        yield CounterMetricFamily(
            "weir_cluster_batches_lost",
            "Batches of Raft messages that found no connection, or no room on it.",
            value=self._links.messages_lost,
        )
        yield GaugeMetricFamily(
            "weir_store_gateways_waiting_bytes",
            "Bytes of messages on their way to the memory of gateways.",
            value=self._remote_memory.waiting_bytes,
        )
        for name, text, value in (
            (
                "weir_store_gateways_gone",
                "Gateways that were given up, with what lived in their memory.",
                self._remote_memory.figures.gone,
            ),
            (
                "weir_store_live_dropped",
                "Messages for subscribers in the memory of gateways that found no room.",
                self._remote_memory.figures.live_dropped,
            ),
        ):
            yield CounterMetricFamily(name, text, value=value)
        yield from self._cuts()
        yield from self._snapshots()

    def _cuts(self) -> Iterator[Metric]:
        """Of cuts of the cluster, for its backups."""
        holding = self._store.consensus.holding
        for name, text, value in (
            ("holds", "Times at which nothing was applied, for a cut.", holding.holds),
            ("holds_lapsed", "Those that nobody has ended in time: no cut.", holding.lapsed),
            ("entries_kept", "Entries that waited meanwhile.", holding.kept),
        ):
            yield CounterMetricFamily(f"weir_cluster_cut_{name}", text, value=value)

    def _snapshots(self) -> Iterator[Metric]:
        """Of snapshots that other stores send: a replica that begins, or is too far behind."""
        receiver = self._store.consensus.receiver
        if receiver is None:
            return
        for name, text, value in (
            ("snapshots_received", "Snapshots of other stores taken in.", receiver.installed),
            ("snapshots_given_up", "Snapshots of other stores given up.", receiver.failures),
            (
                "snapshots_resumed",
                "Times that a transfer of a snapshot went on after the sender had not answered.",
                receiver.resumed,
            ),
            (
                "snapshot_received_bytes",
                "Bytes of snapshots and their entries that came, those given up included.",
                receiver.received_bytes,
            ),
            (
                "snapshot_taken_over_bytes",
                "Bytes of entries that snapshots refer to and that were here already.",
                receiver.taken_bytes,
            ),
            (
                "snapshots_interrupted",
                "Times that a transfer of a snapshot let a rewrite of the journal go first.",
                receiver.interrupted,
            ),
        ):
            yield CounterMetricFamily(f"weir_cluster_{name}", text, value=value)
        left = GaugeMetricFamily(
            "weir_cluster_snapshot_entries_left",
            "Entries to come of a snapshot on its way; 0 while its file comes.",
            labels=["group"],
        )
        since = GaugeMetricFamily(
            "weir_cluster_snapshot_seconds",
            "Since a snapshot on its way was offered.",
            labels=["group"],
        )
        for group, each in receiver.progress.items():
            left.add_metric([str(group)], each.entries_total - each.entries)
            since.add_metric([str(group)], each.seconds)
        yield from (left, since)
