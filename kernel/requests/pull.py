"""One pull: consumers that stand in the queues' round robins until the first delivery comes.

    begin -> messages have come, an error has, or the time is up -> `ended` is called, once
          -> close, by whoever began it

Lease tokens: `u64 queue | u64 offset | u64 lease`, little-endian. They prove nothing by secrecy;
a stale or invented one names a lease that the state does not hold.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Protocol

from ..api.client import Consumer, Deliveries, Received
from ..broker.delivery.consumers import DispatchedConsumer, Handed
from ..broker.group_state.resized import RETIRED
from ..common.errors import KernelError

_TOKEN = struct.Struct("<QQQ")

NOTHING = Received(None, None, (), 0)
"""What a pull brought to which nothing came in time."""


def encode_token(queue: int, offset: int, lease: int) -> bytes:
    """Token of a timed lease."""
    return _TOKEN.pack(queue, offset, lease)


def decode_token(token: bytes) -> tuple[int, int, int] | None:
    """(queue, offset, lease) of a token; None if the bytes cannot be one."""
    if len(token) != _TOKEN.size:
        return None
    queue, offset, lease = _TOKEN.unpack(token)
    return queue, offset, lease


class Timer(Protocol):
    """What `call_later` gives."""

    def cancel(self) -> None:
        """Do not call back."""


class Timers(Protocol):
    """What a pull asks of the event loop."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Timer:
        """Call back after so many seconds."""


class Pull:
    """Sink of one pull. What comes after the first delivery goes back untouched."""

    __slots__ = (
        "_consumer",
        "_consumers",
        "_ended",
        "_error",
        "_handed",
        "_messages",
        "_timer",
        "_timers",
        "has_ended",
        "is_over",
    )

    def __init__(self, timers: Timers, ended: Callable[[], None]) -> None:
        """`ended` is called from inside a dispatcher's turn: it must not touch the pull there."""
        self._timers = timers
        self._ended = ended
        self._consumers: Sequence[DispatchedConsumer] = ()
        self._messages = 0
        self._timer: Timer | None = None
        self._handed: Handed | None = None
        self._consumer: DispatchedConsumer | None = None
        self._error: KernelError | None = None
        self.has_ended = False
        self.is_over = False

    def begin(
        self,
        consumers: Sequence[DispatchedConsumer],
        messages: int,
        wait_ms: int,
        *,
        paused: bool = False,
    ) -> None:
        """Wait up to `wait_ms` for up to `messages` messages, with consumers without credit."""
        self._consumers = consumers
        self._messages = messages
        if not paused:
            self.resume()
        if wait_ms:
            self._timer = self._timers.call_later(wait_ms / 1_000, self._look)
        else:
            self._look()

    def resume(self) -> None:
        """Give the consumers credit, one queue after the other, until one has messages."""
        for consumer in self._consumers:
            if self.has_ended or self.expecting:
                return
            consumer.grant(self._messages - consumer.pool.left)

    def pause(self) -> None:
        """Take the credit back. What is on its way still comes."""
        for consumer in self._consumers:
            consumer.pool.left = 0

    @property
    def expecting(self) -> bool:
        """Whether messages are being leased to this pull right now."""
        return any(each.expecting for each in self._consumers)

    def _look(self) -> None:
        """The time is up: it has ended unless messages are on their way to it, being leased, read
        from disk, or waiting for the dispatch mark. Never polls.
        """
        if self.has_ended or self.is_over:
            return
        if not any(each.dispatcher.tell_when_moved(each, self._look) for each in self._consumers):
            self._end()

    def _end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            self._ended()

    # --- client.ConsumerSink ----------------------------------------------------------------

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        """Messages have come."""
        assert isinstance(consumer, DispatchedConsumer)
        assert isinstance(deliveries, Handed)
        if not deliveries.offsets:
            # A purge came in between: there may be others.
            if not (self.is_over or self.has_ended):
                self.resume()
            return
        self.pause()
        if self.is_over or self.has_ended:
            consumer.dispatcher.return_handed(consumer, deliveries)
            return
        self._handed = deliveries
        self._consumer = consumer
        self._end()

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        """The topic is gone, or its leader is another node; or a sealed queue is gone: then the
        others are waited for, if there are any.
        """
        if error is RETIRED:
            self._consumers = [each for each in self._consumers if each is not consumer]
            if not self._consumers:
                self._end()
        elif not self.has_ended:
            self._error = error
            self._end()

    # --- The end ----------------------------------------------------------------------------

    def close(self, *, keep: bool = False) -> None:
        """Nobody waits any more. `keep`: the consumers go on, for another pull."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self.pause()
        if not keep:
            for consumer in self._consumers:
                consumer.cancel()

    def give_back(self) -> None:
        """Nobody wants what has come: ready again, no attempt counted."""
        if self._handed is not None and self._consumer is not None:
            self._consumer.dispatcher.return_handed(self._consumer, self._handed)
            self._handed = None

    def handed(self) -> Handed | None:
        """What the pull brought. Raises the error that ended it."""
        if self._error is not None:
            raise self._error
        return self._handed

    @property
    def ready(self) -> int:
        """Messages still ready in the queue that has brought something."""
        return self._consumer.dispatcher.ready_count if self._consumer is not None else 0

    def received(self, *, session: bool) -> Received:
        """What the pull brought, leased to a session or not. Raises the error that ended it."""
        handed = self.handed()
        if handed is None:
            return NOTHING
        if session:
            return Received(handed, self._consumer, (), self.ready)
        return Received(handed, None, tokens_of(handed), self.ready)


def tokens_of(handed: Handed) -> list[bytes]:
    """Tokens of messages under a timed lease."""
    queue, lease = handed.queue, handed.lease
    return [_TOKEN.pack(queue, offset, lease) for offset in handed.offsets]
