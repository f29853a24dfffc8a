"""What subscribers of this process consume, from the store in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ..api.client import ConsumerSink, ConsumerSpec
from ..api.model import QueueRef, TopicInfo
from ..api.tree import Subscription
from ..broker.applying.subscribers import INDEX_OPTIONS
from ..broker.delivery.consumers import Credit, DispatchedConsumer
from ..common.errors import Code, KernelError
from ..common.ids import TopicId, topic_of
from ..requests.session import LocalSession
from ..store.leading.group_use import note_use
from ..store.node import Store
from .held_subscriber import HeldSubscriber, group_of

ListsOf = Callable[[str, str], Sequence[QueueRef]]
"""The reference lists of a (tenant, pattern)."""


PARTS_ENDED_TOGETHER = 1_024
"""A few milliseconds: a subscriber may have 10,000 subscriptions, with a list in each group."""

Soon = Callable[[Callable[[], None]], object]
"""Calls something in a later turn of the loop."""


class _IdlePart:
    """A reference list that has brought nothing yet. `store.idle_lists.Waiting`."""

    __slots__ = ("_consumer", "ref", "subscription", "tag")

    def __init__(
        self,
        consumer: LocalSubscriberConsumer,
        ref: QueueRef,
        subscription: Subscription,
        tag: object,
    ) -> None:
        self._consumer = consumer
        self.ref = ref
        self.subscription = subscription
        self.tag = tag

    def filled(self) -> None:
        """A message has come."""
        self._consumer.filled(self)


class LocalSubscriberConsumer:
    """`tree.SubscriberConsumer`: one part for each reference list, with credit in common."""

    __slots__ = (
        "_attached",
        "_lists_of",
        "_parts",
        "_pool",
        "_round_robin",
        "_session",
        "_sink",
        "_soon",
        "_store",
        "_subscriber",
    )

    def __init__(
        self,
        subscriber: HeldSubscriber,
        session: LocalSession,
        sink: ConsumerSink,
        store: Store,
        lists_of: ListsOf,
        soon: Soon,
    ) -> None:
        self._subscriber = subscriber
        self._session = session
        self._sink = sink
        self._store = store
        self._lists_of = lists_of
        self._soon = soon
        self._pool = Credit()
        self._parts: dict[Subscription, list[DispatchedConsumer | _IdlePart]] = {}
        self._attached: dict[DispatchedConsumer, None] = {}
        """Those of the parts that are not idle: of 40,000, most bring nothing."""
        self._round_robin = 0

    def add(self, subscription: Subscription, tag: object) -> None:
        """Take from a subscription too. Raises KernelError SESSION_FENCED, NOT_FOUND."""
        subscriber = self._subscriber
        if subscriber.fenced:
            raise KernelError(Code.SESSION_FENCED, "the subscriber has another connection")
        if subscription in self._parts:
            return
        group = group_of(subscriber.number, subscription.share)
        parts = self._parts[subscription] = []
        for ref in self._lists_of(subscriber.tenant, subscription.pattern):
            part = _IdlePart(self, ref, subscription, tag)
            replica = self._store.replica(ref.group)
            if replica.has_nothing_for(ref.id, group):
                replica.idle_lists.add(ref.id, part)
                parts.append(part)
                note_use(replica, ref.id, group)
            else:
                parts.append(attached := self._attach(part, group))
                if self._pool.left > 0:
                    attached.dispatcher.pump()

    def _attach(self, part: _IdlePart, group: str) -> DispatchedConsumer:
        session, ref = self._session, part.ref
        if len(session.consumers) >= session.prune_at:
            session.prune()
        topic = list_info(self._subscriber.tenant, part.subscription.pattern, ref)
        spec = ConsumerSpec(topic, group, session, tag=part.tag)
        dispatcher = self._store.replica(ref.group).dispatcher(ref.id, group)
        attached = dispatcher.attach(spec, self._sink, self._pool)
        session.consumers[attached] = None
        self._attached[attached] = None
        return attached

    def filled(self, part: _IdlePart) -> None:
        """A message has come for a part that was idle: its dispatcher is about to be told."""
        parts = self._parts.get(part.subscription)
        if parts is None:
            return  # it is about to be ended
        if self._session.closed:
            parts.remove(part)
            return
        group = group_of(self._subscriber.number, part.subscription.share)
        try:
            parts[parts.index(part)] = self._attach(part, group)
        except KernelError:
            # Unsubscribed in the entry that brought the message: nothing is kept for it.
            parts.remove(part)

    def remove(self, subscription: Subscription) -> None:
        """Take no more from a subscription."""
        self._end(self._parts.pop(subscription, ()))

    def _end(self, parts: Iterable[DispatchedConsumer | _IdlePart]) -> None:
        subscriber = self._subscriber
        for part in parts:
            if isinstance(part, _IdlePart):
                replica = self._store.replica(part.ref.group)
                replica.idle_lists.remove(part.ref.id, part)
                group = group_of(subscriber.number, part.subscription.share)
                note_use(replica, part.ref.id, group)
            else:
                self._attached.pop(part, None)
                part.cancel()

    def grant(self, messages: int) -> None:
        """Credit for so many more deliveries; the lists take from it in turn."""
        pool = self._pool
        had, pool.left = pool.left, pool.left + messages
        if had > 0 or pool.left <= 0:
            # While there is credit, nothing waits for it: what comes is handed out at once.
            return
        parts = list(self._attached)
        self._round_robin += 1
        for at in range(len(parts)):
            part = parts[(self._round_robin + at) % len(parts)]
            if pool.left > 0 and not part.ended:
                part.dispatcher.pump()

    def _each(self) -> Iterable[DispatchedConsumer | _IdlePart]:
        return (part for parts in self._parts.values() for part in parts)

    def cancel(self) -> None:
        """Stop deliveries."""
        idle: list[_IdlePart] = []
        for part in self._each():
            if isinstance(part, _IdlePart):
                idle.append(part)
            else:
                part.cancel()
        self._parts.clear()
        self._attached.clear()
        self._end_some(idle)

    def _end_some(self, idle: list[_IdlePart]) -> None:
        """End parts that have brought nothing; of very many, some in each turn."""
        self._end(idle[-PARTS_ENDED_TOGETHER:])
        del idle[-PARTS_ENDED_TOGETHER:]
        if idle:
            self._soon(partial(self._end_some, idle))


def list_info(tenant: str, pattern: str, ref: QueueRef) -> TopicInfo:
    """A reference list as a consumer's topic."""
    ident = TopicId(topic_of(ref.id))
    return TopicInfo(tenant, pattern, ident, 1, INDEX_OPTIONS, (ref,), {})
