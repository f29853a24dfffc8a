"""The meter as one protocol's adapter sees it: counters by what happened, in that protocol's name.

`adapters.base.TrafficMeter`, one object for each adapter. What it counts is what the log does not
hold: calls of an API, deliveries without a timed lease, messages that reached nobody, connections
and their octets. An adapter asks for a counter once and keeps it where it counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metering.calls import Calls
from metering.schema import Action, Kind, Outcome, QueueClass
from metering.store_source import short
from metering.window import RowKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from metering.counters import Counter, Gauge, Meter

# Handles by (tenant, call, outcome): a few dozen a tenant; beyond it they are looked up again.
CALL_HANDLES_MAX = 20_000


# Members of an enum are hashed by Python code: 0.2 us a call.
_OK = Outcome.OK.value


class CountedByTheStore:
    """Counter of deliveries that are timed leases: the store has counted them with the lease."""

    def count(self, messages: int, size_bytes: int, units_4k: int, /) -> None:
        """Nothing to count."""


class Traffic:
    """Counts one protocol's traffic. Belongs to one event loop, like the meter."""

    def __init__(
        self,
        meter: Meter,
        protocol: str,
        clock_us: Callable[[], int],
        *,
        leases_are_timed: bool = False,
        region: str = "",
    ) -> None:
        """`leases_are_timed`: all that the protocol delivers is leased by the log until a deadline
        (SQS, RocketMQ), and so counted by the store.
        """
        self._meter = meter
        self._protocol = protocol
        self._clock_us = clock_us
        self._leases_are_timed = leases_are_timed
        self._region = region
        self._calls: dict[tuple[str, str, str], Counter] = {}
        self._connects: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}

    def delivery_counter(
        self, tenant: str, topic: str, group: str, queue_class: str = QueueClass.STANDARD
    ) -> Counter | CountedByTheStore:
        """Messages handed to a consumer group's members."""
        if self._leases_are_timed:
            return CountedByTheStore()
        return self._counter(
            tenant, Action.DELIVER, topic=short(topic), group=short(group), queue_class=queue_class
        )

    def unleased_counter(self, tenant: str, topic: str, group: str) -> Counter:
        """Messages handed to a group's members without a lease."""
        return self._counter(
            tenant,
            Action.DELIVER,
            topic=short(topic),
            group=short(group),
            queue_class=QueueClass.STANDARD,
        )

    def call_counter(self, tenant: str, action: str, name: str, outcome: str = _OK) -> Counter:
        """Calls of an API, by their own name; cheap enough to ask for with every call."""
        known = self._calls.get((tenant, name, outcome))
        if known is None:
            if len(self._calls) >= CALL_HANDLES_MAX:
                self._calls.clear()
            known = self._counter(tenant, action, api_action=name, outcome=outcome)
            self._calls[tenant, name, outcome] = known
        return known

    def calls(self, actions: Mapping[str, str]) -> Calls:
        """Counts calls by their names; `actions` of those that do not administer."""
        return Calls(self.call_counter, actions)

    def unstored_counter(self, tenant: str, queue_class: str = QueueClass.STANDARD) -> Counter:
        """Messages that were taken and that no topic holds: publishes like any other."""
        return self._counter(tenant, Action.PUBLISH, queue_class=queue_class)

    def unroutable_counter(self, tenant: str) -> Counter:
        """Messages that were taken and had no destination: publishes that are not billed."""
        return self._counter(tenant, Action.PUBLISH, outcome=Outcome.EMPTY)

    def connection_opened(self, tenant: str) -> None:
        """A connection of a tenant is there."""
        self.octet_counter(tenant).call(0, 0)
        gauge = self._gauge(tenant)
        gauge.set(gauge.level + 1, self._clock_us())

    def connection_closed(self, tenant: str) -> None:
        """A connection of a tenant is gone."""
        gauge = self._gauge(tenant)
        gauge.set(max(gauge.level - 1, 0), self._clock_us())

    def octet_counter(self, tenant: str) -> Counter:
        """Octets of a tenant's connections, headers and all; kept by each connection."""
        known = self._connects.get(tenant)
        if known is None:
            known = self._connects[tenant] = self._counter(tenant, Action.CONNECT)
        return known

    def _gauge(self, tenant: str) -> Gauge:
        known = self._gauges.get(tenant)
        if known is None:
            key = RowKey(
                kind=Kind.GAUGE,
                tenant=tenant,
                protocol=self._protocol,
                action=Action.CONNECTIONS,
                region=self._region,
            )
            known = self._gauges[tenant] = self._meter.gauge(key, self._clock_us())
        return known

    def _counter(self, tenant: str, action: str, **columns: str) -> Counter:
        return self._meter.counter(
            RowKey(
                kind=Kind.API,
                tenant=tenant,
                protocol=self._protocol,
                action=action,
                region=self._region,
                **columns,  # type: ignore[arg-type]  # the columns named above are texts
            )
        )
