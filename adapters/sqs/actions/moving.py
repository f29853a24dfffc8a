"""Moving dead letters on: StartMessageMoveTask, ListMessageMoveTasks, CancelMessageMoveTask.

The task is the kernel's (`kernel.api.moves`): it goes on without its gateway and after a restart.
Here names become ARNs. A TaskHandle is, as AWS's, base64 of `{"taskId":…,"sourceArn":…}`.

Durability: StartMessageMoveTask and CancelMessageMoveTask answer once the task's record is in the
journal of a majority.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final

import msgspec

from adapters.tree_rights import ANY_TOPIC, PUBLISH_TREE, WHOLE_TREE, allowed
from kernel.api.client import CancelMove, StartMove
from kernel.api.model import DEFAULT_GROUP
from kernel.api.moves import (
    KEPT_MAX,
    PER_SECOND_MAX,
    PREFIX,
    MoveFailure,
    MoveState,
    MoveTask,
    tasks,
)
from kernel.common.errors import UNDECODABLE, Code, KernelError

from .. import error_codes as errors
from .. import names
from ..codec.shapes import (
    CancelMessageMoveTaskResult,
    ListMessageMoveTasksResult,
    ListMessageMoveTasksResultEntry,
    StartMessageMoveTaskResult,
)
from ..error_codes import SqsError
from ..gate import CONSUME, INSPECT, PUBLISH
from ..queues import queue_settings
from ..queues.ready_queues import all_visible, check_right, check_tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel.api.model import TopicInfo

    from ..codec.shapes import (
        CancelMessageMoveTaskRequest,
        ListMessageMoveTasksRequest,
        StartMessageMoveTaskRequest,
    )
    from ..environment import Context

HANDLE_CHARS_MAX: Final = 1024
"""Of a TaskHandle; one of ours has under 300."""

_STATUS: Final[Mapping[MoveState, str]] = {
    MoveState.RUNNING: "RUNNING",
    MoveState.COMPLETED: "COMPLETED",
    MoveState.CANCELLED: "CANCELLED",
    MoveState.FAILED: "FAILED",
}
_REASONS: Final[Mapping[MoveFailure, str]] = {
    MoveFailure.NO_ORIGIN: "CouldNotDetermineMessageSource",
    MoveFailure.NO_DESTINATION: "AWS.SimpleQueueService.NonExistentQueue",
    MoveFailure.NO_SOURCE: "AWS.SimpleQueueService.NonExistentQueue",
}


class _Handle(msgspec.Struct, frozen=True, rename="camel"):
    """What a TaskHandle says."""

    task_id: str
    source_arn: str


async def start_message_move_task(
    context: Context, request: StartMessageMoveTaskRequest
) -> StartMessageMoveTaskResult:
    """Begin to move what waits in a dead-letter queue: to a queue, or each to where it came from.

    Raises ResourceNotFoundException, InvalidParameterValue, AccessDenied, OverLimit.
    """
    per_second = request.max_number_of_messages_per_second
    if per_second is not None and not 1 <= per_second <= PER_SECOND_MAX:
        raise errors.invalid_parameter(
            per_second,
            "MaxNumberOfMessagesPerSecond",
            f"Must be between 1 and {PER_SECOND_MAX}, if provided.",
        )
    source = await _queue(context, request.source_arn, "SourceArn")
    check_right(context, CONSUME, source.name)
    check_tree(context, CONSUME, source)
    origins = [
        topic
        for topic in all_visible(context)
        if queue_settings.dead_letter_queue(topic) == source.name
    ]
    if not origins:
        raise SqsError(
            errors.INVALID_PARAMETER_VALUE,
            "Source queue must be configured as a Dead Letter Queue.",
        )
    destination = None
    if request.destination_arn:
        destination = await _queue(context, request.destination_arn, "DestinationArn")
        _check_pair(source, destination)
        origins = [destination]
    # Asked now, for every queue that they may go to: the task goes on without whoever began it.
    for origin in origins:
        check_right(context, PUBLISH, origin.name)
        check_tree(context, PUBLISH, origin)
    change = StartMove(
        context.caller.tenant,
        source.name,
        DEFAULT_GROUP,
        None if destination is None else destination.name,
        per_second,
        None if _may_write_anywhere(context) else tuple(each.name for each in origins),
    )
    try:
        task = await context.environment.client.administer(change)
    except KernelError as error:
        if error.code is Code.IN_USE:
            raise SqsError(
                errors.INVALID_PARAMETER_VALUE,
                "There is already a task running. Only one active task is allowed for a source "
                "queue arn at a given time.",
            ) from None
        raise
    return StartMessageMoveTaskResult(_handle(context, str(task), source.name))


def _may_write_anywhere(context: Context) -> bool:
    """Whether a message may go back to whatever queue it came from: also to one whose dead letters
    go elsewhere by now, or go another way than by a RedrivePolicy.
    """
    return allowed(context.caller.rights, ((PUBLISH, ANY_TOPIC), (PUBLISH_TREE, WHOLE_TREE)))


async def list_message_move_tasks(
    context: Context, request: ListMessageMoveTasksRequest
) -> ListMessageMoveTasksResult:
    """The latest tasks of a dead-letter queue, the newest first; one unless more are asked for."""
    count = 1 if request.max_results is None else request.max_results
    if not 1 <= count <= KEPT_MAX:
        reason = f"Must be between 1 and {KEPT_MAX}, if provided."
        raise errors.invalid_parameter(count, "MaxResults", reason)
    source = await _queue(context, request.source_arn, "SourceArn")
    check_right(context, INSPECT, source.name)
    found = tasks(context.environment.client.records(PREFIX), context.caller.tenant, source.name)
    return ListMessageMoveTasksResult([_entry(context, each) for each in found[:count]])


async def cancel_message_move_task(
    context: Context, request: CancelMessageMoveTaskRequest
) -> CancelMessageMoveTaskResult:
    """End a task; what it has moved stays moved.

    Raises ResourceNotFoundException, InvalidParameterValue, AccessDenied.
    """
    handle = _read_handle(request.task_handle or "")
    source = await _queue(context, handle.source_arn, "SourceArn")
    check_right(context, CONSUME, source.name)
    change = CancelMove(context.caller.tenant, source.name, handle.task_id)
    try:
        moved = await context.environment.client.administer(change)
    except KernelError as error:
        if error.code is Code.NOT_FOUND:
            raise SqsError(errors.RESOURCE_NOT_FOUND, "Task does not exist.") from None
        if error.code is Code.NOT_ALLOWED:
            raise SqsError(
                errors.INVALID_PARAMETER_VALUE, "Only active tasks can be cancelled."
            ) from None
        raise
    return CancelMessageMoveTaskResult(moved if isinstance(moved, int) else 0)


def _entry(context: Context, task: MoveTask) -> ListMessageMoveTasksResultEntry:
    runs = task.state is MoveState.RUNNING
    return ListMessageMoveTasksResultEntry(
        task_handle=_handle(context, task.id, task.source) if runs else None,
        status=_STATUS[task.state],
        source_arn=context.arn_of(task.source),
        destination_arn=None if task.destination is None else context.arn_of(task.destination),
        max_number_of_messages_per_second=task.per_second,
        approximate_number_of_messages_moved=task.moved,
        approximate_number_of_messages_to_move=task.to_move,
        failure_reason=None if task.failure is None else _REASONS[task.failure],
        started_timestamp=task.started_ms,
    )


async def _queue(context: Context, text: str | None, parameter: str) -> TopicInfo:
    """The queue of an ARN. Raises InvalidParameterValue, ResourceNotFoundException."""
    arn = names.parse_arn(text or "")
    if arn is None or arn.service != "sqs" or not names.is_queue_name(arn.name):
        raise errors.invalid_parameter(text, parameter, "It is not the ARN of a queue.")
    topic = None
    if arn.account == context.caller.account:
        topic = await context.environment.queues.topic(context.caller.tenant, arn.name)
    if topic is None:
        raise SqsError(
            errors.RESOURCE_NOT_FOUND,
            f"The resource that you specified for the {parameter} parameter doesn't exist.",
        )
    return topic


def _check_pair(source: TopicInfo, destination: TopicInfo) -> None:
    """Check that messages of one queue may go to the other. Raises InvalidParameterValue."""
    if source.name == destination.name:
        message = "Source queue arn and destination queue arn cannot be the same."
    elif names.is_fifo(source.name) != names.is_fifo(destination.name):
        message = "Source and destination must both be FIFO queues, or both standard queues."
    else:
        return
    raise SqsError(errors.INVALID_PARAMETER_VALUE, message)


def _handle(context: Context, task: str, source: str) -> str:
    text = msgspec.json.encode(_Handle(task, context.arn_of(source)))
    return base64.b64encode(text).decode("ascii")


def _read_handle(text: str) -> _Handle:
    """What a TaskHandle says. Raises InvalidParameterValue."""
    try:
        data = base64.b64decode(text[:HANDLE_CHARS_MAX], validate=True)
        return msgspec.json.decode(data, type=_Handle)
    except (*UNDECODABLE, binascii.Error, ValueError):
        raise SqsError(
            errors.INVALID_PARAMETER_VALUE, "Value for parameter TaskHandle is invalid."
        ) from None
