"""Removes tenants that are being removed: one process of the cluster does each, and another goes on
where it has ended.

    LEAVING, worker nobody, or one whose beat has stood still for TAKE_OVER_MS
        -> this process is the worker, and says so each BEAT_MS
        -> users with their keys, policies, limits; routers; topics with what they hold;
           sessions and retained messages
        -> nothing was found in two looks, SETTLE_MS apart: GONE

Every step looks at what is there and may be repeated, so that a crash loses nothing but time. What
a gateway makes that has not heard of the removal yet, a later look finds; topics are refused at the
stores meanwhile (`TenantBook.limits_under`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from auth.errors import AuthCode, AuthError
from kernel.api.client import DeleteRouter, DeleteTopic
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from gateway.access.limit_records import LimitRecords
    from gateway.access.tenant_book import TenantBook
    from gateway.admin.resources.principals import Principals
    from kernel.api.client import Client
    from kernel.common.ports import Clock

LOOK_SECONDS: Final = 0.5
"""Between two looks at what is being removed."""

BEAT_MS: Final = 2_000
TAKE_OVER_MS: Final = 10_000
"""A worker that has said nothing for five beats is gone."""

SETTLE_MS: Final = 2_000
"""After the last thing was found. Ten times what a change of rights takes to reach who is connected
(`rights_watch`), so that what a client had under way has come, or been refused."""

TOGETHER: Final = 32
"""Things that are removed at once."""

BY: Final = "the removal of its tenant"

_log = structlog.get_logger("weir.tenants")


@dataclass(slots=True)
class _Seen:
    """What is known of one removal."""

    beat: int
    since_ms: int
    """When its beat was new here."""
    empty_ms: int | None = None
    """Since when nothing of it was found."""


class TenantRemoval:
    """Of one gateway. Belongs to its event loop."""

    def __init__(
        self,
        book: TenantBook,
        client: Client,
        principals: Principals,
        limits: LimitRecords,
        clock: Clock,
        worker: str,
    ) -> None:
        """`worker`: what this process is called in the record, as no other is; the same after a
        restart, so that it goes on at once.
        """
        self._book = book
        self._client = client
        self._principals = principals
        self._limits = limits
        self._clock = clock
        self._worker = worker
        self._seen: dict[str, _Seen] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Do what there is to do now. What fails is tried again at the next look."""
        leaving = self._book.leaving()
        self._seen = {name: each for name, each in self._seen.items() if name in leaving}
        for name in leaving:
            try:
                if await self._is_ours(name):
                    await self._remove(name)
            except (KernelError, AuthError) as error:
                _log.info("tenant not removed yet", tenant=name, reason=str(error))

    # --- Who does it ------------------------------------------------------------------------

    async def _is_ours(self, name: str) -> bool:
        """Whether this process removes a tenant, as it has said lately."""
        record, now_ms = self._book.records[name], self._clock.monotonic_ms()
        seen = self._seen.get(name)
        if seen is None or (seen.beat != record.beat and record.worker != self._worker):
            seen = self._seen[name] = _Seen(record.beat, now_ms)
        is_mine = record.worker == self._worker
        waits_ms = BEAT_MS if is_mine else TAKE_OVER_MS if record.worker else 0
        if now_ms - seen.since_ms >= waits_ms:
            await self._book.beat(name, self._worker)
            seen.beat, seen.since_ms = record.beat + 1, now_ms
            is_mine = True
        return is_mine

    # --- Removing ---------------------------------------------------------------------------

    async def _remove(self, name: str) -> None:
        seen = self._seen[name]
        now_ms = began_ms = self._clock.monotonic_ms()
        while await self._sweep(name):
            seen.empty_ms = None
            now_ms = self._clock.monotonic_ms()
            if now_ms - began_ms >= BEAT_MS // 2:
                return
        if seen.empty_ms is None:
            seen.empty_ms = now_ms
        elif now_ms - seen.empty_ms >= SETTLE_MS:
            await self._book.gone(name, self._worker)

    async def _sweep(self, name: str) -> bool:
        """Remove some of what a tenant has; whether there was anything. Who may do something
        first, then what they can do it with.
        """
        store = self._principals.store
        users = store.users(name)[:TOGETHER]
        if users:
            return await _all([self._principals.remove_user(name, each.name) for each in users])
        policies = store.policies(name)[:TOGETHER]
        if policies:
            return await _all([self._principals.remove_policy(name, e.name) for e in policies])
        limits = [each for each in self._limits.records if each.tenant == name][:TOGETHER]
        if limits:
            return await _all([self._limits.remove(each, BY) for each in limits])
        return await self.clear(name)

    async def clear(self, name: str) -> bool:
        """Remove some of the topics, routers, sessions and retained messages that a tenant has;
        whether there were any. Raises KernelError.
        """
        client = self._client
        routers = client.routers(name)[:TOGETHER]
        if routers:
            changes = [DeleteRouter(name, each) for each in routers]
            return await _all([client.administer(each) for each in changes])
        topics = client.topics(name)[:TOGETHER]
        if topics:
            deletions = [DeleteTopic(name, each.name) for each in topics]
            return await _all([client.administer(each) for each in deletions])
        return await client.tree.forget(name) > 0


async def _all(removals: Sequence[Awaitable[object]]) -> bool:
    """Wait for all; what is gone already is fine. Raises the first other error. True."""
    found = await asyncio.gather(*removals, return_exceptions=True)
    for each in found:
        is_gone = isinstance(each, KernelError | AuthError) and each.code in _GONE
        if isinstance(each, BaseException) and not is_gone:
            raise each
    return True


_GONE = (Code.NOT_FOUND, AuthCode.NOT_FOUND)
