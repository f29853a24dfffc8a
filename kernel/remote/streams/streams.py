"""The consumer's side of push streams: consumers of queues whose leaders are far away
(docs/adr/0009 "Push streams").

    attach -> waiting for SERVES -> ATTACH sent -> ATTACHED: deliveries, settlements
                     ^                               |
                     +--- connection broke, GONE ----+

A store says which groups it serves. All parts of such a group are attached there, with what they
hold, then CLAIMED says that these are all. What has been settled and is not known to be applied is
claimed too, and settled again, unless it has been delivered since. A RETURN that nobody waits for
is not: what nobody claims is ready again by itself. What is refused is given back by nobody.

A gateway serves its memory in the same way: a pseudo-group here, TRANSIENT_GROUP there and on the
wire (`PartGroup.there`, `_here`).

What a turn of the loop brings goes out together when it is over (`stream_batches`).

Surplus (more than the credit left) goes back with a RETURN that is answered. The store has no
credit until then, and what comes before the answer goes back as well: so nothing overtakes.

Durability: settlements with a sink are told from the apply at the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import cast

from ...api.client import Consumer, ConsumerSink, ConsumerSpec, Settlement, SettleSink
from ...api.filters import setting_of
from ...api.model import QueueRef, Reason, TopicInfo
from ...broker.delivery.consumers import Handed
from ...common.errors import Code, KernelError
from ...common.ids import (
    MEMORY_FIRST,
    TRANSIENT_GROUP,
    QueueId,
    RaftGroup,
    SessionId,
    topic_of,
)
from ...requests.client_trace import ClientTrace
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import Hello
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_wire import WireError
from . import stream_wire
from .parts import (
    GIVING_BACK,
    CreditPool,
    CreditShare,
    PartEntry,
    PartGroup,
    SpreadParts,
    StreamPart,
    no_lease,
)
from .pulls import SessionPulls
from .stream_batches import StreamBatches, again

ATTACHED_SECONDS = 10.0
"""`attached` waits so long for leaders: longer than an election and a redial."""

_REJECTED = Reason.REJECTED
_ACK = Settlement.ACK


class Streams:
    """`sections.Section`, and the consuming half of a client."""

    methods = calls.STREAMS

    def __init__(self, soon: Callable[[Callable[[], None]], object], trace: ClientTrace) -> None:
        """`soon(action)` calls it in a later turn of the loop."""
        self._soon = soon
        self._trace = trace
        self._next = count(1)
        self._parts: dict[int, StreamPart] = {}
        self._groups: dict[int, PartGroup] = {}
        self._sessions: dict[SessionId, dict[StreamPart, None]] = {}
        self._channels: dict[Channel, RaftGroup | None] = {}
        """To stores; to a gateway: with the pseudo-group that stands for its memory."""
        self._stream_batches = StreamBatches(soon, self._group, self.drop_if_over)
        self.credit_changed = self._stream_batches.credit
        self.pulls = SessionPulls(self)

    @property
    def count(self) -> int:
        """Streams that are known here."""
        return len(self._parts)

    def parts(self) -> Iterable[StreamPart]:
        """Every stream, as the part of a consumer that it serves."""
        return self._parts.values()

    def stop(self) -> None:
        """End in order: what this process holds returns at once, and no new leader waits for what
        it might claim.
        """
        for session in list(self._sessions):
            self.end_session(session)
        self._stream_batches.send()
        for channel in self._channels:
            channel.cast(stream_wire.LEFT, stream_wire.encode([]), control=True)

    # --- client.Client ----------------------------------------------------------------------

    def attach(self, spec: ConsumerSpec, sink: ConsumerSink) -> Consumer:
        """A new push consumer without credit. Raises KernelError INVALID_ARGUMENT for timed leases,
        which are for pulls, and for a filter that only this process knows.
        """
        if spec.lease_ms is not None:
            raise KernelError(Code.INVALID_ARGUMENT, "timed leases are for pulls")
        setting_of(spec.filter)
        pool = CreditPool()
        parts = [self.attach_part(ref, spec, sink, pool) for ref in spec.topic.queues]
        return parts[0] if len(parts) == 1 else SpreadParts(parts)

    def follow(self, before: TopicInfo, after: TopicInfo) -> None:
        """A topic has other queues: its consumers get parts of them, and lose those of queues that
        are gone, in which they hold nothing.
        """
        gone = {ref.id for ref in before.queues}.difference(ref.id for ref in after.queues)
        new = [ref for ref in after.queues if ref not in before.queues]
        pools: dict[CreditPool, list[StreamPart]] = {}
        for part in self._parts.values():
            of_topic = topic_of(part.ref.id) == after.id
            if of_topic and part.pool.is_told and not (part.ended or part.spec.pull):
                pools.setdefault(part.pool, []).append(part)
        for pool, parts in pools.items():
            known = {part.ref for part in parts}
            more = [
                self.attach_part(ref, parts[0].spec, parts[0].sink, pool)
                for ref in new
                if ref not in known
            ]
            pool.more = (*pool.more, *more)
            self.credit_changed(pool)
            for part in parts:
                if part.ref.id in gone:
                    part.end()

    def attach_part(
        self,
        ref: QueueRef,
        spec: ConsumerSpec,
        sink: ConsumerSink,
        pool: CreditPool,
        claimant: tuple[int, int] = (0, 0),
    ) -> StreamPart:
        """A stream of one queue that takes its credit from `pool`, in common with its other parts.
        What cannot be attached is told to the sink.
        """
        part = StreamPart(self, next(self._next), ref, spec, sink, pool, claimant)
        self._take_in(part)
        return part

    def park(self, part: StreamPart) -> bool:
        """End the stream of a part that is idle, which `revive` gives another one. False: it is not
        idle, or not at its leader.
        """
        if not part.is_idle or part.ended or not part.is_attached or part.channel is None:
            return False
        part.ended = True
        self._stream_batches.cancel(part.channel, part)
        return True

    def revive(self, part: StreamPart) -> None:
        """Give a part that was parked a stream again."""
        if self._parts.get(part.number) is part:
            self._stream_batches.send()  # what parks it has not left yet
        part.number = next(self._next)
        part.ended = False
        self._take_in(part)

    def _take_in(self, part: StreamPart) -> None:
        self._parts[part.number] = part
        group = self._group(part.ref.group)
        group.parts[part] = None
        if part.session is not None:
            self._sessions.setdefault(part.session, {})[part] = None
        if group.channel is not None:
            self._attach(part, group.channel)

    async def attached(self, consumer: Consumer) -> None:
        """Return once every leader has taken in a new consumer (see `client.Client`)."""
        parts = (
            consumer.parts if isinstance(consumer, SpreadParts) else [cast("StreamPart", consumer)]
        )
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[None]] = []
        for part in parts:
            if part.waiters is not None:
                future: asyncio.Future[None] = loop.create_future()
                part.waiters.append(future)
                futures.append(future)
        try:
            async with asyncio.timeout(ATTACHED_SECONDS):
                for future in futures:
                    await future
        except TimeoutError:
            consumer.cancel()
            message = "no leader has taken the consumer in"
            raise KernelError(Code.UNAVAILABLE, message) from None
        except BaseException:
            consumer.cancel()
            raise
        finally:
            for future in futures:
                if future.done() and not future.cancelled():
                    future.exception()  # that of another queue is what the caller hears
                future.cancel()

    def settle(
        self,
        part: StreamPart,
        how: Settlement,
        offsets: Sequence[int],
        reason: Reason,
        sink: SettleSink | None,
        tag: object,
    ) -> None:
        """Settle leases (hot). Raises KernelError NOT_FOUND if somebody wants to hear of it and the
        queue is gone.
        """
        if part.number not in self._parts:
            if sink is not None:
                raise KernelError(Code.NOT_FOUND, "what the consumer held is gone")
            return
        if not offsets:
            if sink is not None:
                self._soon(lambda: sink.settled(tag, None))
            return
        part.held.difference_update(offsets)
        self._send(part, PartEntry(how, list(offsets), reason, sink, tag))

    def acknowledge(self, acks: Mapping[StreamPart, list[int]]) -> None:
        """Ack what many consumers hold (hot)."""
        for part, offsets in acks.items():
            if part.number in self._parts:
                part.held.difference_update(offsets)
                self._send(part, PartEntry(_ACK, offsets, _REJECTED, None, None))

    def ask(self, part: StreamPart) -> None:
        """A part has a question: ask it as soon as it has a stream."""
        if part.channel is not None:
            self._stream_batches.take(part.channel, part)

    def end_session(self, session: SessionId) -> None:
        """Return what a session's consumers hold, and end them."""
        self.pulls.end_session(session)
        for part in list(self._sessions.pop(session, ())):
            held = sorted(part.held)
            part.held.clear()
            if held:
                self._send(part, PartEntry(Settlement.RELEASE, held, _REJECTED, None, None))
            part.cancel()

    # --- stream_parts.Host ------------------------------------------------------------------

    def cancelled(self, part: StreamPart) -> None:
        """A part takes no more."""
        if part.question is not None:
            part.question.took(0, None)
        if part.channel is not None and part.is_attached:
            self._stream_batches.cancel(part.channel, part)
        elif part.channel is None and (part.waiters is not None or part.is_idle):
            self._forget(part)  # no leader knows of it, or need hear of it

    def _forget(self, part: StreamPart) -> None:
        part.is_gone = True
        self._leave_share(part)
        self._parts.pop(part.number, None)
        group = self._group(part.ref.group)
        group.parts.pop(part, None)
        group.unconfirmed.pop(part, None)
        part.channel = None
        part.is_attached = False
        if part.session is not None:
            owned = self._sessions.get(part.session)
            if owned is not None:
                owned.pop(part, None)
                if not owned:
                    del self._sessions[part.session]

    def drop_if_over(self, part: StreamPart) -> None:
        """Forget a cancelled part that holds nothing, and has nothing to say."""
        if part.ended and part.is_attached and part.is_idle:
            self._forget(part)

    # --- Where groups are served ------------------------------------------------------------

    def _group(self, number: int) -> PartGroup:
        group = self._groups.get(number)
        if group is None:
            there = TRANSIENT_GROUP if number >= MEMORY_FIRST else RaftGroup(number)
            group = self._groups[number] = PartGroup(there)
        return group

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A store can be reached (`reached`: a gateway)."""
        self._consume(channel, None)

    def reached(self, channel: Channel, memory: RaftGroup) -> None:
        """A gateway can be reached whose memory is this pseudo-group."""
        self._consume(channel, memory)

    def _consume(self, channel: Channel, memory: RaftGroup | None) -> None:
        """Who is there says what it serves to those who say that they consume."""
        self._channels[channel] = memory
        channel.cast(stream_wire.ATTACH, stream_wire.encode([]), control=True)

    def _here(self, channel: Channel, number: int) -> RaftGroup:
        """The group that the other end calls so. Raises RpcError: it cannot lead it."""
        memory = self._channels.get(channel)
        if memory is not None and number == TRANSIENT_GROUP:
            return memory
        if memory is not None or number >= MEMORY_FIRST:
            raise RpcError(f"group {number} is not led there")
        return RaftGroup(number)

    def closed(self, channel: Channel) -> None:
        """It cannot be reached any more."""
        self._channels.pop(channel, None)
        for number, group in self._groups.items():
            if group.channel is channel:
                self._lost(RaftGroup(number), channel)
        self._stream_batches.closed(channel)

    def _lost(self, number: RaftGroup, channel: Channel) -> None:
        """A store does not serve a group any more, or cannot be reached."""
        group = self._group(number)
        if group.channel is not channel:
            return
        group.channel = None
        group.asked.clear()
        group.unconfirmed.clear()
        for part in list(group.parts):
            never = part.waiters is not None
            self._detach(part)
            if part.ended and (never or part.is_idle):
                self._forget(part)

    def give_up(self, memory: RaftGroup, error: KernelError) -> None:
        """The gateway of a memory is gone, and so is what its consumers held."""
        for part in list(self._group(memory).parts):
            self._end(part, error)
        del self._groups[memory]

    def _detach(self, part: StreamPart) -> None:
        """It has no stream now: what is not known to be applied is to be said again."""
        if part.channel is not None:
            self._stream_batches.forget(part.channel, part)
        for entry in part.unconfirmed:
            entry.is_repeat = True
        for entry in (*part.unconfirmed, *part.backlog):
            self._answered_fence(part, entry)
        self._leave_share(part)
        part.channel = None
        part.is_attached = False
        if part.question is not None and not part.question.lost():
            part.question = None
        part.backlog, over = again([*part.unconfirmed, *part.backlog], part.held)
        part.unconfirmed.clear()
        for entry in over:
            self._soon(partial(self._answer, entry, []))

    def _leave_share(self, part: StreamPart) -> None:
        """It lives on its store's share no more, which ends with the last one."""
        channel = part.channel
        share = part.pool.shares.get(channel) if channel is not None else None
        if channel is None or share is None:
            return
        share.parts -= 1
        if not share.parts:
            del part.pool.shares[channel]
            self._stream_batches.over(channel, share)
            self._stream_batches.credit(part.pool)

    def _serves(self, channel: Channel, number: RaftGroup, term: int) -> None:
        group = self._group(number)
        if term < group.term:
            return
        if group.channel is not None and group.channel is not channel:
            self._lost(number, group.channel)
        group.term, group.channel = term, channel
        for part in group.parts:
            if part.channel is None:
                self._attach(part, channel)
        self._stream_batches.claimed(channel, number, term)

    def _attach(self, part: StreamPart, channel: Channel) -> None:
        part.channel = channel
        share = part.pool.shares.get(channel)
        if share is None:
            share = part.pool.shares[channel] = CreditShare(part.pool, next(self._next))
        share.parts += 1
        self._stream_batches.attach(channel, part, share)
        if part.question is not None:
            self._stream_batches.take(channel, part)
        elif not part.spec.pull:
            self._stream_batches.credit(part.pool)

    def _send(self, part: StreamPart, entry: PartEntry) -> None:
        part.backlog.append(entry)
        if part.is_attached and part.channel is not None:
            self._stream_batches.settle(part.channel, part)

    # --- What stores say --------------------------------------------------------------------

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """Never: a store asks nothing in this section."""
        raise RpcError(f"method {method} is not asked of gateways")

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """A store has sent a message."""
        try:
            self._told(channel, method, payload)
        except WireError as error:
            raise RpcError(str(error)) from None

    def _told(self, channel: Channel, method: int, payload: bytes) -> None:
        decode = stream_wire.decode
        if method == stream_wire.DELIVER:
            self._deliver(channel, payload)
        elif method == stream_wire.TAKEN:
            number, to = decode(stream_wire.taken, payload)
            self._taken(channel, self._here(channel, number), to)
        elif method == stream_wire.SETTLED:
            self._settled(channel, decode(stream_wire.settled, payload))
        elif method == stream_wire.SERVES:
            for group, term in decode(stream_wire.serves, payload):
                self._serves(channel, self._here(channel, group), term)
        elif method == stream_wire.GONE:
            for group in decode(stream_wire.gone, payload):
                self._lost(self._here(channel, group), channel)
        elif method == stream_wire.ATTACHED:
            for attached in decode(stream_wire.attached, payload):
                self._attached(channel, attached)
        elif method == stream_wire.ENDED:
            self._ended(channel, decode(stream_wire.ended, payload))
        elif method == stream_wire.TOOK:
            self._took(channel, decode(stream_wire.took, payload))
        else:
            raise RpcError(f"method {method} is not told to gateways")

    def _attached(self, channel: Channel, head: stream_wire.Attached) -> None:
        part = self._parts.get(head.stream)
        if part is None or part.channel is not channel:
            return
        part.is_attached = True
        if head.refused:
            part.held.difference_update(head.refused)
            self._drop_refused(part, set(head.refused))
        if head.is_new:
            for entry in part.backlog:
                if entry.is_repeat and entry.how is Settlement.RELEASE:
                    entry.how = Settlement.RETURN  # the leader's start has counted it
        waiters, part.waiters = part.waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)
        if part.backlog:
            self._stream_batches.settle(channel, part)
        if part.ended:
            self._stream_batches.cancel(channel, part)

    def _drop_refused(self, part: StreamPart, refused: set[int]) -> None:
        """What is not leased to a part any more is given back by nobody: it may be delivered to it
        anew before the settlement gets there, which would be taken for one of that delivery.
        """
        kept: list[PartEntry] = []
        for entry in part.backlog:
            lost = refused.intersection(entry.offsets) if entry.how in GIVING_BACK else None
            if lost:
                entry.offsets = [each for each in entry.offsets if each not in lost]
                if not entry.is_repeat:
                    entry.lost = sorted(lost)
            if entry.offsets:
                kept.append(entry)
            else:
                self._soon(partial(self._answer, entry, []))
        part.backlog = kept

    @staticmethod
    def _answer(entry: PartEntry, failed: list[int]) -> None:
        """Tell whoever waits for a settlement."""
        sink, entry.sink = entry.sink, None
        if sink is not None:
            strangers = (*failed, *entry.lost)
            sink.settled(entry.tag, {each: no_lease(each) for each in strangers} or None)

    def _deliver(self, channel: Channel, payload: bytes) -> None:
        """Messages have come (hot)."""
        for (number, _, offsets, attempts, _), slots in stream_wire.decode_deliver(payload):
            part = self._parts.get(number)
            if part is None or part.ended:
                continue  # the store has them back by the cancellation, and their credit
            pool = part.pool
            share = pool.shares.get(channel)
            if share is not None:
                share.granted -= len(offsets)
            if share is None or part.channel is not channel:
                self._stream_batches.credit(pool)
                continue  # its next leader has them
            room = 0 if share.fences else max(pool.left, 0)
            if len(offsets) > room and not part.spec.auto_ack:  # else they are acked already
                self._return(part, share, offsets[room:])
                del offsets[room:], slots[room:]
                if attempts is not None:
                    del attempts[room:]
                if not offsets:
                    continue
            if not part.spec.auto_ack:
                part.held.update(offsets)
            part.was_used = True
            pool.left -= len(offsets)
            if len(pool.shares) > 1:
                self._stream_batches.credit(pool)
            if self._trace.modes and not part.spec.pull:
                self._trace.took(part, offsets)
            part.sink.deliver(part, Handed(QueueId(part.ref.id), offsets, slots, attempts))

    def _return(self, part: StreamPart, share: CreditShare, offsets: list[int]) -> None:
        """Give surplus back."""
        entry = PartEntry(Settlement.RETURN, offsets, _REJECTED, None, None)
        entry.fence = share
        share.fences += 1
        self._stream_batches.credit(part.pool)
        self._send(part, entry)

    def _answered_fence(self, part: StreamPart, entry: PartEntry) -> None:
        """If it was one, what comes now is no surplus because of it."""
        if entry.fence is not None:
            entry.fence.fences -= 1
            entry.fence = None
            self._stream_batches.credit(part.pool)

    def _taken(self, channel: Channel, number: int, to: int) -> None:
        group = self._group(number)
        if group.channel is not channel:
            return
        for part in list(group.unconfirmed):
            unconfirmed = part.unconfirmed
            while unconfirmed and unconfirmed[0].number <= to:
                entry = unconfirmed.popleft()
                if entry.is_answered and entry.number in group.asked:
                    unconfirmed.appendleft(entry)  # its answer is on its way
                    break
            if not unconfirmed:
                del group.unconfirmed[part]
                self.drop_if_over(part)

    def _settled(self, channel: Channel, head: stream_wire.Settled) -> None:
        group = self._group(self._here(channel, head.group))
        if group.channel is not channel or head.number not in group.asked:
            return
        part, entry = group.asked.pop(head.number)
        if entry.fence is not None:
            self._answered_fence(part, entry)
            return
        self._answer(entry, head.failed)

    def _ended(self, channel: Channel, head: stream_wire.Ended) -> None:
        """A stream is over, or could not be attached."""
        part = self._parts.get(head.stream)
        if part is not None and part.channel is channel:
            self._end(part, head.error)

    def _end(self, part: StreamPart, error: KernelError) -> None:
        was_cancelled, part.ended = part.ended, True
        group = self._group(part.ref.group)
        entries = [*part.unconfirmed, *part.backlog]
        self._detach(part)
        self._forget(part)
        for entry in entries:
            group.asked.pop(entry.number, None)
            sink, entry.sink = entry.sink, None
            if sink is not None:
                sink.settled(entry.tag, dict.fromkeys(entry.offsets, error))
        waiters, part.waiters = part.waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_exception(error)
        if not waiters and not was_cancelled:
            part.sink.consumer_ended(part, error)

    def _took(self, channel: Channel, head: stream_wire.Took) -> None:
        """A pull has been answered."""
        part = self._parts.get(head.stream)
        if part is None or part.channel is not channel:
            return
        question = part.question
        if question is not None and question.number == head.number:
            question.took(head.ready, head.error)
