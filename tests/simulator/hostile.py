"""A kernel client with a network between it and the store, as unpleasant as a network may be.

`HostileClient` stands before a `LocalClient` and behind the API of `kernel.client`:

* Every call and every reply passes through bytes. What an adapter holds is a copy; what it hands
  over must be plain data.
* Answers and deliveries come 0 to 50 ms late: in order within a Raft group or a consumer, in any
  order between them.
* One command in a hundred finds that the leader has moved (NOT_LEADER), and one in a hundred loses
  its answer (UNKNOWN_OUTCOME), executed or not; all that is behind it on the same connection fails
  with it. The client's own courier sends them again; adapters hear of neither.
* Push streams are reset: the consumer at the store is replaced by another one under the adapter's
  hands, with the leases of the old one still good and its credit carried over.
* Nothing is known of a name before it is loaded.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, cast

import msgspec

from kernel.client import (
    Administration,
    Client,
    Consumer,
    ConsumerSink,
    ConsumerSpec,
    DeleteTopic,
    Destinations,
    LeaseChange,
    LeaseVerb,
    PublishBatch,
    PublishSink,
    PutRouter,
    PutTopic,
    Received,
    ReceiveSpec,
    Session,
    Settlement,
    SettleSink,
)
from kernel.courier import Courier
from kernel.errors import KernelError, NotLoaded
from kernel.local_client import LocalClient
from kernel.model import QueueRef, Reason, RouterInfo, TopicInfo, TopicStatistics
from kernel.ports import Clock
from kernel.publish import Batch
from tests.simulator.hostile_consumer import (
    HostileConsumer,
    HostileHolder,
    Rows,
    Settling,
    owner_of,
)
from tests.simulator.hostile_link import (
    HostileLink,
    Late,
    error_through_bytes,
    errors_through_bytes,
    through_bytes,
)

RESET_S = (0.2, 1.0)
"""A push stream lives so long, at least and at most, before it is reset."""


class HostileSession:
    """`client.Session` by its number."""

    def __init__(self, inner: Session) -> None:
        self.inner = inner
        self.id = inner.id
        self.epoch = inner.epoch
        self.origin = inner.origin
        self.consumers: dict[HostileConsumer, None] = {}

    def close(self) -> None:
        for consumer in list(self.consumers):
            consumer.forget()
        self.inner.close()


class HostileBatch(Batch):
    """A batch whose messages and failures are copies."""

    def add(self, to: Destinations, parts: Sequence[bytes], size: int) -> None:
        copies = [bytes(bytearray(part)) for part in parts]
        assert sum(map(len, copies)) == size
        super().add(to, copies, size)


class _Answers:
    """`client.PublishSink` that hands on copies of errors."""

    def __init__(self, sink: PublishSink) -> None:
        self._sink = sink

    def published(self, batch: PublishBatch) -> None:
        cast("Batch", batch).failures = errors_through_bytes(batch.failures)
        self._sink.published(batch)


class HostileClient:
    """See the module's head. What is not named here goes straight to the local client."""

    def __init__(self, local: LocalClient, clock: Clock, seed: int) -> None:
        loop = asyncio.get_running_loop()
        self.local = local
        self._chance = random.Random(seed)
        self.late = Late(loop, self._chance)
        self.link = HostileLink(self.late, self._chance)
        self.courier = Courier(self.link, clock, loop)
        local.send = self.courier.send
        self._loaded: set[tuple[str, str, str]] = set()
        self._copies: dict[tuple[str, str, str], tuple[object, Any]] = {}
        self.live: dict[HostileConsumer, None] = {}
        self.resets = 0
        self._timer = loop.call_later(RESET_S[0], self._reset_some)
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self.local, name)

    def _reset_some(self) -> None:
        for consumer in list(self.live):
            if self._chance.random() < 0.5:
                self.resets += 1
                consumer.reset()
        self._timer = self._loop.call_later(self._chance.uniform(*RESET_S), self._reset_some)

    # --- Look-ups ---------------------------------------------------------------------------

    def _copy(self, key: tuple[str, str, str], found: Any) -> Any:
        """A copy of a definition, the same one until it changes."""
        if found is None:
            return None
        known = self._copies.get(key)
        if known is None or known[0] is not found:
            known = self._copies[key] = (found, through_bytes(found))
        return known[1]

    def _check_loaded(self, kind: str, tenant: str, name: str) -> None:
        if (kind, tenant, name) not in self._loaded:
            raise NotLoaded(name)

    async def load(self, tenant: str, *, topics: Sequence[str], routers: Sequence[str]) -> None:
        await self.late.pause()
        await self.local.load(tenant, topics=topics, routers=routers)
        self._loaded.update(("topic", tenant, name) for name in topics)
        self._loaded.update(("router", tenant, name) for name in routers)

    def topic(self, tenant: str, name: str) -> TopicInfo | None:
        self._check_loaded("topic", tenant, name)
        found = self.local.topic(tenant, name)
        return cast("TopicInfo | None", self._copy(("topic", tenant, name), found))

    def topics(self, tenant: str) -> Sequence[TopicInfo]:
        return [
            cast("TopicInfo", self._copy(("topic", tenant, each.name), each))
            for each in self.local.topics(tenant)
        ]

    def router(self, tenant: str, name: str) -> RouterInfo | None:
        self._check_loaded("router", tenant, name)
        found = self.local.router(tenant, name)
        return None if found is None else cast("RouterInfo", through_bytes(found))

    def to_router(
        self, tenant: str, router: str, key: str, attributes: Mapping[str, object] | None = None
    ) -> Destinations:
        self._check_loaded("router", tenant, router)
        return self.local.to_router(tenant, router, key, attributes)

    def queue_of(self, topic: TopicInfo, number: int) -> QueueRef:
        return cast("QueueRef", through_bytes(self.local.queue_of(topic, number)))

    def statistics(self, topic: TopicInfo, group: str) -> TopicStatistics:
        return self.local.statistics(topic, group)

    # --- Sessions and messages --------------------------------------------------------------

    def open_session(self, name: str, origin: int = 0) -> Session:
        return HostileSession(self.local.open_session(name, origin))

    def batch(self, session: Session, sink: PublishSink) -> PublishBatch:
        assert isinstance(session, HostileSession)
        return HostileBatch(self.local, _Answers(sink), session.origin)

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
        groups = self._holders(consumer, through_bytes(list(offsets)))
        answer = Settling(self.late, ("settled", consumer), sink, len(groups)) if sink else None
        for inner, some in groups:
            self.local.settle(inner, how, some, reason=reason, sink=answer, tag=tag)

    def acknowledge(self, acks: Mapping[Consumer, list[int]]) -> None:
        for consumer, offsets in acks.items():
            self.settle(consumer, Settlement.ACK, offsets)

    def _holders(self, consumer: Consumer, offsets: list[int]) -> list[tuple[Consumer, list[int]]]:
        """Offsets by the consumer of the store that holds them."""
        if isinstance(consumer, HostileHolder):
            return [(consumer.inner, offsets)]
        owner, queue = owner_of(consumer)
        found: dict[int, tuple[Consumer, list[int]]] = {}
        for offset in offsets:
            inner = owner.holders.pop((queue, offset), None) or owner.inner_of(queue)
            found.setdefault(id(inner), (inner, []))[1].append(offset)
        return list(found.values()) or [(owner.inner_of(queue), [])]

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
        copies = [
            LeaseChange(bytes(bytearray(each.token)), each.verb, each.delay_ms, each.reason)
            for each in changes
        ]
        try:
            results = await self.local.settle_leases(through_bytes(topic), group, copies, origin)
        except KernelError as error:
            raise error_through_bytes(error) from None
        await self.late.pause()
        return [error_through_bytes(each) if each is not None else None for each in results]

    # --- Administration ---------------------------------------------------------------------

    async def administer(self, change: Administration) -> object:
        copy = self._change_through_bytes(change)
        try:
            result = await self.local.administer(copy)
        except KernelError as error:
            raise error_through_bytes(error) from None
        finally:
            if isinstance(change, PutTopic):
                self._loaded.add(("topic", change.tenant, change.name))
            elif isinstance(change, PutRouter):
                self._loaded.add(("router", change.tenant, change.name))
        if isinstance(change, DeleteTopic):
            self._copies.pop(("topic", change.tenant, change.name), None)
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
