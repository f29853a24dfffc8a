"""From socket reads to frames: the protocol header, then whole frames in order.

The hot frames - basic.publish with its content, basic.ack - are eaten in runs by
`ChannelPublisher.take` and `Consumers.take_acks`; every other one is handed to the connection
alone. Input that is not a whole frame yet is kept, and so is everything behind a frame that must be
awaited (`stop`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from adapters.amqp.channel.confirms import ACK_KEY
from adapters.amqp.channel.publishing import METHOD_START, PUBLISH_KEY
from adapters.amqp.codec.frames import (
    FRAME_END,
    FRAME_METHOD,
    HEAD,
    HEAD_BYTES,
    PROTOCOL_HEADER,
    PROTOCOL_HEADER_0_9,
    bad_end,
    check_head,
)
from adapters.amqp.errors import AmqpError, from_kernel
from adapters.amqp.limits import HANDSHAKE_FRAME_MAX, HELD_BYTES_PAUSE
from adapters.chunks import keep_chunk
from kernel.common.errors import KernelError, NotLoaded

if TYPE_CHECKING:
    from adapters.amqp.channel.consuming import Consumers
    from adapters.amqp.channel.open_channel import Channel
    from adapters.amqp.channel.publishing import ChannelPublisher
    from adapters.amqp.environment import AmqpHost

_PROTOCOL_HEADER_BYTES: Final = len(PROTOCOL_HEADER)
_METHOD_START_BYTES: Final = 11
HOLD: Final = "operation"
"""Our reason not to read."""


class FrameSink(Protocol):
    """Who takes frames: the connection."""

    def take_header(self, *, is_amqp: bool) -> None:
        """The first eight octets are, or are not, the header of AMQP 0-9-1."""

    def take_frame(self, kind: int, number: int, data: bytes, start: int, stop: int) -> None:
        """A sound frame; its payload is `data[start:stop]`.

        Raises AmqpError, KernelError, and NotLoaded if it must be taken again later.
        """

    def fail(self, number: int, error: AmqpError) -> None:
        """Taking a frame of a channel raised this."""

    def load(self, number: int, payload: bytes) -> None:
        """Taking a frame raised NotLoaded: load what it names, and `resume` the reader."""

    def begin_read(self, size: int) -> int:
        """Frames of one socket read of that size follow: how many bytes may be taken before
        `piece_taken` is called; 0: all of them.
        """

    def piece_taken(self, left: int) -> int:
        """A piece was taken: how many of those that are left may be, as above. May call
        `Reader.pause`.
        """

    def end_read(self) -> None:
        """All of them were taken."""


class HeldBack(Exception):
    """A frame is not taken yet: `Reader.pause` follows before the end of the read."""


class Reader:
    """The input of one connection."""

    def __init__(self, host: AmqpHost, sink: FrameSink, channels: dict[int, Channel]) -> None:
        self._host = host
        self._sink = sink
        self._channels = channels
        self.frame_max = HANDSHAKE_FRAME_MAX
        """Largest frame taken, envelope included."""
        self.publisher: ChannelPublisher | None = None
        self.consumers: Consumers | None = None
        self._has_header = False
        self._is_stopped = False
        """Whether frames are held back, for either of the following reasons."""
        self._is_awaiting = False
        self._is_paused = False
        self._is_ended = False
        self._held: list[bytes] = []
        self.held_bytes = 0
        """Bytes that have come and are not taken yet."""
        self._needed_bytes = 1
        """Bytes that must be held before it is worth looking at them again."""

    # --- Control ----------------------------------------------------------------------------

    def stop(self) -> None:
        """Take no frame behind the present one until `resume`."""
        self._is_stopped = self._is_awaiting = True

    def resume(self) -> None:
        """Go on with what was held."""
        self._is_awaiting = False
        self._go_on()

    def pause(self) -> None:
        """Take no frame behind the present one until `unpause`: a limit is exceeded."""
        self._is_stopped = self._is_paused = True

    def unpause(self) -> None:
        """Go on with what was held."""
        self._is_paused = False
        self._go_on()

    @property
    def is_paused(self) -> bool:
        """Whether `unpause` is waited for."""
        return self._is_paused

    def _go_on(self) -> None:
        self._is_stopped = self._is_awaiting or self._is_paused
        if self._is_stopped:
            return
        self._host.release_reading(HOLD)
        if self._held:
            self._parse(self._take_held())

    def end(self) -> None:
        """Take no frame any more, and throw away what comes."""
        self._is_ended = True
        self._held.clear()
        self.held_bytes = 0
        if self.publisher is not None:
            for channel in self._channels.values():
                self.publisher.drop(channel)
                if channel.transaction is not None:
                    channel.transaction.clear()

    @property
    def unfinished_bytes(self) -> int:
        """Bytes that have come of frames, messages and transactions that are not whole."""
        publisher = self.publisher
        if publisher is None:
            return self.held_bytes
        kept = publisher.charging.kept_bytes
        return self.held_bytes + publisher.assembled_bytes + publisher.transactions.bytes + kept

    # --- Input ------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """One socket read brought these bytes."""
        if self._is_ended:
            self._host.take_turn()
            return
        if self._held or self._is_stopped:
            keep_chunk(self._held, data)
            self.held_bytes += len(data)
            if self._is_stopped:
                if self.held_bytes > HELD_BYTES_PAUSE:
                    self._host.hold_reading(HOLD)
                return
            if self.held_bytes < self._needed_bytes:
                return
            data = self._take_held()
        self._parse(data)

    def _take_held(self) -> bytes:
        data = b"".join(self._held)
        self._held.clear()
        self.held_bytes = 0
        return data

    def _parse(self, data: bytes) -> None:
        """Take the whole frames of `data`, and hold the rest."""
        at = 0
        if not self._has_header:
            at = self._take_header(data)
            if not self._has_header:
                return
        piece = self._sink.begin_read(len(data) - at)
        at = self._take_pieces(data, at, piece) if piece else self._take_frames(data, at, len(data))
        if at < len(data) and not self._is_ended:
            rest = data[at:]
            self._held.append(rest)
            self.held_bytes = len(rest)
            self._needed_bytes = HEAD_BYTES + 1
            if len(rest) >= HEAD_BYTES:
                self._needed_bytes += int.from_bytes(rest[3:HEAD_BYTES], "big")
        self._sink.end_read()

    def _take_header(self, data: bytes) -> int:
        """The protocol header; returns the offset behind it once it is there and ours."""
        header = data[:_PROTOCOL_HEADER_BYTES]
        size = len(header)
        if header not in (PROTOCOL_HEADER[:size], PROTOCOL_HEADER_0_9[:size]):
            self._sink.take_header(is_amqp=False)
        elif size < _PROTOCOL_HEADER_BYTES:
            self._held.append(header)
            self.held_bytes = size
            self._needed_bytes = _PROTOCOL_HEADER_BYTES
        else:
            self._has_header = True
            self._sink.take_header(is_amqp=True)
        return size

    def _take_pieces(self, data: bytes, at: int, piece: int) -> int:
        """The same as `_take_frames`, a piece at a time, until that is enough for now."""
        end = len(data)
        while at < end and not self._is_ended and not self._is_stopped:
            stop = min(end, at + piece) if piece else end
            before, at = at, self._take_frames(data, at, stop)
            if at != before:
                piece = self._sink.piece_taken(end - at)
            elif stop == end:
                break
            else:
                # No frame is whole in it.
                piece *= 2
        return at

    def _take_frames(self, data: bytes, at: int, end: int) -> int:
        """Take the whole frames up to `end`; returns the offset behind the last one. A hot loop."""
        channels = self._channels
        while end - at > HEAD_BYTES and not self._is_ended and not self._is_stopped:
            publisher = self.publisher
            consumers = self.consumers
            if publisher is not None and consumers is not None and end - at > _METHOD_START_BYTES:
                before = at
                kind, _, _, key = METHOD_START.unpack_from(data, at)
                if kind == FRAME_METHOD:
                    if key == PUBLISH_KEY:
                        at = publisher.take(data, at, end, channels)
                    elif key == ACK_KEY:
                        at = consumers.take_acks(data, at, end, channels)
                    if at != before:
                        continue
                    # Something is unusual or wrong with it: the long way finds out what.
            kind, number, size = HEAD.unpack_from(data, at)
            stop = at + HEAD_BYTES + size
            try:
                check_head(kind, size, self.frame_max)
                if stop >= end:
                    break
                if data[stop] != FRAME_END:
                    raise bad_end(data[stop])
            except AmqpError as error:
                # Where the next frame begins is not known any more.
                self._sink.fail(0, error)
                self.end()
                break
            try:
                self._sink.take_frame(kind, number, data, at + HEAD_BYTES, stop)
            except AmqpError as error:
                self._sink.fail(number, error)
            except KernelError as error:
                self._sink.fail(number, from_kernel(error))
            except HeldBack:
                break
            except NotLoaded:
                self.stop()
                self._sink.load(number, data[at + HEAD_BYTES : stop])
                break
            at = stop + 1
        return at
