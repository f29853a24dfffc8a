"""The leader of a Raft group in this process: `leader.Leader` over its replica.

Durability: what a batch came to is told from the apply of its entry, which is fdatasynced; answers
to questions change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from ..broker import commands
from ..broker.features import Feature
from ..client import LeaseVerb
from ..errors import Code, KernelError
from ..ids import Offset, QueueId, RaftGroup
from ..leader import Done, Identity, LeaseChanging
from ..log import entry as entries
from ..model import Reason, TopicStatistics
from .replica import Replica


class LeaderHost(Protocol):
    """What a leader asks of the store it lives in."""

    def dirty(self, replica: Replica, *, urgent: bool) -> None:
        """The replica has something to propose."""

    def call_later(self, delay_ms: int, action: partial[None]) -> None:
        """Call `action` after so long."""

    def entry(self, group: RaftGroup, index: int) -> bytes | None:
        """A log entry, if it is in memory."""

    async def fetched(self, group: RaftGroup, index: int) -> None:
        """Return once a log entry that something refers to has been read into memory."""


class LocalLeader:
    """See `leader.Leader`."""

    __slots__ = ("_host", "_replica", "group")

    def __init__(self, replica: Replica, host: LeaderHost) -> None:
        self.group = replica.group
        self._replica = replica
        self._host = host

    # --- Batches ----------------------------------------------------------------------------

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
        """Put messages into the open entry, which takes the lists over (hot)."""
        replica = self._replica
        replica.open.add_publish(identity, runs, lengths, buffers, size, done, origin, retained)
        self._host.dirty(replica, urgent=True)

    def submit(
        self,
        identity: Identity,
        own: Sequence[commands.Packed],
        lengths: Sequence[int],
        buffers: Sequence[bytes],
        done: Done,
        origin: int,
    ) -> None:
        """Put commands into the open entry."""
        self._replica.open.add_slots(identity, own, lengths, buffers, done, origin)
        self._host.dirty(self._replica, urgent=True)

    def propose(self, change: commands.Control, identity: Identity, done: Done | None) -> None:
        """Put an administrative command into the open entry."""
        self._replica.propose(change, identity, done)

    def change_leases(
        self,
        queue: QueueId,
        group: str,
        changes: Sequence[LeaseChanging],
        identity: Identity,
        done: Done,
        origin: int,
    ) -> None:
        """Put changes of timed leases into the open entry, with times of the log."""
        replica = self._replica
        now = replica.log_time_ms()
        try:
            is_last = replica.dispatcher(queue, group).is_last_attempt
        except KernelError as error:
            self._host.call_later(0, partial(done, _result(error)))
            return
        packed = [
            (each.offset, each.lease, LeaseVerb.DEAD_LETTER, Reason.ATTEMPTS, 0)
            if each.verb is LeaseVerb.RELEASE and is_last(each.offset)
            else (
                each.offset,
                each.lease,
                each.verb,
                each.reason,
                now + each.delay_ms if each.delay_ms else 0,
            )
            for each in changes
        ]
        replica.change(queue, group, packed, identity, done, origin)

    def purge(
        self, queue: QueueId, group: str, identity: Identity, done: Done, *, in_flight: bool
    ) -> None:
        """Drop what a group has not acked (see `leader.Leader.purge`)."""
        try:
            dispatcher = self._replica.dispatcher(queue, group)
        except KernelError as error:
            self._host.call_later(0, partial(done, _result(error)))
            return
        tail = Offset(dispatcher.queue.index.tail)
        keep = () if in_flight else tuple(map(Offset, dispatcher.holds()))
        self.propose(commands.Purge(queue, group, tail, keep, in_flight), identity, done)

    # --- Questions --------------------------------------------------------------------------

    async def figures(self, queue: QueueId, group: str) -> TopicStatistics:
        """Figures of one queue and group."""
        dispatcher = self._replica.dispatcher(queue, group)
        return TopicStatistics(
            ready=dispatcher.ready_count,
            leased=dispatcher.leased_count,
            delayed=dispatcher.delayed_count,
            oldest_ms=dispatcher.oldest_ms(),
            consumers=dispatcher.consumer_count,
            filtered=dispatcher.filtering.count,
            expired=dispatcher.queue.groups[group].expired,
        )

    async def peek(
        self, queue: QueueId, offset: Offset, messages: int
    ) -> Sequence[tuple[Offset, bytes]]:
        """Messages of a queue from an offset on."""
        group = self.group
        state = self._replica.state.queues.get(queue)
        if state is None:
            raise KernelError(Code.NOT_FOUND, "the topic was deleted")
        found: list[tuple[Offset, bytes]] = []
        index = state.index
        at = max(int(offset), index.head)
        while len(found) < messages and index.head <= at < index.tail:
            run = index.find(at)
            if run.features & Feature.HOLE:
                at = run.end
                continue
            count = min(run.end - at, messages - len(found))
            entry = self._host.entry(group, run.index)
            if entry is None and not state.is_needed(at):
                at += 1
                continue
            if entry is None:
                await self._host.fetched(group, run.index)
                continue
            slots = entries.slots(entry, run.slot, count)
            found += [(Offset(at + i), slot) for i, slot in enumerate(slots) if slot]
            at += count
        return found


def _result(error: KernelError) -> object:
    """What a command comes to that was not proposed: who does not lead has done nothing at all."""
    return error if error.code is Code.NOT_LEADER else (error,)
