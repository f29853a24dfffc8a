"""The limits of one process at work.

An `Account` is what one connection, or one caller, is limited by: the buckets of its tenant, its
user and its listener. Whoever serves it keeps it, and asks `is_limited` first, which is all that it
costs where nobody has set a limit. A limited topic has an account of its own.

Settling is counted and delayed as any request, and never refused; what the server itself publishes
(dead letters, wills) has no account, and meets no limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Final
from weakref import WeakValueDictionary

from .bucket import FAR_OVER_MS, Bucket
from .rates import EACH, Kind, Rates, Scope, Whose

BUCKETS_MAX: Final = 65_536
"""At work at one time: some 100 bytes each. Beyond it the one that was made first is forgotten, and
whoever has used it up begins anew."""

_NO_RATES: Final = Rates()


class Outcome(Enum):
    """What a limit has done."""

    DELAYED = "delayed"
    """A connection was not read from, or a call was answered later: each time counts as one."""
    REFUSED = "refused"
    """Messages and requests."""
    DROPPED = "dropped"
    """Messages that nobody waits to hear of."""


class Account:
    """What one connection is limited by. See `Quotas.account`."""

    __slots__ = (
        "__weakref__",
        "_count",
        "_of",
        "has_topics",
        "is_limited",
        "tenant",
        "user",
    )

    def __init__(self, tenant: str, user: str, count: _Count) -> None:
        self.tenant = tenant
        self.user = user
        self._count = count
        self._of: dict[Kind, tuple[Bucket, ...]] = {}
        self.is_limited = False
        """Whether anything below has anything to say: to be asked first (hot)."""
        self.has_topics = False
        """Whether a topic of the tenant has limits of its own."""

    def be_limited_by(self, of: dict[Kind, tuple[Bucket, ...]], *, has_topics: bool) -> None:
        """The limits are others now."""
        self._of = of
        self.has_topics = has_topics
        self.is_limited = has_topics or any(of.values())

    def published(self, now_ms: int, messages: int, size_bytes: int) -> int:
        """So much was published: for how long nothing more is to be read. Once for each batch."""
        for bucket in self._of.get(Kind.PUBLISHED_MESSAGES, ()):
            bucket.take(now_ms, messages)
        for bucket in self._of.get(Kind.PUBLISHED_BYTES, ()):
            bucket.take(now_ms, size_bytes)
        return self.delay_ms(now_ms)

    def requested(self, now_ms: int, requests: int = 1) -> int:
        """So many requests came: for how long nothing more is to be read."""
        for bucket in self._of.get(Kind.REQUESTS, ()):
            bucket.take(now_ms, requests)
        return self.delay_ms(now_ms)

    def delay_ms(self, now_ms: int) -> int:
        """After how long nothing is owed."""
        return max((each.delay_ms(now_ms) for each in self._all()), default=0)

    def far_over(self, now_ms: int, *kinds: Kind) -> str | None:
        """The limit of which so much is owed that more is refused; None: of none. `kinds`: only
        these.
        """
        for kind in kinds or Kind:
            for bucket in self._of.get(kind, ()):
                if bucket.is_far_over(now_ms):
                    return bucket.reason
        return None

    def room(self, now_ms: int) -> tuple[int | None, int | None]:
        """Messages and bytes that may be published before anything is owed; None: any number."""
        return (
            self._room(now_ms, Kind.PUBLISHED_MESSAGES, 0),
            self._room(now_ms, Kind.PUBLISHED_BYTES, 0),
        )

    def room_until_refused(self, now_ms: int) -> tuple[int | None, int | None]:
        """The same, before so much is owed that more is refused."""
        return (
            self._room(now_ms, Kind.PUBLISHED_MESSAGES, FAR_OVER_MS),
            self._room(now_ms, Kind.PUBLISHED_BYTES, FAR_OVER_MS),
        )

    def slowest(self, now_ms: int) -> str:
        """The limit that asks for the longest delay."""
        worst = max(self._all(), key=lambda each: each.delay_ms(now_ms), default=None)
        return worst.reason if worst is not None else ""

    def delayed(self, now_ms: int) -> None:
        """Count a delay."""
        self._count(self.tenant, self.slowest(now_ms), Outcome.DELAYED, 1)

    def refused(self, reason: str, number: int = 1) -> None:
        """Count what was refused: `reason` as `far_over` has told it."""
        self._count(self.tenant, reason, Outcome.REFUSED, number)

    def dropped(self, now_ms: int, number: int) -> None:
        """Count messages that were dropped."""
        self._count(self.tenant, self.slowest(now_ms), Outcome.DROPPED, number)

    def _room(self, now_ms: int, kind: Kind, ahead_ms: int) -> int | None:
        buckets = self._of.get(kind, ())
        if not buckets:
            return None
        return min(each.room(now_ms) + each.rate * ahead_ms // 1_000 for each in buckets)

    def _all(self) -> Iterator[Bucket]:
        for buckets in self._of.values():
            yield from buckets


_Count = Callable[[str, str, Outcome, int], None]


class Quotas:
    """All limits of a process. `version` rises with every change of them."""

    def __init__(self, limits: Mapping[Whose, Rates] | None = None) -> None:
        self.version = 0
        self._limits: dict[Whose, Rates] = dict(limits or {})
        self._buckets: dict[tuple[Whose, Kind], Bucket] = {}
        self._accounts: WeakValueDictionary[tuple[str, str, str], Account] = WeakValueDictionary()
        self._topics: dict[str, dict[str, Account]] = {}
        self.counts: Counter[tuple[str, str, Outcome]] = Counter()
        """What was delayed, refused and dropped, by tenant and limit."""
        self._look_at_topics()

    @property
    def is_any(self) -> bool:
        """Whether there is any limit at all."""
        return bool(self._limits)

    def limits(self) -> Mapping[Whose, Rates]:
        """What is set now."""
        return self._limits

    def change(self, limits: Mapping[Whose, Rates]) -> None:
        """These are the limits from now on, for who is connected as well. What is owed by a limit
        that stays, with whatever rate, stays owed.
        """
        self._limits = dict(limits)
        self.version += 1
        for (whose, kind), bucket in list(self._buckets.items()):
            rate = self._rates(whose).of(kind)
            if rate is None:
                del self._buckets[whose, kind]
            else:
                bucket.change(rate)
        self._look_at_topics()
        for (tenant, user, listener), account in list(self._accounts.items()):
            self._look_at(account, tenant, user, listener)

    def account(self, tenant: str, user: str, listener: str) -> Account:
        """What a connection of a user is limited by; `listener`: `protocol.name`. To be kept by the
        caller as long as the connection is there.
        """
        key = tenant, user, listener
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = Account(tenant, user, self._count)
            self._look_at(account, tenant, user, listener)
        return account

    def topics(self, tenant: str) -> Mapping[str, Account]:
        """The topics of a tenant that have limits of their own, by name."""
        return self._topics.get(tenant, {})

    def topic(self, tenant: str, name: str) -> Account | None:
        """The limits of one topic; None: it has none."""
        topics = self._topics.get(tenant)
        return None if topics is None else topics.get(name)

    def _look_at(self, account: Account, tenant: str, user: str, listener: str) -> None:
        of = self._buckets_of(
            Whose(Scope.TENANT, tenant, ""),
            Whose(Scope.USER, tenant, user),
            Whose(Scope.LISTENER, "", listener),
        )
        account.be_limited_by(of, has_topics=tenant in self._topics)

    def _look_at_topics(self) -> None:
        for topics in self._topics.values():
            for account in topics.values():
                # Nobody waits for a limit that is gone.
                account.be_limited_by({}, has_topics=False)
        self._topics = {}
        for whose in self._limits:
            if whose.scope is Scope.TOPIC:
                account = Account(whose.tenant, "", self._count)
                account.be_limited_by(self._buckets_of(whose), has_topics=False)
                self._topics.setdefault(whose.tenant, {})[whose.name] = account

    def _buckets_of(self, *all_whose: Whose) -> dict[Kind, tuple[Bucket, ...]]:
        found: dict[Kind, tuple[Bucket, ...]] = {}
        for kind in Kind:
            buckets = tuple(
                bucket for whose in all_whose if (bucket := self._bucket(whose, kind)) is not None
            )
            if buckets:
                found[kind] = buckets
        return found

    def _bucket(self, whose: Whose, kind: Kind) -> Bucket | None:
        bucket = self._buckets.get((whose, kind))
        if bucket is not None:
            return bucket
        rate = self._rates(whose).of(kind)
        if rate is None:
            return None
        if len(self._buckets) >= BUCKETS_MAX:
            del self._buckets[next(iter(self._buckets))]
        # At any time before now a new one is full.
        bucket = Bucket(rate, f"{whose.scope.value}.{kind.value}", 0)
        self._buckets[whose, kind] = bucket
        return bucket

    def _rates(self, whose: Whose) -> Rates:
        """The limits of one: its own, or else those of each."""
        own = self._limits.get(whose)
        if own is not None:
            return own
        if whose.scope is Scope.TENANT:
            return self._limits.get(Whose(Scope.TENANT, EACH, ""), _NO_RATES)
        if whose.scope is Scope.USER:
            return self._limits.get(Whose(Scope.USER, whose.tenant, EACH), _NO_RATES)
        return _NO_RATES

    def _count(self, tenant: str, reason: str, outcome: Outcome, number: int) -> None:
        self.counts[tenant, reason, outcome] += number
