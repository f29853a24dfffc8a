"""The leader's side of push streams: consumers of gateways without a store, of groups that this
process leads (docs/adr/0009 "Push streams").

    ATTACH, unknown -> attached -> CANCEL, nothing held any more   -> forgotten
                                -> the queue is gone               -> ENDED
                                -> the node leads no more          -> GONE
                                -> connection broke: away -> ATTACH: what both hold stays leased
                                                          -> CLAIMED without it, or AWAY_MS: ended

What a stream held when it ends because its gateway did not come back is released, which counts as
an attempt: a client may have seen it. What a gateway that has come back does not know was lost on
the way, and returns uncounted.

A gateway is told what is served here once it has said that it consumes (a first ATTACH, perhaps of
nothing). A new leader hands out nothing that the last one may have handed out until these gateways
have CLAIMED (`claims`).

Of one subscriber that consumes through two gateways the later connection counts: its attaching ends
the other's streams, and that one's are refused from then on.

Bounds: STREAMS_MAX streams of a gateway, and MEMORY_STREAMS_MAX where what is led is the memory of
another gateway (`led_groups.MemoryGroup`); more are refused with LIMIT_EXCEEDED. While
WAITING_BYTES_MAX wait for a gateway's socket, its streams have no credit.

Durability: see `settling`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from ...api.client import Consumer, ConsumerSpec, Deliveries, Settlement
from ...api.filters import compile_filter
from ...api.model import Reason
from ...broker.delivery.claims import claim, keeper
from ...broker.delivery.consumers import DispatchedConsumer, Handed
from ...common.errors import Code, KernelError
from ...common.ids import QueueId, RaftGroup
from ...common.limits import SESSION_CLAIM_MS
from ...requests.leader import Holder
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import Hello
from ...store.replicas.replica import Replica
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_wire import WireError
from . import stream_wire
from .claims import ClaimWindows
from .gateways import STREAMS_MAX, ConsumingGateway, GatewayStream, StreamFigures, Unconcerned
from .led_groups import LedGroups
from .settling import Settling
from .takes import Takes

AWAY_MS = SESSION_CLAIM_MS
"""How long a gateway whose connection has broken keeps what its streams hold (ADR 9)."""

CLAIM_MS = SESSION_CLAIM_MS
"""How long a new leader waits for claims at most (ADR 9)."""

SETTLE_IN_MS = 4_000
"""In the first so many ms of a process its gateways may not have found their way back yet."""

WAITING_BYTES_MAX = 8 * 1024 * 1024
"""On their way to one gateway; its streams have credit again at half of it."""

_PAUSE_SECONDS = 0.01
"""Between two looks at a gateway that is slow."""

_REJECTED = Reason.REJECTED


class StreamService(Unconcerned):
    """`sections.Section`, `store.listener.Listener`, and sink of every stream."""

    methods = calls.STREAMS

    def __init__(
        self,
        led: LedGroups,
        *,
        away_ms: int = AWAY_MS,
        claim_ms: int = CLAIM_MS,
        settle_in_ms: int = SETTLE_IN_MS,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
        streams_max: int = STREAMS_MAX,
    ) -> None:
        self._led = led
        self._loop = asyncio.get_running_loop()
        self._away_ms = away_ms
        self._waiting_bytes_max = waiting_bytes_max
        self._streams_max = streams_max
        self._gateways: dict[str, ConsumingGateway] = {}
        self._streams: dict[DispatchedConsumer, GatewayStream] = {}
        self._subscribers: dict[tuple[int, str, int], GatewayStream] = {}
        """By queue, group and subscriber: its stream of the latest connection."""
        self._windows = ClaimWindows(led, self._gateways, claim_ms, settle_in_ms)
        self._takes = Takes(self, self._hand)
        self._settling = Settling(led, self._drop_if_over)
        self.figures = StreamFigures()

    @property
    def count(self) -> int:
        """Streams that are attached here, or that are kept for gateways that are away."""
        return sum(len(each.streams) for each in self._gateways.values())

    @property
    def away(self) -> list[str]:
        """Gateways that cannot be reached, and for which what they hold is kept."""
        return [process for process, each in self._gateways.items() if each.channel is None]

    def give_up(self, process: str) -> None:
        """One of them is gone: it will not come back."""
        self._gone(self._gateways[process])

    # --- sections.Section -------------------------------------------------------------------

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A gateway has come: it says by itself that it consumes."""

    def closed(self, channel: Channel) -> None:
        """It is gone: what its streams hold is kept for now."""
        gateway = self._gateways.get(channel.peer.store)
        if gateway is not None and gateway.channel is channel:
            self._lost(gateway)

    def _lost(self, gateway: ConsumingGateway) -> None:
        gateway.channel = None
        gateway.flush()
        gateway.claimed.clear()
        for stream in list(gateway.streams.values()):
            stream.is_away = True
            if stream.take is not None:
                stream.take.drop()
        gateway.drop_pools()
        gateway.away = self._loop.call_later(self._away_ms / 1_000, self._gave_up, gateway)
        self._windows.look()

    def _gave_up(self, gateway: ConsumingGateway) -> None:
        """It has not come back."""
        if not self._led.is_draining:
            self._gone(gateway)

    def _gone(self, gateway: ConsumingGateway) -> None:
        """It claims nothing any more."""
        if gateway.away is not None:
            gateway.away.cancel()
        self._gateways.pop(gateway.process, None)
        for stream in list(gateway.streams.values()):
            self._end_away(stream)
        self._windows.look()

    def before_stop(self) -> None:
        """Release what gateways hold: where no other leader comes after this one, which ends in
        order, nobody else would count the attempts.
        """
        for gateway in list(self._gateways.values()):
            for stream in list(gateway.streams.values()):
                if self._led.is_alone(stream.group):
                    self._end_away(stream)

    def _end_away(self, stream: GatewayStream, claimed: Sequence[int] = ()) -> None:
        """Nobody will say what became of what a stream holds, but for what another has claimed."""
        consumer = stream.consumer
        if stream.take is not None:
            stream.take.drop()
        self._forget(stream)
        if consumer is None:
            return
        consumer.dispatcher.detach(consumer)
        settle = consumer.dispatcher.settle
        claimed = sorted(consumer.held.intersection(claimed))
        if claimed:
            settle(consumer, Settlement.RETURN, claimed, _REJECTED, urgent=False)
        held = sorted(consumer.held)
        if held:
            self.figures.released += len(held)
            settle(consumer, Settlement.RELEASE, held, _REJECTED, urgent=True)

    def _forget(self, stream: GatewayStream) -> None:
        stream.gateway.streams.pop(stream.number, None)
        stream.leave()
        consumer = stream.consumer
        if consumer is not None:
            self._streams.pop(consumer, None)
            if stream.claimant[1]:
                key = _subscriber_of(stream, consumer)
                if self._subscribers.get(key) is stream:
                    del self._subscribers[key]

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """Streams are told of."""
        raise RpcError(f"method {method} is not asked of who leads")

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """A gateway says something."""
        try:
            if method == stream_wire.STREAM_BATCH:
                self._stream_batch(channel, stream_wire.decode_stream_batch(payload))
            elif method == stream_wire.ATTACH:
                self._attach_all(channel, stream_wire.decode(stream_wire.attaches, payload))
            elif method == stream_wire.CLAIMED:
                self._claimed(channel, stream_wire.decode(stream_wire.claims, payload))
            elif method == stream_wire.LEFT:
                stream_wire.decode(stream_wire.left, payload)
                self._gone(self._gateway(channel))
            else:
                raise RpcError(f"method {method} is not told to who leads")
        except WireError as error:
            raise RpcError(str(error)) from None

    def _gateway(self, channel: Channel) -> ConsumingGateway:
        """Who consumes by a channel. It hears what is served here when it first says anything."""
        process = channel.peer.store
        gateway = self._gateways.get(process)
        if gateway is None:
            gateway = self._gateways[process] = ConsumingGateway(process)
        if gateway.channel is not channel:
            if gateway.channel is not None:
                self._lost(gateway)  # it has found out before this end has
            gateway.channel = channel
            gateway.is_paused = False
            gateway.confirming.clear()
            if gateway.away is not None:
                gateway.away.cancel()
                gateway.away = None
            served = [each for each in self._led.groups if self._led.serving(each) is not None]
            gateway.tell(
                stream_wire.SERVES, [(each, self._led.standing(each)[0]) for each in served]
            )
        return gateway

    # --- Attaching --------------------------------------------------------------------------

    def _attach_all(self, channel: Channel, heads: list[stream_wire.Attach]) -> None:
        gateway = self._gateway(channel)
        for head in heads:
            group = RaftGroup(head.group)
            if self._led.serving(group) is None:
                continue  # it has been told GONE, or will be when it is
            try:
                self._attach(gateway, group, head)
            except KernelError as error:
                gateway.streams.pop(head.stream, None)
                if error.code is not Code.NOT_LEADER:
                    ended = stream_wire.Ended(head.stream, error.code.wire, error.message)
                    gateway.tell(stream_wire.ENDED, ended)

    def _attach(
        self, gateway: ConsumingGateway, group: RaftGroup, head: stream_wire.Attach
    ) -> None:
        stream = gateway.streams.get(head.stream)
        is_new = stream is None
        if stream is None:
            stream = self._begin(gateway, group, head)
        consumer = stream.consumer
        assert consumer is not None
        stream.is_away = False
        stream.join(gateway.pool(head.pool))
        if is_new:
            claim(consumer.dispatcher, consumer, head.held)
        claimed = set(head.held)
        lost = sorted(consumer.held - claimed)
        refused = sorted(claimed - consumer.held)
        gateway.tell(stream_wire.ATTACHED, [stream_wire.Attached(head.stream, is_new, refused)])
        if head.is_over:
            consumer.cancel()
        if lost:
            self.figures.returned += len(lost)
            consumer.dispatcher.settle(consumer, Settlement.RETURN, lost, _REJECTED, urgent=False)
        pool = stream.pool
        if pool is not None and pool.left > 0:
            stream.pump()
        # One that is over is kept until its CANCEL: what it settles once more comes before that.

    def _begin(
        self, gateway: ConsumingGateway, group: RaftGroup, head: stream_wire.Attach
    ) -> GatewayStream:
        """A new consumer. Raises KernelError as `Client.attach`; LIMIT_EXCEEDED, LOCKED,
        SESSION_FENCED.
        """
        if len(gateway.streams) >= self._streams_max:
            self.figures.over_streams += 1
            message = f"a gateway consumes by {self._streams_max} streams here, and no more"
            raise KernelError(Code.LIMIT_EXCEEDED, message)
        replica = self._led.replica(group)
        dispatcher = replica.dispatcher(QueueId(head.queue), head.name)
        topic = dispatcher.queue.topic.info()
        self._led.check_consumer(topic)
        stream = GatewayStream(gateway, head.stream, group, (head.subscriber, head.epoch))
        if head.epoch:
            self._fence(stream, (head.queue, head.name, head.subscriber), head.held)
        spec = ConsumerSpec(
            topic,
            head.name,
            None,
            priority=head.priority,
            exclusive=head.exclusive,
            auto_ack=head.auto_ack,
            filter=compile_filter(head.filter),
            pull=head.pull,
            origin=head.origin,
        )
        pool = gateway.pool(head.pool)
        if head.is_over:
            stream.consumer = keeper(dispatcher, spec, self)
        else:
            self._led.used(topic.id, head.name)
            stream.consumer = dispatcher.attach(spec, self, pool)
            self.figures.attached += 1
        if head.auto_ack:
            gateway.unstoppable[pool] = None
        gateway.streams[head.stream] = stream
        self._streams[stream.consumer] = stream
        if head.epoch:
            self._subscribers[head.queue, head.name, head.subscriber] = stream
        return stream

    def _fence(
        self, stream: GatewayStream, key: tuple[int, str, int], claimed: Sequence[int]
    ) -> None:
        """Of one subscriber the latest connection counts. Raises KernelError SESSION_FENCED."""
        known = self._subscribers.get(key)
        if known is None or known.claimant == stream.claimant:
            return
        self.figures.fenced += 1
        error = KernelError(Code.SESSION_FENCED, "the subscriber has a later connection")
        if known.claimant > stream.claimant:
            raise error
        self._end_away(known, claimed)
        ended = stream_wire.Ended(known.number, error.code.wire, error.message)
        known.gateway.tell(stream_wire.ENDED, ended)

    def _drop_if_over(self, stream: GatewayStream) -> None:
        """Forget a stream that is cancelled and holds nothing."""
        consumer = stream.consumer
        if consumer is not None and consumer.ended and not consumer.held:
            self._forget(stream)

    # --- Stream batches ---------------------------------------------------------------------

    def _stream_batch(self, channel: Channel, turn: stream_wire.StreamBatch) -> None:
        gateway = self._gateway(channel)
        for number, messages in turn.credits:
            pool = gateway.pools.get(number)
            if pool is not None:
                gateway.grant(pool, messages)
        for block in turn.blocks:
            if self._led.serving(RaftGroup(block.group)) is not None:
                self._settling.block(gateway, block)
        for number, keeps in turn.cancels:
            stream = gateway.streams.get(number)
            if stream is not None:
                self._cancel(stream, keeps)
        for number, take, messages, wait_ms in turn.takes:
            stream = gateway.streams.get(number)
            if stream is not None and stream.consumer is not None:
                spec = stream.consumer.spec
                self._led.used(spec.topic.id, spec.group)
                self._takes.begin(stream, take, messages, wait_ms)
        for number in turn.over:
            gateway.drop_pool(number)

    def _cancel(self, stream: GatewayStream, keeps: list[int]) -> None:
        consumer = stream.consumer
        if consumer is None:
            return
        if stream.take is not None:
            stream.take.drop()
        consumer.cancel()
        lost = sorted(consumer.held.difference(keeps))
        if lost:
            if stream.pool is not None:
                stream.gateway.grant(stream.pool, len(lost))
            consumer.dispatcher.settle(consumer, Settlement.RETURN, lost, _REJECTED, urgent=False)
        self._drop_if_over(stream)

    # --- client.ConsumerSink ----------------------------------------------------------------

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        """Messages for a stream (hot)."""
        holder = cast("DispatchedConsumer", consumer)
        handed = cast("Handed", deliveries)
        stream = self._streams.get(holder)
        if stream is None or (stream.gateway.is_paused and not holder.spec.auto_ack):
            if stream is not None and stream.pool is not None:
                stream.gateway.set_aside(stream.pool, len(handed.offsets))
            holder.dispatcher.return_handed(holder, handed)
            return
        self._hand(stream, handed)

    def _hand(self, stream: GatewayStream, handed: Handed) -> None:
        gateway = stream.gateway
        gateway.add(stream, handed)
        if gateway.waiting_bytes > self._waiting_bytes_max and not gateway.is_paused:
            self._pause(gateway)

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        """The queue is gone, or its leader is another node."""
        stream = self._streams.get(cast("DispatchedConsumer", consumer))
        if stream is None:
            return
        self._forget(stream)
        if error.code is not Code.NOT_LEADER:
            ended = stream_wire.Ended(stream.number, error.code.wire, error.message)
            stream.gateway.tell(stream_wire.ENDED, ended)

    def _pause(self, gateway: ConsumingGateway) -> None:
        """Too much waits for its socket."""
        self.figures.paused += 1
        gateway.is_paused = True
        for pool in gateway.unstoppable:
            gateway.set_aside(pool)
        self._loop.call_later(_PAUSE_SECONDS, self._look_at, gateway, gateway.channel)

    def _look_at(self, gateway: ConsumingGateway, channel: Channel | None) -> None:
        if gateway.channel is not channel or not gateway.is_paused:
            return
        if gateway.waiting_bytes > self._waiting_bytes_max // 2:
            self._loop.call_later(_PAUSE_SECONDS, self._look_at, gateway, channel)
            return
        gateway.is_paused = False
        later, gateway.later = gateway.later, {}
        for pool in later:
            messages, pool.aside = pool.aside, 0
            gateway.grant(pool, messages)
        takes, gateway.takes = gateway.takes, []
        for begin in takes:
            begin()

    # --- service.Holders --------------------------------------------------------------------

    def holder(self, channel: Channel, number: int) -> DispatchedConsumer | None:
        """The consumer of a stream that is attached by a channel; None: it is not."""
        gateway = self._gateways.get(channel.peer.store)
        if gateway is None or gateway.channel is not channel:
            return None
        stream = gateway.streams.get(number)
        return stream.consumer if stream is not None and not stream.is_away else None

    def has_ended(self, channel: Channel, number: int) -> bool:
        """Whether a stream that was attached by a channel is over: it was cancelled, and what it
        held is settled.
        """
        gateway = self._gateways.get(channel.peer.store)
        return gateway is not None and gateway.channel is channel and number not in gateway.streams

    def settled(self, holders: Sequence[Holder]) -> None:
        """A transaction has settled what they held, or has not been carried out."""
        for each in holders:
            stream = self._streams.get(cast("DispatchedConsumer", each))
            if stream is not None:
                self._drop_if_over(stream)

    # --- Claims -----------------------------------------------------------------------------

    def _claimed(self, channel: Channel, head: stream_wire.Claimed) -> None:
        """A gateway has attached all that it has in a group."""
        gateway = self._gateway(channel)
        group = RaftGroup(head.group)
        if self._led.serving(group) is None or self._led.standing(group)[0] != head.term:
            return
        gateway.claimed[group] = head.term
        for stream in list(gateway.streams.values()):
            if stream.group == group and stream.is_away:
                self._end_away(stream)
        self._windows.look()

    # --- store.listener.Listener ------------------------------------------------------------

    def leads(self, replica: Replica) -> None:
        """A group is served here from now on."""
        group = replica.group
        if group not in self._led.groups:
            return
        term = self._led.standing(group)[0]
        for gateway in self._gateways.values():
            gateway.tell(stream_wire.SERVES, [(group, term)])
        self._windows.begin(group)

    def follows(self, replica: Replica) -> None:
        """A group is not served here any more."""
        group = replica.group
        self._windows.end(group)
        for gateway in self._gateways.values():
            gateway.confirming.pop(group, None)
            gateway.claimed.pop(group, None)
            for stream in list(gateway.streams.values()):
                if stream.group == group:
                    self._forget(stream)
            gateway.tell(stream_wire.GONE, [group])


def _subscriber_of(stream: GatewayStream, consumer: DispatchedConsumer) -> tuple[int, str, int]:
    dispatcher = consumer.dispatcher
    return dispatcher.queue.id, dispatcher.group, stream.claimant[0]
