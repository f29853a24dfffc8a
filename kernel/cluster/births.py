"""What a store does about groups that are added while it runs, once its group 0 tells of them.

    WANTED, in this store and data directory   it makes the group, and is its only voter
    GROWING, GROWN                             it waits to be made a member
    no such group yet, or LOST                 nothing: others tell it of none either

Durability: the group's first entry is on this disk before it serves, and before GROWING is written
(`growing`); what was begun and is not there after a power loss is begun again.
"""

from __future__ import annotations

import asyncio

from ..common.ids import METADATA_GROUP, RaftGroup
from ..in_process.local_client import LocalClient
from ..store.node import Store
from .added_groups import PREFIX, GroupState, read


class Births:
    """Of one store, from its start on."""

    def __init__(self, store: Store, client: LocalClient, directory: str) -> None:
        """`directory`: id of this store's data directory."""
        self._store = store
        self._client = client
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self._is_due = True
        client.watch_records(self._changed)

    def _changed(self, key: str, _record: tuple[int, bytes] | None) -> None:
        """In the turn in which a snapshot of group 0 has come, or in the next: whoever has lost
        group 0 is to know the others as lost before the next checkpoint says that it is healed.
        """
        if key.startswith(PREFIX) and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.look)

    def look(self) -> None:
        """Begin what is to be begun here, and know what there is."""
        if not self._is_due:
            return
        self._is_due = False
        store = self._store
        known = set(store.groups)
        for number, (_, group) in read(self._client.records(PREFIX)).items():
            if number in known or group.state is GroupState.LOST:
                continue
            if group.state is not GroupState.WANTED:
                store.add_group(RaftGroup(number), born=False)
            elif group.directory != self._directory:
                continue
            elif METADATA_GROUP in store.consensus.healing.patients:
                self._is_due = True  # it may have been there, and lost: what it is told may be old
            else:
                store.add_group(RaftGroup(number), born=True)
