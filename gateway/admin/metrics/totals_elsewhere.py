"""Totals of tenants over all of a cluster, for a gateway: each store, and each other gateway, is
asked what it has counted of the topics that it leads (`tenant_totals`). Gateways lead transient
topics.

The counters of a process begin at zero with it, and what is shown here never falls: what a process
says more than the time before is added, and all that it says if that is less. What waits is known
only if every store that leads a group has answered (one that is gone soon leads none); without a
gateway, it is what waits in all other places.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gateway.admin.metrics.topic_metrics import SURVEYED_AT_ONCE
from kernel.common.errors import UNDECODABLE, Code, KernelError
from kernel.remote.store_questions import ask_stores

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.admin.metrics.tenant_totals import TenantTotals
    from gateway.admin.metrics.topic_metrics import TopicMetrics
    from kernel.remote.leader_calls.answering import Answering
    from kernel.remote.leader_calls.leaders import RemoteLeaders
    from kernel.remote.mesh.questions import Questions

TOTALS: Final = "totals"
"""Kind of question."""

ANSWER_S: Final = 2.0

FRESH_MS: Final = 5_000
"""What was counted so shortly before is told again: several gateways ask every few seconds. For
each SURVEYED_AT_ONCE topics twice that longer, since counting takes long."""

PROCESSES_MAX: Final = 256
"""Of which it is known what they said last: stores and gateways, and some that ended. With 1,000
tenants at each some 60 MB.
"""


class Figures(msgspec.Struct, frozen=True, array_like=True):
    """Of one tenant at one process. Counters since it began, then what waits now."""

    published: int
    delivered: int
    acked: int
    ready: int
    leased: int


class Told(msgspec.Struct, frozen=True, array_like=True):
    """What one process answers."""

    process: str
    """What it is called, also after it has begun anew."""
    tenants: dict[str, Figures]
    """`tenant_totals.TENANTS_MAX` of them, and one for all others: some 100 KB."""


class Missing(NamedTuple):
    """A process that has not answered."""

    who: str
    """For everybody."""
    why: str
    """For who administers the node: which one, and why. It may name an address."""


COUNTERS: Final = ("published", "delivered", "acked")
_NOTHING: Final = Figures(0, 0, 0, 0, 0)

_encode = msgspec.msgpack.encode
_answers = msgspec.msgpack.Decoder(Told)


def answer_totals(answering: Answering, topics: TopicMetrics, process: str) -> None:
    """Have a process answer from now on."""

    async def answer(_asked: bytes) -> bytes:
        await topics.look(FRESH_MS * (1 + 2 * (topics.seen // SURVEYED_AT_ONCE)))
        tenants = {name: _figures(each) for name, each in topics.tenants.items()}
        return _encode(Told(process, tenants))

    answering.serve(TOTALS, answer)


def _figures(found: TenantTotals) -> Figures:
    published, delivered, acked = (found.now[name] for name in COUNTERS)
    return Figures(published, delivered, acked, found.ready, found.leased)


class TotalsElsewhere:
    """Of all other processes, as a gateway adds them up."""

    def __init__(self, leaders: RemoteLeaders, gateways: Questions) -> None:
        self._leaders = leaders
        self._gateways = gateways
        self._before: dict[str, dict[str, Figures]] = {}
        """What each process has said last."""
        self._counted: dict[str, dict[str, int]] = {}
        self.silent: list[Missing] = []
        """Who has not answered last: stores that lead something, and gateways."""
        self.is_whole = False
        """Whether every store that leads something has answered last."""

    async def ask(self) -> Mapping[str, Mapping[str, int]]:
        """By tenant: counters that never fall, and what waits at those who have answered."""
        found: dict[str, dict[str, Figures]] = {}

        def heard(answer: bytes) -> None:
            try:
                told = _answers.decode(answer)
            except UNDECODABLE:
                message = "its answer cannot be read by this version"
                raise KernelError(Code.UNAVAILABLE, message) from None
            found[told.process] = told.tenants

        def heard_store(_number: int, answer: bytes) -> None:
            heard(answer)

        stores, gateways = await asyncio.gather(
            ask_stores(self._leaders, TOTALS, b"", ANSWER_S, heard_store),
            self._gateways.ask(TOTALS, b"", ANSWER_S, heard),
        )
        table = self._leaders.table
        leading = {table.of(group) for group in table.groups}
        missed = {number: reason for number, reason in stores.items() if number in leading}
        self.is_whole = not missed
        self.silent = [
            Missing(f"store {number}", f"store {number}: {reason}")
            for number, reason in sorted(missed.items())
        ]
        self.silent += [
            Missing("a gateway", f"gateway {each.gateway}: {each.reason}") for each in gateways
        ]
        for process, tenants in found.items():
            self._add(process, tenants)
        self._forget()
        return {name: self._shown(name, found) for name in self._counted}

    def _add(self, process: str, tenants: dict[str, Figures]) -> None:
        before = self._before.get(process)
        for tenant, now in tenants.items():
            counted = self._counted.setdefault(tenant, dict.fromkeys(COUNTERS, 0))
            if before is None:
                continue  # all that it had counted before this process asked
            known = before.get(tenant, _NOTHING)
            for name in COUNTERS:
                value, last = getattr(now, name), getattr(known, name)
                counted[name] += value - last if value >= last else value
        # The youngest stand last.
        self._before.pop(process, None)
        self._before[process] = tenants

    def _forget(self) -> None:
        """Processes that are long gone, and tenants of which nobody tells any more."""
        while len(self._before) > PROCESSES_MAX:
            del self._before[next(iter(self._before))]
        told = {name for tenants in self._before.values() for name in tenants}
        for name in self._counted.keys() - told:
            del self._counted[name]

    def _shown(self, tenant: str, found: Mapping[str, Mapping[str, Figures]]) -> dict[str, int]:
        waiting = [tenants.get(tenant, _NOTHING) for tenants in found.values()]
        ready, leased = sum(each.ready for each in waiting), sum(each.leased for each in waiting)
        return {**self._counted[tenant], "ready": ready, "leased": leased}
