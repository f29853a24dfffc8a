"""A queue of a snapshot's records, as an object."""

from __future__ import annotations

from collections.abc import Iterable

from ...common.ids import Offset, QueueId
from ..group_state.deduplication import Recent
from ..group_state.progress import LEASE_MASK, GroupProgress, ProgressPage
from ..group_state.topic_state import QueueState, TopicState
from ..index.run_page import RunPage, young_of
from .snapshot_records import PageRow, ProgressRecord, QueueRecord, unpack_leases


def queue_of(record: QueueRecord, topic: TopicState) -> QueueState:
    """The queue of a record, as far as that one goes."""
    groups = {name: progress_of(each) for name, each in record.groups.items()}
    queue = QueueState(QueueId(record.id), topic, groups)
    pages = [RunPage.load(page) for page in record.pages]
    queue.index.restore(pages, young_of(record.young), record.tail)
    queue.trimmed = Offset(record.trimmed)
    if record.recalled:
        queue.recalled = dict.fromkeys(record.recalled)
    if record.recent:
        queue.recent = Recent(record.recent)
    return queue


def progress_of(record: ProgressRecord) -> GroupProgress:
    """A group's progress of a record."""
    progress = GroupProgress(record.floor)
    progress.restore_marks(record.marks)
    progress.used_ms = record.used_ms
    progress.expired = record.expired
    progress.joined = record.joined
    for process, number, epoch in record.members:
        progress.join((process, number), epoch)
    restore_pages(progress, record.pages)
    return progress


def restore_pages(progress: GroupProgress, rows: Iterable[PageRow]) -> None:
    """Take over further pages."""
    for number, acked, attempts, leased, leases in rows:
        page = ProgressPage(0)
        progress.keep(number, page)
        page.acked = int.from_bytes(acked, "little")
        page.attempts = attempts or None
        page.leased = int.from_bytes(leased, "little")
        page.leases = unpack_leases(number, leases) or None
        for offset, packed in (page.leases or {}).items():
            if page.leased >> (offset & 255) & 1:
                progress.leased += bool(packed & LEASE_MASK)
                progress.hidden += not packed & LEASE_MASK
        above = page.acked >> max(0, min(progress.floor - (number << 8), 256))
        progress.acked_above += above.bit_count()
