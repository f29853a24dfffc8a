"""Calls that take turns beside other tenants (`adapters.fair_scheduler`).

gRPC reads its connections by itself and tells nothing of them: what is shared out here is which
calls are carried out, by tenant and then by the client that their headers name. Calls that wait
have been read; of a connection there are no more than it may have streams (`settings.STREAMS_MAX`),
and their clients wait for the answers before they send more.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from adapters.fair_scheduler import Place

if TYPE_CHECKING:
    import asyncio

    from adapters.fair_scheduler import FairScheduler, TenantShare
    from adapters.rocketmq.clients.callers import Caller

CALL_COST_BYTES: Final = 4 * 1024
"""What a call costs beside others' bytes, however small it is."""

CALL_US: Final = 200
"""About what a call takes, which is carried out in a later turn."""


class FairCalls:
    """Whose call is next, in one process."""

    def __init__(self, turns: FairScheduler, loop: asyncio.AbstractEventLoop) -> None:
        self.turns = turns
        self._loop = loop
        self._clients: dict[tuple[TenantShare, str], _ClientCalls] = {}
        """Clients of which calls wait."""

    def __len__(self) -> int:
        return len(self._clients)

    def wait(self, caller: Caller, size: int) -> asyncio.Future[None] | None:
        """A call of so many bytes has come; None: it may be carried out now. To be called unless
        the caller's tenant is `alone`.
        """
        turns = self.turns
        tenant = turns.tenant(caller.tenant)
        cost = max(size, CALL_COST_BYTES)
        if not turns.sends(tenant):
            return None
        if turns.at_once(tenant, cost):
            turns.took_at_once(tenant, cost, CALL_US)
            turns.submits(tenant, size)
            return None
        key = tenant, caller.client_id
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = _ClientCalls(self, key)
        done: asyncio.Future[None] = self._loop.create_future()
        client.waiting.append((size, done))
        turns.wait(client.place)
        return done

    def forget(self, key: tuple[TenantShare, str]) -> None:
        """None of a client's calls waits any more."""
        self._clients.pop(key, None)


class _ClientCalls:
    """`fair_scheduler.Reading` of one client's calls that wait."""

    work_us = CALL_US

    def __init__(self, calls: FairCalls, key: tuple[TenantShare, str]) -> None:
        self._calls = calls
        self._key = key
        self.waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.place = Place(self, key[0])

    def has_part(self) -> bool:
        """See `Reading`. Calls that were given up meanwhile are no part."""
        while self.waiting and self.waiting[0][1].done():
            self.waiting.popleft()
        if not self.waiting:
            self._calls.forget(self._key)
        return bool(self.waiting)

    def take_part(self, most_bytes: int) -> int:
        """See `Reading`: the next call."""
        size, done = self.waiting.popleft()
        done.set_result(None)
        self._calls.turns.submits(self._key[0], size)
        return max(size, CALL_COST_BYTES)
