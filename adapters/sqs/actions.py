"""The table of actions: what serves each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from . import (
    move_actions,
    queue_actions,
    receive_actions,
    send_actions,
    settle_actions,
    tag_actions,
    validation,
)
from .environment import Context
from .shape_base import Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .shapes import Call

# Each takes the request shape of its own row in shapes.ACTIONS; the table joins the two.
Perform = Callable[[Context, Any], Awaitable[Shape | None]]


PERFORM: Final[Mapping[str, Perform]] = {
    "AddPermission": tag_actions.add_permission,
    "CancelMessageMoveTask": move_actions.cancel_message_move_task,
    "ChangeMessageVisibility": settle_actions.change_message_visibility,
    "ChangeMessageVisibilityBatch": settle_actions.change_message_visibility_batch,
    "CreateQueue": queue_actions.create_queue,
    "DeleteMessage": settle_actions.delete_message,
    "DeleteMessageBatch": settle_actions.delete_message_batch,
    "DeleteQueue": queue_actions.delete_queue,
    "GetQueueAttributes": queue_actions.get_queue_attributes,
    "GetQueueUrl": queue_actions.get_queue_url,
    "ListDeadLetterSourceQueues": queue_actions.list_dead_letter_source_queues,
    "ListMessageMoveTasks": move_actions.list_message_move_tasks,
    "ListQueueTags": tag_actions.list_queue_tags,
    "ListQueues": queue_actions.list_queues,
    "PurgeQueue": queue_actions.purge_queue,
    "ReceiveMessage": receive_actions.receive_message,
    "RemovePermission": tag_actions.remove_permission,
    "SendMessage": send_actions.send_message,
    "SendMessageBatch": send_actions.send_message_batch,
    "SetQueueAttributes": queue_actions.set_queue_attributes,
    "StartMessageMoveTask": move_actions.start_message_move_task,
    "TagQueue": tag_actions.tag_queue,
    "UntagQueue": tag_actions.untag_queue,
}


async def perform(context: Context, call: Call) -> Shape | None:
    """Carry out a call; its result, None for an empty one.

    Raises SqsError, KernelError, and ClientGone when nobody is left to answer.
    """
    validation.check_required(call)
    return await PERFORM[call.action.name](context, call.params)
