"""Totals of each tenant, added up by a survey of all topics.

The counters begin at zero with the process and never fall: what a survey has found more than the
one before is added. When another process leads a group from now on, or this one does, what is found
is the new beginning; so is the first survey.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from kernel.common.ids import RaftGroup
    from kernel.store.replicas.replica import Replica
    from kernel.store.topic_figures import TopicFigures

TENANTS_MAX = 1_000
"""Tenants with totals of their own; what comes later counts for OTHERS."""

OTHERS = "__other"


class TenantTotals:
    """Of one tenant."""

    COUNTERS: ClassVar = (
        "published",
        "published_bytes",
        "delivered",
        "delivered_bytes",
        "redelivered",
        "acked",
        "dead_lettered",
        "discarded",
        "refused",
    )

    def __init__(self) -> None:
        self.topics = self.messages = self.ready = self.leased = 0
        self.now: dict[str, int] = dict.fromkeys(self.COUNTERS, 0)
        """What is shown."""
        self._exact = dict(self.now)
        self._found = dict(self.now)
        """What the last survey found."""

    def take(self, figures: Mapping[str, int], *, anew: bool) -> None:
        """A survey is over. Between its beginning and its end topics may go, so that for once it
        finds less: what is shown stays then.
        """
        for name in self.COUNTERS:
            found = figures.get(name, 0)
            if not anew:
                self._exact[name] += found - self._found[name]
                self.now[name] = max(self.now[name], self._exact[name])
            self._found[name] = found


class Totals:
    """Of all tenants."""

    def __init__(self) -> None:
        self.tenants: dict[str, TenantTotals] = {}
        self._terms: dict[RaftGroup, int] | None = None

    def begin(self, replicas: Sequence[Replica]) -> Round:
        """A survey begins."""
        found = Round(self.tenants)
        terms = {each.group: each.times_served for each in replicas if each.serving}
        found.anew = terms != self._terms
        self._terms = terms
        for replica in replicas:
            for tenant, gone in replica.counts.gone.items():
                sums = found.of(tenant)
                for name in TenantTotals.COUNTERS:
                    sums[name] = sums.get(name, 0) + getattr(gone, name)
        return found

    def end(self, found: Round) -> None:
        """It is over."""
        for tenant in found.sums.keys() | self.tenants.keys():
            known = self.tenants.get(tenant)
            if known is None:
                known = self.tenants[tenant] = TenantTotals()
            sums = found.sums.get(tenant, {})
            known.topics, known.messages = sums.get("topics", 0), sums.get("messages", 0)
            known.ready, known.leased = sums.get("ready", 0), sums.get("leased", 0)
            known.take(sums, anew=found.anew)


class Round:
    """One survey."""

    def __init__(self, known: Container[str]) -> None:
        """`known`: tenants with totals of their own."""
        self._known = known
        self.sums: dict[str, dict[str, int]] = {}
        self.anew = True

    def of(self, tenant: str) -> dict[str, int]:
        """The sums of a tenant."""
        found = self.sums.get(tenant)
        if found is None:
            if tenant not in self._known and len(self.sums) >= TENANTS_MAX:
                return self.sums.setdefault(OTHERS, dict.fromkeys(_SUMMED, 0))
            found = self.sums[tenant] = dict.fromkeys(_SUMMED, 0)
        return found

    def add(self, topic: TopicFigures) -> None:
        """One topic more (hot: 100,000 of them in a survey)."""
        sums = self.of(topic.info.tenant)
        sums["topics"] += 1
        sums["messages"] += topic.messages
        sums["published"] += topic.published
        sums["published_bytes"] += topic.published_bytes
        sums["refused"] += topic.refused
        sums["acked"] += topic.acked
        for group in topic.groups.values():
            if group.lag:
                sums["ready"] += group.ready
                sums["leased"] += group.leased
            counts = group.counts
            if counts.delivered:
                sums["delivered"] += counts.delivered
                sums["delivered_bytes"] += counts.delivered_bytes
                sums["redelivered"] += counts.redelivered
            if counts.dead_letters or counts.discarded:
                sums["dead_lettered"] += sum((counts.dead_letters or {}).values())
                sums["discarded"] += sum((counts.discarded or {}).values())


_SUMMED = ("topics", "messages", "ready", "leased", *TenantTotals.COUNTERS)
