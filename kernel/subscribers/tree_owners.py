"""Whose connections subscribers are with, and what happens when a process is gone.

A subscriber that is open has an owner: the process whose connection it is. Gateways tell every
store their number when they connect. If one is not heard for GONE_MS, each leader closes what it
had open, with its wills, and lets go of its memberships in shares; a gateway that comes back asks
which of its subscribers it still has (`remote.tree`). A new leader gives all owners that long to
come to it.

Owner 0 is the client in the process of the store, while that leads everything for good: what it had
open is over when the next leader begins (`broker.subscribers`).
"""

from __future__ import annotations

from typing import Protocol

from ..common.limits import SESSION_CLAIM_MS
from ..store.node import Store
from ..store.replicas.replica import Replica

GONE_MS = SESSION_CLAIM_MS
"""As long as leases are kept for a gateway that was cut off
(docs/design/delivery.md#what-a-crash-may-repeat)."""


class Process(Protocol):
    """What is asked of the client in this process."""

    @property
    def accepting(self) -> bool:
        """Whether there is room for new messages."""

    @property
    def identity(self) -> int:
        """Number of this process."""

    def monotonic_ms(self) -> int:
        """Milliseconds of the monotonic clock."""


class Ends(Protocol):
    """Who closes what an owner had (`subscriber_keeper.Keeper`)."""

    def owners_in(self, replica: Replica) -> set[int]:
        """Owners of what is open in a group, and of members of shares."""

    def end_owner(self, replica: Replica, owner: int) -> None:
        """Close it, with wills."""


class Owners:
    """The processes that this store hears, or has heard lately. `subscribing.Owner`."""

    def __init__(self, store: Store, process: Process, ends: Ends, gone_ms: int = GONE_MS) -> None:
        self._store = store
        self._process = process
        self._ends = ends
        self.gone_ms = gone_ms
        self._here: dict[int, int] = {}
        """Connections of each owner."""
        self._gone: dict[int, int] = {}
        """When those that are not heard are given up."""

    @property
    def identity(self) -> int:
        """Number of this process."""
        return self._process.identity

    @property
    def owner(self) -> int:
        """Whose what is opened by this process is."""
        return 0 if self._store.is_alone else self._process.identity

    @property
    def accepting(self) -> bool:
        """Whether there is room for something new."""
        return self._process.accepting

    def came(self, owner: int) -> None:
        """A process can be heard, by one connection more."""
        self._here[owner] = self._here.get(owner, 0) + 1
        self._gone.pop(owner, None)

    def went(self, owner: int) -> None:
        """One of its connections is over."""
        self._here[owner] -= 1
        if not self._here[owner]:
            del self._here[owner]
            self._gone[owner] = self._process.monotonic_ms() + self.gone_ms

    def leads(self, replica: Replica) -> None:
        """A group is served here from now on: its owners have a while to come."""
        due_ms = self._process.monotonic_ms() + self.gone_ms
        for owner in self._ends.owners_in(replica) - self._here.keys():
            self._gone.setdefault(owner, due_ms)

    def each_second(self) -> None:
        """Give up those that were not heard for too long."""
        now_ms = self._process.monotonic_ms()
        for owner in [each for each, due_ms in self._gone.items() if due_ms <= now_ms]:
            del self._gone[owner]
            for replica in self._store.replicas():
                if replica.serving and owner not in (0, self.identity):
                    self._ends.end_owner(replica, owner)
