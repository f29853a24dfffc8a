"""The leader of one Raft group as its clients see it (ADR 9): in the same process, or far away.

Durability: `done` hears what a batch came to from the apply of an entry that a majority of the
group's voters has fdatasynced (of the transient group: that is in memory).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..api.client import Consumer, LeaseVerb, Settlement
from ..api.model import QueueRef, Reason, TopicStatistics
from ..broker.log_commands import commands
from ..common.ids import Offset, QueueId, RaftGroup
from .publish_part import Part

Done = Callable[[object], None]
"""Called once: with the results of a batch's commands (`machine.Machine.apply`), or with a bare
KernelError. NOT_LEADER: nothing was done; UNKNOWN_OUTCOME: perhaps."""

Identity = tuple[int, int, int]
"""(client, epoch, sequence) under which a group executes a batch once; zeros: it has none. The
sequences of a client rise in the order in which its batches are sent (`store.first_tries`): what
goes to a leader past the request pipeline of its client has none.
"""

NO_IDENTITY: Identity = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class LeaseChanging:
    """A change of one timed lease, with times from now on."""

    offset: Offset
    lease: int
    verb: LeaseVerb
    reason: Reason
    delay_ms: int
    slot_bytes: int = 0
    """With RETURN: see `client.LeaseChange`."""


class Holder(Consumer, Protocol):
    """A consumer of one queue, and what its session holds of it."""

    held: set[int]
    origin: int

    @property
    def ref(self) -> QueueRef:
        """The queue, and its Raft group."""


@dataclass(frozen=True, slots=True)
class Settling:
    """What a consumer holds and a transaction settles."""

    consumer: Holder
    how: Settlement
    reason: Reason
    offsets: list[int]


@dataclass(frozen=True, slots=True)
class Together:
    """What one group carries out as a whole or not at all."""

    part: Part
    """Its messages; perhaps none."""
    settlements: Sequence[Settling]
    changes: Sequence[tuple[QueueId, str, Sequence[LeaseChanging]]]
    """(queue, group, what is to happen to timed leases in it)."""


class Leader(Protocol):
    """What may be asked of it. No call waits, and `done` is never called from inside one."""

    group: RaftGroup

    def publish(self, identity: Identity, part: Part, done: Done, origin: int) -> None:
        """Store messages (hot). With `part.routed`, a last result tells of each how many lists it
        has got into, or -1 if it may not be retained: then nothing of it is stored. A run of whose
        messages the last ones had no room in a limited topic tells a list of the (offset, empty) of
        those before them: nothing is stored of the others.
        """

    def transact(self, identity: Identity, what: Together, done: Done, origin: int) -> None:
        """Carry out all of it; what it tells are the results of a publish. A release after the last
        attempt is a dead letter. A KernelError for the first result: nothing was done. LEASE_LOST;
        REJECTED (no room in a topic); LIMIT_EXCEEDED (too many retained messages).
        """

    def prepare(
        self,
        identity: Identity,
        producers: str,
        queue: QueueId,
        parts: Sequence[bytes],
        done: Done,
    ) -> None:
        """Store a half message of a producer group; its result: [number], 0 if the queue is gone,
        or a KernelError: LIMIT_EXCEEDED, NO_SPACE, BUSY.
        """

    def propose(self, change: commands.Control, identity: Identity, done: Done | None) -> None:
        """Carry out one administrative command."""

    def propose_all(
        self, changes: Sequence[commands.Control], identity: Identity, done: Done
    ) -> None:
        """Carry out several, one after the other, in one batch: it has a result of each."""

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

    async def figures(
        self, queue: QueueId, group: str, offset: Offset | None = None
    ) -> TopicStatistics:
        """Figures of one queue and group; `offset`: with what has become of that message. Raises
        KernelError NOT_FOUND.
        """

    async def span(self, queue: QueueId) -> tuple[int, int]:
        """(first offset that is kept, offset behind the last). Raises KernelError NOT_FOUND."""

    async def offset_since(self, queue: QueueId, time_ms: int) -> Offset:
        """First offset in `span` whose log time is not before `time_ms` (ms since the epoch); the
        one behind the last if there is none. Raises KernelError NOT_FOUND.
        """

    async def peek(
        self, queue: QueueId, offset: Offset, messages: int
    ) -> Sequence[tuple[Offset, bytes]]:
        """Messages of a queue from an offset on, without leasing them. Raises KernelError
        NOT_FOUND.
        """
