"""The kernel client of a gateway that has no store: everything durable is done by leaders far away.

    batches, settlements by token      -> request pipeline -> lane -> leader of the group   (done
    once) figures, peeks                     -> question        -> leader of the group
    transient topics, live routes       in this process

Durability: whatever is answered comes from a leader's apply of an entry that a majority of the
group's voters has fdatasynced; what is transient is answered from memory, in a later turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

from ..api.client import (
    Administration,
    Client,
    Consumer,
    ConsumerSink,
    ConsumerSpec,
    Received,
    ReceiveSpec,
    RecordAction,
    Settlement,
    SettleSink,
)
from ..api.model import Reason, TopicInfo
from ..api.origins import Origins
from ..broker.delivery.consumers import DispatchedConsumer
from ..broker.delivery.dispatcher import Dispatcher
from ..common.errors import Code, KernelError
from ..common.ids import (
    MEMORY_FIRST,
    METADATA_GROUP,
    TRANSIENT_GROUP,
    RaftGroup,
    SessionId,
    home_of,
)
from ..common.placement import home_groups
from ..common.ports import Clock, Random
from ..definitions.topic_records import TopicRecords
from ..definitions.topic_traces import PREFIX as TRACES
from ..definitions.topic_traces import decode as decode_traced
from ..definitions.topic_traces import modes_of
from ..in_process.base_client import BaseClient
from ..in_process.consuming import Consuming
from ..in_process.receiving import Receiver
from ..requests.client_trace import TakingConsumer
from ..requests.leader import Done, Holder, Leader
from ..requests.request_pipeline import Attempt, RequestPipeline
from ..requests.session import LocalSession
from ..routing.topology import Topology
from ..store.replicas.listener import Relay
from ..store.replicas.replica import Replica
from ..store.transient import TransientGroup
from ..transactions.half_message_client import HalfMessageClient
from .definitions.administering import Administering
from .definitions.definitions import Definitions
from .definitions.mirror import Hears, InTopology
from .leader_calls.leaders import RemoteLeaders
from .mesh.local_definitions import LocalDefinitions
from .mesh.meeting import MeetingPoint
from .mesh.mesh import Mesh
from .mesh.remote_memory import RemoteMemory
from .pulls.pulls import FarPulls
from .served_topics import Tasks
from .streams.parts import SpreadParts, StreamPart
from .streams.streams import Streams
from .transactions.halves import FarHalves
from .tree.tree import ClusterTree


class ClusterClient(BaseClient):
    """`client.Client` of a process without a store. Made by `connecting.connect`."""

    def __init__(
        self,
        leaders: RemoteLeaders,
        groups: Sequence[RaftGroup],
        clock: Clock,
        random: Random,
        meeting: MeetingPoint | None = None,
    ) -> None:
        """`groups`: numbers of the cluster's data groups; `meeting`: where other gateways can reach
        this one.
        """
        origins = Origins()
        relay: Relay[Replica] = Relay()
        transient = TransientGroup(asyncio.get_running_loop(), clock, relay, origins)
        homes = home_groups(groups)
        super().__init__(Topology(homes), transient, clock, random)
        self.leaders = leaders
        self.groups = list(groups)
        self.home_groups = homes
        self.origins, self.relay, self.transient = origins, relay, transient
        self.request_pipeline = RequestPipeline(leaders, clock, self._loop)
        self.local = LocalDefinitions(self, self.transient, self.topology, self.proposer, clock)
        self.relay.add(self.local)
        self.transient.topic_room.dead_letter = self.local.dead_letters.refused
        self.pulls = FarPulls(leaders, clock)
        self._receiver = Receiver(self._dispatcher, self._loop)
        self._consuming = Consuming(lambda _group: self.transient.replica, self.transient.dirty)
        self.streams = Streams(self._loop.call_soon, self.trace)
        leaders.add(self.streams)
        self.halves = HalfMessageClient(self.proposer, FarHalves(leaders), self.trace)
        self.tree = ClusterTree(self, leaders, self.proposer)
        leaders.add(self.tree)
        self.definitions = Definitions(leaders, (METADATA_GROUP, *self.groups))
        self.definitions.hear(InTopology(self.topology))
        self._records = _Records()
        self.definitions.hear(self._records)
        self._traced = TopicRecords(TRACES, decode_traced)
        self.watch_records(self._trace_changed)
        leaders.add(self.definitions)
        self.tasks = Tasks(self.streams.parts, leaders.produced)
        self.definitions.hear(self.tasks)
        administrator = random.bits(63) | 1
        self.administering = Administering(
            leaders, self.definitions.reached, homes, administrator, self._mirrored
        )
        self.mesh = Mesh(self, leaders, self.streams, clock, random, meeting)
        self.remote_memory: RemoteMemory = self.mesh.remote_memory
        self._second_timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Learn what there is: return once everything that is defined is mirrored here."""
        await self.definitions.start()
        self._each_second()

    async def stop(self) -> None:
        """Close the connections; what is unanswered fails."""
        if self._second_timer is not None:
            self._second_timer.cancel()
        self.definitions.stop()
        self.streams.stop()
        await self.tree.stop()
        await self.local.stop()
        await self.mesh.stop()
        await self.leaders.stop()

    @property
    def owner(self) -> int:
        """The number by which leaders know whose open subscribers are."""
        return self.identity

    def _each_second(self) -> None:
        """Look after deadlines."""
        self._second_timer = self._loop.call_later(1, self._each_second)
        self.local.each_second()
        self.mesh.each_second()
        self.publisher.fail_overdue_batches(self.clock.monotonic_ms())

    @property
    def accepting(self) -> bool:
        """False while a store that leads a group has no room for new messages."""
        return self.definitions.accepting

    # --- Sessions ---------------------------------------------------------------------------

    def has_session(self, ident: SessionId) -> bool:
        """Whether a session of this process is open."""
        return ident in self.sessions.open_now

    def _session_ended(self, session: LocalSession) -> None:
        """A session has ended: return its leases, delete what it owns."""
        self.streams.end_session(session.id)
        self._consuming.end_session(session)
        self.local.end_session(session.id)

    # --- Ways to leaders --------------------------------------------------------------------

    def send_to(self, group: RaftGroup, attempt: Attempt, done: Done) -> None:
        """Have a command with an identity carried out in a group, once (hot)."""
        leader = self.leader_here(group)
        if leader is not None:
            attempt(leader, done)
        else:
            self.request_pipeline.send(group, attempt, done)

    def leader_here(self, group: RaftGroup) -> Leader | None:
        """The leader of a group that cannot move away from this process."""
        if group >= MEMORY_FIRST:
            return self.leader_of(group)
        return None

    def leader_of(self, group: RaftGroup) -> Leader:
        """The leader of a group, wherever it is."""
        if group == TRANSIENT_GROUP:
            return self.transient.leader
        if group >= MEMORY_FIRST:
            return self.remote_memory.leader(group)
        return self.leaders.leader(group)

    # --- Metadata ---------------------------------------------------------------------------

    def records(self, prefix: str) -> Mapping[str, tuple[int, bytes]]:
        """(version, value) of the metadata records whose key begins so."""
        records = self.definitions.mirror(METADATA_GROUP).records
        return {key: each for key, each in records.items() if key.startswith(prefix)}

    def watch_records(self, action: RecordAction) -> None:
        """Have every change of a metadata record told to `action`."""
        self._records.watchers.append(action)

    def _trace_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """Learn which topics are traced."""
        if self._traced.changed(key, record):
            self.trace.modes = modes_of(self._traced.known.values())

    # --- Publishing -------------------------------------------------------------------------

    def _dispatcher(self, topic: TopicInfo, group: str, number: int) -> Dispatcher:
        return self.transient.replica.dispatcher(topic.queue_numbered(number).id, group)

    def _has_settled(self, holder: Holder) -> None:
        if isinstance(holder, StreamPart):
            self.streams.drop_if_over(holder)

    # --- Administration ---------------------------------------------------------------------

    def _mirrored(self, topic: TopicInfo) -> TopicInfo | None:
        """What the mirror has under a topic's name."""
        return self.definitions.mirror(home_of(topic.id)).topics.get((topic.tenant, topic.name))

    async def administer(self, change: Administration) -> object:
        """Make a change."""
        if self.local.is_local(change) or self.mesh.remote_memory.lives_in(change) is not None:
            return await self.mesh.administer(change)
        return await self.administering.administer(change)

    def _follow(self, before: TopicInfo, after: TopicInfo) -> None:
        """A topic has other queues: so have its consumers."""
        self.streams.follow(before, after)

    # --- Consuming --------------------------------------------------------------------------

    def attach(self, spec: ConsumerSpec, sink: ConsumerSink) -> Consumer:
        """A new push consumer without credit."""
        group = spec.topic.queues[0].group
        if group == TRANSIENT_GROUP:
            return self._consuming.attach(spec, cast("LocalSession", spec.session), sink)
        if group >= MEMORY_FIRST:
            self.remote_memory.check_consumer(group)
        return self.streams.attach(spec, sink)

    async def attached(self, consumer: Consumer) -> None:
        """Return once the leaders of its queues have taken in a new consumer."""
        if isinstance(consumer, StreamPart | SpreadParts):
            await self.streams.attached(consumer)

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
        if self.trace.modes:
            self.trace.settled(cast("TakingConsumer", consumer), how, offsets, reason)
        if isinstance(consumer, StreamPart):
            self.streams.settle(consumer, how, offsets, reason, sink, tag)
        else:
            holder = cast("DispatchedConsumer", consumer)
            self._consuming.settle(holder, how, offsets, reason, sink, tag)

    def acknowledge(self, acks: Mapping[Consumer, list[int]]) -> None:
        """Ack what many consumers hold (hot)."""
        if self.trace.modes:
            self.trace.acknowledged(cast("Mapping[TakingConsumer, list[int]]", acks).items())
        far = {each: acks[each] for each in acks if isinstance(each, StreamPart)}
        self.streams.acknowledge(far)
        if len(far) != len(acks):
            near = {each: acks[each] for each in acks if not isinstance(each, StreamPart)}
            self._consuming.acknowledge(cast("Mapping[DispatchedConsumer, list[int]]", near))

    # --- Pulling ----------------------------------------------------------------------------

    async def receive(self, spec: ReceiveSpec) -> Received:
        """Pull messages (see `client.ReceiveSpec`)."""
        group = spec.topic.queues[0].group
        if group == TRANSIENT_GROUP:
            self.local.used(spec.topic.id)
            return await self._receiver.receive(spec)
        if group >= MEMORY_FIRST:
            self.remote_memory.check_consumer(group)
            if spec.session is None:
                message = "timed leases of a topic in the memory of another gateway"
                raise KernelError(Code.NOT_ALLOWED, message)
        else:
            self.tasks.pulled(spec)
        pulls = self.streams.pulls if spec.session is not None else self.pulls
        received = await pulls.receive(spec)
        if self.trace.modes:
            self.trace.received(spec, received)
        return received


class _Records(Hears):
    """Who watches metadata records."""

    def __init__(self) -> None:
        self.watchers: list[RecordAction] = []

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """Tell them."""
        for action in self.watchers:
            action(key, record)


def _is_client(client: ClusterClient) -> Client:
    """Type check only: ClusterClient is a Client."""
    return client
