"""Transient topics of this gateway that are consumed at others (`remote_consumers` is their end).

Each consumer elsewhere has one here, with a session of its own. It ends with the connection: what
it holds returns, as redelivered.

Bounds: LENT_MAX consumers of one connection; above LENT_BYTES_MAX waiting for it, what is handed
out goes back, and the consumer has no credit until half of that is written.

Durability: none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from ...api.client import (
    Consumer,
    ConsumerSink,
    ConsumerSpec,
    Deliveries,
    Received,
    ReceiveSpec,
    Session,
    Settlement,
    SettleSink,
)
from ...api.model import Reason, TopicInfo
from ...common.errors import Code, KernelError
from ...common.ids import QueueId
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...store.transient import TransientGroup
from ..leader_calls.call_wire import WireError, decode
from . import remote_consumer_wire as wire

SERVED_MAX = 10_000
"""Consumers elsewhere of one connection, some 2 KB each; one more is LIMIT_EXCEEDED."""

SERVED_BYTES_MAX = 8 * 1024 * 1024

AGAIN_SECONDS = 0.05
"""Between two looks whether a slow connection has caught up."""


class ServingProcess(Protocol):
    """What is asked of the client in this process."""

    transient: TransientGroup

    def open_session(self, name: str, origin: int = 0) -> Session:
        """A new session."""

    def attach(self, spec: ConsumerSpec, sink: ConsumerSink) -> Consumer:
        """A new push consumer without credit."""

    async def receive(self, spec: ReceiveSpec) -> Received:
        """Pull messages."""

    def settle(
        self,
        consumer: Consumer,
        how: Settlement,
        offsets: Sequence[int],
        *,
        reason: Reason = Reason.REJECTED,
        sink: SettleSink | None = None,
        tag: object = None,
    ) -> None:
        """Settle leases."""


class _ServedConsumer:
    """One consumer elsewhere. `client.ConsumerSink` of the one here."""

    __slots__ = ("_again", "_channel", "_process", "_withheld", "consumer", "number", "session")

    def __init__(
        self, process: ServingProcess, channel: Channel, number: int, session: Session
    ) -> None:
        self._process = process
        self._channel = channel
        self.number = number
        self.session = session
        self.consumer: Consumer | None = None
        self._withheld = 0
        """Credit that was taken back while the connection was slow."""
        self._again: asyncio.TimerHandle | None = None

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        """Messages for it."""
        if self._channel.waiting_bytes > SERVED_BYTES_MAX:
            offsets = list(deliveries.offsets)
            self._process.settle(consumer, Settlement.RETURN, offsets)
            self._withheld += len(offsets)
            if self._again is None:
                self._look_later()
            return
        parts = wire.encode_handed_over(
            self.number, deliveries.offsets, deliveries.attempts, deliveries.slots
        )
        self._channel.tell(wire.HANDED_OVER, parts)

    def _look_later(self) -> None:
        self._again = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._look)

    def _look(self) -> None:
        if self._channel.waiting_bytes > SERVED_BYTES_MAX // 2:
            self._look_later()
            return
        self._again = None
        withheld, self._withheld = self._withheld, 0
        if self.consumer is not None:
            self.consumer.grant(withheld)

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        """The topic is gone."""
        self._channel.tell(wire.HANDED_OVER, wire.encode_gone(self.number, error))

    def over(self) -> None:
        """What it holds returns."""
        if self._again is not None:
            self._again.cancel()
        self.session.close()


class _Answer:
    """`client.SettleSink` of one settlement."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def settled(self, tag: object, failures: Mapping[int, KernelError] | None) -> None:
        """See `client.SettleSink`."""
        self._reply(wire.encode(sorted(failures or ())))


class ServedConsumers:
    """The consumers of other gateways of topics that live here."""

    methods = frozenset((wire.ATTACH, wire.PULL, wire.STEER, wire.SETTLE))

    def __init__(self, process: ServingProcess) -> None:
        self._process = process
        self._served: dict[Channel, dict[int, _ServedConsumer]] = {}
        self._tasks: dict[asyncio.Task[None], Channel] = {}
        self.refused = 0
        """At LENT_MAX."""

    @property
    def count(self) -> int:
        """How many consumers of other gateways are served here."""
        return sum(map(len, self._served.values()))

    def closed(self, channel: Channel) -> None:
        """A connection is over: what its consumers hold returns."""
        for task, of in list(self._tasks.items()):
            if of is channel:
                task.cancel()
        for served in self._served.pop(channel, {}).values():
            served.over()

    async def stop(self) -> None:
        """No consumer elsewhere is served any more."""
        for channel in list(self._served):
            self.closed(channel)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """STEER, or a SETTLE that nobody waits for. Raises RpcError."""
        try:
            if method == wire.STEER:
                self._steer(channel, decode(wire.steers, payload))
            elif method == wire.SETTLE:
                self._settle(channel, decode(wire.settles, payload), None)
            else:
                raise RpcError(f"method {method} is not told")
        except WireError as error:
            raise RpcError(str(error)) from None

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """ATTACH, PULL or SETTLE. Raises RpcError."""
        try:
            if method == wire.ATTACH:
                self._attach(channel, decode(wire.attaches, payload))
                reply([])
            elif method == wire.PULL:
                self._pull(channel, decode(wire.pulls, payload), reply)
            else:
                self._settle(channel, decode(wire.settles, payload), reply)
        except WireError as error:
            raise RpcError(str(error)) from None
        except KernelError as error:
            reply(error)

    def _topic(self, queue: int) -> TopicInfo:
        known = self._process.transient.replica.state.queues.get(QueueId(queue))
        if known is None:
            raise KernelError(Code.NOT_FOUND, "the topic was deleted")
        topic = known.topic.info()
        if topic.options.owner is not None:
            raise KernelError(Code.LOCKED, f"topic {topic.name} is another session's")
        return topic

    def _served_consumer(self, channel: Channel, number: int, origin: int) -> _ServedConsumer:
        all_served = self._served.setdefault(channel, {})
        known = all_served.get(number)
        if known is not None:
            return known
        if len(all_served) >= SERVED_MAX:
            self.refused += 1
            raise KernelError(Code.LIMIT_EXCEEDED, f"{SERVED_MAX} consumers of another gateway")
        session = self._process.open_session(f"of gateway {channel.peer.store}", origin)
        served = all_served[number] = _ServedConsumer(self._process, channel, number, session)
        return served

    def _attach(self, channel: Channel, asked: wire.Attach) -> None:
        topic = self._topic(asked.queue)
        served = self._served_consumer(channel, asked.number, asked.origin)
        spec = ConsumerSpec(
            topic,
            asked.group,
            served.session,
            priority=asked.priority,
            exclusive=asked.exclusive,
            auto_ack=asked.auto_ack,
            origin=asked.origin,
        )
        try:
            served.consumer = self._process.attach(spec, served)
        except KernelError:
            self._end(channel, asked.number)
            raise

    def _end(self, channel: Channel, number: int) -> None:
        served = self._served.get(channel, {}).pop(number, None)
        if served is not None:
            served.over()

    def _steer(self, channel: Channel, asked: wire.Steer) -> None:
        if asked.what == wire.OVER:
            self._end(channel, asked.number)
            return
        served = self._served.get(channel, {}).get(asked.number)
        if served is None or served.consumer is None:
            return
        if asked.what == wire.CREDIT:
            served.consumer.grant(asked.messages)
        else:
            served.consumer.cancel()

    def _settle(self, channel: Channel, asked: wire.Settle, reply: Reply | None) -> None:
        served = self._served.get(channel, {}).get(asked.number)
        sink = _Answer(reply) if reply is not None else None
        if served is None or served.consumer is None:
            if sink is not None:
                lost = KernelError(Code.LEASE_LOST, "the consumer has ended")
                sink.settled(None, dict.fromkeys(asked.offsets, lost))
            return
        self._process.settle(
            served.consumer, asked.how, asked.offsets, reason=asked.reason, sink=sink
        )

    # --- Single messages --------------------------------------------------------------------

    def _pull(self, channel: Channel, asked: wire.Pull, reply: Reply) -> None:
        topic = self._topic(asked.queue)
        served = self._served_consumer(channel, asked.number, asked.origin)
        work = self._received(topic, asked, served, reply)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = channel
        task.add_done_callback(partial(self._tasks.pop))

    async def _received(
        self, topic: TopicInfo, asked: wire.Pull, served: _ServedConsumer, reply: Reply
    ) -> None:
        spec = ReceiveSpec(
            topic,
            asked.group,
            messages=asked.messages,
            wait_ms=asked.wait_ms,
            session=served.session,
            origin=asked.origin,
        )
        try:
            received = await self._process.receive(spec)
        except KernelError as error:
            reply(error)
            return
        if received.consumer is not None:
            served.consumer = received.consumer
        got = received.deliveries
        if got is None:
            reply(wire.encode_handed_over(asked.number, (), None, (), received.ready))
        else:
            columns = got.offsets, got.attempts, got.slots
            reply(wire.encode_handed_over(asked.number, *columns, received.ready))
