"""The topic tree, as a gateway uses it: names, patterns, subscribers, retained messages.

A **name** is levels separated by `/`; a **pattern** is a name in which `+` stands for one level and
`#`, last, for any number of levels (also none). Wildcards at the first level do not match names
that begin with `$`. The tree has no queues of its own; it delivers only through routes
(docs/design/model.md#the-topic-tree):

* a **watch** is a live route: what is published while it lasts is handed over, nothing is stored;
* a **subscription** of a durable subscriber is an index route: the message is stored once, in the
  Raft group of its name, and each distinct pattern keeps one list of references there, whatever
  the number of subscribers; these are cursors on it, and a **share** is a cursor that several
  subscribers have in common;
* routers with `RouterOptions.tree` and topics with `TopicOptions.tree` get copies.

A **subscriber** is a named client with what must outlive its connections: subscriptions, notes
(small records that the adapter alone understands), a will. Each `open` raises its epoch; what an
older epoch asks for is refused with SESSION_FENCED.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from ..common.errors import Code, KernelError
from .consuming import ConsumerSink
from .publishing import Destinations
from .session import Session


class WatchSink(Protocol):
    """Hears what is published under a pattern."""

    def published_live(self, watch: Watch, slots: Sequence[bytes]) -> None:
        """Messages (`kernel.api.message`), in the order of their publication; each has its
        `Ext.TREE_NAME`. Called once per publishing batch, after the batch is durable wherever it
        had to be; one that matches several watches is handed to each.
        """


class Watch(Protocol):
    """A live route, made by `Tree.watch`."""

    tag: object
    """Free for the adapter."""

    def cancel(self) -> None:
        """No more calls follow. Idempotent."""


class Will(msgspec.Struct, frozen=True):
    """A message that is published to the tree when its subscriber goes without taking it back."""

    name: str
    slot: bytes
    """The message as stored (`kernel.api.message`), at most WILL_BYTES_MAX bytes; its time to live
    counts from its publication."""
    delay_ms: int = 0
    retain: bool = False
    user: str = ""
    """Whose right to publish it is asked for again when it is due; empty: nobody's."""
    client: str = ""
    """What the user's client is called, for rights that depend on that."""


WillJudge = Callable[[str, str, str, str], bool | None]
"""Whether a (tenant, user, client) may still have a will published to a name. None: that cannot be
said yet, and is asked again within a second."""


class Belongings(Protocol):
    """What a subscriber has that no user has had yet."""

    @property
    def subscriptions(self) -> Mapping[tuple[str, str], bytes]:
        """The adapter's options by (share, pattern)."""

    @property
    def notes(self) -> Mapping[bytes, bytes]:
        """The adapter's notes."""


class SubscriberSpec(msgspec.Struct, frozen=True):
    """What `Tree.open` opens."""

    tenant: str
    name: str
    clean: bool = False
    """End what an earlier connection left, and begin anew."""
    expiry_ms: int | None = 0
    """How long it outlives its connection; 0: ends with it; None: for ever."""
    will: Will | None = None
    user: str = ""
    """Whose it is: nobody else opens it, as long as it lives. Empty: nobody's in particular."""
    may_have: Callable[[Belongings], bool] | None = None
    """Whether `user` has the rights to all that one has which is nobody's (an older build made it):
    then it becomes the user's. None: yes."""


def belongs_to(known: str, user: str) -> bool:
    """Whether a subscriber of the user `known` (empty: nobody's) may be opened by `user`. The one
    rule, wherever one is held: in the log, in the memory of a gateway, at the registry of names.
    """
    return not known or known == user


def anothers() -> KernelError:
    """What who is not its user is told of a subscriber. It names nobody."""
    return KernelError(Code.NOT_ALLOWED, "it belongs to another user")


class SubscriberSink(Protocol):
    """Hears that a subscriber is no longer its connection's."""

    def taken_over(self, subscriber: Subscriber) -> None:
        """Another connection has opened the name: say goodbye and close. Every later call on
        `subscriber` fails with SESSION_FENCED. Comes before that other `open` returns.
        """


class Subscription(msgspec.Struct, frozen=True):
    """One subscription; (share, pattern) tell it from the subscriber's others."""

    pattern: str
    share: str = ""
    """Name of the share; empty: the subscriber's own."""


class SubscriberConsumer(Protocol):
    """Takes what a subscriber's durable subscriptions bring, on one connection.

    The sink is called with a `Consumer` for each part: `tag` is what `add` was given, and
    `Client.settle` wants that same consumer. Leases last until settled or the session's end.
    """

    def add(self, subscription: Subscription, tag: object) -> None:
        """Take from a subscription too, which `Subscriber.subscribe` has made."""

    def remove(self, subscription: Subscription) -> None:
        """Take no more from it. What was delivered can still be settled."""

    def grant(self, messages: int) -> None:
        """Credit for so many more deliveries, of all subscriptions together (hot; may be
        negative).
        """

    def cancel(self) -> None:
        """Stop deliveries."""


class Subscriber(Protocol):
    """An open subscriber. Made by `Tree.open`.

    Durable (`durable`): every awaitable returns once a majority has the change on disk. One that
    ends with its connection and has no will lives in memory only.
    """

    name: str
    durable: bool
    resumed: bool
    """Whether there was one to go on with."""
    number: int
    """Unique for ever; a clean start gives a new one."""
    epoch: int
    """Rises with each `open`."""
    notes: Mapping[bytes, bytes]
    """As they were when it was opened."""

    @property
    def subscriptions(self) -> Mapping[Subscription, bytes]:
        """The adapter's options of each, as `subscribe` was given them."""

    async def subscribe(self, subscription: Subscription, options: bytes) -> bool:
        """Subscribe, or change the options; whether it is new. From now on messages are kept for
        the subscriber (share: until its last member is gone). Not for subscribers that are not
        durable, except with a share.

        Raises KernelError: SESSION_FENCED, INVALID_ARGUMENT (bad pattern), LIMIT_EXCEEDED.
        """

    async def subscribe_all(
        self, wanted: Mapping[Subscription, bytes]
    ) -> Mapping[Subscription, bool | KernelError]:
        """`subscribe` for several at once: what it returns or raises for each. As many as one has
        commands for: give it hundreds, not thousands, so that others have their turn meanwhile.
        """

    async def unsubscribe(self, subscription: Subscription) -> bool:
        """End a subscription; whether there was one. What it had not been given is let go."""

    async def unsubscribe_all(
        self, subscriptions: Sequence[Subscription]
    ) -> Mapping[Subscription, bool | KernelError]:
        """`unsubscribe` for several at once, as `subscribe_all`."""

    def note(
        self,
        changes: Sequence[tuple[bytes, bytes | None]],
        done: Callable[[KernelError | None], None] | None = None,
    ) -> None:
        """Set or (None) remove notes (hot, does not wait). `done(None)` once it is on disk;
        `done(SESSION_FENCED)` if another connection has the subscriber by now; LIMIT_EXCEEDED
        above NOTES_MAX.
        """

    def consumer(self, session: Session, sink: ConsumerSink) -> SubscriberConsumer:
        """A consumer without subscriptions and without credit."""

    async def close(
        self,
        *,
        will: bool,
        expiry_ms: int | None = -1,
        notes: Sequence[tuple[bytes, bytes | None]] = (),
    ) -> None:
        """The connection is over. `will`: the will is published after its delay, unless the name
        is opened again before; False: it is forgotten. `expiry_ms`: as in `SubscriberSpec`, in
        its place; -1: as it was. After a takeover it does nothing. Close the `Session` as well.
        """


class SubscriberFacts(msgspec.Struct, frozen=True, array_like=True):
    """A durable subscriber, as the leader of its home knows it."""

    name: str
    user: str
    """Whose it is; empty: nobody's yet."""
    connected: bool
    expiry_ms: int | None
    """How long it outlives its connection; None: for ever."""
    ends_in_ms: int | None
    """Until it ends; None: it is connected, or it never does."""
    subscriptions: int
    notes: int
    """Small records of the adapter's, such as of messages that are being exchanged."""
    has_will: bool


class SubscriptionFacts(msgspec.Struct, frozen=True, array_like=True):
    """A subscription of a durable subscriber."""

    pattern: str
    share: str
    """Empty: its own."""
    waiting: int | None
    """Messages that it, or its share, has not acked, whoever holds them; None: not counted."""


class Tree(Protocol):
    """The trees of all tenants: `Client.tree`."""

    def to(self, tenant: str, name: str, *, retain: bool = False) -> Destinations:
        """Destinations of a publish to a name (cached by the kernel: ask for each message or run).

        `retain`: the message is also kept as the name's retained one (an empty body removes it).
        Every message added must carry `Ext.TREE_NAME`. `count` is 0 if nobody gets it; with
        `retain` it is at least 1. Raises KernelError: INVALID_ARGUMENT for a name with wildcards,
        NOT_ALLOWED for one of the server's own (`limits.TREE_ROOTS_RESERVED`).
        """

    def watch(self, tenant: str, pattern: str, sink: WatchSink, tag: object = None) -> Watch:
        """A live route. Have one per distinct pattern, not one per client. Raises KernelError:
        INVALID_ARGUMENT, LIMIT_EXCEEDED.
        """

    async def watched(self) -> None:
        """Return once what is published at any gateway reaches the live routes made until now; a
        gateway that cannot be reached is not waited for longer than two seconds.
        """

    async def retained(
        self, tenant: str, pattern: str, messages_max: int
    ) -> Sequence[tuple[int, bytes]]:
        """(age ms, slot) of the retained messages under a pattern, none of them expired, oldest
        name first in byte order. Raises KernelError LIMIT_EXCEEDED if there are more.
        """

    async def retains(self, tenant: str, patterns: Sequence[str]) -> Sequence[bool]:
        """Whether `retained` may find something, of each of several patterns: asked first, where
        there are many of which most have nothing. Give it hundreds. Raises KernelError
        INVALID_ARGUMENT.
        """

    async def open(self, spec: SubscriberSpec, sink: SubscriberSink) -> Subscriber:
        """Open a subscriber, taking it over from any other connection (see SubscriberSink).

        On disk when it returns, if durable: `expiry_ms` is not 0, or it has a will. Raises
        KernelError: INVALID_ARGUMENT (name), TOO_LARGE (will), LIMIT_EXCEEDED, NO_SPACE (a new one,
        while free disk is below the mark: those that are known can go on and empty their backlog);
        NOT_ALLOWED, it is another user's, and who has it keeps it.
        """

    async def drop(self, tenant: str, name: str) -> bool:
        """End a subscriber with all it has, whosever it is: an administrator says so. Its
        connection is told that it is taken over; whether there was one.
        """

    async def subscribers(
        self, tenant: str, begins: str = "", after: str = "", limit: int = 100
    ) -> Sequence[SubscriberFacts]:
        """Durable subscribers by name: at most `limit` (1 to SUBSCRIBERS_LISTED_MAX) of those that
        begin so, and come behind `after`. Raises KernelError UNAVAILABLE: a group has no leader.
        """

    async def subscriptions(self, tenant: str, name: str) -> Sequence[SubscriptionFacts]:
        """Of one durable subscriber, by pattern and share; what waits is counted for the first
        SUBSCRIPTIONS_COUNTED_MAX. Raises KernelError: NOT_FOUND, UNAVAILABLE.
        """

    async def forget(self, tenant: str) -> int:
        """A tenant is being removed: end its subscribers, without their wills, and forget its
        retained messages, some thousands at a time; how many things remain, 0: nothing does, on
        disk. Raises KernelError: UNAVAILABLE (a group has no leader), INVALID_ARGUMENT (the
        feature `tenants` is off).
        """
