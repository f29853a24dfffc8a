"""ReceiveMessage: timed leases, waited for by wake-up.

Durability: a lease is in the journal of a majority before its message is answered, so a receipt
handle holds on any gateway and after a restart.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from adapters.sqs.origin import ORIGIN_BYTE
from kernel.api.client import LeaseChange, LeaseVerb, ReceiveSpec
from kernel.api.model import DEFAULT_GROUP
from kernel.common.errors import Code, KernelError

from .. import error_codes as errors
from .. import validation
from ..charging import charge_receive, charge_received
from ..codec.shapes import ReceiveMessageResult
from ..error_codes import SqsError
from ..gate import CONSUME
from ..messages import attempts, receipt_handle, selection
from ..messages.delivered import view
from ..messages.received import Delivery
from ..queues.ready_queues import check_right, check_tree
from ..settings import RECEIVE_BYTES_MAX

if TYPE_CHECKING:
    from kernel.api.client import Received

    from ..codec.shapes import ReceiveMessageRequest
    from ..environment import Context
    from ..queues.ready_queue import Queue

_NOTHING = ReceiveMessageResult()


class ClientGone(Exception):
    """The client has closed the connection: nobody is left to answer."""


async def receive_message(context: Context, request: ReceiveMessageRequest) -> ReceiveMessageResult:
    """Lease up to ten messages, waiting for the first if asked to.

    Raises ClientGone; what was leased by then is given back untouched.
    """
    environment = context.environment
    queue = await environment.queues.find_to_consume(context, request.queue_url, CONSUME)
    validation.check_receive(request)
    if context.account.limits_delivery:
        charge_receive(context, queue)
    selection.system_attribute_names(request)  # before anything is leased
    spec = _spec(context, queue, request)
    attempt_id = request.receive_request_attempt_id if queue.is_fifo else None
    if attempt_id is not None:
        again = await attempts.repeated(
            environment.attempts,
            environment.client,
            environment.clock.wall_ms(),
            spec,
            (queue.topic.id, attempt_id),
        )
        if again:
            return _result(context, queue, request, again)
    try:
        if spec.wait_ms:
            check = partial(_check_caller, context, queue)
            received = await environment.polls.receive(spec, context.peer, check)
        else:
            received = await environment.client.receive(spec)
    except KernelError as error:
        if error.code is not Code.LIMIT_EXCEEDED:
            raise
        if queue.is_fifo:  # as AWS answers: an error only standard queues have
            return _NOTHING
        raise SqsError(
            errors.OVER_LIMIT,
            "Too many messages are in flight: delete some, or let their visibility time out.",
        ) from None
    if received is None:
        environment.counters.polls_abandoned += 1
        raise ClientGone
    deliveries = _deliveries(context, queue, received)
    if not deliveries:
        environment.counters.empty_receives += 1
        return _NOTHING
    # More bytes than an answer may have: what does not fit has reached nobody, and is no attempt.
    surplus = received.tokens[len(deliveries) :]
    if surplus and received.deliveries is not None:
        slots = received.deliveries.slots[len(deliveries) :]
        changes = [
            LeaseChange(token, LeaseVerb.RETURN, slot_bytes=len(slot))
            for token, slot in zip(surplus, slots, strict=True)
        ]
        await environment.client.settle_leases(queue.topic, DEFAULT_GROUP, changes, ORIGIN_BYTE)
    if attempt_id is not None and received.deliveries is not None:
        tokens = received.tokens[: len(deliveries)]
        attempt = attempts.attempt_of(received.deliveries.queue, deliveries, tokens)
        key = (queue.topic.id, attempt_id)
        environment.attempts.keep(key, attempt, environment.clock.wall_ms())
    environment.counters.received += len(deliveries)
    if context.account.limits_delivery:
        charge_received(context, queue, [each.slot for each in deliveries])
    return _result(context, queue, request, deliveries)


def _result(
    context: Context, queue: Queue, request: ReceiveMessageRequest, deliveries: list[Delivery]
) -> ReceiveMessageResult:
    asked = selection.system_attribute_names(request)
    return ReceiveMessageResult(
        [view(context, each, asked, request, is_fifo=queue.is_fifo) for each in deliveries]
    )


def _check_caller(context: Context, queue: Queue) -> None:
    """Whether a caller that waits may still receive.

    Raises SqsError: AccessDenied, InvalidClientTokenId.
    """
    if not (context.caller.is_admitted() and context.caller.rights.is_alive()):
        raise SqsError(errors.INVALID_CLIENT_TOKEN_ID)
    check_right(context, CONSUME, queue.name)
    check_tree(context, CONSUME, queue.topic)


def _spec(context: Context, queue: Queue, request: ReceiveMessageRequest) -> ReceiveSpec:
    visibility_s, wait_s = request.visibility_timeout, request.wait_time_seconds
    lease_ms = queue.lease_ms if visibility_s is None else visibility_s * 1000
    return ReceiveSpec(
        queue.topic,
        DEFAULT_GROUP,
        messages=request.max_number_of_messages or 1,
        wait_ms=queue.wait_ms if wait_s is None else wait_s * 1000,
        lease_ms=lease_ms,
        fair=not queue.is_fifo,
        origin=ORIGIN_BYTE,
        consumer_key=context.peer.consumer_key,
        by=context.by,
    )


def _deliveries(context: Context, queue: Queue, received: Received) -> list[Delivery]:
    """What was received, up to RECEIVE_BYTES_MAX, but never less than one message."""
    columns = received.deliveries
    if columns is None:
        return []
    environment = context.environment
    now_ms = environment.clock.wall_ms()
    attempts = columns.attempts or (1,) * len(columns.offsets)
    found: list[Delivery] = []
    room = RECEIVE_BYTES_MAX
    for offset, slot, attempt, token in zip(
        columns.offsets, columns.slots, attempts, received.tokens, strict=True
    ):
        room -= len(slot)
        if room < 0 and found:
            break
        place = (columns.queue, offset)
        first_ms = environment.first_receives.time_of(place) if attempt > 1 else None
        if first_ms is None:
            first_ms = now_ms
            environment.first_receives.note(place, now_ms)
        handle = receipt_handle.encode(token, queue.topic.id, now_ms // 1000)
        found.append(Delivery(slot, handle, offset, attempt, first_ms))
    return found
