"""How batches of this process get to the Raft groups that store them, and how they are answered.

Durability: `published` is called once every part of a batch is applied, which happens only to
entries that are fdatasynced; what is transient or for live routes only is answered from memory, in
a later turn of the loop. What is in another process's memory is answered when that has it; nobody
waits for live routes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Protocol, cast

from ..api.client import PublishBatch
from ..api.model import TopicInfo
from ..api.origins import INTERNAL
from ..api.refusals import NO_SPACE
from ..common.errors import Code, KernelError
from ..common.fairness import WriteRounds
from ..common.ids import MEMORY_FIRST, TRANSIENT_GROUP, RaftGroup
from ..common.limits import (
    PROPOSAL_BYTES_MAX,
    PUBLISH_DEADLINE_MS,
    TRANSIENT_BYTES_MAX,
    TRANSIENT_ENTRIES_MAX,
)
from ..common.ports import Clock
from ..routing.destinations import Found
from .client_trace import ClientTrace
from .cut_over import CutOvers
from .leader import Done, Identity, Leader
from .publish import ProducerBatch
from .publish_part import BatchPart
from .request_pipeline import Attempt


class PublishHost(Protocol):
    """What the publisher asks of the client in this process."""

    uid_high: int
    next_uid: int

    @property
    def accepting(self) -> bool:
        """Whether there is room for new messages."""

    def next_identity(self) -> Identity:
        """(client, epoch, sequence) of the next batch of this process."""

    def send_to(self, group: RaftGroup, attempt: Attempt, done: Done) -> None:
        """Have a command with an identity carried out in a group, once."""

    def leader_here(self, group: RaftGroup) -> Leader | None:
        """The leader of a group that cannot move away from this process."""


class MemoryLog(Protocol):
    """The log of the transient group, as far as what it may hold is concerned."""

    bytes: int

    @property
    def count(self) -> int:
        """Entries that the log holds."""


class _Nobody:
    """Sink of batches that nobody waits for."""

    def published(self, batch: PublishBatch) -> None:
        """Ignored: nobody waits for the batch."""


class Publisher:
    """The publishing half of a client."""

    def __init__(
        self,
        host: PublishHost,
        transient_log: MemoryLog,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        trace: ClientTrace,
    ) -> None:
        self._host = host
        self._trace = trace
        self._transient_log = transient_log
        self._clock = clock
        self._loop = loop
        self._pending_bytes = 0
        self._pending: deque[ProducerBatch] = deque()
        self._cut_overs = CutOvers(self._pending, self._send, self._batch_done)
        self.rounds = WriteRounds()
        """What of it is on its way, commit by commit."""

    def publish_dead_letter(self, topics: tuple[TopicInfo, ...], dead_letter: bytes) -> None:
        """Store a dead letter that no state holds, without an answer."""
        batch = ProducerBatch(self._host, _Nobody(), INTERNAL)
        batch.add(Found(topics), [dead_letter], len(dead_letter))
        self.submit(batch)

    def submit(self, batch: PublishBatch) -> None:
        """Hand a batch over (hot)."""
        work = cast("ProducerBatch", batch)
        parts = work.close()
        if not parts:
            self._loop.call_soon(self._nothing_to_store, work)
            return
        work.remaining = len(parts)
        work.submitted_ms = self._clock.monotonic_ms()
        self._pending_bytes += work.size_bytes
        self._pending.append(work)
        self.rounds.submitted(work.size_bytes)
        if not (self._cut_overs.is_busy and self._cut_overs.holds(work, parts)):
            self._send(work, parts)

    def topic_changed(self, before: TopicInfo | None, after: TopicInfo | None) -> None:
        """A topic that was resized has changed (see `CutOvers`)."""
        self._cut_overs.topic_changed(before, after)

    def _send(self, work: ProducerBatch, parts: Sequence[BatchPart]) -> None:
        """Have each group store its part."""
        for part in parts:
            refusal = self.refusal(part)
            if refusal is not None:
                work.fail_part(part, refusal)
                self._loop.call_soon(work.part_done, part, self._batch_done, None)
                continue
            identity = work.identity or self._host.next_identity()
            done = partial(work.part_done, part, self._batch_done)
            leader = self._host.leader_here(part.group)
            if leader is not None:
                leader.publish(identity, part, done, work.origin)
            else:
                self._host.send_to(part.group, partial(_try, part, identity, work.origin), done)

    def _nothing_to_store(self, batch: ProducerBatch) -> None:
        """A batch for live routes, or for nobody."""
        if batch.live:
            batch.hand_over()
        batch.sink.published(batch)

    def refusal(self, part: BatchPart) -> KernelError | None:
        """Why a part cannot be taken now; None if it can."""
        if part.group == TRANSIENT_GROUP:
            return self.transient_refusal(part.size_bytes)
        if part.group >= MEMORY_FIRST:
            return None  # of another process: the way there has a bound of its own
        return self.durable_refusal(0)

    def transient_refusal(self, size: int) -> KernelError | None:
        """Why so many bytes more cannot be taken to memory now; None if they can."""
        log = self._transient_log
        if log.bytes + size > TRANSIENT_BYTES_MAX or log.count >= TRANSIENT_ENTRIES_MAX:
            return KernelError(Code.BUSY, "transient topics are full (volatile_bytes_max)")
        return None

    def durable_refusal(self, size: int) -> KernelError | None:
        """Why no message of so many further bytes can be taken to disk now; None if it can."""
        if not self._host.accepting:
            return NO_SPACE
        if self._pending_bytes + size > PROPOSAL_BYTES_MAX:
            return KernelError(Code.BUSY, "too much is waiting for the disk (proposal_bytes_max)")
        return None

    def _batch_done(self, batch: ProducerBatch) -> None:
        if (self._cut_overs.is_busy or batch.refused) and self._cut_overs.goes_on(batch):
            return
        self._pending_bytes -= batch.size_bytes
        if self._trace.modes:
            self._trace.published(batch)
        if batch.live:
            batch.hand_over()
        if batch.submitted_ms >= 0:
            batch.submitted_ms = -1
            batch.sink.published(batch)
        answered = 0
        while self._pending and self._pending[0].remaining == 0:
            self._pending.popleft()
            answered += 1
        if answered:
            self.rounds.answered(answered)

    def fail_overdue_batches(self, now: int) -> None:
        """Fail batches that are older than the publish deadline."""
        if self._cut_overs.is_busy:
            self._cut_overs.tick(now)
        limit = now - PUBLISH_DEADLINE_MS
        for batch in self._pending:
            if batch.submitted_ms > limit:
                break
            if batch.submitted_ms >= 0:
                batch.submitted_ms = -1
                error = KernelError(Code.TIMEOUT, "not on disk within the publish deadline")
                for position in range(batch.count):
                    batch.fail(position, error)
                batch.sink.published(batch)


def _try(part: BatchPart, identity: Identity, origin: int, leader: Leader, done: Done) -> None:
    """Ask a leader to store one part of a batch."""
    leader.publish(identity, part, done, origin)
