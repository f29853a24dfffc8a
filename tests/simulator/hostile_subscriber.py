"""Subscribers of the tree behind the hostile network, and the streams that their consumers are.

What concerns one subscriber's name goes to one Raft group over one connection: calls and answers
come late, but in order. Its deliveries come late and in order too, over streams that are reset: the
store's consumer is replaced by another one, whose credit is what the adapter has left. What was on
its way then either still comes or never does, and is delivered again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kernel.api.client import Consumer, ConsumerSink, Deliveries, Session, Settlement
from kernel.api.tree import Subscriber, SubscriberConsumer, Subscription
from kernel.common.errors import KernelError
from kernel.common.ids import QueueId
from tests.simulator.hostile_consumer import Host, HostileSession, Leases, Rows
from tests.simulator.hostile_link import error_through_bytes, through_bytes

if TYPE_CHECKING:
    from kernel.broker.delivery.consumers import DispatchedConsumer

Name = tuple[str, str]
"""Tenant and name of a subscriber."""


def way_to(name: Name) -> object:
    """The lane of what is asked for a subscriber."""
    return ("to subscriber", name)


def way_from(name: Name) -> object:
    """The lane of what its adapter hears."""
    return ("from subscriber", name)


def copy_of(subscription: Subscription) -> Subscription:
    """A subscription as it arrives."""
    pattern, share = through_bytes([subscription.pattern, subscription.share])
    return Subscription(pattern, share)


def _told(
    results: Mapping[Subscription, bool | KernelError],
) -> dict[Subscription, bool | KernelError]:
    return {
        copy_of(each): error_through_bytes(result) if isinstance(result, KernelError) else result
        for each, result in results.items()
    }


class HostileSubscriber:
    """`tree.Subscriber`."""

    def __init__(self, client: Host, tenant: str, inner: Subscriber) -> None:
        self._client = client
        self.inner = inner
        self.name, self.durable, self.resumed, self.number, self.epoch = through_bytes(
            [inner.name, inner.durable, inner.resumed, inner.number, inner.epoch]
        )
        self.key = (tenant, self.name)
        self.notes: Mapping[bytes, bytes] = through_bytes(dict(inner.notes))
        self.subscriptions = {
            copy_of(each): through_bytes(options) for each, options in inner.subscriptions.items()
        }

    async def subscribe(self, subscription: Subscription, options: bytes) -> bool:
        late = self._client.late
        await late.turn(way_to(self.key))
        try:
            is_new = await self.inner.subscribe(copy_of(subscription), through_bytes(options))
        except KernelError as error:
            await late.pause()
            raise error_through_bytes(error) from None
        await self._client.definitions.heard()
        self.subscriptions[copy_of(subscription)] = through_bytes(options)
        return is_new

    async def subscribe_all(
        self, wanted: Mapping[Subscription, bytes]
    ) -> Mapping[Subscription, bool | KernelError]:
        late = self._client.late
        await late.turn(way_to(self.key))
        copies = {copy_of(each): through_bytes(options) for each, options in wanted.items()}
        try:
            told = await self.inner.subscribe_all(copies)
        except KernelError as error:
            await late.pause()
            raise error_through_bytes(error) from None
        await self._client.definitions.heard()
        for each, result in told.items():
            if not isinstance(result, KernelError):
                self.subscriptions[copy_of(each)] = copies[each]
        return _told(told)

    async def unsubscribe_all(
        self, subscriptions: Sequence[Subscription]
    ) -> Mapping[Subscription, bool | KernelError]:
        late = self._client.late
        await late.turn(way_to(self.key))
        try:
            told = await self.inner.unsubscribe_all([copy_of(each) for each in subscriptions])
        except KernelError as error:
            await late.pause()
            raise error_through_bytes(error) from None
        await self._client.definitions.heard()
        for each in subscriptions:
            self.subscriptions.pop(each, None)
        return _told(told)

    async def unsubscribe(self, subscription: Subscription) -> bool:
        late = self._client.late
        await late.turn(way_to(self.key))
        try:
            was_there = await self.inner.unsubscribe(copy_of(subscription))
        except KernelError as error:
            await late.pause()
            raise error_through_bytes(error) from None
        await self._client.definitions.heard()
        self.subscriptions.pop(subscription, None)
        return was_there

    def note(
        self,
        changes: Sequence[tuple[bytes, bytes | None]],
        done: Callable[[KernelError | None], None] | None = None,
    ) -> None:
        late = self._client.late
        copies = [(key, value) for key, value in through_bytes([list(each) for each in changes])]

        def answer(error: KernelError | None) -> None:
            copy = error_through_bytes(error) if error is not None else None
            if done is not None:
                late.call(way_from(self.key), lambda: done(copy))

        late.call(way_to(self.key), lambda: self.inner.note(copies, answer))

    def consumer(self, session: Session, sink: ConsumerSink) -> SubscriberConsumer:
        assert isinstance(session, HostileSession)
        consumer = HostileSubscriberConsumer(self._client, self, session, sink)
        self._client.live[consumer] = None
        session.consumers[consumer] = None
        return consumer

    async def close(
        self,
        *,
        will: bool,
        expiry_ms: int | None = -1,
        notes: Sequence[tuple[bytes, bytes | None]] = (),
    ) -> None:
        late = self._client.late
        copies = [(key, value) for key, value in through_bytes([list(each) for each in notes])]
        await late.turn(way_to(self.key))
        try:
            await self.inner.close(will=will, expiry_ms=expiry_ms, notes=copies)
        except KernelError as error:
            await late.pause()
            raise error_through_bytes(error) from None
        await late.pause()


class _Added:
    """A subscription from `add` to `remove`, whatever streams there are meanwhile."""

    def __init__(self, owner: HostileSubscriberConsumer, of: Subscription, tag: object) -> None:
        self.owner = owner
        self.subscription = of
        self.tag = tag
        self.over = False
        self._parts: dict[QueueId, HostilePart] = {}

    def part(self, queue: QueueId) -> HostilePart:
        """What the sink hears as the consumer of one reference list."""
        part = self._parts.get(queue)
        if part is None:
            part = self._parts[queue] = HostilePart(self)
        return part


class HostilePart:
    """`client.Consumer` of one reference list."""

    def __init__(self, added: _Added) -> None:
        self._owner = added.owner
        self.tag = added.tag
        self._leases = Leases()

    def grant(self, messages: int) -> None:
        self._owner.grant(messages)

    def cancel(self) -> None:
        raise AssertionError("a part is cancelled by `remove`")

    def holders(self, offsets: Sequence[int]) -> list[tuple[Consumer, list[int]]]:
        """Offsets by the consumer of the store that holds them."""
        return self._leases.holders(offsets, None)

    def took(self, inner: Consumer, offsets: Sequence[int]) -> None:
        """Messages have arrived."""
        self._leases.took(inner, offsets)

    def gave_up(self, offsets: Sequence[int]) -> None:
        """They are settled."""
        self._leases.gave_up(offsets)


class _Stream:
    """One life of a subscriber's consumer at the store. `ConsumerSink` of the local client."""

    def __init__(self, owner: HostileSubscriberConsumer, inner: Subscriber, to: Session) -> None:
        self._owner = owner
        self.inner = inner.consumer(to, self)

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        self._owner.on_the_way(consumer, Rows(deliveries))

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        self._owner.part_ended(consumer, error_through_bytes(error))


class HostileSubscriberConsumer:
    """`tree.SubscriberConsumer` of an adapter, and the streams under it."""

    def __init__(
        self,
        client: Host,
        subscriber: HostileSubscriber,
        session: HostileSession,
        sink: ConsumerSink,
    ) -> None:
        self._client = client
        self._subscriber = subscriber
        self._session = session
        self._sink = sink
        self._added: dict[Subscription, _Added] = {}
        self._credit = 0
        self._granting = 0
        """Credit on its way to the store."""
        self._way: deque[tuple[DispatchedConsumer, Rows]] = deque()
        self._over = False
        self._stream = _Stream(self, subscriber.inner, session.inner)

    # tree.SubscriberConsumer

    def add(self, subscription: Subscription, tag: object) -> None:
        if subscription not in self._added:
            added = _Added(self, copy_of(subscription), tag)
            self._added[added.subscription] = added
            self._ask(lambda: self._take_from(added))

    def remove(self, subscription: Subscription) -> None:
        added = self._added.pop(subscription, None)
        if added is not None:
            added.over = True
            self._ask(lambda: self._stream.inner.remove(added.subscription))

    def grant(self, messages: int) -> None:
        self._credit += messages
        self._granting += messages
        self._ask(lambda: self._granted(messages))

    def cancel(self) -> None:
        if not self._over:
            self.forget()
            self._stream.inner.cancel()

    # What is asked of the store

    def _ask(self, action: Callable[[], None]) -> None:
        def arrive() -> None:
            if not self._over:
                action()

        self._client.late.call(way_to(self._subscriber.key), arrive)

    def _take_from(self, added: _Added) -> None:
        if added.over:
            return
        try:
            self._stream.inner.add(added.subscription, added)
        except KernelError:
            return  # another connection has the subscriber, of which its sink hears by itself

    def _granted(self, messages: int) -> None:
        self._granting -= messages
        self._stream.inner.grant(messages)

    # The streams

    def forget(self) -> None:
        """Nothing more is delivered; what is on its way was never seen."""
        self._over = True
        self._client.live.pop(self, None)
        self._lose_what_is_on_its_way()

    def _lose_what_is_on_its_way(self) -> None:
        while self._way:
            inner, rows = self._way.popleft()
            self._client.local.settle(inner, Settlement.RETURN, rows.offsets)

    def reset(self) -> None:
        """A new stream with the credit that is left; the old one keeps the leases that arrived."""
        if self._over:
            return
        old = self._stream
        self._stream = _Stream(self, self._subscriber.inner, self._session.inner)
        old.inner.cancel()
        if self._client.happens(0.5):
            self._lose_what_is_on_its_way()
        for added in self._added.values():
            self._take_from(added)
        coming = sum(len(rows.offsets) for _, rows in self._way)
        self._stream.inner.grant(self._credit - self._granting - coming)

    def on_the_way(self, consumer: Consumer, rows: Rows) -> None:
        inner: DispatchedConsumer = consumer  # type: ignore[assignment]
        self._way.append((inner, rows))
        self._client.late.call(self, self._arrive)

    def _arrive(self) -> None:
        if self._over or not self._way:
            return
        inner, rows = self._way.popleft()
        added = inner.tag
        assert isinstance(added, _Added)
        rest = rows.split(0 if added.over else max(0, self._credit))
        if rest:  # the adapter has left the subscription, or taken credit back, meanwhile
            self._client.local.settle(inner, Settlement.RETURN, rest)
            self._stream.inner.grant(len(rest))
        if rows.offsets:
            self._credit -= len(rows.offsets)
            part = added.part(rows.queue)
            part.took(inner, rows.offsets)
            self._sink.deliver(part, rows)

    def part_ended(self, consumer: Consumer, error: KernelError) -> None:
        """The store has ended the consumer of one reference list."""
        inner: DispatchedConsumer = consumer  # type: ignore[assignment]
        added = inner.tag
        assert isinstance(added, _Added)
        part = added.part(inner.dispatcher.queue.id)

        def tell() -> None:
            if not self._over and not added.over:
                self._sink.consumer_ended(part, error)

        self._client.late.call(self, tell)
