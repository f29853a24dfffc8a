"""What one connection, or one caller, is limited by: the limits of its tenant, its user and its
listener. Whoever serves it keeps it, and asks `is_limited` first, which is all that it costs where
nobody has set a limit. A limited topic has an account of its own.

Which limits those are is looked up when somebody connects, and again when limits change: a check is
a loop over one to four buckets.

Settling is counted and delayed as any request, and never refused; what the server itself publishes
(dead letters, wills) has no account, and meets no limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import ceil

from .bucket import Bucket
from .limits import LimitKind

Buckets = tuple[Bucket, ...]


class LimitOutcome(Enum):
    """What a limit has done."""

    DELAYED = "delayed"
    """A connection was not read from, or got nothing for a while, or a call was answered later:
    each time counts as one."""
    REFUSED = "refused"
    """Messages, requests and connections."""
    DROPPED = "dropped"
    """Messages that nobody waits to hear of."""


Count = Callable[[str, str, LimitOutcome, int], None]
"""Counts what became of something: tenant, limit, outcome, how many."""


class ConnectionLimit:
    """A limit of how many there are at one time."""

    __slots__ = ("elsewhere", "here", "limit", "reason")

    def __init__(self, limit: int, reason: str) -> None:
        self.limit = limit
        self.reason = reason
        self.here = 0
        self.elsewhere = 0
        """At other gateways of the cluster, as of the last report."""

    @property
    def is_full(self) -> bool:
        """Whether there may not be one more."""
        return self.here + self.elsewhere >= self.limit


@dataclass(frozen=True, slots=True)
class Resolved:
    """The limits that hold for an account, by kind: those of its tenant, of its user, ..."""

    rates: Mapping[LimitKind, Buckets]
    connections: tuple[ConnectionLimit, ...] = ()
    message_bytes: tuple[tuple[int, str], ...] = ()
    """Each with its reason."""


NOTHING = Resolved({})


class Account:
    """See the module, and `Quotas.account`."""

    __slots__ = (
        "__weakref__",
        "_connections",
        "_count",
        "_delivered",
        "_delivered_bytes",
        "_delivered_messages",
        "_published",
        "_published_bytes",
        "_published_messages",
        "_read",
        "_requests",
        "fails_at_once",
        "has_topics",
        "is_limited",
        "limits_delivery",
        "message_bytes_max",
        "open_connections",
        "tenant",
        "too_large",
        "user",
    )

    def __init__(self, tenant: str, user: str, count: Count) -> None:
        self.tenant = tenant
        self.user = user
        self._count = count
        self.open_connections = 0
        self._connections: tuple[ConnectionLimit, ...] = ()
        self.be_limited_by(NOTHING, has_topics=False)

    def be_limited_by(self, limits: Resolved, *, has_topics: bool) -> None:
        """The limits are others now."""
        of = limits.rates
        self._published_messages: Buckets = of.get(LimitKind.PUBLISHED_MESSAGES, ())
        self._published_bytes: Buckets = of.get(LimitKind.PUBLISHED_BYTES, ())
        self._delivered_messages: Buckets = of.get(LimitKind.DELIVERED_MESSAGES, ())
        self._delivered_bytes: Buckets = of.get(LimitKind.DELIVERED_BYTES, ())
        self._requests: Buckets = of.get(LimitKind.REQUESTS, ())
        self._published = (*self._published_messages, *self._published_bytes)
        self._delivered = (*self._delivered_messages, *self._delivered_bytes)
        self._read = (*self._published, *self._requests)
        self.fails_at_once = any(not each.patience_ms for each in self._published)
        """Of a topic: whether who publishes more would rather hear no than wait."""
        self.has_topics = has_topics
        """Whether a topic of the tenant has limits of its own."""
        self.limits_delivery = has_topics or bool(self._delivered)
        """The same, about what it gets."""
        least = min(limits.message_bytes, default=None)
        self.message_bytes_max: int | None = None if least is None else least[0]
        """The largest message that it may publish; None: any."""
        self.too_large = "" if least is None else least[1]
        """Which limit that is."""
        self.is_limited = has_topics or bool(self._read) or least is not None
        """Whether anything about what it sends has anything to say: to be asked first (hot)."""
        for held in self._connections:
            held.here -= self.open_connections
        self._connections = limits.connections
        for held in self._connections:
            held.here += self.open_connections

    # --- Rates ------------------------------------------------------------------------------

    def published(self, now_ms: int, messages: int, size_bytes: int) -> int:
        """So much was published: for how long nothing more is to be read because of that. Once for
        each batch (hot).
        """
        delay_ms = 0.0
        for bucket in self._published_messages:
            debt_ms = bucket.take(now_ms, messages)
            if debt_ms > delay_ms:  # noqa: PLR1730 - max is a call
                delay_ms = debt_ms
        for bucket in self._published_bytes:
            debt_ms = bucket.take(now_ms, size_bytes)
            if debt_ms > delay_ms:  # noqa: PLR1730 - max is a call
                delay_ms = debt_ms
        return ceil(delay_ms)

    def requested(self, now_ms: int, requests: int = 1) -> int:
        """So many requests came: for how long nothing more is to be read because of that."""
        delay_ms = 0.0
        for bucket in self._requests:
            delay_ms = max(delay_ms, bucket.take(now_ms, requests))
        return ceil(delay_ms)

    def delivered(self, now_ms: int, messages: int, size_bytes: int) -> int:
        """So much was delivered: for how long nothing more is to be. Once for each batch (hot)."""
        delay_ms = 0.0
        for bucket in self._delivered_messages:
            delay_ms = max(delay_ms, bucket.take(now_ms, messages))
        for bucket in self._delivered_bytes:
            delay_ms = max(delay_ms, bucket.take(now_ms, size_bytes))
        return ceil(delay_ms)

    def delay_ms(self, now_ms: int) -> int:
        """After how long nothing is owed for what it has sent; 0: nothing is."""
        return _delay_ms(self._read, now_ms)

    def delivery_delay_ms(self, now_ms: int) -> int:
        """After how long nothing is owed for what it has got; 0: nothing is."""
        return _delay_ms(self._delivered, now_ms)

    def delivery_room(self, now_ms: int, message_bytes: int) -> int | None:
        """Messages of about such a size that may be delivered before anything is owed; None: any
        number.
        """
        messages = _room(self._delivered_messages, now_ms)
        size = _room(self._delivered_bytes, now_ms)
        if size is None:
            return messages
        # What is left for less than one message is enough for one.
        count = -(-size // message_bytes)
        return count if messages is None else min(messages, count)

    def requests_far_over(self, now_ms: int) -> str | None:
        """The limit of requests of which so much is owed that more are refused; None: of none."""
        return _far_over(self._requests, now_ms)

    def publishing_far_over(self, now_ms: int) -> str | None:
        """The same, of what is published."""
        return _far_over(self._published, now_ms)

    def delivery_far_over(self, now_ms: int) -> str | None:
        """The same, of what is delivered."""
        return _far_over(self._delivered, now_ms)

    def room(self, now_ms: int) -> tuple[int | None, int | None]:
        """Messages and bytes that may be published before anything is owed; None: any number."""
        return (
            _room(self._published_messages, now_ms),
            _room(self._published_bytes, now_ms),
        )

    def room_until_refused(self, now_ms: int) -> tuple[int | None, int | None]:
        """The same, before so much is owed that more is refused."""
        return (
            _room_until_refused(self._published_messages, now_ms),
            _room_until_refused(self._published_bytes, now_ms),
        )

    # --- Connections ------------------------------------------------------------------------

    def connected(self) -> str | None:
        """A connection more; or else (nothing is counted) the limit that refuses it."""
        for held in self._connections:
            if held.is_full:
                return held.reason
        for held in self._connections:
            held.here += 1
        self.open_connections += 1
        return None

    def disconnected(self) -> None:
        """One that `connected` has let in is gone."""
        self.open_connections -= 1
        for held in self._connections:
            held.here -= 1

    # --- What limits have done --------------------------------------------------------------

    def slowest(self, now_ms: int) -> str:
        """The limit that asks for the longest delay of what it sends."""
        return _slowest(self._read, now_ms)

    def delayed(self, now_ms: int) -> None:
        """Count a delay."""
        self._count(self.tenant, _slowest(self._read, now_ms), LimitOutcome.DELAYED, 1)

    def waited(self, reason: str) -> None:
        """Count a delay by the limit that `far_over` has told."""
        self._count(self.tenant, reason, LimitOutcome.DELAYED, 1)

    def delivery_delayed(self, now_ms: int) -> None:
        """Count a delay of what it is to get."""
        self._count(self.tenant, _slowest(self._delivered, now_ms), LimitOutcome.DELAYED, 1)

    def delivery_held(self, now_ms: int) -> None:
        """Count that nothing is delivered because nothing may be, though nothing is owed."""
        self.delivery_delayed(now_ms)
        for bucket in self._delivered:
            if bucket.room(now_ms) <= 0:
                bucket.is_pressed = True

    def refused(self, reason: str, number: int = 1) -> None:
        """Count what was refused: `reason` as `far_over` has told it."""
        self._count(self.tenant, reason, LimitOutcome.REFUSED, number)

    def dropped(self, reason: str, number: int) -> None:
        """Count messages that were dropped."""
        self._count(self.tenant, reason, LimitOutcome.DROPPED, number)


def _delay_ms(buckets: Buckets, now_ms: int) -> int:
    delay_ms = 0.0
    for bucket in buckets:
        delay_ms = max(delay_ms, bucket.delay_ms(now_ms))
    return ceil(delay_ms)


def _far_over(buckets: Buckets, now_ms: int) -> str | None:
    for bucket in buckets:
        if bucket.is_far_over(now_ms):
            bucket.is_pressed = True
            return bucket.reason
    return None


def _room(buckets: Buckets, now_ms: int) -> int | None:
    return min([each.room(now_ms) for each in buckets], default=None)


def _room_until_refused(buckets: Buckets, now_ms: int) -> int | None:
    return min([each.room(now_ms, each.patience_ms) for each in buckets], default=None)


def _slowest(buckets: Iterable[Bucket], now_ms: int) -> str:
    worst = max(buckets, key=lambda each: each.delay_ms(now_ms), default=None)
    return worst.reason if worst is not None else ""
