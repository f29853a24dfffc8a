"""ReceiveMessage: the status, the messages, the time of delivery, as a stream.

A consumer takes from every queue of the topic, whichever it names. Messages are leased first, by
the log, then written: what was on its way to a client that went away comes back. A repeated
`attempt_id` of a group in order means that the client did not get the answer to that attempt: it
gets the same messages again, which else would block their message group until the lease is over.

The poll is cut to what remains of the call's deadline, so that no call ends by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from adapters.rocketmq.origin import ORIGIN_BYTE
from kernel.api.client import LeaseChange, LeaseVerb, ReceiveSpec
from kernel.common.ids import Offset

from ..clients.callers import CONSUME, CONSUME_GROUP
from ..codec import answer_encoding as wire
from ..codec.receipt_handle import Handles
from ..codec.stubs import parse_receive_message
from ..errors import Code, RocketmqError
from ..messages.delivered import Writer
from ..names import group_name, topic_name
from ..settings import (
    ATTEMPT_ID_CHARACTERS_MAX,
    ATTEMPTS_KEPT_MAX,
    POLL_MARGIN_MS,
    UNDELIVERED_DELAY_MS,
)
from .charging import charge_receive, charge_received
from .filters import filter_of
from .recalling import QUEUE_NUMBER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernel.api.client import Deliveries

    from ..clients.callers import Caller
    from ..codec.answer_encoding import Name
    from ..codec.stubs import Moment, PullMessageRequest, ReceiveMessageRequest, Resource
    from ..environment import Call, Environment
    from ..settings import RocketmqSettings
    from ..topics.ready_topics import Topic


class ReceiveCall(NamedTuple):
    """A group on a topic, on which the caller may act."""

    caller: Caller
    topic: Topic
    group: str
    name: Name
    """The topic as the client spells it."""

    @property
    def handles(self) -> Handles:
        """Its receipt handles."""
        info = self.topic.info
        return Handles(info.tenant, info.name, self.group)

    def check(self) -> None:
        """Asked again of what goes on: raises UNAUTHORIZED, FORBIDDEN."""
        self.caller.check_admitted()
        _check_rights(self.caller, self.topic.info.name, self.group, self.name.name)
        self.caller.check_out_of(self.topic.info)


async def consuming(
    environment: Environment, caller: Caller, topic: Resource, group: Resource
) -> ReceiveCall:
    """The topic and group of a request; the group need not exist.

    Raises RocketmqError: ILLEGAL_TOPIC, ILLEGAL_CONSUMER_GROUP, FORBIDDEN, TOPIC_NOT_FOUND.
    """
    settings = environment.settings
    tenant, name = caller.tenant_of(topic)
    group_tenant, shown_group = caller.tenant_of(group)
    kernel_name = topic_name(name.name, settings)
    kernel_group = group_name(shown_group.name, settings)
    if group_tenant != tenant:
        text = "the topic and the consumer group are in different namespaces"
        raise RocketmqError(Code.FORBIDDEN, text)
    _check_rights(caller, kernel_name, kernel_group, name.name)
    found = await environment.topics.find(tenant, kernel_name)
    caller.check_out_of(found.info)
    return ReceiveCall(caller, found, kernel_group, name)


def _check_rights(caller: Caller, topic: str, group: str, shown: str) -> None:
    """Raises FORBIDDEN; `shown`: the topic as the client spells it."""
    rights = caller.rights
    caller.check(rights.allows(CONSUME, topic), f"consume topic {shown}")
    caller.check(rights.allows(CONSUME_GROUP, group), f"use consumer group {group}")


# --- What is received ---------------------------------------------------------------------------


class ReceivedBatch(NamedTuple):
    """Messages leased to one client: columns of equal length."""

    queue: int
    offsets: Sequence[int]
    slots: Sequence[bytes]
    attempts: Sequence[int] | None
    tokens: Sequence[bytes]


class Attempts:
    """What receives of ordered groups brought, by attempt id: columns without the messages."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str, str], tuple[int, ReceivedBatch]] = {}

    def keep(self, key: tuple[int, str, str], batch: ReceivedBatch, until_ms: int) -> None:
        """Remember until its leases are over; the oldest is forgotten first."""
        if len(self._kept) >= ATTEMPTS_KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = (until_ms, batch._replace(slots=()))

    def take(self, key: tuple[int, str, str], now_ms: int) -> ReceivedBatch | None:
        """What that attempt brought, once."""
        until_ms, batch = self._kept.pop(key, (0, None))
        return batch if until_ms > now_ms else None


class Receives:
    """ReceiveMessage of one adapter."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._attempts = Attempts()

    async def receive(self, data: bytes, call: Call, store_host: str) -> bool:
        """One call (hot): whether there were messages. Raises RocketmqError and KernelError before
        anything was written.
        """
        environment = self._environment
        settings = environment.settings
        caller = environment.admit(call)
        request = parse_receive_message(data)
        if request.batch_size < 1:
            raise RocketmqError(Code.BAD_REQUEST, "the batch size must be at least 1")
        lease_ms = _lease_ms(request, settings)
        wanted = filter_of(request.filter_expression)
        asked_ms = asked_wait_ms(request, settings)
        at = await consuming(environment, caller, request.message_queue.topic, request.group)
        await charge_receive(environment, call, at.topic.info.name)
        topic = await environment.topics.with_group(at.topic, at.group)
        at = at._replace(topic=topic)
        key = (caller.tenant, caller.client_id)
        spec = ReceiveSpec(
            topic.info,
            at.group,
            messages=min(request.batch_size, settings.receive_messages_max),
            # Of what the deadline leaves now: making the group may have taken its time.
            wait_ms=wait_ms_of(asked_ms, call.time_remaining()),
            lease_ms=lease_ms,
            filter=wanted,
            origin=ORIGIN_BYTE,
            consumer_key=key,
            by=environment.by(caller, call),
        )
        now_ms = environment.clock.monotonic_ms()
        client = environment.clients.heard_of(key, now_ms)
        batch = await self._lease(spec, request.attempt_id, now_ms, at.check)
        if batch is None:
            environment.counters.polls_empty += 1
            await call.write(wire.NOTHING_RECEIVED)
            return False
        charge_received(environment, call, topic.info.name, batch.slots)
        now_ms = environment.clock.monotonic_ms()
        if request.auto_renew:
            environment.clients.renew(client, topic.info, at.group, batch.tokens, now_ms, at.check)
        writer = Writer(
            at.name,
            batch.queue & QUEUE_NUMBER,
            lease_ms,
            store_host,
            environment.client.origins,
        )
        await self._write(call, at, spec, batch, writer)
        return True

    async def _lease(
        self, spec: ReceiveSpec, attempt_id: str, now_ms: int, check: Callable[[], None]
    ) -> ReceivedBatch | None:
        """Messages for a client; None if none came in time."""
        is_ordered = spec.topic.groups[spec.group].ordered
        keeps = is_ordered and 0 < len(attempt_id) <= ATTEMPT_ID_CHARACTERS_MAX
        key = (spec.topic.id, spec.group, attempt_id)
        batch: ReceivedBatch | None = None
        if keeps:
            earlier = self._attempts.take(key, now_ms)
            batch = await self._again(spec, earlier) if earlier is not None else None
        if batch is None:
            received = await self._environment.receiver.receive(spec, check)
            if received.deliveries is None:
                return None
            batch = _batch(received.deliveries, received.tokens)
        if keeps:
            assert spec.lease_ms is not None
            until_ms = self._environment.clock.monotonic_ms() + spec.lease_ms
            self._attempts.keep(key, batch, until_ms)
        return batch

    async def _again(self, spec: ReceiveSpec, earlier: ReceivedBatch) -> ReceivedBatch | None:
        """What is still leased of an earlier receive, leased anew for as long."""
        client = self._environment.client
        assert spec.lease_ms is not None
        changes = [
            LeaseChange(token, LeaseVerb.EXTEND, spec.lease_ms, by=spec.by)
            for token in earlier.tokens
        ]
        errors = await client.settle_leases(spec.topic, spec.group, changes, ORIGIN_BYTE)
        held: list[int] = []
        slots: list[bytes] = []
        for place, error in enumerate(errors):
            if error is None:
                offset = Offset(earlier.offsets[place])
                number = earlier.queue & QUEUE_NUMBER
                for found, slot in await client.peek(spec.topic, number, offset, 1):
                    if found == offset:
                        held.append(place)
                        slots.append(slot)
        if not held:
            return None
        attempts = earlier.attempts
        return ReceivedBatch(
            earlier.queue,
            [earlier.offsets[place] for place in held],
            slots,
            [attempts[place] for place in held] if attempts is not None else None,
            [earlier.tokens[place] for place in held],
        )

    async def _write(
        self, call: Call, at: ReceiveCall, spec: ReceiveSpec, batch: ReceivedBatch, writer: Writer
    ) -> None:
        """Write the answer; what cannot be written comes back to the group."""
        environment = self._environment
        encode = at.handles.encode
        attempts = batch.attempts
        written = 0
        try:
            await call.write(wire.OK)
            for place, slot in enumerate(batch.slots):
                attempt = attempts[place] if attempts is not None else 1
                handle = encode(batch.tokens[place])
                await call.write(writer.message(slot, batch.offsets[place], attempt, handle))
                written += 1
            await call.write(wire.moment(3, environment.clock.wall_ms()))
        except BaseException:
            # The client went away, or its call was cancelled: it may have what was written.
            environment.counters.polls_abandoned += 1
            for token in batch.tokens:
                environment.clients.settled(token)
            receiver = environment.receiver
            receiver.give_back(spec, batch.tokens[written:], batch.slots[written:])
            receiver.shorten(spec, batch.tokens[:written], UNDELIVERED_DELAY_MS)
            raise
        finally:
            environment.counters.delivered += written


def _batch(deliveries: Deliveries, tokens: Sequence[bytes]) -> ReceivedBatch:
    return ReceivedBatch(
        deliveries.queue, deliveries.offsets, deliveries.slots, deliveries.attempts, tokens
    )


# --- What is asked for --------------------------------------------------------------------------


def _lease_ms(request: ReceiveMessageRequest, settings: RocketmqSettings) -> int:
    """For how long messages are leased. Raises ILLEGAL_INVISIBLE_TIME."""
    if request.auto_renew:
        return settings.auto_renew_lease_ms
    wanted_ms = milliseconds(request.invisible_duration)
    if not settings.invisible_ms_min <= wanted_ms <= settings.invisible_ms_max:
        raise illegal_invisible_time(wanted_ms, settings.invisible_ms_min, settings)
    return wanted_ms


def illegal_invisible_time(
    wanted_ms: int, min_ms: int, settings: RocketmqSettings
) -> RocketmqError:
    """An invisible time outside its bounds."""
    return RocketmqError(
        Code.ILLEGAL_INVISIBLE_TIME,
        f"the invisible time is {wanted_ms} ms; it must be from {min_ms} to "
        f"{settings.invisible_ms_max} ms",
    )


def asked_wait_ms(
    request: ReceiveMessageRequest | PullMessageRequest, settings: RocketmqSettings
) -> int:
    """For how long to wait for a message, as asked; as long as may be if no time is named.

    Raises ILLEGAL_POLLING_TIME.
    """
    if not request.HasField("long_polling_timeout"):
        return settings.polling_ms_max
    asked_ms = milliseconds(request.long_polling_timeout)
    if asked_ms < 0:
        raise RocketmqError(Code.ILLEGAL_POLLING_TIME, "the polling time is negative")
    return min(asked_ms, settings.polling_ms_max)


def wait_ms_of(asked_ms: int, remaining_s: float | None) -> int:
    """For how long to wait for a message: what is asked, at most what the deadline leaves."""
    if remaining_s is None:
        return asked_ms
    return max(0, min(asked_ms, int(remaining_s * 1_000) - POLL_MARGIN_MS))


def milliseconds(moment: Moment) -> int:
    """A Timestamp or Duration."""
    return moment.seconds * 1_000 + moment.nanos // 1_000_000
