"""Transactional messages: sent now, delivered if and when their producer says so.

    SendMessage       the message is prepared: stored, but in no queue. Its transaction id is told
    EndTransaction    commit (it is delivered like any other) or rollback (it is gone)
    Telemetry         while nobody has said, any producer of the topic is asked, again and again
                      (RecoverOrphanedTransactionCommand): the one that sent it may be dead

When and how often is asked, and how many may wait, are options of the topic (`HalfOptions`). As in
the reference, the topic's name is that of the producer group. A client is a producer of a topic
from the settings that name it, or its first transactional message, until its stream ends
(`questions`).

Durability: OK to a send means that the message, and to an EndTransaction that the decision, is in
the log, on the disks of a majority of the voters (one node: on this node's). A transaction id is
the kernel's token in hexadecimal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernel.common.errors import Code as KernelCode
from kernel.common.errors import KernelError

from ..codec import answer_encoding as wire
from ..codec.stubs import parse_end_transaction
from ..errors import Code, RocketmqError

if TYPE_CHECKING:
    from ..clients.callers import Caller
    from ..codec.answer_encoding import Name
    from ..environment import Call, Environment
    from ..messages.stored import Draft
    from ..topics.ready_topics import Topic

UNDECIDED: Final = 0
COMMIT: Final = 1
ROLLBACK: Final = 2
"""`enum TransactionResolution`."""


async def prepare(
    environment: Environment, caller: Caller, topic: Topic, name: Name, draft: Draft
) -> bytes:
    """SendMessage of a transactional message. Raises KernelError."""
    parts, _, ident, _, _ = draft
    info = topic.info
    token = await environment.client.halves.prepare(info, info.name, parts)
    environment.producers.publishes((caller.tenant, caller.client_id), topic, name)
    environment.counters.sent += 1
    return wire.OK + wire.prepared(ident, token.hex())


async def end_transaction(environment: Environment, data: bytes, call: Call) -> bytes:
    """EndTransaction. Raises RocketmqError, KernelError."""
    caller = environment.admit(call)
    request = parse_end_transaction(data)
    tenant, shown = caller.tenant_of(request.topic)
    kernel_name = caller.topic_to_publish(shown.name, environment.settings)
    topic = await environment.topics.find(tenant, kernel_name)
    caller.check_into(topic.info)
    try:
        token = bytes.fromhex(request.transaction_id)
    except ValueError:
        raise _not_a_transaction("this is not a transaction id") from None
    if request.resolution == UNDECIDED:
        # A producer that does not know yet: it is asked again.
        return wire.OK
    if request.resolution not in {COMMIT, ROLLBACK}:
        text = f"there is no transaction resolution {request.resolution}"
        raise RocketmqError(Code.BAD_REQUEST, text)
    is_commit, by = request.resolution == COMMIT, environment.by(caller, call)
    try:
        await environment.client.halves.end(topic.info, token, commit=is_commit, by=by)
    except KernelError as error:
        if error.code is KernelCode.LEASE_LOST:
            raise _not_a_transaction(error.message) from None
        raise
    return wire.OK


def _not_a_transaction(text: str) -> RocketmqError:
    return RocketmqError(Code.INVALID_TRANSACTION_ID, text)
