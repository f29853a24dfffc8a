"""A subscriber of the topic tree that a connection of this process has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ..api.client import ConsumerSink, Session
from ..api.tree import SubscriberConsumer, SubscriberSink, SubscriberSpec, Subscription
from ..broker.log_commands.tree_commands import Opened
from ..common.errors import KernelError
from ..common.ids import RaftGroup

Changes = Sequence[tuple[bytes, bytes | None]]


def group_of(number: int, share: str) -> str:
    """Consumer group on reference lists: a share's, or a subscriber's own."""
    return f"share/{share}" if share else f"own/{number:x}"


def number_of(group: str) -> int | None:
    """The subscriber whose own a consumer group on reference lists is; None: it is a share's."""
    kind, _, number = group.partition("/")
    return int(number, 16) if kind == "own" else None


def share_of(group: str) -> str:
    """The share of a consumer group on reference lists; empty: it is a subscriber's own."""
    kind, _, name = group.partition("/")
    return name if kind == "share" else ""


class SubscriberHost(Protocol):
    """What a subscriber asks of the tree."""

    async def subscribe(
        self, subscriber: HeldSubscriber, wanted: Mapping[Subscription, bytes]
    ) -> dict[Subscription, bool | KernelError]:
        """See `tree.Subscriber.subscribe_all`."""

    async def unsubscribe(
        self, subscriber: HeldSubscriber, subscriptions: Sequence[Subscription]
    ) -> dict[Subscription, bool | KernelError]:
        """See `tree.Subscriber.unsubscribe_all`."""

    def note(
        self,
        subscriber: HeldSubscriber,
        changes: Changes,
        done: Callable[[KernelError | None], None] | None,
    ) -> None:
        """See `tree.Subscriber`."""

    def consumer(
        self, subscriber: HeldSubscriber, session: Session, sink: ConsumerSink
    ) -> SubscriberConsumer:
        """See `tree.Subscriber`."""

    async def close(
        self, subscriber: HeldSubscriber, will: bool, expiry_ms: int | None, notes: Changes
    ) -> None:
        """See `tree.Subscriber`."""


class HeldSubscriber:
    """A subscriber that somebody in this process has open (`tree.Subscriber`)."""

    __slots__ = (
        "_host",
        "closed",
        "durable",
        "epoch",
        "fenced",
        "home",
        "member",
        "name",
        "notes",
        "number",
        "resumed",
        "sink",
        "subscriptions",
        "tenant",
        "user",
    )

    def __init__(
        self,
        host: SubscriberHost,
        spec: SubscriberSpec,
        sink: SubscriberSink,
        member: tuple[int, int],
    ) -> None:
        """`member`: who it is in shares, unless it becomes durable."""
        self._host = host
        self.tenant = spec.tenant
        self.name = spec.name
        self.user = spec.user
        self.sink = sink
        self.member = member
        """(process that it ends with or 0, number): who it is in shares."""
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
        """The log has the subscriber."""
        self.durable = True
        self.home = home
        self.number = opened.number
        self.member = (0, opened.number)
        self.epoch = opened.epoch
        self.resumed = opened.resumed
        self.subscriptions = {
            Subscription(pattern, share): options
            for (share, pattern), options in opened.subscriptions.items()
        }
        self.notes = opened.notes

    async def subscribe(self, subscription: Subscription, options: bytes) -> bool:
        """Subscribe, or change the options; whether it is new."""
        return _told((await self._host.subscribe(self, {subscription: options}))[subscription])

    async def subscribe_all(
        self, wanted: Mapping[Subscription, bytes]
    ) -> Mapping[Subscription, bool | KernelError]:
        """Subscribe to several."""
        return await self._host.subscribe(self, wanted)

    async def unsubscribe(self, subscription: Subscription) -> bool:
        """End a subscription; whether there was one."""
        return _told((await self._host.unsubscribe(self, (subscription,)))[subscription])

    async def unsubscribe_all(
        self, subscriptions: Sequence[Subscription]
    ) -> Mapping[Subscription, bool | KernelError]:
        """End several."""
        return await self._host.unsubscribe(self, subscriptions)

    def note(
        self, changes: Changes, done: Callable[[KernelError | None], None] | None = None
    ) -> None:
        """Set or remove notes."""
        self._host.note(self, changes, done)

    def consumer(self, session: Session, sink: ConsumerSink) -> SubscriberConsumer:
        """A consumer without subscriptions and without credit."""
        return self._host.consumer(self, session, sink)

    async def close(self, *, will: bool, expiry_ms: int | None = -1, notes: Changes = ()) -> None:
        """The connection is over."""
        await self._host.close(self, will, expiry_ms, notes)


def _told(result: bool | KernelError) -> bool:
    if isinstance(result, KernelError):
        raise result
    return result
