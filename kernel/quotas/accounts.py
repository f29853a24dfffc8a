"""All limits of a process at work: whose they are, their buckets, what they have done.

In a cluster a limit of tenants, users and topics is of all gateways together: each has a share of
it, which the manager grants with the gateways' reports (`kernel/cluster/limit_shares.py`). A limit
of a listener is of one process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from .account import Account, ConnectionLimit, LimitOutcome, Resolved
from .bucket import FAR_OVER_MS, Bucket
from .limits import (
    EACH,
    PER_SECOND,
    STORED,
    Entity,
    LimitKind,
    LimitSet,
    Scope,
    SizeLimit,
)

BUCKETS_MAX: Final = 65_536
"""At work at one time: some 200 bytes each. Beyond it the one that was made first is forgotten, and
whoever has used it up begins anew."""

COUNTS_MAX: Final = 4_096
"""Tenants and limits that are told apart in `counts`; what is beyond is counted as `OTHERS`."""

OTHERS: Final = "*"
"""In place of a tenant's name: of tenants that are not told apart."""

_NO_LIMITS: Final = LimitSet()


class Used(NamedTuple):
    """One limit and what becomes of it here."""

    entity: Entity
    kind: LimitKind
    limit: int
    amount: int
    """Ever, of a rate; now, of a number."""
    share: float
    """How much of the limit is this process's."""
    elsewhere: int
    """Of a number: at other gateways."""


class TopicAccounts(NamedTuple):
    """What may be published to, and got of, the topics of one name."""

    named: Account | None
    """Of whichever has the name; None: no limit names it."""
    sized: Account | None = None
    """With what `size` says besides."""
    size: SizeLimit | None = None

    def of(self, topic: int | None) -> Account | None:
        """Of the one with this id; None: it is not known."""
        return self.sized if self.size is not None and self.size.topic == topic else self.named


class Quotas:
    """All limits of a process. `version` rises with every change of them."""

    def __init__(self, limits: Mapping[Entity, LimitSet] | None = None) -> None:
        self.version = 0
        self._set: Mapping[Entity, LimitSet] = dict(limits or {})
        self._sizes: dict[tuple[str, str], SizeLimit] = {}
        self._limits: dict[Entity, LimitSet] = dict(self._set)
        """Those that were set, and those of sizes."""
        self._buckets: dict[tuple[Entity, LimitKind], Bucket] = {}
        self._held: dict[Entity, ConnectionLimit] = {}
        self._accounts: WeakValueDictionary[tuple[str, str, str], Account] = WeakValueDictionary()
        self._topics: dict[str, dict[str, TopicAccounts]] = {}
        self.default_share = 1.0
        """Of a limit that the manager has granted no share of."""
        self._shares: dict[tuple[Entity, LimitKind], float] = {}
        self._elsewhere: Mapping[Entity, int] = {}
        self._active: dict[tuple[Entity, LimitKind], None] | None = None
        """Limits a second of which something was used; None: nobody collects them."""
        self.counts: Counter[tuple[str, str, LimitOutcome]] = Counter()
        """What was delayed, refused and dropped, by tenant and limit."""
        self.stored: Mapping[Entity, tuple[int, int]] = {}
        """(messages, bytes) that is stored of tenants and topics that are limited, as somebody says
        who knows."""
        self._look_at_topics()

    @property
    def is_any(self) -> bool:
        """Whether there is any limit at all."""
        return bool(self._limits)

    def limits(self) -> Mapping[Entity, LimitSet]:
        """What is set now."""
        return self._limits

    def change(self, limits: Mapping[Entity, LimitSet], now_ms: int) -> None:
        """These are the limits from now on, for who is connected as well. What is owed by a limit
        that stays, with whatever rate, stays owed.
        """
        self._set = dict(limits)
        self._changed(now_ms)

    def change_sizes(self, sizes: Mapping[tuple[str, str], SizeLimit | None], now_ms: int) -> None:
        """The same, of what the sizes of topics say, by tenant and name; None: nothing any more.
        What is said of others stays.
        """
        former = dict(self._sizes)
        for name, size in sizes.items():
            self._sizes.pop(name, None)
            if size is not None:
                self._sizes[name] = size
        if self._sizes != former:
            self._changed(now_ms)

    def _changed(self, now_ms: int) -> None:
        former, limits = self._limits, dict(self._set)
        for (tenant, name), size in self._sizes.items():
            limits[Entity(Scope.SIZE, tenant, name)] = size.limits
        self._limits = limits
        self.version += 1
        changed = {
            entity
            for entity in former.keys() | limits.keys()
            if former.get(entity) != limits.get(entity)
        }
        for (entity, kind), bucket in list(self._buckets.items()):
            limit = self.limits_of(entity).of(kind)
            if limit is None:
                del self._buckets[entity, kind]
            else:
                bucket.patience_ms = self._patience_ms(entity)
                bucket.change(limit, bucket.share, now_ms)
        for entity, held in list(self._held.items()):
            limit = self.limits_of(entity).of(LimitKind.CONNECTIONS)
            if limit is None:
                del self._held[entity]
            else:
                held.limit = limit
        self._look_at_topics()
        # Of very many accounts few have to be looked at.
        tenants = {each.tenant for each in changed if each.scope is not Scope.LISTENER}
        listeners = {each.name for each in changed if each.scope is Scope.LISTENER}
        for (tenant, user, listener), account in list(self._accounts.items()):
            if tenant in tenants or EACH in tenants or listener in listeners:
                self._look_at(account, tenant, user, listener)

    def limits_of(self, entity: Entity) -> LimitSet:
        """The limits of one: its own, or else those of each."""
        own = self._limits.get(entity)
        if own is not None:
            return own
        if entity.scope is Scope.TENANT:
            return self._limits.get(Entity(Scope.TENANT, EACH, ""), _NO_LIMITS)
        if entity.scope is Scope.USER:
            return self._limits.get(Entity(Scope.USER, entity.tenant, EACH), _NO_LIMITS)
        return _NO_LIMITS

    def of_tenant(self, tenant: str) -> LimitSet:
        """The limits of one tenant."""
        return self.limits_of(Entity(Scope.TENANT, tenant, ""))

    # --- Accounts ---------------------------------------------------------------------------

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

    def tenants(self) -> set[Entity]:
        """Those of which somebody is served here."""
        return {Entity(Scope.TENANT, tenant, "") for tenant, _, _ in self._accounts}

    def topics(self, tenant: str) -> Mapping[str, TopicAccounts]:
        """The topics of a tenant that have limits of their own, by name."""
        return self._topics.get(tenant, {})

    def _look_at(self, account: Account, tenant: str, user: str, listener: str) -> None:
        limits = self._resolved(
            Entity(Scope.TENANT, tenant, ""),
            Entity(Scope.USER, tenant, user),
            Entity(Scope.LISTENER, "", listener),
        )
        account.be_limited_by(limits, has_topics=tenant in self._topics)

    def _look_at_topics(self) -> None:
        for topics in self._topics.values():
            for accounts in topics.values():
                for account in filter(None, (accounts.named, accounts.sized)):
                    # Nobody waits for a limit that is gone.
                    account.be_limited_by(Resolved({}), has_topics=False)
        self._topics = {}
        for entity in self._limits:
            if entity.scope is Scope.TOPIC:
                found = TopicAccounts(self._of_topic(entity))
                self._topics.setdefault(entity.tenant, {})[entity.name] = found
        for (tenant, name), size in self._sizes.items():
            topics = self._topics.setdefault(tenant, {})
            named = Entity(Scope.TOPIC, tenant, name)
            account = self._of_topic(named, Entity(Scope.SIZE, tenant, name))
            before = topics.get(name, TopicAccounts(None))
            topics[name] = TopicAccounts(before.named, account, size)

    def _of_topic(self, *entities: Entity) -> Account:
        account = Account(entities[0].tenant, "", self._count)
        account.be_limited_by(self._resolved(*entities), has_topics=False)
        return account

    def _resolved(self, *entities: Entity) -> Resolved:
        rates: dict[LimitKind, tuple[Bucket, ...]] = {}
        for kind in PER_SECOND:
            buckets = [self._bucket(entity, kind) for entity in entities]
            found = tuple(each for each in buckets if each is not None)
            if found:
                rates[kind] = found
        held = [self._connections(entity) for entity in entities]
        largest = [(entity, self.limits_of(entity).message_bytes) for entity in entities]
        return Resolved(
            rates,
            tuple(each for each in held if each is not None),
            tuple(
                (limit, _reason(entity, LimitKind.MESSAGE_BYTES))
                for entity, limit in largest
                if limit is not None
            ),
        )

    def _bucket(self, entity: Entity, kind: LimitKind) -> Bucket | None:
        bucket = self._buckets.get((entity, kind))
        if bucket is not None:
            return bucket
        limit = self.limits_of(entity).of(kind)
        if limit is None:
            return None
        if len(self._buckets) >= BUCKETS_MAX:
            del self._buckets[next(iter(self._buckets))]
        share, patience_ms = self._share_of(entity, kind), self._patience_ms(entity)
        bucket = Bucket(limit, _reason(entity, kind), share, patience_ms)
        self._buckets[entity, kind] = bucket
        if self._active is not None:
            self._watch(entity, kind, bucket)
        return bucket

    def _patience_ms(self, entity: Entity) -> int:
        size = self._sizes.get((entity.tenant, entity.name)) if entity.scope is Scope.SIZE else None
        return 0 if size is not None and size.fails else FAR_OVER_MS

    def _connections(self, entity: Entity) -> ConnectionLimit | None:
        held = self._held.get(entity)
        if held is not None:
            return held
        limit = self.limits_of(entity).connections
        if limit is None:
            return None
        if len(self._held) >= BUCKETS_MAX:
            for key in [key for key, each in self._held.items() if not each.here]:
                del self._held[key]
        held = self._held[entity] = ConnectionLimit(limit, _reason(entity, LimitKind.CONNECTIONS))
        if entity.scope is not Scope.LISTENER:
            held.elsewhere = self._elsewhere.get(entity, 0)
        return held

    # --- What is used, and shares -----------------------------------------------------------

    def used(self) -> Iterator[Used]:
        """Every limit that somebody has met."""
        for (entity, kind), bucket in self._buckets.items():
            yield Used(entity, kind, bucket.limit, bucket.used, bucket.share, 0)
        for entity, held in self._held.items():
            yield Used(entity, LimitKind.CONNECTIONS, held.limit, held.here, 1.0, held.elsewhere)
        for entity, stored in self.stored.items():
            limits = self.limits_of(entity)
            for kind, amount in zip(STORED, stored, strict=True):
                limit = limits.of(kind)
                if limit is not None:
                    yield Used(entity, kind, limit, amount, 1.0, 0)

    def collect(self) -> None:
        """From now on `take_active` is called once a second."""
        self._active = {}
        for (entity, kind), bucket in self._buckets.items():
            self._watch(entity, kind, bucket)

    def _watch(self, entity: Entity, kind: LimitKind, bucket: Bucket) -> None:
        active = self._active
        assert active is not None
        if entity.scope is not Scope.LISTENER:
            bucket.is_active = False
            bucket.used_first = partial(active.__setitem__, (entity, kind), None)
            if bucket.used:
                active[entity, kind] = None

    def take_active(self) -> list[tuple[Entity, LimitKind]]:
        """The limits a second that all gateways share, and that were used since the last call: of
        very many limits few are.
        """
        active = self._active
        assert active is not None, "collect was called"
        found = list(active)
        active.clear()
        for key in found:
            if key in self._buckets:
                self._buckets[key].is_active = False
        return found

    def look(self, entity: Entity, kind: LimitKind) -> tuple[int, int, bool] | None:
        """Of a limit a second: what it is, and since the last call what was used of it, and whether
        anybody had to wait; None: there is none any more.
        """
        bucket = self._buckets.get((entity, kind))
        if bucket is None:
            return None
        pressed, bucket.is_pressed = bucket.is_pressed, False
        used, bucket.used_seen = bucket.used - bucket.used_seen, bucket.used
        return bucket.limit, used, pressed

    def connections(self) -> Iterator[tuple[Entity, int, int]]:
        """Limits of connections that all gateways share, each with how many there are here, if
        there are any.
        """
        for entity, held in self._held.items():
            if held.here and entity.scope is not Scope.LISTENER:
                yield entity, held.limit, held.here

    def grant(
        self,
        default: float,
        shares: Mapping[tuple[Entity, LimitKind], float],
        elsewhere: Mapping[Entity, int],
        now_ms: int,
    ) -> None:
        """What this process may use of the limits of a cluster. `default`: of a rate that is not
        among the `shares`; `elsewhere`: connections at other gateways.
        """
        former, self._shares = self._shares, dict(shares)
        is_other, self.default_share = default != self.default_share, default
        for key in list(self._buckets) if is_other else former.keys() | shares.keys():
            bucket = self._buckets.get(key)
            share = self._share_of(*key)
            if bucket is not None and share != bucket.share:
                bucket.change(bucket.limit, share, now_ms)
        before, self._elsewhere = self._elsewhere, dict(elsewhere)
        for entity in before.keys() | elsewhere.keys():
            held = self._held.get(entity)
            if held is not None and entity.scope is not Scope.LISTENER:
                held.elsewhere = elsewhere.get(entity, 0)

    def _share_of(self, entity: Entity, kind: LimitKind) -> float:
        if entity.scope is Scope.LISTENER:
            return 1.0
        return self._shares.get((entity, kind), self.default_share)

    def refused(self, tenant: str, reason: str, number: int) -> None:
        """Count what somebody else has refused by a limit."""
        self._count(tenant, reason, LimitOutcome.REFUSED, number)

    def _count(self, tenant: str, reason: str, outcome: LimitOutcome, number: int) -> None:
        key = tenant, reason, outcome
        if key not in self.counts and len(self.counts) >= COUNTS_MAX:
            key = OTHERS, reason, outcome
        self.counts[key] += number


def _reason(entity: Entity, kind: LimitKind) -> str:
    return f"{entity.scope.value}.{kind.value}"
