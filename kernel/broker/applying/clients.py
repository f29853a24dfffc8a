"""Clients of a Raft group whose last results are remembered: a repeat is answered from them.

A client is a gateway process, a subscriber's exactly-once batches, or the outbox of a group. Those
of outboxes are never forgotten; the others RESULTS_KEPT_MS of log time after their last batch.
"""

from __future__ import annotations

from ...common.ids import OUTBOX_CLIENT
from ...common.limits import RESULTS_KEPT_MS
from ..group_state.state import ClientResults, GroupState, Section


class ClientTable:
    """The remembered results of one Raft group, by (client, epoch)."""

    def __init__(self, state: GroupState) -> None:
        self._state = state

    def results_of(self, client: int, epoch: int) -> ClientResults:
        """Results of a client that sends a batch now; those of its older epochs go."""
        state = self._state
        key = (client, epoch)
        clients = state.outbox_clients if client >= OUTBOX_CLIENT else state.clients
        known = clients.get(key)
        if state.cut is not None:
            state.cut.save(Section.CLIENTS, key)
        if known is None:
            for older in [each for each in clients if each[0] == client]:
                state.changing(Section.CLIENTS, older)
                del clients[older]
            known = clients[key] = ClientResults()
        if known.used_ms < state.time_ms:
            known.used_ms = state.time_ms
            clients[key] = clients.pop(key)
            self._forget()
        return known

    def _forget(self) -> None:
        clients = self._state.clients
        limit = self._state.time_ms - RESULTS_KEPT_MS
        while clients:
            oldest = next(iter(clients))
            if clients[oldest].used_ms > limit:
                return
            self._state.changing(Section.CLIENTS, oldest)
            del clients[oldest]
