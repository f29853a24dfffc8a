"""Calls of an API, counted for the bill: by tenant, the call's own name, and how it ended.

For protocols of requests and answers (SQS, RocketMQ). What is counted is the call with the octets
of its request and of its answer; the messages in it are counted by the store, which holds them.

A call that was carried out costs two look-ups and three additions. It does not go through
`Counter.call`, which would cost it another half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metering.counters import UNIT_64K, units_64k
from metering.schema import Action, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from metering.counters import Counter

# Tenants whose counters are kept at hand, some dozen each; beyond it they are looked up again.
TENANTS_MAX = 10_000

# Members of an enum are hashed by Python code: 0.2 us a call.
_OK = Outcome.OK.value


class Calls:
    """Counts the calls of one protocol's adapter. `adapters.base.CallMeter`."""

    __slots__ = ("_actions", "_counter", "_ok")

    def __init__(
        self, counter: Callable[[str, str, str, str], Counter], actions: Mapping[str, str]
    ) -> None:
        """`counter(tenant, action, name, outcome)` makes a counter or finds it; `actions` by the
        call's name: all others administer.
        """
        self._counter = counter
        self._actions = actions
        self._ok: dict[str, dict[str, Counter]] = {}

    def answered(self, tenant: str, name: str, bytes_in: int, bytes_out: int) -> None:
        """A call was carried out (hot)."""
        try:
            counter = self._ok[tenant][name]
        except KeyError:
            counter = self._find(tenant, name)
        if counter.idle:
            counter.touch()
        counter.requests += 1
        counter.bytes_in += bytes_in
        counter.bytes_out += bytes_out
        if bytes_in > UNIT_64K or bytes_out > UNIT_64K:
            counter.more_units_64k += units_64k(max(bytes_in, bytes_out)) - 1

    def ended(self, tenant: str, name: str, outcome: str, bytes_in: int, bytes_out: int) -> None:
        """A call ended otherwise: one of `metering.schema.Outcome`."""
        action = self._actions.get(name, Action.ADMIN)
        self._counter(tenant, action, name, outcome).call(bytes_in, bytes_out)

    def _find(self, tenant: str, name: str) -> Counter:
        if len(self._ok) >= TENANTS_MAX:
            self._ok.clear()
        counter = self._counter(tenant, self._actions.get(name, Action.ADMIN), name, _OK)
        self._ok.setdefault(tenant, {})[name] = counter
        return counter
