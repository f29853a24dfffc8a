"""What a request costs its caller where limits are set (`adapters.limiting`).

Refused is said as RequestThrottled, on which SDKs back off and try again; settling never is. Who
owes a little has an answer, and the connection is not read from for a while.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from adapters.pauses import HOLD_MS_MAX
from kernel.api.message import HEADER_BYTES

from . import error_codes as errors
from .error_codes import SqsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel.api.client import PublishBatch

    from .environment import Context
    from .queues.ready_queue import Queue
    from .validation import SendRules

SETTLING: Final = frozenset(
    {
        "ChangeMessageVisibility",
        "ChangeMessageVisibilityBatch",
        "DeleteMessage",
        "DeleteMessageBatch",
    }
)


def count_connection(context: Context) -> None:
    """The first request of a connection was admitted: it is its caller's. Raises SqsError."""
    limit = context.peer.belongs_to(context.account)
    if limit is not None:
        context.account.refused(limit)
        raise SqsError(
            errors.REQUEST_THROTTLED, f"The request was denied because of a quota: {limit}."
        )


def charge_request(context: Context) -> None:
    """A request was admitted, and something is limited. Raises SqsError."""
    limiter = context.environment.limiter
    if context.action not in SETTLING:
        _refuse(limiter.refusal(context.account))
    _wait(context, limiter.requested(context.account))


def rules_of(context: Context, queue: Queue) -> SendRules:
    """What messages to a queue must keep to, with the largest one that its caller may send."""
    rules, most = queue.rules, context.account.message_bytes_max
    if most is None or most >= rules.message_bytes_max:
        return rules
    return replace(rules, message_bytes_max=most)


def charge_receive(context: Context, queue: Queue) -> None:
    """Messages are about to be received. Raises SqsError."""
    _refuse(context.environment.limiter.receive_refusal(context.account, queue.name))


def charge_received(context: Context, queue: Queue, slots: Sequence[bytes]) -> None:
    """So much is the answer: the next request waits for it."""
    limiter = context.environment.limiter
    size = sum(map(len, slots)) - HEADER_BYTES * len(slots)
    _wait(context, limiter.call_delivered(context.account, queue.name, len(slots), size))


class Charge:
    """Messages of one request, of which something is limited."""

    def __init__(self, context: Context, queue: Queue, messages: int) -> None:
        """They are about to be published. Raises SqsError."""
        limiter = context.environment.limiter
        _refuse(limiter.publish_refusal(context.account, queue.name, messages))
        self._context = context
        self._queue = queue
        batch = context.environment.publisher.batch()
        self._count, self._size = batch.count, batch.size_bytes

    def added(self, batch: PublishBatch) -> None:
        """Those that are all right are in the batch."""
        count = batch.count - self._count
        if count:
            size = batch.size_bytes - self._size - count * HEADER_BYTES
            limiter, account = self._context.environment.limiter, self._context.account
            _wait(self._context, limiter.call_published(account, self._queue.name, count, size))


def _refuse(reason: str | None) -> None:
    if reason is not None:
        text = f"The request was denied because of a quota: {reason} a second."
        raise SqsError(errors.REQUEST_THROTTLED, text)


def _wait(context: Context, delay_ms: int) -> None:
    if delay_ms:
        context.peer.pause(min(delay_ms, HOLD_MS_MAX))
