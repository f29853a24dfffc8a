"""The kernel client of a gateway that has the store in its own process.

Durability: `published`, `settled` and the awaitables return from `Store._apply`, which runs only
on entries that are fdatasynced; volatile topics answer from memory, in a later turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from .administration import Administrator
from .atomic import Transaction
from .broker.consumers import Credit, DispatchedConsumer, SpreadConsumer
from .broker.dispatcher import Dispatcher
from .broker.state import QueueState, RouterState
from .broker.tree_state import TreeEvent
from .client import (
    Administration,
    CancelMove,
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
    StartMove,
)
from .courier import Attempt, Send
from .errors import Code, KernelError
from .expiry import UnusedTopics
from .half_desk import HalfDesk
from .ids import (
    METADATA_GROUP,
    UUID_VARIANT,
    UUID_VERSION_BITS,
    VOLATILE_GROUP,
    Offset,
    RaftGroup,
    SessionId,
    TopicId,
    home_of,
    uuid_of,
)
from .leader import Done, Identity, Leader
from .lease_changes import LeaseChanges
from .local_tree import LocalTree
from .model import (
    Reason,
    Route,
    RouterInfo,
    TopicInfo,
    TopicStatistics,
)
from .mover import Mover
from .origins import Origins
from .ports import Clock, Random
from .proposer import Proposer
from .publish import Batch
from .publisher import Publisher
from .receiving import Receiver, dispatcher_of
from .session import LocalSession
from .statistics import summed
from .store.dead_letters import DeadLetterSender
from .store.node import Store
from .store.replica import Replica
from .topic_room import Room, Rooms
from .topology import Topology
from .transactor import Transactor
from .unused_groups import UnusedGroups


class LocalClient:
    """`client.Client` over a `Store` in this process."""

    def __init__(self, store: Store, clock: Clock, random: Random) -> None:
        self._store = store
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.topology = Topology(store.data_groups)
        self.origins: Origins = store.origins
        self.accepting = True
        self._identity = random.bits(63) | 1
        self._session_base = random.bits(31) << 32
        self.outbox_client = random.bits(63) | 1
        self.uid_high = random.bits(48) << 16 | UUID_VERSION_BITS | random.bits(12)
        self.next_uid = UUID_VARIANT
        self._sequence = 0
        self._next_session = 1
        self._publisher = Publisher(self, store.volatile_log, clock, self._loop)
        self._second_timer: asyncio.TimerHandle | None = None
        self.send: Send | None = None
        """How commands with an identity get to their group, if not straight."""
        proposer = Proposer(self.next_identity, self.send_to)
        self._administrator = Administrator(store, self.topology, proposer, self.leader_of)
        self.dead_letters = DeadLetterSender(store, self)
        self.room: Rooms = Room(self._dispatcher, self.dead_letters.refused)
        self._transactor = Transactor(
            store, proposer, self._publisher.refusal, self._dispatcher, self.room
        )
        self._watchers: list[Callable[[str, bytes | None], None]] = []
        self._receiver = Receiver(self._dispatcher, self._loop)
        self.leases = LeaseChanges(proposer)
        self.moves = Mover(store, self.topology, proposer, clock.wall_ms, lambda: _task_id(random))
        self._halves = HalfDesk(store, proposer, self._publisher.durable_refusal)
        self._unused = UnusedTopics(self._has_consumers)
        self.unused_groups = UnusedGroups(store, clock.monotonic_ms())
        self._owned: dict[SessionId, dict[tuple[str, str], None]] = {}
        self._background: set[asyncio.Task[object]] = set()
        self.tree = LocalTree(store, self, self._loop, proposer)
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
        self.tree.learn(replica)

    async def start(self, *, clean: bool = False) -> None:
        """Start the store, mend what a crash left half done, serve. `clean`: the last run ended
        in order.
        """
        await self._store.start(self, clean=clean)
        if self._store.leads_all:
            await self._administrator.repair()
            await self.tree.repair()
            await self.moves.resume()
        for replica in self._store.replicas():
            self.dead_letters.outbox_grew(replica)
        self._each_second()

    async def drain(self) -> None:
        """Return once everything submitted is on disk and answered."""
        if self._second_timer is not None:
            self._second_timer.cancel()
        await self.moves.stop()
        await self.dead_letters.stop()
        await self.tree.stop()
        if self._background:
            await asyncio.gather(*self._background, return_exceptions=True)
        await self._store.wait_idle()

    def next_identity(self) -> Identity:
        """(client, epoch, sequence) of the next batch of this process."""
        self._sequence += 1
        return self._identity, 1, self._sequence

    @property
    def halves(self) -> HalfDesk:
        """Messages that wait for their producer's commit."""
        return self._halves

    def send_to(self, group: RaftGroup, attempt: Attempt, done: Done) -> None:
        """Have a command with an identity carried out in a group, once."""
        leader = self.leader_here(group)
        if leader is not None:
            attempt(leader, done)
        elif self.send is not None:
            self.send(group, attempt, done)

    def leader_here(self, group: RaftGroup) -> Leader | None:
        """The leader of a group that cannot move away from this process."""
        if self.send is None or group == VOLATILE_GROUP:
            return self.leader_of(group)
        return None

    def leader_of(self, group: RaftGroup) -> Leader:
        """The leader of a group, in this store."""
        return self._store.leader(group)

    # --- Sessions ---------------------------------------------------------------------------

    def open_session(self, name: str, origin: int = 0) -> Session:
        """A new session."""
        ident = SessionId(self._session_base | self._next_session)
        self._next_session += 1
        return LocalSession(self, ident, name, origin)

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

    def topics(self, tenant: str) -> Sequence[TopicInfo]:
        """Every topic of a tenant."""
        return [each for each in self.topology.topics.values() if each.tenant == tenant]

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

    # --- Publishing -------------------------------------------------------------------------

    def batch(self, session: Session, sink: PublishSink) -> PublishBatch:
        """An empty batch."""
        return Batch(self, sink, session.origin)

    def publish_letter(self, topics: tuple[TopicInfo, ...], letter: bytes) -> None:
        """Store a dead letter that no state holds, without an answer."""
        self._publisher.publish_letter(topics, letter)

    def submit(self, batch: PublishBatch) -> None:
        """Hand a batch over (hot)."""
        self._publisher.submit(batch)

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
        self._publisher.fail_late_batches(now)
        self.tree.each_second()
        self._halves.ask()
        self.unused_groups.look(now)
        self._second_timer = self._loop.call_later(1, self._each_second)

    async def transact(self, transaction: Transaction) -> None:
        """Carry out publishes and settlements of one Raft group together, or none of them."""
        await self._transactor.transact(transaction)

    # --- Consuming --------------------------------------------------------------------------

    def _dispatcher(self, topic: TopicInfo, group: str, number: int) -> Dispatcher:
        return dispatcher_of(self._store, topic, group, number)

    def attach(self, spec: ConsumerSpec, sink: ConsumerSink) -> Consumer:
        """A new push consumer without credit."""
        session = cast("LocalSession", spec.session)
        if len(session.consumers) >= session.prune_at:
            session.prune()
        self.unused_groups.used(spec.topic.id, spec.group)
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
        holder = cast("DispatchedConsumer", consumer)
        strangers = holder.dispatcher.settle(holder, how, offsets, reason, urgent=sink is not None)
        if sink is None:
            return
        failures = {
            offset: KernelError(Code.LEASE_LOST, f"no lease on offset {offset}")
            for offset in strangers
        }
        replica = self._replica_of(holder)
        replica.open.wait(lambda _: sink.settled(tag, failures or None))
        self._store.dirty(replica, urgent=True)

    def acknowledge(self, acks: Mapping[Consumer, list[int]]) -> None:
        """Ack what many consumers hold (hot)."""
        for consumer, offsets in cast("Mapping[DispatchedConsumer, list[int]]", acks).items():
            consumer.dispatcher.acknowledge(consumer, offsets)

    def _replica_of(self, consumer: DispatchedConsumer) -> Replica:
        topic = consumer.dispatcher.queue.topic
        for ref in topic.refs:
            if ref.id == consumer.dispatcher.queue.id:
                return self._store.replica(ref.group)
        raise KernelError(Code.NOT_FOUND, f"topic {topic.name} was deleted")

    def used(self, topic: TopicId, group: str) -> None:
        """Somebody pulls, or tries to."""
        self._unused.used(topic, self._clock.monotonic_ms())
        self.unused_groups.used(topic, group)

    async def receive(self, spec: ReceiveSpec) -> Received:
        """Pull messages (see `client.ReceiveSpec`)."""
        self.used(spec.topic.id, spec.group)
        return await self._receiver.receive(spec)

    async def settle_leases(
        self, topic: TopicInfo, group: str, changes: Sequence[LeaseChange], origin: int = 0
    ) -> Sequence[KernelError | None]:
        """Change leases by token."""
        return await self.leases.settle(topic, group, changes, origin)

    async def peek(
        self, topic: TopicInfo, number: int, offset: Offset, messages: int
    ) -> Sequence[tuple[Offset, bytes]]:
        """Messages from an offset on, without leasing them."""
        ref = topic.queues[number]
        return await self.leader_of(ref.group).peek(ref.id, offset, messages)

    async def statistics(self, topic: TopicInfo, group: str) -> TopicStatistics:
        """Figures of a topic and group."""
        each = [await self.leader_of(ref.group).figures(ref.id, group) for ref in topic.queues]
        return summed(each)

    # --- Administration ---------------------------------------------------------------------

    async def administer(self, change: Administration) -> object:
        """Make a change."""
        if isinstance(change, StartMove):
            return await self.moves.start(change)
        if isinstance(change, CancelMove):
            return await self.moves.cancel(change)
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
        self.dead_letters.topic_appeared(topic.tenant, topic.name)
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

    def tree_changed(self, replica: Replica, event: TreeEvent) -> None:
        """Something of the topic tree changed."""
        self.tree.changed(replica, event)

    def leads(self, replica: Replica) -> None:
        """A group is served here from now on."""
        self.outbox_grew(replica)

    def replaced(self, replica: Replica) -> None:
        """A snapshot from another store has taken the place of a group's state."""
        for topic in list(self.topology.topics.values()):
            if home_of(topic.id) == replica.group and topic.id not in replica.state.topics:
                self.topic_changed(topic, removed=True)
        self._learn(replica)

    def outbox_grew(self, replica: Replica) -> None:
        """There are dead letters to send."""
        self.dead_letters.outbox_grew(replica)

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


def _task_id(random: Random) -> str:
    text = uuid_of(random.bits(128).to_bytes(16, "big")).hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _is_client(client: LocalClient) -> Client:
    """Type check only: LocalClient is a Client."""
    return client
