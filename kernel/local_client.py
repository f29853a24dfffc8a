"""The kernel client of a gateway that has the store in its own process.

Durability: `published`, `settled` and the awaitables return from `Store._apply`, which runs only
on entries that are fdatasynced; volatile topics answer from memory, in a later turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

from .administration import Administrator
from .broker.consumers import Credit, DispatchedConsumer, SpreadConsumer
from .broker.dispatcher import Dispatcher
from .broker.state import QueueState, RouterState
from .client import (
    Administration,
    Client,
    Consumer,
    ConsumerSink,
    ConsumerSpec,
    DeleteTopic,
    Destinations,
    LeaseChange,
    PublishBatch,
    PublishSink,
    Received,
    ReceiveSpec,
    Session,
    Settlement,
    SettleSink,
)
from .errors import Code, KernelError
from .expiry import UnusedTopics
from .ids import METADATA_GROUP, Offset, QueueId, RaftGroup, SessionId, TopicId
from .limits import (
    PROPOSAL_BYTES_MAX,
    PUBLISH_DEADLINE_MS,
    VOLATILE_BYTES_MAX,
    VOLATILE_ENTRIES_MAX,
)
from .model import (
    DEFAULT_GROUP,
    Overflow,
    QueueRef,
    Reason,
    Route,
    RouterInfo,
    TopicInfo,
    TopicStatistics,
)
from .log import entry as entries
from .ports import Clock, Random
from .origins import Origins
from .publish import Batch, Part
from .pull import Pull, decode_token
from .store.dead_letters import DeadLetterSender
from .store.node import Store
from .store.replica import Replica
from .store.volatile import VOLATILE_GROUP
from .topology import Topology

PULL_CHECK_MS = 20
"""How often a pull that found something ready looks whether somebody else has taken it."""

UUID_VERSION_BITS = 0x8000
UUID_VARIANT = 1 << 63


SESSION_PRUNE = 64
"""A session forgets its cancelled consumers when it knows twice as many as are left, and so many
more."""


class LocalSession:
    """`client.Session`."""

    __slots__ = ("_client", "closed", "consumers", "epoch", "id", "name", "prune_at", "pulls")

    def __init__(self, client: LocalClient, ident: SessionId, name: str) -> None:
        self._client = client
        self.id = ident
        self.epoch = 1
        self.name = name
        self.consumers: dict[DispatchedConsumer, None] = {}
        self.pulls: dict[tuple[int, str], DispatchedConsumer] = {}
        self.closed = False
        self.prune_at = SESSION_PRUNE

    def prune(self) -> None:
        """Forget consumers that are cancelled and hold nothing."""
        for consumer in [each for each in self.consumers if each.ended and not each.held]:
            del self.consumers[consumer]
        self.prune_at = 2 * len(self.consumers) + SESSION_PRUNE

    def close(self) -> None:
        """End the session (see `client.Session`)."""
        if not self.closed:
            self.closed = True
            self._client.end_session(self)


class LocalClient:
    """`client.Client` over a `Store` in this process."""

    def __init__(self, store: Store, clock: Clock, random: Random) -> None:
        self._store = store
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.topology = Topology()
        self.origins = Origins()
        self.accepting = True
        self._identity = random.bits(63) | 1
        self._session_base = random.bits(31) << 32
        self.outbox_epoch = random.bits(31) | 1
        self.uid_high = random.bits(48) << 16 | UUID_VERSION_BITS | random.bits(12)
        self.next_uid = UUID_VARIANT
        self._sequence = 0
        self._next_session = 1
        self._pending_bytes = 0
        self._promised: dict[TopicId, int] = {}
        """Places of limited topics taken by messages on their way."""
        self._pending: deque[Batch] = deque()
        self._second_timer: asyncio.TimerHandle | None = None
        self._administrator = Administrator(store, self.topology, self._next_identity)
        self._dead_letters = DeadLetterSender(store, self)
        self._watchers: list[Callable[[str, bytes | None], None]] = []
        self._unused = UnusedTopics(self._has_consumers)
        self._owned: dict[SessionId, dict[tuple[str, str], None]] = {}
        self._background: set[asyncio.Task[object]] = set()
        for replica in store.replicas():
            self._learn(replica)

    def _learn(self, replica: Replica) -> None:
        """Take over what a group holds."""
        state = replica.state
        for ident in state.topic_names.values():
            info = state.topics[ident].info()
            self.topology.put_topic(info)
            self._unused.put(info, self._clock.monotonic_ms())
        for (tenant, name), router in state.routers.items():
            self.topology.put_router(tenant, name, router.options, router.routes)

    async def start(self, *, clean: bool = False) -> None:
        """Start the store, mend what a crash left half done, serve. `clean`: the last run ended
        in order."""
        await self._store.start(self, clean=clean)
        await self._administrator.repair()
        for replica in self._store.replicas():
            self._dead_letters.outbox_grew(replica)
        self._each_second()

    async def drain(self) -> None:
        """Return once everything submitted is on disk and answered."""
        if self._second_timer is not None:
            self._second_timer.cancel()
        await self._dead_letters.stop()
        if self._background:
            await asyncio.gather(*self._background, return_exceptions=True)
        await self._store.wait_idle()

    def _next_identity(self) -> tuple[int, int, int]:
        self._sequence += 1
        return self._identity, 1, self._sequence

    # --- Sessions ---------------------------------------------------------------------------

    def open_session(self, name: str) -> Session:
        """A new session."""
        ident = SessionId(self._session_base | self._next_session)
        self._next_session += 1
        return LocalSession(self, ident, name)

    def end_session(self, session: LocalSession) -> None:
        """Return its leases, delete what it owns."""
        for consumer in list(session.consumers):
            held = sorted(consumer.held)
            consumer.dispatcher.detach(consumer)
            if held:
                consumer.dispatcher.settle(
                    consumer, Settlement.RELEASE, held, Reason.REJECTED, urgent=True
                )
        session.consumers.clear()
        session.pulls.clear()
        for tenant, name in self._owned.pop(session.id, {}):
            self._in_background(DeleteTopic(tenant, name))

    def _in_background(self, change: Administration) -> None:
        """Make a change that nobody waits for; a thing that is gone already is fine."""

        async def run() -> None:
            try:
                await self._administrator.administer(change)
            except KernelError:
                return

        task: asyncio.Task[object] = self._loop.create_task(run())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # --- Look-ups ---------------------------------------------------------------------------

    @property
    def topology_version(self) -> int:
        """Rises with every change of a definition."""
        return self.topology.version

    def topic(self, tenant: str, name: str) -> TopicInfo | None:
        """The topic, or None."""
        return self.topology.topics.get((tenant, name))

    def router(self, tenant: str, name: str) -> RouterInfo | None:
        """The router, or None."""
        return self.topology.router_info(tenant, name)

    async def load(self, tenant: str, *, topics: Sequence[str], routers: Sequence[str]) -> None:
        """Everything is loaded in process."""

    def to_topic(self, topic: TopicInfo) -> Destinations:
        """Destinations of a publish straight to one topic."""
        return self.topology.to_topic(topic)

    def to_router(
        self, tenant: str, router: str, key: str, attributes: Mapping[str, object] | None = None
    ) -> Destinations:
        """Destinations of a publish to a router."""
        return self.topology.find(tenant, router, key, attributes)

    def queue_of(self, topic: TopicInfo, number: int) -> QueueRef:
        """Queue `number` of a topic."""
        return topic.queues[number]

    # --- Publishing -------------------------------------------------------------------------

    def batch(self, session: Session, sink: PublishSink) -> PublishBatch:
        """An empty batch."""
        return Batch(self, sink)

    def has_room(self, topic: TopicInfo) -> bool:
        """Whether a topic whose overflow policy refuses takes one more message."""
        options = topic.options
        if options.messages_max is None or options.overflow is Overflow.DROP_OLDEST:
            return True
        taken = self._promised.get(topic.id, 0)
        if self.statistics(topic, DEFAULT_GROUP).ready + taken >= options.messages_max:
            return False
        self._promised[topic.id] = taken + 1
        return True

    def _keep_promises(self, batch: Batch) -> None:
        """The limited topics' places that a batch took are counted by the state now."""
        for ident, count in batch.promised.items():
            left = self._promised.get(ident, 0) - count
            if left > 0:
                self._promised[ident] = left
            else:
                self._promised.pop(ident, None)

    def submit(self, batch: PublishBatch) -> None:
        """Hand a batch over (hot)."""
        work = cast(Batch, batch)
        parts = work.parts
        if not parts:
            self._loop.call_soon(work.sink.published, batch)
            return
        work.remaining = len(parts)
        work.submitted_ms = self._clock.monotonic_ms()
        self._pending_bytes += work.size_bytes
        self._pending.append(work)
        for part in parts:
            refusal = self._refusal(part)
            if refusal is not None:
                work.fail_part(part, refusal)
                self._loop.call_soon(work.part_done, part, self._batch_done, None)
                continue
            replica = self._store.replica(part.group)
            replica.open.add_publish(
                self._next_identity(),
                part.all_runs(),
                part.lengths,
                part.buffers,
                part.size,
                partial(work.part_done, part, self._batch_done),
            )
            self._store.dirty(replica, urgent=True)

    def _refusal(self, part: Part) -> KernelError | None:
        """Why a part cannot be taken now; None if it can."""
        if part.group == VOLATILE_GROUP:
            log = self._store.volatile_log
            if log.bytes + part.size > VOLATILE_BYTES_MAX or log.count >= VOLATILE_ENTRIES_MAX:
                return KernelError(Code.BUSY, "volatile topics are full (volatile_bytes_max)")
            return None
        if not self.accepting:
            return KernelError(Code.NO_SPACE, "free disk is below the mark for new messages")
        if self._pending_bytes > PROPOSAL_BYTES_MAX:
            return KernelError(Code.BUSY, "too much is waiting for the disk (proposal_bytes_max)")
        return None

    def _batch_done(self, batch: Batch) -> None:
        self._pending_bytes -= batch.size_bytes
        if batch.promised:
            self._keep_promises(batch)
        if batch.submitted_ms >= 0:
            batch.submitted_ms = -1
            batch.sink.published(batch)
        while self._pending and self._pending[0].remaining == 0:
            self._pending.popleft()

    def _has_consumers(self, topic: TopicInfo) -> bool:
        return any(
            dispatcher.consumer_count
            for ref in topic.queues
            for dispatcher in self._store.replica(ref.group).dispatchers_of(ref.id)
        )

    def _each_second(self) -> None:
        """Look after deadlines."""
        now = self._clock.monotonic_ms()
        for topic in self._unused.expired(now):
            self._unused.remove(topic)
            self._in_background(DeleteTopic(topic.tenant, topic.name, if_unused=True))
        self._fail_late_batches(now)
        self._second_timer = self._loop.call_later(1, self._each_second)

    def _fail_late_batches(self, now: int) -> None:
        """Fail batches that are older than the publish deadline."""
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

    # --- Consuming --------------------------------------------------------------------------

    def _dispatcher(self, topic: TopicInfo, group: str, number: int = 0) -> Dispatcher:
        ref = topic.queues[number]
        return self._store.replica(ref.group).dispatcher(ref.id, group)

    def attach(self, spec: ConsumerSpec, sink: ConsumerSink) -> Consumer:
        """A new push consumer without credit."""
        session = cast(LocalSession, spec.session)
        if len(session.consumers) >= session.prune_at:
            session.prune()
        pool = Credit()
        parts: list[DispatchedConsumer] = []
        for number in range(len(spec.topic.queues)):
            try:
                part = self._dispatcher(spec.topic, spec.group, number).attach(spec, sink, pool)
            except KernelError:
                for each in parts:
                    each.cancel()
                raise
            parts.append(part)
            session.consumers[part] = None
        return parts[0] if len(parts) == 1 else SpreadConsumer(parts)

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
        """Settle leases (hot)."""
        holder = cast(DispatchedConsumer, consumer)
        strangers = holder.dispatcher.settle(
            holder, how, offsets, reason, urgent=sink is not None
        )
        if sink is None:
            return
        failures = {
            offset: KernelError(Code.LEASE_LOST, f"no lease on offset {offset}")
            for offset in strangers
        }
        replica = self._replica_of(holder)
        replica.open.wait(lambda _: sink.settled(tag, failures or None))
        self._store.dirty(replica, urgent=True)

    def _replica_of(self, consumer: DispatchedConsumer) -> Replica:
        topic = consumer.dispatcher.queue.topic
        for ref in topic.refs:
            if ref.id == consumer.dispatcher.queue.id:
                return self._store.replica(ref.group)
        raise KernelError(Code.NOT_FOUND, f"topic {topic.name} was deleted")

    async def receive(self, spec: ReceiveSpec) -> Received:
        """Pull messages (see `client.ReceiveSpec`)."""
        self._unused.used(spec.topic.id, self._clock.monotonic_ms())
        ready = 0
        for number in range(len(spec.topic.queues)):
            dispatcher = self._dispatcher(spec.topic, spec.group, number)
            if dispatcher.leased_count >= dispatcher.queue.topic.groups[spec.group].in_flight_max:
                raise KernelError(
                    Code.LIMIT_EXCEEDED, f"group {spec.group} has in_flight_max messages in flight"
                )
            ready += dispatcher.ready_count
        if not ready and not spec.wait_ms:
            return Received(None, None, (), 0)
        pull = Pull(self._loop)
        consumers = self._pull_from(spec, pull)
        try:
            await self._wait_for_pull(pull, [each.dispatcher for each in consumers], spec.wait_ms)
        except asyncio.CancelledError:
            pull.abandoned = True
            raise
        finally:
            pull.over()
            for consumer in consumers:
                consumer.pool.left = 0
                if spec.session is None:
                    consumer.cancel()
        return pull.received(spec.session is not None)

    def _pull_from(self, spec: ReceiveSpec, pull: Pull) -> list[DispatchedConsumer]:
        """Consumers that stand for one pull, one on each queue of the topic."""
        consumers: list[DispatchedConsumer] = []
        for number in range(len(spec.topic.queues)):
            dispatcher = self._dispatcher(spec.topic, spec.group, number)
            key = (dispatcher.queue.id, spec.group)
            session = cast("LocalSession | None", spec.session)
            known = session.pulls.get(key) if session is not None else None
            if known is not None and isinstance(known.sink, Pull) and not known.sink.is_over:
                known = None  # another receive of the session is still waiting with it
            if known is None or known.ended:
                lease_ms = None
                if session is None:
                    lease_ms = spec.lease_ms
                    if lease_ms is None:
                        lease_ms = dispatcher.queue.topic.groups[spec.group].lease_ms
                wanted = ConsumerSpec(
                    spec.topic,
                    spec.group,
                    spec.session,
                    lease_ms=lease_ms,
                    filter=spec.filter,
                    pull=True,
                )
                known = dispatcher.attach(wanted, pull)
                if session is not None:
                    session.pulls[key] = known
                    session.consumers[known] = None
            known.sink = pull
            consumers.append(known)
        pull.begin(consumers, spec.messages)
        return consumers

    async def _wait_for_pull(
        self, pull: Pull, dispatchers: Sequence[Dispatcher], wait_ms: int
    ) -> None:
        """Until the pull has messages, or its time is up and nothing is ready (messages that are
        ready may still have to be read from disk)."""
        deadline = self._clock.monotonic_ms() + wait_ms
        while not pull.done.done():
            left = deadline - self._clock.monotonic_ms()
            if left <= 0 and not pull.expecting and not any(
                each.ready.count for each in dispatchers
            ):
                return
            await asyncio.wait((pull.done,), timeout=max(left, PULL_CHECK_MS) / 1000)

    async def settle_leases(
        self, topic: TopicInfo, group: str, changes: Sequence[LeaseChange]
    ) -> Sequence[KernelError | None]:
        """Change leases by token."""
        refs = {ref.id: ref for ref in topic.queues}
        by_queue: dict[QueueId, list[tuple[int, LeaseChange, int, int]]] = {}
        results: list[KernelError | None] = [None] * len(changes)
        for position, change in enumerate(changes):
            token = decode_token(change.token)
            if token is None or token[0] not in refs:
                results[position] = KernelError(Code.LEASE_LOST, "not a lease of this topic")
                continue
            by_queue.setdefault(QueueId(token[0]), []).append((position, change, *token[1:]))
        for ident, wanted in by_queue.items():
            good = await self._change(refs[ident], group, wanted)
            for (position, *_), held in zip(wanted, good, strict=True):
                if not held:
                    results[position] = KernelError(
                        Code.LEASE_LOST, "the lease has ended, or the message was settled"
                    )
        return results

    async def _change(
        self, ref: QueueRef, group: str, wanted: Sequence[tuple[int, LeaseChange, int, int]]
    ) -> Sequence[int]:
        replica = self._store.replica(ref.group)
        now = replica.log_time_ms()
        future: asyncio.Future[object] = self._loop.create_future()
        packed = [
            (
                offset,
                lease,
                change.verb,
                change.reason,
                now + change.delay_ms if change.delay_ms else 0,
            )
            for _, change, offset, lease in wanted
        ]
        replica.change(ref.id, group, packed, self._next_identity(), _setter(future))
        result = await future
        good: object = result[0] if isinstance(result, tuple) and result else None
        if isinstance(good, KernelError):
            raise good
        return cast(Sequence[int], good)

    async def peek(
        self, topic: TopicInfo, number: int, offset: Offset, messages: int
    ) -> Sequence[tuple[Offset, bytes]]:
        """Messages from an offset on, without leasing them."""
        ref = topic.queues[number]
        replica = self._store.replica(ref.group)
        queue = replica.state.queues.get(ref.id)
        if queue is None:
            raise KernelError(Code.NOT_FOUND, f"topic {topic.name} was deleted")
        found: list[tuple[Offset, bytes]] = []
        at = max(int(offset), queue.index.head)
        while len(found) < messages and queue.index.head <= at < queue.index.tail:
            run = queue.index.find(at)
            count = min(run.end - at, messages - len(found))
            entry = self._store.entry(ref.group, run.index)
            if entry is None and all(each.is_acked(at) for each in queue.groups.values()):
                at += 1
                continue
            if entry is None:
                fetched: asyncio.Future[None] = self._loop.create_future()
                self._store.fetch(ref.group, run.index, partial(_set_once, fetched))
                await fetched
                continue
            slots = entries.slots(entry, run.slot, count)
            found += [(Offset(at + i), slot) for i, slot in enumerate(slots) if slot]
            at += count
        return found

    def statistics(self, topic: TopicInfo, group: str) -> TopicStatistics:
        """Figures of a topic and group."""
        each = [self._dispatcher(topic, group, number) for number in range(len(topic.queues))]
        oldest = [time_ms for one in each if (time_ms := one.oldest_ms()) is not None]
        return TopicStatistics(
            ready=sum(one.ready_count for one in each),
            leased=sum(one.leased_count for one in each),
            delayed=sum(one.delayed_count for one in each),
            oldest_ms=min(oldest, default=None),
            consumers=sum(one.consumer_count for one in each),
        )

    # --- Administration ---------------------------------------------------------------------

    async def administer(self, change: Administration) -> object:
        """Make a change."""
        return await self._administrator.administer(change)

    # --- node.Listener ----------------------------------------------------------------------

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """A definition changed."""
        owner = topic.options.owner
        if removed:
            self.topology.remove_topic(topic)
            self._unused.remove(topic)
            if owner is not None:
                self._owned.get(owner, {}).pop((topic.tenant, topic.name), None)
            return
        self.topology.put_topic(topic)
        self._unused.put(topic, self._clock.monotonic_ms())
        if owner is not None:
            self._owned.setdefault(owner, {})[topic.tenant, topic.name] = None

    def router_changed(self, router: RouterState, group: RaftGroup, *, removed: bool) -> None:
        """A router changed."""
        if removed:
            self.topology.remove_router(router.tenant, router.name)
        else:
            self.topology.put_router(router.tenant, router.name, router.options, router.routes)

    def route_changed(self, router: RouterState, route: Route, *, removed: bool) -> None:
        """A route came or went."""
        if removed:
            self.topology.remove_route(router.tenant, router.name, route)
        else:
            self.topology.add_route(router.tenant, router.name, route)

    def unused(self, queue: QueueState) -> None:
        """The last consumer of a queue has gone."""
        topic = queue.topic
        self._unused.used(topic.id, self._clock.monotonic_ms())
        if topic.options.delete_when_unused:
            self._in_background(DeleteTopic(topic.tenant, topic.name, if_unused=True))

    def outbox_grew(self, replica: Replica) -> None:
        """There are dead letters to send."""
        self._dead_letters.outbox_grew(replica)

    # --- Metadata ---------------------------------------------------------------------------

    def records(self, prefix: str) -> Mapping[str, tuple[int, bytes]]:
        """(version, value) of the metadata records whose key begins so."""
        records = self._store.replica(METADATA_GROUP).state.records
        return {key: each for key, each in records.items() if key.startswith(prefix)}

    def watch_records(self, action: Callable[[str, bytes | None], None]) -> None:
        """Have every change of a metadata record told to `action`."""
        self._watchers.append(action)

    def record_changed(self, key: str, value: bytes | None) -> None:
        """A metadata record changed."""
        for action in self._watchers:
            action(key, value)


def _is_client(client: LocalClient) -> Client:
    """Type check only: LocalClient is a Client."""
    return client


def _setter(future: asyncio.Future[object]) -> Callable[[object], None]:
    def done(result: object) -> None:
        if not future.done():
            future.set_result(result)

    return done


def _set_once(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
