"""From a channel's transaction to the kernel's, and back to tx.commit-ok.

A commit is one operation of its connection, fenced: everything published and given back before it
is done. Its messages and settlements are one `kernel.api.atomic.Transaction`. If all queues
concerned live in one Raft group, that is carried out whole or not at all, through every crash; else
messages are stored first and settlements follow (`whole=False`), so that a crash between the two
repeats deliveries and loses nothing. RabbitMQ promises the second only.

Durability: commit-ok is sent when a majority of each group's voters has fdatasynced the messages
and the settlements. A mandatory message that had nowhere to go is returned before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.amqp.codec import spec
from adapters.amqp.errors import INTERNAL_ERROR, PRECONDITION_FAILED, AmqpError, from_kernel
from adapters.amqp.limits import LOAD_ATTEMPTS_MAX
from kernel.api import atomic
from kernel.api.model import Reason
from kernel.common.errors import KernelError, NotLoaded

if TYPE_CHECKING:
    from adapters.amqp.caller import Caller
    from adapters.amqp.channel.consuming import Consumers
    from adapters.amqp.channel.open_channel import Channel
    from adapters.amqp.channel.publishing import ChannelPublisher, Routed
    from adapters.amqp.channel.transaction import BufferedMessage, ChannelTransaction
    from adapters.amqp.codec.method_base import Method
    from adapters.amqp.environment import Environment
    from kernel.api.client import Consumer, Settlement


class Committer:
    """Commits the transactions of one connection."""

    def __init__(
        self,
        environment: Environment,
        caller: Caller,
        publisher: ChannelPublisher,
        consumers: Consumers,
    ) -> None:
        self._client = environment.client
        self._declarations = environment.declarations
        self._counters = environment.counters
        self._caller = caller
        self._publisher = publisher
        self._consumers = consumers

    async def commit(self, channel: Channel, transaction: ChannelTransaction) -> Method:
        """Carry it out and empty it; the answer. Raises AmqpError: what is still in it has not been
        done, or (541) nobody knows.
        """
        routed = await self._routed(transaction.messages)
        batch = self._publisher.batch_of(channel, routed)
        if batch is not None:
            await self._publisher.charge_commit(batch)
        settlements = _settlements(transaction)
        try:
            await self._client.transact(atomic.Transaction(batch, settlements, whole=False))
        except KernelError as error:
            raise _failed(error) from None
        self._publisher.committed(channel, routed, batch)
        self._consumers.committed([(each.consumer, len(each.offsets)) for each in settlements])
        transaction.clear()
        self._counters.commits += 1
        return spec.TxCommitOk()

    async def _routed(self, messages: list[BufferedMessage]) -> list[Routed]:
        """Where each message goes by what is declared now. Raises AmqpError 403, 404."""
        for _ in range(LOAD_ATTEMPTS_MAX):
            self._publisher.begin_chunk()
            try:
                return [(each, self._publisher.route(each)) for each in messages]
            except NotLoaded:
                names = {(each.target.exchange, each.target.key) for each in messages}
                if (missing := self._publisher.targets.missing) is not None:
                    names.add(missing)
            for exchange, key in names:
                await self._declarations.load(self._caller.tenant, exchange, key)
        raise AmqpError(INTERNAL_ERROR, "names could not be loaded")


def _settlements(transaction: ChannelTransaction) -> list[atomic.Settle]:
    """Of each consumer and way of settling one."""
    found: dict[tuple[Consumer, Settlement], list[int]] = {}
    for how, deliveries in transaction.settlements:
        for consumer, offset in deliveries.values():
            found.setdefault((consumer, how), []).append(offset)
    return [
        atomic.Settle(consumer, how, offsets, Reason.REJECTED)
        for (consumer, how), offsets in found.items()
    ]


def _failed(error: KernelError) -> AmqpError:
    """What the client is told: the channel closes, or if nobody knows how it ended, the connection;
    a kernel error that says that a name is not there is not about a name of this method.
    """
    told = from_kernel(error)
    code = told.code if told.hard else PRECONDITION_FAILED
    return AmqpError(code, f"the transaction was not committed as a whole: {error.message}")
