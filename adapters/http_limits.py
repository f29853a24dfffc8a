"""Limits of what is published and got by HTTP, in the admin API and in RabbitMQ's management API.

They are those of the tenant, the user and the topic, and one may be set of the listener
(`amqp.management`, `admin.http`). A little over is answered up to a second later, far over is
refused. Whoever administers the node is not limited: what an operator does by hand has to be done
above all where limits are reached. Its account is None.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from adapters.limiting import Charging
from adapters.pauses import HOLD_MS_MAX
from kernel.api.message import HEADER_BYTES
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adapters.limiting import Limiter
    from kernel.api.client import PublishBatch
    from kernel.quotas.account import Account


async def charge_publish(
    limiter: Limiter, account: Account | None, batch: PublishBatch, body_bytes: int
) -> None:
    """One message is about to be published. Raises KernelError LIMIT_EXCEEDED, TOO_LARGE."""
    if account is None or not account.is_limited:
        return
    most = account.message_bytes_max
    if most is not None and body_bytes > most:
        account.refused(account.too_large)
        raise KernelError(
            Code.TOO_LARGE, f"a message has at most {most} bytes: {account.too_large}"
        )
    charging = Charging(limiter, account)
    _refuse(charging.refusal(batch))
    delay_ms = charging.owes_ms()
    if delay_ms:
        account.delayed(limiter.now_ms())
    await _wait(delay_ms)


async def charge_receive(limiter: Limiter, account: Account | None, topic: str) -> None:
    """Messages of a topic are about to be received. Raises KernelError LIMIT_EXCEEDED."""
    if account is not None and account.limits_delivery:
        _refuse(limiter.receive_refusal(account, topic))
        await _wait(limiter.call_delivered(account, topic, 0, 0))


def charge_received(
    limiter: Limiter, account: Account | None, topic: str, slots_bytes: Sequence[int]
) -> None:
    """Messages of such sizes are the answer: the next request waits for it."""
    if account is not None and account.limits_delivery:
        count = len(slots_bytes)
        limiter.call_delivered(account, topic, count, sum(slots_bytes) - HEADER_BYTES * count)


def _refuse(reason: str | None) -> None:
    if reason is not None:
        text = f"too much was used of the limit {reason} a second; try again later"
        raise KernelError(Code.LIMIT_EXCEEDED, text)


async def _wait(delay_ms: int) -> None:
    if delay_ms:
        await asyncio.sleep(min(delay_ms, HOLD_MS_MAX) / 1_000)
