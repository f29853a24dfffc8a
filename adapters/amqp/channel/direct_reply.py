"""Direct reply-to: answers without a queue that anybody has declared (RabbitMQ's extension).

    requester  consume amq.rabbitmq.reply-to, no-ack
               publish with reply-to = amq.rabbitmq.reply-to
                           which becomes amq.rabbitmq.reply-to.<address>
    responder  publish to the default exchange with that as the key, from anywhere in the cluster

Rules:

1. A channel has one reply consumer at most. Behind it is a topic of the address' name in the memory
   of this gateway, the connection's own: it goes with its consumer, or with the connection. The
   address has 128 random bits; whoever has been told it may answer, whatever its other rights.
2. Publishing to an address and declaring it, which tells whether it is there, is all that can be
   done with it: everything else finds no such queue.
3. An answer to an address that is gone is dropped, also if it is mandatory (RabbitMQ since 4.2).

Durability: none; an answer is in memory, and lost with either gateway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.amqp.codec import properties, spec
from adapters.amqp.errors import NOT_FOUND, PRECONDITION_FAILED, AmqpError
from adapters.amqp.names import (
    DIRECT_REPLY_TO,
    check_name,
    generated_reply_address,
    is_reply_address,
    resource,
)
from kernel.api.client import PutTopic
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicInfo, TopicOptions

if TYPE_CHECKING:
    from adapters.amqp.caller import Caller
    from adapters.amqp.channel.open_channel import Channel
    from adapters.amqp.environment import Environment
    from adapters.amqp.messages.stamps import OfSender


class DirectReplies:
    """The reply consumers of one connection."""

    def __init__(self, environment: Environment, caller: Caller) -> None:
        self._client = environment.client
        self._declarations = environment.declarations
        self._random = environment.random
        self._caller = caller

    async def begin(self, channel: Channel, method: spec.BasicConsume) -> TopicInfo:
        """What a new reply consumer takes from. Raises AmqpError 406, and KernelError."""
        if not method.no_ack:
            raise AmqpError(PRECONDITION_FAILED, "reply consumer cannot acknowledge")
        if channel.reply_address() is not None:
            raise AmqpError(PRECONDITION_FAILED, "reply consumer already set")
        session = self._caller.session
        change = PutTopic(
            self._caller.tenant,
            generated_reply_address(self._random.bits(128)),
            TopicOptions(durable=False, owner=session.id, hidden=True, delete_when_unused=True),
            {DEFAULT_GROUP: GroupOptions()},
            session=session,
            must_be_new=True,
            reserved_name=True,
        )
        made = await self._client.administer(change)
        assert isinstance(made, TopicInfo)
        return made

    async def declared(self, method: spec.QueueDeclare) -> spec.QueueDeclareOk | None:
        """The answer to a declaration of the pseudo-queue or of an address; None if it is one of
        something else. Raises AmqpError 404.
        """
        name = check_name(method.queue, "queue")
        if is_reply_address(name):
            caller = self._caller
            if await self._declarations.topic(caller.tenant, name) is None:
                raise AmqpError(NOT_FOUND, f"no {resource('queue', name, caller.virtual_host)}")
        elif name != DIRECT_REPLY_TO:
            return None
        return spec.QueueDeclareOk(name, 0, 1)


def block_of(channel: Channel, of_sender: OfSender, block: bytes) -> bytes:
    """The property block that is stored: without hidden copies, and if it asks for a direct reply,
    with the address in it. Raises AmqpError 406 if the channel has no reply consumer.
    """
    if of_sender.block is not None:
        block = of_sender.block
    if not of_sender.wants_reply:
        return block
    address = channel.reply_address()
    if address is None:
        raise AmqpError(PRECONDITION_FAILED, "fast reply consumer does not exist")
    fields = properties.split(block)
    fields[properties.REPLY_TO] = bytes((len(address),)) + address.encode()
    return properties.join(fields)
