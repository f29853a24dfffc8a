"""Figures of the store in this process: its journal, its disk, what waits in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway.admin.health import Check
from kernel.common.feature_levels import FEATURES
from kernel.log.reading.aside import LOST_DIRECTORY
from kernel.store.space.disk_watch import DiskLevel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from kernel.in_process.opening import LocalStore
    from kernel.store.space.disk_watch import DiskSpace


def disk_check(space: DiskSpace, *, accepting: bool) -> Check:
    """Whether the volume has room for new messages; an alarm before it has not."""
    low = space.level is not DiskLevel.OK
    alarm = "free disk is below twice the mark for new messages" if low else ""
    full = "free disk is below the mark: new messages are refused"
    return Check("disk", accepting, alarm if accepting else full)


def features_check(local: LocalStore) -> Check:
    """Features of the log that are off: an alarm, since all else goes on."""
    off = [each.name for each in FEATURES if each.level > local.store.feature_level]
    reason = f"off: {', '.join(off)} (`weir cluster features enable --all`)" if off else ""
    return Check("features", True, reason)


def damage_check(local: LocalStore) -> Check:
    """What the disk has lost: an alarm, since all else goes on."""
    losses, lost = local.store.unreadable.losses, local.store.consensus.healing.lost
    reasons = []
    failing = local.store.read_errors[1]
    if failing:
        reasons.append(f"the disk does not read {failing} log entries (EIO): they are tried again")
    if len(losses):
        reasons.append(
            f"{losses.messages} messages were given up with {len(losses)} log entries that do not "
            f"read: what they were stands in {LOST_DIRECTORY}/ of the data directory; take its "
            "files away once that is dealt with"
        )
    if lost:
        groups = ", ".join(map(str, lost))
        reasons.append(f"the disk lost data of group {groups}, which the other stores heal")
    return Check("damage", True, "; ".join(reasons))


class StoreFigures(Collector):
    """Figures of one store."""

    def __init__(self, local: LocalStore) -> None:
        self._local = local

    def collect(self) -> Iterator[Metric]:
        """Every metric with its value now."""
        yield from self._counters()
        yield from self._gauges()
        yield from self._half_messages()

    def _counters(self) -> Iterator[Metric]:
        journal = self._local.store.journal.statistics()
        store, refused = self._local.store.statistics(), self._local.store.topic_room.refused
        for name, text, value in (
            ("weir_store_commits", "Journal batches synced.", store.commits),
            ("weir_store_fdatasyncs", "Synced writes of the journal.", journal.syncs),
            ("weir_store_records", "Journal records written.", journal.records_written),
            ("weir_store_written_bytes", "Bytes written to the journal.", journal.bytes_written),
            ("weir_store_entries_applied", "Log entries applied.", store.entries_applied),
            ("weir_store_cache_hits", "Entries found in the tail cache.", journal.cache_hits),
            ("weir_store_cache_misses", "Entries read from disk.", journal.cache_misses),
            ("weir_store_rewrites", "Segments rewritten to free space.", journal.rewrites),
            (
                "weir_store_read_errors",
                "Reads of log entries that failed with EIO.",
                self._local.store.read_errors[0],
            ),
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
                "weir_trace_events_dropped",
                "Events of traced topics that could not be written down.",
                self._local.client.trace.buffer.dropped,
            ),
            ("weir_messages_refused", "Messages that full topics have refused.", refused),
            (
                "weir_deliveries_put_off",
                "Times that a queue's messages were to be many and waited for a turn of their own.",
                self._local.store.scheduler.put_offs,
            ),
            (
                "weir_unused_groups_let_go",
                "Messages let go by groups that nobody used any more.",
                self._local.client.unused_groups.messages_let_go,
            ),
        ):
            yield CounterMetricFamily(name, text, value=value)

    def _gauges(self) -> Iterator[Metric]:
        journal = self._local.store.journal.statistics()
        store = self._local.store.statistics()
        disk = self._local.housekeeper.disk_space
        for name, text, level in (
            ("weir_store_disk_bytes", "Bytes of journal segments on disk.", journal.bytes_on_disk),
            ("weir_store_live_bytes", "Bytes of them that somebody needs.", journal.live_bytes),
            ("weir_store_segments", "Journal segments.", journal.segments),
            ("weir_store_cache_bytes", "Bytes in the tail cache.", journal.cache_bytes),
            ("weir_store_volatile_bytes", "Bytes of transient topics.", store.transient_bytes),
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
            (
                "weir_successors_waiting",
                "Queues of groups that hand out nothing before a sealed queue is done with.",
                store.successors_waiting,
            ),
            (
                "weir_successor_keys_held_back",
                "Keys that queues of groups hold back: a sealed queue has them unsettled.",
                store.keys_held_back,
            ),
            (
                "weir_store_clock_gap_seconds",
                "The wall clock is so far ahead of log time: beyond 60 it is not believed.",
                self._local.store.clock_gap_ms() / 1_000,
            ),
            (
                "weir_store_damaged_groups",
                "Raft groups that lost synced data here and are not healed yet.",
                len(self._local.store.consensus.healing.lost),
            ),
            (
                "weir_store_lost_entries",
                "Log entries that did not read and were given up.",
                len(self._local.store.unreadable.losses),
            ),
            (
                "weir_store_lost_messages",
                "Messages in them that somebody waited for.",
                self._local.store.unreadable.losses.messages,
            ),
            ("weir_store_accepting", "1 if new messages are taken.", self._local.client.accepting),
        ):
            yield GaugeMetricFamily(name, text, value=float(level))

    def _half_messages(self) -> Iterator[Metric]:
        figures = self._local.client.half_keeper.figures
        for name, text, value in (
            ("prepared", "Stored, to wait for a commit or rollback.", figures.prepared),
            ("committed", "Committed by their producer.", figures.committed),
            ("rolled_back", "Rolled back by their producer.", figures.rolled_back),
            ("discarded", "Given up because nobody decided.", figures.discarded),
            ("checks_sent", "Questions put to producers.", figures.checks_sent),
            ("checks_unheard", "Questions no producer was there for.", figures.checks_unheard),
        ):
            yield CounterMetricFamily(f"weir_half_messages_{name}", text, value=value)
