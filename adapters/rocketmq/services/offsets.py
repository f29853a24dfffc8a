"""PullMessage, UpdateOffset, GetOffset and QueryOffset: a stream read by offset, without leases.

    QueryOffset     where a queue begins, ends, or was at a time
    PullMessage     the messages from an offset on: none is leased, acked or counted as an attempt
    GetOffset       how far a group is
    UpdateOffset    where it goes on, forwards or backwards: also for those that receive and ack

A pull reads what the queue has kept, whoever has acked it. It stops before a message that is not
due: what lies behind it would else be read, and that message never. On topics that keep messages
only until they are acked these calls are refused: there is nothing to go back to.

A pull that finds nothing looks again every `PULL_LOOK_S`: a question to the queue's leader each
time. What it brings is counted for the bill here: nothing of it is in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernel.api.message import HEADER, TTL_AT_ONCE
from kernel.api.model import TopicKind
from kernel.common.ids import Offset
from metering.counters import measure_slots

from ..clients.callers import CONSUME, INSPECT
from ..codec import answer_encoding as wire
from ..codec.stubs import (
    parse_get_offset,
    parse_pull_message,
    parse_query_offset,
    parse_update_offset,
)
from ..errors import Code, RocketmqError
from ..messages.delivered import Writer
from ..names import topic_name
from ..topics.ready_topics import group_not_found
from .charging import charge_receive, charge_received
from .filters import filter_of
from .receiving import ReceiveCall, asked_wait_ms, consuming, milliseconds, wait_ms_of

if TYPE_CHECKING:
    from kernel.api.filters import MessageFilter

    from ..codec.stubs import MessageQueue
    from ..environment import Call, Environment
    from ..topics.ready_topics import Topic

BEGINNING: Final = 0
END: Final = 1
TIMESTAMP: Final = 2
"""`enum QueryOffsetPolicy`."""


_PUBLISHED: Final = 9
_TTL: Final = 10
_KEY: Final = 12
_TAG: Final = 13
"""Fields of a message's header (kernel.api.message); the delay stands behind the TTL."""


async def query_offset(environment: Environment, data: bytes, call: Call) -> bytes:
    """QueryOffset. Raises RocketmqError, KernelError."""
    caller = environment.admit(call)
    request = parse_query_offset(data)
    tenant, shown = caller.tenant_of(request.message_queue.topic)
    name = topic_name(shown.name, environment.settings)
    allows = caller.rights.allows
    caller.check(allows(INSPECT, name) or allows(CONSUME, name), f"inspect topic {shown.name}")
    topic = await environment.topics.find(tenant, name)
    number = _queue(topic, request.message_queue)
    first, end = await environment.client.span(topic.info, number)
    if request.query_offset_policy == TIMESTAMP:
        time_ms = milliseconds(request.timestamp)
        return wire.offset_answer(
            await environment.client.offset_since(topic.info, number, time_ms)
        )
    if request.query_offset_policy not in {BEGINNING, END}:
        text = f"there is no policy {request.query_offset_policy}"
        raise RocketmqError(Code.BAD_REQUEST, text)
    return wire.offset_answer(first if request.query_offset_policy == BEGINNING else end)


async def get_offset(environment: Environment, data: bytes, call: Call) -> bytes:
    """GetOffset. Raises RocketmqError, KernelError."""
    caller = environment.admit(call)
    request = parse_get_offset(data)
    at = await consuming(environment, caller, request.message_queue.topic, request.group)
    number = _queue(at.topic, request.message_queue)
    if at.group not in at.topic.info.groups:
        raise group_not_found(at.group)
    return wire.offset_answer(await environment.client.position(at.topic.info, number, at.group))


async def update_offset(environment: Environment, data: bytes, call: Call) -> bytes:
    """UpdateOffset; the group is made if need be. Raises RocketmqError, KernelError."""
    caller = environment.admit(call)
    request = parse_update_offset(data)
    at = await consuming(environment, caller, request.message_queue.topic, request.group)
    number = _queue(at.topic, request.message_queue)
    topic = await environment.topics.with_group(at.topic, at.group)
    first, end = await environment.client.span(topic.info, number)
    if not first <= request.offset <= end:
        raise _illegal(request.offset, first, end)
    await environment.client.seek(topic.info, number, at.group, Offset(request.offset))
    return wire.OK


async def pull_message(environment: Environment, data: bytes, call: Call, store_host: str) -> bool:
    """PullMessage: whether there were messages. Raises RocketmqError and KernelError before
    anything was written.
    """
    caller = environment.admit(call)
    request = parse_pull_message(data)
    settings = environment.settings
    if request.batch_size < 1:
        raise RocketmqError(Code.BAD_REQUEST, "the batch size must be at least 1")
    wanted = filter_of(request.filter_expression)
    asked_ms = asked_wait_ms(request, settings)
    at = await consuming(environment, caller, request.message_queue.topic, request.group)
    pull = PullCall(
        environment,
        at,
        _queue(at.topic, request.message_queue),
        request.offset,
        min(request.batch_size, settings.receive_messages_max),
        wanted,
    )
    await pull.check_offset()
    await charge_receive(environment, call, at.topic.info.name)
    wait_ms = wait_ms_of(asked_ms, call.time_remaining())
    messages = await environment.receiver.repeat(pull.look, wait_ms, at.check) or []
    if messages:
        charge_received(environment, call, at.topic.info.name, [slot for _, slot in messages])
    await call.write(wire.OK if messages else wire.NOTHING_RECEIVED)
    writer = Writer(at.name, pull.number, 0, store_host, environment.client.origins)
    for offset, slot in messages:
        await call.write(writer.message(slot, offset, 1, b""))
    await call.write(wire.next_offset(pull.offset))
    info = at.topic.info
    by = environment.by(caller, call) if messages else None
    if by is not None:
        shown = [offset for offset, _ in messages]
        environment.client.note_read(info, pull.number, shown, at.group, by)
    if messages and environment.meter is not None:
        counter = environment.meter.unleased_counter(info.tenant, info.name, at.group)
        counter.count(len(messages), *measure_slots([slot for _, slot in messages]))
    environment.counters.delivered += len(messages)
    return bool(messages)


class PullCall:
    """One look after the other at a queue, each from where the last one ended."""

    def __init__(
        self,
        environment: Environment,
        at: ReceiveCall,
        number: int,
        offset: int,
        count: int,
        wanted: MessageFilter | None,
    ) -> None:
        self._environment = environment
        self._info = at.topic.info
        self._count = count
        self._wanted = wanted
        self.number = number
        """Of the queue."""
        self.offset = offset
        """Where the next look begins."""

    async def check_offset(self) -> None:
        """Raise ILLEGAL_OFFSET for one that the queue has not, or no more."""
        first, end = await self._environment.client.span(self._info, self.number)
        if not first <= self.offset <= end:
            raise _illegal(self.offset, first, end)

    async def look(self) -> list[tuple[int, bytes]] | None:
        """The next messages that are due, alive and wanted; None if there are none."""
        client = self._environment.client
        seen = await client.peek(self._info, self.number, Offset(self.offset), self._count)
        now_ms = self._environment.clock.wall_ms()
        found: list[tuple[int, bytes]] = []
        for offset, slot in seen:
            head = HEADER.unpack_from(slot)
            published_ms, ttl_ms, delay_ms, tag = head[_PUBLISHED], *head[_TTL:_KEY], head[_TAG]
            if published_ms + delay_ms > now_ms:
                break
            self.offset = offset + 1
            is_alive = ttl_ms != TTL_AT_ONCE and (not ttl_ms or published_ms + ttl_ms > now_ms)
            if is_alive and (
                self._wanted is None or self._wanted.matches(tag, slot, client.origins)
            ):
                found.append((offset, slot))
        return found or None


def _queue(topic: Topic, queue: MessageQueue) -> int:
    """The number of a queue of a stream. Raises UNSUPPORTED, BAD_REQUEST."""
    if topic.info.options.kind is not TopicKind.STREAM:
        text = "this topic keeps messages until they are acked: receive and ack instead"
        raise RocketmqError(Code.UNSUPPORTED, text)
    if queue.id not in topic.info.numbers:
        text = f"the topic has queues {topic.info.numbers}, not {queue.id}"
        raise RocketmqError(Code.BAD_REQUEST, text)
    return queue.id


def _illegal(offset: int, first: int, end: int) -> RocketmqError:
    text = f"the queue has offsets {first} to {end}, not {offset}"
    return RocketmqError(Code.ILLEGAL_OFFSET, text)
