"""Totals of tenants over all stores of a cluster, for a gateway: each store is asked what it has
counted of the topics that it leads (`tenant_totals`).

A store's counters begin at zero with its process, and what is shown here never falls: what a store
says more than the time before is added, and all that it says if that is less. What waits is known
only if every store has answered.
"""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Final

import msgspec

from gateway.admin.metrics.topic_metrics import SURVEYED_AT_ONCE
from kernel.common.errors import Code, KernelError
from kernel.remote.store_questions import ask_stores

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.admin.metrics.tenant_totals import TenantTotals
    from gateway.admin.metrics.topic_metrics import TopicMetrics
    from kernel.remote.leader_calls.leaders import RemoteLeaders
    from kernel.remote.store_questions import StoreQuestions

TOTALS: Final = "totals"
"""Kind of question."""

TENANTS_MAX: Final = 200
"""Of one answer: those that had most published."""

ANSWER_S: Final = 2.0

FRESH_MS: Final = 5_000
"""What was counted so shortly before is told again: several gateways ask every few seconds. For
each SURVEYED_AT_ONCE topics twice that longer, since counting takes long."""


class Figures(msgspec.Struct, frozen=True, array_like=True):
    """Of one tenant at one store. Counters since its process began, then what waits now."""

    published: int
    delivered: int
    acked: int
    ready: int
    leased: int


COUNTERS: Final = ("published", "delivered", "acked")
GAUGES: Final = ("ready", "leased")
_NOTHING: Final = Figures(0, 0, 0, 0, 0)

_encode = msgspec.msgpack.encode
_answers = msgspec.msgpack.Decoder(dict[str, Figures])


def answer_totals(questions: StoreQuestions, topics: TopicMetrics) -> None:
    """Have a store answer from now on."""

    async def answer(_asked: bytes) -> bytes:
        await topics.look(FRESH_MS * (1 + 2 * (topics.seen // SURVEYED_AT_ONCE)))
        most = sorted(topics.tenants.items(), key=lambda each: -each[1].now["published"])
        return _encode({tenant: _figures(found) for tenant, found in most[:TENANTS_MAX]})

    questions.serve(TOTALS, answer)


def _figures(found: TenantTotals) -> Figures:
    published, delivered, acked = (found.now[name] for name in COUNTERS)
    return Figures(published, delivered, acked, found.ready, found.leased)


class StoreTotals:
    """Of all stores, as a gateway adds them up."""

    def __init__(self, leaders: RemoteLeaders) -> None:
        self._leaders = leaders
        self._before: dict[int, dict[str, Figures]] = {}
        """What each store has said last."""
        self._counted: dict[str, dict[str, int]] = {}
        self.silent: dict[int, str] = {}
        """Stores that have not answered last, and why."""

    async def ask(self) -> Mapping[str, Mapping[str, float]]:
        """By tenant: counters that never fall, and what waits; nan: a store has not said."""
        found: dict[int, dict[str, Figures]] = {}

        def heard(number: int, answer: bytes) -> None:
            try:
                found[number] = _answers.decode(answer)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                message = "its answer cannot be read by this version"
                raise KernelError(Code.UNAVAILABLE, message) from None

        self.silent = await ask_stores(self._leaders, TOTALS, b"", ANSWER_S, heard)
        for number, tenants in found.items():
            self._add(number, tenants)
        return {tenant: self._shown(tenant, found) for tenant in self._counted}

    def _add(self, number: int, tenants: dict[str, Figures]) -> None:
        before = self._before.get(number)
        for tenant, now in tenants.items():
            counted = self._counted.setdefault(tenant, dict.fromkeys(COUNTERS, 0))
            if before is None:
                continue  # all that it had counted before this process asked
            known = before.get(tenant, _NOTHING)
            for name in COUNTERS:
                value, last = getattr(now, name), getattr(known, name)
                counted[name] += value - last if value >= last else value
        # Who is not among the first any more has not begun anew.
        self._before[number] = {**(before or {}), **tenants}

    def _shown(self, tenant: str, found: Mapping[int, Mapping[str, Figures]]) -> dict[str, float]:
        shown: dict[str, float] = dict(self._counted[tenant])
        for name in GAUGES:
            each = [getattr(tenants.get(tenant, _NOTHING), name) for tenants in found.values()]
            shown[name] = nan if self.silent else sum(each)
        return shown
