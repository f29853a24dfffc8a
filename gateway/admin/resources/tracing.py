"""Where one message lies, and what has become of it, over HTTP.

GET /topics/TOPIC/trace/MESSAGE?from_queue=&offset=&since_ms=&limit=

MESSAGE is its own id (uid), or the one that its publisher gave it. No index knows ids: the queues
of a topic are read from an offset or a time on, so many messages in one request (`limit`), for
SEARCH_S at most. `next` says where the search goes on. It takes ?tenant=NAME (`tenants`). Nothing
is leased, nothing is counted.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final
from uuid import UUID

from msgspec import Struct

from gateway.admin.http.callers import connected_user
from gateway.admin.http.requests import answer, number, path_name
from gateway.admin.resources.messages import MessageShown
from gateway.admin.resources.topics import find_topic
from gateway.process.slices import Slice
from kernel.api.message import uid_at
from kernel.api.model import MessageStanding
from kernel.common.errors import Code, KernelError
from kernel.common.ids import Offset

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from gateway.admin.resources.messages import MessageRoutes
    from gateway.admin.resources.tenants import KnownTenants
    from kernel.api.client import Client
    from kernel.api.model import TopicInfo
    from kernel.common.ports import Clock

LOOKED_DEFAULT: Final = 10_000
LOOKED_MAX: Final = 100_000
"""Messages in one request: a minute of a busy topic."""

SEARCH_S: Final = 5.0
"""Of one request; a client waits longer than that for an answer."""

FOUND_MAX: Final = 100
"""Messages in one answer: publishers may give many the same id."""

READ_BYTES: Final = 1024 * 1024
"""About so much is in memory at once, or one message."""

READ_MESSAGES: Final = 256

ID_BYTES_MAX: Final = 1_024


class GroupTrace(MessageStanding, frozen=True, kw_only=True):
    """What has become of the message for a group."""

    group: str
    consumers: int
    """Push consumers that the group has now."""


class MessageTrace(Struct, frozen=True):
    message: MessageShown
    groups: list[GroupTrace]
    """Of the topic; a group whose store is older than the question is left out."""


class TracePage(Struct, frozen=True):
    """`next`: `from_queue` and `offset` to go on from; null: the whole topic was looked at."""

    found: list[MessageTrace]
    looked_at: int
    next: tuple[int, int] | None


class TraceRoutes:
    """Handlers of traces."""

    def __init__(
        self, client: Client, clock: Clock, tenants: KnownTenants, messages: MessageRoutes
    ) -> None:
        self._client = client
        self._clock = clock
        self._tenants = tenants
        self._messages = messages

    async def trace(self, request: Request) -> Response:
        """Find a message by its id, or by the one that its publisher gave it: where it lies, and
        what has become of it for each group.
        """
        topic = await find_topic(self._client, self._tenants.of(request), request)
        wanted = _Wanted(path_name(request, "message"))
        last = max(topic.numbers)
        first = number(request, "from_queue", 0, most=last)
        offset, since_ms = number(request, "offset", 0), number(request, "since_ms", 0)
        limit = number(request, "limit", LOOKED_DEFAULT, least=1, most=LOOKED_MAX)
        ends_ms = self._clock.monotonic_ms() + int(SEARCH_S * 1_000)
        found: list[MessageTrace] = []
        looked_at, by = 0, connected_user(request)
        async for queue, at, slot in self._walk(topic, range(first, last + 1), offset, since_ms):
            is_late = looked_at and self._clock.monotonic_ms() >= ends_ms
            if looked_at == limit or len(found) == FOUND_MAX or is_late:
                return answer(TracePage(found, looked_at, (queue, at)))
            looked_at += 1
            if wanted.may_be(slot):
                shown = self._messages.shown(queue, at, slot)
                if wanted.is_id_of(shown):
                    groups = await self._groups(topic, queue, Offset(at))
                    found.append(MessageTrace(shown, groups))
                    self._client.note_read(topic, queue, [at], "", by)
        return answer(TracePage(found, looked_at, None))

    async def _walk(
        self, topic: TopicInfo, queues: range, offset: int, since_ms: int
    ) -> AsyncIterator[tuple[int, int, bytes]]:
        """(queue, offset, slot) of what is kept, from an offset of the first queue on; as many are
        read at once as the last ones were small.
        """
        piece = Slice()
        for queue in (each for each in topic.numbers if each in queues):
            start, end = await self._client.span(topic, queue)
            at = max(start, offset) if queue == queues.start else start
            if since_ms:
                at = max(at, await self._client.offset_since(topic, queue, since_ms))
            count = 1
            while at < end:
                got = await self._client.peek(topic, queue, Offset(at), min(count, end - at))
                if not got:
                    break
                for each, slot in got:
                    yield queue, each, slot
                at = got[-1][0] + 1
                # What is in memory is read without waiting.
                if piece.is_over:
                    await piece.pause()
                count = _next_count([len(slot) for _, slot in got])

    async def _groups(self, topic: TopicInfo, queue: int, offset: Offset) -> list[GroupTrace]:
        found = []
        for group in topic.groups:
            standing = await self._client.standing(topic, queue, group, offset)
            if standing is not None:
                figures = await self._client.statistics(topic, group)
                found.append(
                    GroupTrace(
                        standing.state,
                        standing.failures,
                        standing.until_ms,
                        group=group,
                        consumers=figures.consumers,
                    )
                )
        return found


class _Wanted:
    """An id that is looked for."""

    def __init__(self, text: str) -> None:
        """Raises KernelError INVALID_ARGUMENT."""
        self._text, self._given = text, text.encode()
        if not 0 < len(self._given) <= ID_BYTES_MAX:
            message = f"an id has 1 to {ID_BYTES_MAX} bytes"
            raise KernelError(Code.INVALID_ARGUMENT, message)
        self._uid: UUID | None = None
        with suppress(ValueError):
            self._uid = UUID(text)

    def may_be(self, slot: bytes) -> bool:
        """Whether it is a message's uid, or stands anywhere in it: cheap, and seldom wrong."""
        is_uid = self._uid is not None and uid_at(slot, 0) == self._uid.bytes
        return is_uid or self._given in slot

    def is_id_of(self, shown: MessageShown) -> bool:
        """Whether it is the message's id, or the one that its publisher gave it."""
        is_uid = self._uid is not None and str(self._uid) == shown.uid
        return is_uid or self._text == shown.message_id


def _next_count(sizes: Sequence[int]) -> int:
    """How many messages to read next."""
    mean = max(1, sum(sizes) // len(sizes))
    return max(1, min(READ_MESSAGES, READ_BYTES // mean, 8 * len(sizes)))
