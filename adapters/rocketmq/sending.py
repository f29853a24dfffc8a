"""SendMessage.

Durability: the answer says OK for a message once the kernel has completed its batch, that is, once
a majority of the voters has it on disk (one node: this node).

A request is stored as a whole or, if a message in it is not allowed, not at all. What the kernel
refuses, it refuses message by message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import wire
from .callers import PUBLISH
from .errors import Code, RocketmqError, from_kernel
from .names import topic_name
from .settings import SEND_MESSAGES_MAX
from .stored import Drafts
from .stubs import parse_send_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel.client import PublishBatch

    from .callers import Caller
    from .environment import Call, Environment
    from .topics import Topic


async def send_message(environment: Environment, data: bytes, call: Call) -> bytes:
    """SendMessage (hot). Raises RocketmqError."""
    caller = environment.admit(call)
    plain = environment.splitter.split(data)
    if plain is None or len(plain.idents) > SEND_MESSAGES_MAX:
        return await _send_any(environment, caller, data)
    topic = await _topic_of(environment, caller, caller.tenant, plain.topic)
    target = topic.target
    if not target.takes_plain or plain.body_bytes_max > target.body_bytes_max:
        return await _send_any(environment, caller, data)
    batch = environment.publisher.batch()
    first = batch.count
    plain.add(batch, topic.in_turn(environment.client), environment.clock.wall_ms())
    await environment.publisher.stored(batch)
    return _answer(environment, batch, first, plain.idents, has_window=False)


async def _send_any(environment: Environment, caller: Caller, data: bytes) -> bytes:
    """Messages with tag, keys, properties, a message group, a time, or a fault."""
    messages = parse_send_message(data).messages
    if not messages or len(messages) > SEND_MESSAGES_MAX:
        text = f"a request holds 1 to {SEND_MESSAGES_MAX} messages"
        raise RocketmqError(Code.MESSAGE_CORRUPTED, text)
    tenant, name = caller.tenant_of(messages[0].topic)
    topic = await _topic_of(environment, caller, tenant, name.name)
    drafts = Drafts(
        messages[0].topic, topic.target, environment.settings, environment.clock.wall_ms()
    )
    batch = environment.publisher.batch()
    draft, uid = drafts.of, batch.uid
    ready = [draft(message, uid()) for message in messages]
    client = environment.client
    in_turn = topic.in_turn(client)
    first = batch.count
    for parts, size, _, key in ready:
        batch.add(topic.by_key(client) if key else in_turn, parts, size)
    await environment.publisher.stored(batch)
    idents = [ident for _, _, ident, _ in ready]
    return _answer(environment, batch, first, idents, has_window=topic.target.has_window)


async def _topic_of(environment: Environment, caller: Caller, tenant: str, name: str) -> Topic:
    """A topic to which the caller may publish. Raises RocketmqError."""
    kernel_name = topic_name(name, environment.settings)
    caller.check(caller.rights.allows(PUBLISH, kernel_name), f"publish to topic {name}")
    topics = environment.topics
    return topics.known(tenant, kernel_name) or await topics.find(tenant, kernel_name)


def _answer(
    environment: Environment,
    batch: PublishBatch,
    first: int,
    idents: Sequence[bytes],
    *,
    has_window: bool,
) -> bytes:
    count = len(idents)
    failures = batch.failures
    if failures is None:
        environment.counters.sent += count
        offsets = _offsets(batch, first, count, may_skip=not has_window)
        return wire.OK + wire.sent(idents, offsets)
    errors = [
        from_kernel(failure) if (failure := failures.get(first + at)) is not None else None
        for at in range(count)
    ]
    environment.counters.sent += errors.count(None)
    entries = (
        wire.sent((ident,), (_offset(batch, first + at),))
        if error is None
        else wire.not_sent(ident, error)
        for at, (ident, error) in enumerate(zip(idents, errors, strict=True))
    )
    return wire.common_status(errors) + b"".join(entries)


def _offsets(batch: PublishBatch, first: int, count: int, *, may_skip: bool) -> Sequence[int]:
    """Offsets of messages that all were stored.

    `may_skip`: none was dropped as a duplicate. Then those in one queue lie side by side, because
    they were added so, and the first and the last tell the rest.
    """
    if count == 1:
        return (_offset(batch, first),)
    start, end = batch.place(first), batch.place(first + count - 1)
    if (
        may_skip
        and start is not None
        and end is not None
        and start[0] == end[0]
        and end[1] - start[1] == count - 1
    ):
        return range(start[1], end[1] + 1)
    return [_offset(batch, first + at) for at in range(count)]


def _offset(batch: PublishBatch, position: int) -> int:
    place = batch.place(position)
    return place[1] if place is not None else -1
