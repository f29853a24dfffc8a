"""All connections of a user, closed at every gateway: told by a record of the cluster, which each
gateway follows, and which is taken away again at once.

A gateway that cannot be reached just then does not hear of it; whoever wants the user kept out
disables it, which holds (`rights_watch`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from kernel.api.client import PutRecord
from kernel.common.errors import UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from adapters.base import Adapter
    from adapters.connections import OpenConnection
    from kernel.api.client import Client
    from kernel.common.ports import Random

PREFIX: Final = "disconnect/"

STEP: Final = 32
"""Connections closed, or looked at 16 times as many, before others have their turn."""

_log = structlog.get_logger("weir.connections")


class _Told(msgspec.Struct, frozen=True):
    tenant: str
    user: str
    reason: str


class Disconnects:
    """Of one gateway. Belongs to its event loop."""

    def __init__(self, adapters: Sequence[Adapter], random: Random) -> None:
        """`adapters`: those that serve; read anew each time."""
        self._adapters = adapters
        self._random = random
        self._client: Client | None = None

    def follow(self, client: Client) -> None:
        """Hear from now on of what is asked for anywhere."""
        self._client = client
        client.watch_records(self.record_changed)

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """A metadata record changed, or (None) was removed."""
        if not key.startswith(PREFIX) or record is None:
            return
        try:
            told = msgspec.msgpack.decode(record[1], type=_Told)
        except UNDECODABLE as error:
            _log.error("disconnect left out", key=key, reason=str(error))
            return
        self._close(told, self.of_user(told.tenant, told.user))

    def of_user(self, tenant: str, user: str) -> Iterator[OpenConnection | None]:
        """The connections of a user here; None: one of somebody else's."""
        for adapter in self._adapters:
            for each in adapter.connections():
                yield each if each.owner == (tenant, user) else None

    def _close(self, told: _Told, found: Iterator[OpenConnection | None], closed: int = 0) -> None:
        """Close a part of them, and go on in another turn."""
        cost = 0
        for each in found:
            if each is not None:
                each.end(told.reason)
                closed += 1
            cost += 1 if each is None else 16
            if cost >= 16 * STEP:
                asyncio.get_running_loop().call_soon(self._close, told, found, closed)
                return
        if closed:
            _log.info("user disconnected", tenant=told.tenant, user=told.user, connections=closed)

    async def tell(self, tenant: str, user: str, reason: str) -> None:
        """Have all of a user's connections closed, everywhere. Raises KernelError."""
        assert self._client is not None, "nobody is served before records are followed"
        key = f"{PREFIX}{self._random.bits(64):016x}"
        value = msgspec.msgpack.encode(_Told(tenant, user, reason))
        await self._client.administer(PutRecord(key, value, 0))
        await self._client.administer(PutRecord(key, None))
