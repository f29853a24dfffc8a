"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue.

Durability: OK means that the change is in the log, on the disks of a majority of the voters (one
node: on this node's). A dead letter is then on its way; its source keeps it until the target has
it.

How attempts are counted: a message that is not acked comes back when its invisible time is over,
and that was an attempt. So "not consumed, try again in 10 s" is a change of the invisible time to
10 s, by which the order of a message group is kept as well; 0 s gives the message back at once.
With `suspend` it comes back without having been counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.rocketmq.origin import ORIGIN_BYTE
from kernel.api.client import LeaseChange, LeaseVerb
from kernel.api.model import Reason

from ..codec import answer_encoding as wire
from ..codec.stubs import (
    parse_ack_message,
    parse_change_invisible_duration,
    parse_forward_to_dead_letters,
)
from ..errors import Code, RocketmqError, from_kernel
from ..settings import ACK_ENTRIES_MAX
from ..topics.ready_topics import group_not_found
from .receiving import consuming, illegal_invisible_time, milliseconds

if TYPE_CHECKING:
    from ..environment import Call, Environment
    from .receiving import ReceiveCall


async def ack_message(environment: Environment, data: bytes, call: Call) -> bytes:
    """AckMessage (hot). Raises RocketmqError."""
    caller = environment.admit(call)
    request = parse_ack_message(data)
    entries = request.entries
    if not entries or len(entries) > ACK_ENTRIES_MAX:
        text = f"a request holds 1 to {ACK_ENTRIES_MAX} entries"
        raise RocketmqError(Code.BAD_REQUEST, text)
    at = _existing(await consuming(environment, caller, request.topic, request.group))
    decode, by = at.handles.decode, environment.by(caller, call)
    errors: list[RocketmqError | None] = [None] * len(entries)
    places: list[int] = []
    changes: list[LeaseChange] = []
    for place, entry in enumerate(entries):
        try:
            token = decode(entry.receipt_handle)
        except RocketmqError as error:
            errors[place] = error
            continue
        places.append(place)
        # As the reference: whose time is over has lost the message, even if nobody got it since.
        changes.append(LeaseChange(token, LeaseVerb.ACK_IN_TIME, by=by))
    if changes:
        failures = await environment.settler.settle(at.topic.info, at.group, changes)
        for place, change, failure in zip(places, changes, failures, strict=True):
            if failure is not None:
                errors[place] = from_kernel(failure)
            else:
                environment.clients.settled(change.token)
    environment.counters.acked += errors.count(None)
    results = (
        wire.acked(entry.message_id, entry.receipt_handle, error)
        for entry, error in zip(entries, errors, strict=True)
    )
    return wire.common_status(errors) + b"".join(results)


async def change_invisible_duration(environment: Environment, data: bytes, call: Call) -> bytes:
    """ChangeInvisibleDuration. Raises RocketmqError, KernelError."""
    caller = environment.admit(call)
    request = parse_change_invisible_duration(data)
    delay_ms = milliseconds(request.invisible_duration)
    if not 0 <= delay_ms <= environment.settings.invisible_ms_max:
        raise illegal_invisible_time(delay_ms, 0, environment.settings)
    at = _existing(await consuming(environment, caller, request.topic, request.group))
    token = at.handles.decode(request.receipt_handle)
    if request.suspend:
        verb = LeaseVerb.RETURN
    else:
        verb = LeaseVerb.EXTEND if delay_ms else LeaseVerb.RELEASE
    by = environment.by(caller, call)
    await _change(environment, at, LeaseChange(token, verb, delay_ms, by=by))
    # The lease is the same, only longer: so is its handle.
    return wire.changed_answer(request.receipt_handle)


async def forward_to_dead_letters(environment: Environment, data: bytes, call: Call) -> bytes:
    """ForwardMessageToDeadLetterQueue. Raises RocketmqError, KernelError."""
    caller = environment.admit(call)
    request = parse_forward_to_dead_letters(data)
    at = _existing(await consuming(environment, caller, request.topic, request.group))
    token = at.handles.decode(request.receipt_handle)
    topic = await environment.topics.with_dead_letters(at.topic, at.group)
    by = environment.by(caller, call)
    change = LeaseChange(token, LeaseVerb.DEAD_LETTER, reason=Reason.ATTEMPTS, by=by)
    await _change(environment, at._replace(topic=topic), change)
    return wire.OK


def _existing(at: ReceiveCall) -> ReceiveCall:
    """A group that exists. Raises CONSUMER_GROUP_NOT_FOUND."""
    if at.group not in at.topic.info.groups:
        raise group_not_found(at.group)
    return at


async def _change(environment: Environment, at: ReceiveCall, change: LeaseChange) -> None:
    """Change one lease. Raises INVALID_RECEIPT_HANDLE if it is over, KernelError."""
    # First: a renewal behind this change would undo it.
    environment.clients.settled(change.token)
    (failure,) = await environment.client.settle_leases(
        at.topic.info, at.group, (change,), ORIGIN_BYTE
    )
    if failure is not None:
        raise from_kernel(failure)
