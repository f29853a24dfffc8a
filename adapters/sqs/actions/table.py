"""The table of actions: what serves each.

Sends are in two halves, so that the hot one needs neither task nor future (`begin_send`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from .. import validation
from ..codec.shape_base import Shape
from ..environment import Context
from ..gate import PUBLISH
from . import (
    moving as move_actions,
)
from . import (
    queues as queue_actions,
)
from . import (
    receiving as receive_actions,
)
from . import (
    sending as send_actions,
)
from . import (
    settling as settle_actions,
)
from . import (
    tagging as tag_actions,
)
from .sending import Begin, End, Sending

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..codec.shapes import Call, SendMessageBatchRequest, SendMessageRequest

# Each takes the request shape of its own row in shapes.ACTIONS; the table joins the two.
Perform = Callable[[Context, Any], Awaitable[Shape | None]]


SENDS: Final[Mapping[str, tuple[Begin, End]]] = {
    "SendMessage": (send_actions.begin, send_actions.end),
    "SendMessageBatch": (send_actions.begin_batch, send_actions.end_batch),
}


async def _send(
    begin: Begin,
    end: End,
    context: Context,
    request: SendMessageRequest | SendMessageBatchRequest,
) -> Shape:
    environment = context.environment
    queue = await environment.queues.find(context, request.queue_url, PUBLISH)
    sending = begin(context, queue, request)
    if sending.added:
        await environment.publisher.stored(sending.batch)
    return end(context, sending)


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
    "SetQueueAttributes": queue_actions.set_queue_attributes,
    "StartMessageMoveTask": move_actions.start_message_move_task,
    "TagQueue": tag_actions.tag_queue,
    "UntagQueue": tag_actions.untag_queue,
    **{name: partial(_send, *halves) for name, halves in SENDS.items()},
}


def begin_send(context: Context, call: Call) -> tuple[Sending, End] | None:
    """Begin a call that has nothing to wait for but the storage of its messages (hot); None:
    `perform` it. Raises SqsError.
    """
    halves = SENDS.get(call.action.name)
    if halves is None:
        return None
    validation.check_required(call)
    params: Any = call.params
    queue = context.environment.queues.known(context, params.queue_url, PUBLISH)
    if queue is None:
        return None
    begin, end = halves
    return begin(context, queue, params), end


async def perform(context: Context, call: Call) -> Shape | None:
    """Carry out a call; its result, None for an empty one.

    Raises SqsError, KernelError, and ClientGone when nobody is left to answer.
    """
    validation.check_required(call)
    return await PERFORM[call.action.name](context, call.params)
