"""What a gateway tells of the limits that are used there, and what it hears that it may use
(`kernel.cluster.limit_shares`).

While nobody leads group 0 a gateway goes on with what it was granted; after ALONE_REPORTS without
an answer it takes no more than any other one, for the manager has given its share to the others.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from kernel.cluster.messages import LIMITS_TOLD_MAX, LimitUse
from kernel.quotas.rates import PER_SECOND, Kind, Scope, Whose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel.cluster.messages import LimitShare, Orders
    from kernel.common.ports import Clock
    from kernel.quotas.accounts import Quotas

HEADROOM: Final = 1.25
"""Of what was used, so much is asked for: who uses more than before is not held at once."""

SECONDS_KEPT: Final = 3
"""Seconds of which the busiest counts: clients send in bursts."""

ALONE_REPORTS: Final = 5
"""As many reports missed have the manager take a gateway for gone."""

_Key = tuple[Whose, Kind]


class LimitReports:
    """Of one gateway."""

    def __init__(self, quotas: Quotas, clock: Clock) -> None:
        self._quotas = quotas
        quotas.collect()
        self._clock = clock
        self._looked_ms = clock.monotonic_ms()
        self._lately: dict[_Key, deque[float]] = {}
        self._gateways = 1
        self._missed = 0

    def uses(self) -> list[LimitUse]:
        """What is used of limits that all gateways share, since the last call."""
        now_ms = self._clock.monotonic_ms()
        seconds = max(now_ms - self._looked_ms, 1) / 1_000
        self._looked_ms = now_ms
        found: list[LimitUse] = []
        for key in dict.fromkeys([*self._quotas.take_active(), *self._lately]):
            looked = self._quotas.look(*key)
            parts = self._lately.setdefault(key, deque(maxlen=SECONDS_KEPT))
            if looked is not None:
                limit, used, pressed = looked
                parts.append(1.0 if pressed else min(used / seconds / limit * HEADROOM, 1.0))
            if looked is None or not any(parts):
                del self._lately[key]
                continue
            (scope, tenant, name), kind = key
            found.append(LimitUse(scope.value, tenant, name, kind.value, max(parts)))
        for (scope, tenant, name), limit, here in self._quotas.connections():
            part = min(here / limit, 1.0)
            found.append(LimitUse(scope.value, tenant, name, Kind.CONNECTIONS.value, part, here))
        found.sort(key=lambda each: each.wanted, reverse=True)
        return found[:LIMITS_TOLD_MAX]

    def granted(self, orders: Orders) -> None:
        """The manager's answer."""
        self._missed = 0
        self._gateways = orders.gateways or len(orders.others) + 1
        self._grant(orders.shares)

    def missed(self) -> None:
        """There was none."""
        self._missed += 1
        if self._missed == ALONE_REPORTS:
            self._grant(())

    def _grant(self, shares: Sequence[LimitShare]) -> None:
        rates: dict[_Key, float] = {}
        elsewhere: dict[Whose, int] = {}
        for each in shares:
            whose = Whose(Scope(each.scope), each.tenant, each.name)
            if each.kind == Kind.CONNECTIONS.value:
                elsewhere[whose] = each.elsewhere
            elif each.kind in _KINDS:
                rates[whose, Kind(each.kind)] = each.share
        self._quotas.grant(1 / self._gateways, rates, elsewhere, self._clock.monotonic_ms())


_KINDS: Final = frozenset(each.value for each in PER_SECOND)
