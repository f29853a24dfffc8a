"""What a call costs its caller where limits are set (`adapters.limiting`).

Refused is said as TOO_MANY_REQUESTS, on which clients back off; settling never is. Who owes a
little is answered later: one connection has the calls of many threads, which all know how to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.pauses import HOLD_MS_MAX
from kernel.api.message import HEADER_BYTES

from ..errors import Code, RocketmqError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernel.quotas.account import Account

    from ..clients.callers import Caller
    from ..environment import Call, Environment

SETTLING: Final = frozenset(
    {
        "AckMessage",
        "ChangeInvisibleDuration",
        "EndTransaction",
        "ForwardMessageToDeadLetterQueue",
        "Heartbeat",
        "NotifyClientTermination",
    }
)
"""Never refused: what they end would go on otherwise."""


def connect(environment: Environment, caller: Caller, listener: str) -> Account:
    """A client has opened a stream, which is counted as its connection: by what, which is to hear
    when it ends. Raises RocketmqError.
    """
    account = environment.limiter.account_of(caller, listener)
    limit = account.connected()
    if limit is not None:
        account.refused(limit)
        key = caller.tenant, caller.client_id
        environment.clients.turn_away(key, environment.clock.monotonic_ms())
        raise RocketmqError(Code.TOO_MANY_REQUESTS, f"the limit {limit} is reached")
    return account


async def charge_call(environment: Environment, name: str, call: Call, listener: str) -> None:
    """A call has come, and something is limited. Raises RocketmqError."""
    caller, limiter = environment.admit(call), environment.limiter
    account = limiter.account_of(caller, listener)
    key, now_ms = (caller.tenant, caller.client_id), environment.clock.monotonic_ms()
    if name not in SETTLING and environment.clients.is_turned_away(key, now_ms):
        raise RocketmqError(Code.TOO_MANY_REQUESTS, "the limit of connections is reached")
    if not (account.is_limited or account.limits_delivery):
        return
    call.account = account
    if not account.is_limited:
        return
    if name not in SETTLING:
        _refuse(limiter.refusal(account))
    await _wait(environment, limiter.requested(account))


async def charge_publish(
    environment: Environment, call: Call, topic: str, sizes: Sequence[int], properties_bytes: int
) -> None:
    """Messages with bodies of such sizes, and so many bytes of properties together, are about to be
    published to a topic. Raises RocketmqError.
    """
    account, limiter = call.account, environment.limiter
    if account is not None:
        messages, size, most = len(sizes), sum(sizes), account.message_bytes_max
        size += properties_bytes
        if most is not None and max(sizes) > most:
            account.refused(account.too_large)
            text = f"a message has at most {most} bytes: {account.too_large}"
            raise RocketmqError(Code.MESSAGE_BODY_TOO_LARGE, text)
        _refuse(limiter.publish_refusal(account, topic, messages))
        await _wait(environment, limiter.call_published(account, topic, messages, size))


async def charge_receive(environment: Environment, call: Call, topic: str) -> None:
    """Messages of a topic are about to be received. Raises RocketmqError."""
    account, limiter = call.account, environment.limiter
    if account is not None and account.limits_delivery:
        _refuse(limiter.receive_refusal(account, topic))
        await _wait(environment, limiter.call_delivered(account, topic, 0, 0))


def charge_received(
    environment: Environment, call: Call, topic: str, slots: Iterable[bytes]
) -> None:
    """So much is the answer: the next call waits for it."""
    account = call.account
    if account is not None and account.limits_delivery:
        sizes = [len(each) - HEADER_BYTES for each in slots]
        environment.limiter.call_delivered(account, topic, len(sizes), sum(sizes))


def _refuse(reason: str | None) -> None:
    if reason is not None:
        text = f"too much was used of the limit {reason} a second; try again later"
        raise RocketmqError(Code.TOO_MANY_REQUESTS, text)


async def _wait(environment: Environment, delay_ms: int) -> None:
    if delay_ms:
        await environment.sleep(min(delay_ms, HOLD_MS_MAX) / 1_000)
