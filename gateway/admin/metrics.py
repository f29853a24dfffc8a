"""Metrics of this process in Prometheus' text form, read from plain integers at scrape.

Nothing is counted here: every figure lives where the work is done (DESIGN.md 5 "Counters are plain
ints"). Labels are few and bounded: `protocol`, `limit`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

import gateway
from kernel.store.disk_watch import DiskLevel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client.metrics_core import Metric

    from adapters.base import Adapter
    from gateway.node_metering import NodeMetering
    from kernel.store.opening import LocalStore


class NodeCollector(Collector):
    """Figures of one node."""

    def __init__(
        self, local: LocalStore, adapters: Sequence[Adapter], metering: NodeMetering | None = None
    ) -> None:
        self._local = local
        self._adapters = adapters
        self._metering = metering

    def collect(self) -> Iterator[Metric]:
        """Every metric with its value now."""
        yield GaugeMetricFamily("weir_build_info", f"Weir {gateway.__version__}.", value=1)
        yield from self._store()
        yield from self._half_messages()
        yield from self._protocols()
        if self._metering is not None:
            yield from _metering(self._metering)

    def _store(self) -> Iterator[Metric]:
        journal = self._local.store.journal.statistics()
        store = self._local.store.statistics()
        disk = self._local.housekeeper.disk_space
        for name, text, value in (
            ("weir_store_commits", "Journal batches synced.", store.commits),
            ("weir_store_fdatasyncs", "Calls of fdatasync by the journal.", journal.syncs),
            ("weir_store_records", "Journal records written.", journal.records_written),
            ("weir_store_written_bytes", "Bytes written to the journal.", journal.bytes_written),
            ("weir_store_entries_applied", "Log entries applied.", store.entries_applied),
            ("weir_store_cache_hits", "Entries found in the tail cache.", journal.cache_hits),
            ("weir_store_cache_misses", "Entries read from disk.", journal.cache_misses),
            ("weir_store_rewrites", "Segments rewritten to free space.", journal.rewrites),
            (
                "weir_messages_expired",
                "Messages that a group lost unacked because they were too old.",
                store.expired,
            ),
            ("weir_store_checkpoints", "Checkpoints taken.", self._local.housekeeper.checkpoints),
            (
                "weir_dead_letters_dropped",
                "Dead letters dropped: too many waited for a topic that does not exist.",
                self._local.client.dead_letters.dropped,
            ),
            (
                "weir_store_withdrawn",
                "Batches refused because no journal segment could be made for them.",
                self._local.store.room.withdrawn,
            ),
            (
                "weir_unused_groups_let_go",
                "Messages let go by groups that nobody used any more.",
                self._local.client.unused_groups.messages_let_go,
            ),
        ):
            yield CounterMetricFamily(name, text, value=value)
        for name, text, value in (
            ("weir_store_disk_bytes", "Bytes of journal segments on disk.", journal.bytes_on_disk),
            ("weir_store_live_bytes", "Bytes of them that somebody needs.", journal.live_bytes),
            ("weir_store_segments", "Journal segments.", journal.segments),
            ("weir_store_cache_bytes", "Bytes in the tail cache.", journal.cache_bytes),
            ("weir_store_volatile_bytes", "Bytes of volatile topics.", store.volatile_bytes),
            ("weir_store_disk_free_bytes", "Free bytes of the volume.", disk.free_bytes),
            ("weir_store_disk_mark_bytes", "Refuses messages with less free.", disk.mark_bytes),
            (
                "weir_store_disk_alarm",
                "1 with less free than twice the mark.",
                disk.level is not DiskLevel.OK,
            ),
            (
                "weir_dead_letters_waiting",
                "Dead letters that wait for their topic to exist.",
                self._local.client.dead_letters.waiting,
            ),
            ("weir_store_accepting", "1 if new messages are taken.", self._local.client.accepting),
        ):
            yield GaugeMetricFamily(name, text, value=float(value))

    def _half_messages(self) -> Iterator[Metric]:
        figures = self._local.client.halves.figures
        for name, text, value in (
            ("prepared", "Stored, to wait for a commit or rollback.", figures.prepared),
            ("committed", "Committed by their producer.", figures.committed),
            ("rolled_back", "Rolled back by their producer.", figures.rolled_back),
            ("discarded", "Given up because nobody decided.", figures.discarded),
            ("checks_sent", "Questions put to producers.", figures.checks_sent),
            ("checks_unheard", "Questions no producer was there for.", figures.checks_unheard),
        ):
            yield CounterMetricFamily(f"weir_half_messages_{name}", text, value=value)

    def _protocols(self) -> Iterator[Metric]:
        gauge = GaugeMetricFamily("weir_connections", "Connections open.", labels=["protocol"])
        counters: dict[str, CounterMetricFamily] = {}
        gauges: dict[str, GaugeMetricFamily] = {}
        for adapter in self._adapters:
            figures = adapter.statistics()
            gauge.add_metric([adapter.name], figures.connections)
            for name, value in figures.counters.items():
                family = counters.setdefault(
                    name,
                    CounterMetricFamily(
                        f"weir_adapter_{name}", f"{name} of an adapter.", labels=["protocol"]
                    ),
                )
                family.add_metric([adapter.name], value)
            for name, value in figures.gauges.items():
                shown = gauges.setdefault(
                    name,
                    GaugeMetricFamily(
                        f"weir_adapter_{name}", f"{name} of an adapter.", labels=["protocol"]
                    ),
                )
                shown.add_metric([adapter.name], value)
        yield gauge
        yield from counters.values()
        yield from gauges.values()


def _metering(metering: NodeMetering) -> Iterator[Metric]:
    figures = metering.statistics()
    forgotten = metering.forgotten()
    for name, text, value in (
        ("flushes", "Flushes made to __metering.", figures.flushes),
        ("flushes_repeated", "Flushes sent again without an answer.", figures.flushes_repeated),
        ("rows", "Rows flushed.", figures.rows_flushed),
        ("rows_given_up", "Rows that a fence cost.", figures.rows_given_up),
        ("messages_forgotten", "Messages of deleted topics that went unbilled.", forgotten),
    ):
        yield CounterMetricFamily(f"weir_metering_{name}", text, value=value)
    for name, text, value in (
        ("rows_waiting", "Rows that wait for their flush.", figures.rows_waiting),
        ("age_seconds", "Age of the oldest count that is in no log.", figures.age_us // 1_000_000),
        ("working", "1 if traffic is metered and exported.", not metering.failure),
    ):
        yield GaugeMetricFamily(f"weir_metering_{name}", text, value=float(value))


def render(collector: NodeCollector) -> bytes:
    """The text that a scrape gets."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)
