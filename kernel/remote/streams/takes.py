"""The leader's side of pulls for a session (`pulls`): TAKE is answered by what it brings, as
deliveries of its stream, and then TOOK.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ...api.client import ConsumerSink
from ...broker.delivery.consumers import Handed
from ...common.errors import Code, KernelError
from ...requests.pull import Pull
from . import stream_wire
from .gateways import GatewayStream


class _Take:
    """A pull that is under way. `gateways.Take`."""

    __slots__ = ("_finish", "_loop", "_sink", "number", "pull", "stream")

    def __init__(
        self,
        stream: GatewayStream,
        number: int,
        loop: asyncio.AbstractEventLoop,
        sink: ConsumerSink,
        finish: Callable[[_Take], None],
    ) -> None:
        self.stream = stream
        self.number = number
        self._loop = loop
        self._sink = sink
        self._finish = finish
        self.pull = Pull(loop, self._ended)

    def _ended(self) -> None:
        """Called from inside a dispatcher's turn."""
        self._loop.call_soon(self._finish, self)

    def close(self) -> None:
        """The pull has ended."""
        self.pull.close(keep=True)
        self.stream.take = None
        if self.stream.consumer is not None:
            self.stream.consumer.sink = self._sink

    def drop(self) -> None:
        """Nobody wants it any more."""
        self.close()
        self.pull.give_back()


class Takes:
    """Pulls of sessions that wait at this leader."""

    def __init__(
        self, sink: ConsumerSink, deliver: Callable[[GatewayStream, Handed], None]
    ) -> None:
        """`sink`: of every stream; `deliver` sends what a pull has brought."""
        self._sink = sink
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()

    def begin(self, stream: GatewayStream, number: int, messages: int, wait_ms: int) -> None:
        """Carry out a TAKE; once the gateway takes anything, if it is slow."""
        if stream.gateway.is_paused:
            stream.gateway.takes.append(partial(self.begin, stream, number, messages, wait_ms))
            return
        consumer = stream.consumer
        if consumer is None or consumer.ended:
            return  # the gateway has heard, or will, that the stream is over
        if stream.take is not None:
            stream.take.drop()
        dispatcher = consumer.dispatcher
        options = dispatcher.queue.topic.groups[dispatcher.group]
        if dispatcher.leased_count >= options.in_flight_max:
            message = f"group {dispatcher.group} has in_flight_max messages in flight"
            self._tell(stream, number, 0, KernelError(Code.LIMIT_EXCEEDED, message))
        elif not wait_ms and not dispatcher.ready_count:
            self._tell(stream, number, 0, None)
        else:
            take = stream.take = _Take(stream, number, self._loop, self._sink, self._finish)
            consumer.sink = take.pull
            take.pull.begin([consumer], messages, wait_ms)

    def _finish(self, take: _Take) -> None:
        stream = take.stream
        if stream.take is not take:
            return
        take.close()
        try:
            handed = take.pull.handed()
        except KernelError as error:
            assert stream.consumer is not None
            self._sink.consumer_ended(stream.consumer, error)
            return
        if handed is not None:
            self._deliver(stream, handed)
        self._tell(stream, take.number, take.pull.ready, None)

    @staticmethod
    def _tell(stream: GatewayStream, number: int, ready: int, error: KernelError | None) -> None:
        code, message = ("", "") if error is None else (error.code.wire, error.message)
        took = stream_wire.Took(stream.number, number, max(ready, 0), code, message)
        stream.gateway.tell(stream_wire.TOOK, took)
