"""A kernel client in memory, whose every answer comes when the test says so.

Look-ups and routing are the kernel's own (`kernel.routing.topology`); queues are lists. Publishes
complete in `turn`, or one by one in any order if `holds_publishes` is set; failures, names that are
not loaded and a full disk can be asked for.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernel.api.atomic import Transaction
from kernel.api.client import (
    Administration,
    Consumer,
    ConsumerSink,
    ConsumerSpec,
    DeleteRoute,
    DeleteRouter,
    DeleteTopic,
    Destinations,
    PublishSink,
    PurgeTopic,
    PutRoute,
    PutRouter,
    PutTopic,
    Received,
    ReceiveSpec,
    Session,
    Settlement,
    SettleSink,
)
from kernel.api.model import (
    QueueRef,
    Reason,
    RouterInfo,
    TopicInfo,
    TopicStatistics,
)
from kernel.api.origins import Origins
from kernel.common.errors import Code, KernelError, NotLoaded
from kernel.common.fairness import WriteRounds
from kernel.common.ids import QueueId, RaftGroup, SessionId, TopicId
from kernel.routing.topology import Found, Topology


class FakeSession:
    def __init__(self, client: FakeClient, ident: int, name: str) -> None:
        self.id = SessionId(ident)
        self.epoch = 1
        self.name = name
        self.is_closed = False
        self._client = client

    def close(self) -> None:
        self.is_closed = True
        self._client.end_session(self)


class _Nobody:
    def published(self, batch: object) -> None:
        """Nothing."""


class FakeBatch:
    uids = itertools.count(1)

    def __init__(self, sink: PublishSink) -> None:
        self.sink = sink
        self.tag: object = None
        self.size_bytes = 0
        self.failures: dict[int, KernelError] | None = None
        self.unlisted: list[int] = []
        self.unheard: dict[int, int] = {}
        self.messages: list[tuple[Found, bytes]] = []

    @property
    def count(self) -> int:
        return len(self.messages)

    def add(self, to: Destinations, parts: Sequence[bytes], size: int, asks: object = None) -> None:
        slot = b"".join(parts)
        assert len(slot) == size
        assert isinstance(to, Found)
        assert to.count
        self.messages.append((to, slot))
        self.size_bytes += size

    def uid(self) -> tuple[int, int]:
        return 0x8000, next(self.uids)


@dataclass
class Columns:
    queue: QueueId
    offsets: list[int]
    slots: list[bytes]
    attempts: list[int] | None


class FakeConsumer:
    def __init__(self, queue: FakeQueue, spec: ConsumerSpec, sink: ConsumerSink | None) -> None:
        self.queue = queue
        self.spec = spec
        self.sink = sink
        self.tag = spec.tag
        self.credit = 0
        self.is_cancelled = False

    def grant(self, messages: int) -> None:
        self.credit += messages
        # As the local client does it: a delivery may come from inside `grant`.
        self.queue.pump()

    def cancel(self) -> None:
        self.is_cancelled = True
        if self in self.queue.consumers:
            self.queue.consumers.remove(self)


@dataclass
class FakeQueue:
    info: TopicInfo
    slots: list[bytes] = field(default_factory=list)
    attempts: dict[int, int] = field(default_factory=dict)
    ready: list[int] = field(default_factory=list)
    held: dict[int, FakeConsumer] = field(default_factory=dict)
    settled: list[tuple[Settlement, list[int], Reason]] = field(default_factory=list)
    consumers: list[FakeConsumer] = field(default_factory=list)

    def append(self, slot: bytes) -> None:
        self.ready.append(len(self.slots))
        self.slots.append(slot)

    def take(self, consumer: FakeConsumer, count: int) -> Columns | None:
        offsets, self.ready = self.ready[:count], self.ready[count:]
        if not offsets:
            return None
        attempts = []
        for offset in offsets:
            self.attempts[offset] = self.attempts.get(offset, 0) + 1
            attempts.append(self.attempts[offset])
            if not consumer.spec.auto_ack:
                self.held[offset] = consumer
        slots = [self.slots[offset] for offset in offsets]
        firsts = all(attempt == 1 for attempt in attempts)
        return Columns(self.info.queues[0].id, offsets, slots, None if firsts else attempts)

    def pump(self) -> None:
        for consumer in list(self.consumers):
            columns = self.take(consumer, max(consumer.credit, 0))
            if columns is not None and consumer.sink is not None:
                consumer.credit -= len(columns.offsets)
                consumer.sink.deliver(consumer, columns)


class FakeClient:
    """`kernel.api.client.Client`."""

    def __init__(self) -> None:
        self.topology = Topology()
        self.origins = Origins()
        self.accepting = True
        self.queues: dict[tuple[str, str], FakeQueue] = {}
        self.sessions: list[FakeSession] = []
        self.submitted: list[FakeBatch] = []
        self.holds_publishes = False
        self.failing: dict[str, KernelError] = {}
        """Topic name to what publishes to it fail with."""
        self.unloaded: set[str] = set()
        self.loads: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        self.refusal: KernelError | None = None
        """What the next `administer` or `transact` raises."""
        self.administered: list[Administration] = []
        self.transacted: list[Transaction] = []
        self.holds_settlements = False
        self._settlements: list[tuple[SettleSink, object]] = []
        self._next_topic = 1

    # --- Sessions -----------------------------------------------------------------------------

    def open_session(self, name: str, origin: int = 0, by: object = None) -> Session:
        session = FakeSession(self, len(self.sessions) + 1, name)
        self.sessions.append(session)
        return session

    def end_session(self, session: FakeSession) -> None:
        for queue in list(self.queues.values()):
            queue.consumers = [each for each in queue.consumers if each.spec.session is not session]
            for offset, holder in list(queue.held.items()):
                if holder.spec.session is session:
                    del queue.held[offset]
                    queue.ready = sorted([*queue.ready, offset])
            if queue.info.options.owner == session.id:
                self._remove(queue)
            else:
                queue.pump()

    # --- Look-ups -----------------------------------------------------------------------------

    @property
    def topology_version(self) -> int:
        return self.topology.version

    @property
    def rounds(self) -> WriteRounds:
        return WriteRounds()

    def note_active(self, tenant: str) -> None:
        """Nothing here is handed out in parts."""

    def _check_loaded(self, name: str) -> None:
        if name in self.unloaded:
            raise NotLoaded

    def topic(self, tenant: str, name: str) -> TopicInfo | None:
        self._check_loaded(name)
        return self.topology.topics.get((tenant, name))

    def router(self, tenant: str, name: str) -> RouterInfo | None:
        self._check_loaded(name)
        return self.topology.router_info(tenant, name)

    async def load(self, tenant: str, *, topics: Sequence[str], routers: Sequence[str]) -> None:
        self.loads.append((tuple(topics), tuple(routers)))
        self.unloaded -= {*topics, *routers}

    def to_topic(self, topic: TopicInfo) -> Destinations:
        return self.topology.to_topic(topic)

    def to_router(
        self, tenant: str, router: str, key: str, attributes: Mapping[str, object] | None = None
    ) -> Destinations:
        self._check_loaded(router)
        return self.topology.find(tenant, router, key, attributes)

    # --- Publishing ---------------------------------------------------------------------------

    def batch(self, session: Session, sink: PublishSink) -> FakeBatch:
        return FakeBatch(sink)

    def submit(self, batch: FakeBatch) -> None:
        self.submitted.append(batch)

    def turn(self) -> None:
        """One turn of the event loop: publishes and settlements that are not held complete."""
        if not self.holds_publishes:
            for batch in list(self.submitted):
                self.complete(batch)
        if not self.holds_settlements:
            settlements, self._settlements = self._settlements, []
            for sink, tag in settlements:
                sink.settled(tag, None)

    def complete(self, batch: FakeBatch) -> None:
        """Answer one batch."""
        self.submitted.remove(batch)
        for position, (to, slot) in enumerate(batch.messages):
            for topic in to.topics:
                failure = self.failing.get(topic.name)
                if failure is not None:
                    batch.failures = {**(batch.failures or {}), position: failure}
                    continue
                queue = self.queues.get((topic.tenant, topic.name))
                if queue is not None:
                    queue.append(slot)
        for to, _ in batch.messages:
            for topic in to.topics:
                queue = self.queues.get((topic.tenant, topic.name))
                if queue is not None:
                    queue.pump()
        batch.sink.published(batch)

    async def transact(self, transaction: Transaction) -> None:
        self.transacted.append(transaction)
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            raise refusal
        batch = transaction.publishes
        if isinstance(batch, FakeBatch):
            batch.sink = _Nobody()
            self.submitted.append(batch)
            self.complete(batch)
        for settle in transaction.settlements:
            self.settle(settle.consumer, settle.how, settle.offsets, reason=settle.reason)

    # --- Consuming ----------------------------------------------------------------------------

    async def attached(self, consumer: Consumer) -> None:
        """`attach` has asked the leader already."""

    def attach(self, spec: ConsumerSpec, sink: ConsumerSink) -> Consumer:
        queue = self.queues[spec.topic.tenant, spec.topic.name]
        if queue.consumers and (spec.exclusive or queue.consumers[0].spec.exclusive):
            raise KernelError(Code.LOCKED, "an exclusive consumer is in the way")
        consumer = FakeConsumer(queue, spec, sink)
        queue.consumers.append(consumer)
        return consumer

    def settle(
        self,
        consumer: Consumer,
        how: Settlement,
        offsets: Sequence[int],
        *,
        reason: Reason = Reason.REJECTED,
        sink: SettleSink | None = None,
        tag: object = None,
    ) -> None:
        assert isinstance(consumer, FakeConsumer)
        queue = consumer.queue
        queue.settled.append((how, list(offsets), reason))
        for offset in offsets:
            queue.held.pop(offset, None)
        if sink is not None:
            self._settlements.append((sink, tag))
        if how in (Settlement.RELEASE, Settlement.RETURN):
            if how is Settlement.RETURN:
                for offset in offsets:
                    queue.attempts[offset] -= 1
            queue.ready = sorted([*queue.ready, *offsets])
            queue.pump()

    def acknowledge(self, acks: Mapping[Consumer, list[int]]) -> None:
        for consumer, offsets in acks.items():
            with contextlib.suppress(KernelError):
                self.settle(consumer, Settlement.ACK, offsets)

    async def receive(self, spec: ReceiveSpec) -> Received:
        queue = self.queues[spec.topic.tenant, spec.topic.name]
        assert spec.session is not None
        holder = FakeConsumer(queue, ConsumerSpec(spec.topic, spec.group, spec.session), None)
        columns = queue.take(holder, spec.messages)
        return Received(columns, holder, (), len(queue.ready))

    # --- Administration -----------------------------------------------------------------------

    async def administer(self, change: Administration) -> object:
        self.administered.append(change)
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            raise refusal
        match change:
            case PutTopic():
                return self._put_topic(change)
            case DeleteTopic(tenant=tenant, name=name):
                queue = self._queue(tenant, name)
                if change.if_unused and queue.consumers:
                    raise KernelError(Code.IN_USE, f"topic {name} has consumers")
                if change.if_empty and queue.ready:
                    raise KernelError(Code.IN_USE, f"topic {name} is not empty")
                self._remove(queue)
                return len(queue.ready)
            case PurgeTopic(tenant=tenant, name=name):
                queue = self._queue(tenant, name)
                count = len(queue.ready)
                queue.ready.clear()
                return count
            case PutRouter(tenant=tenant, name=name):
                if change.must_be_new and self.topology.router_options(tenant, name) is not None:
                    raise KernelError(Code.ALREADY_EXISTS, f"router {name} exists")
                self.topology.put_router(tenant, name, change.options, ())
                return self.topology.router_info(tenant, name)
            case DeleteRouter(tenant=tenant, name=name):
                if self.topology.router_options(tenant, name) is None:
                    raise KernelError(Code.NOT_FOUND, f"no router {name}")
                if change.if_unused and self.topology.route_count(tenant, name):
                    raise KernelError(Code.IN_USE, f"router {name} has routes")
                self.topology.remove_router(tenant, name)
            case PutRoute():
                self.topology.add_route(change.tenant, change.router, change.route)
            case DeleteRoute():
                self.topology.remove_route(change.tenant, change.router, change.route)
        return None

    def _queue(self, tenant: str, name: str) -> FakeQueue:
        queue = self.queues.get((tenant, name))
        if queue is None:
            raise KernelError(Code.NOT_FOUND, f"no topic {name}")
        return queue

    def _put_topic(self, change: PutTopic) -> TopicInfo:
        known = self.queues.get((change.tenant, change.name))
        if known is not None and change.must_be_new:
            raise KernelError(Code.ALREADY_EXISTS, f"topic {change.name} exists")
        ident = known.info.id if known is not None else TopicId(self._next_topic)
        self._next_topic += 1
        info = TopicInfo(
            change.tenant,
            change.name,
            ident,
            1,
            change.options,
            (QueueRef(QueueId(ident << 8), RaftGroup(1)),),
            dict(change.groups),
        )
        if known is None:
            self.queues[change.tenant, change.name] = FakeQueue(info)
        else:
            known.info = info
        self.topology.put_topic(info)
        return info

    def _remove(self, queue: FakeQueue) -> None:
        info = queue.info
        del self.queues[info.tenant, info.name]
        self.topology.remove_topic(info)
        for router, route in self.topology.routes_to(info.tenant, "topic", info.name):
            self.topology.remove_route(info.tenant, router, route)
        consumers, queue.consumers = queue.consumers, []
        for consumer in consumers:
            if consumer.sink is not None:
                gone = KernelError(Code.NOT_FOUND, f"topic {info.name} was deleted")
                consumer.sink.consumer_ended(consumer, gone)

    async def statistics(self, topic: TopicInfo, group: str) -> TopicStatistics:
        queue = self.queues[topic.tenant, topic.name]
        return TopicStatistics(
            ready=len(queue.ready),
            leased=len(queue.held),
            consumers=len(queue.consumers),
            delayed=0,
            oldest_ms=None,
        )
