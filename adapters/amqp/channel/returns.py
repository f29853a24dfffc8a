"""Messages that had nowhere to go: counted, and given back if that is wanted (basic.return).

Mostly that is known when the message comes. What is published to `amq.topic` at a gateway without a
store may have to ask the leader of its name (`kernel.api.client.Destinations.asks_leader`): a
mandatory one is kept beside its batch until the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.amqp.codec import spec
from adapters.amqp.codec.frames import encode_content
from adapters.amqp.codec.methods import encode_method
from adapters.amqp.errors import NO_ROUTE, REPLY_NAMES
from adapters.amqp.lifecycle import ChannelState

if TYPE_CHECKING:
    from adapters.amqp.caller import Caller
    from adapters.amqp.channel.open_channel import Channel
    from adapters.amqp.channel.targets import Target
    from adapters.amqp.environment import AmqpHost, Environment

Kept = tuple["Channel", "Target", bytes, bytes]
"""Channel, target, property block and body of a message."""


class Returns:
    """Returns messages of one connection that had nowhere to go."""

    def __init__(
        self, environment: Environment, host: AmqpHost, caller: Caller, frame_max: int
    ) -> None:
        meter = environment.meter
        self._meter = None if meter is None else meter.unroutable_counter(caller.tenant)
        self._counters = environment.counters
        self._host = host
        self._frame_max = frame_max

    def unheard(self, size: int) -> None:
        """A message of so many bytes, as stores count them, that turned out to be for nobody, and
        that nobody wants back.
        """
        self._counters.unroutable += 1
        if self._meter is not None:
            self._meter.count_one(size)

    def unroutable(self, channel: Channel, target: Target, block: bytes, body: bytes) -> None:
        """A message without a destination: back to the client if it wants it."""
        self._counters.unroutable += 1
        if self._meter is not None:
            self._meter.count_one(len(block) + len(body))
        if not target.is_mandatory or channel.state is not ChannelState.OPEN:
            return
        self._counters.returned += 1
        method = spec.BasicReturn(NO_ROUTE, REPLY_NAMES[NO_ROUTE], target.exchange, target.key)
        out = self._host.out
        out.append(encode_method(channel.number, method))
        out += encode_content(channel.number, block, body, self._frame_max)
        self._host.write_soon()
