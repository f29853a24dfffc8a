"""Push consumers of the hostile client: an adapter's consumer over streams that are reset."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from kernel.api.client import (
    Consumer,
    ConsumerSink,
    ConsumerSpec,
    Deliveries,
    Session,
    Settlement,
    SettleSink,
)
from kernel.broker.delivery.consumers import DispatchedConsumer, SpreadConsumer
from kernel.common.errors import KernelError
from kernel.common.ids import QueueId
from kernel.in_process.local_client import LocalClient
from tests.simulator.hostile_link import (
    Late,
    error_through_bytes,
    errors_through_bytes,
    through_bytes,
)
from tests.simulator.hostile_topology import LateTopology


class Streamed(Protocol):
    """Something of an adapter's that push streams bring messages to."""

    def reset(self) -> None:
        """A new stream with the credit that is left."""

    def forget(self) -> None:
        """Nothing more is delivered; what is on its way was never seen."""


class Host(Protocol):
    """What a consumer asks of its client."""

    local: LocalClient
    late: Late
    definitions: LateTopology
    live: dict[Streamed, None]

    def happens(self, share: float) -> bool:
        """Whether something does that happens in so large a share of cases."""

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


class HostileSession:
    """`client.Session` by its number."""

    def __init__(self, inner: Session) -> None:
        self.inner = inner
        self.id = inner.id
        self.epoch = inner.epoch
        self.origin = inner.origin
        self.by = inner.by
        self.consumers: dict[Streamed, None] = {}

    def close(self) -> None:
        for consumer in list(self.consumers):
            consumer.forget()
        self.inner.close()


class Leases:
    """Which consumers of the store hold what an adapter's consumer of one queue was given."""

    def __init__(self) -> None:
        self._holders: dict[int, Consumer] = {}
        self._last: Consumer | None = None

    def took(self, inner: Consumer, offsets: Sequence[int]) -> None:
        """Messages have arrived."""
        self._last = inner
        self._holders.update(dict.fromkeys(offsets, inner))

    def holders(
        self, offsets: Sequence[int], now: Consumer | None
    ) -> list[tuple[Consumer, list[int]]]:
        """Offsets by their holders. `now`: who is asked about what nobody holds; by default, who
        was the last to take something.
        """
        stranger = now or self._last
        assert stranger is not None
        found: dict[int, tuple[Consumer, list[int]]] = {}
        for offset in offsets:
            inner = self._holders.get(offset, stranger)
            found.setdefault(id(inner), (inner, []))[1].append(offset)
        return list(found.values()) or [(stranger, [])]

    def gave_up(self, offsets: Sequence[int]) -> None:
        """They are settled."""
        for offset in offsets:
            self._holders.pop(offset, None)


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
        self.leases: dict[QueueId, Leases] = {}
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

    def _leases(self, queue: QueueId) -> Leases:
        return self.leases.setdefault(queue, Leases())

    def holders(
        self, offsets: Sequence[int], queue: QueueId | None = None
    ) -> list[tuple[Consumer, list[int]]]:
        """Offsets by the consumer of the store that holds them."""
        queue = queue or self.only_queue
        return self._leases(queue).holders(offsets, self._inner_of(queue))

    def gave_up(self, offsets: Sequence[int], queue: QueueId | None = None) -> None:
        """They are settled."""
        self._leases(queue or self.only_queue).gave_up(offsets)

    def _inner_of(self, queue: QueueId) -> Consumer:
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
        self._lose_what_is_on_its_way()

    def _lose_what_is_on_its_way(self) -> None:
        while self._way:
            inner, rows = self._way.popleft()
            self._give_back(inner, rows.offsets)

    def _give_back(self, inner: Consumer, offsets: Sequence[int]) -> None:
        if offsets and self._spec.lease_ms is None:
            self._client.local.settle(inner, Settlement.RETURN, offsets)

    def reset(self) -> None:
        """A new stream with the credit that is left; the old one keeps the leases that arrived."""
        unique = self._spec.exclusive or self._client.is_delicate(self._spec)
        if self._over or unique:
            return
        old, self._stream = self._inner, self._attach()
        old.cancel()
        coming = sum(len(rows.offsets) for _, rows in self._way)
        if coming and self._client.happens(0.5):
            self._lose_on_reset(old, coming)
        self._inner.grant(self._credit - coming)

    def _lose_on_reset(self, old: Consumer, coming: int) -> None:
        """What is on its way over the old stream does not arrive, and comes over the new one:
        before what is behind it and before other consumers get it, so that there must be room for
        all of it at once.
        """
        new = self._inner
        if not isinstance(new, DispatchedConsumer) or self._spec.lease_ms is not None:
            return
        if any(inner is not old for inner, _ in self._way):
            return
        offsets = [offset for _, rows in self._way for offset in rows.offsets]
        self._way.clear()
        new.pool.left += coming
        self._give_back(old, offsets)

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
            self._leases(rows.queue).took(inner, rows.offsets)
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

    def holders(self, offsets: Sequence[int]) -> list[tuple[Consumer, list[int]]]:
        """See `HostileConsumer.holders`."""
        return self.owner.holders(offsets, self.queue)

    def gave_up(self, offsets: Sequence[int]) -> None:
        """They are settled."""
        self.owner.gave_up(offsets, self.queue)


class Holding(Protocol):
    """What every consumer of the hostile client can tell."""

    def holders(self, offsets: Sequence[int]) -> list[tuple[Consumer, list[int]]]:
        """Offsets by the consumer of the store that holds them."""

    def gave_up(self, offsets: Sequence[int]) -> None:
        """They are settled."""


class HostileHolder:
    """Holder of what a pull leased to a session."""

    def __init__(self, inner: Consumer) -> None:
        self.inner = inner
        self.tag: object = None

    def grant(self, messages: int) -> None:
        self.inner.grant(messages)

    def cancel(self) -> None:
        self.inner.cancel()

    def holders(self, offsets: Sequence[int]) -> list[tuple[Consumer, list[int]]]:
        """See `HostileConsumer.holders`."""
        return [(self.inner, list(offsets))]

    def gave_up(self, offsets: Sequence[int]) -> None:
        """They are settled."""


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
