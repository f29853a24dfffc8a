"""Looking at messages without touching them, and sending one, over HTTP.

    GET  /topics/TOPIC/messages?queue=&from_queue=&offset=&since_ms=&group=&limit=
    POST /topics/TOPIC/messages

Both take ?tenant=NAME (`tenants`).

Peeking reads the log by offset, or what was stored from a time on (`since_ms`, since the epoch, by
the clock of the queue's leader), or what a group is not done with (`group`): it leases nothing,
counts no attempt, and shows messages whatever their state (waiting, leased, acked but still kept).
A message sent has the kernel as its writer; every protocol reads its attributes by the message
contract (docs/design/model.md#the-message-contract).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from adapters.base import KERNEL_ORIGIN
from adapters.http_limits import charge_publish
from gateway.admin.http.callers import caller_of, connected_user
from gateway.admin.http.requests import answer, number, read_body
from gateway.admin.resources.topics import find_topic, options_of
from kernel.api import message as messages
from kernel.api.message import Ext, Flag, Message
from kernel.common.errors import Code, KernelError
from kernel.common.ids import NUMBER_BITS, Offset

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from adapters.limiting import Limiter
    from gateway.admin.resources.tenants import KnownTenants
    from kernel.api.client import Client, PublishBatch, Session
    from kernel.api.model import TopicInfo
    from kernel.common.ports import Clock
    from kernel.quotas.account import Account

PEEK_DEFAULT = 10
PEEK_MAX = 1_000
PEEK_BYTES_MAX = 8 * 1024 * 1024
"""An answer ends with the message that reaches this: the largest message still fits in one."""

SEND_BYTES_MAX = 24 * 1024 * 1024
"""A body of 16 MiB in Base64, and its properties."""

_EXT_NAMES = {
    Ext.ORDERING_KEY: "ordering_key",
    Ext.TAG: "tag",
    Ext.KEYS: "keys",
    Ext.DEDUPLICATION_ID: "deduplication_id",
    Ext.MESSAGE_ID: "message_id",
}
"""Kernel fields that are text, and their names here, on the way in and out."""

_ATTRIBUTES = msgspec.msgpack.Decoder(dict[str, Any])

Milliseconds = Annotated[int, Meta(ge=0, le=2**53)]
FromZero = Annotated[int, Meta(ge=0)]


class MessageShown(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored message. `body` if it is text (UTF-8), else `body_base64`."""

    queue: int
    offset: int
    uid: str
    writer: str
    published_ms: int
    size_bytes: int
    body: str | None = None
    body_base64: str | None = None
    attributes: dict[str, Any] = {}
    ordering_key: str | None = None
    tag: str | None = None
    keys: str | None = None
    deduplication_id: str | None = None
    message_id: str | None = None
    priority: int = 0
    ttl_ms: int = 0
    delay_ms: int = 0
    dead_letters: list[Any] = []
    """Where it was dead-lettered and why, newest first."""


class MessagePage(Struct, frozen=True):
    """`next`: `from_queue` (or `queue`) and `offset` of the next page; null at the end."""

    messages: list[MessageShown]
    next: tuple[int, int] | None


class MessageNew(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to be sent: at most one of `body` and `body_base64`."""

    body: str | None = None
    body_base64: str | None = None
    attributes: dict[str, str | int | float | bool] = {}
    ordering_key: str | None = None
    tag: str | None = None
    keys: str | None = None
    deduplication_id: str | None = None
    message_id: str | None = None
    priority: Annotated[int, Meta(ge=0, le=255)] = 0
    ttl_ms: Milliseconds = 0
    """0: as long as the topic says."""
    delay_ms: Milliseconds = 0


class MessageSent(Struct, frozen=True, kw_only=True):
    """Where a message is now, on disk. Queue and offset are null for a transient topic."""

    uid: str
    queue: int | None
    offset: int | None
    is_duplicate: bool
    """The topic's deduplication window has dropped it: `uid` is the original's."""


class _Sent:
    """Sink of one message."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def published(self, batch: PublishBatch) -> None:
        """It is stored, or has failed."""
        if self.done.done():
            return
        failures = batch.failures
        if failures:
            self.done.set_exception(failures[0])
        else:
            self.done.set_result(None)


class MessageRoutes:
    """Handlers of messages."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        tenants: KnownTenants,
        writers: Mapping[int, str],
        limiter: Limiter,
    ) -> None:
        """`writers`: the protocols' names by origin. `limiter` charges who is not the operator."""
        self.limiter = limiter
        self._client = client
        self._writers = {KERNEL_ORIGIN: "weir", **writers}
        self._clock = clock
        self._tenants = tenants
        self._session: Session | None = None

    async def peek(self, request: Request) -> Response:
        """Messages from an offset on, of one queue, or of all from one queue on."""
        topic = await find_topic(self._client, self._tenants.of(request), request)
        last = max(topic.numbers)
        one = "queue" in request.query_params
        first = number(request, "queue" if one else "from_queue", 0, most=last)
        if one:
            topic.queue_numbered(first)
        offset = number(request, "offset", 0)
        since_ms = number(request, "since_ms", 0)
        group = request.query_params.get("group")
        if group is not None:
            options_of(topic, group)
        limit = number(request, "limit", PEEK_DEFAULT, least=1, most=PEEK_MAX)
        found: list[MessageShown] = []
        size = 0
        by = connected_user(request)
        queues = range(first, (first if one else last) + 1)
        async for queue, at, slot in self._walk(topic, queues, offset, since_ms, group):
            if len(found) == limit or size >= PEEK_BYTES_MAX:
                return answer(MessagePage(found, (queue, at)))
            found.append(self.shown(queue, at, slot))
            self._client.note_read(topic, queue, [at], group or "", by)
            size += len(slot)
        return answer(MessagePage(found, None))

    async def _walk(
        self, topic: TopicInfo, queues: range, offset: int, since_ms: int, group: str | None
    ) -> AsyncIterator[tuple[int, int, bytes]]:
        """(queue, offset, slot) from an offset of the first of some queues to the end of the last,
        of each queue from a time and from what a group is not done with on. One read a message: a
        page of the largest ones must not be in memory at once.
        """
        for queue in (each for each in topic.numbers if each in queues):
            start, end = await self._client.span(topic, queue)
            at = max(start, offset) if queue == queues.start else start
            if group is not None:
                at = max(at, await self._client.position(topic, queue, group))
            if since_ms:
                at = max(at, await self._client.offset_since(topic, queue, since_ms))
            while at < end:
                got = await self._client.peek(topic, queue, Offset(at), 1)
                if not got:
                    break
                at = got[0][0]
                yield queue, at, got[0][1]
                at += 1

    def shown(self, queue: int, offset: int, slot: bytes) -> MessageShown:
        """A message as the API tells of it."""
        message = messages.decode(slot)
        attributes = dict(self._client.origins.attributes(message.origin, message.native))
        own = message.ext.get(Ext.ATTRIBUTES)
        if own is not None:
            attributes |= _ATTRIBUTES.decode(own)
        body, body_base64 = _body_shown(message.body)
        fields = {
            name: message.ext[kind].decode("utf-8", "replace")
            for kind, name in _EXT_NAMES.items()
            if kind in message.ext
        }
        deaths = message.ext.get(Ext.DEAD_LETTER)
        return MessageShown(
            queue=queue,
            offset=offset,
            uid=str(UUID(bytes=message.uid)),
            writer=self._writers.get(message.origin, f"origin {message.origin}"),
            published_ms=message.published_ms,
            size_bytes=len(slot),
            body=body,
            body_base64=body_base64,
            attributes=attributes,
            priority=message.priority,
            ttl_ms=message.ttl_ms,
            delay_ms=message.delay_ms,
            dead_letters=[] if deaths is None else msgspec.msgpack.decode(deaths),
            **fields,
        )

    async def send(self, request: Request) -> Response:
        """Store one message; the answer comes once it is on disk."""
        asked = await read_body(request, MessageNew, SEND_BYTES_MAX)
        body = _body_of(asked)
        topic = await find_topic(self._client, self._tenants.of(request), request)
        most = topic.options.message_bytes_max
        if len(body) > most:
            message = f"the body has {len(body)} bytes; topic {topic.name} takes at most {most}"
            raise KernelError(Code.TOO_LARGE, message)
        if self._session is None:
            self._session = self._client.open_session("admin API")
        sent = _Sent()
        batch = self._client.batch(self._session, sent)
        batch.comes_from(connected_user(request))
        high, low = batch.uid()
        uid = high.to_bytes(8, "big") + low.to_bytes(8, "big")
        slot = messages.encode(self._message(asked, uid, body))
        batch.add(self._client.to_topic(topic), (slot,), len(slot))
        await charge_publish(self.limiter, self.account(request), batch, len(body))
        self._client.submit(batch)
        await sent.done
        return answer(_sent(batch, uid), 201)

    def account(self, request: Request) -> Account | None:
        """What a caller is limited by in the tenant that a request is about; None: by nothing."""
        caller, tenant = caller_of(request), self._tenants.of(request)
        if caller.administers_node:
            return None
        user = caller.name if caller.tenant == tenant else ""
        return self.limiter.account(tenant, user, "http")

    def _message(self, asked: MessageNew, uid: bytes, body: bytes) -> Message:
        texts = {kind: getattr(asked, name) for kind, name in _EXT_NAMES.items()}
        ext = {int(kind): text.encode() for kind, text in texts.items() if text is not None}
        if asked.attributes:
            ext[Ext.ATTRIBUTES] = msgspec.msgpack.encode(asked.attributes)
        if sum(map(len, ext.values())) > messages.PROPERTIES_BYTES_MAX:
            message = f"the properties have more than {messages.PROPERTIES_BYTES_MAX} bytes"
            raise KernelError(Code.TOO_LARGE, message)
        key, tag = ext.get(Ext.ORDERING_KEY), ext.get(Ext.TAG)
        flags = Flag.PERSISTENT
        if Ext.DEDUPLICATION_ID in ext:
            flags |= Flag.DEDUPLICATE
        return Message(
            origin=KERNEL_ORIGIN,
            priority=asked.priority,
            flags=flags,
            uid=uid,
            published_ms=self._clock.wall_ms(),
            ttl_ms=asked.ttl_ms,
            delay_ms=asked.delay_ms,
            key_hash=0 if key is None else messages.key_hash(key),
            tag_hash=0 if tag is None else messages.tag_hash(tag),
            ext=ext,
            native=b"",
            body=body,
        )


def _sent(batch: PublishBatch, uid: bytes) -> MessageSent:
    original = (batch.duplicates or {}).get(0)
    place = batch.place(0)
    return MessageSent(
        uid=str(UUID(bytes=uid if original is None else original)),
        queue=None if place is None else place[0] & NUMBER_BITS,
        offset=None if place is None else place[1],
        is_duplicate=original is not None,
    )


def _body_of(asked: MessageNew) -> bytes:
    if asked.body is not None and asked.body_base64 is not None:
        raise KernelError(Code.INVALID_ARGUMENT, "body and body_base64 exclude each other")
    if asked.body_base64 is None:
        return (asked.body or "").encode()
    try:
        return base64.b64decode(asked.body_base64, validate=True)
    except (binascii.Error, ValueError):
        raise KernelError(Code.INVALID_ARGUMENT, "body_base64 is not Base64") from None


def _body_shown(body: bytes) -> tuple[str | None, str | None]:
    try:
        return body.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(body).decode()
