"""What a snapshot of another store does away with: everything that a group defined before it and
does not any more, of which no command has told.
"""

from __future__ import annotations

from ...broker.group_state.state import GroupState
from ...broker.group_state.tree_state import IndexChanged
from ..replicas.listener import Relay
from ..replicas.replica import Replica


def tell_vanished(relay: Relay[Replica], old: GroupState, replica: Replica) -> None:
    """Tell of routers, routes, records and reference lists that `replica`, whose state has taken
    the place of `old`, does not have; of records that are others too. Who hears of `replaced` next
    learns what there is, and which topics have gone.
    """
    new = replica.state
    for name, router in old.routers.items():
        known = new.routers.get(name)
        if known is None:
            relay.router_changed(router, replica.group, removed=True)
            continue
        for route in router.routes:
            if route not in known.routes:
                relay.route_changed(router, route, removed=True)
    for (tenant, pattern), ident in old.indexes.items():
        if (tenant, pattern) not in new.indexes:
            relay.tree_changed(replica, IndexChanged(tenant, pattern, ident, removed=True))
    for key in old.records.keys() | new.records.keys():
        if old.records.get(key) != new.records.get(key):
            relay.record_changed(key, new.records.get(key))
