"""Gateways that consume, as who leads knows them: their streams, and what is on its way to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from ...api.model import Route, TopicInfo
from ...broker.delivery.consumers import Credit, DispatchedConsumer, Handed
from ...broker.group_state.state import QueueState, RouterState
from ...broker.group_state.tree_state import TreeEvent
from ...common.ids import RaftGroup
from ...rpc.channel import Channel
from ...rpc.frame import FRAGMENT_BYTES
from ...store.replicas.replica import Replica
from . import stream_wire

DELIVER_BYTES_MAX = FRAGMENT_BYTES * 3 // 4
"""Slots of one DELIVER, but for the first one: with what is said of them they are one frame, so
that none is cut and put together again."""


STREAMS_MAX = 262_144
"""Of one gateway at one store: some 5 KB each with their dispatchers, so 1.3 GB. What has nothing
to bring needs no stream (`list_waits`)."""

MEMORY_STREAMS_MAX = 16_384
"""Of one gateway at another: 80 MB. Fewer than at a store, since each gateway may consume from all
the others; with sixteen of them it is what one gateway may cost a store."""


class StreamFigures:
    """Counters since this process began."""

    __slots__ = ("attached", "fenced", "over_streams", "paused", "released", "returned")

    def __init__(self) -> None:
        self.attached = 0
        self.returned = 0
        """Messages that were lost on their way to a gateway that has come back."""
        self.released = 0
        """Messages of streams whose gateway did not come back."""
        self.paused = 0
        """Times that too much waited for a gateway."""
        self.over_streams = 0
        """Streams refused at STREAMS_MAX or MEMORY_STREAMS_MAX."""
        self.fenced = 0
        """Streams ended, or refused, since the subscriber has a later connection."""


class GatewayCredit(Credit):
    """Credit that streams of one gateway have in common here."""

    __slots__ = ("_round_robin", "aside", "number", "streams")

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.aside = 0
        """Credit while the gateway is paused."""
        self.streams: dict[GatewayStream, None] = {}
        self._round_robin = 0

    def grant(self, messages: int) -> None:
        """Add credit. The queues take from it in turn, a different one first each time. While there
        was credit, whatever had something has taken of it: then none needs to be looked at.
        """
        before = self.left
        self.left = before + messages
        if self.left <= 0:
            return
        if len(self.streams) == 1:
            (stream,) = self.streams
            stream.pump()
        elif before <= 0:
            streams = list(self.streams)
            self._round_robin += 1
            start = self._round_robin % len(streams) if streams else 0
            for stream in (*streams[start:], *streams[:start]):
                if self.left <= 0:
                    return
                stream.pump()


class GatewayStream:
    """A consumer of a gateway."""

    __slots__ = ("claimant", "consumer", "gateway", "group", "is_away", "number", "pool", "take")

    def __init__(
        self, gateway: ConsumingGateway, number: int, group: RaftGroup, claimant: tuple[int, int]
    ) -> None:
        self.gateway = gateway
        self.number = number
        self.group = group
        self.claimant = claimant
        """(subscriber, its epoch), or (0, 0)."""
        self.consumer: DispatchedConsumer | None = None
        self.pool: GatewayCredit | None = None
        self.is_away = False
        self.take: Take | None = None
        """The pull that it stands for now."""

    def join(self, pool: GatewayCredit) -> None:
        """Take its credit from a pool."""
        self.leave()
        self.pool = pool
        pool.streams[self] = None
        if self.consumer is not None:
            self.consumer.pool = pool

    def leave(self) -> None:
        """Take no credit any more."""
        if self.pool is not None:
            self.pool.streams.pop(self, None)

    def pump(self) -> None:
        """Hand it what is there."""
        consumer = self.consumer
        if consumer is not None and not consumer.ended:
            consumer.dispatcher.pump()


class Take(Protocol):
    """A pull that a stream stands for (`takes`)."""

    def drop(self) -> None:
        """Nobody wants it any more."""


class ConsumingGateway:
    """A process that consumes."""

    __slots__ = (
        "away",
        "channel",
        "claimed",
        "confirming",
        "heads",
        "is_paused",
        "later",
        "pools",
        "process",
        "size",
        "slots",
        "streams",
        "takes",
        "unstoppable",
    )

    def __init__(self, process: str) -> None:
        self.process = process
        self.channel: Channel | None = None
        self.streams: dict[int, GatewayStream] = {}
        self.pools: dict[int, GatewayCredit] = {}
        self.claimed: dict[int, int] = {}
        """By group: the term for which it has claimed by this connection."""
        self.heads: list[stream_wire.Delivery] = []
        self.slots: list[bytes] = []
        self.size = 0
        """Bytes of these slots, which go out when the turn is over."""
        self.is_paused = False
        self.later: dict[GatewayCredit, None] = {}
        """Pools that have credit aside."""
        self.unstoppable: dict[GatewayCredit, None] = {}
        """Those whose streams ack by handing over: what they hand over cannot be taken back."""
        self.takes: list[Callable[[], None]] = []
        """Pulls that begin when it is paused no more."""
        self.confirming: dict[RaftGroup, int] = {}
        """By group: the newest number that is to be told as applied, in a while."""
        self.away: asyncio.TimerHandle | None = None

    @property
    def waiting_bytes(self) -> int:
        """On their way to it."""
        return self.size + (self.channel.waiting_bytes if self.channel is not None else 0)

    def pool(self, number: int) -> GatewayCredit:
        """A pool by its number; made if there is none."""
        pool = self.pools.get(number)
        if pool is None:
            pool = self.pools[number] = GatewayCredit(number)
        return pool

    def grant(self, pool: GatewayCredit, messages: int) -> None:
        """Add credit, or set it aside while it is paused."""
        if self.is_paused:
            pool.aside += messages
            self.later[pool] = None
        else:
            pool.grant(messages)

    def set_aside(self, pool: GatewayCredit, messages: int = 0) -> None:
        """It is paused: a pool has no credit for now, but this again afterwards."""
        pool.aside += pool.left + messages
        pool.left = 0
        self.later[pool] = None

    def drop_pool(self, number: int) -> None:
        """A pool has no streams any more."""
        pool = self.pools.pop(number, None)
        if pool is not None:
            self.later.pop(pool, None)
            self.unstoppable.pop(pool, None)

    def drop_pools(self) -> None:
        """Its connection is gone, and all credit with it."""
        for pool in self.pools.values():
            pool.left = 0
        self.pools.clear()
        self.later.clear()
        self.unstoppable.clear()
        self.takes.clear()

    def tell(self, method: int, head: object) -> None:
        """Say something, behind what is being delivered."""
        self.flush()
        if self.channel is not None:
            self.channel.tell(method, stream_wire.encode(head))

    def add(self, stream: GatewayStream, handed: Handed) -> None:
        """Send messages with what else this turn of the loop has for it (hot)."""
        if not self.heads and self.channel is not None:
            self.channel.before_take(self.flush)
        offsets, slots, attempts = handed.offsets, handed.slots, handed.attempts
        lengths = list(map(len, slots))
        start = 0
        for end in cuts_of(lengths):
            size = sum(lengths[start:end])
            if self.size and self.size + size > DELIVER_BYTES_MAX:
                self.flush()
            columns = attempts[start:end] if attempts is not None else None
            self.heads.append(
                (stream.number, handed.lease, offsets[start:end], columns, lengths[start:end])
            )
            self.slots += slots[start:end]
            self.size += size
            start = end

    def flush(self) -> None:
        """Send what has been handed out in this turn."""
        heads, self.heads = self.heads, []
        slots, self.slots = self.slots, []
        self.size = 0
        if heads and self.channel is not None:
            self.channel.tell(stream_wire.DELIVER, stream_wire.encode_deliver(heads, slots))


class Unconcerned:
    """What streams do not need to hear of as `store.listener.Listener`."""

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """The dispatchers know."""

    def router_changed(self, router: RouterState, group: RaftGroup, *, removed: bool) -> None:
        """Nothing of streams."""

    def route_changed(self, router: RouterState, route: Route, *, removed: bool) -> None:
        """Nothing of streams."""

    def unused(self, queue: QueueState) -> None:
        """The client of the store looks after it."""

    def outbox_grew(self, replica: Replica) -> None:
        """Nothing of streams."""

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """Nothing of streams."""

    def tree_changed(self, replica: Replica, event: TreeEvent) -> None:
        """Nothing of streams."""

    def replaced(self, replica: Replica) -> None:
        """It follows: it has no streams."""


def cuts_of(lengths: list[int]) -> list[int]:
    """Where to cut messages so that each piece fits into one DELIVER: the end of each piece."""
    if sum(lengths) <= DELIVER_BYTES_MAX:
        return [len(lengths)]
    cuts: list[int] = []
    size = 0
    for at, length in enumerate(lengths):
        size += length
        if at and size > DELIVER_BYTES_MAX:
            cuts.append(at)
            size = length
    return [*cuts, len(lengths)]
