"""DeleteMessage, ChangeMessageVisibility and their batches: changes of leases by receipt handle.

Durability: the answer is sent once the change is in the journal of a majority
(`Client.settle_leases`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.sqs.origin import ORIGIN_BYTE
from kernel.api.client import LeaseChange, LeaseVerb
from kernel.api.model import DEFAULT_GROUP
from kernel.common.errors import Code

from .. import (
    error_codes as errors,
)
from .. import (
    error_mapping as kernel_errors,
)
from .. import (
    validation,
)
from ..codec.shapes import (
    BatchResultEntry,
    ChangeMessageVisibilityBatchResult,
    DeleteMessageBatchResult,
)
from ..error_codes import SqsError
from ..gate import CONSUME
from ..messages import receipt_handle
from ..queues.queue_attributes import VISIBILITY_TIMEOUT_S_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kernel.api.tracing import ConnectedUser
    from kernel.common.errors import KernelError

    from ..codec.shapes import (
        BatchResultErrorEntry,
        ChangeMessageVisibilityBatchRequest,
        ChangeMessageVisibilityRequest,
        DeleteMessageBatchRequest,
        DeleteMessageRequest,
    )
    from ..environment import Context
    from ..queues.ready_queue import Queue


_LOST: Final = frozenset({Code.LEASE_LOST, Code.LEASE_OVER})


# --- deletion ----------------------------------------------------------------------------------


async def delete_message(context: Context, request: DeleteMessageRequest) -> None:
    """Delete a message by its receipt handle."""
    queue = await context.environment.queues.find_to_consume(context, request.queue_url, CONSUME)
    handle = request.receipt_handle or ""
    (error,) = await _delete(context, queue, [handle])
    if error is not None:
        raise error


async def delete_message_batch(
    context: Context, request: DeleteMessageBatchRequest
) -> DeleteMessageBatchResult:
    """Delete up to ten messages; those that could not be are told one by one."""
    queue = await context.environment.queues.find_to_consume(context, request.queue_url, CONSUME)
    validation.check_batch(request)
    entries = request.entries or []
    outcomes = await _delete(context, queue, [entry.receipt_handle for entry in entries])
    successful, failed = _sorted(zip((entry.id or "" for entry in entries), outcomes, strict=True))
    return DeleteMessageBatchResult(successful, failed)


async def _delete(
    context: Context, queue: Queue, handles: Sequence[str | None]
) -> list[SqsError | None]:
    """Per handle None, or why its message could not be deleted."""
    environment = context.environment
    recent = environment.fifo_deletions

    def outcome(handle: str, token: bytes, error: KernelError | None) -> SqsError | None:
        if error is None:
            environment.counters.deleted += 1
            if queue.is_fifo:
                recent.note(token, environment.clock.wall_ms())
            return None
        if error.code not in _LOST:
            return kernel_errors.from_kernel(error)
        # A standard queue takes every handle; on FIFO one that is over could break the order, but
        # deleting the same message twice does not.
        is_fine = not queue.is_fifo or recent.time_of(token) is not None
        return None if is_fine else errors.expired_receipt_handle(handle)

    verb = LeaseVerb.ACK_IN_TIME if queue.is_fifo else LeaseVerb.ACK
    by = context.by
    changes = [_change(queue, handle, verb, by=by) for handle in handles]
    return await _settle(context, queue, handles, changes, outcome)


# --- visibility --------------------------------------------------------------------------------


async def change_message_visibility(
    context: Context, request: ChangeMessageVisibilityRequest
) -> None:
    """Let a message in flight become visible after another time; 0: at once."""
    queue = await context.environment.queues.find_to_consume(context, request.queue_url, CONSUME)
    timeout_s = validation.check_visibility(request)
    handle = request.receipt_handle or ""
    change = _visibility_change(context, queue, handle, timeout_s)
    outcome = _fifo_visibility if queue.is_fifo else _visibility
    (error,) = await _settle(context, queue, [handle], [change], outcome)
    if error is not None:
        raise error


async def change_message_visibility_batch(
    context: Context, request: ChangeMessageVisibilityBatchRequest
) -> ChangeMessageVisibilityBatchResult:
    """Change the visibility of up to ten messages; failures are told one by one."""
    queue = await context.environment.queues.find_to_consume(context, request.queue_url, CONSUME)
    validation.check_batch(request)
    entries = request.entries or []
    changes: list[LeaseChange | SqsError] = []
    for entry in entries:
        try:
            timeout_s = validation.check_visibility(entry)
        except SqsError as error:
            changes.append(error)
        else:
            changes.append(_visibility_change(context, queue, entry.receipt_handle, timeout_s))
    handles = [entry.receipt_handle for entry in entries]
    outcome = _fifo_visibility if queue.is_fifo else _visibility
    outcomes = await _settle(context, queue, handles, changes, outcome)
    successful, failed = _sorted(zip((entry.id or "" for entry in entries), outcomes, strict=True))
    return ChangeMessageVisibilityBatchResult(successful, failed)


def _visibility_change(
    context: Context, queue: Queue, handle: str | None, timeout_s: int
) -> LeaseChange | SqsError:
    if timeout_s == 0:
        return _change(queue, handle, LeaseVerb.RELEASE, by=context.by)
    received_s_min = (
        context.environment.clock.wall_ms() // 1000 + timeout_s - VISIBILITY_TIMEOUT_S_MAX
    )
    return _change(queue, handle, LeaseVerb.EXTEND, timeout_s, received_s_min, by=context.by)


def _fifo_visibility(handle: str, _: bytes, error: KernelError | None) -> SqsError | None:
    if error is None:
        return None
    if error.code in _LOST:
        return errors.message_not_available(handle)
    return kernel_errors.from_kernel(error)


def _visibility(handle: str, token: bytes, error: KernelError | None) -> SqsError | None:
    """On a standard queue there is nothing to change, and nothing wrong, while nobody else has
    received a message whose time is over: it stays visible.
    """
    if error is not None and error.code is Code.LEASE_OVER:
        return None
    return _fifo_visibility(handle, token, error)


# --- both --------------------------------------------------------------------------------------


def _change(
    queue: Queue,
    handle: str | None,
    verb: LeaseVerb,
    timeout_s: int = 0,
    received_s_min: int = 0,
    *,
    by: ConnectedUser | None,
) -> LeaseChange | SqsError:
    """The change of the lease in a handle, or what is wrong with the handle.

    `received_s_min`: a message received before would be in flight for more than 12 hours.
    """
    if not handle:
        return errors.missing_parameter("ReceiptHandle")
    try:
        receipt = receipt_handle.decode(handle)
    except SqsError as error:
        return error
    if receipt.topic != queue.topic.id:
        return errors.invalid_receipt_handle(handle)
    if receipt.received_s < received_s_min:
        return errors.visibility_beyond_limit(timeout_s)
    return LeaseChange(receipt.token, verb, timeout_s * 1000, by=by)


async def _settle(
    context: Context,
    queue: Queue,
    handles: Sequence[str | None],
    changes: Sequence[LeaseChange | SqsError],
    outcome: Callable[[str, bytes, KernelError | None], SqsError | None],
) -> list[SqsError | None]:
    """Make the changes that are any, in one call; per handle None or its error."""
    results: list[SqsError | None] = []
    good = [change for change in changes if isinstance(change, LeaseChange)]
    context.environment.attempts.changed(change.token for change in good)
    heard = iter(
        await context.environment.client.settle_leases(
            queue.topic, DEFAULT_GROUP, good, ORIGIN_BYTE
        )
        if good
        else ()
    )
    for handle, change in zip(handles, changes, strict=True):
        if isinstance(change, SqsError):
            results.append(change)
        else:
            results.append(outcome(handle or "", change.token, next(heard)))
    return results


def _sorted(
    outcomes: Iterable[tuple[str, SqsError | None]],
) -> tuple[list[BatchResultEntry], list[BatchResultErrorEntry]]:
    successful: list[BatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []
    for entry_id, error in outcomes:
        if error is None:
            successful.append(BatchResultEntry(entry_id))
        else:
            failed.append(validation.failed_entry(entry_id, error))
    return successful, failed
