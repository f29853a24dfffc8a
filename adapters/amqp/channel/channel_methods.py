"""What the methods of an open channel do.

`ChannelMethods` does what `lifecycle.CHANNEL_STEPS` allows. A handler whose step waits is a
coroutine that returns the answer; the others answer through `ChannelPort.send`. Handlers raise
AmqpError (soft: the channel closes) or KernelError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.amqp.channel.committing import Committer
from adapters.amqp.channel.confirms import Confirms
from adapters.amqp.channel.direct_reply import DirectReplies
from adapters.amqp.channel.open_channel import ChannelLink
from adapters.amqp.channel.revoking import may_stay, withdrawn
from adapters.amqp.channel.transaction import ChannelTransaction, next_mode
from adapters.amqp.codec import spec
from adapters.amqp.codec.fields import integer_of
from adapters.amqp.errors import (
    ACCESS_REFUSED,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    AmqpError,
)
from adapters.amqp.lifecycle import ChannelState
from adapters.amqp.limits import CONSUMERS_PER_CHANNEL_MAX, UNACKED_PER_CHANNEL_MAX
from adapters.amqp.names import (
    DIRECT_REPLY_TO,
    check_name,
    generated_consumer_tag,
    is_reply_address,
    resource,
)
from adapters.amqp.topology.arguments import consumer_timeout_ms, is_quorum
from adapters.amqp.topology.declaring import named
from adapters.tree_rights import CONSUME_TOPIC, out_of_topic
from kernel.api.client import ConsumerSpec, PutTopic, ReceiveSpec, Settlement
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicInfo, TopicKind
from kernel.common.errors import Code, KernelError
from metering.counters import measure_slots

if TYPE_CHECKING:
    from adapters.amqp.caller import Caller
    from adapters.amqp.channel.consuming import Consumers
    from adapters.amqp.channel.open_channel import Channel, ChannelPort
    from adapters.amqp.channel.publishing import ChannelPublisher
    from adapters.amqp.channel.transaction import Delivered
    from adapters.amqp.codec.method_base import Method
    from adapters.amqp.environment import Environment
    from kernel.api.client import Consumer

TICKET: Final = 1
"""What access.request is answered with: rights need no tickets any more, old clients still ask."""

PRIORITY_MAX: Final = 2**31 - 1
"""Bound of x-priority, both ways: what RabbitMQ's clients can spell as an int."""


_REFUSED: Final = (Settlement.DEAD_LETTER, Settlement.RELEASE)
"""What a nack or reject means, by its requeue bit."""


class ChannelMethods:
    """Carries out the methods of open channels of one connection."""

    def __init__(
        self,
        environment: Environment,
        caller: Caller,
        consumers: Consumers,
        publisher: ChannelPublisher,
        port: ChannelPort,
    ) -> None:
        self._client = environment.client
        self._declarations = environment.declarations
        self._random = environment.random
        self._meter = environment.meter
        self._caller = caller
        self._consumers = consumers
        self._direct_replies = DirectReplies(environment, caller)
        self._committer = Committer(environment, caller, publisher, consumers)
        self._counters = environment.counters
        self._room = publisher.transactions
        self._charging = publisher.charging
        self._port = port

    # --- Channel ----------------------------------------------------------------------------

    def on_flow(self, channel: Channel, method: spec.ChannelFlow) -> None:
        """A client may ask us to send; to make us stop is what prefetch is for."""
        if not method.active:
            raise AmqpError(NOT_IMPLEMENTED, "active=false")
        self._port.send(channel.number, spec.ChannelFlowOk(active=True))

    def on_channel_close(self, channel: Channel, _method: spec.ChannelClose) -> None:
        """The client is done with the channel, or our closes have crossed."""
        self._port.send(channel.number, spec.ChannelCloseOk())
        if channel.state is ChannelState.OPEN:
            self._port.close_channel(channel)

    def on_access_request(self, channel: Channel, _method: spec.AccessRequest) -> None:
        """Answered for old clients."""
        self._port.send(channel.number, spec.AccessRequestOk(TICKET))

    # --- Exchanges and queues ---------------------------------------------------------------

    async def on_exchange_declare(self, _: Channel, method: spec.ExchangeDeclare) -> Method:
        """See `Declarations`."""
        return await self._declarations.declare_exchange(self._caller, method)

    async def on_exchange_delete(self, _: Channel, method: spec.ExchangeDelete) -> Method:
        """See `Declarations`."""
        return await self._declarations.delete_exchange(self._caller, method)

    async def on_exchange_bind(
        self, _: Channel, method: spec.ExchangeBind | spec.ExchangeUnbind
    ) -> Method:
        """See `Declarations`."""
        return await self._declarations.bind_exchange(self._caller, method)

    async def on_queue_declare(self, channel: Channel, method: spec.QueueDeclare) -> Method:
        """See `Declarations`. The channel remembers the name."""
        answer = await self._direct_replies.declared(method)
        if answer is None:
            answer = await self._declarations.declare_queue(self._caller, method)
        channel.last_declared = answer.queue
        return answer

    async def on_queue_bind(
        self, channel: Channel, method: spec.QueueBind | spec.QueueUnbind
    ) -> Method:
        """See `Declarations`."""
        return await self._declarations.bind_queue(self._caller, method, channel.last_declared)

    async def on_queue_purge(self, channel: Channel, method: spec.QueuePurge) -> Method:
        """See `Declarations`."""
        return await self._declarations.purge_queue(self._caller, method, channel.last_declared)

    async def on_queue_delete(self, channel: Channel, method: spec.QueueDelete) -> Method:
        """See `Declarations`."""
        return await self._declarations.delete_queue(self._caller, method, channel.last_declared)

    # --- Publishing -------------------------------------------------------------------------

    def on_confirm_select(self, channel: Channel, method: spec.ConfirmSelect) -> None:
        """Number and answer publishes from now on."""
        channel.mode = next_mode(channel.mode, method)
        if channel.confirms is None:
            channel.confirms = Confirms()
        if not method.nowait:
            self._port.send(channel.number, spec.ConfirmSelectOk())

    # --- Transactions -----------------------------------------------------------------------

    def on_tx_select(self, channel: Channel, method: spec.TxSelect) -> None:
        """Hold publishes and settlements back until they are committed, from now on."""
        channel.mode = next_mode(channel.mode, method)
        if channel.transaction is None:
            channel.transaction = ChannelTransaction(self._room)
        self._port.send(channel.number, spec.TxSelectOk())

    async def on_tx_commit(self, channel: Channel, method: spec.TxCommit) -> Method:
        """Carry out what was held back. See `committing`."""
        next_mode(channel.mode, method)
        assert channel.transaction is not None
        return await self._committer.commit(channel, channel.transaction)

    def on_tx_rollback(self, channel: Channel, method: spec.TxRollback) -> None:
        """Forget what was held back; its deliveries stay with the client, unacknowledged."""
        next_mode(channel.mode, method)
        channel.roll_back()
        self._counters.rollbacks += 1
        self._port.send(channel.number, spec.TxRollbackOk())

    # --- Consuming --------------------------------------------------------------------------

    def on_qos(self, channel: Channel, method: spec.BasicQos) -> None:
        """global=false: each consumer made from now on; global=true: the channel as a whole."""
        if method.prefetch_size:
            raise AmqpError(NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})")
        if method.global_:
            channel.limit = method.prefetch_count or None
            for link in channel.links.values():
                self._consumers.thirsty(link)
        else:
            channel.prefetch = method.prefetch_count
        self._port.send(channel.number, spec.BasicQosOk())

    async def on_consume(self, channel: Channel, method: spec.BasicConsume) -> Method:
        """A new consumer; its first delivery follows its answer."""
        queue = named(check_name(method.queue, "queue"), channel.last_declared)
        tag = method.consumer_tag or generated_consumer_tag(self._random.bits(128))
        if tag in channel.links:
            raise AmqpError(NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
        if len(channel.links) >= CONSUMERS_PER_CHANNEL_MAX:
            raise AmqpError(
                PRECONDITION_FAILED,
                f"a channel can have {CONSUMERS_PER_CHANNEL_MAX} consumers at most",
            )
        priority = _consumer_priority(method)
        if queue == DIRECT_REPLY_TO:
            topic = await self._direct_replies.begin(channel, method)
            queue = topic.name
        else:
            topic = await self._readable(queue)
        if topic.options.kind is TopicKind.STREAM and method.arguments.get("x-stream-offset"):
            raise AmqpError(NOT_IMPLEMENTED, "x-stream-offset is not served")
        timeout_ms = consumer_timeout_ms(method.arguments, topic)
        link = ChannelLink(channel, tag, queue, channel.prefetch, no_ack=method.no_ack)
        link.topic_id = topic.id
        link.tells_attempt = is_quorum(topic)
        link.consumer = await self._attach(link, topic, priority, is_exclusive=method.exclusive)
        if not is_reply_address(queue):
            link.topic = topic
            if not may_stay(self._caller, link):
                # Withdrawn while the kernel was awaited: a recheck has not seen this consumer.
                link.consumer.cancel()
                raise withdrawn(self._caller, link)
        if self._meter is not None:
            link.counter = self._meter.delivery_counter(topic.tenant, queue, DEFAULT_GROUP)
        channel.links[tag] = link
        if timeout_ms is not None and not link.no_ack:
            self._consumers.patiences.watch(link, timeout_ms)
        if is_reply_address(queue):
            channel.replies = link
        self._consumers.thirsty(link)
        return spec.BasicConsumeOk(tag)

    async def _attach(
        self, link: ChannelLink, topic: TopicInfo, priority: int, *, is_exclusive: bool
    ) -> Consumer:
        wanted = ConsumerSpec(
            topic=topic,
            group=DEFAULT_GROUP,
            session=self._caller.session,
            priority=priority,
            exclusive=is_exclusive,
            auto_ack=link.no_ack,
            tag=link,
        )
        try:
            consumer = self._client.attach(wanted, self._consumers)
            # The answer to the client is the leader's: 403 and 404 instead of ok and a cancel.
            await self._client.attached(consumer)
        except KernelError as error:
            if error.code is not Code.LOCKED:
                raise
            where = resource("queue", topic.name, self._caller.virtual_host)
            raise AmqpError(ACCESS_REFUSED, f"{where} in exclusive use") from None
        return consumer

    async def _readable(self, queue: str) -> TopicInfo:
        """The queue, which the caller may consume. Raises AmqpError 403, 404 or 405."""
        self._caller.require(CONSUME_TOPIC, "queue", queue)
        topic = await self._consumable(queue)
        self._caller.require_all(out_of_topic(queue, topic))
        return topic

    async def _consumable(self, queue: str) -> TopicInfo:
        """The queue, with the group that AMQP consumes by. Raises AmqpError 404 or 405."""
        topic = await self._declarations.queue(self._caller, queue)
        if DEFAULT_GROUP in topic.groups:
            return topic
        # Topics that other protocols made may have no such group yet
        # (docs/design/model.md#consumer-groups).
        groups = {**topic.groups, DEFAULT_GROUP: GroupOptions()}
        await self._client.administer(PutTopic(topic.tenant, queue, topic.options, groups))
        return await self._declarations.queue(self._caller, queue)

    def on_cancel(self, channel: Channel, method: spec.BasicCancel) -> None:
        """End a consumer; what it has unacknowledged stays so. An unknown tag is fine."""
        link = channel.links.pop(method.consumer_tag, None)
        if link is not None and link.consumer is not None:
            link.consumer.cancel()
            link.consumer = None
        if not method.nowait:
            self._port.send(channel.number, spec.BasicCancelOk(method.consumer_tag))

    def on_cancel_ok(self, channel: Channel, method: spec.BasicCancelOk) -> None:
        """The client has heard that we ended one of its consumers."""

    async def on_get(self, channel: Channel, method: spec.BasicGet) -> Method | None:
        """One message now, or get-empty."""
        queue = named(check_name(method.queue, "queue"), channel.last_declared)
        if channel.outstanding >= UNACKED_PER_CHANNEL_MAX:
            raise AmqpError(
                PRECONDITION_FAILED,
                f"{UNACKED_PER_CHANNEL_MAX} deliveries are unacknowledged on the channel",
            )
        topic = await self._readable(queue)
        received = await self._client.receive(
            ReceiveSpec(topic, DEFAULT_GROUP, session=self._caller.session)
        )
        deliveries, holder = received.deliveries, received.consumer
        if deliveries is None or holder is None or not deliveries.offsets:
            return spec.BasicGetEmpty()
        if self._meter is not None:
            counter = self._meter.delivery_counter(topic.tenant, queue, DEFAULT_GROUP)
            counter.count(1, *measure_slots(deliveries.slots[:1]))
        offset = deliveries.offsets[0]
        if method.no_ack:
            self._client.settle(holder, Settlement.ACK, (offset,))
        else:
            channel.unacked[channel.next_tag] = (holder, offset)
        limits = self._consumers.got(topic.id, len(deliveries.slots[0]))
        if limits is not None:
            self._charging.waits_for(limits)
        self._consumers.get_ok(
            channel, queue, deliveries, received.ready, tells_attempt=is_quorum(topic)
        )
        return None

    # --- Settling ---------------------------------------------------------------------------

    def on_ack(self, channel: Channel, method: spec.BasicAck) -> None:
        """Done with one delivery, or with all up to it."""
        taken = channel.take_unacked(method.delivery_tag, multiple=method.multiple)
        self._settle(channel, Settlement.ACK, taken)

    def on_reject(self, channel: Channel, method: spec.BasicReject) -> None:
        """Give one delivery back, or dead-letter it."""
        taken = channel.take_unacked(method.delivery_tag, multiple=False)
        self._settle(channel, _REFUSED[method.requeue], taken)

    def on_nack(self, channel: Channel, method: spec.BasicNack) -> None:
        """Give deliveries back, or dead-letter them."""
        taken = channel.take_unacked(method.delivery_tag, multiple=method.multiple)
        self._settle(channel, _REFUSED[method.requeue], taken)

    def _settle(self, channel: Channel, how: Settlement, taken: Delivered) -> None:
        """At once, or with the commit. Raises AmqpError 406 if a transaction has no room."""
        if channel.transaction is not None:
            channel.transaction.settle(how, taken)
        else:
            self._consumers.settle(how, list(taken.values()))

    def on_recover(
        self, channel: Channel, method: spec.BasicRecover | spec.BasicRecoverAsync
    ) -> None:
        """Give everything unacknowledged back to its queues."""
        if not method.requeue:
            raise AmqpError(NOT_IMPLEMENTED, "requeue=false")
        self._consumers.give_back(list(channel.take_unacked(0, multiple=True).values()))
        if isinstance(method, spec.BasicRecover):
            self._port.send(channel.number, spec.BasicRecoverOk())


def _consumer_priority(method: spec.BasicConsume) -> int:
    """x-priority of a consumer. Raises AmqpError 406. As in RabbitMQ, no_local means nothing."""
    field = method.arguments.get("x-priority")
    if field is None:
        return 0
    priority = integer_of(field)
    if priority is None or not -PRIORITY_MAX <= priority <= PRIORITY_MAX:
        raise AmqpError(PRECONDITION_FAILED, "x-priority is not an integer of 32 bits")
    return priority
