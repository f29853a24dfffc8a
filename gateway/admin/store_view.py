"""What listings show of the store in this process beyond `kernel.client`: names and offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel.model import QueueRef
    from kernel.store.disk_watch import DiskSpace
    from kernel.store.opening import LocalStore


class StoreView:
    """Reads, and changes nothing."""

    def __init__(self, local: LocalStore) -> None:
        self._store = local.store
        self._housekeeper = local.housekeeper

    def disk_space(self) -> DiskSpace:
        """Room of the data directory's volume, as last measured."""
        return self._housekeeper.disk_space

    def routers(self, tenant: str) -> list[str]:
        """Names of a tenant's routers, sorted. A router that leads to volatile and to durable
        topics stands in two Raft groups; it is named once.
        """
        found = {
            name
            for replica in self._store.replicas()
            for owner, name in replica.state.routers
            if owner == tenant
        }
        return sorted(found)

    def span(self, queue: QueueRef) -> tuple[int, int]:
        """(first offset kept, next offset) of a queue; (0, 0) if it is gone."""
        state = self._store.replica(queue.group).state.queues.get(queue.id)
        return (0, 0) if state is None else (state.index.head, state.index.tail)
