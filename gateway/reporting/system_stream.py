"""A stream of the system's own tenant, hidden from every protocol, with one queue: what processes
write down for whoever asks the admin API. It is nobody's on a bill.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kernel.api import message as messages
from kernel.api.client import PutTopic
from kernel.api.message import Flag, Message
from kernel.api.model import TopicInfo, TopicKind, TopicOptions
from kernel.common.errors import KernelError, NotLoaded
from kernel.common.ids import Offset
from metering.store_source import SYSTEM_TENANT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel.api.client import Client, PublishBatch, Session
    from kernel.common.ports import Clock


class _Stored:
    """Sink of one message."""

    def __init__(self) -> None:
        self.done: asyncio.Future[KernelError | None] = asyncio.get_running_loop().create_future()

    def published(self, batch: PublishBatch) -> None:
        """It is on disk, or was refused."""
        if not self.done.done():
            self.done.set_result((batch.failures or {}).get(0))


class SystemStream:
    """One stream, as one process writes and reads it. Belongs to the event loop."""

    def __init__(
        self, client: Client, clock: Clock, name: str, retention_ms: int, retention_bytes: int
    ) -> None:
        self._client = client
        self._clock = clock
        self._name = name
        self._retention = retention_ms, retention_bytes
        self._session: Session | None = None

    async def store(self, body: bytes) -> KernelError | None:
        """Store a message; why not, once that is known. Raises KernelError."""
        topic = await self._made()
        if self._session is None:
            self._session = self._client.open_session(self._name.strip("_"))
        stored = _Stored()
        batch = self._client.batch(self._session, stored)
        high, low = batch.uid()
        message = Message(
            origin=0,
            priority=0,
            flags=Flag.PERSISTENT,
            uid=high.to_bytes(8, "big") + low.to_bytes(8, "big"),
            published_ms=self._clock.wall_ms(),
            ttl_ms=0,
            delay_ms=0,
            key_hash=0,
            tag_hash=0,
            ext={},
            native=b"",
            body=body,
        )
        slot = messages.encode(message)
        batch.add(self._client.to_topic(topic), (slot,), len(slot))
        self._client.submit(batch)
        return await stored.done

    async def read(
        self, first: int, since_ms: int, most: int
    ) -> tuple[list[tuple[int, bytes]], int, int]:
        """(offset, body) of up to `most` messages from an offset and a time (ms since the epoch, 0:
        any) on, the oldest first; the offset behind the last of them, and the first that is kept.
        Raises KernelError.
        """
        topic = await self._made()
        start, end = await self._client.span(topic, 0)
        at = max(first, start)
        if since_ms:
            at = max(at, await self._client.offset_since(topic, 0, since_ms))
        found: Sequence[tuple[Offset, bytes]] = ()
        if at < end:
            found = await self._client.peek(topic, 0, Offset(at), most)
        rows = [(int(offset), messages.split(slot)[1]) for offset, slot in found]
        return rows, rows[-1][0] + 1 if rows else at, start

    async def is_there(self) -> bool:
        """Whether anybody has ever written to it. Raises KernelError."""
        return await self._known() is not None

    async def _known(self) -> TopicInfo | None:
        try:
            return self._client.topic(SYSTEM_TENANT, self._name)
        except NotLoaded:
            await self._client.load(SYSTEM_TENANT, topics=[self._name], routers=[])
            return self._client.topic(SYSTEM_TENANT, self._name)

    async def _made(self) -> TopicInfo:
        """The topic; made if it is not there. Raises KernelError."""
        topic = await self._known()
        if topic is None:
            options = TopicOptions(
                kind=TopicKind.STREAM,
                hidden=True,
                retention_ms=self._retention[0],
                retention_bytes=self._retention[1],
            )
            change = PutTopic(SYSTEM_TENANT, self._name, options, {}, reserved_name=True)
            made = await self._client.administer(change)
            assert isinstance(made, TopicInfo)
            topic = made
        return topic
