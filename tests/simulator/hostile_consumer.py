"""Push consumers of the hostile client: an adapter's consumer over streams that are reset."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from kernel.broker.consumers import SpreadConsumer
from kernel.client import (
    Consumer,
    ConsumerSink,
    ConsumerSpec,
    Deliveries,
    Settlement,
    SettleSink,
)
from kernel.errors import KernelError
from kernel.ids import QueueId
from kernel.local_client import LocalClient
from tests.simulator.hostile_link import (
    Late,
    error_through_bytes,
    errors_through_bytes,
    through_bytes,
)


class Host(Protocol):
    """What a consumer asks of its client."""

    local: LocalClient
    late: Late
    live: dict[HostileConsumer, None]

    def inner_spec(self, spec: ConsumerSpec) -> ConsumerSpec:
        """The adapter's, as the store sees it."""

    def is_delicate(self, spec: ConsumerSpec) -> bool:
        """Whether the place of a consumer among others counts."""


class Rows:
    """`client.Deliveries` as they arrive."""

    def __init__(self, deliveries: Deliveries) -> None:
        attempts = deliveries.attempts
        columns = [
            int(deliveries.queue),
            list(deliveries.offsets),
            list(deliveries.slots),
            list(attempts) if attempts is not None else None,
        ]
        queue, offsets, slots, counts = through_bytes(columns)
        self.queue = QueueId(queue)
        self.offsets: list[int] = offsets
        self.slots: list[bytes] = slots
        self.attempts: list[int] | None = counts

    def split(self, count: int) -> list[int]:
        """Keep the first `count`; the offsets of the others."""
        rest = self.offsets[count:]
        self.offsets, self.slots = self.offsets[:count], self.slots[:count]
        if self.attempts is not None:
            self.attempts = self.attempts[:count]
        return rest


class _Stream:
    """One life of a push consumer at the store. `ConsumerSink` of the local client."""

    def __init__(self, owner: HostileConsumer) -> None:
        self.owner = owner
        self.inner: Consumer | None = None

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        self.owner.on_the_way(consumer, Rows(deliveries))

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        self.owner.ended(error_through_bytes(error))


class HostileConsumer:
    """`client.Consumer` of an adapter, and the streams under it."""

    def __init__(self, client: Host, spec: ConsumerSpec, sink: ConsumerSink) -> None:
        self._client = client
        self._sink = sink
        self._spec = spec
        self.tag = spec.tag
        self._credit = 0
        self._way: deque[tuple[Consumer, Rows]] = deque()
        self.holders: dict[tuple[QueueId, int], Consumer] = {}
        """Which consumer of the store holds a lease."""
        self._over = False
        self._shares: dict[QueueId, HostileShare] = {}
        self._stream = self._attach()

    def _attach(self) -> _Stream:
        stream = _Stream(self)
        stream.inner = self._client.local.attach(self._client.inner_spec(self._spec), stream)
        return stream

    # client.Consumer

    def grant(self, messages: int) -> None:
        self._credit += messages
        self._inner.grant(messages)

    def cancel(self) -> None:
        if not self._over:
            self.forget()
            self._inner.cancel()

    @property
    def _inner(self) -> Consumer:
        assert self._stream.inner is not None
        return self._stream.inner

    @property
    def only_queue(self) -> QueueId:
        (queue,) = self._spec.topic.queues
        return queue.id

    def inner_of(self, queue: QueueId) -> Consumer:
        """The store's consumer of one queue now."""
        inner = self._inner
        if isinstance(inner, SpreadConsumer):
            return next(each for each in inner.parts if each.dispatcher.queue.id == queue)
        return inner

    # The streams

    def forget(self) -> None:
        """Nothing more is delivered; what is on its way was never seen."""
        self._over = True
        self._client.live.pop(self, None)
        while self._way:
            inner, rows = self._way.popleft()
            self._give_back(inner, rows.offsets)

    def _give_back(self, inner: Consumer, offsets: Sequence[int]) -> None:
        if offsets and self._spec.lease_ms is None:
            self._client.local.settle(inner, Settlement.RETURN, offsets)

    def reset(self) -> None:
        """A new stream with the credit that is left; the old one keeps its leases."""
        unique = self._spec.exclusive or self._client.is_delicate(self._spec)
        if self._over or unique:
            return
        old, self._stream = self._inner, self._attach()
        old.cancel()
        coming = sum(len(rows.offsets) for _, rows in self._way)
        self._inner.grant(self._credit - coming)

    def on_the_way(self, inner: Consumer, rows: Rows) -> None:
        if self._over:
            self._give_back(inner, rows.offsets)
            return
        self._way.append((inner, rows))
        self._client.late.call(self, self._arrive)

    def _arrive(self) -> None:
        if self._over or not self._way:
            return
        inner, rows = self._way.popleft()
        rest = rows.split(max(0, self._credit))
        if rest:  # the adapter has taken credit back meanwhile
            self._give_back(inner, rest)
            self._inner.grant(len(rest))
        if not rows.offsets:
            return
        self._credit -= len(rows.offsets)
        if self._spec.auto_ack:
            self._client.local.settle(inner, Settlement.ACK, rows.offsets)
        else:
            self.holders.update({(rows.queue, offset): inner for offset in rows.offsets})
        self._sink.deliver(self._share(rows.queue), rows)

    def _share(self, queue: QueueId) -> Consumer:
        if len(self._spec.topic.queues) == 1:
            return self
        share = self._shares.get(queue)
        if share is None:
            share = self._shares[queue] = HostileShare(self, queue)
        share.tag = self.tag
        return share

    def ended(self, error: KernelError) -> None:
        if not self._over:
            self._over = True
            self._client.live.pop(self, None)
            self._client.late.call(self, lambda: self._sink.consumer_ended(self, error))


class HostileShare:
    """What the sink hears as the consumer of one queue, where a topic has several."""

    def __init__(self, owner: HostileConsumer, queue: QueueId) -> None:
        self.owner = owner
        self.queue = queue
        self.tag: object = None

    def grant(self, messages: int) -> None:
        self.owner.grant(messages)

    def cancel(self) -> None:
        self.owner.cancel()


def owner_of(consumer: Consumer) -> tuple[HostileConsumer, QueueId]:
    """Which consumer of an adapter this is, and which queue it stands for."""
    if isinstance(consumer, HostileShare):
        return consumer.owner, consumer.queue
    assert isinstance(consumer, HostileConsumer)
    return consumer, consumer.only_queue


class HostileHolder:
    """Holder of what a pull leased to a session."""

    def __init__(self, inner: Consumer) -> None:
        self.inner = inner
        self.tag: object = None

    def grant(self, messages: int) -> None:
        self.inner.grant(messages)

    def cancel(self) -> None:
        self.inner.cancel()


class Settling:
    """One call with an answer, carried out by several consumers of the store."""

    def __init__(self, late: Late, lane: object, sink: SettleSink, parts: int) -> None:
        self._late = late
        self._lane = lane
        self._sink = sink
        self._parts = parts
        self._failures: dict[int, KernelError] = {}

    def settled(self, tag: object, failures: Mapping[int, KernelError] | None) -> None:
        self._failures.update(errors_through_bytes(failures) or {})
        self._parts -= 1
        if not self._parts:
            found = self._failures or None
            self._late.call(self._lane, lambda: self._sink.settled(tag, found))
