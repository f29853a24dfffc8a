"""`__metering` in the kernel: where the meters flush to and the exporter reads from.

A stream of its own tenant, hidden from every protocol, with one queue. A flush is one message, so
that it is there whole or not at all, and carries its identity as deduplication id: repeated within
a day it is dropped by the state machine that holds the first.

Durability: `flush` returns once the message is fdatasynced by a majority (one node: here).

Epochs: each start of a node puts the record `metering/epoch/<node>` anew; its version, which only
rises, is the epoch. A flush of an earlier epoch is refused: another process of that node has taken
over. (One process at a time can hold a data directory, so that on one node nobody can slip between
this check and the append.)
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Final

from kernel.api import message as messages
from kernel.api.client import PutRecord, PutTopic
from kernel.api.message import Ext, Flag, Message
from kernel.api.model import TopicInfo, TopicKind, TopicOptions
from kernel.common.errors import KernelError
from kernel.common.ids import Offset
from metering.driver import FlushFenced, FlushUnavailable
from metering.exporter import LogMessage
from metering.schema.manifest import Head
from metering.store_source import SYSTEM_TENANT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel.api.client import Client, PublishBatch, Session
    from kernel.common.ports import Clock
    from metering.schema import FlushId

METERING_TOPIC: Final = "__metering"

_DAY_MS: Final = 24 * 3_600_000

RETENTION_MS: Final = 62 * _DAY_MS
"""The month that is billed and the one in which it is: so long may the exporter be away."""

DEDUPLICATION_MS: Final = _DAY_MS
"""A flush without an answer is repeated within seconds, until its process ends."""

EPOCH_RECORD: Final = "metering/epoch/"

ARCHIVE_RECORD: Final = "metering/archive/"
"""The head of a node's archive as of its last export: `u64 lines | 32 SHA-256`."""

_LINES: Final = struct.Struct("<Q")


def head_of(record: bytes) -> Head | None:
    """What a record of a node's archive says; None if there is none, or a new archive begins."""
    if len(record) <= _LINES.size:
        return None
    (lines,) = _LINES.unpack_from(record)
    return Head(lines, record[_LINES.size :].hex())


class _Appended:
    """Sink of one flush."""

    def __init__(self) -> None:
        self.done: asyncio.Future[KernelError | None] = asyncio.get_running_loop().create_future()

    def published(self, batch: PublishBatch) -> None:
        """It is on disk, or was refused."""
        if not self.done.done():
            self.done.set_result((batch.failures or {}).get(0))


class MeteringTopic:
    """The topic, as the driver's ports and the exporter's log reader."""

    def __init__(self, client: Client, clock: Clock, node: str) -> None:
        self._client = client
        self._clock = clock
        self._record = EPOCH_RECORD + node
        self._archive = ARCHIVE_RECORD + node
        self._topic: TopicInfo | None = None
        self._session: Session | None = None

    async def open(self) -> None:
        """Make the topic, unless it is there; whatever needs it does so too. Raises KernelError."""
        if self._topic is not None:
            return
        topic = self._client.topic(SYSTEM_TENANT, METERING_TOPIC)
        if topic is None:
            options = TopicOptions(
                kind=TopicKind.STREAM,
                hidden=True,
                retention_ms=RETENTION_MS,
                deduplication_ms=DEDUPLICATION_MS,
            )
            made = await self._client.administer(
                PutTopic(SYSTEM_TENANT, METERING_TOPIC, options, {}, reserved_name=True)
            )
            assert isinstance(made, TopicInfo)
            topic = made
        self._topic = topic
        self._session = self._client.open_session("metering")

    # --- metering.driver.Ports --------------------------------------------------------------

    async def register(self) -> int:
        """A new epoch. Raises FlushUnavailable."""
        try:
            await self.open()
            epoch = await self._client.administer(PutRecord(self._record, b"", self._epoch()))
        except KernelError as error:
            raise FlushUnavailable(str(error)) from error
        assert isinstance(epoch, int)
        return epoch

    async def flush(self, body: bytes, flush_id: FlushId) -> None:
        """Append a flush. Raises FlushFenced, FlushUnavailable."""
        if self._epoch() != flush_id.epoch:
            raise FlushFenced
        assert self._topic is not None
        assert self._session is not None
        appended = _Appended()
        batch = self._client.batch(self._session, appended)
        identity = f"{flush_id.node}/{flush_id.epoch}/{flush_id.first_seq}".encode()
        slot = self._slot(body, identity, batch.uid())
        batch.add(self._client.to_topic(self._topic), (slot,), len(slot))
        self._client.submit(batch)
        failure = await appended.done
        if failure is not None:
            raise FlushUnavailable(str(failure))

    def _epoch(self) -> int:
        version, _ = self._client.records(self._record).get(self._record, (0, b""))
        return version

    def _slot(self, body: bytes, identity: bytes, uid: tuple[int, int]) -> bytes:
        return messages.encode(
            Message(
                origin=0,
                priority=0,
                flags=Flag.PERSISTENT | Flag.DEDUPLICATE,
                uid=uid[0].to_bytes(8, "big") + uid[1].to_bytes(8, "big"),
                published_ms=self._clock.wall_ms(),
                ttl_ms=0,
                delay_ms=0,
                key_hash=0,
                tag_hash=0,
                ext={Ext.DEDUPLICATION_ID: identity},
                native=b"",
                body=body,
            )
        )

    # --- metering.exporter.LogReader --------------------------------------------------------

    async def bounds(self, queue: int) -> tuple[int, int]:
        """(first offset that is kept, offset behind the last)."""
        await self.open()
        return await self._client.span(self._info(), queue)

    async def read(self, queue: int, from_offset: int, limit: int) -> Sequence[LogMessage]:
        """Messages from an offset on. The time of one is that of its flush, on the node's clock:
        as stored, so that whoever cuts the log cuts it alike.
        """
        found = await self._client.peek(self._info(), queue, Offset(from_offset), limit)
        taken: list[LogMessage] = []
        for offset, slot in found:
            message = messages.decode(slot)
            taken.append(LogMessage(offset, message.published_ms * 1_000, message.body))
        return taken

    # --- The archive's head -----------------------------------------------------------------

    def kept_head(self) -> Head | None:
        """The one that was kept last; None if there is none."""
        return head_of(self._client.records(self._archive).get(self._archive, (0, b""))[1])

    async def keep_head(self, head: Head | None) -> None:
        """Keep a head; None: a new archive begins. Raises KernelError."""
        value = b""
        if head is not None:
            value = _LINES.pack(head.lines) + bytes.fromhex(head.sha256)
        await self._client.administer(PutRecord(self._archive, value, None))

    def _info(self) -> TopicInfo:
        assert self._topic is not None
        return self._topic
