"""What each Raft group costs this store: bytes written and handed out since the process began, and
bytes that it keeps. Whoever places replicas makes rates of them (`cluster.group_loads`).

Nothing is counted for each message: entries are counted as they go to the journal, what is handed
out is added up of what groups count anyway, SAMPLE_MS apart (100,000 groups take some 5 ms).
"""

from __future__ import annotations

from typing import NamedTuple

from ..common.ids import RaftGroup
from ..common.ports import Clock
from .leading.stored_room import MESSAGE_BYTES
from .node import Store
from .replicas.replica import Replica

SAMPLE_MS = 10_000


class ReplicaLoad(NamedTuple):
    """Of one group on this store."""

    written: int
    """Bytes of its entries that have gone to the journal, since the process began or the replica
    did: it begins at zero again when the group comes back."""
    sent: int
    """Bytes of properties and bodies that were handed to consumers here; at most SAMPLE_MS old."""
    live: int
    """Bytes of the messages that somebody needs, with what each takes beside."""


class ReplicaLoads:
    """Of one store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._sent: dict[RaftGroup, tuple[int, int]] = {}
        """When it was added up, and what it was."""

    def of(self, group: RaftGroup) -> ReplicaLoad:
        """One group that this store has a replica of."""
        member = self._store.member(group)
        live = sum(
            messages * MESSAGE_BYTES + size
            for messages, size in member.state.stored.by_tenant.values()
        )
        return ReplicaLoad(member.log.appended_bytes, self._sent_by(group, member.replica), live)

    def _sent_by(self, group: RaftGroup, replica: Replica) -> int:
        now_ms = self._clock.monotonic_ms()
        known = self._sent.get(group)
        if known is None or now_ms - known[0] >= SAMPLE_MS:
            known = self._sent[group] = now_ms, replica.counts.delivered_bytes()
        return known[1]
