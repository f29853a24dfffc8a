"""From publish frames to the kernel: the hot half of a connection that sends.

`Publisher.take` eats as many whole messages (method, header, at most one body frame) as follow one
another in a chunk; anything else - a body in several frames, a message that straddles two reads, a
malformed frame, a name that is not loaded - goes the long way through `Assembly`, frame by frame,
and gives the same result.

What a message costs is kept low by remembering:

* per connection, what the arguments of a basic.publish, taken as bytes, lead to (`Target`): the
  rights, the exchange, the destinations. Forgotten whenever the topology changes, and every tick,
  so that a right withdrawn ends within a second.
* per adapter, what a property block, taken as bytes, means for storing (`Stamp`).

All messages of one read go to the kernel in one batch. Durability of what the publisher is told is
the kernel's: a number is confirmed when `published` says so (kernel.client).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from adapters.amqp import properties, spec
from adapters.amqp.errors import (
    ACCESS_REFUSED,
    FRAME_ERROR,
    NO_ROUTE,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    REPLY_NAMES,
    AmqpError,
)
from adapters.amqp.frames import (
    CLASS_BASIC,
    CONTENT_HEAD,
    CONTENT_HEAD_BYTES,
    CONTENT_START,
    ENVELOPE_BYTES,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    HEAD,
    encode_content,
)
from adapters.amqp.limits import (
    CHANNEL_ASSEMBLY_BYTES_MAX,
    PROPERTY_BLOCK_BYTES_MAX,
    PROPERTY_BLOCKS_MAX,
    PUBLISH_BYTES_PAUSE,
    PUBLISH_BYTES_RESUME,
    ROUTES_MAX,
)
from adapters.amqp.methods import encode_method
from adapters.amqp.names import PREDECLARED, kernel_key, resource
from adapters.amqp.stored import attributes_of, native_prefix
from adapters.amqp.topology import PUBLISH_ROUTER, PUBLISH_TOPIC, Caller, needs_attributes
from adapters.base import Origin
from kernel import message
from kernel.errors import NotLoaded
from kernel.message import Ext, Flag

if TYPE_CHECKING:
    from adapters.amqp.channel import Channel
    from adapters.amqp.environment import Environment, Host
    from kernel.client import Destinations, PublishBatch, PublishSink

METHOD_START: Final = struct.Struct(">BHII")
"""Head of a method frame and its class and method id."""
PUBLISH_KEY: Final = spec.BasicPublish.key
_PACK_HEADER: Final = message.HEADER.pack
_HEADER_BYTES: Final = message.HEADER_BYTES
_ORIGIN: Final = int(Origin.AMQP)
_VERSION: Final = message.VERSION
_MANDATORY: Final = 1
_IMMEDIATE: Final = 2
_LEAST: Final = 12 + 22
"""Octets of the shortest basic.publish start and header frame."""


class Assembly:
    """A message that is being received on a channel."""

    __slots__ = ("block", "body_bytes", "parts", "received", "target")

    def __init__(self, target: Target) -> None:
        self.target = target
        self.block: bytes | None = None
        self.body_bytes = 0
        self.received = 0
        self.parts: list[bytes] = []


class Segment:
    """Publishes of one channel that stand together in a batch and have consecutive numbers."""

    __slots__ = ("channel", "first", "last", "position")

    def __init__(self, channel: Channel, position: int, number: int) -> None:
        self.channel = channel
        self.position = position
        """Position of the first one in the batch."""
        self.first = number
        self.last = number


class Publisher:
    """The publishing side of one connection."""

    def __init__(
        self, environment: Environment, host: Host, caller: Caller, sink: PublishSink
    ) -> None:
        self._client = environment.client
        self._counters = environment.counters
        self._stamps = environment.stamps
        self._body_bytes_max = environment.settings.body_bytes_max
        self._host = host
        self._caller = caller
        self._sink = sink
        self._login = caller.rights.principal.name.encode()
        self._targets: dict[bytes, Target] = {}
        self._by_attributes: dict[str, bool] = {}
        self._topology_version = -1
        self._batch: PublishBatch | None = None
        self._segments: list[Segment] = []
        self._segment: Segment | None = None
        self._wall_ms = 0
        self._room = 0
        self._announced_bytes = 0
        self.batches_in_flight = 0
        self.bytes_in_flight = 0
        self.has_published = False

    def agreed(self, frame_max: int) -> None:
        """The frame size is settled."""
        self._room = frame_max - ENVELOPE_BYTES

    def begin_chunk(self) -> None:
        """A socket read is about to be parsed."""
        version = self._client.topology_version
        if version != self._topology_version:
            self._topology_version = version
            self.forget()
        self._wall_ms = self._host.wall_ms()

    def forget(self) -> None:
        """Look up every target anew."""
        self._targets.clear()
        self._by_attributes.clear()

    # --- The fast way -----------------------------------------------------------------------

    def take(self, data: bytes, at: int, end: int, channels: dict[int, Channel]) -> int:
        """Take the messages that begin at `at`; returns the offset after the last one taken.

        Takes none, and so returns `at`, if the first frame is not the beginning of a whole,
        sound message that this way can deal with. Never raises.
        """
        room = self._room
        targets = self._targets
        stamps = self._stamps.known
        number_known = -1
        channel: Channel | None = None
        while end - at >= _LEAST:
            kind, number, size, key = METHOD_START.unpack_from(data, at)
            if key != PUBLISH_KEY or kind != 1:
                break
            if number != number_known:
                channel = channels.get(number)
                number_known = number
            if channel is None or not channel.takes_publishes:
                break
            stop = at + 7 + size
            header_at = stop + 1
            if header_at + 21 >= end or data[stop] != FRAME_END:
                break
            kind, header_number, header_size, class_id, _, body_bytes = CONTENT_START.unpack_from(
                data, header_at
            )
            header_stop = header_at + 7 + header_size
            if (
                kind != FRAME_HEADER
                or header_number != number
                or class_id != CLASS_BASIC
                or header_size > room
                or header_stop >= end
                or data[header_stop] != FRAME_END
            ):
                break
            after = header_stop + 1
            body = b""
            if body_bytes:
                if after + 7 >= end:
                    break
                kind, body_number, body_size = HEAD.unpack_from(data, after)
                body_at = after + 7
                after = body_at + body_size
                if (
                    kind != FRAME_BODY
                    or body_number != number
                    or body_size != body_bytes
                    or body_size > room
                    or after >= end
                    or data[after] != FRAME_END
                ):
                    break
                body = data[body_at:after]
                after += 1
            target = targets.get(data[at + 13 : stop])
            if target is None:
                target = self._try_find(data[at + 13 : stop])
                if target is None:
                    break
            block = data[header_at + 19 : header_stop]
            stamp = stamps.get(block)
            if stamp is None or stamp.user_id is not None:
                stamp = self._try_stamp(block)
                if stamp is None:
                    break
            self._store(channel, target, stamp, block, body)
            at = after
        return at

    def _try_find(self, arguments: bytes) -> Target | None:
        """The target; None if finding it raises, which the long way will tell the client."""
        try:
            return self.find(arguments)
        except (AmqpError, NotLoaded):
            return None

    def _try_stamp(self, block: bytes) -> Stamp | None:
        """The stamp; None if the block is refused, which the long way will tell the client."""
        try:
            return self._stamp(block)
        except AmqpError:
            return None

    def _stamp(self, block: bytes) -> Stamp:
        stamp = self._stamps.known.get(block) or self._stamps.learn(block)
        if stamp.user_id is not None and stamp.user_id != self._login:
            raise AmqpError(
                PRECONDITION_FAILED,
                f"user_id property set to '{stamp.user_id.decode('utf-8', 'replace')}' but "
                f"authenticated user was '{self._login.decode()}'",
            )
        return stamp

    def _store(
        self, channel: Channel, target: Target, stamp: Stamp, block: bytes, body: bytes
    ) -> None:
        """One whole message: into the batch, or back to where it came from. Hot."""
        to = target.to
        if to is None and target.is_by_attributes:
            to = self._find_by_attributes(target, block)
        confirms = channel.confirms
        if to is None:
            self._unroutable(channel, target, block, body)
            return
        batch = self._batch
        if batch is None:
            batch = self._batch = self._client.batch(self._caller.session, self._sink)
        priority, flags, ttl_ms, delay_ms, key_hash, tag_hash, ext, _ = stamp
        prefix = target.prefix
        body_bytes = len(body)
        native_bytes = len(prefix) + len(block)
        high, low = batch.uid()
        header = _PACK_HEADER(
            _VERSION,
            _ORIGIN,
            priority,
            flags,
            body_bytes,
            native_bytes,
            len(ext),
            high,
            low,
            self._wall_ms,
            ttl_ms,
            delay_ms,
            key_hash,
            tag_hash,
            0,
        )
        if confirms is not None:
            number = confirms.published = confirms.published + 1
            segment = self._segment
            if segment is not None and segment.channel is channel:
                segment.last = number
            else:
                segment = self._segment = Segment(channel, batch.count, number)
                self._segments.append(segment)
        else:
            self._segment = None
        if ext:
            size = _HEADER_BYTES + native_bytes + body_bytes + len(ext)
            batch.add(to, (header, ext, prefix, block, body), size)
        else:
            batch.add(to, (header, prefix, block, body), _HEADER_BYTES + native_bytes + body_bytes)

    def _unroutable(self, channel: Channel, target: Target, block: bytes, body: bytes) -> None:
        self._counters.unroutable += 1
        if target.is_mandatory:
            self._counters.returned += 1
            returned = spec.BasicReturn(
                NO_ROUTE, REPLY_NAMES[NO_ROUTE], target.exchange, target.key
            )
            out = self._host.out
            out.append(encode_method(channel.number, returned))
            out += encode_content(channel.number, block, body, self._room + ENVELOPE_BYTES)
            self._host.write_soon()
        confirms = channel.confirms
        if confirms is not None:
            confirms.published += 1
            confirms.done(confirms.published, confirms.published)
            channel.has_news()
            # The numbers of the batch are no longer consecutive.
            self._segment = None

    # --- The long way -----------------------------------------------------------------------

    def begin(self, channel: Channel, arguments: bytes) -> None:
        """A basic.publish frame: content must follow. Raises AmqpError and NotLoaded as `find`."""
        channel.assembly = Assembly(self.find(arguments))

    def header(self, channel: Channel, payload: bytes) -> None:
        """A header frame. Raises AmqpError."""
        assembly = channel.assembly
        assert assembly is not None
        if len(payload) < CONTENT_HEAD_BYTES:
            raise AmqpError(FRAME_ERROR, "a header frame shorter than its fixed part")
        class_id, _, body_bytes = CONTENT_HEAD.unpack_from(payload)
        if class_id != CLASS_BASIC:
            raise AmqpError(FRAME_ERROR, f"a header frame of class {class_id} behind basic.publish")
        if body_bytes > self._body_bytes_max:
            raise AmqpError(
                PRECONDITION_FAILED,
                f"message size {body_bytes} is larger than configured max size "
                f"{self._body_bytes_max}",
            )
        if self._announced_bytes + body_bytes > CHANNEL_ASSEMBLY_BYTES_MAX:
            raise AmqpError(
                PRECONDITION_FAILED,
                "too many large messages begun on other channels of the connection",
            )
        block = payload[CONTENT_HEAD_BYTES:]
        self._stamp(block)
        assembly.block = block
        assembly.body_bytes = body_bytes
        self._announced_bytes += body_bytes
        if not body_bytes:
            self._complete(channel, assembly)

    def body(self, channel: Channel, payload: bytes) -> None:
        """A body frame. Raises AmqpError."""
        assembly = channel.assembly
        assert assembly is not None
        assembly.received += len(payload)
        if assembly.received > assembly.body_bytes:
            raise AmqpError(FRAME_ERROR, "a body longer than its header frame said")
        assembly.parts.append(payload)
        if assembly.received == assembly.body_bytes:
            self._complete(channel, assembly)

    def _complete(self, channel: Channel, assembly: Assembly) -> None:
        block = assembly.block
        assert block is not None
        self.drop(channel)
        body = b"".join(assembly.parts)
        self._store(channel, assembly.target, self._stamp(block), block, body)

    def drop(self, channel: Channel) -> None:
        """Forget a message that is being received, because its channel is closing or it is whole."""
        if channel.assembly is not None:
            self._announced_bytes -= channel.assembly.body_bytes
            channel.assembly = None

    # --- Batches ----------------------------------------------------------------------------

    def submit(self) -> None:
        """Hand over what the read brought."""
        batch = self._batch
        if batch is None:
            return
        batch.tag = self._segments
        self._batch = None
        self._segments = []
        self._segment = None
        self.has_published = True
        self._counters.published += batch.count
        self.batches_in_flight += 1
        self.bytes_in_flight += batch.size_bytes
        if self.bytes_in_flight > PUBLISH_BYTES_PAUSE:
            self._host.hold_reading("publishing")
        self._client.submit(batch)

    def published(self, batch: PublishBatch) -> None:
        """The kernel has answered a batch: tell its channels."""
        self.batches_in_flight -= 1
        self.bytes_in_flight -= batch.size_bytes
        if self.bytes_in_flight <= PUBLISH_BYTES_RESUME:
            self._host.release_reading("publishing")
        failures = batch.failures
        counters = self._counters
        failed = len(failures) if failures else 0
        counters.confirmed += batch.count - failed
        counters.nacked += failed
        segments = batch.tag
        assert isinstance(segments, list)
        for segment in segments:
            channel = segment.channel
            confirms = channel.confirms
            if failures:
                offset = segment.first - segment.position
                for number in range(segment.first, segment.last + 1):
                    if number - offset in failures:
                        confirms.failed(number)
                    else:
                        confirms.done(number, number)
            else:
                confirms.done(segment.first, segment.last)
            channel.has_news()
