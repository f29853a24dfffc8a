"""SendMessage and SendMessageBatch, each in two halves: before its messages are stored, and after.

Durability: a second half is called once its batch has completed, that is once every message is in
the journal of a majority; the answer is sent then. A duplicate on a FIFO queue is answered with the
original, which is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import (
    error_codes as errors,
)
from .. import (
    error_mapping as kernel_errors,
)
from .. import (
    validation,
)
from ..charging import Charge, rules_of
from ..codec.shapes import (
    SendMessageBatchRequestEntry,
    SendMessageBatchResult,
    SendMessageBatchResultEntry,
    SendMessageResult,
)
from ..error_codes import SqsError
from ..messages import md5, stored
from ..messages.delivered import sequence_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel.api.client import PublishBatch

    from ..codec.shape_base import Shape
    from ..codec.shapes import (
        BatchResultErrorEntry,
        OutgoingMessage,
        SendMessageBatchRequest,
        SendMessageRequest,
    )
    from ..environment import Context
    from ..queues.ready_queue import Queue


class Sending(NamedTuple):
    """A send whose messages are in a batch."""

    queue: Queue
    batch: PublishBatch
    added: Sequence[tuple[int, str, bytes, OutgoingMessage]]
    """Of each message its place in the batch, its id, its body and itself."""
    failed: list[BatchResultErrorEntry]


Begin = Callable[["Context", "Queue", Any], Sending]
"""Takes the request shape of its own row in `shapes.ACTIONS`. Raises SqsError."""
End = Callable[["Context", Sending], "Shape"]
"""To be called once the batch has completed. Raises SqsError."""


def begin(context: Context, queue: Queue, request: SendMessageRequest) -> Sending:
    """SendMessage: store one message."""
    environment = context.environment
    body = validation.check_message(request, rules_of(context, queue))
    charge = Charge(context, queue, 1) if context.account.is_limited else None
    batch = environment.publisher.batch(context.by)
    position = batch.count
    to = queue.destinations(environment.client)
    now_ms = environment.clock.wall_ms()
    message_id = stored.add(batch, to, context, queue, request, body, now_ms)
    if charge is not None:
        charge.added(batch)
    return Sending(queue, batch, ((position, message_id, body, request),), [])


def end(context: Context, sending: Sending) -> SendMessageResult:
    """SendMessage: what became of it."""
    queue, batch, ((position, message_id, body, request),), _ = sending
    _raise_failure(batch, position)
    context.environment.counters.sent += 1
    return SendMessageResult(
        md5.of_body(body),
        md5.of_attributes(request.message_attributes),
        md5.of_attributes(request.message_system_attributes),
        _message_id(queue, batch, position, message_id),
        _sequence(queue, batch, position),
    )


def begin_batch(context: Context, queue: Queue, request: SendMessageBatchRequest) -> Sending:
    """SendMessageBatch: store up to ten messages; those that could not be are told one by one."""
    environment = context.environment
    bodies, failed = validation.check_send_batch(request, rules_of(context, queue))
    charge = Charge(context, queue, len(bodies)) if context.account.is_limited else None
    batch = environment.publisher.batch(context.by)
    now_ms = environment.clock.wall_ms()
    to = queue.destinations(environment.client)
    added: list[tuple[int, str, bytes, OutgoingMessage]] = []
    for entry, body in zip(request.entries or (), bodies, strict=True):
        if body is None:
            continue
        position = batch.count
        try:
            message_id = stored.add(batch, to, context, queue, entry, body, now_ms)
        except SqsError as error:
            failed.append(validation.failed_entry(entry.id or "", error))
        else:
            added.append((position, message_id, body, entry))
    if charge is not None:
        charge.added(batch)
    return Sending(queue, batch, added, failed)


def end_batch(context: Context, sending: Sending) -> SendMessageBatchResult:
    """SendMessageBatch: what became of each."""
    queue, batch, added, failed = sending
    successful: list[SendMessageBatchResultEntry] = []
    for position, message_id, body, entry in added:
        assert isinstance(entry, SendMessageBatchRequestEntry)
        try:
            _raise_failure(batch, position)
        except SqsError as error:
            failed.append(validation.failed_entry(entry.id or "", error))
            continue
        successful.append(
            SendMessageBatchResultEntry(
                id=entry.id or "",
                message_id=_message_id(queue, batch, position, message_id),
                md5_of_message_body=md5.of_body(body),
                md5_of_message_attributes=md5.of_attributes(entry.message_attributes),
                md5_of_message_system_attributes=md5.of_attributes(entry.message_system_attributes),
                sequence_number=_sequence(queue, batch, position),
            )
        )
    context.environment.counters.sent += len(successful)
    return SendMessageBatchResult(successful, failed)


def _raise_failure(batch: PublishBatch, position: int) -> None:
    failures = batch.failures
    if failures is not None and (error := failures.get(position)) is not None:
        raise kernel_errors.from_kernel(error)


def _message_id(queue: Queue, batch: PublishBatch, position: int, message_id: str) -> str:
    """The message's id, or that of the original whose duplicate it is."""
    if not queue.is_fifo:
        return message_id
    duplicates = batch.duplicates
    original = None if duplicates is None else duplicates.get(position)
    return message_id if original is None else stored.uuid_text(original.hex())


def _sequence(queue: Queue, batch: PublishBatch, position: int) -> str | None:
    if not queue.is_fifo:
        return None
    place = batch.place(position)
    if place is None:
        raise SqsError(errors.INTERNAL_FAILURE)
    return sequence_number(place[1])
