"""Push consumers of queues whose leader is in this process: those of a store beside the client, and
the transient ones of any process.

Durability: a settlement with a sink is told from the apply of its entry, which a majority has
fdatasynced (transient: which memory holds).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from ..api.client import Consumer, ConsumerSink, ConsumerSpec, Settlement, SettleSink
from ..api.model import QueueRef, Reason, TopicInfo
from ..broker.delivery.consumers import Credit, DispatchedConsumer, SpreadConsumer
from ..common.errors import Code, KernelError
from ..common.ids import RaftGroup
from ..requests.session import LocalSession
from ..store.replicas.replica import Replica


class Dirty(Protocol):
    """Has what a replica was asked for carried out."""

    def __call__(self, replica: Replica, /, *, urgent: bool) -> None:
        """See `store.host.Host.dirty`."""


class Consuming:
    """Attaches consumers and settles what they hold, as `client.Client` says."""

    def __init__(self, replica_of: Callable[[RaftGroup], Replica], dirty: Dirty) -> None:
        self._replica_of = replica_of
        self._dirty = dirty

    def attach(self, spec: ConsumerSpec, session: LocalSession, sink: ConsumerSink) -> Consumer:
        """A new push consumer without credit. Raises KernelError LOCKED, NOT_FOUND."""
        if len(session.consumers) >= session.prune_at:
            session.prune()
        pool = Credit()
        parts: list[DispatchedConsumer] = []
        for ref in spec.topic.queues:
            try:
                dispatcher = self._replica_of(ref.group).dispatcher(ref.id, spec.group)
                part = dispatcher.attach(spec, sink, pool)
            except KernelError:
                for each in parts:
                    each.cancel()
                raise
            parts.append(part)
            session.consumers[part] = None
        return parts[0] if len(parts) == 1 else SpreadConsumer(parts)

    def follow(self, sessions: Iterable[LocalSession], before: TopicInfo, after: TopicInfo) -> None:
        """A topic has other queues: its consumers get parts of those that are led here, and lose
        those of queues that are gone, in which they hold nothing.
        """
        gone = {ref.id for ref in before.queues}.difference(ref.id for ref in after.queues)
        new = [ref for ref in after.queues if ref not in before.queues]
        for session in sessions:
            pools: dict[Credit, DispatchedConsumer] = {}
            for part in list(session.consumers):
                queue = part.dispatcher.queue
                if queue.topic.id != after.id or part.ended or part.spec.pull:
                    continue
                if queue.id in gone:
                    part.dispatcher.detach(part)
                else:
                    pools.setdefault(part.pool, part)
            for pool, part in pools.items():
                for ref in new:
                    self._attach_more(ref, pool, part, session)

    def _attach_more(
        self, ref: QueueRef, pool: Credit, part: DispatchedConsumer, session: LocalSession
    ) -> None:
        """Give the consumer of a part one of a new queue too."""
        try:
            dispatcher = self._replica_of(ref.group).dispatcher(ref.id, part.spec.group)
            if any(each.pool is pool for each in dispatcher.consumers):
                return
            more = dispatcher.attach(part.spec, part.sink, pool)
        except KernelError as error:
            part.sink.consumer_ended(part, error)
            return
        pool.more = (*pool.more, more)
        session.consumers[more] = None
        dispatcher.pump()

    def settle(
        self,
        holder: DispatchedConsumer,
        how: Settlement,
        offsets: Sequence[int],
        reason: Reason,
        sink: SettleSink | None,
        tag: object,
    ) -> None:
        """Settle leases (hot). Raises KernelError NOT_FOUND if somebody wants to hear of it and the
        topic is gone.
        """
        strangers = holder.dispatcher.settle(holder, how, offsets, reason, urgent=sink is not None)
        if sink is None:
            return
        failures = {
            offset: KernelError(Code.LEASE_LOST, f"no lease on offset {offset}")
            for offset in strangers
        }

        def applied(result: object) -> None:
            if isinstance(result, KernelError):  # it leads no more: nobody here knows
                sink.settled(tag, dict.fromkeys(offsets, result))
            else:
                sink.settled(tag, failures or None)

        replica = self._replica(holder)
        replica.open.wait(applied)
        self._dirty(replica, urgent=True)

    def _replica(self, consumer: DispatchedConsumer) -> Replica:
        topic = consumer.dispatcher.queue.topic
        for ref in topic.refs:
            if ref.id == consumer.dispatcher.queue.id:
                return self._replica_of(ref.group)
        raise KernelError(Code.NOT_FOUND, f"topic {topic.name} was deleted")

    def acknowledge(self, acks: Mapping[DispatchedConsumer, list[int]]) -> None:
        """Ack what many consumers hold (hot)."""
        for consumer, offsets in acks.items():
            consumer.dispatcher.acknowledge(consumer, offsets)

    def end_session(self, session: LocalSession) -> None:
        """Return what a session's consumers hold, and end them."""
        for consumer in list(session.consumers):
            held = sorted(consumer.held)
            consumer.dispatcher.detach(consumer)
            if held:
                consumer.dispatcher.settle(
                    consumer, Settlement.RELEASE, held, Reason.REJECTED, urgent=True
                )
        session.consumers.clear()
        session.pulls.clear()
