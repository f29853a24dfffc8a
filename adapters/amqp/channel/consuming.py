"""From the kernel to deliver frames, and back to settled leases: the receiving half, hot.

A *link* is one AMQP consumer: a consumer tag on a channel, and behind it the kernel's consumer.

Credit. A link's kernel consumer may be handed as many messages as its credit says.
`ChannelLink.room` is the credit it should have now:

    prefetch left of the link, and of the channel where qos was global       (none for no-ack)
    but not more than fits DELIVERY_BYTES_WINDOW, by the size of its last messages
    and none at all while the peer does not read

`Consumers.replenish` grants the difference, never from inside a delivery: the kernel may deliver
from inside `grant`, and a long queue would become a deep recursion. A link that has more than half
of its limit left (`ChannelLink.low`) is not looked at: with very many queues that is nearly every
one.

Settling. Acks of a chunk are collected per kernel consumer and settled in one call. An ack needs no
answer; it is on disk within 5 ms (kernel.api.client) and may be forgotten by a crash, when the
message comes again, marked redelivered.
"""

from __future__ import annotations

import struct
from itertools import repeat
from typing import TYPE_CHECKING, Final, cast

from adapters.amqp.channel.confirms import ACK_FRAME, ACK_KEY, ACK_SIZE
from adapters.amqp.channel.open_channel import ChannelLink
from adapters.amqp.channel.patience import Patiences
from adapters.amqp.channel.shape import NO_HEAD, SHAPELESS, ChannelShape
from adapters.amqp.codec.frames import (
    CLASS_BASIC,
    ENVELOPE_BYTES,
    FRAME_END,
    HEAD,
    encode_content,
)
from adapters.amqp.codec.methods import encode_method
from adapters.amqp.codec.spec import BasicCancel
from adapters.amqp.messages.stored import ROUTE_LENGTH_BYTES
from adapters.amqp.messages.translation import view
from adapters.amqp.origin import ORIGIN_BYTE
from adapters.limiting import Delivering
from kernel.api.client import Settlement
from kernel.api.message import HEADER_BYTES, LENGTHS, LENGTHS_AT, Flag
from kernel.api.model import Reason
from kernel.common.errors import Code, KernelError
from metering.counters import measure_slots, units_4k

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from adapters.amqp.caller import Caller
    from adapters.amqp.channel.open_channel import Channel
    from adapters.amqp.environment import AmqpHost, Environment
    from kernel.api.client import Consumer, Deliveries
    from kernel.common.ids import TopicId

_DELIVER_KEY: Final = CLASS_BASIC << 16 | 60
_METHOD_START: Final = struct.Struct(">BHII").pack
"""Head of a method frame, and its class and method id."""
_PACK_TAG: Final = struct.Struct(">Q").pack
_REDELIVERED: Final = (b"\0", b"\1")
_MIDDLE: Final = struct.Struct(">BBHIIQ").pack
"""Frame end, then a header frame up to its property block (class and weight as one word)."""
_BODY_START: Final = struct.Struct(">BBHI").pack
"""Frame end, then the head of a body frame."""
_CLASS_AND_WEIGHT: Final = CLASS_BASIC << 16
_UNPACK_LENGTHS: Final = LENGTHS.unpack_from
_DELIVER_FIXED: Final = 4 + 8 + 1
"""Class and method id, delivery tag and redelivered bit of a deliver method."""
_GET_OK: Final = struct.Struct(">BHIIQB")
_GET_OK_KEY: Final = CLASS_BASIC << 16 | 71
_END: Final = b"\xce"
_ACK_BYTES: Final = ACK_FRAME.size
_ORIGIN: Final = ORIGIN_BYTE
_DEAD_LETTER: Final = int(Flag.DEAD_LETTER)


_HEAD_BYTES: Final = LENGTHS_AT + LENGTHS.size
_MANY: Final = 8
"""Deliveries at once from which columns are faster than a loop."""


class Consumers:
    """The receiving side of one connection. `kernel.api.client.ConsumerSink` and `SettleSink`."""

    def __init__(
        self, environment: Environment, host: AmqpHost, caller: Caller, frame_max: int
    ) -> None:
        self._environment = environment
        self._limits = Delivering(environment.limiter, caller.account)
        self._limited: dict[ChannelLink, None] = {}
        """Links that get nothing until less is owed."""
        self._client = environment.client
        self._counters = environment.counters
        self._host = host
        self._room = frame_max - ENVELOPE_BYTES
        self._acks: dict[Consumer, list[int]] = {}
        self._thirsty: dict[ChannelLink, None] = {}
        """Links whose credit may have to change, at the end of this turn."""
        self._is_writing_paused = False
        self.releases_in_flight = 0
        self.patiences = Patiences()
        self._ended: list[ChannelLink] = []
        """Links that the kernel has ended and the client has not heard of."""

    # --- Deliveries -------------------------------------------------------------------------

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        """Messages for a link. A hot loop: about 1 us a message."""
        link: ChannelLink = consumer.tag  # type: ignore[assignment]  # `attach` was told so
        offsets = deliveries.offsets
        slots = deliveries.slots
        if link.consumer is None:
            # It was cancelled in this very turn: the client knows that no more will come.
            self._client.settle(consumer, Settlement.RETURN, offsets)
            return
        channel = link.channel
        count = len(offsets)
        link.credit -= count
        if channel.limit is not None and not link.no_ack:
            count = self._within_channel_limit(link, consumer, offsets)
            if not count:
                return
            offsets, slots = offsets[:count], slots[:count]
        attempts = deliveries.attempts
        tag = first = channel.next_tag
        channel.next_tag = tag + count
        out = self._host.out
        shape, alike = link.shape, True
        for slot in slots:
            if (
                slot.startswith(shape.head)
                and slot.startswith(shape.native, shape.native_at)
                and (attempts is None or attempts[tag - first] == 1)
            ):
                out += (shape.before, _PACK_TAG(tag), shape.between, slot[shape.body_at :], _END)
            else:
                attempt = 1 if attempts is None else attempts[tag - first]
                shape = link.shape = self._deliver_odd(link, slot, attempt, tag)
                alike = count == 1
            tag += 1
        if alike:  # of one length too, which stands in what they have in common
            size = len(slots[0]) - HEADER_BYTES
            units = units_4k(size) * count
            size *= count
        else:
            size, units = measure_slots(slots)
        if not link.no_ack:
            link.unacked += count
            pairs = zip(repeat(consumer), offsets)
            if count < _MANY:
                for tag, pair in enumerate(pairs, first):
                    channel.unacked[tag] = pair
            else:
                channel.unacked.update(zip(range(first, tag), pairs, strict=False))
        # A window of bytes: how many messages fit is another number once their size has doubled or
        # halved. Granted at the end of the turn: from here the kernel would deliver again, deeper.
        estimate = size // count + HEADER_BYTES
        known = link.size_estimate
        link.size_estimate = estimate
        if link.credit <= link.low or not known <= 2 * estimate <= 4 * known:
            self._thirsty[link] = None
        self._counters.delivered += count
        if link.counter is not None:
            link.counter.count(count, size, units)
        if self._limits.account.limits_delivery:
            self._limits.delivered(count, size)
            self._limits.of_topic(link.topic_id, count, size)
            self._thirsty[link] = None
        self._host.write_soon()

    def got(self, topic: TopicId, slot_bytes: int) -> Delivering | None:
        """A message is the answer to basic.get: what the next one waits for."""
        limits = self._limits
        if not limits.account.limits_delivery:
            return None
        limits.delivered(1, slot_bytes - HEADER_BYTES)
        limits.of_topic(topic, 1, slot_bytes - HEADER_BYTES)
        return limits

    def _deliver_odd(self, link: ChannelLink, slot: bytes, attempt: int, tag: int) -> ChannelShape:
        """A message unlike the last one of its link; the shape of those that are like it."""
        if slot[1] == _ORIGIN and attempt == 1 and not slot[3] & _DEAD_LETTER:
            body_bytes, native_bytes, ext_bytes = _UNPACK_LENGTHS(slot, LENGTHS_AT)
            head = slot[:_HEAD_BYTES]
            native_at = HEADER_BYTES + ext_bytes
            body_at = native_at + native_bytes
            native = slot[native_at:body_at]
            block_at = ROUTE_LENGTH_BYTES + (native[0] << 8 | native[1])
            route, block = native[ROUTE_LENGTH_BYTES:block_at], native[block_at:]
            body = slot[body_at:]
        else:
            route, block, body = view(
                slot,
                link.queue,
                attempt,
                self._environment.origins,
                tells_attempt=link.tells_attempt,
            )
            head, native, native_at, body_at, body_bytes = NO_HEAD, b"", 0, 0, len(body)
        number = link.channel.number
        method_bytes = _DELIVER_FIXED + len(link.tag_bytes) + len(route)
        before = _METHOD_START(1, number, method_bytes, _DELIVER_KEY) + link.tag_bytes
        header = _MIDDLE(FRAME_END, 2, number, 12 + len(block), _CLASS_AND_WEIGHT, body_bytes)
        out = self._host.out
        if 0 < body_bytes <= self._room:
            start = _BODY_START(FRAME_END, 3, number, body_bytes)
            between = b"".join((_REDELIVERED[attempt > 1], route, header, block, start))
            out += (before, _PACK_TAG(tag), between, body, _END)
            return ChannelShape(head, native, native_at, body_at, before, between)
        out += (before, _PACK_TAG(tag), _REDELIVERED[attempt > 1], route, header, block, _END)
        self._append_body(out, number, body)
        return SHAPELESS

    def _append_body(self, out: list[bytes], number: int, body: bytes) -> None:
        """Body frames of a message that has none, or several."""
        room = self._room
        for at in range(0, len(body), room):
            piece = body[at : at + room]
            out += (HEAD.pack(3, number, len(piece)), piece, _END)

    def _within_channel_limit(
        self, link: ChannelLink, consumer: Consumer, offsets: Sequence[int]
    ) -> int:
        """How many of the messages the channel may still have; gives the others back.

        Several links of one channel share its limit, and each was granted all of it, since only
        the kernel knows which queue has messages.
        """
        channel = link.channel
        assert channel.limit is not None
        count = min(len(offsets), max(channel.limit - channel.outstanding, 0))
        surplus = offsets[count:]
        if surplus:
            for each in channel.links.values():
                if each.consumer is not None and not each.no_ack and each.credit:
                    each.consumer.grant(-each.credit)
                    each.credit = 0
            self._client.settle(consumer, Settlement.RETURN, surplus)
        for each in channel.links.values():
            self._thirsty[each] = None
        return count

    def get_ok(
        self,
        channel: Channel,
        queue: str,
        deliveries: Deliveries,
        ready: int,
        *,
        tells_attempt: bool,
    ) -> None:
        """Append the answer to basic.get. Its delivery tag is `channel.next_tag`."""
        slot = deliveries.slots[0]
        attempt = 1 if deliveries.attempts is None else deliveries.attempts[0]
        origins = self._environment.origins
        route, block, body = view(slot, queue, attempt, origins, tells_attempt=tells_attempt)
        number = channel.number
        out = self._host.out
        size = _DELIVER_FIXED + len(route) + 4
        out += (
            _GET_OK.pack(1, number, size, _GET_OK_KEY, channel.next_tag, attempt > 1),
            route,
            ready.to_bytes(4, "big"),
            _END,
        )
        out += encode_content(number, block, body, self._room + ENVELOPE_BYTES)
        channel.next_tag += 1
        self._counters.delivered += 1
        self._host.write_soon()

    # --- Credit -----------------------------------------------------------------------------

    def thirsty(self, link: ChannelLink) -> None:
        """The link's credit may have to change."""
        self._thirsty[link] = None
        self._host.write_soon()

    def replenish(self) -> None:
        """Give every link the credit it should have. Deliveries may come from inside."""
        if not self._thirsty:
            return
        links, self._thirsty = self._thirsty, {}
        paused = self._is_writing_paused
        for link in links:
            consumer = link.consumer
            if consumer is None:
                continue
            room = link.room(is_writing_paused=paused)
            if room and self._limits.account.limits_delivery:
                room = self._within_limits(link, room, len(links))
            more = room - link.credit
            if more:
                link.credit += more
                consumer.grant(more)

    def _within_limits(self, link: ChannelLink, room: int, links: int) -> int:
        """How much of its credit a link may have by the limits; without any it waits."""
        allowed = self._limits.room(link.topic_id, link.size_estimate)
        if allowed is None:
            return room
        if allowed > 0:
            return min(room, max(allowed // links, 1))
        if not self._limited:
            self._limits.held(link.topic_id)
            self._host.deliver_later(self._limits.delay_ms())
        self._limited[link] = None
        return 0

    def deliver_again(self) -> None:
        """Less is owed than when links had to wait."""
        self._thirsty.update(self._limited)
        self._limited.clear()
        self._host.write_soon()

    def writing_paused(self, channels: Iterable[Channel], *, is_paused: bool) -> None:
        """The peer does not read, or reads again."""
        self._is_writing_paused = is_paused
        for channel in channels:
            for link in channel.links.values():
                self.thirsty(link)

    def tell_of_ended(self, *, wants_notice: bool) -> None:
        """Cancel the links that the kernel has ended; `wants_notice`: the client may be told."""
        while self._ended:
            link = self._ended.pop()
            channel = link.channel
            if channel.links.get(link.tag) is not link:
                continue
            del channel.links[link.tag]
            if wants_notice:
                notice = BasicCancel(link.tag, nowait=True)
                self._host.out.append(encode_method(channel.number, notice))

    # --- Settling ---------------------------------------------------------------------------

    def take_acks(self, data: bytes, at: int, end: int, channels: dict[int, Channel]) -> int:
        """Take the basic.ack frames that begin at `at`; returns the offset after the last taken.

        Takes none, and so returns `at`, if the first one is anything but a plain ack of something
        unacknowledged. Never raises. A hot loop.
        """
        number_known = -1
        unacked: dict[int, tuple[Consumer, int]] = {}
        last: Consumer | None = None
        offsets: list[int] = []
        acks = self._acks
        taken = 0
        whole = at + (end - at) // _ACK_BYTES * _ACK_BYTES
        for kind, number, size, key, tag, multiple, stop in ACK_FRAME.iter_unpack(
            memoryview(data)[at:whole]
        ):
            if key != ACK_KEY or kind != 1 or size != ACK_SIZE or stop != FRAME_END or multiple & 1:
                break
            if number != number_known:
                channel = channels.get(number)
                if channel is None or not channel.takes_at_once():
                    break
                number_known = number
                unacked = channel.unacked
            entry = unacked.pop(tag, None)
            if entry is None:
                break
            consumer, offset = entry
            if consumer is not last:
                last = consumer
                known = acks.get(consumer)
                offsets = acks[consumer] = [] if known is None else known
            offsets.append(offset)
            taken += 1
        self._counters.acked += taken
        return at + taken * _ACK_BYTES

    def settle(self, how: Settlement, entries: Sequence[tuple[Consumer, int]]) -> None:
        """ACK, RELEASE or DEAD_LETTER what the client holds."""
        if how is Settlement.ACK:
            self._ack(entries)
        elif how is Settlement.RELEASE:
            self.give_back(entries)
        else:
            self._reject(entries)

    def committed(self, settled: Sequence[tuple[Consumer, int]]) -> None:
        """A transaction has settled so many deliveries of each consumer."""
        for consumer, count in settled:
            self._freed(consumer, count)

    def _ack(self, entries: Sequence[tuple[Consumer, int]]) -> None:
        """Acknowledge deliveries, at the end of the chunk."""
        self._counters.acked += len(entries)
        for consumer, offset in entries:
            self._acks.setdefault(consumer, []).append(offset)

    def settle_acks(self) -> None:
        """Hand over the acks of a chunk."""
        if not self._acks:
            return
        acks, self._acks = self._acks, {}
        for consumer, offsets in acks.items():
            self._freed(consumer, len(offsets))
        self._client.acknowledge(acks)

    def give_back(self, entries: Sequence[tuple[Consumer, int]]) -> None:
        """Requeue deliveries to their old places. Fenced operations wait until that is done, and
        so does new credit: a consumer of one message at a time gets it again before the next.
        """
        for consumer, offsets in _by_consumer(entries).items():
            self.releases_in_flight += 1
            tag = (consumer, len(offsets))
            if not self._settle(consumer, Settlement.RELEASE, offsets, tag):
                self.settled(tag, None)

    def _reject(self, entries: Sequence[tuple[Consumer, int]]) -> None:
        """Dead-letter deliveries, or drop them if their queue has no dead-letter exchange."""
        for consumer, offsets in _by_consumer(entries).items():
            self._settle(consumer, Settlement.DEAD_LETTER, offsets)
            self._freed(consumer, len(offsets))

    def _settle(
        self, consumer: Consumer, how: Settlement, offsets: list[int], tag: object = None
    ) -> bool:
        """Settle; with a tag, `settled` hears of it. False if there is nothing to settle any more,
        because the queue is gone.
        """
        sink = self if tag is not None else None
        try:
            self._client.settle(consumer, how, offsets, reason=Reason.REJECTED, sink=sink, tag=tag)
        except KernelError as error:
            _check_gone(error)
            return False
        return True

    def _freed(self, consumer: Consumer, count: int) -> None:
        """So many deliveries of a consumer are no longer unacknowledged."""
        link = consumer.tag
        if isinstance(link, ChannelLink):
            link.unacked -= count
            if link.channel.limit is not None:
                self._thirsty.update(dict.fromkeys(link.channel.links.values()))
            elif link.credit > link.low:
                return
            else:
                self._thirsty[link] = None
            self._host.write_soon()

    def settled(self, tag: object, failures: Mapping[int, KernelError] | None) -> None:
        """Something given back is ready again (or its lease was lost: somebody else's now)."""
        consumer, count = cast("tuple[Consumer, int]", tag)
        self.releases_in_flight -= 1
        self._freed(consumer, count)
        self._host.write_soon()

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        """The kernel ended a consumer: its queue is gone, or its session."""
        link = consumer.tag
        if isinstance(link, ChannelLink):
            link.consumer = None
            self._ended.append(link)
            self._host.write_soon()


def _check_gone(error: KernelError) -> None:
    """A settlement may fail because the queue is gone, and for nothing else. Raises the error."""
    if error.code is not Code.NOT_FOUND:
        raise error


def _by_consumer(entries: Sequence[tuple[Consumer, int]]) -> dict[Consumer, list[int]]:
    found: dict[Consumer, list[int]] = {}
    for consumer, offset in entries:
        found.setdefault(consumer, []).append(offset)
    return found
