"""The kernel client of a gateway that has the store in its own process; in a cluster, that of a
store, which leads some of the groups: what it asks of the others goes to their leaders
(`peer_stores`).

Durability: `published`, `settled` and the awaitables return from `Store._apply`, which runs only
on entries that are fdatasynced; transient topics answer from memory, in a later turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import cast

from ..api.changes import name_of
from ..api.client import (
    Administration,
    CancelMove,
    Client,
    Consumer,
    ConsumerSink,
    ConsumerSpec,
    DeleteTopic,
    PutRecord,
    Received,
    ReceiveSpec,
    RecordAction,
    Settlement,
    SettleSink,
    StartMove,
)
from ..api.model import (
    Reason,
    Route,
    TopicInfo,
    TopicStatistics,
)
from ..api.origins import Origins
from ..api.statistics import summed
from ..broker.delivery.consumers import DispatchedConsumer
from ..broker.delivery.dispatcher import Dispatcher
from ..broker.group_state.state import QueueState, RouterState
from ..broker.group_state.tree_state import TreeEvent
from ..broker.log_commands import commands
from ..common.errors import Code, KernelError
from ..common.feature_levels import REGISTER
from ..common.ids import (
    MEMORY_FIRST,
    METADATA_GROUP,
    TRANSIENT_GROUP,
    RaftGroup,
    SessionId,
    TopicId,
    home_of,
    uuid_text,
)
from ..common.ports import Clock, Random
from ..definitions.administration import Administrator
from ..definitions.clearing import Touched
from ..definitions.definer import Asked
from ..definitions.sizing import Sizing, used_in
from ..definitions.topic_sizes import PREFIX
from ..definitions.topic_traces import PREFIX as TRACES
from ..definitions.tracing import Tracing
from ..leader_tasks.leader_tasks import LeaderTasks
from ..leader_tasks.mover import Mover
from ..leader_tasks.predecessors import Predecessors
from ..leader_tasks.retiring import Retiring
from ..quotas.accounts import Quotas
from ..quotas.limits import LimitSet
from ..requests.leader import NO_IDENTITY, Done, Holder, Identity, Leader
from ..requests.peer_stores import Gone, KeysAnswer, KeysQuestion, PeerStores, Used
from ..requests.proposer import propose_to
from ..requests.request_pipeline import AGAIN, Attempt, Send
from ..requests.session import LocalSession
from ..routing.topology import Topology
from ..store.leading.dead_letters import DeadLetterSender
from ..store.leading.half_keeper import HalfKeeper
from ..store.node import Store
from ..store.replicas.replica import Replica
from ..subscribers.local_tree import LocalTree
from ..transactions.half_message_client import HalfMessageClient
from .answering_keys import keys_here
from .base_client import BaseClient
from .consuming import Consuming
from .elsewhere import Elsewhere, NothingElsewhere
from .receiving import Receiver, dispatcher_of

ASK_AGAIN = AGAIN | {Code.TIMEOUT, Code.BUSY}
"""A change that came to one of these may have been begun: asked again, it goes on."""

BACKGROUND_SECONDS = 2.0
"""What nobody waits for has so long to end at an orderly stop, if other stores have a part in it:
whatever leads next does not need it."""


class LocalClient(BaseClient):
    """`client.Client` over a `Store` in this process."""

    accepting: bool = True

    def __init__(self, store: Store, clock: Clock, random: Random) -> None:
        super().__init__(Topology(store.home_groups), store.transient_group, clock, random)
        self._store = store
        self.origins: Origins = store.origins
        self.is_draining = False
        """Whether nothing new is begun, since the store stops."""
        self._second_timer: asyncio.TimerHandle | None = None
        self.send: Send | None = None
        """How commands with an identity get to their group, if not straight."""
        self._peer_stores: PeerStores | None = None
        self.administrator = Administrator(store, self.topology, self.proposer, self.leader_of)
        self.dead_letters = DeadLetterSender(store, self)
        for room in (store.topic_room, store.transient_group.topic_room):
            room.dead_letter = self.dead_letters.refused
        self._watchers: list[RecordAction] = []
        self._receiver = Receiver(self._dispatcher, self._loop)
        self.moves = Mover(
            store,
            self.topology,
            self.proposer,
            self.leader_of,
            clock.wall_ms,
            lambda: uuid_text(random.bits(128)),
        )
        self._consuming = Consuming(store.replica, store.dirty)
        self.half_keeper = HalfKeeper(store, self.publisher.durable_refusal)
        store.half_room = self.half_keeper
        self.halves = HalfMessageClient(self.proposer, self.half_keeper.watches, self.trace)
        self.leader_tasks = LeaderTasks(
            store, clock.monotonic_ms, self.administer, self._in_background
        )
        self.administrator.unfinished = self.moves.unfinished = self.leader_tasks.unfinished
        self._predecessors = Predecessors(
            store, self.leader_of, self._unsettled_keys, self._in_background
        )
        self._retiring = Retiring(
            store,
            self.administrator.let_go_of_queues,
            self.administrator.go_on_resizing,
            self._in_background,
        )
        self.sizing = Sizing(
            store,
            self.topology.topics.get,
            self._used,
            self.administer,
            clock.monotonic_ms,
            self._in_background,
        )
        self.tracing = Tracing(
            store,
            self.topology.topics.get,
            self.administer,
            clock.monotonic_ms,
            self._in_background,
            self.trace,
        )
        self.unused_groups = self.leader_tasks.unused_groups
        self._owned: dict[SessionId, dict[tuple[str, str], None]] = {}
        self._background: set[asyncio.Task[object]] = set()
        self.tree = LocalTree(store, self, self._loop, self.proposer)
        self.remote_memory: Elsewhere = NothingElsewhere()
        """What lives in the memory of gateways: `remote` sets it where these are served."""
        self.leader_tasks.add(self.administrator.repair, self.administrator.repair)
        self.leader_tasks.add(self.moves.resume, self.moves.resume)
        self.leader_tasks.add(self.administrator.go_on)
        self.leader_tasks.add(self.administrator.go_on_resizing)
        self.leader_tasks.add(self.tree.repair, self.tree.repair)
        for replica in store.replicas():
            self._learn(replica)

    def _learn(self, replica: Replica) -> None:
        """Take over what a group holds."""
        state = replica.state
        for ident in state.topic_names.everything():
            info = state.topics[ident].info()
            self.topology.put_topic(info)
            # Of another group, perhaps, than those whose dead letters wait for it.
            self.dead_letters.topic_appeared(info.tenant, info.name)
            self.leader_tasks.unused_topics.put(info, self.clock.monotonic_ms())
        for (tenant, name), router in state.routers.items():
            self.topology.put_router(tenant, name, router.options, router.routes)
        self.tree.learn(replica)

    def join(self, peer_stores: PeerStores) -> None:
        """Other stores lead groups too; before `start`."""
        self._peer_stores = self.moves.peer_stores = self.leader_tasks.peer_stores = peer_stores
        self.administrator.join(peer_stores)
        self.tree.join(peer_stores)
        self.send = peer_stores.send
        self.topology.tree.leaders_match = True

    async def start(self, *, clean: bool = False) -> None:
        """Start the store, mend what a crash left half done, serve. `clean`: the last run ended
        in order.
        """
        await self._store.start(self, clean=clean)
        await self.leader_tasks.start()
        for key, record in self.records(PREFIX).items():
            self.sizing.record_changed(key, record)
        self.watch_records(self.sizing.record_changed)
        for key, record in self.records(TRACES).items():
            self.tracing.record_changed(key, record)
        self.watch_records(self.tracing.record_changed)
        for replica in self._store.replicas():
            self.dead_letters.outbox_grew(replica)
        self._each_second()

    async def drain(self) -> None:
        """Return once everything submitted is on disk and answered."""
        self.is_draining = True
        if self._second_timer is not None:
            self._second_timer.cancel()
        await self.leader_tasks.stop()
        await self._predecessors.stop()
        await self.moves.stop()
        await self.dead_letters.stop()
        await self.tree.stop()
        if self._background:
            patience = None if self._peer_stores is None else BACKGROUND_SECONDS
            _, late = await asyncio.wait(self._background, timeout=patience)
            for task in late:
                task.cancel()
        self.remote_memory.stop()
        await self._store.wait_idle()

    def monotonic_ms(self) -> int:
        """Milliseconds of the monotonic clock."""
        return self.clock.monotonic_ms()

    def send_to(self, group: RaftGroup, attempt: Attempt, done: Done) -> None:
        """Have a command with an identity carried out in a group, once."""
        leader = self.leader_here(group)
        if leader is not None:
            attempt(leader, done)
        elif self.send is not None:
            self.send(group, attempt, done)

    def when_level(self, done: Callable[[bool], None]) -> None:
        """Of a group that is led by another store its leader is asked how far it is."""
        if self._peer_stores is None:
            done(True)
        else:
            self._in_background(self._level(self._peer_stores, done))

    async def _level(self, peer_stores: PeerStores, done: Callable[[bool], None]) -> None:
        is_level = False
        with suppress(KernelError):
            await peer_stores.level(self._store.home_groups)
            is_level = True
        done(is_level)

    def leader_here(self, group: RaftGroup) -> Leader | None:
        """The leader of a group that cannot move away from this process."""
        if self.send is None or group >= MEMORY_FIRST:
            return self.leader_of(group)
        return None

    def limit_definitions(self, allowed: Callable[[str], LimitSet]) -> None:
        """`allowed`: how many topics and groups a tenant may have."""
        self.administrator.allowed = allowed

    def limit_stored(self, quotas: Quotas, tenants: int) -> None:
        """By which limits messages are stored; `tenants`: how many there are at least."""
        self._store.topic_room.stored.limit(quotas, tenants)

    def leader_of(self, group: RaftGroup) -> Leader:
        """The leader of a group, in this store unless another one leads, or in a gateway."""
        if MEMORY_FIRST <= group < TRANSIENT_GROUP:
            return self.remote_memory.leader(group)
        if self._peer_stores is None or group == TRANSIENT_GROUP or self._store.serving(group):
            return self._store.leader(group)
        return self._peer_stores.leader(group)

    def _session_ended(self, session: LocalSession) -> None:
        """Return its leases, delete what it owns."""
        self._consuming.end_session(session)
        for tenant, name in self._owned.pop(session.id, {}):
            self._in_background(self.administer(DeleteTopic(tenant, name)))

    def _in_background(self, work: Coroutine[object, object, object]) -> None:
        """Do what nobody waits for; a thing that is gone already is fine."""

        async def run() -> None:
            try:
                await work
            except KernelError:
                return

        task: asyncio.Task[object] = self._loop.create_task(run())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _each_second(self) -> None:
        """Look after deadlines."""
        now = self.clock.monotonic_ms()
        self.leader_tasks.each_second()
        self._predecessors.look()
        self._retiring.look(now)
        self.sizing.look()
        self.tracing.look()
        self.publisher.fail_overdue_batches(now)
        self.remote_memory.each_second()
        self.tree.each_second()
        self.half_keeper.ask()
        self.unused_groups.look(now)
        self._second_timer = self._loop.call_later(1, self._each_second)

    async def _used(self, group: RaftGroup, topics: Collection[TopicId]) -> Used:
        """What a group has stored of topics so far, by its leader."""
        if self._peer_stores is None or self._store.serving(group) is not None:
            return used_in(self._store.replica(group).state, topics)
        return await self._peer_stores.used(group, topics)

    async def _unsettled_keys(self, group: RaftGroup, question: KeysQuestion) -> KeysAnswer:
        """What the leader of a sealed queue says of its keys."""
        if self._peer_stores is None or self._store.serving(group) is not None:
            return await keys_here(self._store, group, question)
        return await self._peer_stores.unsettled_keys(group, question)

    def _has_settled(self, holder: Holder) -> None:
        """Its dispatcher knows."""

    # --- Consuming --------------------------------------------------------------------------

    def _dispatcher(self, topic: TopicInfo, group: str, number: int) -> Dispatcher:
        return dispatcher_of(self._store, topic, group, number)

    def attach(self, spec: ConsumerSpec, sink: ConsumerSink) -> Consumer:
        """A new push consumer without credit."""
        self.unused_groups.used(spec.topic.id, spec.group)
        return self._consuming.attach(spec, cast("LocalSession", spec.session), sink)

    async def attached(self, consumer: Consumer) -> None:
        """`attach` has asked the leader already."""

    def _follow(self, before: TopicInfo, after: TopicInfo) -> None:
        """A topic has other queues: so have its consumers."""
        self._consuming.follow(list(self.sessions.open_now.values()), before, after)

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
        if self.trace.modes:
            self.trace.settled(holder, how, offsets, reason)
        self._consuming.settle(holder, how, offsets, reason, sink, tag)

    def acknowledge(self, acks: Mapping[Consumer, list[int]]) -> None:
        """Ack what many consumers hold (hot)."""
        held = cast("Mapping[DispatchedConsumer, list[int]]", acks)
        if self.trace.modes:
            self.trace.acknowledged(held.items())
        self._consuming.acknowledge(held)

    def used(self, topic: TopicId, group: str) -> None:
        """Somebody pulls, or tries to."""
        self.leader_tasks.used(topic, group)

    async def receive(self, spec: ReceiveSpec) -> Received:
        """Pull messages (see `client.ReceiveSpec`)."""
        self.used(spec.topic.id, spec.group)
        received = await self._receiver.receive(spec)
        if self.trace.modes:
            self.trace.received(spec, received)
        return received

    # --- Looking ----------------------------------------------------------------------------

    async def statistics(self, topic: TopicInfo, group: str) -> TopicStatistics:
        """Figures of a topic and group: those of leaders in this process take no turn."""
        each = [await self.leader_of(ref.group).figures(ref.id, group) for ref in topic.queues]
        return summed(each)

    # --- Administration ---------------------------------------------------------------------

    async def administer(self, change: Administration) -> object:
        """Make a change, here or at the leader that decides it."""
        peer_stores, group = self._peer_stores, self.remote_memory.lives_in(change)
        if group is not None:
            return await self.remote_memory.administer(group, change)
        if peer_stores is None or self.administrator.is_transient(change):
            return await self._administer(change, Asked())
        if self._store.serving(self.administrator.decides(change)) is None:
            return await peer_stores.administer(change)
        asked = Asked(peer_stores.next_identity())
        try:
            result = await self._administer(change, asked)
        except KernelError as error:
            if error.code not in AGAIN:
                raise
            return await peer_stores.administer(change, asked.identity)
        await peer_stores.reached(asked.touched)
        return result

    async def administer_for(
        self, identity: Identity, change: Administration
    ) -> tuple[object, Touched]:
        """Make a change of what is durable that another process asks for, once under its identity;
        what it comes to, KernelError included, and indexes of groups led elsewhere at which
        look-ups show it. Raises KernelError of a code in ASK_AGAIN.
        """
        asked = Asked(identity)
        if self.administrator.is_transient(change) or self.remote_memory.keeps(change):
            return KernelError(Code.LOCKED, "it lives in the memory of another process"), {}
        try:
            return await self._administer(change, asked), asked.touched
        except KernelError as error:
            if error.code is Code.UNAVAILABLE:
                raise KernelError(Code.TIMEOUT, error.message) from None
            if error.code in ASK_AGAIN:
                raise
            return error, asked.touched

    async def _administer(self, change: Administration, asked: Asked) -> object:
        if not isinstance(change, StartMove | CancelMove):
            return await self.administrator.administer(change, asked)
        await self.administrator.may_change(change.tenant, name_of(change))
        if isinstance(change, StartMove):
            result: object = await self.moves.start(change, asked.identity)
        else:
            result = await self.moves.cancel(change)
        if self._peer_stores is not None and self._store.serving(METADATA_GROUP) is None:
            asked.touched[METADATA_GROUP] = await self._peer_stores.defined(METADATA_GROUP)
        return result

    async def clear_here(self, group: RaftGroup, gone: Gone) -> Touched:
        """Remove a group's routes to what another store's leader has deleted."""
        return await self.administrator.clear_here(group, gone)

    # --- node.Listener ----------------------------------------------------------------------

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """A definition changed."""
        owner = topic.options.owner
        if removed:
            self.topology.remove_topic(topic)
            self.leader_tasks.unused_topics.remove(topic)
            if owner is not None:
                self._owned.get(owner, {}).pop((topic.tenant, topic.name), None)
            return
        self.topology.put_topic(topic)
        self.dead_letters.topic_appeared(topic.tenant, topic.name)
        self.leader_tasks.unused_topics.put(topic, self.clock.monotonic_ms())
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
        self.leader_tasks.left(queue)

    def tree_changed(self, replica: Replica, event: TreeEvent) -> None:
        """Something of the topic tree changed."""
        self.tree.changed(replica, event)

    def leads(self, replica: Replica) -> None:
        """A group is served here from now on."""
        self.dead_letters.forget(replica.group)
        self.outbox_grew(replica)
        self.tree.leads(replica)
        if self.leader_tasks.may_begin:
            self.administrator.hold(replica.group)
        self.leader_tasks.leads(replica.group)
        self.tracing.leads(replica)

    def follows(self, replica: Replica) -> None:
        """A group is not served here any more."""
        self.dead_letters.forget(replica.group)
        self.leader_tasks.follows(replica.group)
        self.tracing.follows(replica)
        self.moves.follows(replica.group)
        self.administrator.release(replica.group)

    def replaced(self, replica: Replica) -> None:
        """A snapshot from another store has taken the place of a group's state."""
        for topic in list(self.topology.topics.everything()):
            if home_of(topic.id) == replica.group and topic.id not in replica.state.topics:
                self.topic_changed(topic, removed=True)
        self._learn(replica)

    def outbox_grew(self, replica: Replica) -> None:
        """There are dead letters to send."""
        self.dead_letters.outbox_grew(replica)

    async def raise_level(self, level: int) -> int:
        """Turn on the features of the log up to a level, which every process that belongs here must
        understand. Group 0, which is led here, decides; the other groups follow as soon as they
        can (`LevelFollower`). What is on in group 0 then. Raises KernelError.
        """
        change = commands.RaiseLevel(level)
        now = await propose_to(self._store.leader(METADATA_GROUP), change, NO_IDENTITY)
        assert isinstance(now, int)
        self.leader_tasks.level_follower.look()
        return now

    async def raise_level_everywhere(self, level: int) -> None:
        """The same of a store that leads all there is: every group has it when this returns."""
        change = commands.RaiseLevel(await self.raise_level(level))
        leaders = map(self._store.leader, self._store.data_groups)
        await asyncio.gather(*(propose_to(each, change, NO_IDENTITY) for each in leaders))

    async def put_records(self, changes: Sequence[PutRecord]) -> None:
        """Change several metadata records, at the store that leads group 0: with REGISTER on all of
        them or none, before one by one. Raises KernelError: ALREADY_EXISTS (one has not the version
        expected).
        """
        made = tuple(commands.PutRecord(each.key, each.value, each.expected) for each in changes)
        leader = self._store.leader(METADATA_GROUP)
        if self._store.feature_level >= REGISTER and len(made) > 1:
            await propose_to(leader, commands.PutRecords(made), NO_IDENTITY)
            return
        for each in made:
            await propose_to(leader, each, NO_IDENTITY)

    # --- Metadata ---------------------------------------------------------------------------

    def records(self, prefix: str) -> Mapping[str, tuple[int, bytes]]:
        """(version, value) of the metadata records whose key begins so."""
        records = self._store.replica(METADATA_GROUP).state.records
        return {key: each for key, each in records.items() if key.startswith(prefix)}

    def watch_records(self, action: RecordAction) -> None:
        """Have every change of a metadata record told to `action`."""
        self._watchers.append(action)

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """A metadata record changed."""
        for action in self._watchers:
            action(key, record)


def _is_client(client: LocalClient) -> Client:
    """Type check only: LocalClient is a Client."""
    return client
