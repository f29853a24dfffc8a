"""What a group has yet to consume, over HTTP: taken by hand, settled, and gone back to.

    POST /topics/TOPIC/groups/GROUP/receive
    POST /topics/TOPIC/groups/GROUP/settle
    POST /topics/TOPIC/groups/GROUP/seek

Each takes ?tenant=NAME (`tenants`).

What is received is leased, as by any consumer, and has a token; who neither acks nor returns it in
time leaves it to others, and the attempt counts. Whoever only wants to look peeks (`messages`).

A group is sought on streams only, and only while nobody uses it: whoever is connected has messages
and a place of its own in memory, so consumers go first, and leases are settled or run out. Of
several queues each is sought by itself: what an error names was not, and the call may be repeated.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from adapters.http_limits import charge_receive, charge_received
from gateway.admin.http.callers import connected_user
from gateway.admin.http.requests import answer, path_name, read_body
from gateway.admin.resources.messages import PEEK_BYTES_MAX, FromZero, MessageShown
from gateway.admin.resources.topics import find_topic, options_of
from kernel.api.client import LeaseChange, LeaseVerb, ReceiveSpec
from kernel.api.model import TopicKind
from kernel.common.errors import Code, KernelError
from kernel.common.ids import NUMBER_BITS, Offset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from gateway.admin.resources.messages import MessageRoutes
    from gateway.admin.resources.tenants import KnownTenants
    from kernel.api.client import Client, Received
    from kernel.api.model import TopicInfo
    from kernel.api.tracing import ConnectedUser

RECEIVE_MAX = 100
WAIT_MS_MAX = 20_000
"""Shorter than tools wait for an answer."""

LEASE_MS_MAX = 12 * 3_600_000
TOKEN_CHARS_MAX = 256
"""Base64 of a token; one has under 100 bytes."""

WAITING_MAX = 100
"""Calls that receive at once: each is a consumer of every queue of its topic."""


class ReceiveRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """`wait_ms`: for the first. `lease_ms`: without it, as long as the group says."""

    messages: Annotated[int, Meta(ge=1, le=RECEIVE_MAX)] = 10
    wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)] = 0
    lease_ms: Annotated[int, Meta(ge=1_000, le=LEASE_MS_MAX)] | None = None


class MessageLeased(Struct, frozen=True):
    """A message that is the caller's until the lease ends."""

    token: str
    attempt: int
    message: MessageShown


class MessagesLeased(Struct, frozen=True):
    """None if nothing came in time."""

    messages: list[MessageLeased]


Token = Annotated[str, Meta(max_length=TOKEN_CHARS_MAX)]
Tokens = Annotated[list[Token], Meta(max_length=RECEIVE_MAX)]


class SettleRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """`acks`: done with. `returns`: ready again, and the attempt does not count."""

    acks: Tokens = []
    returns: Tokens = []


class Settled(Struct, frozen=True):
    """`lost`: tokens whose lease has ended, or never was: another may have got the message."""

    settled: int
    lost: list[str]


class SeekRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one of `to`, `time_ms` (since the epoch: what was stored from then on) and `offset`,
    which needs `queue` unless there is one queue.
    """

    to: Literal["earliest", "latest"] | None = None
    time_ms: FromZero | None = None
    offset: FromZero | None = None
    queue: FromZero | None = None
    """Only this one; without it all of them."""


class QueueSought(Struct, frozen=True):
    queue: int
    offset: int
    """Of the message with which the group goes on."""


class GroupSought(Struct, frozen=True):
    """Where a group goes on, once that is on disk."""

    queues: list[QueueSought]


class ConsumingRoutes:
    """Handlers of what groups consume."""

    def __init__(self, client: Client, tenants: KnownTenants, messages: MessageRoutes) -> None:
        """`messages` tells how a message is shown."""
        self._client = client
        self._tenants = tenants
        self._messages = messages
        self._receiving = 0

    async def receive(self, request: Request) -> Response:
        """Lease messages of a group; who settles them in time has consumed them."""
        asked = await read_body(request, ReceiveRequest)
        topic, group = await self._group(request)
        account, limiter = self._messages.account(request), self._messages.limiter
        await charge_receive(limiter, account, topic.name)
        if self._receiving >= WAITING_MAX:
            raise KernelError(Code.BUSY, f"{WAITING_MAX} calls receive messages already")
        self._receiving += 1
        try:
            found = await self._receive(topic, group, asked, connected_user(request))
        finally:
            self._receiving -= 1
        sizes = [each.message.size_bytes for each in found]
        charge_received(limiter, account, topic.name, sizes)
        return answer(MessagesLeased(found))

    async def _receive(
        self, topic: TopicInfo, group: str, asked: ReceiveRequest, by: ConnectedUser
    ) -> list[MessageLeased]:
        """One by one: a page of the largest messages must not be in memory at once."""
        found: list[MessageLeased] = []
        size, wait_ms = 0, asked.wait_ms
        lease_ms = asked.lease_ms or topic.groups[group].lease_ms
        while len(found) < asked.messages and size < PEEK_BYTES_MAX:
            try:
                received = await self._client.receive(
                    ReceiveSpec(topic, group, wait_ms=wait_ms, lease_ms=lease_ms, by=by)
                )
            except KernelError:
                if not found:
                    raise
                break  # what was leased before is the caller's
            rows = self._leased(received)
            if not rows:
                break
            found += rows
            size += sum(each.message.size_bytes for each in rows)
            wait_ms = 0
        return found

    def _leased(self, received: Received) -> list[MessageLeased]:
        handed = received.deliveries
        if handed is None:
            return []
        queue = handed.queue & NUMBER_BITS
        attempts = handed.attempts or [1] * len(handed.offsets)
        rows = zip(received.tokens, attempts, handed.offsets, handed.slots, strict=True)
        return [
            MessageLeased(
                b64encode(token).decode(), attempt, self._messages.shown(queue, offset, slot)
            )
            for token, attempt, offset, slot in rows
        ]

    async def settle(self, request: Request) -> Response:
        """Ack or return what was received; the answer comes once it is on disk."""
        asked = await read_body(request, SettleRequest)
        topic, group = await self._group(request)
        tokens = [*asked.acks, *asked.returns]
        verbs = [LeaseVerb.ACK] * len(asked.acks) + [LeaseVerb.RETURN] * len(asked.returns)
        by = connected_user(request)
        changes = [
            LeaseChange(_token(text), verb, by=by) for text, verb in zip(tokens, verbs, strict=True)
        ]
        failures = await self._client.settle_leases(topic, group, changes) if changes else ()
        lost = [text for text, failure in zip(tokens, failures, strict=True) if failure is not None]
        return answer(Settled(len(tokens) - len(lost), lost))

    async def seek(self, request: Request) -> Response:
        """Have a group of a stream go on from elsewhere; refused while somebody uses the group."""
        asked = await read_body(request, SeekRequest)
        if [asked.to, asked.time_ms, asked.offset].count(None) != 2:
            raise KernelError(Code.INVALID_ARGUMENT, "name one of to, time_ms and offset")
        topic, group = await self._group(request)
        queues = _queues(topic, asked)
        await self._check_unused(topic, group)
        sought: list[QueueSought] = []
        for queue in queues:
            try:
                target = await self._target(topic, queue, asked)
                offset = await self._client.seek(topic, queue, group, target)
            except KernelError as error:
                done = f"; queues {queues[0]} to {queue - 1} were sought" if sought else ""
                raise KernelError(error.code, f"queue {queue}: {error.message}{done}") from None
            sought.append(QueueSought(queue, offset))
        return answer(GroupSought(sought))

    async def _check_unused(self, topic: TopicInfo, group: str) -> None:
        """Before the first of several queues is sought; the kernel asks at each again."""
        if topic.options.kind is not TopicKind.STREAM:
            text = (
                f"{topic.name} is a work topic: what a group of it has acked is gone; only on"
                " streams a group can go back"
            )
            raise KernelError(Code.NOT_ALLOWED, text)
        figures = await self._client.statistics(topic, group)
        if figures.consumers or figures.leased:
            text = (
                f"group {group} has {figures.consumers} consumers and {figures.leased} leased"
                " messages: stop the consumers, and let leases be settled or run out"
            )
            raise KernelError(Code.IN_USE, text)

    async def _target(self, topic: TopicInfo, queue: int, asked: SeekRequest) -> Offset:
        if asked.offset is not None:
            return Offset(asked.offset)
        if asked.time_ms is not None:
            return await self._client.offset_since(topic, queue, asked.time_ms)
        first, following = await self._client.span(topic, queue)
        return Offset(first if asked.to == "earliest" else following)

    async def _group(self, request: Request) -> tuple[TopicInfo, str]:
        topic = await find_topic(self._client, self._tenants.of(request), request)
        name = path_name(request, "group")
        options_of(topic, name)
        return topic, name


def _queues(topic: TopicInfo, asked: SeekRequest) -> Sequence[int]:
    numbers = topic.numbers
    count = len(numbers)
    if asked.queue is not None and asked.queue not in numbers:
        text = f"{topic.name} has queues {', '.join(map(str, numbers))}"
        raise KernelError(Code.INVALID_ARGUMENT, text)
    if asked.offset is not None and asked.queue is None and count > 1:
        text = f"each of the {count} queues counts its own offsets: name the queue"
        raise KernelError(Code.INVALID_ARGUMENT, text)
    return numbers if asked.queue is None else [asked.queue]


def _token(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise KernelError(Code.INVALID_ARGUMENT, f"{text[:32]!r} is no token") from None
