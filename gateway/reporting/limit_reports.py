"""What a gateway tells of the limits that are used there, and what it hears that it may use
(`kernel.cluster.limit_shares`).

While nobody leads group 0 a gateway goes on with what it was granted; after ALONE_REPORTS without
an answer it takes no more than any other one, for the manager has given its share to the others.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from kernel.cluster.messages import LIMITS_TOLD_MAX, LimitUse
from kernel.quotas.limits import EACH, PER_SECOND, STORED, Entity, LimitKind, Scope

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

_Key = tuple[Entity, LimitKind]


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
            found.append(
                LimitUse(scope.value, tenant, name, LimitKind.CONNECTIONS.value, part, here)
            )
        found += self._stored()
        found.sort(key=lambda each: each.wanted, reverse=True)
        return found[:LIMITS_TOLD_MAX]

    def _stored(self) -> list[LimitUse]:
        """Questions for what is stored of who is limited: the stores know."""
        quotas = self._quotas
        entities = dict.fromkeys(each for each in quotas.limits() if each.scope in _STORING)
        entities.update(dict.fromkeys(quotas.tenants()))
        found: list[LimitUse] = []
        for entity in entities:
            limits, stored = quotas.limits_of(entity), quotas.stored.get(entity, (0, 0))
            for kind, amount in zip(STORED, stored, strict=True):
                limit = limits.of(kind)
                if limit is not None and entity.tenant != EACH:
                    part = min(amount / limit, 1.0)
                    (scope, tenant, name) = entity
                    found.append(LimitUse(scope.value, tenant, name, kind.value, part))
        return found

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
        elsewhere: dict[Entity, int] = {}
        stored: dict[Entity, list[int]] = {}
        for each in shares:
            entity = Entity(Scope(each.scope), each.tenant, each.name)
            if each.kind == LimitKind.CONNECTIONS.value:
                elsewhere[entity] = each.elsewhere
            elif each.kind in _STORED:
                stored.setdefault(entity, [0, 0])[_STORED.index(each.kind)] = each.elsewhere
            elif each.kind in _KINDS:
                rates[entity, LimitKind(each.kind)] = each.share
        self._quotas.stored = {entity: (each[0], each[1]) for entity, each in stored.items()}
        self._quotas.grant(1 / self._gateways, rates, elsewhere, self._clock.monotonic_ms())


_STORED: Final = tuple(each.value for each in STORED)

_STORING: Final = (Scope.TENANT, Scope.TOPIC)
"""Whose limits of what is stored there may be."""

_KINDS: Final = frozenset(each.value for each in PER_SECOND)
