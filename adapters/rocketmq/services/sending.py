"""SendMessage.

Durability: the answer says OK for a message once the kernel has completed its batch, that is, once
a majority of the voters has it on disk (one node: this node).

A request is stored as a whole or, if a message in it is not allowed, not at all. What the kernel
refuses, it refuses message by message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..codec import answer_encoding as wire
from ..codec.stubs import parse_send_message
from ..errors import Code, RocketmqError, from_kernel
from ..messages.stored import Drafts
from ..settings import SEND_MESSAGES_MAX
from .charging import charge_publish
from .recalling import QUEUE_NUMBER, Sent, encode
from .transactions import prepare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel.api.client import PublishBatch
    from kernel.api.model import TopicInfo

    from ..clients.callers import Caller
    from ..environment import Call, Environment


async def send_message(environment: Environment, data: bytes, call: Call) -> bytes:
    """SendMessage (hot). Raises RocketmqError."""
    caller = environment.admit(call)
    plain = environment.splitter.split(data)
    if plain is None or len(plain.idents) > SEND_MESSAGES_MAX:
        return await _send_any(environment, caller, data, call)
    name = caller.topic_to_publish(plain.topic, environment.settings)
    tenant, topics, publisher = caller.tenant, environment.topics, environment.publisher
    topic = topics.known(tenant, name) or await topics.find(tenant, name)
    caller.check_into(topic.info)
    target = topic.target
    if not target.takes_plain or max(plain.sizes) > target.body_bytes_max:
        return await _send_any(environment, caller, data, call)
    if call.account is not None:
        await charge_publish(environment, call, name, plain.sizes, plain.properties_bytes)
    batch = publisher.batch(environment.by(caller, call))
    first = batch.count
    to = topic.in_turn(environment.client, publisher.number)
    plain.add(batch, to, environment.clock.wall_ms())
    await publisher.stored(batch)
    return _answer(environment, batch, first, plain.idents, is_one_run=True)


async def _send_any(environment: Environment, caller: Caller, data: bytes, call: Call) -> bytes:
    """Messages with tag, keys, properties, a message group, a time, a transaction, or a fault."""
    messages = parse_send_message(data).messages
    if not messages or len(messages) > SEND_MESSAGES_MAX:
        text = f"a request holds 1 to {SEND_MESSAGES_MAX} messages"
        raise RocketmqError(Code.MESSAGE_CORRUPTED, text)
    tenant, shown = caller.tenant_of(messages[0].topic)
    name = caller.topic_to_publish(shown.name, environment.settings)
    topic = await environment.topics.find(tenant, name)
    caller.check_into(topic.info)
    if call.account is not None:
        sizes = [len(each.body) for each in messages]
        properties_bytes = sum(each.ByteSize() - each.topic.ByteSize() for each in messages)
        await charge_publish(environment, call, name, sizes, properties_bytes - sum(sizes))
    drafts = Drafts(
        messages[0].topic, topic.target, environment.settings, environment.clock.wall_ms()
    )
    publisher = environment.publisher
    batch = publisher.batch(environment.by(caller, call))
    draft, uid = drafts.of, batch.uid
    ready = [draft(message, uid()) for message in messages]
    if topic.has_transactions:
        if len(ready) > 1:
            text = "a request holds one transactional message"
            raise RocketmqError(Code.MESSAGE_CORRUPTED, text)
        return await prepare(environment, caller, topic, shown, ready[0])
    client = environment.client
    in_turn = topic.in_turn(client, publisher.number)
    first = batch.count
    for parts, size, _, key, _ in ready:
        batch.add(topic.by_key(client) if key else in_turn, parts, size)
    await publisher.stored(batch)
    idents = [ident for _, _, ident, _, _ in ready]
    delayed = topic.info if any(delay_ms for _, _, _, _, delay_ms in ready) else None
    return _answer(environment, batch, first, idents, is_one_run=False, delayed=delayed)


def _answer(
    environment: Environment,
    batch: PublishBatch,
    first: int,
    idents: Sequence[bytes],
    *,
    is_one_run: bool,
    delayed: TopicInfo | None = None,
) -> bytes:
    """`is_one_run`: all messages went to one queue, and none can be a duplicate: then they lie side
    by side, because they were added so. `delayed`: the topic, if there are delayed ones among them.
    """
    count = len(idents)
    failures = batch.failures
    if failures is None and delayed is None:
        environment.counters.sent += count
        start = _offset(batch, first)
        if start >= 0 and (is_one_run or count == 1):
            return wire.OK + wire.sent_in_a_row(idents, start)
        offsets = (_offset(batch, first + at) for at in range(count))
        return wire.OK + b"".join(map(wire.sent, idents, offsets))
    failed = failures or {}
    errors = [
        from_kernel(failure) if (failure := failed.get(first + at)) is not None else None
        for at in range(count)
    ]
    environment.counters.sent += errors.count(None)
    entries = (
        _entry(batch, first + at, ident, delayed) if error is None else wire.not_sent(ident, error)
        for at, (ident, error) in enumerate(zip(idents, errors, strict=True))
    )
    return wire.common_status(errors) + b"".join(entries)


def _entry(batch: PublishBatch, position: int, ident: bytes, delayed: TopicInfo | None) -> bytes:
    """Of a message that was stored; it may be recalled if it is one that waits for its time."""
    place = batch.place(position) if delayed is not None else None
    if delayed is None or place is None:
        return wire.sent(ident, _offset(batch, position))
    queue, offset = place
    handle = encode(delayed, Sent(queue & QUEUE_NUMBER, offset, ident))
    return wire.sent_delayed(ident, offset, handle)


def _offset(batch: PublishBatch, position: int) -> int:
    """-1: it is not known, because the queue was deleted, or is not durable."""
    place = batch.place(position)
    return place[1] if place is not None else -1
