"""What a subscriber of a gateway consumes: a push stream from the leader of each list that has had
something lately, with credit in common; a list that has not is only waited for (`list_waits`).

    waited for -> FILLED: a stream -> IDLE_SECONDS without a message: waited for again
                                   -> ended (the list is gone, or no stream is to be had): waited
                                      for again, after a pause
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ...api.client import Consumer, ConsumerSink, ConsumerSpec, Deliveries
from ...api.model import QueueRef
from ...api.tree import Subscription
from ...common.errors import Code, KernelError
from ...common.ids import QueueId, RaftGroup
from ...requests.session import LocalSession
from ...subscribers.held_subscriber import HeldSubscriber, group_of
from ...subscribers.local_subscriber import Soon, list_info
from ..streams.parts import CreditPool, StreamPart
from ..streams.streams import Streams
from . import tree_wire as wire
from .list_waits import ListWaits

IDLE_SECONDS = 60
"""A list that brings nothing for so long, or twice, has no stream: one costs some 5 KB at its
leader, a list that is waited for some 200 bytes."""

PAUSE_SECONDS = 1.0
"""Before a list whose stream has ended is waited for again."""


PARTS_ENDED_TOGETHER = 256
"""Each waits in all groups: a few milliseconds."""


class IdleStreams:
    """Finds the lists of this process that bring nothing any more, some of them each second."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._streams: deque[tuple[_Subscribed, StreamPart]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, subscribed: _Subscribed, part: StreamPart) -> None:
        """Look after a stream."""
        self._streams.append((subscribed, part))
        if self._timer is None:
            self._timer = self._loop.call_later(1, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._streams.clear()

    def _look(self) -> None:
        for _ in range(len(self._streams) // IDLE_SECONDS + 1):
            subscribed, part = self._streams.popleft()
            if part.ended:
                continue
            if part.was_used or not subscribed.park(part):
                part.was_used = False
                self._streams.append((subscribed, part))
            if not self._streams:
                break
        self._timer = self._loop.call_later(1, self._look) if self._streams else None


class _Subscribed:
    """One subscription. `list_waits.Part`, and `client.ConsumerSink` of its streams."""

    __slots__ = ("_consumer", "is_over", "key", "streams", "subscription", "tag", "waits_in")

    def __init__(
        self,
        consumer: FarSubscriberConsumer,
        subscription: Subscription,
        tag: object,
        key: wire.Key,
        groups: Sequence[RaftGroup],
    ) -> None:
        self._consumer = consumer
        self.subscription = subscription
        self.tag = tag
        self.key = key
        self.waits_in = set(groups)
        self.streams: dict[RaftGroup, StreamPart] = {}
        """Of the list in each group that has, or has had, one; a parked one is kept here too."""
        self.is_over = False

    def filled(self, group: RaftGroup, queue: QueueId) -> None:
        """A list has something: from now on it is a stream."""
        self.waits_in.discard(group)
        self._consumer.filled(self, QueueRef(queue, group))

    def park(self, part: StreamPart) -> bool:
        """Wait for its list, if its stream is idle."""
        return self._consumer.park(self, part)

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        """Messages for the subscriber (hot)."""
        self._consumer.sink.deliver(consumer, deliveries)

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        """The list is gone, or has no stream for now."""
        self._consumer.ended(self, consumer, error)


class FarSubscriberConsumer:
    """Consumes what a subscriber's patterns bring, from all groups (`tree.SubscriberConsumer`)."""

    __slots__ = (
        "_groups_of",
        "_idle",
        "_later",
        "_parts",
        "_pool",
        "_session",
        "_soon",
        "_streams",
        "_subscriber",
        "_waits",
        "sink",
    )

    def __init__(
        self,
        subscriber: HeldSubscriber,
        session: LocalSession,
        sink: ConsumerSink,
        waits: ListWaits,
        streams: Streams,
        idle: IdleStreams,
        groups_of: GroupsOf,
        later: Callable[[float, Callable[..., None], _Subscribed, RaftGroup], object],
        soon: Soon,
    ) -> None:
        """`later(seconds, action, ...)` calls `action(...)` after so long."""
        self._subscriber = subscriber
        self._session = session
        self.sink = sink
        self._waits = waits
        self._streams = streams
        self._idle = idle
        self._groups_of = groups_of
        self._later = later
        self._soon = soon
        self._pool = CreditPool()
        self._parts: dict[Subscription, _Subscribed] = {}

    def add(self, subscription: Subscription, tag: object) -> None:
        """Take from a subscription too. Raises KernelError SESSION_FENCED."""
        subscriber = self._subscriber
        if subscriber.fenced:
            raise KernelError(Code.SESSION_FENCED, "the subscriber has another connection")
        if subscription in self._parts:
            return
        tenant, pattern = subscriber.tenant, subscription.pattern
        key = (tenant, pattern, group_of(subscriber.number, subscription.share))
        groups = self._groups_of(tenant, pattern)
        part = self._parts[subscription] = _Subscribed(self, subscription, tag, key, groups)
        for group in groups:
            self._waits.add(group, key, part)

    def filled(self, part: _Subscribed, ref: QueueRef) -> None:
        """A list of a part has something."""
        if self._session.closed or part.is_over:
            return
        known = part.streams.get(ref.group)
        if known is not None and known.ref == ref:
            self._streams.revive(known)
            self._idle.add(part, known)
            return
        subscriber = self._subscriber
        tenant, pattern, group = part.key
        topic = list_info(tenant, pattern, ref)
        spec = ConsumerSpec(topic, group, self._session, tag=part.tag)
        claimant = (subscriber.number, subscriber.epoch)
        stream = self._streams.attach_part(ref, spec, part, self._pool, claimant)
        part.streams[ref.group] = stream
        self._idle.add(part, stream)

    def park(self, part: _Subscribed, stream: StreamPart) -> bool:
        """A stream has brought nothing for long. False: it must stay."""
        if part.is_over or not self._streams.park(stream):
            return False
        self._wait(part, stream.ref.group)
        return True

    def ended(self, part: _Subscribed, stream: Consumer, error: KernelError) -> None:
        """A leader has ended a stream, or not taken it in."""
        group = next((key for key, each in part.streams.items() if each is stream), None)
        self.sink.consumer_ended(stream, error)
        if group is not None and error.code is not Code.SESSION_FENCED:
            del part.streams[group]
            self._later(PAUSE_SECONDS, self._wait, part, group)

    def _wait(self, part: _Subscribed, group: RaftGroup) -> None:
        if not (part.is_over or self._session.closed):
            part.waits_in.add(group)
            self._waits.add(group, part.key, part)

    def remove(self, subscription: Subscription) -> None:
        """Take no more from a subscription."""
        part = self._parts.pop(subscription, None)
        if part is not None:
            self._end(part)

    def _end(self, part: _Subscribed) -> None:
        part.is_over = True
        self._stop_waiting(part)
        for stream in part.streams.values():
            stream.cancel()

    def _stop_waiting(self, part: _Subscribed) -> None:
        for group in part.waits_in:
            self._waits.remove(group, part.key, part)

    def grant(self, messages: int) -> None:
        """Credit for so many more deliveries, which the lists have in common."""
        self._pool.left += messages
        self._streams.credit_changed(self._pool)

    def cancel(self) -> None:
        """Stop deliveries."""
        parts = list(self._parts.values())
        self._parts.clear()
        for part in parts:
            part.is_over = True
            for stream in part.streams.values():
                stream.cancel()
        self._end_some(parts)

    def _end_some(self, parts: list[_Subscribed]) -> None:
        """Wait for the lists of some parts no more; of very many, some in each turn."""
        for part in parts[-PARTS_ENDED_TOGETHER:]:
            self._stop_waiting(part)
        del parts[-PARTS_ENDED_TOGETHER:]
        if parts:
            self._soon(partial(self._end_some, parts))


class GroupsOf(Protocol):
    """Tells where a pattern's messages are (`tree_routes.TreeRoutes.groups_of`)."""

    def __call__(self, tenant: str, pattern: str) -> list[RaftGroup]:
        """Raft groups that hold what is published under a pattern."""
