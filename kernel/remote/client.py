"""The kernel client of a gateway that has no store: everything durable is done by leaders far away.

    batches, settlements by token      -> courier -> lane -> leader of the group   (done once)
    figures, peeks                     -> question        -> leader of the group
    volatile topics, live routes       in this process

Durability: whatever is answered comes from a leader's apply of an entry that a majority of the
group's voters has fdatasynced; what is volatile is answered from memory, in a later turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ..broker.dispatcher import Dispatcher
from ..client import Administration, Destinations, PublishBatch, PublishSink, Session
from ..courier import Attempt, Courier
from ..errors import Code, KernelError
from ..ids import UUID_VARIANT, UUID_VERSION_BITS, VOLATILE_GROUP, Offset, RaftGroup, SessionId
from ..leader import Done, Identity, Leader
from ..model import RouterInfo, TopicInfo, TopicStatistics
from ..origins import Origins
from ..ports import Clock, Random
from ..proposer import Proposer
from ..publish import Batch
from ..publisher import Publisher
from ..session import LocalSession
from ..statistics import summed
from ..store.listener import Relay
from ..store.volatile import VolatileGroup
from ..topic_room import Room, Rooms
from ..topology import Topology
from .leaders import RemoteLeaders
from .local_definitions import LocalDefinitions
from .room import GatewayRooms
from .sessions import Sessions


class ClusterClient:
    """`client.Client` of a process without a store. Made by `connecting.connect`."""

    def __init__(
        self, leaders: RemoteLeaders, groups: Sequence[RaftGroup], clock: Clock, random: Random
    ) -> None:
        """`groups`: numbers of the cluster's data groups."""
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.leaders = leaders
        self.groups = list(groups)
        self.topology = Topology(self.groups)
        self.origins = Origins()
        self.accepting = True
        self._identity = random.bits(63) | 1
        self._sequence = 0
        self.outbox_client = random.bits(63) | 1
        self.uid_high = random.bits(48) << 16 | UUID_VERSION_BITS | random.bits(12)
        self.next_uid = UUID_VARIANT
        self.courier = Courier(leaders, clock, self._loop)
        self.proposer = Proposer(self.next_identity, self.send_to)
        self.relay = Relay()
        self.volatile = VolatileGroup(self._loop, clock, self.relay, self.origins)
        self.definitions = LocalDefinitions(
            self, self.volatile, self.topology, self.proposer, clock
        )
        self.relay.listener = self.definitions
        self.sessions = Sessions(random.bits(31), self._ended)
        self.room: Rooms = GatewayRooms(
            Room(self._dispatcher, self.definitions.dead_letters.refused)
        )
        self.publisher = Publisher(self, self.volatile.log, clock, self._loop)
        self._second_timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Learn what there is; the leaders are connected."""
        self._each_second()

    async def stop(self) -> None:
        """Close the connections; what is unanswered fails."""
        if self._second_timer is not None:
            self._second_timer.cancel()
        await self.definitions.stop()
        await self.leaders.stop()

    def _each_second(self) -> None:
        """Look after deadlines."""
        self._second_timer = self._loop.call_later(1, self._each_second)
        self.definitions.each_second()
        self.publisher.fail_late_batches(self._clock.monotonic_ms())

    # --- Sessions ---------------------------------------------------------------------------

    def open_session(self, name: str, origin: int = 0) -> Session:
        """A new session."""
        return self.sessions.open(name, origin)

    def has_session(self, ident: SessionId) -> bool:
        """Whether a session of this process is open."""
        return ident in self.sessions.open_now

    def _ended(self, session: LocalSession) -> None:
        """A session has ended: return its leases, delete what it owns."""
        self.definitions.end_session(session.id)

    # --- Ways to leaders --------------------------------------------------------------------

    def next_identity(self) -> Identity:
        """(client, epoch, sequence) of the next batch of this process."""
        self._sequence += 1
        return self._identity, 1, self._sequence

    def send_to(self, group: RaftGroup, attempt: Attempt, done: Done) -> None:
        """Have a command with an identity carried out in a group, once (hot)."""
        if group == VOLATILE_GROUP:
            attempt(self.volatile.leader, done)
        else:
            self.courier.send(group, attempt, done)

    def leader_here(self, group: RaftGroup) -> Leader | None:
        """The leader of a group that cannot move away from this process."""
        return self.volatile.leader if group == VOLATILE_GROUP else None

    def leader_of(self, group: RaftGroup) -> Leader:
        """The leader of a group, wherever it is."""
        return self.volatile.leader if group == VOLATILE_GROUP else self.leaders.leader(group)

    # --- Look-ups ---------------------------------------------------------------------------

    @property
    def topology_version(self) -> int:
        """Rises with every change of a definition known here."""
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
        """Every definition is here."""

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

    def submit(self, batch: PublishBatch) -> None:
        """Hand a batch over (hot)."""
        self.publisher.submit(batch)

    def _dispatcher(self, topic: TopicInfo, group: str, number: int) -> Dispatcher:
        return self.volatile.replica.dispatcher(topic.queues[number].id, group)

    def publish_letter(self, topics: tuple[TopicInfo, ...], letter: bytes) -> None:
        """Store a dead letter that no state holds, without an answer."""
        self.publisher.publish_letter(topics, letter)

    # --- Administration ---------------------------------------------------------------------

    async def administer(self, change: Administration) -> object:
        """Make a change."""
        if self.definitions.is_local(change):
            return await self.definitions.administer(change)
        raise KernelError(Code.UNAVAILABLE, "what is durable is changed at the stores")

    # --- Looking ----------------------------------------------------------------------------

    async def peek(
        self, topic: TopicInfo, number: int, offset: Offset, messages: int
    ) -> Sequence[tuple[Offset, bytes]]:
        """Messages from an offset on, without leasing them."""
        ref = topic.queues[number]
        return await self.leader_of(ref.group).peek(ref.id, offset, messages)

    async def statistics(self, topic: TopicInfo, group: str) -> TopicStatistics:
        """Figures of a topic and group."""
        each = [self.leader_of(ref.group).figures(ref.id, group) for ref in topic.queues]
        return summed(await asyncio.gather(*each))
