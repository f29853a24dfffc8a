"""Consumers at this gateway of transient topics that live in others (`served_consumers` is their
end).

    attach -> ATTACH ~~> a consumer there;  grant, settle, cancel follow in order
           <~~ HANDED_OVER -> sink.deliver

A consumer ends when the other gateway cannot be reached any more, even if for a moment: what it
held has returned there, and comes again as redelivered.

Durability: none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...api.client import ConsumerSink, ConsumerSpec, Received, ReceiveSpec, Settlement, SettleSink
from ...api.model import Reason, TopicInfo
from ...common.errors import Code, KernelError
from ...common.ids import QueueId, SessionId
from ...rpc.channel import Channel
from ...rpc.frame import RpcError
from ..leader_calls.call_wire import WireError, decode
from . import remote_consumer_wire as wire
from .pseudo_groups import queue_there
from .remote_process import ASK_MS, RemoteProcess

PULL_SLACK_MS = 5_000
"""A pull is answered so long after its wait at the latest."""


@dataclass(frozen=True, slots=True)
class RemoteDeliveries:
    """Messages that have come from another gateway (`client.Deliveries`)."""

    queue: QueueId
    offsets: Sequence[int]
    slots: Sequence[bytes]
    attempts: Sequence[int] | None


class RemoteConsumer:
    """A consumer of a transient topic in another gateway (`client.Consumer`)."""

    __slots__ = (
        "_left",
        "_owner",
        "channel",
        "ended",
        "failure",
        "number",
        "queue",
        "ref",
        "sink",
        "spec",
        "tag",
        "taken_in",
        "waiter",
    )

    def __init__(
        self,
        owner: RemoteConsumers,
        channel: Channel,
        number: int,
        spec: ConsumerSpec | ReceiveSpec,
    ) -> None:
        self._owner = owner
        self.channel = channel
        self.number = number
        self.spec = spec
        self.ref = spec.topic.queues[0]
        self.queue = self.ref.id
        self.sink: ConsumerSink | None = None
        self.tag: object = spec.tag if isinstance(spec, ConsumerSpec) else None
        self.ended = False
        self.taken_in = False
        """The other gateway has it."""
        self.failure: KernelError | None = None
        """Why it has ended."""
        self.waiter: asyncio.Future[None] | None = None
        """Who wants to know whether it was taken in."""
        self._left = 0
        """Unsettled messages of a pull; 0: not one."""

    def grant(self, messages: int) -> None:
        """Add credit (hot)."""
        self._steer(wire.CREDIT, messages)

    def cancel(self) -> None:
        """Stop deliveries; what it holds stays its own."""
        self._steer(wire.CANCEL)
        self.sink = None

    def over(self) -> None:
        """What it holds returns."""
        self._steer(wire.OVER)
        self.ended, self.sink = True, None

    def _steer(self, what: int, messages: int = 0) -> None:
        if not self.ended:
            steer = wire.Steer(self.number, what, messages)
            self.channel.tell(wire.STEER, wire.encode(steer))

    def pulled(self, messages: int) -> None:
        """It stands for a pull that has brought so many."""
        self._left = messages

    def settled(self, messages: int) -> None:
        """So many are settled: a pull is over with its last one."""
        if self._left:
            self._left = max(0, self._left - messages)
            if not self._left:
                self._owner.forget(self)

    def deliver(self, head: wire.HandedOver, slots: list[bytes]) -> None:
        """Messages have come; those that come for a cancelled one go back."""
        if self.sink is None and not self.ended:
            back = wire.Settle(self.number, Settlement.RETURN, list(head.offsets), Reason.REJECTED)
            self.channel.tell(wire.SETTLE, wire.encode(back))
        elif self.sink is not None:
            remote_deliveries = RemoteDeliveries(self.queue, head.offsets, slots, head.attempts)
            self.sink.deliver(self, remote_deliveries)

    def fail(self, error: KernelError) -> None:
        """The other gateway has refused or ended it, or is gone."""
        if self.ended:
            return
        self.ended, self.failure = True, error
        sink, self.sink = self.sink, None
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_exception(error)
        elif sink is not None:
            sink.consumer_ended(self, error)


def _single(topic: TopicInfo) -> QueueId:
    """The queue of a topic as it is where it lives. Raises KernelError NOT_ALLOWED."""
    if len(topic.queues) != 1:
        message = (
            "a topic of several queues in the memory of another gateway is consumed only there"
        )
        raise KernelError(Code.NOT_ALLOWED, message)
    return queue_there(topic.queues[0].id)


class RemoteConsumers:
    """The consumers of this gateway of topics that live in others."""

    def __init__(self) -> None:
        self._last = 0
        self._consumers: dict[Channel, dict[int, RemoteConsumer]] = {}
        self._sessions: dict[SessionId, dict[RemoteConsumer, None]] = {}
        self._of: dict[RemoteConsumer, SessionId] = {}

    @property
    def count(self) -> int:
        """Consumers of topics elsewhere."""
        return len(self._of)

    # --- What the client is asked -----------------------------------------------------------

    def attach(
        self, remote_process: RemoteProcess, spec: ConsumerSpec, sink: ConsumerSink
    ) -> RemoteConsumer:
        """A new push consumer without credit. Raises KernelError NOT_ALLOWED, UNAVAILABLE."""
        queue = _single(spec.topic)
        if spec.session is None or spec.filter is not None or spec.lease_ms is not None:
            message = "a filter or timed leases on a topic in the memory of another gateway"
            raise KernelError(Code.NOT_ALLOWED, message)
        consumer = self._new(remote_process, spec, spec.session.id)
        consumer.sink = sink
        asked = wire.Attach(
            consumer.number,
            queue,
            spec.group,
            spec.priority,
            spec.exclusive,
            spec.auto_ack,
            spec.session.origin,
        )

        def answered(answer: bytes | KernelError) -> None:
            if isinstance(answer, KernelError):
                self._drop(consumer)
                consumer.fail(_said(answer))
                return
            consumer.taken_in = True
            if consumer.waiter is not None and not consumer.waiter.done():
                consumer.waiter.set_result(None)

        try:
            consumer.channel.call(wire.ATTACH, wire.encode(asked), answered, ASK_MS)
        except KernelError as error:
            self._drop(consumer)
            raise _said(error) from None
        return consumer

    async def attached(self, consumer: RemoteConsumer) -> None:
        """Return once the other gateway has taken it in. Raises KernelError."""
        if consumer.failure is not None:
            raise consumer.failure
        if not consumer.taken_in and not consumer.ended:
            consumer.waiter = asyncio.get_running_loop().create_future()
            try:
                await consumer.waiter
            finally:
                consumer.waiter = None

    async def receive(self, remote_process: RemoteProcess, spec: ReceiveSpec) -> Received:
        """Pull messages for a session. Raises KernelError."""
        queue = _single(spec.topic)
        if spec.session is None or spec.filter is not None:
            message = "timed leases on a topic in the memory of another gateway"
            raise KernelError(Code.NOT_ALLOWED, message)
        consumer = self._new(remote_process, spec, spec.session.id)
        asked = wire.Pull(
            consumer.number,
            queue,
            spec.group,
            spec.messages,
            spec.wait_ms,
            spec.session.origin,
        )
        wait_ms = spec.wait_ms + PULL_SLACK_MS
        try:
            answer = await remote_process.ask(wire.PULL, wire.encode(asked), wait_ms)
            head, slots = wire.decode_handed_over(answer)
        except WireError as error:
            self.forget(consumer)
            raise KernelError(Code.UNAVAILABLE, f"an answer is none: {error}") from None
        except BaseException:
            self.forget(consumer)
            raise
        if not slots:
            self.forget(consumer)
            return Received(None, None, (), head.ready)
        consumer.pulled(len(slots))
        remote_deliveries = RemoteDeliveries(consumer.queue, head.offsets, slots, head.attempts)
        return Received(remote_deliveries, consumer, (), head.ready)

    def settle(
        self,
        consumer: RemoteConsumer,
        how: Settlement,
        offsets: Sequence[int],
        reason: Reason,
        sink: SettleSink | None,
        tag: object,
    ) -> None:
        """Settle leases (hot)."""
        parts = wire.encode(wire.Settle(consumer.number, how, list(offsets), reason))
        if sink is None:
            if not consumer.ended:
                consumer.channel.tell(wire.SETTLE, parts)
                consumer.settled(len(offsets))
            return

        def answered(answer: bytes | KernelError) -> None:
            sink.settled(tag, _failures(answer, offsets))

        error = KernelError(Code.LEASE_LOST, "the consumer has ended")
        if not consumer.ended:
            try:
                consumer.channel.call(wire.SETTLE, parts, answered, ASK_MS)
            except KernelError as refused:
                error = _said(refused)
            else:
                consumer.settled(len(offsets))
                return
        asyncio.get_running_loop().call_soon(answered, error)

    def acknowledge(self, acks: Mapping[RemoteConsumer, Sequence[int]]) -> None:
        """Ack what many consumers hold (hot)."""
        for consumer, offsets in acks.items():
            self.settle(consumer, Settlement.ACK, offsets, Reason.REJECTED, None, None)

    def end_session(self, session: SessionId) -> None:
        """What its consumers hold returns."""
        for consumer in self._sessions.pop(session, {}):
            self.forget(consumer)

    # --- What the other gateways say --------------------------------------------------------

    def told(self, channel: Channel, payload: bytes) -> None:
        """HANDED_OVER or GONE. Raises RpcError."""
        try:
            head, slots = wire.decode_handed_over(payload)
        except WireError as error:
            raise RpcError(str(error)) from None
        consumer = self._consumers.get(channel, {}).get(head.number)
        if consumer is None:
            return  # it is over here, and will be there
        gone = wire.gone_of(head)
        if gone is not None:
            self._drop(consumer)
            consumer.fail(gone)
        else:
            consumer.deliver(head, slots)

    def closed(self, channel: Channel) -> None:
        """A connection is over, and its consumers are."""
        for consumer in list(self._consumers.get(channel, {}).values()):
            self._drop(consumer)
            consumer.fail(_said(KernelError(Code.NOT_LEADER, "")))

    # --- Which there are --------------------------------------------------------------------

    def _new(
        self, remote_process: RemoteProcess, spec: ConsumerSpec | ReceiveSpec, session: SessionId
    ) -> RemoteConsumer:
        if remote_process.channel is None:
            raise _said(KernelError(Code.NOT_LEADER, ""))
        self._last += 1
        consumer = RemoteConsumer(self, remote_process.channel, self._last, spec)
        self._consumers.setdefault(remote_process.channel, {})[consumer.number] = consumer
        self._sessions.setdefault(session, {})[consumer] = None
        self._of[consumer] = session
        return consumer

    def forget(self, consumer: RemoteConsumer) -> None:
        """It is over, here and there."""
        consumer.over()
        self._drop(consumer)

    def _drop(self, consumer: RemoteConsumer) -> None:
        session = self._of.pop(consumer, None)
        if session is None:
            return
        of_channel = self._consumers[consumer.channel]
        del of_channel[consumer.number]
        if not of_channel:
            del self._consumers[consumer.channel]
        of_session = self._sessions.get(session)
        if of_session is not None:
            of_session.pop(consumer, None)
            if not of_session:
                del self._sessions[session]


def _said(error: KernelError) -> KernelError:
    """What a client of this gateway hears."""
    if error.code in (Code.NOT_LEADER, Code.UNKNOWN_OUTCOME, Code.TIMEOUT):
        return KernelError(Code.UNAVAILABLE, "the gateway of the topic cannot be reached")
    return error


def _failures(
    answer: bytes | KernelError, offsets: Sequence[int]
) -> Mapping[int, KernelError] | None:
    if isinstance(answer, KernelError):
        return dict.fromkeys(offsets, _said(answer))
    try:
        strangers = decode(wire.strangers, answer)
    except WireError as error:
        return dict.fromkeys(offsets, KernelError(Code.UNAVAILABLE, str(error)))
    lost = KernelError(Code.LEASE_LOST, "no lease on it")
    return dict.fromkeys(strangers, lost) or None
