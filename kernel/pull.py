"""One pull: consumers that stand in the queues' round robins until the first delivery comes.

Lease tokens: `u64 queue | u64 offset | u64 lease`, little-endian. They prove nothing by secrecy;
a stale or invented one names a lease that the state does not hold.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

from .broker.consumers import DispatchedConsumer, Handed
from .client import Consumer, Deliveries, Received
from .errors import KernelError

_TOKEN = struct.Struct("<QQQ")


def encode_token(queue: int, offset: int, lease: int) -> bytes:
    """Token of a timed lease."""
    return _TOKEN.pack(queue, offset, lease)


def decode_token(token: bytes) -> tuple[int, int, int] | None:
    """(queue, offset, lease) of a token; None if the bytes cannot be one."""
    if len(token) != _TOKEN.size:
        return None
    queue, offset, lease = _TOKEN.unpack(token)
    return queue, offset, lease


class Pull:
    """Sink of one pull. What comes after the first delivery goes back untouched."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.done: asyncio.Future[None] = loop.create_future()
        self.abandoned = False
        self.is_over = False
        self._consumers: Sequence[DispatchedConsumer] = ()
        self._handed: Handed | None = None
        self._consumer: DispatchedConsumer | None = None

    def begin(self, consumers: Sequence[DispatchedConsumer], messages: int) -> None:
        """Give the consumers credit, one queue after the other, until one has messages."""
        self._consumers = consumers
        for consumer in consumers:
            if self.done.done() or self.expecting:
                return
            consumer.grant(messages)

    @property
    def expecting(self) -> bool:
        """Whether messages are being leased to this pull right now."""
        return any(each.expecting for each in self._consumers)

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        """Messages have come."""
        assert isinstance(consumer, DispatchedConsumer)
        assert isinstance(deliveries, Handed)
        for each in self._consumers:
            each.pool.left = 0
        if self.is_over or self._handed is not None or not deliveries.offsets:
            self._give_back(consumer, deliveries)
            return
        self._handed = deliveries
        self._consumer = consumer
        if not self.done.done():
            self.done.set_result(None)

    def _give_back(self, consumer: DispatchedConsumer, handed: Handed) -> None:
        """Nobody waits for these any more: ready again, no attempt counted."""
        consumer.dispatcher.return_handed(consumer, handed)

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        """The topic is gone."""
        if not self.done.done():
            self.done.set_exception(error)

    def over(self) -> None:
        """The caller has stopped waiting."""
        self.is_over = True
        if self.abandoned and self._handed is not None and self._consumer is not None:
            self._give_back(self._consumer, self._handed)
            self._handed = None

    def received(self, session: bool) -> Received:
        """What the pull brought. Raises the error that ended it."""
        if self.done.done():
            self.done.result()
        handed = self._handed
        if handed is None or self._consumer is None:
            return Received(None, None, (), 0)
        ready = self._consumer.dispatcher.ready_count
        if session:
            return Received(handed, self._consumer, (), ready)
        tokens = [encode_token(handed.queue, offset, handed.lease) for offset in handed.offsets]
        return Received(handed, None, tokens, ready)
