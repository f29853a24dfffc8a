"""SendMessage and SendMessageBatch.

Durability: the answer is sent after `Publisher.stored`, that is once every message is in the
journal of a majority. A duplicate on a FIFO queue is answered with the original, which is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import errors, kernel_errors, md5, stored, validation
from .delivered import sequence_number
from .errors import SqsError
from .gate import PUBLISH
from .shapes import SendMessageBatchResult, SendMessageBatchResultEntry, SendMessageResult

if TYPE_CHECKING:
    from kernel.client import PublishBatch

    from .environment import Context
    from .queues import Queue
    from .shapes import (
        BatchResultErrorEntry,
        SendMessageBatchRequest,
        SendMessageBatchRequestEntry,
        SendMessageRequest,
    )


async def send_message(context: Context, request: SendMessageRequest) -> SendMessageResult:
    """Store one message."""
    environment = context.environment
    queue = await environment.queues.find(context, request.queue_url, PUBLISH)
    body = validation.check_message(request, queue.rules)
    batch = environment.publisher.batch()
    position = batch.count
    now_ms = environment.clock.wall_ms()
    to = queue.destinations(environment.client)
    message_id = stored.add(batch, to, context, queue, request, body, now_ms)
    await environment.publisher.stored(batch)
    _raise_failure(batch, position)
    environment.counters.sent += 1
    return SendMessageResult(
        md5.of_body(body),
        md5.of_attributes(request.message_attributes),
        md5.of_attributes(request.message_system_attributes),
        _message_id(queue, batch, position, message_id),
        _sequence(queue, batch, position),
    )


async def send_message_batch(
    context: Context, request: SendMessageBatchRequest
) -> SendMessageBatchResult:
    """Store up to ten messages; those that could not be are told one by one."""
    environment = context.environment
    queue = await environment.queues.find(context, request.queue_url, PUBLISH)
    bodies, failed = validation.check_send_batch(request, queue.rules)
    batch = environment.publisher.batch()
    now_ms = environment.clock.wall_ms()
    to = queue.destinations(environment.client)
    added: list[tuple[int, str, bytes, SendMessageBatchRequestEntry]] = []
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
    if added:
        await environment.publisher.stored(batch)
    return _batch_result(context, queue, batch, added, failed)


def _batch_result(
    context: Context,
    queue: Queue,
    batch: PublishBatch,
    added: list[tuple[int, str, bytes, SendMessageBatchRequestEntry]],
    failed: list[BatchResultErrorEntry],
) -> SendMessageBatchResult:
    successful: list[SendMessageBatchResultEntry] = []
    for position, message_id, body, entry in added:
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
