"""Every call is counted, with the octets of its bodies and how it ended: for the bill.

The messages themselves are counted by the store, which holds them; an empty receive is a call and
nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from metering.schema import Action, Outcome

from .. import error_codes as errors
from .. import error_mapping as kernel_errors
from ..codec.shapes import ReceiveMessageResult
from ..error_codes import SqsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel.common.errors import KernelError

    from ..codec.shape_base import Shape
    from ..environment import Context

# Plain texts: members of an enum are hashed by Python code, 0.2 us a call.
_EMPTY, _THROTTLED = Outcome.EMPTY.value, Outcome.THROTTLED.value
_CLIENT_ERROR, _SERVER_ERROR = Outcome.CLIENT_ERROR.value, Outcome.SERVER_ERROR.value

ACTIONS: Final[Mapping[str, str]] = {
    "ChangeMessageVisibility": Action.EXTEND,
    "ChangeMessageVisibilityBatch": Action.EXTEND,
    "DeleteMessage": Action.ACK,
    "DeleteMessageBatch": Action.ACK,
    "ReceiveMessage": Action.RECEIVE,
    "SendMessage": Action.PUBLISH,
    "SendMessageBatch": Action.PUBLISH,
}
"""All others administer."""


def answered(context: Context, result: Shape | None, request_bytes: int, answer_bytes: int) -> None:
    """A call was carried out (hot)."""
    meter = context.environment.calls
    if meter is None:
        return
    tenant, name = context.caller.tenant, context.action
    if isinstance(result, ReceiveMessageResult) and not result.messages:
        meter.ended(tenant, name, _EMPTY, request_bytes, answer_bytes)
    else:
        counters = context.caller.counters
        try:
            counter = counters[name]
        except KeyError:
            counter = counters[name] = meter.counter(tenant, name)
        counter.call(request_bytes, answer_bytes)


def failed(context: Context, error: SqsError | KernelError, request_bytes: int) -> None:
    """A call got an error; how long that was is not counted."""
    meter = context.environment.calls
    if meter is None:
        return
    told = error if isinstance(error, SqsError) else kernel_errors.from_kernel(error)
    if told.kind in (errors.OVER_LIMIT, errors.REQUEST_THROTTLED):
        outcome = _THROTTLED
    else:
        outcome = _CLIENT_ERROR if told.kind.sender else _SERVER_ERROR
    meter.ended(context.caller.tenant, context.action, outcome, request_bytes, 0)
