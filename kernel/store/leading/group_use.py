"""The last use of consumer groups, noted in the log for consumers that find nothing."""

from __future__ import annotations

from ...common.ids import QueueId
from ..replicas.replica import Replica

NOTE_MS = 24 * 3_600_000
"""Use by consumers that find nothing is written to the log so often."""


def note_use(replica: Replica, ident: QueueId, group: str) -> None:
    """A consumer that there is nothing for has come or goes, which counts as use. While it waits
    its group holds nothing that could be let go.
    """
    queue = replica.state.queues.get(ident)
    progress = queue.groups.get(group) if queue is not None else None
    if progress is not None and replica.log_time_ms() - progress.used_ms >= NOTE_MS:
        replica.propose_mark(ident, group, 0, 0)
