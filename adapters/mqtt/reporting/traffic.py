"""What MQTT clients of one tenant do, for the bill: deliveries by QoS, messages for nobody, octets.

What the log holds (messages stored, by QoS as `stored` marks them; acknowledged) the store counts
itself. Deliveries by the topic
tree have no topic of their own to be counted under; a member of a topic's group has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from adapters.base import DeliveryCounter, TrafficCounter, TrafficMeter

QUEUE_CLASSES: Final = ("qos0", "qos1", "qos2")
_UNIT_BYTES: Final = 4_096


class Deliveries:
    """Counters of what one group, or the tree of one tenant, hands to clients."""

    __slots__ = ("_by_qos",)

    def __init__(self, by_qos: tuple[DeliveryCounter, ...]) -> None:
        self._by_qos = by_qos

    def count(self, qos: int, size_bytes: int) -> None:
        """One delivery (hot)."""
        self._by_qos[qos].count(1, size_bytes, -(-size_bytes // _UNIT_BYTES) or 1)


class TenantTraffic:
    """The counters of one tenant."""

    __slots__ = ("_meter", "_tenant", "deliveries", "live", "nobody")

    def __init__(self, meter: TrafficMeter, tenant: str) -> None:
        self._meter = meter
        self._tenant = tenant
        self.deliveries = self.of_group("", "")
        self.nobody: TrafficCounter = meter.unroutable_counter(tenant)
        self.live: tuple[TrafficCounter, ...] = tuple(
            meter.unstored_counter(tenant, name) for name in QUEUE_CLASSES
        )
        """By QoS: messages for live subscriptions only, which the store never sees."""

    def of_group(self, topic: str, group: str) -> Deliveries:
        """Counters of a consumer group of a topic."""
        return Deliveries(
            tuple(
                self._meter.delivery_counter(self._tenant, topic, group, name)
                for name in QUEUE_CLASSES
            )
        )


class TrafficBook:
    """The counters of every tenant that has signed in; nothing if nothing is metered."""

    def __init__(self, meter: TrafficMeter | None) -> None:
        self.meter = meter
        self._tenants: dict[str, TenantTraffic] = {}

    def of(self, tenant: str) -> TenantTraffic | None:
        """The counters of a tenant; kept by its connections."""
        if self.meter is None:
            return None
        known = self._tenants.get(tenant)
        if known is None:
            known = self._tenants[tenant] = TenantTraffic(self.meter, tenant)
        return known


class ConnectionTraffic:
    """The octets of one connection."""

    __slots__ = ("_counted", "_counter", "_meter", "_tenant")

    def __init__(self, meter: TrafficMeter, tenant: str) -> None:
        self._meter = meter
        self._tenant = tenant
        self._counter = meter.octet_counter(tenant)
        self._counted = (0, 0)
        meter.connection_opened(tenant)

    def count(self, bytes_in: int, bytes_out: int) -> None:
        """Count what came and went since the last time; the arguments are totals."""
        before, now = self._counted, (bytes_in, bytes_out)
        if now != before:
            self._counted = now
            self._counter.octets(now[0] - before[0], now[1] - before[1])

    def close(self) -> None:
        """The connection is gone."""
        self._meter.connection_closed(self._tenant)
