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

from .account import Account, Held, Outcome, Resolved
from .bucket import Bucket
from .rates import EACH, PER_SECOND, Kind, Rates, Scope, Whose

BUCKETS_MAX: Final = 65_536
"""At work at one time: some 200 bytes each. Beyond it the one that was made first is forgotten, and
whoever has used it up begins anew."""

COUNTS_MAX: Final = 4_096
"""Tenants and limits that are told apart in `counts`; what is beyond is counted as `OTHERS`."""

OTHERS: Final = "*"
"""In place of a tenant's name: of tenants that are not told apart."""

_NO_RATES: Final = Rates()


class Used(NamedTuple):
    """One limit and what becomes of it here."""

    whose: Whose
    kind: Kind
    limit: int
    amount: int
    """Ever, of a rate; now, of a number."""
    share: float
    """How much of the limit is this process's."""
    elsewhere: int
    """Of a number: at other gateways."""


class Quotas:
    """All limits of a process. `version` rises with every change of them."""

    def __init__(self, limits: Mapping[Whose, Rates] | None = None) -> None:
        self.version = 0
        self._limits: dict[Whose, Rates] = dict(limits or {})
        self._buckets: dict[tuple[Whose, Kind], Bucket] = {}
        self._held: dict[Whose, Held] = {}
        self._accounts: WeakValueDictionary[tuple[str, str, str], Account] = WeakValueDictionary()
        self._topics: dict[str, dict[str, Account]] = {}
        self.default_share = 1.0
        """Of a limit that the manager has granted no share of."""
        self._shares: dict[tuple[Whose, Kind], float] = {}
        self._elsewhere: Mapping[Whose, int] = {}
        self._active: dict[tuple[Whose, Kind], None] | None = None
        """Limits a second of which something was used; None: nobody collects them."""
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

    def change(self, limits: Mapping[Whose, Rates], now_ms: int) -> None:
        """These are the limits from now on, for who is connected as well. What is owed by a limit
        that stays, with whatever rate, stays owed.
        """
        former, self._limits = self._limits, dict(limits)
        self.version += 1
        changed = {
            whose
            for whose in former.keys() | limits.keys()
            if former.get(whose) != limits.get(whose)
        }
        for (whose, kind), bucket in list(self._buckets.items()):
            limit = self.rates_of(whose).of(kind)
            if limit is None:
                del self._buckets[whose, kind]
            else:
                bucket.change(limit, bucket.share, now_ms)
        for whose, held in list(self._held.items()):
            limit = self.rates_of(whose).of(Kind.CONNECTIONS)
            if limit is None:
                del self._held[whose]
            else:
                held.limit = limit
        self._look_at_topics()
        # Of very many accounts few have to be looked at.
        tenants = {each.tenant for each in changed if each.scope is not Scope.LISTENER}
        listeners = {each.name for each in changed if each.scope is Scope.LISTENER}
        for (tenant, user, listener), account in list(self._accounts.items()):
            if tenant in tenants or EACH in tenants or listener in listeners:
                self._look_at(account, tenant, user, listener)

    def rates_of(self, whose: Whose) -> Rates:
        """The limits of one: its own, or else those of each."""
        own = self._limits.get(whose)
        if own is not None:
            return own
        if whose.scope is Scope.TENANT:
            return self._limits.get(Whose(Scope.TENANT, EACH, ""), _NO_RATES)
        if whose.scope is Scope.USER:
            return self._limits.get(Whose(Scope.USER, whose.tenant, EACH), _NO_RATES)
        return _NO_RATES

    def of_tenant(self, tenant: str) -> Rates:
        """The limits of one tenant."""
        return self.rates_of(Whose(Scope.TENANT, tenant, ""))

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

    def topics(self, tenant: str) -> Mapping[str, Account]:
        """The topics of a tenant that have limits of their own, by name."""
        return self._topics.get(tenant, {})

    def topic(self, tenant: str, name: str) -> Account | None:
        """The limits of one topic; None: it has none."""
        topics = self._topics.get(tenant)
        return None if topics is None else topics.get(name)

    def _look_at(self, account: Account, tenant: str, user: str, listener: str) -> None:
        limits = self._resolved(
            Whose(Scope.TENANT, tenant, ""),
            Whose(Scope.USER, tenant, user),
            Whose(Scope.LISTENER, "", listener),
        )
        account.be_limited_by(limits, has_topics=tenant in self._topics)

    def _look_at_topics(self) -> None:
        for topics in self._topics.values():
            for account in topics.values():
                # Nobody waits for a limit that is gone.
                account.be_limited_by(Resolved({}), has_topics=False)
        self._topics = {}
        for whose in self._limits:
            if whose.scope is Scope.TOPIC:
                account = Account(whose.tenant, "", self._count)
                account.be_limited_by(self._resolved(whose), has_topics=False)
                self._topics.setdefault(whose.tenant, {})[whose.name] = account

    def _resolved(self, *all_whose: Whose) -> Resolved:
        rates: dict[Kind, tuple[Bucket, ...]] = {}
        for kind in PER_SECOND:
            buckets = [self._bucket(whose, kind) for whose in all_whose]
            found = tuple(each for each in buckets if each is not None)
            if found:
                rates[kind] = found
        held = [self._connections(whose) for whose in all_whose]
        largest = [(whose, self.rates_of(whose).message_bytes) for whose in all_whose]
        return Resolved(
            rates,
            tuple(each for each in held if each is not None),
            tuple(
                (limit, _reason(whose, Kind.MESSAGE_BYTES))
                for whose, limit in largest
                if limit is not None
            ),
        )

    def _bucket(self, whose: Whose, kind: Kind) -> Bucket | None:
        bucket = self._buckets.get((whose, kind))
        if bucket is not None:
            return bucket
        limit = self.rates_of(whose).of(kind)
        if limit is None:
            return None
        if len(self._buckets) >= BUCKETS_MAX:
            del self._buckets[next(iter(self._buckets))]
        bucket = Bucket(limit, _reason(whose, kind), self._share_of(whose, kind))
        self._buckets[whose, kind] = bucket
        if self._active is not None:
            self._watch(whose, kind, bucket)
        return bucket

    def _connections(self, whose: Whose) -> Held | None:
        held = self._held.get(whose)
        if held is not None:
            return held
        limit = self.rates_of(whose).connections
        if limit is None:
            return None
        if len(self._held) >= BUCKETS_MAX:
            for key in [key for key, each in self._held.items() if not each.here]:
                del self._held[key]
        held = self._held[whose] = Held(limit, _reason(whose, Kind.CONNECTIONS))
        return held

    # --- What is used, and shares -----------------------------------------------------------

    def used(self) -> Iterator[Used]:
        """Every limit that somebody has met."""
        for (whose, kind), bucket in self._buckets.items():
            yield Used(whose, kind, bucket.limit, bucket.used, bucket.share, 0)
        for whose, held in self._held.items():
            yield Used(whose, Kind.CONNECTIONS, held.limit, held.here, 1.0, held.elsewhere)

    def collect(self) -> None:
        """From now on `take_active` is called once a second."""
        self._active = {}
        for (whose, kind), bucket in self._buckets.items():
            self._watch(whose, kind, bucket)

    def _watch(self, whose: Whose, kind: Kind, bucket: Bucket) -> None:
        active = self._active
        assert active is not None
        if whose.scope is not Scope.LISTENER:
            bucket.is_active = False
            bucket.used_first = partial(active.__setitem__, (whose, kind), None)
            if bucket.used:
                active[whose, kind] = None

    def take_active(self) -> list[tuple[Whose, Kind]]:
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

    def look(self, whose: Whose, kind: Kind) -> tuple[int, int, bool] | None:
        """Of a limit a second: what it is, and since the last call what was used of it, and whether
        anybody had to wait; None: there is none any more.
        """
        bucket = self._buckets.get((whose, kind))
        if bucket is None:
            return None
        pressed, bucket.is_pressed = bucket.is_pressed, False
        used, bucket.used_seen = bucket.used - bucket.used_seen, bucket.used
        return bucket.limit, used, pressed

    def connections(self) -> Iterator[tuple[Whose, int, int]]:
        """Limits of connections that all gateways share, each with how many there are here, if
        there are any.
        """
        for whose, held in self._held.items():
            if held.here and whose.scope is not Scope.LISTENER:
                yield whose, held.limit, held.here

    def grant(
        self,
        default: float,
        shares: Mapping[tuple[Whose, Kind], float],
        elsewhere: Mapping[Whose, int],
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
        for whose in before.keys() | elsewhere.keys():
            held = self._held.get(whose)
            if held is not None and whose.scope is not Scope.LISTENER:
                held.elsewhere = elsewhere.get(whose, 0)

    def _share_of(self, whose: Whose, kind: Kind) -> float:
        if whose.scope is Scope.LISTENER:
            return 1.0
        return self._shares.get((whose, kind), self.default_share)

    def _count(self, tenant: str, reason: str, outcome: Outcome, number: int) -> None:
        key = tenant, reason, outcome
        if key not in self.counts and len(self.counts) >= COUNTS_MAX:
            key = OTHERS, reason, outcome
        self.counts[key] += number


def _reason(whose: Whose, kind: Kind) -> str:
    return f"{whose.scope.value}.{kind.value}"
