"""What every kernel client does alike, wherever leaders are: it has sessions, sends what has an
identity to whoever leads, and asks leaders for figures.

`LocalClient` finds leaders in the store of its own process, `ClusterClient` in others.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from ..api.atomic import Transaction
from ..api.client import (
    Consumer,
    LeaseChange,
    PublishBatch,
    PublishSink,
    Session,
    Settlement,
    SettleSink,
)
from ..api.model import MessageStanding, Reason, TopicInfo, TopicStatistics
from ..api.statistics import summed
from ..api.tracing import ConnectedUser
from ..broker.applying.offsets import RECALLED, RECALLED_MAX, TOO_MANY
from ..broker.log_commands import commands
from ..broker.tracing import TraceBuffer
from ..common.errors import Code, KernelError
from ..common.fairness import WriteRounds
from ..common.ids import UUID_VARIANT, UUID_VERSION_BITS, Offset, RaftGroup
from ..common.ports import Clock, Random
from ..requests.client_trace import ClientTrace
from ..requests.leader import Done, Holder, Identity, Leader
from ..requests.lease_changes import LeaseChanges
from ..requests.proposer import Proposer
from ..requests.publish import ProducerBatch
from ..requests.publisher import Publisher
from ..requests.request_pipeline import Attempt
from ..requests.session import LocalSession
from ..requests.sessions import Sessions
from ..routing.lookups import Lookups
from ..routing.topology import Topology
from ..store.transient import TransientGroup
from ..transactions.cross_group import CrossGroupTransaction
from ..transactions.transactor import Transactor


class BaseClient(Lookups, ABC):
    """The common half of `client.Client`."""

    def __init__(
        self, topology: Topology, transient: TransientGroup, clock: Clock, random: Random
    ) -> None:
        super().__init__(topology)
        self.clock = clock
        self.random = random
        self._loop = asyncio.get_running_loop()
        self.identity = random.bits(63) | 1
        """Number of this process, by which leaders know it."""
        self.sessions = Sessions(random.bits(31), self._session_ended)
        self.outbox_client = random.bits(63) | 1
        self.uid_high = random.bits(48) << 16 | UUID_VERSION_BITS | random.bits(12)
        self.next_uid = UUID_VARIANT
        self._sequence = 0
        self.trace = ClientTrace(TraceBuffer(), clock.wall_ms)
        self.publisher = Publisher(self, transient.log, clock, self._loop, self.trace)
        self._scheduler = transient.scheduler
        topology.resized = self._topic_resized
        self.proposer = Proposer(self.next_identity, self.send_to)
        self.leases = LeaseChanges(self.proposer)
        self._transactor = Transactor(
            self.proposer,
            self.publisher.refusal,
            CrossGroupTransaction(self.submit, self.settle),
            self.topic,
            self._has_settled,
            self.trace,
        )

    @property
    @abstractmethod
    def accepting(self) -> bool:
        """Whether there is room for new messages."""

    @property
    def rounds(self) -> WriteRounds:
        """What was published and is not answered, commit by commit."""
        return self.publisher.rounds

    def note_active(self, tenant: str) -> None:
        """See `client.Client`."""
        self._scheduler.alone = tenant

    def _topic_resized(self, before: TopicInfo | None, after: TopicInfo | None) -> None:
        """A topic that was resized is known, has changed or is gone."""
        self.publisher.topic_changed(before, after)
        if before is not None and after is not None and before.queues != after.queues:
            self._loop.call_soon(self._follow, before, after)

    @abstractmethod
    def _follow(self, before: TopicInfo, after: TopicInfo) -> None:
        """A topic has other queues: so have its consumers."""

    # --- Sessions ---------------------------------------------------------------------------

    @property
    def is_tracing(self) -> bool:
        """Whether any topic is traced."""
        return bool(self.trace.modes)

    def open_session(self, name: str, origin: int = 0, by: ConnectedUser | None = None) -> Session:
        """A new session."""
        return self.sessions.open(name, origin, by)

    @abstractmethod
    def _session_ended(self, session: LocalSession) -> None:
        """Return its leases, delete what it owns."""

    # --- Ways to leaders --------------------------------------------------------------------

    def next_identity(self) -> Identity:
        """(client, epoch, sequence) of the next batch of this process."""
        self._sequence += 1
        return self.identity, 1, self._sequence

    @abstractmethod
    def send_to(self, group: RaftGroup, attempt: Attempt, done: Done) -> None:
        """Have a command with an identity carried out in a group, once (hot)."""

    @abstractmethod
    def leader_here(self, group: RaftGroup) -> Leader | None:
        """The leader of a group that cannot move away from this process."""

    @abstractmethod
    def leader_of(self, group: RaftGroup) -> Leader:
        """The leader of a group, wherever it is."""

    # --- Publishing -------------------------------------------------------------------------

    def batch(self, session: Session, sink: PublishSink) -> PublishBatch:
        """An empty batch."""
        return ProducerBatch(self, sink, session.origin, session.by)

    def submit(self, batch: PublishBatch) -> None:
        """Hand a batch over (hot)."""
        self.publisher.submit(batch)

    def when_level(self, done: Callable[[bool], None]) -> None:
        """All that is defined is told here as it comes."""
        done(True)

    def publish_dead_letter(self, topics: tuple[TopicInfo, ...], dead_letter: bytes) -> None:
        """Store a dead letter that no state holds, without an answer."""
        self.publisher.publish_dead_letter(topics, dead_letter)

    async def transact(self, transaction: Transaction) -> None:
        """Carry out publishes and settlements of one Raft group together, or none of them."""
        await self._transactor.transact(transaction)

    @abstractmethod
    def _has_settled(self, holder: Holder) -> None:
        """A consumer of this process holds less, since a transaction settled it."""

    # --- Settling ---------------------------------------------------------------------------

    @abstractmethod
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

    # --- Leases by token --------------------------------------------------------------------

    async def settle_leases(
        self, topic: TopicInfo, group: str, changes: Sequence[LeaseChange], origin: int = 0
    ) -> Sequence[KernelError | None]:
        """Change leases by token."""
        results = await self.leases.settle(topic, group, changes, origin)
        if self.trace.modes:
            self.trace.changed(group, changes, results)
        return results

    # --- Looking ----------------------------------------------------------------------------

    async def peek(
        self, topic: TopicInfo, number: int, offset: Offset, messages: int
    ) -> Sequence[tuple[Offset, bytes]]:
        """Messages from an offset on, without leasing them."""
        ref = topic.queue_numbered(number)
        return await self.leader_of(ref.group).peek(ref.id, offset, messages)

    def note_read(
        self, topic: TopicInfo, number: int, offsets: Sequence[int], group: str, by: ConnectedUser
    ) -> None:
        """Somebody was shown messages that came by `peek`."""
        if self.trace.modes:
            self.trace.read(topic.queue_numbered(number).id, group, by, offsets)

    async def span(self, topic: TopicInfo, number: int) -> tuple[int, int]:
        """Offsets that a queue has."""
        ref = topic.queue_numbered(number)
        return await self.leader_of(ref.group).span(ref.id)

    async def offset_since(self, topic: TopicInfo, number: int, time_ms: int) -> Offset:
        """First offset of a queue that was stored at or after a time."""
        ref = topic.queue_numbered(number)
        return await self.leader_of(ref.group).offset_since(ref.id, time_ms)

    async def position(self, topic: TopicInfo, number: int, group: str) -> Offset:
        """How far a group has come in one queue."""
        ref = topic.queue_numbered(number)
        return Offset((await self.leader_of(ref.group).figures(ref.id, group)).position)

    async def standing(
        self, topic: TopicInfo, number: int, group: str, offset: Offset
    ) -> MessageStanding | None:
        """What has become of a message for a group."""
        ref = topic.queue_numbered(number)
        return (await self.leader_of(ref.group).figures(ref.id, group, offset)).message

    async def seek(self, topic: TopicInfo, number: int, group: str, offset: Offset) -> Offset:
        """Have a group go on from another offset of one queue."""
        ref = topic.queue_numbered(number)
        found = await self._change(ref.group, commands.Seek(ref.id, group, offset))
        assert isinstance(found, int)
        return Offset(found)

    async def recall(self, topic: TopicInfo, number: int, offset: Offset) -> bool:
        """Have nobody get a message that is not due."""
        ref = topic.queue_numbered(number)
        result = await self._change(ref.group, commands.Recall(ref.id, offset))
        if result == TOO_MANY:
            text = f"{RECALLED_MAX} recalled messages of this queue wait for their retention"
            raise KernelError(Code.LIMIT_EXCEEDED, text)
        return result == RECALLED

    async def _change(self, group: RaftGroup, change: commands.Control) -> object:
        identity = self.next_identity()
        return await self.proposer.outcome_in_time(
            group, lambda leader, heard: leader.propose(change, identity, heard)
        )

    async def statistics(self, topic: TopicInfo, group: str) -> TopicStatistics:
        """Figures of a topic and group."""
        each = [self.leader_of(ref.group).figures(ref.id, group) for ref in topic.queues]
        return summed(await asyncio.gather(*each))
