"""Which messages of a topic are traced, and what has become of one, over HTTP.

PUT /topics/TOPIC/trace                                          {"mode": "off", "sample" or "all"}
GET /topics/TOPIC/history/MESSAGE?offset=&since_ms=&queue=&at=   what has become of a message

MESSAGE is its uid. The trace stream has no index: it is read from an offset or a time on, for
SEARCH_S at most; `next` says where the search goes on, and `queue` and `at` where the message lies,
for the next page. They take ?tenant=NAME (`tenants`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

from msgspec import Meta, Struct

from gateway.admin.http.callers import caller_of
from gateway.admin.http.requests import answer, number, path_name, read_body
from gateway.admin.resources.topic_trace_changes import known_mode, put_mode
from gateway.admin.resources.topics import find_topic
from gateway.reporting.trace_stream import ONLY_PROCESS, events_in, stream_of
from kernel.api.tracing import TraceMode
from kernel.broker.tracing import UID_BYTES, What
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from gateway.admin.resources.tenants import KnownTenants
    from gateway.reporting.system_stream import SystemStream
    from kernel.api.client import Client
    from kernel.api.model import TopicInfo
    from kernel.api.tracing import ConnectedUser
    from kernel.broker.tracing import Event
    from kernel.common.ports import Clock

SEARCH_S: Final = 3.0
"""Of one request; a client waits longer than that for an answer."""

EVENTS_MAX: Final = 1_000
"""In one answer: a message may come back for ever."""

BEFORE_MS: Final = 60_000
"""By which another process may have written sooner, by its clock, than the one that tells where the
message lies."""

READ_MESSAGES: Final = 8
"""Of the stream at once: a MiB."""


_ELSEWHERE: Final = {What.MOVED, What.CAME}
"""Events that name a message of another topic."""


class TraceRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Which messages are traced: none, one in 100, or all of them."""

    mode: TraceMode


class TraceSet(Struct, frozen=True):
    topic: str
    mode: TraceMode


class EventConnection(Struct, frozen=True):
    """Who published, took, settled or read: `address` and port, `connection` as connections are
    listed; both null if they are not known, or of another tenant's user and the caller does not
    administer the node.
    """

    tenant: str
    user: str
    protocol: str
    address: str | None
    connection: str | None


class TraceEvent(Struct, frozen=True):
    """`time_ms` since the epoch, of the log; `what`: as the leader has noted it, stored,
    handed_out, leased, extended, acked, released, returned, given_up, skipped, purged, trimmed; as
    the process has that the client is connected to (`by`; its own clock), published, taken,
    settled, which says what was asked for (`reason`: ack, release, return, extend, or why it is a
    dead letter), and read, which is seen and not taken; of dead letters and moves, moved and came,
    with `reason` for where to and from, and `uid` for what the message is called there; `group`:
    null: of no consumer group; `protocol`: of whose command it was, `weir` for the server's own;
    `until_ms`: null: not for a time; `process`: which has noted it.
    """

    time_ms: int
    what: str
    queue: Annotated[int, Meta(ge=0)]
    offset: Annotated[int, Meta(ge=0)]
    group: str | None
    protocol: str
    reason: str | None
    until_ms: int | None
    process: str
    by: EventConnection | None = None
    uid: str | None = None


class HistoryPage(Struct, frozen=True):
    """`place`: queue and offset of the message, as soon as they are known; `next`: from which
    `offset` of the stream on the search goes on, null: all of it was looked at; `mode`: what is
    traced of the topic now.
    """

    mode: TraceMode
    events: list[TraceEvent]
    place: tuple[int, int] | None
    next: int | None


class TopicTraceRoutes:
    """Handlers of what is traced."""

    def __init__(
        self, client: Client, clock: Clock, tenants: KnownTenants, writers: Mapping[int, str]
    ) -> None:
        """`writers`: protocols by origin."""
        self._client = client
        self._clock = clock
        self._tenants = tenants
        self._writers = writers
        self._stream = stream_of(client, clock)

    async def set_mode(self, request: Request) -> Response:
        """Have what becomes of a topic's messages noted: of none, one in 100, or all of them."""
        topic = await find_topic(self._client, self._tenants.of(request), request)
        asked = await read_body(request, TraceRequest)
        await put_mode(self._client, topic, asked.mode)
        return answer(TraceSet(topic.name, asked.mode))

    async def history(self, request: Request) -> Response:
        """What has become of a message of a traced topic, the oldest first, as far as it was noted:
        what a process had not written yet when it was killed is missing.
        """
        topic = await find_topic(self._client, self._tenants.of(request), request)
        sees_all = caller_of(request).administers_node
        uid = _uid_of(path_name(request, "message"))
        search = MessageSearch(topic, uid, self._writers, sees_all=sees_all)
        if "queue" in request.query_params or "at" in request.query_params:
            search.place = number(request, "queue", 0), number(request, "at", 0)
        offset, since_ms = number(request, "offset", 0), number(request, "since_ms", 0)
        mode = known_mode(self._client, topic)
        if not await self._stream.is_there():
            return answer(HistoryPage(mode, [], search.place, None))
        ends_ms = self._clock.monotonic_ms() + int(SEARCH_S * 1_000)
        after = await search.read(
            self._stream, offset, since_ms, lambda: self._clock.monotonic_ms() >= ends_ms
        )
        return answer(HistoryPage(mode, search.events, search.place, after))


class MessageSearch:
    """For the events of one message."""

    def __init__(
        self, topic: TopicInfo, uid: bytes, writers: Mapping[int, str], *, sees_all: bool
    ) -> None:
        """`sees_all`: whether addresses of another tenant's users are told."""
        self._topic = topic
        self._sees_all = sees_all
        self._uid = uid
        self._writers = writers
        self.place: tuple[int, int] | None = None
        self.events: list[TraceEvent] = []
        self._stored_ms = 0

    async def read(
        self, stream: SystemStream, offset: int, since_ms: int, is_late: Callable[[], bool]
    ) -> int | None:
        """Look through the stream from an offset and a time on, until it `is_late` or there are
        EVENTS_MAX; the offset to go on from, None: all was looked at. Raises KernelError.
        """
        while True:
            was_found = self.place is not None
            found, behind, _ = await stream.read(offset, since_ms, READ_MESSAGES)
            for _, body in found:
                self.look(body)
            offset, since_ms = behind, 0
            if self.place is not None and not was_found:
                # What others have noted of it may have been written before it was known by this.
                self.events.clear()
                offset, since_ms = 0, max(0, self._stored_ms - BEFORE_MS)
            elif not found:
                return None
            elif is_late() or len(self.events) >= EVENTS_MAX:
                return offset

    def look(self, body: bytes) -> None:
        """Take the events of the message out of one of the stream."""
        process, events = events_in(body, self._topic.id)
        for event in events:
            if self.place is None and event.what == What.STORED:
                self._find(event)
            if self.place is None or event.queue != self.place[0]:
                continue
            offset = self.place[1]
            if any(first <= offset < first + count for first, count in event.ranges):
                self.events.append(self._shown(event, offset, process))

    def _shown(self, event: Event, offset: int, process: str) -> TraceEvent:
        by = event.by
        return TraceEvent(
            event.time_ms,
            _spelled(event.what),
            event.queue,
            offset,
            event.group or None,
            self._writers.get(event.origin, "weir") if by is None else by.protocol,
            event.reason or None,
            event.until_ms or None,
            process,
            None if by is None else self._connection(by, process),
            str(UUID(bytes=event.uids)) if event.what in _ELSEWHERE else None,
        )

    def _connection(self, by: ConnectedUser, process: str) -> EventConnection:
        address, connection = by.address or None, by.connection or None
        if connection is not None and process != ONLY_PROCESS:
            connection = f"{connection}@{process}"
        if not self._sees_all and by.tenant != self._topic.tenant:
            address = connection = None
        return EventConnection(by.tenant, by.user, by.protocol, address, connection)

    def _find(self, event: Event) -> None:
        queue, ranges, uids = event.queue, event.ranges, event.uids
        at = uids.find(self._uid)
        while at >= 0 and at % UID_BYTES:  # the end of one, and the beginning of the next
            at = uids.find(self._uid, at + 1)
        if at >= 0:
            self.place = queue, ranges[0][0] + at // UID_BYTES
            self._stored_ms = event.time_ms


def _spelled(what: int) -> str:
    try:
        return What(what).name.lower()
    except ValueError:  # a newer process has noted it
        return f"event {what}"


def _uid_of(text: str) -> bytes:
    """Raises KernelError INVALID_ARGUMENT."""
    try:
        return UUID(text).bytes
    except ValueError:
        message = f"{text!r} is not the uid of a message"
        raise KernelError(Code.INVALID_ARGUMENT, message) from None
