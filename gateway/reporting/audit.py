"""The audit topic: who has changed what by the admin API, kept in the log.

A stream of the system's own tenant, `__audit`, hidden from every protocol, with one queue. An entry
is one message, its body JSON. Kept for RETENTION_MS, and no more than RETENTION_BYTES of them.

Durability: whoever has made a change hears so once its entry is on disk (one node: here; several:
a majority), or after WAIT_S without that: then the entry is in the log of the process, with the
reason, and counted as missed. A change is made first and noted then, for the entry says what came
of it: a process that dies in between leaves a change without an entry.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from gateway.reporting.system_stream import SystemStream
from kernel.common.errors import KernelError

if TYPE_CHECKING:
    from kernel.api.client import Client
    from kernel.common.ports import Clock

AUDIT_TOPIC: Final = "__audit"

RETENTION_MS: Final = 400 * 24 * 3_600_000
"""A year, and a month to ask for it."""

RETENTION_BYTES: Final = 256 * 1024 * 1024
"""A million changes: whoever may change things may not fill the disk by it."""

TEXT_CHARACTERS_MAX: Final = 1_024
"""Of a path or a reason: names are shorter, and what a client sends may be any."""

WAIT_S: Final = 2.0
"""For an entry to be on disk; longer than an election would leave the caller without an answer."""

_log = structlog.get_logger("weir.audit")


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change, or one that was refused."""

    time_ms: int
    """When it was noted, by the wall clock of the process (ms since the epoch)."""
    node: str
    """The process that was asked."""
    by: str
    method: str
    path: str
    tenant: str
    """As it was asked for (`tenant=`)."""
    status: int
    """Of the answer; 0: it was refused, or has failed."""
    reason: str
    """Why, if so."""


class AuditRow(AuditEntry, frozen=True, kw_only=True):
    """An entry in its place."""

    offset: int


class AuditTrail:
    """The audit topic, as one process writes and reads it. Belongs to the event loop."""

    def __init__(self, client: Client, clock: Clock, node: str) -> None:
        """`node`: what this process is called."""
        bounds = RETENTION_MS, RETENTION_BYTES
        self._stream = SystemStream(client, clock, AUDIT_TOPIC, *bounds)
        self._clock = clock
        self._node = node
        self.noted = 0
        """Entries that are on disk."""
        self.missed = 0
        """Entries that are not, as far as is known: in the log of this process alone."""

    async def note(
        self, *, by: str, method: str, path: str, tenant: str, status: int, reason: str = ""
    ) -> None:
        """Note a change; returns once it is on disk, or could not be in WAIT_S. No errors."""
        entry = AuditEntry(
            time_ms=self._clock.wall_ms(),
            node=self._node,
            by=by,
            method=method,
            path=path[:TEXT_CHARACTERS_MAX],
            tenant=tenant[:TEXT_CHARACTERS_MAX],
            status=status,
            reason=reason[:TEXT_CHARACTERS_MAX],
        )
        failure: object
        try:
            async with asyncio.timeout(WAIT_S):
                failure = await self._stream.store(msgspec.json.encode(entry))
        except TimeoutError:
            failure = f"not on disk after {WAIT_S} s"
        except KernelError as error:
            failure = error
        if failure is None:
            self.noted += 1
            return
        self.missed += 1
        _log.error("audit entry missed", why=str(failure), entry=msgspec.to_builtins(entry))

    async def read(self, first: int, since_ms: int, most: int) -> tuple[list[AuditRow], int, int]:
        """Up to `most` entries from an offset and a time (ms since the epoch, 0: any) on, the
        oldest first; the offset behind the last of them, and the first that is kept. Raises
        KernelError.
        """
        found, behind, start = await self._stream.read(first, since_ms, most)
        return [_row(offset, body) for offset, body in found], behind, start


def _row(offset: int, body: bytes) -> AuditRow:
    entry = msgspec.json.decode(body, type=AuditEntry)
    return AuditRow(offset=offset, **msgspec.structs.asdict(entry))
