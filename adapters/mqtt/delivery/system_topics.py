"""Names below `$SYS`: what the server says of itself, as Mosquitto does. Nobody else says anything
there (`kernel.common.limits.TREE_ROOTS_RESERVED`).

    $SYS/broker/...    what this gateway has done for the reader's tenant
    $SYS/node/...      the same for all tenants, for who administers the node

The figures are no messages of the tree: they are in no log and on no bill, and nothing of this
costs anything while nobody reads them. A reader is sent all of them when it subscribes, and every
INTERVAL_MS those that have changed, at QoS 0.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Final, Protocol

from adapters.mqtt.codec.encoder import publish_frame
from adapters.mqtt.codec.packet_types import MQTT_5, RETAIN_BIT
from adapters.mqtt.codec.properties import hop_properties
from adapters.mqtt.counters import Counters
from adapters.mqtt.subscriptions.subscription import Way, combined
from auth.policies.policy_rules import Action, ResourceKind, permission

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from adapters.base import Rights
    from adapters.mqtt.codec.encoder import PublishFrame
    from adapters.mqtt.subscriptions.filter_table import FilterTable
    from adapters.mqtt.subscriptions.subscription import Subscribed
    from kernel.common.ports import Clock

ROOT: Final = "$SYS"
BROKER: Final = f"{ROOT}/broker/"
NODE: Final = f"{ROOT}/node/"
_CONNECTION: Final = f"{ROOT}/broker/connection/"

INTERVAL_MS: Final = 10_000
"""As Mosquitto's `sys_interval`."""
VALID_MS: Final = 500
"""Every connection and tenant is looked at no more often, however many begin to read."""
READERS_TOGETHER_MAX: Final = 100
"""Readers that are told in one turn of the loop: 50 figures each are some milliseconds."""
BRIDGES_TOLD_MAX: Final = 100
"""Of one tenant."""
LOAD_MINUTES: Final = (1, 5, 15)

ADMINISTER_NODE: Final = permission(Action.ADMINISTER, ResourceKind.NODE)
NODE_RESOURCE: Final = "admin"
"""As the admin API asks."""

_LOADS: Final = {
    "load/messages/received": "published",
    "load/messages/sent": "delivered",
    "load/publish/received": "published",
    "load/publish/sent": "delivered",
    "load/publish/dropped": "dropped",
    "load/bytes/received": "bytes_in",
    "load/bytes/sent": "bytes_out",
    "load/connections": "connections",
}
"""Figure of which so many a minute are told, as averages, to counter."""


def state_of(client_id: str) -> str:
    """Name under which a Mosquitto bridge with this client id tells that it is connected, as its
    will that it is not. It is let do so, for its own id; what it says the server knows, and keeps
    nothing of it.
    """
    return f"{_CONNECTION}{client_id}/state"


class Tenant:
    """What is counted for one tenant, or, as their sum, for the node."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "clients",
        "clients_max",
        "connections",
        "counters",
        "loads",
        "totals",
    )

    def __init__(self) -> None:
        self.counters = Counters()
        self.clients = 0
        self.clients_max = 0
        self.connections = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.totals: dict[str, int] = {}
        self.loads: dict[tuple[str, int], float] = {}

    def entered(self) -> None:
        """A client was let in."""
        self.connections += 1
        self.clients += 1
        self.clients_max = max(self.clients_max, self.clients)

    def left(self) -> None:
        """A client has gone."""
        self.clients -= 1

    def octets(self, came: int, went: int) -> None:
        """Count bytes that came and went."""
        self.bytes_in += came
        self.bytes_out += went

    @property
    def dropped(self) -> int:
        """Messages that a client did not get: it was too slow, or they too large for it."""
        return self.counters.dropped_slow + self.counters.too_large

    def _total(self, name: str) -> int:
        found: int = getattr(self if hasattr(self, name) else self.counters, name)
        return found

    def age(self) -> None:
        """Compute loads anew: INTERVAL_MS have passed."""
        for figure, name in _LOADS.items():
            total = self._total(name)
            a_minute = (total - self.totals.get(figure, 0)) * 60_000 / INTERVAL_MS
            self.totals[figure] = total
            for minutes in LOAD_MINUTES:
                keep = exp(-INTERVAL_MS / 60_000 / minutes)
                before = self.loads.get((figure, minutes), 0.0)
                self.loads[figure, minutes] = a_minute + keep * (before - a_minute)

    def figures(self, subscriptions: int, in_flight: int) -> dict[str, str]:
        """Values by name, below the root of whoever is told."""
        counters = self.counters
        told: dict[str, float] = {
            "clients/connected": self.clients,
            "clients/active": self.clients,
            "clients/maximum": self.clients_max,
            "messages/received": counters.published,
            "messages/sent": counters.delivered,
            "messages/inflight": in_flight,
            "publish/messages/received": counters.published,
            "publish/messages/sent": counters.delivered,
            "publish/messages/dropped": self.dropped,
            "bytes/received": self.bytes_in,
            "bytes/sent": self.bytes_out,
            "subscriptions/count": subscriptions,
        }
        values = {name: str(value) for name, value in told.items()}
        for (figure, minutes), load in self.loads.items():
            values[f"{figure}/{minutes}min"] = f"{load:.2f}"
        return values


class Connected:
    """What is found by looking at every connection, when somebody reads figures."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, int] = {}
        self.in_flight: dict[str, int] = {}
        self.bridges: dict[str, list[str]] = {}
        """Client ids."""

    def saw(
        self, tenant: str, client_id: str, *, subscriptions: int, in_flight: int, is_bridge: bool
    ) -> None:
        """Count one connection."""
        self.subscriptions[tenant] = self.subscriptions.get(tenant, 0) + subscriptions
        self.in_flight[tenant] = self.in_flight.get(tenant, 0) + in_flight
        if is_bridge:
            bridges = self.bridges.setdefault(tenant, [])
            if len(bridges) < BRIDGES_TOLD_MAX:
                bridges.append(client_id)


class FigureReader(Protocol):
    """A connection that has subscribed to figures (`inbox`)."""

    tenant: str
    rights: Rights
    filters: FilterTable

    def figure(self, frame: PublishFrame) -> None:
        """Sends one of the figures, unless the client is behind."""


class BrokerFigures:
    """Of one adapter: what is counted, and who reads it."""

    def __init__(
        self,
        clock: Clock,
        version: str,
        soon: Callable[[Callable[[], None]], object],
        look: Callable[[], Connected],
    ) -> None:
        """`look` looks at every connection."""
        self._clock = clock
        self._version = version
        self._soon = soon
        self._look = look
        self._began_ms = self._due_ms = clock.monotonic_ms()
        self._tenants: dict[str, Tenant] = {}
        self._readers: dict[FigureReader, None] = {}
        self._told: dict[str, dict[str, str]] = {}
        """What readers of each tenant were told last."""
        self._seen = Connected()
        self._found: dict[str, dict[str, str]] = {}
        self._found_ms = self._began_ms - VALID_MS
        """When these were found out."""

    def of(self, tenant: str) -> Tenant:
        """Of a tenant; kept by its connections."""
        known = self._tenants.get(tenant)
        if known is None:
            known = self._tenants[tenant] = Tenant()
        return known

    def totals(self, own: Counters) -> dict[str, int]:
        """Counters over all tenants, and what is counted for none."""
        every = [own, *(each.counters for each in self._tenants.values())]
        return {name: sum(getattr(each, name) for each in every) for name in Counters.__slots__}

    # --- Readers ----------------------------------------------------------------------------

    def read_by(self, inbox: FigureReader, subscribed: Subscribed) -> None:
        """A subscription below ROOT is open."""
        self._readers[inbox] = None
        values = self._values(inbox.tenant)
        self._told.setdefault(inbox.tenant, values)
        if subscribed.held is not None:
            subscribed.held = None
            self._tell(inbox, values, only=subscribed)

    def forget(self, inbox: FigureReader) -> None:
        """A connection reads nothing any more. Idempotent."""
        self._readers.pop(inbox, None)

    def tick(self) -> None:
        """Called every second or so: tell what has changed, if it is time."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._due_ms + INTERVAL_MS:
            return
        self._due_ms = now_ms
        for each in self._tenants.values():
            each.age()
        if not self._readers:
            self._told.clear()
            return
        changed: dict[str, dict[str, str]] = {}
        for tenant in {each.tenant for each in self._readers}:
            values, before = self._values(tenant), self._told.get(tenant, {})
            self._told[tenant] = values
            changed[tenant] = {
                name: value for name, value in values.items() if before.get(name) != value
            }
        self._tell_some(list(self._readers), changed)

    def _tell_some(
        self, left: list[FigureReader], changed: Mapping[str, Mapping[str, str]]
    ) -> None:
        for inbox in left[-READERS_TOGETHER_MAX:]:
            if inbox in self._readers:
                self._tell(inbox, changed.get(inbox.tenant, {}))
        del left[-READERS_TOGETHER_MAX:]
        if left:
            self._soon(lambda: self._tell_some(left, changed))

    def _tell(
        self, inbox: FigureReader, values: Mapping[str, str], only: Subscribed | None = None
    ) -> None:
        """`only`: what is handed over to a new subscription, as retained."""
        may_see_node = inbox.rights.allows(ADMINISTER_NODE, NODE_RESOURCE)
        for name, value in values.items():
            if name.startswith(NODE) and not may_see_node:
                continue
            if only is not None:
                matching = [only] if only.filter.matches(name) else []
            else:
                matching = [each for each in inbox.filters.matching(name) if each.way is Way.SYSTEM]
            if matching:
                kind = combined([each.kind for each in matching], matching[0].kind.level)
                five = kind.level == MQTT_5 and kind.identifiers
                inbox.figure(
                    publish_frame(
                        kind.level,
                        RETAIN_BIT * (only is not None or kind.keeps_retain),
                        name.encode(),
                        hop_properties(None, kind.identifiers) if five else b"",
                        value.encode(),
                    )
                )

    # --- Values -----------------------------------------------------------------------------

    def _values(self, tenant: str) -> dict[str, str]:
        """What a tenant's readers may be told; the node's figures too, which few of them see."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._found_ms + VALID_MS:
            self._found, self._found_ms, self._seen = {}, now_ms, self._look()
        found = self._found.get(tenant)
        if found is None:
            found = self._found[tenant] = self._found_now(tenant, self._seen)
        return found

    def _found_now(self, tenant: str, seen: Connected) -> dict[str, str]:
        common = {
            "version": f"weir version {self._version}",
            "uptime": f"{(self._clock.monotonic_ms() - self._began_ms) // 1_000} seconds",
        }
        subscriptions, in_flight = seen.subscriptions, seen.in_flight
        own = self.of(tenant).figures(subscriptions.get(tenant, 0), in_flight.get(tenant, 0))
        node = self._sum().figures(sum(subscriptions.values()), sum(in_flight.values()))
        values = {f"{BROKER}{name}": value for name, value in (own | common).items()}
        values |= {f"{NODE}{name}": value for name, value in (node | common).items()}
        values |= {state_of(each): "1" for each in seen.bridges.get(tenant, ())}
        for gone in self._told.get(tenant, {}):
            if gone.startswith(_CONNECTION):
                values.setdefault(gone, "0")
        return values

    def _sum(self) -> Tenant:
        total = Tenant()
        total.counters = _sum_of(each.counters for each in self._tenants.values())
        for each in self._tenants.values():
            total.clients += each.clients
            total.clients_max += each.clients_max
            total.octets(each.bytes_in, each.bytes_out)
            for key, load in each.loads.items():
                total.loads[key] = total.loads.get(key, 0.0) + load
        return total


def _sum_of(counters: Iterable[Counters]) -> Counters:
    total = Counters()
    for each in counters:
        for name in Counters.__slots__:
            setattr(total, name, getattr(total, name) + getattr(each, name))
    return total
