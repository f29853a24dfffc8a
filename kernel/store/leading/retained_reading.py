"""Retained messages of a group that this store leads, for whoever asks."""

from __future__ import annotations

from ...broker.group_state.retained import RetainedMessage
from ...common.errors import Code, KernelError
from ...log.format import entry as entries
from ..replicas.replica import Replica
from .local_leader import LeaderHost


def too_many(pattern: str, messages_max: int) -> KernelError:
    """What asking for a pattern that brings more comes to."""
    message = f"more than {messages_max} retained messages match {pattern}"
    return KernelError(Code.LIMIT_EXCEEDED, message)


def retained_in(
    replica: Replica, tenant: str, pattern: str, messages_max: int
) -> list[tuple[str, RetainedMessage]]:
    """(name, message) of those under a pattern that have not expired, in no order. Raises
    KernelError LIMIT_EXCEEDED.
    """
    now_ms = replica.log_time_ms()
    found: list[tuple[str, RetainedMessage]] = []
    for each in replica.state.retained.match(tenant, pattern):
        if not each[1].has_expired(now_ms):
            found.append(each)
        if len(found) > messages_max:
            raise too_many(pattern, messages_max)
    return found


async def read(
    host: LeaderHost, replica: Replica, tenant: str, name: str, kept: RetainedMessage
) -> bytes:
    """A retained message; empty if it has been replaced while others were read."""
    while (entry := host.entry(replica.group, kept.index)) is None:
        if replica.state.retained.get(tenant, name) is not kept:
            return b""
        await host.fetched(replica.group, kept.index)
    return entries.slot(entry, kept.slot)
