"""The store's side: gateways have their calls carried out by the leaders that live here.

    called -> decode -> may the connection have more? -> is its lane unbroken? -> leader.publish ...
                                                               done -> answer

A *lane* is one group's calls of one connection. After a call of a lane has failed, no later one of
it is carried out, until the gateway has heard of it and begins another lane: what it sends again
must not come behind what it sent after it.

Back-pressure: what a connection has under way here is bounded in calls, bytes and questions. A
call above that is refused with BUSY, and so is the rest of its lane; each bound has a counter.

Durability: an answer leaves once `leader.Leader` has told what a batch came to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ...api.model import QueueRef
from ...common.errors import Code, KernelError
from ...common.ids import Offset, QueueId, RaftGroup
from ...requests.leader import Holder, Identity, Leader, Settling, Together
from ...rpc.channel import Channel, Reply
from ...rpc.frame import MESSAGE_BYTES_MAX, RpcError
from ...rpc.handshake import Hello
from ..sections import Section, Sections
from . import call_numbers as calls
from . import call_wire as wire
from .fair_gateways import CommitHost, FairGateways, GatewayShare
from .transaction_wire import decode_prepare, decode_transact

CALLS_MAX = 16_384
"""Batches of one connection under way here: more than a request pipeline sends to 16 groups at
once."""

BYTES_MAX = 64 * 1024 * 1024
"""Bytes of these: what a gateway lets wait for the disk (`limits.PROPOSAL_BYTES_MAX`)."""

QUESTIONS_MAX = 64
"""Questions of one connection that are being answered."""

QUESTION_SECONDS = 10.0
"""A question that takes longer is given up: whoever asked has too."""

PAGE_BYTES = 4 * 1024 * 1024
"""Messages of one answer to PEEK, about; the last one may be larger than this."""

PAGE_MESSAGES = 256

Question = calls.CallFigures | calls.Peek | calls.Since | calls.Span


class LaneHost(CommitHost, Protocol):
    """What the service asks of the store (`store.node.Store`)."""

    @property
    def groups(self) -> Sequence[RaftGroup]:
        """Numbers of all its groups."""

    def serving(self, group: RaftGroup) -> Leader | None:
        """The leader of a group, if it serves from here."""

    def standing(self, group: RaftGroup) -> tuple[int, int]:
        """(term, number of the node that leads it, or 0) of a group, as this node knows."""


class Holders(Protocol):
    """Who knows the consumers of gateways (`streams.service`)."""

    def holder(self, channel: Channel, number: int) -> Holder | None:
        """The consumer of a stream that is attached by a channel; None: it is not."""

    def has_ended(self, channel: Channel, number: int) -> bool:
        """Whether a stream that was attached by a channel is over."""

    def settled(self, holders: Sequence[Holder]) -> None:
        """A transaction has settled what they held, or has not been carried out."""


class _Gone:
    """`leader.Holder` of a consumer that its gateway has forgotten: it holds nothing."""

    tag: object = None
    origin = 0
    ref = QueueRef(QueueId(0), RaftGroup(0))

    def __init__(self) -> None:
        self.held: set[int] = set()

    def grant(self, messages: int) -> None:
        """Ignored: it takes nothing."""

    def cancel(self) -> None:
        """Nothing to end."""


_GONE = _Gone()


class LaneFigures:
    """Counters since this process began."""

    __slots__ = ("batches", "over_bytes", "over_calls", "over_questions", "questions", "redirected")

    def __init__(self) -> None:
        self.batches = 0
        self.questions = 0
        self.redirected = 0
        """Calls for a group that another node leads."""
        self.over_calls = 0
        """Refused at CALLS_MAX."""
        self.over_bytes = 0
        """Refused at BYTES_MAX."""
        self.over_questions = 0
        """Refused at QUESTIONS_MAX."""


class _Lane:
    __slots__ = ("is_broken", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_broken = False


class _GatewayConnection:
    """One connection."""

    __slots__ = ("bytes", "calls", "channel", "lanes", "share", "tasks")

    def __init__(self, channel: Channel, share: GatewayShare) -> None:
        self.channel = channel
        self.share = share
        self.lanes: dict[int, _Lane] = {}
        self.calls = 0
        self.bytes = 0
        self.tasks: set[asyncio.Task[None]] = set()

    def lane(self, group: int, number: int) -> _Lane:
        """The lane of a call; a newer one takes the place of an older."""
        lane = self.lanes.get(group)
        if lane is None or lane.number < number:
            lane = self.lanes[group] = _Lane(number)
        return lane


class _Answer:
    """`leader.Done` of a batch."""

    __slots__ = ("_gateway", "_lane", "_reply", "_size")

    def __init__(self, caller: _GatewayConnection, lane: _Lane, reply: Reply, size: int) -> None:
        self._gateway = caller
        self._lane = lane
        self._reply = reply
        self._size = size
        caller.calls += 1
        caller.bytes += size

    def __call__(self, results: object) -> None:
        self._gateway.calls -= 1
        self._gateway.bytes -= self._size
        if isinstance(results, KernelError):
            self._lane.is_broken = True
            self._reply(results)
            return
        parts = wire.encode_results(results)
        if sum(map(len, parts)) > MESSAGE_BYTES_MAX:
            error = KernelError(Code.TOO_LARGE, "done, but the result is too large to be sent")
            parts = wire.encode_results((error,))
        self._reply(parts)


class GatewayService:
    """`rpc.channel.Handler` of the channels of gateways."""

    def __init__(
        self,
        host: LaneHost,
        holders: Holders,
        refusal: Callable[[RaftGroup, Identity], KernelError | None],
        soon: Callable[[Callable[[], None]], object],
        *,
        calls_max: int = CALLS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        """`refusal`: why the messages of a batch cannot be taken now, unless it has been stored
        before. `soon(action)` calls it in a later turn of the loop.
        """
        self._host = host
        self._holders = holders
        self._may_not_store = refusal
        self._soon = soon
        self._calls_max = calls_max
        self._bytes_max = bytes_max
        self._gateways: dict[Channel, _GatewayConnection] = {}
        self._fair = FairGateways(host, soon, bytes_max)
        self._telling = False
        self._sections = Sections()
        self.figures = LaneFigures()

    def add(self, section: Section) -> None:
        """Serve a section too; before the first connection."""
        self._sections.add(section)

    # --- channel.Handler --------------------------------------------------------------------

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A gateway has come. An older connection of the same process, which it has given up, ends
        here before anything of the new one is done.
        """
        for known in list(self._gateways):
            if (known.peer.node, known.peer.store) == (peer.node, peer.store):
                known.close("the same gateway has connected again")
        self._gateways[channel] = _GatewayConnection(channel, self._fair.opened())
        channel.cast(calls.STANDINGS, self._standings(), control=True)
        self._sections.opened(channel, peer)

    def closed(self, channel: Channel, reason: str) -> None:
        """It is gone; what it has asked for is done, and nobody hears of it."""
        caller = self._gateways.pop(channel, None)
        if caller is not None:
            self._fair.closed(caller.share)
            for task in list(caller.tasks):
                task.cancel()
            self._sections.closed(channel)

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """A message has come for one of the sections."""
        share = self._gateways[channel].share
        if share.waiting and self._fair.waits_behind(
            share, len(payload), partial(self._later, channel, self._tell_section, method, payload)
        ):
            return
        self._tell_section(channel, method, payload)

    def _tell_section(self, channel: Channel, method: int, payload: bytes) -> None:
        section = self._sections.of(method)
        if section is None:
            raise RpcError(f"method {method} is not told")
        section.told(channel, method, payload)

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """A call has come (hot)."""
        caller = self._gateways[channel]
        if self._fair.alone is not caller.share and self._waits(caller, method, payload, reply):
            return
        self._carry_out(channel, method, payload, reply)

    def _waits(self, caller: _GatewayConnection, method: int, payload: bytes, reply: Reply) -> bool:
        """Whether a call has to wait for its turn beside those of other gateways."""
        fair, channel = self._fair, caller.channel
        later = partial(self._later, channel, self._carry_out, method, payload, reply)
        if method in _COMMITTED:
            return fair.waits(caller.share, len(payload), later)
        return fair.waits_behind(caller.share, len(payload), later)

    def _later(self, channel: Channel, action: Callable[..., None], *what: object) -> None:
        """It is the turn of what a gateway has sent; what is wrong with it ends its connection."""
        try:
            action(channel, *what)
        except RpcError as error:
            channel.close(str(error))

    def _carry_out(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        caller = self._gateways[channel]
        try:
            if method == calls.PUBLISH:
                self._publish(caller, payload, reply)
            elif method == calls.TRANSACT:
                self._transact(caller, payload, reply)
            elif method in _BATCHES:
                head, attempt = _BATCHES[method](payload)
                self._batch(caller, head, attempt, len(payload), reply)
            elif method == calls.WHO_LEADS:
                reply(self._standings())
            elif method in _QUESTIONS:
                self._question(caller, method, payload, reply)
            elif (section := self._sections.of(method)) is not None:
                section.called(channel, method, payload, reply)
            else:
                reply(KernelError(Code.INVALID_ARGUMENT, f"a store has no method {method}"))
        except wire.WireError as error:
            raise RpcError(str(error)) from None

    # --- Batches ----------------------------------------------------------------------------

    def _publish(self, caller: _GatewayConnection, payload: bytes, reply: Reply) -> None:
        head, part = wire.decode_publish(payload)
        taken = self._take(caller, head, len(payload), reply)
        if taken is not None and self._has_room(head, taken[1]):
            leader, done = taken
            leader.publish(head.identity, part, done, head.origin)

    def _has_room(self, head: calls.CallBatch, done: _Answer) -> bool:
        """Whether new messages are taken; if not, it has been answered, and its lane goes on."""
        refusal = self._may_not_store(RaftGroup(head.group), head.identity)
        if refusal is not None:
            done((refusal,))
        return refusal is None

    def _transact(self, caller: _GatewayConnection, payload: bytes, reply: Reply) -> None:
        head, changes, part = decode_transact(payload)
        taken = self._take(caller, head, len(payload), reply)
        if taken is None or (head.lengths and not self._has_room(head, taken[1])):
            return
        leader, done = taken
        holders: list[Holder] = []
        settlements: list[Settling] = []
        for stream, how, reason, offsets in head.settlements:
            holder = _GONE if not stream else self._holders.holder(caller.channel, stream)
            if holder is None and self._holders.has_ended(caller.channel, stream):
                holder = _GONE  # by this very transaction, perhaps: then it hears of its first try
            if holder is None:
                done(KernelError(Code.BUSY, f"stream {stream} is not attached"))
                return
            holders.append(holder)
            settlements.append(Settling(holder, how, reason, list(offsets)))

        def carried_out(results: object) -> None:
            self._holders.settled(holders)
            done(results)

        what = Together(part, settlements, changes)
        leader.transact(head.identity, what, carried_out, head.origin)

    def _batch(
        self,
        caller: _GatewayConnection,
        head: calls.CallBatch,
        attempt: Callable[[Leader, _Answer], None],
        size: int,
        reply: Reply,
    ) -> None:
        taken = self._take(caller, head, size, reply)
        if taken is not None:
            attempt(*taken)

    def _take(
        self, caller: _GatewayConnection, head: calls.CallBatch, size: int, reply: Reply
    ) -> tuple[Leader, _Answer] | None:
        """Who is to do it, and who hears of it; None if it has been refused."""
        lane = caller.lane(head.group, head.lane)
        refusal = self._refusal(caller, lane, head, size)
        if refusal is None:
            leader = self._host.serving(RaftGroup(head.group))
            if leader is not None:
                self.figures.batches += 1
                return leader, _Answer(caller, lane, reply, size)
            refusal = self._not_leader(RaftGroup(head.group))
        lane.is_broken = True
        reply(refusal)
        return None

    def _refusal(
        self, caller: _GatewayConnection, lane: _Lane, head: calls.CallBatch, size: int
    ) -> KernelError | None:
        if lane.is_broken or lane.number != head.lane:
            return KernelError(Code.NOT_LEADER, "an earlier call of this lane has failed")
        if caller.calls >= self._calls_max:
            self.figures.over_calls += 1
            return KernelError(Code.BUSY, f"{self._calls_max} calls of this gateway are under way")
        if caller.bytes and caller.bytes + size > self._bytes_max:
            self.figures.over_bytes += 1
            return KernelError(Code.BUSY, f"{self._bytes_max} bytes of this gateway are under way")
        return None

    def _not_leader(self, group: RaftGroup) -> KernelError:
        self.figures.redirected += 1
        leads = self._host.standing(group)[1] if group in self._host.groups else 0
        return KernelError(Code.NOT_LEADER, f"this node does not serve group {group}", leads)

    # --- Questions --------------------------------------------------------------------------

    def _question(
        self, caller: _GatewayConnection, method: int, payload: bytes, reply: Reply
    ) -> None:
        question = _QUESTIONS[method](payload)
        leader = self._host.serving(RaftGroup(question.group))
        if leader is None:
            reply(self._not_leader(RaftGroup(question.group)))
            return
        if len(caller.tasks) >= QUESTIONS_MAX:
            self.figures.over_questions += 1
            reply(KernelError(Code.BUSY, f"{QUESTIONS_MAX} questions of this gateway wait"))
            return
        self.figures.questions += 1
        work = _answer(leader, question, reply)
        task = asyncio.get_running_loop().create_task(work)
        caller.tasks.add(task)
        task.add_done_callback(caller.tasks.discard)

    # --- Who leads what ---------------------------------------------------------------------

    def _standings(self) -> list[bytes]:
        host = self._host
        return wire.encode_standings(
            [calls.Standing(group, *host.standing(group)) for group in host.groups]
        )

    def leaders_changed(self) -> None:
        """Who leads a group is news here: gateways hear of it, once for this turn of the loop."""
        if not self._telling:
            self._telling = True
            self._soon(self._tell)

    def _tell(self) -> None:
        self._telling = False
        standings = self._standings()
        for channel in list(self._gateways):
            channel.cast(calls.STANDINGS, standings, control=True)


async def _answer(leader: Leader, question: Question, reply: Reply) -> None:
    try:
        async with asyncio.timeout(QUESTION_SECONDS):
            if isinstance(question, calls.CallFigures):
                about = None if question.offset is None else Offset(question.offset)
                figures = await leader.figures(QueueId(question.queue), question.name, about)
                reply(wire.encode_figures(figures))
            elif isinstance(question, calls.Span):
                reply(wire.encode_offsets(await leader.span(QueueId(question.queue))))
            elif isinstance(question, calls.Since):
                since = await leader.offset_since(QueueId(question.queue), question.time_ms)
                reply(wire.encode_offset(since))
            else:
                found, ended = await _page(leader, question)
                reply(wire.encode_page(found, ended=ended))
    except KernelError as error:
        reply(error)
    except TimeoutError:
        reply(KernelError(Code.TIMEOUT, "the question could not be answered in time"))


async def _page(leader: Leader, question: calls.Peek) -> tuple[list[tuple[Offset, bytes]], bool]:
    """A page of messages; whether there are no more."""
    found: list[tuple[Offset, bytes]] = []
    size, at = 0, Offset(question.offset)
    while len(found) < min(question.messages, PAGE_MESSAGES) and size < PAGE_BYTES:
        some = await leader.peek(QueueId(question.queue), at, 1)
        if not some:
            return found, True
        found += some
        size += len(some[-1][1])
        at = Offset(some[-1][0] + 1)
    return found, len(found) >= question.messages


def _prepare(payload: bytes) -> tuple[calls.CallBatch, Callable[[Leader, _Answer], None]]:
    head, slot = decode_prepare(payload)
    return head, lambda leader, done: leader.prepare(
        head.identity, head.producers, QueueId(head.queue), [slot], done
    )


def _propose(payload: bytes) -> tuple[calls.CallBatch, Callable[[Leader, _Answer], None]]:
    head, change = wire.decode_propose(payload)
    return head, lambda leader, done: leader.propose(change, head.identity, done)


def _propose_all(payload: bytes) -> tuple[calls.CallBatch, Callable[[Leader, _Answer], None]]:
    head, changes = wire.decode_propose_all(payload)
    return head, lambda leader, done: leader.propose_all(changes, head.identity, done)


def _change_leases(payload: bytes) -> tuple[calls.CallBatch, Callable[[Leader, _Answer], None]]:
    head, changes = wire.decode_change_leases(payload)
    return head, lambda leader, done: leader.change_leases(
        QueueId(head.queue), head.name, changes, head.identity, done, head.origin
    )


def _purge(payload: bytes) -> tuple[calls.CallBatch, Callable[[Leader, _Answer], None]]:
    head = wire.decode_purge(payload)
    return head, lambda leader, done: leader.purge(
        QueueId(head.queue), head.name, head.identity, done, in_flight=head.in_flight
    )


_BATCHES = {
    calls.PREPARE: _prepare,
    calls.PROPOSE: _propose,
    calls.PROPOSE_ALL: _propose_all,
    calls.CHANGE_LEASES: _change_leases,
    calls.PURGE: _purge,
}
_COMMITTED = frozenset({calls.PUBLISH, calls.TRANSACT, *_BATCHES})
"""Calls that go into a commit."""

_QUESTIONS: dict[int, Callable[[bytes], Question]] = {
    calls.FIGURES: wire.decode_figures,
    calls.PEEK: wire.decode_peek,
    calls.SINCE: wire.decode_since,
    calls.SPAN: wire.decode_span,
}
