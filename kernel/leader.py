"""The leader of one Raft group as its clients see it (ADR 9): in the same process, or far away.

Durability: `done` hears what a batch came to from the apply of an entry that a majority of the
group's voters has fdatasynced (of the volatile group: that is in memory).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .broker import commands
from .client import LeaseVerb
from .ids import Offset, QueueId, RaftGroup
from .model import Reason, TopicStatistics

Done = Callable[[object], None]
"""Called once: with the results of a batch's commands (`machine.Machine.apply`), or with a bare
KernelError. NOT_LEADER: nothing was done; UNKNOWN_OUTCOME: perhaps."""

Identity = tuple[int, int, int]
"""(client, epoch, sequence) under which a group executes a batch once; zeros: it has none."""


@dataclass(frozen=True, slots=True)
class LeaseChanging:
    """A change of one timed lease, with times from now on."""

    offset: Offset
    lease: int
    verb: LeaseVerb
    reason: Reason
    delay_ms: int


class Leader(Protocol):
    """What may be asked of it. No call waits, and `done` is never called from inside one."""

    group: RaftGroup

    def publish(
        self,
        identity: Identity,
        runs: Sequence[Sequence[int]],
        lengths: list[int],
        buffers: list[bytes],
        size: int,
        done: Done,
        origin: int,
        retained: Sequence[tuple[str, int]] = (),
    ) -> None:
        """Store messages (hot): runs over slots 0.., slot lengths, the parts that make up the
        slots, their bytes in all; (tenant, slot) of those retained. It takes the lists over.
        """

    def submit(
        self,
        identity: Identity,
        own: Sequence[commands.Packed],
        lengths: Sequence[int],
        buffers: Sequence[bytes],
        done: Done,
        origin: int,
    ) -> None:
        """Carry out commands over slots of their own, numbered from 0."""

    def propose(self, change: commands.Control, identity: Identity, done: Done | None) -> None:
        """Carry out one administrative command."""

    def change_leases(
        self,
        queue: QueueId,
        group: str,
        changes: Sequence[LeaseChanging],
        identity: Identity,
        done: Done,
        origin: int,
    ) -> None:
        """Change timed leases; its result: per change 1 if the token was good, else 0. A release
        after the last attempt is a dead letter.
        """

    def purge(
        self, queue: QueueId, group: str, identity: Identity, done: Done, *, in_flight: bool
    ) -> None:
        """Drop everything that a group has not acked, what is leased only if `in_flight`; its
        result: how many.
        """

    async def figures(self, queue: QueueId, group: str) -> TopicStatistics:
        """Figures of one queue and group. Raises KernelError NOT_FOUND."""

    async def peek(
        self, queue: QueueId, offset: Offset, messages: int
    ) -> Sequence[tuple[Offset, bytes]]:
        """Messages of a queue from an offset on, without leasing them. Raises KernelError
        NOT_FOUND.
        """
