"""A kernel client with a network between it and the store, as unpleasant as a network may be.

`HostileClient` stands before a `LocalClient` and behind the API of `kernel.api.client`:

* Every call and every reply passes through bytes. What an adapter holds is a copy; what it hands
  over must be plain data.
* Answers and deliveries come 0 to 50 ms late: in order within a Raft group or a consumer, in any
  order between them.
* One command in a hundred finds that the leader has moved (NOT_LEADER), and one in a hundred loses
  its answer (UNKNOWN_OUTCOME), executed or not; all that is behind it on the same connection fails
  with it. The client's own request pipeline sends them again; adapters hear of neither.
* Push streams are reset, those of the tree's subscribers too: the consumer at the store is replaced
  by another one under the adapter's hands, with the leases of the old one still good and its credit
  carried over; what was on its way arrives, or is lost and delivered again.
* Nothing is known of a name before it is loaded, and of changes the gateway hears late
  (`hostile_topology`), of its own before it has their answer.

What it is kinder in than a network: `submit`, `settle`, `grant` and the end of a session reach the
store at once (only those of the tree come late); `attach` answers at once; `statistics` are exact;
live routes of the tree are known to the store at once.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

import msgspec

from kernel.api.atomic import ChangeLeases, Settle, Transaction
from kernel.api.client import (
    Administration,
    Client,
    Consumer,
    ConsumerSink,
    ConsumerSpec,
    Destinations,
    LeaseChange,
    LeaseVerb,
    PublishBatch,
    PublishSink,
    PutRouter,
    PutTopic,
    Received,
    ReceiveSpec,
    RecordAction,
    Session,
    Settlement,
    SettleSink,
)
from kernel.api.model import MessageStanding, Reason, RouterInfo, TopicInfo, TopicStatistics
from kernel.api.origins import Origins
from kernel.api.tracing import ConnectedUser
from kernel.common.errors import KernelError, NotLoaded
from kernel.common.fairness import WriteRounds
from kernel.common.ids import Offset
from kernel.common.ports import Clock
from kernel.in_process.local_client import LocalClient
from kernel.requests.publish import ProducerBatch
from kernel.requests.request_pipeline import RequestPipeline
from tests.simulator.hostile_consumer import (
    Holding,
    HostileConsumer,
    HostileHolder,
    HostileSession,
    Rows,
    Settling,
    Streamed,
)
from tests.simulator.hostile_halves import HostileHalves
from tests.simulator.hostile_link import (
    HostileLink,
    Late,
    error_through_bytes,
    errors_through_bytes,
    through_bytes,
)
from tests.simulator.hostile_topology import LateTopology
from tests.simulator.hostile_tree import HostileTree

RESET_S = (0.2, 1.0)
"""A push stream lives so long, at least and at most, before it is reset."""


_Answer = TypeVar("_Answer")


class HostileBatch(ProducerBatch):
    """A batch whose messages and failures are copies."""

    def add(self, to: Destinations, parts: Sequence[bytes], size: int, asks: object = None) -> None:
        copies = [bytes(bytearray(part)) for part in parts]
        assert sum(map(len, copies)) == size
        super().add(to, copies, size, asks)


class _Answers:
    """`client.PublishSink` that hands on copies of errors."""

    def __init__(self, sink: PublishSink) -> None:
        self._sink = sink

    def published(self, batch: PublishBatch) -> None:
        cast("ProducerBatch", batch).failures = errors_through_bytes(batch.failures)
        self._sink.published(batch)


def copies_of(changes: Sequence[LeaseChange]) -> list[LeaseChange]:
    """Changes of leases as they arrive."""
    return [replace(each, token=bytes(bytearray(each.token))) for each in changes]


class HostileClient:
    """See the module's head."""

    def __init__(self, local: LocalClient, clock: Clock, seed: int) -> None:
        loop = asyncio.get_running_loop()
        self.local = local
        self._chance = random.Random(seed)
        self.late = Late(loop, self._chance)
        self.link = HostileLink(self.late, self._chance, local.leader_of)
        self.request_pipeline = RequestPipeline(self.link, clock, loop)
        local.send = self.request_pipeline.send
        self._loaded: set[tuple[str, str, str]] = set()
        self.definitions = LateTopology(local, self.late)
        self.live: dict[Streamed, None] = {}
        self.resets = 0
        self.tree = HostileTree(self)
        self.halves = HostileHalves(local.halves, self.late)
        self._timer = loop.call_later(RESET_S[0], self._reset_some)
        self._loop = loop

    def happens(self, share: float) -> bool:
        return self._chance.random() < share

    def _reset_some(self) -> None:
        for consumer in list(self.live):
            if self.happens(0.5):
                self.resets += 1
                consumer.reset()
        self._timer = self._loop.call_later(self._chance.uniform(*RESET_S), self._reset_some)

    # --- What is cached ---------------------------------------------------------------------

    @property
    def topology_version(self) -> int:
        return self.definitions.version

    @property
    def origins(self) -> Origins:
        return self.local.origins

    @property
    def accepting(self) -> bool:
        return self.local.accepting

    @property
    def rounds(self) -> WriteRounds:
        return self.local.rounds

    def note_active(self, tenant: str) -> None:
        self.local.note_active(tenant)

    def records(self, prefix: str) -> Mapping[str, tuple[int, bytes]]:
        found = self.local.records(prefix)
        return {key: (version, bytes(bytearray(value))) for key, (version, value) in found.items()}

    def watch_records(self, action: RecordAction) -> None:
        def changed(key: str, record: tuple[int, bytes] | None) -> None:
            copy = through_bytes([key, record])
            self.late.call("records", lambda: action(*copy))

        self.local.watch_records(changed)

    # --- Look-ups ---------------------------------------------------------------------------

    def _check_loaded(self, kind: str, tenant: str, name: str) -> None:
        if (kind, tenant, name) not in self._loaded:
            raise NotLoaded(name)

    async def load(self, tenant: str, *, topics: Sequence[str], routers: Sequence[str]) -> None:
        await self.late.pause()
        await self.local.load(tenant, topics=topics, routers=routers)
        await self.definitions.heard()
        self._loaded.update(("topic", tenant, name) for name in topics)
        self._loaded.update(("router", tenant, name) for name in routers)

    def topic(self, tenant: str, name: str) -> TopicInfo | None:
        self._check_loaded("topic", tenant, name)
        return self.definitions.topics.get((tenant, name))

    def topics(self, tenant: str) -> Sequence[TopicInfo]:
        return [each for each in self.definitions.topics.values() if each.tenant == tenant]

    def router(self, tenant: str, name: str) -> RouterInfo | None:
        self._check_loaded("router", tenant, name)
        return self.definitions.router_info(tenant, name)

    def to_topic(self, topic: TopicInfo) -> Destinations:
        return self.definitions.to_topic(topic)

    def routers(self, tenant: str) -> Sequence[str]:
        return self.local.routers(tenant)

    def to_router(
        self, tenant: str, router: str, key: str, attributes: Mapping[str, object] | None = None
    ) -> Destinations:
        self._check_loaded("router", tenant, router)
        return self.definitions.find(tenant, router, key, attributes)

    async def statistics(self, topic: TopicInfo, group: str) -> TopicStatistics:
        await self.late.pause()
        return await self.local.statistics(topic, group)

    # --- Sessions and messages --------------------------------------------------------------

    @property
    def is_tracing(self) -> bool:
        return self.local.is_tracing

    def note_read(
        self, topic: TopicInfo, number: int, offsets: Sequence[int], group: str, by: ConnectedUser
    ) -> None:
        self.local.note_read(topic, number, offsets, group, by)

    def open_session(self, name: str, origin: int = 0, by: ConnectedUser | None = None) -> Session:
        return HostileSession(self.local.open_session(name, origin, by))

    def batch(self, session: Session, sink: PublishSink) -> PublishBatch:
        assert isinstance(session, HostileSession)
        return HostileBatch(self.local, _Answers(sink), session.origin)

    def submit(self, batch: PublishBatch) -> None:
        self.local.submit(batch)

    def inner_spec(self, spec: ConsumerSpec) -> ConsumerSpec:
        """The adapter's, as the store sees it."""
        session = cast("HostileSession | None", spec.session)
        inner = session.inner if session is not None else None
        # Acked when the adapter gets it, not when it is sent there.
        return replace(spec, session=inner, topic=through_bytes(spec.topic), auto_ack=False)

    def is_delicate(self, spec: ConsumerSpec) -> bool:
        """Whether the place of a consumer among others counts."""
        topic = self.local.topic(spec.topic.tenant, spec.topic.name)
        return topic is None or topic.groups[spec.group].single_active_consumer

    async def attached(self, consumer: Consumer) -> None:
        """`attach` has asked the leader already."""

    def attach(self, spec: ConsumerSpec, sink: ConsumerSink) -> Consumer:
        try:
            consumer = HostileConsumer(self, spec, sink)
        except KernelError as error:
            raise error_through_bytes(error) from None
        self.live[consumer] = None
        if spec.session is not None:
            cast("HostileSession", spec.session).consumers[consumer] = None
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
        how, reason = Settlement(how.value), Reason(reason.value)
        copies = through_bytes(list(offsets))
        holding = cast("Holding", consumer)
        groups = holding.holders(copies)
        holding.gave_up(copies)
        answer = Settling(self.late, ("settled", consumer), sink, len(groups)) if sink else None
        for inner, some in groups:
            self.local.settle(inner, how, some, reason=reason, sink=answer, tag=tag)

    def acknowledge(self, acks: Mapping[Consumer, list[int]]) -> None:
        for consumer, offsets in acks.items():
            self.settle(consumer, Settlement.ACK, offsets)

    async def receive(self, spec: ReceiveSpec) -> Received:
        await self.late.pause()
        session = cast("HostileSession | None", spec.session)
        inner = replace(
            spec,
            topic=through_bytes(spec.topic),
            session=session.inner if session is not None else None,
        )
        try:
            got = await self.local.receive(inner)
        except KernelError as error:
            raise error_through_bytes(error) from None
        if got.deliveries is None:
            return got
        try:
            await self.late.pause()
        except asyncio.CancelledError:
            self._return_unseen(spec, got)
            raise
        rows = Rows(got.deliveries)
        holder = HostileHolder(got.consumer) if got.consumer is not None else None
        return Received(rows, holder, through_bytes(list(got.tokens)), got.ready)

    def _return_unseen(self, spec: ReceiveSpec, got: Received) -> None:
        assert got.deliveries is not None
        if got.consumer is not None:
            self.local.settle(got.consumer, Settlement.RETURN, got.deliveries.offsets)
        else:
            changes = [LeaseChange(token, LeaseVerb.RETURN) for token in got.tokens]
            task = self._loop.create_task(
                cast("Any", self.local.settle_leases(spec.topic, spec.group, changes))
            )
            task.add_done_callback(lambda done: done.exception())

    async def settle_leases(
        self, topic: TopicInfo, group: str, changes: Sequence[LeaseChange], origin: int = 0
    ) -> Sequence[KernelError | None]:
        inner, copies = through_bytes(topic), copies_of(changes)
        try:
            results = await self.local.settle_leases(inner, group, copies, origin)
        except KernelError as error:
            raise error_through_bytes(error) from None
        await self.late.pause()
        return [error_through_bytes(each) if each is not None else None for each in results]

    async def span(self, topic: TopicInfo, number: int) -> tuple[int, int]:
        return await self.local.span(topic, number)

    async def position(self, topic: TopicInfo, number: int, group: str) -> Offset:
        return await self._asked(self.local.position(through_bytes(topic), number, group))

    async def seek(self, topic: TopicInfo, number: int, group: str, offset: Offset) -> Offset:
        return await self._asked(self.local.seek(through_bytes(topic), number, group, offset))

    async def recall(self, topic: TopicInfo, number: int, offset: Offset) -> bool:
        return await self._asked(self.local.recall(through_bytes(topic), number, offset))

    async def _asked(self, question: Awaitable[_Answer]) -> _Answer:
        """An answer that is late, and an error that comes as bytes."""
        await self.late.pause()
        try:
            found = await question
        except KernelError as error:
            raise error_through_bytes(error) from None
        await self.late.pause()
        return found

    async def standing(
        self, topic: TopicInfo, number: int, group: str, offset: Offset
    ) -> MessageStanding | None:
        return await self._asked(self.local.standing(through_bytes(topic), number, group, offset))

    async def offset_since(self, topic: TopicInfo, number: int, time_ms: int) -> Offset:
        await self.late.pause()
        try:
            found = await self.local.offset_since(through_bytes(topic), number, time_ms)
        except KernelError as error:
            raise error_through_bytes(error) from None
        await self.late.pause()
        return Offset(found)

    async def peek(
        self, topic: TopicInfo, number: int, offset: Offset, messages: int
    ) -> Sequence[tuple[Offset, bytes]]:
        await self.late.pause()
        try:
            found = await self.local.peek(through_bytes(topic), number, offset, messages)
        except KernelError as error:
            raise error_through_bytes(error) from None
        await self.late.pause()
        return [(Offset(at), slot) for at, slot in through_bytes([list(each) for each in found])]

    async def transact(self, transaction: Transaction) -> None:
        settlements = [
            Settle(inner, Settlement(each.how.value), offsets, Reason(each.reason.value))
            for each in transaction.settlements
            for inner, offsets in cast("Holding", each.consumer).holders(
                through_bytes(list(each.offsets))
            )
        ]
        changes = [
            ChangeLeases(through_bytes(each.topic), each.group, copies_of(each.changes))
            for each in transaction.changes
        ]
        await self.late.pause()
        try:
            inner = replace(transaction, settlements=settlements, changes=changes)
            await self.local.transact(inner)
        except KernelError as error:
            raise error_through_bytes(error) from None
        finally:
            await self.late.pause()
        for each in transaction.settlements:
            cast("Holding", each.consumer).gave_up(each.offsets)

    # --- Administration ---------------------------------------------------------------------

    async def administer(self, change: Administration) -> object:
        copy = self._change_through_bytes(change)
        try:
            result = await self.local.administer(copy)
        except KernelError as error:
            raise error_through_bytes(error) from None
        finally:
            await self.definitions.heard()
            if isinstance(change, PutTopic):
                self._loaded.add(("topic", change.tenant, change.name))
            elif isinstance(change, PutRouter):
                self._loaded.add(("router", change.tenant, change.name))
        if isinstance(result, TopicInfo):
            # The one that is found by name from now on, unless it has changed again.
            known = self.definitions.topics.get((result.tenant, result.name))
            return known if known == result else through_bytes(result)
        return through_bytes(result) if isinstance(result, msgspec.Struct) else result

    @staticmethod
    def _change_through_bytes(change: Administration) -> Administration:
        copies: dict[str, Any] = {}
        for each in fields(change):
            value = getattr(change, each.name)
            if isinstance(value, HostileSession):
                value = value.inner
            elif isinstance(value, Mapping):
                value = {key: through_bytes(one) for key, one in value.items()}
            elif value is not None:
                value = through_bytes(value)
            copies[each.name] = value
        return type(change)(**copies)


def hostile_client(local: LocalClient, clock: Clock, seed: int | None) -> Client:
    """A hostile client of that seed; without one the local client itself, unless WEIR_HOSTILE in
    the environment has a seed: so a whole suite of an adapter is run on a bad network.
    """
    if seed is None:
        wanted = os.environ.get("WEIR_HOSTILE")
        if not wanted:
            return local
        seed = int(wanted)
    return HostileClient(local, clock, seed)


def _is_client(client: HostileClient) -> Client:
    """Type check only: what adapters use of a client is there."""
    return client
