"""Subscribers of the topic tree, opened by clients of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, cast

from .broker.consumers import Credit, DispatchedConsumer
from .broker.subscribers import INDEX_OPTIONS
from .broker.tree_commands import Opened
from .client import ConsumerSink, ConsumerSpec, Session
from .errors import Code, KernelError
from .ids import RaftGroup, TopicId, topic_of
from .model import QueueRef, TopicInfo
from .session import LocalSession
from .store.node import Store
from .tree import SubscriberConsumer, SubscriberSink, SubscriberSpec, Subscription

Changes = Sequence[tuple[bytes, bytes | None]]


def group_of(number: int, share: str) -> str:
    """Consumer group on reference lists: a share's, or a subscriber's own."""
    return f"share/{share}" if share else f"own/{number:x}"


class SubscriberHost(Protocol):
    """What a subscriber asks of the tree."""

    async def subscribe(
        self, subscriber: LocalSubscriber, subscription: Subscription, options: bytes
    ) -> bool:
        """See `tree.Subscriber`."""

    async def unsubscribe(self, subscriber: LocalSubscriber, subscription: Subscription) -> bool:
        """See `tree.Subscriber`."""

    def note(
        self,
        subscriber: LocalSubscriber,
        changes: Changes,
        done: Callable[[KernelError | None], None] | None,
    ) -> None:
        """See `tree.Subscriber`."""

    async def close(
        self, subscriber: LocalSubscriber, will: bool, expiry_ms: int | None, notes: Changes
    ) -> None:
        """See `tree.Subscriber`."""

    def lists_of(self, tenant: str, pattern: str) -> Sequence[QueueRef]:
        """The reference lists of a pattern."""


class LocalSubscriber:
    """`tree.Subscriber`."""

    __slots__ = (
        "_host",
        "closed",
        "durable",
        "epoch",
        "fenced",
        "home",
        "name",
        "notes",
        "number",
        "resumed",
        "sink",
        "store",
        "subscriptions",
        "tenant",
    )

    def __init__(
        self, host: SubscriberHost, store: Store, spec: SubscriberSpec, sink: SubscriberSink
    ) -> None:
        self._host = host
        self.store = store
        self.tenant = spec.tenant
        self.name = spec.name
        self.sink = sink
        self.durable = False
        self.resumed = False
        self.number = 0
        self.epoch = 0
        self.home = RaftGroup(0)
        """Raft group of a durable one."""
        self.fenced = False
        self.closed = False
        self.subscriptions: dict[Subscription, bytes] = {}
        self.notes: Mapping[bytes, bytes] = {}

    def opened(self, home: RaftGroup, opened: Opened) -> None:
        """The log has it."""
        self.durable = True
        self.home = home
        self.number = opened.number
        self.epoch = opened.epoch
        self.resumed = opened.resumed
        self.subscriptions = {
            Subscription(pattern, share): options
            for (share, pattern), options in opened.subscriptions.items()
        }
        self.notes = opened.notes

    async def subscribe(self, subscription: Subscription, options: bytes) -> bool:
        """Subscribe, or change the options; whether it is new."""
        return await self._host.subscribe(self, subscription, options)

    async def unsubscribe(self, subscription: Subscription) -> bool:
        """End a subscription; whether there was one."""
        return await self._host.unsubscribe(self, subscription)

    def note(
        self, changes: Changes, done: Callable[[KernelError | None], None] | None = None
    ) -> None:
        """Set or remove notes."""
        self._host.note(self, changes, done)

    def consumer(self, session: Session, sink: ConsumerSink) -> SubscriberConsumer:
        """A consumer without subscriptions and without credit."""
        return LocalSubscriberConsumer(self, cast("LocalSession", session), sink, self._host)

    async def close(self, *, will: bool, expiry_ms: int | None = -1, notes: Changes = ()) -> None:
        """The connection is over."""
        await self._host.close(self, will, expiry_ms, notes)


class LocalSubscriberConsumer:
    """`tree.SubscriberConsumer`: one part for each reference list, with credit in common."""

    __slots__ = ("_host", "_parts", "_pool", "_session", "_sink", "_subscriber", "_turn")

    def __init__(
        self,
        subscriber: LocalSubscriber,
        session: LocalSession,
        sink: ConsumerSink,
        host: SubscriberHost,
    ) -> None:
        self._subscriber = subscriber
        self._session = session
        self._sink = sink
        self._host = host
        self._pool = Credit()
        self._parts: dict[Subscription, list[DispatchedConsumer]] = {}
        self._turn = 0

    def add(self, subscription: Subscription, tag: object) -> None:
        """Take from a subscription too. Raises KernelError SESSION_FENCED, NOT_FOUND."""
        subscriber = self._subscriber
        if subscriber.fenced:
            raise KernelError(Code.SESSION_FENCED, "the subscriber has another connection")
        if subscription in self._parts:
            return
        group = group_of(subscriber.number, subscription.share)
        parts = self._parts[subscription] = []
        if len(self._session.consumers) >= self._session.prune_at:
            self._session.prune()
        for ref in self._host.lists_of(subscriber.tenant, subscription.pattern):
            topic = _list_info(subscriber.tenant, subscription.pattern, ref)
            spec = ConsumerSpec(topic, group, self._session, tag=tag)
            dispatcher = subscriber.store.replica(ref.group).dispatcher(ref.id, group)
            part = dispatcher.attach(spec, self._sink, self._pool)
            parts.append(part)
            self._session.consumers[part] = None
            if self._pool.left > 0:
                dispatcher.pump()

    def remove(self, subscription: Subscription) -> None:
        """Take no more from a subscription."""
        for part in self._parts.pop(subscription, ()):
            part.cancel()

    def grant(self, messages: int) -> None:
        """Credit for so many more deliveries; the lists take from it in turn."""
        pool = self._pool
        pool.left += messages
        if pool.left <= 0:
            return
        parts = list(self._each())
        self._turn += 1
        for at in range(len(parts)):
            part = parts[(self._turn + at) % len(parts)]
            if pool.left > 0 and not part.ended:
                part.dispatcher.pump()

    def _each(self) -> Iterable[DispatchedConsumer]:
        return (part for parts in self._parts.values() for part in parts)

    def cancel(self) -> None:
        """Stop deliveries."""
        for part in self._each():
            part.cancel()
        self._parts.clear()


def _list_info(tenant: str, pattern: str, ref: QueueRef) -> TopicInfo:
    """A reference list as a consumer's topic."""
    ident = TopicId(topic_of(ref.id))
    return TopicInfo(tenant, pattern, ident, 1, INDEX_OPTIONS, (ref,), {})
