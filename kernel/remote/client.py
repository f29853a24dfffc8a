"""The kernel client of a gateway that has no store: everything durable is done by leaders far away.

    batches, settlements by token      -> courier -> lane -> leader of the group   (done once)
    figures, peeks                     -> question        -> leader of the group
    volatile topics, live routes       in this process

Durability: whatever is answered comes from a leader's apply of an entry that a majority of the
group's voters has fdatasynced; what is volatile is answered from memory, in a later turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from ..broker.dispatcher import Dispatcher
from ..client import (
    Destinations,
    LeaseChange,
    PublishBatch,
    PublishSink,
    Received,
    ReceiveSpec,
    Session,
)
from ..courier import Attempt, Courier
from ..errors import Code, KernelError
from ..ids import (
    METADATA_GROUP,
    UUID_VARIANT,
    UUID_VERSION_BITS,
    VOLATILE_GROUP,
    Offset,
    RaftGroup,
)
from ..leader import Done, Identity, Leader
from ..lease_changes import LeaseChanges
from ..model import RouterInfo, TopicInfo, TopicStatistics
from ..origins import Origins
from ..ports import Clock, Random
from ..proposer import Proposer
from ..publish import Batch
from ..publisher import Publisher
from ..receiving import Receiver
from ..statistics import summed
from ..store.listener import Relay
from ..store.volatile import VolatileGroup
from ..topic_room import Room, Rooms
from ..topology import Topology
from .definitions import Definitions
from .leaders import RemoteLeaders
from .mirror import Hears, InTopology
from .pulls import FarPulls
from .room import GatewayRooms


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
        self._identity = random.bits(63) | 1
        self._sequence = 0
        self.uid_high = random.bits(48) << 16 | UUID_VERSION_BITS | random.bits(12)
        self.next_uid = UUID_VARIANT
        self.courier = Courier(leaders, clock, self._loop)
        self.proposer = Proposer(self.next_identity, self.send_to)
        self.relay = Relay()
        self.volatile = VolatileGroup(self._loop, clock, self.relay, self.origins)
        self.room: Rooms = GatewayRooms(Room(self._dispatcher, self._letter_refused))
        self.publisher = Publisher(self, self.volatile.log, clock, self._loop)
        self.definitions = Definitions(leaders, (METADATA_GROUP, *self.groups))
        self.definitions.hear(InTopology(self.topology))
        self._records = _Records()
        self.definitions.hear(self._records)
        leaders.add(self.definitions)
        self.leases = LeaseChanges(self.proposer)
        self.pulls = FarPulls(leaders, clock)
        self._receiver = Receiver(self._dispatcher, self._loop)

    async def start(self) -> None:
        """Learn what there is: return once everything that is defined is mirrored here."""
        await self.definitions.start()

    async def stop(self) -> None:
        """Close the connections; what is unanswered fails."""
        self.definitions.stop()
        await self.leaders.stop()

    @property
    def accepting(self) -> bool:
        """False while a store that leads a group has no room for new messages."""
        return self.definitions.accepting

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

    # --- Metadata ---------------------------------------------------------------------------

    def records(self, prefix: str) -> Mapping[str, tuple[int, bytes]]:
        """(version, value) of the metadata records whose key begins so."""
        records = self.definitions.mirror(METADATA_GROUP).records
        return {key: each for key, each in records.items() if key.startswith(prefix)}

    def watch_records(self, action: Callable[[str, bytes | None], None]) -> None:
        """Have every change of a metadata record told to `action`."""
        self._records.watchers.append(action)

    # --- Publishing -------------------------------------------------------------------------

    def batch(self, session: Session, sink: PublishSink) -> PublishBatch:
        """An empty batch."""
        return Batch(self, sink, session.origin)

    def submit(self, batch: PublishBatch) -> None:
        """Hand a batch over (hot)."""
        self.publisher.submit(batch)

    def _dispatcher(self, topic: TopicInfo, group: str, number: int) -> Dispatcher:
        return self.volatile.replica.dispatcher(topic.queues[number].id, group)

    def _letter_refused(self, topic: TopicInfo, letter: bytes) -> None:
        """A volatile topic without room wants a dead letter of a message."""
        raise KernelError(Code.UNAVAILABLE, f"topic {topic.name} has no dead letters here")

    # --- Pulling ----------------------------------------------------------------------------

    async def receive(self, spec: ReceiveSpec) -> Received:
        """Pull messages (see `client.ReceiveSpec`)."""
        if spec.topic.queues[0].group == VOLATILE_GROUP:
            return await self._receiver.receive(spec)
        return await self.pulls.receive(spec)

    async def settle_leases(
        self, topic: TopicInfo, group: str, changes: Sequence[LeaseChange], origin: int = 0
    ) -> Sequence[KernelError | None]:
        """Change leases by token."""
        return await self.leases.settle(topic, group, changes, origin)

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


class _Records(Hears):
    """Who watches metadata records."""

    def __init__(self) -> None:
        self.watchers: list[Callable[[str, bytes | None], None]] = []

    def record_changed(self, key: str, value: bytes | None) -> None:
        """Tell them."""
        for action in self.watchers:
            action(key, value)
