"""The gateway's side of one group: calls of its leader over a connection, in order, until it fails.

A lane is what is sent to one leader over one connection. Its first failure ends it: everything
that is unanswered fails with it, heard in a later turn of the loop, and what is sent after that
goes into a new lane, to whoever leads then. A change of leader is such a failure (`led_over`). A
store carries nothing out behind a failure in the same lane (`lane_service`), so what a request
pipeline sends again keeps its order.

What a failure means for each call: NOT_LEADER if it never left, or the store has refused it;
UNKNOWN_OUTCOME if it may have been carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, cast

from ...api.model import TopicStatistics
from ...broker.log_commands import commands
from ...common.errors import Code, KernelError
from ...common.ids import Offset, QueueId, RaftGroup
from ...requests.leader import Done, Identity, LeaseChanging, Together
from ...requests.publish_part import Part
from ...rpc.channel import Channel
from ...rpc.frame import MESSAGE_BYTES_MAX
from . import call_numbers as calls
from . import call_wire as wire
from .transaction_wire import StreamConsumer, encode_prepare, encode_transact

NOT_DONE = frozenset({Code.NOT_LEADER, Code.BUSY})
"""Errors of a call that say that it was not carried out."""

_BROKEN = "the lane to the leader has broken"


class Roads(Protocol):
    """What a leader far away asks of the gateway (`leaders.RemoteLeaders`)."""

    call_ms: int
    """A call that is not answered within so long has failed."""

    produced: dict[int, int]
    """Messages sent by queue, until somebody clears it (`served_topics`)."""

    def channel_to(self, group: RaftGroup) -> Channel | None:
        """The connection to whoever leads a group."""

    def failed(self, group: RaftGroup, channel: Channel | None, error: KernelError) -> None:
        """A lane has broken (None: nobody is known to lead)."""

    def soon(self, action: Callable[[], None], /) -> object:
        """Call `action` in a later turn of the loop."""

    async def figures(
        self, group: RaftGroup, queue: QueueId, name: str, offset: Offset | None = None
    ) -> TopicStatistics:
        """`Leader.figures` of whoever leads a group."""

    async def span(self, group: RaftGroup, queue: QueueId) -> tuple[int, int]:
        """`Leader.span` of whoever leads a group."""

    async def offset_since(self, group: RaftGroup, queue: QueueId, time_ms: int) -> Offset:
        """`Leader.offset_since` of whoever leads a group."""

    async def peek(
        self, group: RaftGroup, queue: QueueId, offset: Offset, messages: int
    ) -> Sequence[tuple[Offset, bytes]]:
        """`Leader.peek` of whoever leads a group."""


COUNTED_MAX = 65_536
"""Queues in `Roads.produced`: what comes beyond is not counted."""


class _Call:
    __slots__ = ("code", "done")

    def __init__(self, done: Done) -> None:
        self.done = done
        self.code = Code.NOT_LEADER
        """Of the failure, if it comes to that."""


class _Lane:
    __slots__ = ("calls", "channel", "is_broken", "number")

    def __init__(self, number: int, channel: Channel | None) -> None:
        self.number = number
        self.channel = channel
        self.calls: dict[_Call, None] = {}
        """Unanswered, in the order in which they were sent."""
        self.is_broken = False


class RemoteLeader:
    """`leader.Leader` of one group, in whatever process it is."""

    def __init__(self, group: RaftGroup, roads: Roads) -> None:
        self.group = group
        self._roads = roads
        self._lane: _Lane | None = None
        self._lanes = 0

    # --- Batches ----------------------------------------------------------------------------

    def publish(self, identity: Identity, part: Part, done: Done, origin: int) -> None:
        """Have messages stored (hot)."""
        produced = self._roads.produced
        if len(produced) < COUNTED_MAX:
            for run in part.runs:
                produced[run[0]] = produced.get(run[0], 0) + run[2]
        lane = self._open()
        at = (self.group, lane.number)
        self._call(lane, calls.PUBLISH, wire.encode_publish(at, identity, part, origin), done)

    def transact(self, identity: Identity, what: Together, done: Done, origin: int) -> None:
        """Have all of it carried out or nothing. What its consumers hold is known to a leader that
        they are attached to: until they are, this is as if nobody led.
        """
        lane = self._open()
        streams = [cast("StreamConsumer", each.consumer) for each in what.settlements]
        if not all(each.is_attached or each.is_gone for each in streams):
            lane.calls[_Call(done)] = None
            self._break(lane, KernelError(Code.BUSY, "a consumer is not attached"))
            return
        at = (self.group, lane.number)
        self._call(lane, calls.TRANSACT, encode_transact(at, identity, what, origin), done)

    def prepare(
        self,
        identity: Identity,
        producers: str,
        queue: QueueId,
        parts: Sequence[bytes],
        done: Done,
    ) -> None:
        """Have a half message stored."""
        lane = self._open()
        encoded = encode_prepare((self.group, lane.number), identity, producers, queue, parts)
        self._call(lane, calls.PREPARE, encoded, done)

    def propose(self, change: commands.Control, identity: Identity, done: Done | None) -> None:
        """Have an administrative command carried out."""
        lane = self._open()
        parts = wire.encode_propose((self.group, lane.number), identity, change)
        self._call(lane, calls.PROPOSE, parts, done or _nobody)

    def propose_all(
        self, changes: Sequence[commands.Control], identity: Identity, done: Done
    ) -> None:
        """Have several carried out."""
        lane = self._open()
        parts = wire.encode_propose_all((self.group, lane.number), identity, changes)
        self._call(lane, calls.PROPOSE_ALL, parts, done)

    def change_leases(
        self,
        queue: QueueId,
        group: str,
        changes: Sequence[LeaseChanging],
        identity: Identity,
        done: Done,
        origin: int,
    ) -> None:
        """Have timed leases changed."""
        lane = self._open()
        at = (self.group, lane.number)
        parts = wire.encode_change_leases(at, identity, queue, group, changes, origin)
        self._call(lane, calls.CHANGE_LEASES, parts, done)

    def purge(
        self, queue: QueueId, group: str, identity: Identity, done: Done, *, in_flight: bool
    ) -> None:
        """Have everything dropped that a group has not acked."""
        lane = self._open()
        at = (self.group, lane.number)
        parts = wire.encode_purge(at, identity, queue, group, in_flight=in_flight)
        self._call(lane, calls.PURGE, parts, done)

    # --- Questions --------------------------------------------------------------------------

    async def figures(
        self, queue: QueueId, group: str, offset: Offset | None = None
    ) -> TopicStatistics:
        """Figures of one queue and group."""
        return await self._roads.figures(self.group, queue, group, offset)

    async def span(self, queue: QueueId) -> tuple[int, int]:
        """Offsets that a queue has."""
        return await self._roads.span(self.group, queue)

    async def offset_since(self, queue: QueueId, time_ms: int) -> Offset:
        """First offset of a queue that was stored at or after a time."""
        return await self._roads.offset_since(self.group, queue, time_ms)

    async def peek(
        self, queue: QueueId, offset: Offset, messages: int
    ) -> Sequence[tuple[Offset, bytes]]:
        """Messages of a queue from an offset on."""
        return await self._roads.peek(self.group, queue, offset, messages)

    # --- The lane ---------------------------------------------------------------------------

    def _open(self) -> _Lane:
        """The lane of what is sent now."""
        lane = self._lane
        if lane is None:
            self._lanes += 1
            lane = self._lane = _Lane(self._lanes, self._roads.channel_to(self.group))
            if lane.channel is None:
                self._break(lane, KernelError(Code.NOT_LEADER, "nobody is known to lead"))
        return lane

    def led_over(self, channel: Channel) -> None:
        """The leader is reached over this connection. What is unanswered at another store fails:
        one that is paused, or cut off from its majority, would not answer before its connection
        counts as broken, and what it may yet do is done once, under the same identity.
        """
        lane = self._lane
        if lane is None or lane.channel is None or lane.channel is channel:
            return
        if lane.calls:
            self._break(lane, KernelError(Code.UNKNOWN_OUTCOME, "another node leads by now"))
        else:
            self._lane = None

    def _call(self, lane: _Lane, method: int, parts: Sequence[bytes], done: Done) -> None:
        if sum(map(len, parts)) > MESSAGE_BYTES_MAX:
            message = f"a batch has at most {MESSAGE_BYTES_MAX} bytes with its head"
            self._roads.soon(partial(done, (KernelError(Code.TOO_LARGE, message),)))
            return
        call = _Call(done)
        lane.calls[call] = None
        if lane.is_broken or lane.channel is None:
            return
        try:
            answered = partial(self._answered, lane, call)
            lane.channel.call(method, parts, answered, self._roads.call_ms)
            call.code = Code.UNKNOWN_OUTCOME
        except KernelError as error:  # it has closed, or too much is waiting for it
            self._break(lane, error)

    def _answered(self, lane: _Lane, call: _Call, answer: bytes | KernelError) -> None:
        if call not in lane.calls:
            return  # it has failed with its lane
        if not isinstance(answer, KernelError):
            try:
                results = wire.decode_results(answer)
            except wire.WireError as error:
                answer = KernelError(Code.UNKNOWN_OUTCOME, f"no results: {error}")
            else:
                del lane.calls[call]
                call.done(results)
                return
        if answer.code in NOT_DONE:
            call.code = Code.NOT_LEADER
        self._break(lane, answer)

    def _break(self, lane: _Lane, error: KernelError) -> None:
        if not lane.is_broken:
            lane.is_broken = True
            self._roads.failed(self.group, lane.channel, error)
            self._roads.soon(partial(self._tell, lane))

    def _tell(self, lane: _Lane) -> None:
        """Everything unanswered hears that it has failed; what is sent from now on is new."""
        self._lane = None
        calls, lane.calls = lane.calls, {}
        for call in calls:
            call.done(KernelError(call.code, _BROKEN))


def _nobody(_results: object) -> None:
    """Done of what nobody waits for."""
