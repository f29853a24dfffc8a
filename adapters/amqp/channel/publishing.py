"""From publish frames to the kernel: the hot half of a connection that sends.

`ChannelPublisher.take` eats as many whole messages (method, header, at most one body frame) as
follow one another in a chunk; anything else - a body in several frames, a message that straddles
two reads, a malformed frame, a name that is not loaded - goes the long way through `Assembly`,
frame by frame, and gives the same result.

What a message costs is kept low by remembering: `targets` what the arguments of a publish lead to,
`stamps` what a property block means. All messages of one read go to the kernel in one batch.

Durability of what the publisher is told is the kernel's: a number is confirmed when `published`
says so (kernel.api.client), and a message that had nowhere to go is returned before its confirm.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Final, cast

from adapters.amqp.channel.assembly import Assembly
from adapters.amqp.channel.confirms import Segment
from adapters.amqp.channel.direct_reply import block_of
from adapters.amqp.channel.returns import Returns
from adapters.amqp.channel.targets import Head, Target, Targets, may_be_for_nobody
from adapters.amqp.channel.transaction import BufferedMessage, TransactionRoom
from adapters.amqp.codec import spec
from adapters.amqp.codec.frames import (
    CLASS_BASIC,
    CONTENT_HEAD,
    CONTENT_HEAD_BYTES,
    CONTENT_START,
    ENVELOPE_BYTES,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    HEAD,
)
from adapters.amqp.codec.methods import decode_method
from adapters.amqp.errors import (
    FRAME_ERROR,
    PRECONDITION_FAILED,
    AmqpError,
)
from adapters.amqp.limits import (
    CHANNEL_ASSEMBLY_BYTES_MAX,
    HEADS_MAX,
    PUBLISH_BYTES_PAUSE,
    PUBLISH_BYTES_RESUME,
)
from adapters.amqp.messages.stamps import HEADER, Stamp
from adapters.chunks import keep_chunk
from adapters.limiting import Charging
from kernel.api.message import HEADER_BYTES
from kernel.common.errors import KernelError, NotLoaded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adapters.amqp.caller import Caller
    from adapters.amqp.channel.open_channel import Channel
    from adapters.amqp.channel.returns import Kept
    from adapters.amqp.environment import AmqpHost, Environment
    from kernel.api.client import Destinations, PublishBatch, PublishSink

Routed = tuple[BufferedMessage, "Destinations | None"]
"""A message of a transaction, and where it goes."""

METHOD_START: Final = struct.Struct(">BHII")
"""Head of a method frame and its class and method id."""
PUBLISH_KEY: Final = spec.BasicPublish.key
_UNPACK_METHOD: Final = METHOD_START.unpack_from
_UNPACK_CONTENT: Final = CONTENT_START.unpack_from
_UNPACK_HEAD: Final = HEAD.unpack_from
_UNPACK_SIZE: Final = struct.Struct(">I").unpack_from
_PACK_HEADER: Final = HEADER.pack
_LEAST: Final = 12 + 22
"""Octets of the shortest basic.publish frame's start and of the shortest header frame."""


class ChannelPublisher:
    """The publishing side of one connection."""

    def __init__(
        self,
        environment: Environment,
        host: AmqpHost,
        caller: Caller,
        sink: PublishSink,
        frame_max: int,
    ) -> None:
        self._client = environment.client
        self.charging = Charging(environment.limiter, caller.account)
        self._counters = environment.counters
        self._stamps = environment.stamps
        self._account_bytes_max: int | None = None
        self._body_bytes_most = environment.settings.body_bytes_max
        self._body_bytes_max = self._body_bytes_most
        self._host = host
        self._figures = host.figures
        self._session = caller.session
        self._sink = sink
        self._user_ids = caller.user_ids
        self._returns = Returns(environment, host, caller, frame_max)
        self._room = frame_max - ENVELOPE_BYTES
        self.targets = Targets(environment.client, caller)
        self._batch: PublishBatch | None = None
        self._segments: list[Segment] = []
        self._segment: Segment | None = None
        self._unsure: dict[int, Kept] = {}
        """By position in the batch: what perhaps has to be returned."""
        self._wall_ms = 0
        self._announced_bytes = 0
        self.assembled_bytes = 0
        """Of bodies that are not whole, on all channels."""
        self.transactions = TransactionRoom()
        self.batches_in_flight = 0
        self.bytes_in_flight = 0
        self.has_published = False

    def begin_chunk(self) -> None:
        """A socket read is about to be parsed."""
        self.targets.refresh()
        self._wall_ms = self._host.wall_ms()
        if self.charging.account.message_bytes_max != self._account_bytes_max:
            self._limit_messages(self.charging.account.message_bytes_max)

    def _limit_messages(self, most: int | None) -> None:
        """The largest message is another one now; what is known of heads was by the former one."""
        self._account_bytes_max = most
        self._body_bytes_max = min(self._body_bytes_most, most or self._body_bytes_most)
        self.targets.heads.clear()

    # --- The fast way -----------------------------------------------------------------------

    def take(self, data: bytes, at: int, end: int, channels: dict[int, Channel]) -> int:
        """Take the messages that begin at `at`; returns the offset after the last one taken.

        Takes none, and so returns `at`, if the first frame is not the beginning of a whole,
        sound message that this way can deal with. Never raises. A hot loop.
        """
        room = self._room
        body_room = min(room, self._body_bytes_max)
        targets = self.targets.known
        stamps = self._stamps.known
        number_known = -1
        channel: Channel | None = None
        # All octets of a message before its body, as many as the last one had. A publisher mostly
        # sends the same ones again, or different ones in turn.
        heads = self.targets.heads
        head_bytes = 0
        known: Head | None = None
        stamp: Stamp | None = None
        while end - at >= _LEAST:
            if heads:
                # What is found is a whole head, however it was cut.
                body_at = at + head_bytes
                known = heads.get(data[at:body_at])
                if known is None:
                    # Not as long as the last one. What stands behind the chunk is no known head.
                    body_at = at + 15 + _UNPACK_SIZE(data, at + 3)[0]
                    if body_at < end - 11:
                        body_at += 8 + _UNPACK_SIZE(data, body_at - 4)[0]
                        known = heads.get(data[at:body_at])
                if known is not None:
                    number, to, stamp, native, body_bytes = known
                    after = body_at + body_bytes
                    if after >= end or data[after] != FRAME_END:
                        break
                    if number != number_known:
                        channel = channels.get(number)
                        number_known = number
                        if channel is not None and not channel.takes_at_once():
                            break
                    if channel is None:
                        break
                    self._store(channel, to, native, stamp, data[body_at:after])
                    head_bytes = body_at - at
                    at = after + 1
                    continue
            kind, number, size, key = _UNPACK_METHOD(data, at)
            if key != PUBLISH_KEY or kind != 1:
                break
            if number != number_known:
                channel = channels.get(number)
                number_known = number
                if channel is not None and not channel.takes_at_once():
                    break
            if channel is None:
                break
            stop = at + 7 + size
            header_at = stop + 1
            if header_at + 21 >= end or data[stop] != FRAME_END:
                break
            kind, header_number, header_size, class_id, _, announced = _UNPACK_CONTENT(
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
            body_at = after = header_stop + 1
            if announced:
                if after + 7 >= end:
                    break
                kind, body_number, body_size = _UNPACK_HEAD(data, after)
                body_at = after + 7
                after = body_at + body_size
                if (
                    kind != FRAME_BODY
                    or body_number != number
                    or body_size != announced
                    or body_size > body_room
                    or after >= end
                    or data[after] != FRAME_END
                ):
                    break
                body = data[body_at:after]
                after += 1
            else:
                body = b""
            arguments = data[at + 13 : stop]
            block = data[header_at + 19 : header_stop]
            target = targets.get(arguments)
            stamp = stamps.get(block)
            # What depends on who sends it or on its headers, and what may have to be returned, is
            # looked at each time.
            if (
                target is None
                or stamp is None
                or stamp.of_sender is not None
                or target.is_particular
            ):
                if not self._take_unknown(channel, arguments, block, body):
                    break
            elif target.to is None:
                self._unroutable(channel, target, block, body)
            else:
                native = target.prefix + block
                self._store(channel, target.to, native, stamp, body)
                if announced:
                    if len(heads) >= HEADS_MAX:
                        heads.clear()
                    heads[data[at:body_at]] = (number, target.to, stamp, native, announced)
            at = after
        return at

    def _take_unknown(self, channel: Channel, arguments: bytes, block: bytes, body: bytes) -> bool:
        """A whole message that nothing is remembered about; False if the long way must take it,
        which will find the same error and tell the client.
        """
        try:
            target = self.targets.find(arguments)
            stamp = self._stamps.of(block, self._user_ids)
            if stamp.of_sender is not None:
                block = block_of(channel, stamp.of_sender, block)
            to = self._destinations(target, stamp, block)
        except (AmqpError, KernelError, NotLoaded):
            return False
        if to is None:
            self._unroutable(channel, target, block, body)
        else:
            self._store_particular(channel, target, to, block, stamp, body)
        return True

    def _destinations(self, target: Target, stamp: Stamp, block: bytes) -> Destinations | None:
        """Where a message goes that has to be looked at by itself; None: nowhere. Raises AmqpError
        403, 404, 540, and NotLoaded.
        """
        to = target.to
        if target.is_by_attributes:
            to = self.targets.destinations(target, block)
        if stamp.of_sender is not None and stamp.of_sender.copies:
            to = self.targets.with_copies(target, stamp.of_sender.copies, to, block)
        return to

    def _store(
        self,
        channel: Channel,
        to: Destinations,
        native: bytes,
        stamp: Stamp,
        body: bytes,
    ) -> None:
        """One whole message: into the batch. Hot."""
        batch = self._batch
        if batch is None:
            batch = self._batch = self._client.batch(self._session, self._sink)
        start, end, ext, _ = stamp
        body_bytes = len(body)
        native_bytes = len(native)
        high, low = batch.uid()
        header = _PACK_HEADER(
            start, body_bytes, native_bytes, len(ext), high, low, self._wall_ms, end
        )
        confirms = channel.confirms
        if confirms is None:
            self._segment = None
        else:
            number = confirms.published = confirms.published + 1
            segment = self._segment
            if segment is not None and segment.channel is channel:
                segment.last = number
            else:
                segment = self._segment = Segment(channel, confirms, batch.count, number)
                self._segments.append(segment)
        size = HEADER_BYTES + native_bytes + body_bytes
        if ext:
            batch.add(to, (header, ext, native, body), size + len(ext), stamp)
        else:
            batch.add(to, (header, native, body), size, stamp)

    def _store_particular(
        self,
        channel: Channel,
        target: Target,
        to: Destinations,
        block: bytes,
        stamp: Stamp,
        body: bytes,
    ) -> None:
        """One whole message that perhaps has to be returned."""
        self._store(channel, to, target.prefix + block, stamp, body)
        if target.is_mandatory and may_be_for_nobody(to) and self._batch is not None:
            self._unsure[self._batch.count - 1] = (channel, target, block, body)

    def _unroutable(self, channel: Channel, target: Target, block: bytes, body: bytes) -> None:
        """A message without a destination: back to the client if it wants it, and confirmed."""
        self.charging.for_nobody(len(block) + len(body))
        self._returns.unroutable(channel, target, block, body)
        confirms = channel.confirms
        if confirms is not None:
            confirms.published += 1
            confirms.done(confirms.published, confirms.published)
            channel.has_news()
            # The numbers of the batch are no longer consecutive.
            self._segment = None

    # --- The long way -----------------------------------------------------------------------

    def begin(self, channel: Channel, arguments: bytes) -> None:
        """A basic.publish frame: content must follow.

        Raises AmqpError, and NotLoaded if names must be loaded before it can be tried again.
        """
        channel.assembly = Assembly(self.targets.find(arguments), arguments)

    def names_in(self, channel: Channel, payload: bytes) -> tuple[str, str]:
        """Exchange and routing key of the publish that raised NotLoaded: of its method, which is
        `payload`, or of the message that is being received.
        """
        missing, self.targets.missing = self.targets.missing, None
        if missing is not None:
            return missing
        if channel.assembly is not None:
            return channel.assembly.target.exchange, channel.assembly.target.key
        method = decode_method(payload, 0, len(payload))
        assert isinstance(method, spec.BasicPublish)
        return method.exchange, method.routing_key

    def header(self, channel: Channel, assembly: Assembly, payload: bytes) -> None:
        """A header frame. Raises as `begin` does; NotLoaded before anything has changed."""
        if len(payload) < CONTENT_HEAD_BYTES:
            raise AmqpError(FRAME_ERROR, "a header frame shorter than its fixed part")
        class_id, _, body_bytes = CONTENT_HEAD.unpack_from(payload)
        if class_id != CLASS_BASIC:
            raise AmqpError(FRAME_ERROR, f"a header frame of class {class_id} behind basic.publish")
        if body_bytes > self._body_bytes_max:
            if body_bytes <= self._body_bytes_most:
                self.charging.account.refused(self.charging.account.too_large)
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
        stamp = self._stamps.of(block, self._user_ids)
        if stamp.of_sender is not None:
            block = block_of(channel, stamp.of_sender, block)
        target = assembly.target
        to = self._destinations(target, stamp, block)
        assembly.block = block
        assembly.stamp = stamp
        assembly.to = to
        assembly.body_bytes = body_bytes
        self._announced_bytes += body_bytes
        if not body_bytes:
            self._complete(channel, assembly)

    def body(self, channel: Channel, assembly: Assembly, payload: bytes) -> None:
        """A body frame. Raises AmqpError."""
        assembly.received += len(payload)
        if assembly.received > assembly.body_bytes:
            raise AmqpError(FRAME_ERROR, "a body longer than its header frame said")
        self.assembled_bytes += len(payload)
        keep_chunk(assembly.parts, payload)
        if assembly.received == assembly.body_bytes:
            self._complete(channel, assembly)

    def _complete(self, channel: Channel, assembly: Assembly) -> None:
        assert assembly.stamp is not None
        self.drop(channel)
        body = b"".join(assembly.parts)
        block = assembly.block
        if channel.transaction is not None:
            message = BufferedMessage(
                assembly.target, assembly.arguments, assembly.stamp, block, body
            )
            channel.transaction.publish(message)
        elif assembly.to is None:
            self._unroutable(channel, assembly.target, block, body)
        else:
            to, stamp = assembly.to, assembly.stamp
            self._store_particular(channel, assembly.target, to, block, stamp, body)

    def drop(self, channel: Channel) -> None:
        """The message being received on a channel is whole, or its channel is closing."""
        if channel.assembly is not None:
            self._announced_bytes -= channel.assembly.body_bytes
            self.assembled_bytes -= channel.assembly.received
            channel.assembly = None

    # --- Transactions -----------------------------------------------------------------------

    def route(self, message: BufferedMessage) -> Destinations | None:
        """Where a message goes that has waited for its commit; None: nowhere. Raises AmqpError 403,
        404, and NotLoaded.
        """
        target = self.targets.find(message.arguments)
        return self._destinations(target, message.stamp, message.block)

    def batch_of(self, channel: Channel, routed: Sequence[Routed]) -> PublishBatch | None:
        """The messages of a transaction that have somewhere to go; None: there are none."""
        self.submit()
        self.has_published = self.has_published or bool(routed)
        for message, to in routed:
            if to is not None:
                native = message.target.prefix + message.block
                self._store(channel, to, native, message.stamp, message.body)
        batch, self._batch = self._batch, None
        return batch

    async def charge_commit(self, batch: PublishBatch) -> None:
        """Charge the messages of a transaction, once so many may be published. Raises AmqpError."""
        charging = self.charging
        while delay_ms := charging.far_over_ms(batch):
            self._host.pause(delay_ms)
            await self._host.rest(delay_ms)
        if not charging.takes(batch):
            raise AmqpError(PRECONDITION_FAILED, "its client has left, above a limit")

    def committed(
        self, channel: Channel, routed: Sequence[Routed], batch: PublishBatch | None
    ) -> None:
        """They are stored: return what had nowhere to go."""
        if batch is not None:
            self._counters.published += batch.count
            self._counters.confirmed += batch.count
        unlisted = set() if batch is None else set(batch.unlisted)
        stored = itertools.count()
        for message, to in routed:
            if to is None or (next(stored) in unlisted and may_be_for_nobody(to)):
                self._returns.unroutable(channel, message.target, message.block, message.body)

    # --- Batches ----------------------------------------------------------------------------

    def submit(self) -> None:
        """Hand over what the read brought."""
        batch = self._batch
        if batch is None:
            return
        segments = self._segments
        batch.tag = (segments, self._unsure, self._figures.now_ms())
        if self._unsure:
            self._unsure = {}
        self._batch = None
        self._segments = []
        self._segment = None
        if self.charging.account.is_limited and not self._is_taken(batch, segments):
            return
        self._hand_over(batch)

    def submit_kept(self) -> None:
        """Hand over what was kept because of a limit, as far as that allows it now."""
        while (batch := self.charging.next_kept()) is not None:
            self._hand_over(batch)

    def _hand_over(self, batch: PublishBatch) -> None:
        self.has_published = True
        self._counters.published += batch.count
        self.batches_in_flight += 1
        self.bytes_in_flight += batch.size_bytes
        if self.bytes_in_flight > PUBLISH_BYTES_PAUSE:
            self._host.hold_reading("publishing")
        self._client.submit(batch)

    def _is_taken(self, batch: PublishBatch, segments: Sequence[Segment]) -> bool:
        """Charge a batch; else it is kept, or nacked, because of a limit. The latter is for who has
        said so: its queues refuse what they have no room for, and each message waits for its
        confirm. Others are held, so that nothing is lost unheard.
        """
        numbered = sum(each.last - each.first + 1 for each in segments)
        if not batch.refuses_when_full or numbered != batch.count:
            return self.charging.takes(batch)
        if self.charging.refusal(batch) is None:
            return True
        self._counters.published += batch.count
        self._counters.nacked += batch.count
        for segment in segments:
            segment.answered(range(batch.count))
        return False

    def published(self, batch: PublishBatch) -> None:
        """The kernel has answered a batch: tell its channels."""
        self.batches_in_flight -= 1
        self.bytes_in_flight -= batch.size_bytes
        if self.bytes_in_flight <= PUBLISH_BYTES_RESUME:
            self._host.release_reading("publishing")
        failures = batch.failures
        failed = len(failures) if failures else 0
        self._counters.confirmed += batch.count - failed
        self._counters.nacked += failed
        segments, unsure, began_ms = cast("tuple[list[Segment], dict[int, Kept], int]", batch.tag)
        if failed < batch.count:
            self._figures.stored(began_ms)
        for position, size in batch.unheard.items():
            if failures and position in failures:
                continue
            if position in unsure:
                self._returns.unroutable(*unsure[position])
            else:
                self._returns.unheard(size)
        for segment in segments:
            segment.answered(failures)
